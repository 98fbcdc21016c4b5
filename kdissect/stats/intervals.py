"""Facts -> a load for each interval, of all exchanges and of each row of one table; connections, too."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.kafka.codes import UNNAMED_ERROR
from kdissect.limits import SECOND_NS
from kdissect.stats import rows
from kdissect.stats.contents import EACH
from kdissect.stats.document import IntervalRow
from kdissect.stats.quantiles import Bounded, other_counts
from kdissect.stats.sums import Summed, merged, own, summed, total
from kdissect.stats.survey import KAFKA
from kdissect.stats.tallies import Load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.tallies import Tally

SHORTEST_NS = SECOND_NS // 8
"""Interval that doubles as a capture grows: so they become whole seconds."""
MAX_INTERVALS = 600
"""Such intervals, at most."""
_UNKNOWN = "unknown"  # all APIs and errors without a name, or a capture could have any number of them


@summed
class IntervalLoad(Load):
    """The counts of one interval.

    Attributes:
        apis, api_bytes: exchanges and bytes of frames by API.
        error_names: exchanges with an error that is not expected, by error.
        anomalies: of exchanges, by kind.
        queued_us, throttled_us, network_us: sums of parts of latencies (exchanges/latency.py);
            ``transfer_us``: of what is not part of latencies.
        opened: Kafka connections that began with a TCP handshake; ``ended``: by who ended them and how.
    """

    apis: Counter[str] = total(Counter)
    api_bytes: Counter[str] = total(Counter)
    error_names: Counter[str] = total(Counter)
    anomalies: Counter[str] = total(Counter)
    queued_us: int = total()
    throttled_us: int = total()
    network_us: int = total()
    transfer_us: int = total()
    opened: int = total()
    ended: Counter[str] = total(Counter)

    def add(self, tally: Tally) -> None:
        """Count a tally."""
        Load.add(self, tally)
        if tally.exchange is None:
            self.apis[tally.api] += tally.exchanges
            self.api_bytes[tally.api] += tally.request_bytes + tally.response_bytes
            self.queued_us += tally.queued_us.total
            self.transfer_us += tally.transfer_us
            return
        exchange = tally.exchange
        api = exchange.api or _UNKNOWN
        self.apis[api] += 1
        self.api_bytes[api] += tally.request_bytes + tally.response_bytes
        for name in tally.serious:
            self.error_names[_UNKNOWN if name.startswith(UNNAMED_ERROR) else name] += 1
        for anomaly in exchange.anomalies:
            self.anomalies[anomaly.kind] += 1
        if (parts := tally.parts) is not None:
            self.queued_us += parts.queued_us or 0
            self.throttled_us += parts.throttled_us or 0
            self.network_us += parts.network_us or 0
        if (total_us := exchange.total_us) is not None:
            self.transfer_us += total_us - (tally.latency_us or 0)


@summed
class Intervals(Summed):
    """A time series: intervals of equal length, aligned to 1970 so that those of two captures match.

    Args:
        limits: sizes of the table.
        length_ns: of an interval.
        by: a table of ``traffic.BY`` whose rows have intervals too.
        max_rows: if there are more, the length of the intervals doubles; 0: it does not. That depends only on
            when something happened, not on the order in which it is counted.
    """

    length_ns: int = own()
    _by: frozenset[str] = own()
    _max_rows: int = own()
    _loads: Bounded[tuple[int, str | None], IntervalLoad] = merged()

    takes = EACH

    def __init__(self, limits: Limits, length_ns: int, by: frozenset[str], max_rows: int = 0) -> None:
        self.length_ns, self._by, self._max_rows = length_ns, by, max_rows
        self._loads = Bounded(limits.summary_intervals, IntervalLoad)

    def feed(self, tally: Tally) -> None:
        """Count exchanges in the interval of their time. Those of one tally are all in one."""
        time_ns = tally.noted.first_ns if tally.exchange is None else tally.exchange.time_ns
        self._at(time_ns).add(tally)
        for key in self._keys(tally):
            self._at(time_ns, key).add(tally)

    def connect(self, row: ConnectionLogRow) -> None:
        """Count a connection that has ended."""
        if row.protocol != KAFKA:
            return
        if row.opening is not None and row.first_ns is not None:
            self._at(row.first_ns).opened += 1
        if row.end is not None:
            self._at(row.end.time_ns).ended[row.ending] += 1

    def merge(self, other: Intervals) -> None:
        """Add another, in the longer intervals."""
        shorter, longer = sorted((self, other), key=lambda each: each.length_ns)
        shorter.lengthen(longer.length_ns)
        Summed.merge(self, other)
        self._shorten()

    def other_counts(self) -> dict[str, int]:
        """Exchanges of intervals without their own row."""
        return other_counts(intervals=(self._loads, "exchanges"))

    def rows(self) -> list[IntervalRow]:
        """In order of time; an interval in which nothing happened has no row."""
        seconds = self.length_ns / SECOND_NS
        return [
            rows.row_of(
                IntervalRow,
                load,
                start=rows.moment(start_ns),
                seconds=seconds,
                key=key,
                service_counts=load.service_us.histogram(rows.BOUNDS_US),
                **rows.load(load, seconds),
            )
            for start_ns, key, load in self.loads()
        ]

    def loads(self) -> Iterator[tuple[int, str | None, IntervalLoad]]:
        """Start of each interval, row key (None: all exchanges) and counts, in order of time."""
        for (start_ns, key), load in sorted(
            self._loads.items(), key=lambda item: (item[0][0], item[0][1] or "")
        ):
            yield start_ns, key, load

    def _at(self, time_ns: int, key: str | None = None) -> IntervalLoad:
        """The counts of an interval."""
        load = self._loads[time_ns - time_ns % self.length_ns, key]
        if not self._max_rows or len(self._loads) <= self._max_rows:
            return load
        self._shorten()
        return self._loads[time_ns - time_ns % self.length_ns, key]

    def _shorten(self) -> None:
        """Let the intervals double while there are too many of them."""
        while self._max_rows and len(self._loads) > self._max_rows:
            self.lengthen(2 * self.length_ns)

    def lengthen(self, length_ns: int) -> None:
        """Add the counts of intervals to those of longer ones, which are a multiple of their length."""
        self.length_ns = length_ns
        for start_ns, key in sorted(self._loads, key=lambda item: item[0]):
            longer_ns = start_ns - start_ns % self.length_ns
            if longer_ns != start_ns:
                load = self._loads.pop((start_ns, key))
                self._loads[longer_ns, key].merge(load)

    def _keys(self, tally: Tally) -> list[str]:
        """The rows of ``--by`` that a tally belongs to."""
        by = self._by
        keys: list[str] = []
        if "api" in by:
            keys.append(tally.api)
        if "client" in by:
            keys.append(tally.client)
        if "broker" in by:
            keys.append(tally.broker)
        if "group" in by and tally.group is not None:
            keys.append(tally.group)
        if "connection" in by:
            keys.append(tally.connection.name)
        if "topic" in by:
            keys += dict.fromkeys(topic for topic, _ in tally.partitions)
        if "partition" in by:
            keys += dict.fromkeys(f"{topic}:{partition}" for topic, partition in tally.partitions)
        return keys
