"""Connections and their TCP analysis -> causes on the path: it carries no large packets, forgets
connections, ends long polls, or lets too few bytes under way.

None of these shows itself as an error: clients report timeouts and disconnects, and brokers nothing at all.
"""

from __future__ import annotations

from abc import abstractmethod
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar

from kdissect.anomalies import WARNING
from kdissect.exchanges.outcomes import AT_ONCE_NS
from kdissect.limits import MILLISECOND_NS, SECOND_NS
from kdissect.net.analysis import OPENED, SILENCE_NS, UNOPENED
from kdissect.net.duplex import NEVER_NS
from kdissect.phrases import duration, many, size, span
from kdissect.stats.connection_log import BROKER, CLIENT
from kdissect.stats.contents import EACH, SUM, SUMS
from kdissect.stats.findings.connections import is_kafka, span_of
from kdissect.stats.findings.rule import Evidence, Rule, combined
from kdissect.stats.findings.tcp import TCP_ENDS, tcp_key
from kdissect.stats.sums import earliest, joined, largest, latest, merged, summed, total
from kdissect.stats.windows import Windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.model import ConnectionInfo, Exchange, Frame
    from kdissect.net.analysis import TcpAnalysis
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.findings.rule import RulePart, Scope
    from kdissect.stats.tallies import Tally


# ------------------------------------------------------------------------------------------------------------
# Segments that never arrive, by size -> a path with a smaller MTU than its ends believe.
# ------------------------------------------------------------------------------------------------------------

_FATAL_NS = 20 * SECOND_NS  # no NAT, firewall or load balancer forgets a connection sooner
_COPIES = 3
_LARGE = 500  # bytes: what is lost below that is lost for another reason
_STUCK_NS = 3 * SECOND_NS  # by then TCP has retransmitted four times
_FULL_SIZES = range(1460, 1199, -1)  # payload of segments with an MTU of 1,500, less options and tunnels


@summed
class Holes(Evidence):
    """Connections that are stuck at a large segment, the smallest payload that never arrived, and the largest
    that did; when a connection last carried anything.
    """

    smallest: int = earliest(NEVER_NS)
    passed: int = largest()
    bytes: int = total()
    alive_ns: int = latest(0)


