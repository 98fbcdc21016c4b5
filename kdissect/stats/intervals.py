"""Facts -> a load for each interval, of all exchanges and of each row of one table; connections, too.

For charts, also two numbers for each broker, client, topic and group: 16 bytes for each that was seen before,
so 80 MB if all tables are full, and much less before.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from operator import add
from typing import TYPE_CHECKING

from kdissect.kafka.codes import UNNAMED_ERROR
from kdissect.limits import SECOND_NS
from kdissect.names import kept
from kdissect.stats import rows
from kdissect.stats.contents import EACH
from kdissect.stats.document import BusiestRow, IntervalRow
from kdissect.stats.quantiles import Bounded, other_counts
from kdissect.stats.sums import Summed, merged, own, summed, total
from kdissect.stats.survey import KAFKA
from kdissect.stats.tallies import Load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kdissect.limits import Limits
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.tallies import Tally

SHORTEST_NS = SECOND_NS // 8
"""Interval that doubles as a capture grows: so they become whole seconds."""
MAX_INTERVALS = 600
"""Such intervals, at most."""
BUSIEST = 7
"""Brokers, clients, topics and groups that have their own numbers in the document."""
_UNKNOWN = "unknown"  # all APIs and errors without a name, or a capture could have any number of them
_BROKER, _CLIENT, _TOPIC, _GROUP = "broker", "client", "topic", "group"
_EXCHANGES, _RECORDS = ("exchanges", "errors"), ("produced_bytes", "fetched_bytes")
_NO_COLUMNS: dict[str, list[int] | None] = dict.fromkeys((*_EXCHANGES, *_RECORDS))


class Shares:
    """Two numbers for each name; ``numbers`` has them by the place of the name."""

    __slots__ = ("numbers",)

    def __init__(self) -> None:
        self.numbers = array("Q")

    def add(self, place: int, one: int, two: int) -> None:
        """Add to the numbers of a name."""
        if (missing := 2 * place + 2 - len(self.numbers)) > 0:
            self.numbers.frombytes(bytes(8 * missing))
        self.numbers[2 * place] += one
        self.numbers[2 * place + 1] += two

    def merge(self, other: Shares) -> None:
        """Add the numbers of others, whose names have the same places."""
        short, long = sorted((self.numbers, other.numbers), key=len)
        self.numbers = array("Q", map(add, short, long)) + long[len(short) :]

    def of(self, places: Sequence[int]) -> tuple[int, int]:
        """The sums of names."""
        numbers = self.numbers
        known = [2 * place for place in places if 2 * place < len(numbers)]
        return sum(numbers[each] for each in known), sum(numbers[each + 1] for each in known)

    def move(self, places: Sequence[int]) -> None:
        """Give the names other places; several may get the same."""
        numbers, self.numbers = self.numbers, array("Q")
        for place, one, two in zip(places, numbers[::2], numbers[1::2], strict=False):
            self.add(place, one, two)


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
        retransmissions: segments; ``lost_bytes``: that were not captured; both of Kafka connections.
        shares: of brokers, clients and groups, exchanges and those with an error that is not expected; of
            topics, bytes of records written and read.
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
    retransmissions: int = total()
    lost_bytes: int = total()
    shares: Shares = merged(Shares)

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
        max_rows: if there are more, the length of the intervals doubles; 0: it does not, and names have no
            shares. That depends only on when something happened, not on the order in which it is counted.
    """

    length_ns: int = own()
    _by: frozenset[str] = own()
    _max_rows: int = own()
    _max_names: int = own()
    _loads: Bounded[tuple[int, str | None], IntervalLoad] = merged()
    _places: dict[str, dict[str | None, int]] = own()  # of names, by table; None: all further names

    takes = EACH

    def __init__(self, limits: Limits, length_ns: int, by: frozenset[str], max_rows: int = 0) -> None:
        self.length_ns, self._by, self._max_rows = length_ns, by, max_rows
        self._max_names = limits.summary_rows
        self._places = {table: {} for table in (_BROKER, _CLIENT, _TOPIC, _GROUP)}
        self._loads = Bounded(limits.summary_intervals, IntervalLoad)

    def feed(self, tally: Tally) -> None:
        """Count exchanges in the interval of their time. Those of one tally are all in one."""
        time_ns = tally.noted.first_ns if tally.exchange is None else tally.exchange.time_ns
        load = self._at(time_ns)
        load.add(tally)
        if self._max_rows:
            self._share(load.shares, tally)
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
        first_ns = row.first_ns or 0  # a piece of time may begin before
        for time_ns, segments in () if row.tcp is None else row.tcp.retransmitted_at:
            self._at(max(time_ns, first_ns)).retransmissions += segments
        for time_ns, size in row.lost_at:
            self._at(max(time_ns, first_ns)).lost_bytes += size

    def merge(self, other: Intervals) -> None:
        """Add another, in the longer intervals."""
        shorter, longer = sorted((self, other), key=lambda each: each.length_ns)
        shorter.lengthen(longer.length_ns)
        places = {
            place: self._place(table, name)
            for table, names in other._places.items()
            for name, place in names.items()
        }
        for load in other._loads.values():
            load.shares.move([place for _, place in sorted(places.items())])
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

    @property
    def apart(self) -> frozenset[str]:
        """Names of ``traffic.BY`` by which counts of the core must be apart."""
        return self._by | ({_GROUP} if self._max_rows else frozenset())

    def busiest(self, names: Mapping[str, str]) -> list[BusiestRow] | None:
        """The largest shares of each table, then those of all others; None: there are no shares.

        Args:
            names: of topic IDs.
        """
        if not self._max_rows:
            return None
        shares = [load.shares for _, key, load in self.loads() if key is None]
        whole = Shares()
        for each in shares:
            whole.merge(each)
        busiest = []
        for table, places in self._places.items():
            known: dict[str | None, list[int]] = defaultdict(list)
            for name, place in places.items():
                known[kept(names.get(name, name)) if name is not None else None].append(place)
            totals = {name: sum(whole.of(of)) for name, of in known.items()}
            ranked = sorted(known, key=lambda name: (name is None, -totals[name], name))
            shown = ranked if len(ranked) <= BUSIEST + 1 else ranked[:BUSIEST]
            series = {name: known[name] for name in shown}
            if rest := [place for name in ranked[len(shown) :] for place in known[name]]:
                series[None] = rest
            for name, of in series.items():
                numbers = map(list, zip(*(each.of(of) for each in shares), strict=True))
                columns = dict(zip(_RECORDS if table == _TOPIC else _EXCHANGES, numbers, strict=True))
                busiest.append(BusiestRow(table=table, name=name, **_NO_COLUMNS | columns))
        return busiest

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

    def _share(self, shares: Shares, tally: Tally) -> None:
        """Count a tally for its broker, client, group and topics."""
        errors = 0 if tally.exchange is None else bool(tally.serious)
        for table, name in ((_BROKER, tally.broker), (_CLIENT, tally.client), (_GROUP, tally.group)):
            if name is not None:
                shares.add(self._place(table, name), tally.exchanges, errors)
        if tally.exchange is None:
            for topic, volume in () if tally.is_replicated else tally.volumes():
                written, read = (volume.size[0], 0) if tally.writes is not None else (0, volume.size[0])
                if volume.size[0]:
                    shares.add(self._place(_TOPIC, topic), written, read)
            return
        for each in tally.touched:
            written = 0 if each.produced is None or each.error else len(each.produced)
            read = 0 if each.fetched is None or tally.replica else len(each.fetched)
            if written or read:
                shares.add(self._place(_TOPIC, each.topic), written, read)

    def _place(self, table: str, name: str | None) -> int:
        """The place of a name in ``Shares``, or that of all names for which there is no room."""
        places = self._places[table]
        if name is not None and name not in places and (name := kept(name)) not in places:
            name = name if len(places) < self._max_names else None
        if name not in places:
            places[name] = sum(map(len, self._places.values()))
        return places[name]

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
