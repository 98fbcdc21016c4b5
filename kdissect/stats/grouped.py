"""Facts -> counts for each combination of values, such as a client and a topic: of records if a topic is
among them, otherwise of exchanges. Holds as many combinations as a table has rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.names import kept
from kdissect.stats import rows
from kdissect.stats.contents import EACH
from kdissect.stats.document import ExchangesByRow, RecordsByRow
from kdissect.stats.quantiles import Bounded, other_counts
from kdissect.stats.record_counts import TopicRecords, TouchedRows
from kdissect.stats.sums import Summed, merged, own, summed
from kdissect.stats.tallies import Load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.limits import Limits
    from kdissect.stats.tallies import Tally

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

    takes = EACH

    def __init__(self, limits: Limits, by: tuple[str, ...]) -> None:
        self._by = by
        self._loads = Bounded(limits.summary_rows, Load)
        self._records = Bounded(limits.summary_rows, TopicRecords)

    @property
    def counts_records(self) -> bool:
        """Whether rows are of records."""
        return TOPIC in self._by

    def feed(self, tally: Tally) -> None:
        """Count exchanges or records by several columns. Those of one tally have the same partitions."""
        values = {
            "api": tally.api,
            "client": tally.client,
            "broker": tally.broker,
            "group": kept(tally.group) if "group" in self._by else None,
            "connection": tally.connection.name,
        }
        if not self.counts_records:
            self._loads[self._key(values)].add(tally)
        elif tally.exchange is not None:
            touched = TouchedRows(self._records, tally)
            for each in tally.touched:
                touched.count(self._key(values, each.topic, each.partition), each)
            touched.close()
        else:
            written: dict[Key, None] = {}
            for topic, volume in tally.volumes():
                key = self._key(values, topic, volume.partition)
                self._records[key].add_counted(tally, volume)
                if tally.writes is not None:
                    written[key] = None
            for key in written:
                self._records[key].produce_service_us.merge(tally.service_us)

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
