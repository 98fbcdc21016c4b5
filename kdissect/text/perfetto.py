"""Exchanges, and what a summary says about them -> a trace for Perfetto, https://ui.perfetto.dev.

    process "broker ..."    requests in flight and bytes a second, as counters
      track "client ..."    a connection; more tracks below it for exchanges that overlap
        slice               an exchange; below it upload, queued, throttled, network, wait, service, download
    process "groups"        rebalances, lag
    process "transactions"  those of each transactional ID
    process "findings"      from the first time to the last

Flows lead from a Produce to the Fetches of its batches, from JoinGroup to the SyncGroups of its generation,
and from EndTxn to WriteTxnMarkers. Their IDs are hashes of what both ends name, so no exchange waits for
another.

The format is protobuf, perfetto_trace.proto; the dozen fields that are needed have their numbers here. Slices
are written as exchanges come. Holds the tracks of the last ``Limits.connections`` connections, and at most
``_MAX_PIECES`` counts for each counter.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.exchanges import content
from kdissect.limits import MILLISECOND_NS, SECOND_NS
from kdissect.model import UNACKNOWLEDGED
from kdissect.phrases import client_label, printable
from kdissect.stats.by_cluster import ClusterNames
from kdissect.stats.facts import Facts
from kdissect.stats.pulse import OTHER
from kdissect.stats.pulse_groups import PulseGroups
from kdissect.text.about import about
from kdissect.text.table import api, latency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.stats.document import Summary


# ------------------------------------------------------------------------------------------------------------
# Tracks, slices and counts -> packets of a trace.
# ------------------------------------------------------------------------------------------------------------


_VARINT, _FIXED64, _BYTES = 0, 1, 2  # wire types
_SEQUENCE = 1  # this writer
_REALTIME, _BOOTTIME = 1, 6  # clocks
_BEGIN, _END, _COUNTER = 1, 2, 4  # types of events


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3 | _VARINT) + _varint(value)
    data = value if isinstance(value, bytes) else value.encode(errors="backslashreplace")
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


class TraceWriter:
    """Writes a trace.

    Attributes:
        written: bytes so far.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._tracks = 0
        self._has_clock = False
        self.written = 0

    def process(self, name: str) -> int:
        """A new group of tracks."""
        number = self._tracks + 1
        return self._track(_field(3, _field(1, number) + _field(6, name)))

    def track(self, parent: int, name: str) -> int:
        """A new track for slices."""
        return self._track(_field(5, parent) + _field(2, name))

    def counter(self, parent: int, name: str, unit: str) -> int:
        """A new track for counts."""
        return self._track(_field(5, parent) + _field(2, name) + _field(8, _field(6, unit)))

    def slice(
        self, track: int, span: TimeSpan, notes: Iterable[tuple[str, str]] = (), flows: Iterable[int] = ()
    ) -> None:
        """A slice, and those inside it. Slices of a track follow each other."""
        annotations = b"".join(_field(4, _field(10, name) + _field(6, text)) for name, text in notes)
        ids = b"".join(_varint(47 << 3 | _FIXED64) + flow.to_bytes(8, "little") for flow in flows)
        self._event(track, span.begin_ns, _BEGIN, _field(23, span.name) + annotations + ids)
        for inside in span.inside:
            self._event(track, inside.begin_ns, _BEGIN, _field(23, inside.name))
            self._event(track, inside.end_ns, _END)
        self._event(track, span.end_ns, _END)

    def count(self, track: int, time_ns: int, value: int) -> None:
        """The value of a counter from a time on."""
        self._event(track, time_ns, _COUNTER, _field(30, value))

    def _track(self, descriptor: bytes) -> int:
        self._tracks += 1
        self._write(_field(60, _field(1, self._tracks) + descriptor))
        return self._tracks

    def _event(self, track: int, time_ns: int, kind: int, more: bytes = b"") -> None:
        time_ns = max(0, time_ns)
        if not self._has_clock:  # so that Perfetto shows dates
            self._has_clock = True
            clocks = (_field(1, _field(1, clock) + _field(2, time_ns)) for clock in (_BOOTTIME, _REALTIME))
            self._write(_field(6, b"".join(clocks)))
        self._write(_field(8, time_ns) + _field(11, _field(9, kind) + _field(11, track) + more))

    def _write(self, packet: bytes) -> None:
        data = _field(1, packet + _field(10, _SEQUENCE))
        self.written += len(data)
        self._file.write(data)


