"""Facts -> a load for each interval, of all exchanges and of each row of one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.stats import rows
from kdissect.stats.document import IntervalRow
from kdissect.stats.load import Load
from kdissect.stats.quantiles import Bounded, other_counts
from kdissect.stats.sums import Summed, merged, own, summed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.stats.facts import Facts

SECOND_NS = 1_000_000_000


@summed
class Intervals(Summed):
    """A time series: intervals of equal length, aligned to 1970 so that those of two captures match."""

    _length_ns: int = own()
    _by: frozenset[str] = own()
    _loads: Bounded[tuple[int, str | None], Load] = merged()

    def __init__(self, limits: Limits, length_ns: int, by: frozenset[str]) -> None:
        self._length_ns = length_ns
        self._by = by
        self._loads = Bounded(limits.summary_intervals, Load)

    def feed(self, facts: Facts) -> None:
        """Count an exchange in the interval of its time."""
        start_ns = facts.exchange.time_ns // self._length_ns * self._length_ns
        self._loads[start_ns, None].add(facts)
        for key in self._keys(facts):
            self._loads[start_ns, key].add(facts)

    def other_counts(self) -> dict[str, int]:
        """Exchanges of intervals without their own row."""
        return other_counts(intervals=(self._loads, "exchanges"))

    def rows(self) -> list[IntervalRow]:
        """In order of time; an interval without exchanges has no row."""
        seconds = self._length_ns / SECOND_NS
        return [
            rows.row_of(IntervalRow, load, start=rows.moment(start_ns), key=key, **rows.load(load, seconds))
            for start_ns, key, load in self.loads()
        ]

    def loads(self) -> Iterator[tuple[int, str | None, Load]]:
        """Start of each interval, row key (None: all exchanges) and counts, in order of time."""
        for (start_ns, key), load in sorted(
            self._loads.items(), key=lambda item: (item[0][0], item[0][1] or "")
        ):
            yield start_ns, key, load

    def _keys(self, facts: Facts) -> list[str]:
        """The rows of ``--by`` that an exchange belongs to."""
        by, exchange = self._by, facts.exchange
        keys: list[str] = []
        if "api" in by:
            keys.append(facts.api)
        if "client" in by:
            keys.append(facts.client)
        if "broker" in by:
            keys.append(facts.broker)
        if "group" in by and facts.group is not None:
            keys.append(facts.group)
        if "connection" in by:
            keys.append(exchange.connection.name)
        if "topic" in by:
            keys += dict.fromkeys(each.topic for each in facts.touched)
        if "partition" in by:
            keys += dict.fromkeys(f"{each.topic}:{each.partition}" for each in facts.touched)
        return keys