@summed
class MtuBlackHole(Rule):
    """A link or tunnel with a smaller MTU drops large packets, and the ICMP message that would say so does
    not reach the sender, which repeats them until the connection ends. Small requests work, so the broker
    seems slow.
    """

    name = "mtu-black-hole"
    severity = WARNING
    of = (*TCP_ENDS, "end")
    cut = "count"
    lost = "length_ns"
    title = "Only large packets are lost: the path has a smaller MTU than its ends use."
    when = (
        f"A segment of {_LARGE} bytes or more is not acknowledged within {_STUCK_NS // SECOND_NS} s, after "
        f"{_COPIES} retransmissions or, if the capture is behind the loss, while later ones arrive; all "
        "segments of that client and broker that arrive are smaller, some of the same connection before and "
        "some meanwhile. One connection is enough. Not found if the path carried larger segments earlier in "
        f"the capture, or the connection had been silent for {_FATAL_NS // SECOND_NS} s before."
    )
    advice = (
        "Find the largest packet that passes with ping -M do -s SIZE; lower the MTU of the interfaces, or "
        "clamp the MSS on the router or tunnel between; let ICMP type 3 code 4 (IPv6: packet too big) pass."
    )
    counts = Holes

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the sides whose large segments do not arrive."""
        tcp = row.tcp
        if tcp is None or not is_kafka(row) or row.opening in UNOPENED:
            return
        silence, is_counted = tcp.fatal_silence, False
        if silence is not None and silence.length_ns >= _FATAL_NS:  # forgotten on the way, see below
            return
        for end, side in ((CLIENT, row.client_side), (BROKER, 1 - row.client_side)):
            kept = self.kept[*tcp_key(row), end]
            size, passed = _stuck_size(tcp, side, row)
            kept.passed = max(kept.passed, passed)
            until_ns = max(tcp.latest_ns, 0 if row.end is not None else row.closed_ns or 0)
            if tcp.segments(1 - side):
                kept.alive_ns = max(kept.alive_ns, tcp.sent_ns(1 - side))
            is_large = size >= _LARGE and size > passed > 0 and tcp.unacknowledged(side) >= size
            if is_large and not is_counted and until_ns - tcp.sent_ns(side) >= _STUCK_NS:
                is_counted = True
                kept.note(row, tcp.sent_ns(side))
                kept.last_ns = max(kept.last_ns, until_ns)
                kept.smallest = min(kept.smallest, size)
                kept.bytes += tcp.unacknowledged(side)
                if tcp.duplicate_acks(1 - side) or not tcp.retransmitted(side):
                    kept.alive_ns = max(kept.alive_ns, tcp.sent_ns(side) + 1)

    def _reports(self, each: Holes) -> bool:
        return each.count > 0 and each.smallest > each.passed and each.alive_ns > each.first_ns

    def _message(self, scope: Scope, each: Holes) -> str:
        what = " and ".join("requests" if end == CLIENT else "responses" for end in scope["end"])
        return (
            f"{each.smallest:,}-byte segments of {what} never arrive, those of up to {each.passed:,} bytes "
            f"do ({many(each.count, 'connection')})"
        )


def _stuck_size(tcp: TcpAnalysis, side: int, row: ConnectionLogRow) -> tuple[int, int]:
    """Payload of the segment that a side cannot get through, 0: none; the largest payload that it did."""
    passed = tcp.passed(side)
    if not tcp.unacknowledged(side):
        return 0, passed
    if tcp.retransmitted(side) >= _COPIES:
        return tcp.repeated(side), passed
    holes = row.gaps.get("kafka_undelivered_gaps", 0)
    if not holes:
        return 0, passed
    size = row.gaps.get("kafka_undelivered_bytes", 0) // holes
    size = next((full for full in _FULL_SIZES if size % full == 0), size)
    return size, max(passed, tcp.largest(side))  # what came behind the hole


# ------------------------------------------------------------------------------------------------------------
# Silence, then a segment that gets no answer -> something on the path forgets connections.
# ------------------------------------------------------------------------------------------------------------


@summed
class Deaths(Evidence):
    """Connections that stopped working, and their requests; when any between the same ends last opened."""

    requests: int = total()
    opened_ns: int = latest(0)

    @property
    def has_successor(self) -> bool:
        """Whether one opened after the first of them stopped working."""
        return self.count > 0 and self.opened_ns > self.first_ns


class DeadConnections(Rule):
    """A rule about connections that stop working, while new ones between the same ends work."""

    __slots__ = ()

    severity = WARNING
    of = TCP_ENDS
    cut = "count"

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if it stopped working, and note when it opened."""
        if row.tcp is not None and is_kafka(row):
            kept = self.kept[tcp_key(row)]
            if row.opening == OPENED:
                kept.opened_ns = max(kept.opened_ns, row.first_ns or 0)
            self._judge(row, row.tcp, kept)

    @abstractmethod
    def _judge(self, row: ConnectionLogRow, tcp: TcpAnalysis, kept: Any) -> None:
        """Count the connection if it stopped working."""

    def _reports(self, each: Any) -> bool:
        return bool(each.has_successor)


@summed
class Silences(Deaths):
    """Connections that did not survive a silence, the shortest of these and the longest that was survived;
    those that were reset; keep-alive probes.
    """

    shortest_ns: int = earliest(NEVER_NS)
    survived_ns: int = largest()
    reset: int = total()
    keepalives: int = total()


