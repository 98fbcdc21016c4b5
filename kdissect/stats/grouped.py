"""Facts -> counts for each combination of values, such as a client and a topic: of records if a topic is
among them, otherwise of exchanges. Holds as many combinations as a table has rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.stats import rows
from kdissect.stats.document import ExchangesByRow, RecordsByRow
from kdissect.stats.load import Load
from kdissect.stats.quantiles import Bounded, other_counts
from kdissect.stats.record_counts import TopicRecords, TouchedRows
from kdissect.stats.sums import Summed, merged, own, summed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.limits import Limits
    from kdissect.model import ConnectionInfo
    from kdissect.stats.facts import Facts
    from kdissect.stats.usual import Usual

TOPIC, PARTITION = "topic", "partition"

Key = tuple[Any, ...]
"""The values of the columns, in their order; None: an exchange has none."""


def columns_of(names: Sequence[str]) -> tuple[str, ...]:
    """Names of ``traffic.BY`` to group by, each once; a partition is that of a topic."""
    unique = tuple(dict.fromkeys(names))
    if PARTITION not in unique or TOPIC in unique:
        return unique
    place = unique.index(PARTITION)
    return (*unique[:place], TOPIC, *unique[place:]) if len(unique) > 1 else unique


@summed
class Grouped(Summed):
    """Counts exchanges or records.

    Args:
        limits: ``summary_rows`` limits the combinations.
        by: returned by ``columns_of``.
    """

    _by: tuple[str, ...] = own()
    _loads: Bounded[Key, Load] = merged()
    _records: Bounded[Key, TopicRecords] = merged()

    def __init__(self, limits: Limits, by: tuple[str, ...]) -> None:
        self._by = by
        self._loads = Bounded(limits.summary_rows, Load)
        self._records = Bounded(limits.summary_rows, TopicRecords)

    @property
    def counts_records(self) -> bool:
        """Whether rows are of records."""
        return TOPIC in self._by

    def feed(self, facts: Facts) -> None:
        """Count an exchange."""
        group = facts.kept(facts.group) if "group" in self._by else None
        values = self._values(facts, facts.exchange.connection, group)
        if not self.counts_records:
            self._loads[self._key(values)].add(facts)
            return
        touched = TouchedRows(self._records, facts)
        for each in facts.touched:
            touched.count(self._key(values, each.topic, each.partition), each)
        touched.close()

    def feed_usual(self, usual: Usual) -> None:
        """Count exchanges that the core has counted, all with the same partitions."""
        values = self._values(usual, usual.connection, usual.group)
        if not self.counts_records:
            self._loads[self._key(values)].add_usual(usual)
            return
        written: dict[Key, None] = {}
        for topic, each in usual.volumes():
            key = self._key(values, topic, each.partition)
            self._records[key].add_usual(usual, each)
            if usual.writes is not None:
                written[key] = None
        for key in written:
            self._records[key].produce_service_us.merge(usual.service_us)

    @staticmethod
    def _values(counted: Facts | Usual, connection: ConnectionInfo, group: str | None) -> dict[str, Any]:
        """What the columns of exchanges have."""
        ends = {"api": counted.api, "client": counted.client, "broker": counted.broker}
        return {**ends, "group": group, "connection": connection.name}

    def _key(self, values: dict[str, Any], topic: str | None = None, partition: int | None = None) -> Key:
        named = {**values, TOPIC: topic, PARTITION: partition}
        return tuple(named[name] for name in self._by)

    def rows(self, seconds: float) -> list[Any]:
        """``ExchangesByRow``, those with most exchanges first; or ``RecordsByRow``, those with most bytes."""
        result: list[Any] = []
        if self.counts_records:
            for key, records in self._records.items():
                by = dict(zip(self._by, key, strict=True))
                result.append(rows.row_of(RecordsByRow, records, by=by, **rows.volume(records, seconds)))
        else:
            for key, load in self._loads.items():
                by = dict(zip(self._by, key, strict=True))
                result.append(rows.row_of(ExchangesByRow, load, by=by, **rows.load(load, seconds)))
        return sorted(result, key=largest_first)

    def other_counts(self) -> dict[str, int]:
        """Exchanges of combinations without their own row."""
        return other_counts(exchanges_by=(self._loads, "exchanges"), records_by=(self._records, "touches"))


def largest_first(row: ExchangesByRow | RecordsByRow) -> tuple[int, str]:
    """Sort key of rows."""
    amount = rows.by_bytes(row) if isinstance(row, RecordsByRow) else -row.exchanges
    return amount, str(list(row.by.values()))