class TimeSpan(NamedTuple):
    """What a slice shows: a name, times, and the spans inside it, one after the other."""

    name: str
    begin_ns: int
    end_ns: int
    inside: tuple[TimeSpan, ...] = ()


class Lanes:
    """A track, and further ones for spans that overlap."""

    def __init__(self, trace: TraceWriter, parent: int, name: str) -> None:
        self._trace = trace
        self._first = trace.track(parent, name)
        self._ends_ns: dict[int, int] = {self._first: 0}

    def add(self, span: TimeSpan, notes: Iterable[tuple[str, str]] = (), flows: Iterable[int] = ()) -> None:
        """Put a span on a track that is free then."""
        free = (track for track, end_ns in self._ends_ns.items() if end_ns <= span.begin_ns)
        track = next(free, None) or self._trace.track(self._first, f"in flight {len(self._ends_ns) + 1}")
        self._ends_ns[track] = span.end_ns
        self._trace.slice(track, span, notes, flows)


_FIRST_PIECE_NS = 100 * MILLISECOND_NS
_MAX_PIECES = 2000


class Series:
    """Amounts over time -> their average in equal pieces of time, which double if there are too many."""

    def __init__(self) -> None:
        self._piece_ns = _FIRST_PIECE_NS
        self._sums: defaultdict[int, float] = defaultdict(float)

    def add(self, begin_ns: int, end_ns: int, amount: float) -> None:
        """Spread an amount evenly over a time; all of it at once if that has no length."""
        while (end_ns - begin_ns) // self._piece_ns > _MAX_PIECES:
            self._fold()
        piece_ns = self._piece_ns
        for piece in range(begin_ns // piece_ns, max(begin_ns, end_ns - 1) // piece_ns + 1):
            inside_ns = min(end_ns, (piece + 1) * piece_ns) - max(begin_ns, piece * piece_ns)
            self._sums[piece] += amount * (inside_ns / (end_ns - begin_ns) if end_ns > begin_ns else 1)
        while len(self._sums) > _MAX_PIECES:
            self._fold()

    def _fold(self) -> None:
        self._piece_ns *= 2
        sums, self._sums = self._sums, defaultdict(float)
        for piece, value in sums.items():
            self._sums[piece // 2] += value

    def points(self) -> Iterator[tuple[int, float]]:
        """Beginning of each piece, and its amount for each nanosecond; 0 after the last of several."""
        for piece in sorted(self._sums):
            yield piece * self._piece_ns, self._sums[piece] / self._piece_ns
            if piece + 1 not in self._sums:
                yield (piece + 1) * self._piece_ns, 0.0


# ------------------------------------------------------------------------------------------------------------
# Exchanges -> slices.
# ------------------------------------------------------------------------------------------------------------


_PARTS = ("queued", "throttled", "network", "wait", "service")


def span_of(exchange: Exchange) -> TimeSpan:
    """An exchange, from the first byte of the request to the last of the response, and the parts of that."""
    request, response = exchange.request_frame, exchange.response_frame
    first = exchange.first_frame
    if request is None or response is None:
        end_ns = first.end_ns if exchange.kind == UNACKNOWLEDGED else exchange.completed_ns
        return TimeSpan(api(exchange), first.start_ns, max(first.end_ns, end_ns))
    at, answered = request.end_ns, max(request.end_ns, response.start_ns)
    inside = [TimeSpan("upload", request.start_ns, at)]
    parts = exchange.parts
    if parts is None or None in parts[:3] or (parts.wait_us is None and parts.service_us is None):
        inside.append(TimeSpan("waiting for the response", at, answered))
    else:
        for name, us in zip(_PARTS, parts, strict=True):
            end_ns = (
                answered if name == "service" and us is not None else min(answered, at + (us or 0) * 1000)
            )
            inside.append(TimeSpan(name, at, end_ns))
            at = end_ns
    end_ns = max(answered, response.end_ns)
    inside.append(TimeSpan("download", answered, end_ns))
    shown = tuple(each for each in inside if each.end_ns > each.begin_ns)
    return TimeSpan(api(exchange), min(request.start_ns, request.end_ns), end_ns, shown)


def _flow(*names: object) -> int:
    return int.from_bytes(
        blake2b(repr(names).encode(errors="backslashreplace"), digest_size=8).digest(), "big"
    )


def flows_of(exchange: Exchange, facts: Facts) -> list[int]:
    """IDs of the flows that begin or end at an exchange."""
    flows = []
    for each in facts.touched:
        if each.error:
            continue
        if each.produced is not None and (base := each.response.get("base_offset", -1)) >= 0:
            flows.append(_flow("batch", each.topic, each.partition, base))
        if each.fetched is not None:
            flows += (
                _flow("batch", each.topic, each.partition, origin.base_offset)
                for origin in each.fetched.origins()
            )
    request, response = exchange.request or {}, exchange.response or {}
    if exchange.api == "JoinGroup" and not response.get("error_code"):
        flows.append(_flow("generation", facts.group, response.get("generation_id")))
    elif exchange.api == "SyncGroup":
        flows.append(_flow("generation", facts.group, request.get("generation_id")))
    elif exchange.api == "EndTxn":
        flows.append(_flow("producer", request.get("producer_id")))
    elif exchange.api == "WriteTxnMarkers":
        flows += (_flow("producer", marker.get("producer_id")) for marker in request.get("markers") or ())
    return flows


class _Broker:
    """The tracks of a broker."""

    def __init__(self, trace: TraceWriter, name: str) -> None:
        self.process = trace.process(name)
        self.in_flight = Series()
        self.bytes = Series()


class PerfettoTrace:
    """Writes exchanges, and at the end what a summary found.

    Args:
        file: to write to.
        limits: to respect.
        max_bytes: when it has this size, further exchanges are left out; what the summary adds is small.

    Attributes:
        left_out: how many exchanges were.
    """

    def __init__(self, file: BinaryIO, limits: Limits, max_bytes: int) -> None:
        self.trace = TraceWriter(file)
        self.left_out = 0
        self._max_bytes = max_bytes
        self._names = ClusterNames(limits)
        self._groups = PulseGroups(limits)
        self._brokers: dict[str, _Broker] = {}
        self._limits = limits
        self._connections: OrderedDict[str, Lanes] = OrderedDict()
        self._lags: dict[str, LagCounter] = {}
        self._group_process: int | None = None
        self._second = 0

    def feed(self, exchange: Exchange) -> None:
        """Write an exchange."""
        if self.trace.written >= self._max_bytes:
            self.left_out += 1
            return
        facts = Facts(exchange)
        self._names.apply(facts)
        broker, span = self._broker(facts.broker), span_of(exchange)
        self._lanes(exchange, broker).add(span, self._notes(exchange), flows_of(exchange, facts))
        broker.in_flight.add(span.begin_ns, span.end_ns, span.end_ns - span.begin_ns)
        broker.bytes.add(span.begin_ns, span.end_ns, facts.request_bytes + facts.response_bytes)
        now_ns = exchange.completed_ns
        self._groups.feed(facts, now_ns)
        if now_ns // SECOND_NS > self._second:
            self._second = now_ns // SECOND_NS
            self._count_lag(now_ns)

    def close(self, summary: Summary) -> None:
        """Write what takes all exchanges."""
        for broker in self._brokers.values():
            for series, name, unit, scale in (
                (broker.in_flight, "requests in flight", "requests", 1),
                (broker.bytes, "bytes a second", "bytes/s", SECOND_NS),
            ):
                track = self.trace.counter(broker.process, name, unit)
                for time_ns, value in series.points():
                    self.trace.count(track, time_ns, round(value * scale))
        if self._second:
            self._count_lag(self._second * SECOND_NS + SECOND_NS)
        for history in summary.group_history or ():
            if history.rebalances:
                lanes = Lanes(self.trace, self._groups_process(), f"rebalances of {printable(history.group)}")
                for each in history.rebalances:
                    causes = ", ".join(dict.fromkeys(cause.cause for cause in each.causes))
                    name = f"generation {each.generation_after}: {causes}"
                    lanes.add(_between(name, each.start, each.end), [("first exchange", each.exchange)])
        transactions = summary.transactions.transactions if summary.transactions else ()
        self._add_spans(
            "transactions",
            sorted(transactions, key=lambda each: each.start),
            lambda each: each.transactional_id,
            lambda each: _between(
                each.outcome, each.start, each.start + timedelta(microseconds=each.duration_us)
            ),
            lambda each: [("records", f"{each.records:,}"), ("first exchange", each.example)],
        )
        self._add_spans(
            "findings",
            sorted(summary.findings or (), key=lambda each: each.first),
            lambda each: each.rule,
            lambda each: _between(f"{each.severity}: {each.subject}", each.first, each.last),
            lambda each: [
                *(("message", each.message), ("advice", each.advice)),
                ("evidence", ", ".join(each.evidence)),
            ],
        )

    def _add_spans(
        self,
        process: str,
        rows: Iterable[Any],
        track_of: Callable[[Any], str],
        span: Callable[[Any], TimeSpan],
        notes: Callable[[Any], list[tuple[str, str]]],
    ) -> None:
        lanes: dict[str, Lanes] = {}
        parent = None
        for row in rows:
            parent = parent or self.trace.process(process)
            name = printable(track_of(row))
            if name not in lanes:
                lanes[name] = Lanes(self.trace, parent, name)
            lanes[name].add(span(row), [(key, printable(text)) for key, text in notes(row)])

    def _broker(self, name: str) -> _Broker:
        """The tracks of a broker; those beyond a limit share theirs."""
        if name not in self._brokers and len(self._brokers) >= self._limits.top_rows:
            name = OTHER
        if name not in self._brokers:
            self._brokers[name] = _Broker(self.trace, f"broker {name}")
        return self._brokers[name]

    def _lanes(self, exchange: Exchange, broker: _Broker) -> Lanes:
        info = exchange.connection
        lanes = self._connections.pop(info.id, None)
        if lanes is None:
            client = f"{client_label(printable(exchange.client_id))} " if exchange.client_id else ""
            lanes = Lanes(self.trace, broker.process, f"{client}{info.client} ({info.id})")
            if len(self._connections) >= self._limits.connections:
                self._connections.popitem(last=False)
        self._connections[info.id] = lanes
        return lanes

    def _notes(self, exchange: Exchange) -> Iterator[tuple[str, str]]:
        yield "exchange", exchange.id
        yield "about", printable(about(exchange))
        yield "latency", latency(exchange)
        if errors := content.errors(exchange):
            yield "errors", ", ".join(errors)
        if exchange.anomalies:
            yield "anomalies", ", ".join(dict.fromkeys(each.kind for each in exchange.anomalies))

    def _groups_process(self) -> int:
        if self._group_process is None:
            self._group_process = self.trace.process("groups")
        return self._group_process

    def _count_lag(self, now_ns: int) -> None:
        for row in self._groups.rows(now_ns):
            if row.lag is None:
                continue
            known = self._lags.get(row.name)
            if known is None and len(self._lags) >= self._limits.top_rows:
                continue
            if known is None:
                track = self.trace.counter(self._groups_process(), f"lag of {printable(row.name)}", "records")
                known = LagCounter(track, -1)
            if known.records != row.lag:
                self._lags[row.name] = LagCounter(known.track, row.lag)
                self.trace.count(known.track, now_ns, row.lag)


class LagCounter(NamedTuple):
    """The counter of a group's lag, and its last value."""

    track: int
    records: int


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def _between(name: str, begin: datetime, end: datetime | None) -> TimeSpan:
    begin_ns = (begin - _EPOCH) // _MICROSECOND * 1000
    end_ns = begin_ns if end is None else (end - _EPOCH) // _MICROSECOND * 1000
    return TimeSpan(printable(name), begin_ns, max(begin_ns, end_ns))