@summed
class IdleDropped(DeadConnections):
    """NAT, firewalls and load balancers forget connections on which nothing is sent for minutes. Neither end
    knows it: the next request gets no answer, or an RST, and the client waits for its timeout.
    """

    name = "idle-connection-dropped"
    title = "Connections stop working after a time without traffic, and new ones work."
    when = (
        f"Nothing was sent for {_FATAL_NS // SECOND_NS} s or more, and the next segment was retransmitted "
        f"{_COPIES} times without any answer, or answered with an RST; later a new connection between the "
        "same ends opened, and no connection between them survived a silence as long. One that an end closes "
        "(connections.max.idle.ms) does not count."
    )
    advice = (
        "Set connections.max.idle.ms of the client below the shortest silence that was fatal, or raise the "
        "idle timeout of the NAT, firewall or load balancer, or send TCP keep-alives more often (librdkafka: "
        "socket.keepalive.enable, with net.ipv4.tcp_keepalive_time)."
    )
    counts = Silences

    def _judge(self, row: ConnectionLogRow, tcp: TcpAnalysis, kept: Silences) -> None:
        kept.keepalives += tcp.keepalives
        kept.survived_ns = max(kept.survived_ns, tcp.survived_ns)
        fatal = tcp.fatal_silence
        if fatal is None or fatal.length_ns < _FATAL_NS or not all(row.seen):
            return
        is_reset = row.end is not None and row.end.reset and row.end.side != fatal.side
        if is_reset or (tcp.retransmitted(fatal.side) >= _COPIES and tcp.unacknowledged(fatal.side)):
            kept.note(row, fatal.tried_ns)
            kept.last_ns = max(kept.last_ns, tcp.latest_ns)
            kept.shortest_ns = min(kept.shortest_ns, fatal.length_ns)
            kept.reset += is_reset
            kept.requests += row.outstanding

    def _reports(self, each: Silences) -> bool:
        return each.has_successor and each.survived_ns < each.shortest_ns

    def _message(self, _: Scope, each: Silences) -> str:
        how = "reset" if each.reset == each.count else "dead"
        if 0 < each.reset < each.count:
            how += f" ({each.reset:,} reset)"
        survived = f"{span(each.survived_ns)} survived; " if each.survived_ns >= SILENCE_NS else ""
        keepalives = many(each.keepalives, "keep-alive") if each.keepalives else "no keep-alives"
        at_least = " or more" if each.count > 1 else ""
        return (
            f"{many(each.count, 'connection')} {how} after {span(each.shortest_ns)}{at_least} of silence "
            f"({survived}{keepalives}), new ones work"
        )


# ------------------------------------------------------------------------------------------------------------
# Requests that the broker never acknowledges, while new connections work -> an interrupted path.
# ------------------------------------------------------------------------------------------------------------


@summed
class Interruptions(Deaths):
    """Such connections, and their bytes."""

    bytes: int = total()


@summed
class PathInterrupted(DeadConnections):
    """Neither end knows that its connection is dead: the client waits for its timeout, and what it wrote may
    be lost or, after a retry, stored twice.
    """

    name = "path-interrupted"
    failed = "requests"
    title = "A broker no longer acknowledges the requests of a connection, and new connections work."
    when = (
        f"A client retransmitted {_COPIES} times or more without an acknowledgment, the broker did not end "
        "the connection, and the client later opened another one. After a long silence, it is "
        "idle-connection-dropped, with large segments only, mtu-black-hole."
    )
    advice = (
        "Look for what lost the state of the connection at that time: NAT, a firewall, a load balancer, a "
        "route that changed, or a broker's host that was paused. If the requests are Produce with acks=0, "
        "their records are lost."
    )
    counts = Interruptions

    def _judge(self, row: ConnectionLogRow, tcp: TcpAnalysis, kept: Interruptions) -> None:
        unread = tcp.unacknowledged(row.client_side)
        is_ended = row.end is not None and row.ended_by != CLIENT
        if unread and tcp.retransmitted(row.client_side) >= _COPIES and not is_ended and all(row.seen):
            kept.note(row, row.last_ns)
            kept.bytes += unread
            kept.requests += row.outstanding

    def _message(self, _: Scope, each: Interruptions) -> str:
        return (
            f"{each.bytes:,} bytes of {many(each.requests, 'request')} on "
            f"{many(each.count, 'connection')} never acknowledged, despite retransmissions; new ones work"
        )


# ------------------------------------------------------------------------------------------------------------
# Connections that end inside a long poll, always after the same silence -> a proxy's timeout.
# ------------------------------------------------------------------------------------------------------------

_CUTS = 3
_APART = 0.05
_MIN_CUT_NS = SECOND_NS


@summed
class Cuts(Evidence):
    """Connections that ended inside a long poll, and the shortest and longest silence before that."""

    silence_ns: tuple[int, int] = joined(span_of, lambda: (NEVER_NS, 0))


