"""Connections and exchanges, as they are dissected -> how much of each was captured and decoded.

Holds one count for each protocol, kind of anomaly, unknown version and endpoint that is not Kafka; of the
last two at most ``limits.check_rows`` each, and as many more when surveys are merged.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kdissect.anomalies import CATALOGUE, NOTE
from kdissect.exchanges.learned import Listeners
from kdissect.exchanges.outcomes import outcome
from kdissect.model import ANSWERED, NOT_EXPECTED, ORPHAN, UNACKNOWLEDGED, IdleTick, Packet, PacketBlock
from kdissect.stats.sums import (
    Summed,
    earliest,
    initialize,
    join,
    joined,
    largest,
    latest,
    merged,
    own,
    summed,
    total,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.exchanges.kafka_connection import KafkaConnection
    from kdissect.limits import Limits
    from kdissect.model import Closed, Endpoint, Exchange, Interface
    from kdissect.net.connection import Connection


Key = TypeVar("Key")

KAFKA, TLS, UNRECOGNIZED = "Kafka", "TLS", "not recognized"
_UNKNOWN = ("unknown_api", "unknown_version")


_NO_KINDS: frozenset[str] = frozenset()
_LOST = frozenset({"gap", "partial_frame", "uncaptured_body", "one_direction", "not_a_frame"})
"""Anomalies of an exchange that was not fully captured, unless a part of it is ``undelivered``."""


class AnomalyCount(NamedTuple):
    """An anomaly: number of exchanges that have it, and the first of them, for ``read --exchange``.

    ``order`` is that of the first.
    """

    exchanges: int
    example: str
    order: tuple[int, int]


def _count_both(one: dict[str, AnomalyCount], other: dict[str, AnomalyCount]) -> dict[str, AnomalyCount]:
    for kind, count in other.items():
        first = min(one.get(kind, count), count, key=lambda each: each.order)
        both = count.exchanges + (one[kind].exchanges if kind in one else 0)
        one[kind] = first._replace(exchanges=both)
    return one


@summed
class Survey(Summed):
    """Counts connections and exchanges.

    Attributes:
        census: counts of packets.
        protocols: connections by protocol.
        ends: connections by close reason.
        ipv6: connections over IPv6.
        from_start: Kafka connections whose SYN was captured.
        one_sided: Kafka connections with packets of one side only.
        listeners: endpoints of Kafka brokers.
        unopened: connections that never opened, by far end, at most ``limits.unopened_connections`` ends.
        unread: connections that are not Kafka, by protocol and answering endpoint.
        tls: TLS connections, by answering endpoint, version, cipher suite, and whether they were decrypted.
        kinds: exchanges by kind.
        outcomes: exchanges by outcome; None: the response may not have been captured.
        complete: exchanges with request, response if one is expected, and nothing missing.
        whole: exchanges of which nothing is missing from the capture, answered or not.
        anomalies: by kind.
        unknown: exchanges with an unknown API or version, by API key and version.
    """

    census: Census = merged()
    protocols: Counter[str] = total(Counter)
    ends: Counter[str] = total(Counter)
    ipv6: int = total()
    from_start: int = total()
    one_sided: int = total()
    unread: Counter[tuple[str, str]] = total(Counter)
    tls: Counter[tuple[str, str | None, str | None, bool]] = total(Counter)
    kinds: Counter[str] = total(Counter)
    outcomes: Counter[str | None] = total(Counter)
    complete: int = total()
    whole: int = total()
    anomalies: dict[str, AnomalyCount] = joined(_count_both, dict)
    unknown: Counter[tuple[int, int | None]] = total(Counter)
    listeners: Listeners = merged()
    unopened: Counter[Endpoint] = total(Counter)
    _max: int = own()
    _max_unopened: int = own()

    def __init__(self, limits: Limits) -> None:
        initialize(self, Survey)
        self.census = Census(limits)
        self.listeners = Listeners(limits)
        self._max = limits.check_rows
        self._max_unopened = limits.unopened_connections

    def merge(self, other: Survey) -> None:
        """Add the counts of other connections and packets. Both may be of a class derived from this one."""
        join(self, other, Survey)

    def watch(self, packets: Iterable[Packets]) -> Iterator[Packets]:
        """Count packets while passing them on."""
        return self.census.watch(packets)

    def connection(self, connection: Connection, kafka: KafkaConnection, end: Closed) -> None:
        """Count a connection that has ended; some of its exchanges may still follow."""
        protocol = kafka.protocol or UNRECOGNIZED
        self.protocols[protocol] += 1
        self.ends[end.reason] += 1
        self.ipv6 += ":" in connection.ends[0].ip
        endpoint = str(connection.server)
        if end.tls is not None:
            session = endpoint, end.tls.version, end.tls.cipher, kafka.is_decrypted
            _count(self.tls, session, self._max)
        if protocol == KAFKA:
            self.from_start += connection.initiator is not None
            self.one_sided += not all(stream.seen for stream in connection.streams)
            return
        _count(self.unread, (protocol, endpoint), self._max)

    def unopened_connection(self, connection: Connection, end: Closed, *, is_listener: bool) -> None:  # noqa: ARG002
        """Count a connection that never opened."""
        assert connection.initiator is not None
        far_end = connection.ends[1 - connection.initiator]
        if is_listener:
            self.listeners.add(far_end)
        _count(self.unopened, far_end, self._max_unopened)

    def exchange(self, exchange: Exchange) -> None:
        """Count an exchange."""
        self.listeners.learn(exchange)
        self.kinds[exchange.kind] += 1
        kinds = {anomaly.kind for anomaly in exchange.anomalies} if exchange.anomalies else _NO_KINDS
        result = outcome(exchange)
        self.outcomes[result] += 1
        is_settled = result in (ANSWERED, NOT_EXPECTED)
        self.complete += is_settled and (not kinds or all(CATALOGUE[kind].severity == NOTE for kind in kinds))
        self.whole += (
            result is not None and result != ORPHAN and (kinds.isdisjoint(_LOST) or "undelivered" in kinds)
        )
        if kinds:
            once = AnomalyCount(1, exchange.id, exchange.order)
            _count_both(self.anomalies, dict.fromkeys(kinds, once))
        if exchange.api_key is not None and not kinds.isdisjoint(_UNKNOWN):
            _count(self.unknown, (exchange.api_key, exchange.api_version), self._max)

    def _count_usual(self, answered: int, unacknowledged: int) -> None:
        """Count exchanges without anomalies."""
        for kind, result, number in (
            (ANSWERED, ANSWERED, answered),
            (UNACKNOWLEDGED, NOT_EXPECTED, unacknowledged),
        ):
            if number:
                self.kinds[kind] += number
                self.outcomes[result] += number
        self.complete += answered + unacknowledged
        self.whole += answered + unacknowledged


def _count(counter: Counter[Key], key: Key, limit: int) -> None:
    if key in counter or len(counter) < limit:
        counter[key] += 1


# ------------------------------------------------------------------------------------------------------------
# Packets -> their number, sizes, truncation and order, by file and interface.
#
# Holds a few numbers for each interface, at most ``limits.interfaces`` of them; packets of others are counted
# for the file only.
# ------------------------------------------------------------------------------------------------------------


Packets = TypeVar("Packets", bound=PacketBlock | Packet | IdleTick)


@summed
class FileCount(Summed):
    """The packets of a file."""

    packets: int = total()
    first_ns: int = earliest()
    last_ns: int = latest()
    backward: int = total()
    furthest_back_ns: int = largest()

    def __init__(self, first_ns: int) -> None:
        Summed.__init__(self)
        self.first_ns = self.last_ns = first_ns


@summed
class InterfaceCount(Summed):
    """The packets of an interface; ``cut_to`` is the longest captured length of a truncated packet."""

    packets: int = total()
    cut: int = total()
    cut_to: int = largest()
    captured_bytes: int = total()
    wire_bytes: int = total()

    def add(self, packets: int, sizes: Sequence[int]) -> None:
        """Count packets; ``sizes`` as from ``_counted``."""
        captured_bytes, wire_bytes, cut, cut_to = sizes
        self.packets += packets
        self.captured_bytes += captured_bytes
        self.wire_bytes += wire_bytes
        self.cut += cut
        self.cut_to = max(self.cut_to, cut_to)


class Census:
    """Counts packets.

    Attributes:
        files: counts by capture name.
        interfaces: counts by interface.
    """

    def __init__(self, limits: Limits) -> None:
        self.files: dict[str, FileCount] = {}
        self.interfaces: dict[Interface, InterfaceCount] = {}
        self._max = limits.interfaces
        self._forgotten: FileCount | None = None
        self._interface: Interface | None = None  # of the last packet block,
        self._counts = FileCount(0), InterfaceCount()  # and its counts

    def watch(self, packets: Iterable[Packets]) -> Iterator[Packets]:
        """Count packets while passing them on."""
        for each in packets:
            if not isinstance(each, IdleTick):
                self._count(each if isinstance(each, PacketBlock) else PacketBlock.of(each))
            yield each

    def _count(self, block: PacketBlock) -> None:
        if block.interface is not self._interface:  # usually the same: saves a lookup
            self._interface = block.interface
            self._counts = self._of(block.interface, block.time_ns)
        file, count = self._counts
        file.packets += len(block.places)
        (first_ns, file.last_ns, backward, furthest_back_ns), sizes = _counted(block.places, file.last_ns)
        file.first_ns = min(file.first_ns, first_ns)
        file.backward += backward
        file.furthest_back_ns = max(file.furthest_back_ns, furthest_back_ns)
        by_interface = getattr(block.places, "by_interface", lambda: None)()
        if by_interface is None:
            count.add(len(block.places), sizes)
            return
        for interface, packets, sizes in by_interface:
            self._of(interface, block.time_ns)[1].add(packets, sizes)

    def merge(self, other: Census) -> None:
        """Add the counts of packets that come later in the same files."""
        for name, file in other.files.items():
            if name not in self.files:
                self.files[name] = file
            elif file.packets:
                self.files[name].merge(file)
        for interface, count in other.interfaces.items():
            if interface in self.interfaces:
                self.interfaces[interface].merge(count)
            elif len(self.interfaces) < self._max:
                self.interfaces[interface] = count

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """Times of the earliest and the latest packet; None if there are no packets."""
        files = [*self.files.values(), *(() if self._forgotten is None else (self._forgotten,))]
        return (min(file.first_ns for file in files), max(file.last_ns for file in files)) if files else None

    def forget(self, name: str) -> None:
        """Keep only the time span of a file, as in a long series of files."""
        file = self.files.pop(name, None)
        if file is None:
            return
        if self._forgotten is None:
            self._forgotten = FileCount(file.first_ns)
        span = self._forgotten
        span.first_ns, span.last_ns = min(span.first_ns, file.first_ns), max(span.last_ns, file.last_ns)
        self._interface = None
        for interface in [each for each in self.interfaces if each.capture == name]:
            del self.interfaces[interface]

    def _of(self, interface: Interface, time_ns: int) -> tuple[FileCount, InterfaceCount]:
        file = self.files.get(interface.capture)
        if file is None:
            file = self.files[interface.capture] = FileCount(time_ns)
        count = self.interfaces.get(interface) or InterfaceCount()
        if len(self.interfaces) < self._max:
            self.interfaces[interface] = count
        return file, count


def _counted(places: Any, last_ns: int) -> tuple[list[int], list[int]]:
    """Counts of packets, the previous one at ``last_ns``: earliest and latest time, packets earlier than one
    before them, and by how much at most; captured bytes, bytes on the wire, truncated packets, and the
    longest captured length of these.
    """
    if not isinstance(places, list):  # the native core's
        counted: tuple[list[int], list[int]] = places.counted(last_ns)
        return counted
    first_ns, backward, furthest_back_ns = last_ns, 0, 0
    captured_bytes = wire_bytes = cut = cut_to = 0
    for time_ns, begin, end, length in places:
        if time_ns >= last_ns:
            last_ns = time_ns
        else:
            backward += 1
            furthest_back_ns = max(furthest_back_ns, last_ns - time_ns)
            first_ns = min(first_ns, time_ns)
        captured_bytes += end - begin
        wire_bytes += length
        if end - begin < length:
            cut += 1
            cut_to = max(cut_to, end - begin)
    return [first_ns, last_ns, backward, furthest_back_ns], [captured_bytes, wire_bytes, cut, cut_to]