@summed
class LongPollsCut(Rule):
    """A broker holds a Fetch until there are records, and JoinGroup until all members have joined. A proxy
    takes that for a dead connection.
    """

    name = "long-polls-cut"
    severity = WARNING
    of: ClassVar[tuple[str, ...]] = TCP_ENDS
    cut = "count"
    title = "Connections end while the broker holds a request, always after the same time."
    when = (
        f"{_CUTS} connections of a client and broker were ended from the broker's side while a request that "
        "brokers hold (a long poll, JoinGroup, SyncGroup) was outstanding, all after the same time "
        f"without traffic (within {_APART:.0%} and {AT_ONCE_NS // MILLISECOND_NS} ms; "
        f"{_MIN_CUT_NS // SECOND_NS} s or more), and not all within that time: then the broker stopped."
    )
    advice = (
        "Look for a proxy, load balancer or service mesh with an idle timeout of that length; raise it above "
        "fetch.max.wait.ms, or lower fetch.max.wait.ms of the consumer below it."
    )
    counts = Cuts

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if it ended inside a long poll."""
        if not is_kafka(row) or row.ended_by != BROKER or row.outstanding == row.outstanding_calls:
            return
        if row.end is not None and row.idle_ns is not None and row.idle_ns >= _MIN_CUT_NS:
            kept = self.kept[tcp_key(row)]
            kept.note(row, row.end.time_ns)
            kept.silence_ns = span_of(kept.silence_ns, (row.idle_ns, row.idle_ns))

    def _reports(self, each: Cuts) -> bool:
        shortest_ns, longest_ns = each.silence_ns
        if each.count < _CUTS or each.length_ns < shortest_ns:
            return False
        return longest_ns - shortest_ns <= AT_ONCE_NS + _APART * shortest_ns

    def _message(self, _: Scope, each: Cuts) -> str:
        return (
            f"{many(each.count, 'connection')} ended while the broker held a request, each "
            f"{duration(each.silence_ns[0])} after the last byte"
        )


# ------------------------------------------------------------------------------------------------------------
# Messages that take long from their first byte to their last, far away -> too little is under way at a time.
# ------------------------------------------------------------------------------------------------------------

_SLOW_US = 10_000_000
_FAST = 1_000_000  # bytes per second
_FAR_NS = 5 * MILLISECOND_NS
_UNSCALED = 65_535  # bytes: the largest window without scaling (RFC 7323, 2.2)
_LOST_SHARE, _STALLED_SHARE = 0.01, 0.1


@summed
class Transfers(Evidence):
    """Exchanges, and how long their bytes took on the wire; of their connections the shortest round trip,
    segments, those that were lost, how long an end did not read, and its windows.

    Attributes:
        bytes: of all exchanges, also those that one packet has and that took no time: the counts of the core
            do not tell them apart. So the real rate is at most ``per_second``.
        request_bytes: those of them that went to the broker.
        limits: of findings, what the windows allow, in words; see ``_limit``.
    """

    transfer_us: int = total()
    bytes: int = total()
    request_bytes: int = total()
    round_trip_ns: int = earliest(NEVER_NS)
    segments: int = total()
    lost: int = total()
    stalled_ns: int = total()
    windows: Windows = merged(Windows)
    limits: set[str] = joined(or_, set)

    @property
    def per_second(self) -> float:
        """Bytes per second, while a message was under way."""
        return 1_000_000 * self.bytes / self.transfer_us

    @property
    def under_way(self) -> int:
        """Bytes in a round trip: what a sender has sent at most before it waits, if a window limits it."""
        return round(self.per_second * self.round_trip_ns / SECOND_NS)


@summed
class SlowTransfer(Rule):
    """A sender has at most a window of bytes under way, and waits a round trip for the acknowledgment: a
    window of 64 KiB over 100 ms is 650 kB/s, however fast the path is. All that is logged are timeouts.
    """

    name = "slow-transfer"
    severity = WARNING
    of = TCP_ENDS
    lost = "transfer_us"
    title = "Messages arrive slowly although nothing is lost: a window or the path limits them."
    when = (
        f"Produce and Fetch messages of a client and broker took {_SLOW_US // 1_000_000} s or more in all "
        f"from their first byte to their last, at less than {_FAST // 1_000_000} MB/s; the round trip is "
        f"{_FAR_NS // MILLISECOND_NS} ms or more, and no more than {_UNSCALED:,} bytes, which is the largest "
        f"window without scaling, were under way in it. Not found if {_LOST_SHARE:.0%} of the segments were "
        f"lost, or an end did not read for {_STALLED_SHARE:.0%} of that time."
    )
    advice = (
        "Raise receive.buffer.bytes and send.buffer.bytes of the client and socket.receive.buffer.bytes and "
        "socket.send.buffer.bytes of the broker (-1: the system decides) above throughput times round trip; "
        "check that window scaling is on (net.ipv4.tcp_window_scaling, and no firewall removes the option), "
        "then the bandwidth of the path."
    )
    takes = EACH | SUMS
    apis = frozenset({"Produce", "Fetch"})
    counts = Transfers

    def feed(self, tally: Tally) -> None:
        """Add how long the messages took: nothing, if one packet has each; of sums, number and sizes."""
        if tally.form == SUM and tally.api not in self.apis:
            return
        kept = self.kept[_ends(tally.connection, tally.client, tally.broker)]
        if tally.form == SUM:
            kept.add(tally)
            kept.bytes += tally.request_bytes + tally.response_bytes
            kept.request_bytes += tally.request_bytes
        elif tally.exchange is None:
            kept.transfer_us += tally.transfer_us
        else:
            kept.transfer_us += _transfer_us(tally.exchange)
            if (frame := _unfinished(tally.exchange)) is not None:
                kept.last_ns = max(kept.last_ns, frame.end_ns)

    def connect(self, row: ConnectionLogRow) -> None:
        """Note round trip and losses."""
        tcp = row.tcp
        if tcp is None or not is_kafka(row):
            return
        kept = self.kept[tcp_key(row)]
        kept.segments += tcp.segments(0) + tcp.segments(1)
        kept.lost += tcp.lost(0) + tcp.lost(1)
        kept.stalled_ns += sum(tcp.stalled_ns(side, row.closed_ns or 0) for side in (0, 1))
        one_ns, other_ns = tcp.shortest_round_trip_ns(0), tcp.shortest_round_trip_ns(1)
        if one_ns is not None and other_ns is not None:
            kept.round_trip_ns = min(kept.round_trip_ns, one_ns + other_ns)
        kept.windows.add(row)

    def _reports(self, each: Transfers) -> bool:
        return (
            each.transfer_us >= _SLOW_US
            and _FAR_NS <= each.round_trip_ns < NEVER_NS
            and each.per_second < _FAST
            and each.under_way <= _UNSCALED
            and each.lost <= _LOST_SHARE * each.segments
            and each.stalled_ns <= _STALLED_SHARE * 1000 * each.transfer_us
        )

    def findings(self) -> Iterator[RulePart]:
        """Slow transfers, with what limits each: joined, their windows and round trips say nothing."""
        for key, each in self.kept.items():
            if self._reports(each):
                slow = combined([each])
                slow.limits = {_limit(slow)}
                yield self.part(key, slow)

    def _message(self, _: Scope, each: Transfers) -> str:
        lost = f"{many(each.lost, 'segment')} of {each.segments:,}" if each.lost else "nothing"
        limit = "".join(each.limits) if len(each.limits) == 1 else ""
        return (
            f"{size(round(each.per_second))}/s while messages were under way, for "
            f"{duration(1000 * each.transfer_us)}: {size(each.under_way)} in each round trip of "
            f"{duration(each.round_trip_ns)}, {lost} lost{limit}"
        )


def _limit(each: Transfers) -> str:
    """What the window of the end that received more bytes allows."""
    windows, is_upload = each.windows, 2 * each.request_bytes > each.bytes
    window = windows.broker_window_bytes if is_upload else windows.client_window_bytes
    if window is None:
        return "; window unknown without the SYN"
    bound = size(round(window * SECOND_NS / each.round_trip_ns))
    text = f"; the window of the {BROKER if is_upload else CLIENT}, {size(window)}, allows {bound}/s"
    if window <= _UNSCALED and (windows.client_unscaled or windows.broker_unscaled):
        text += f", the {CLIENT if windows.client_unscaled else BROKER} did not offer window scaling"
    return text


def _unfinished(exchange: Exchange) -> Frame | None:
    """The message of which not all came."""
    return None if exchange.announced is None else exchange.response_frame or exchange.first_frame


def _transfer_us(exchange: Exchange) -> int:
    if (frame := _unfinished(exchange)) is not None:
        return max(0, frame.end_ns - frame.start_ns) // 1000
    return 0 if exchange.total_us is None else exchange.total_us - max(0, exchange.latency_us or 0)


def _ends(info: ConnectionInfo, client: str, broker: str) -> tuple[str, str, str, str]:
    """The same key as ``tcp_key``."""
    if info.hop is not None:
        return "", "", info.hop.ip, broker
    return client, info.client.ip, "", broker
