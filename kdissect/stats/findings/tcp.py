"""TCP analysis -> findings: lost packets, ends that stop reading, clients that vanish."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.anomalies import WARNING
from kdissect.limits import SECOND_NS
from kdissect.model import ANSWERED
from kdissect.net.analysis import OPENED, STALL_NS
from kdissect.phrases import duration, many
from kdissect.stats.connection_log import BROKER, CLIENT
from kdissect.stats.findings.connections import ConnectionRule, is_kafka
from kdissect.stats.findings.rule import Evidence, Rule, combined
from kdissect.stats.quantiles import Bounded
from kdissect.stats.sums import initialize, join, largest, latest, merged, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.model import ConnectionKey
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import RulePart, Scope

_PROXY = "proxy"
TCP_ENDS = (CLIENT, "host", _PROXY, BROKER)


def tcp_key(row: ConnectionLogRow) -> tuple[str, str, str, str]:
    """The key of a connection in a rule about TCP, which ends at a proxy if there is one."""
    if row.hop is not None:
        return "", "", row.hop.ip, str(row.broker)
    return row.client_id or row.client.ip, row.client.ip, "", str(row.broker)


_LOST = 10  # segments
_LOST_SHARE = 0.01
_REPEATED_SYNS = 3
_DELAY_US = 100_000  # TCP waits at least 200 ms before it retransmits: shorter delays have other causes
_DELAYED = 3  # requests
_DELAYED_SHARE = 0.001


@summed
class Delays(Evidence):
    """Requests whose latency is mostly the wait for a retransmission: for how long, and the longest one."""

    network_us: int = total()
    longest: tuple[int, str] = largest((0, ""))


@summed
class Losses(Evidence):
    """Connections that lost some, segments, necessary retransmissions, repeated SYNs; holes that were never
    filled, their bytes, and the connections that have some; answered requests, and those delayed.
    """

    lossy: int = total()
    segments: int = total()
    lost: int = total()
    syns: int = total()
    holes: int = total()
    hole_bytes: int = total()
    stuck: int = total()
    answered: int = total()
    delays: Delays = merged(Delays)

    @property
    def explains_latencies(self) -> bool:
        """Whether so many requests were delayed that a percentile shows it."""
        return self.delays.count >= max(_DELAYED, _DELAYED_SHARE * self.answered)

    @property
    def is_unusual(self) -> bool:
        """Whether more was lost than usual."""
        is_much = self.lost >= max(_LOST, _LOST_SHARE * self.segments)
        return is_much or self.syns >= _REPEATED_SYNS or self.holes > 0


@summed
class NetworkLoss(ConnectionRule):
    """A lost packet delays everything behind it on the connection; if nothing follows, by 200 ms or more."""

    name = "network-loss"
    severity = WARNING
    of = TCP_ENDS
    failed = "stuck"
    lost = "delays.network_us"
    title = "Packets between a client and a broker are lost."
    when = (
        "Any of these: bytes that never arrived (the receiver acknowledged only what came before them, "
        f"though later ones were captured); {_LOST} retransmissions, making up {_LOST_SHARE:.0%} of the "
        f"segments; {_REPEATED_SYNS} connections that opened only after a repeated SYN; {_DELAYED} requests, "
        f"making up {_DELAYED_SHARE:.1%} of those answered, that spent {_DELAY_US // 1000} ms or more, and "
        "most of their latency, waiting for a retransmission. Unnecessary retransmissions (D-SACK) do not "
        "count."
    )
    advice = (
        "Look for drops on interfaces, switches and virtual NICs between the two (ethtool -S, nstat), and "
        "for MTU problems."
    )
    needs_flaws = True
    counts = Losses

    open: Bounded[ConnectionKey, Delays] = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.open = Bounded(limits.connections, Delays)  # by connection, until it ends

    def feed(self, facts: Facts) -> None:
        """Count the exchange if most of its latency is the wait for a retransmission."""
        network_us, latency_us = facts.parts and facts.parts.network_us, facts.latency_us
        if network_us and latency_us and network_us >= max(_DELAY_US, latency_us / 2):
            delays = self.open[facts.exchange.connection.key]
            delays.add(facts)
            delays.network_us += network_us
            delays.longest = max(delays.longest, (network_us, facts.id))

    def connect(self, row: ConnectionLogRow) -> None:
        """Count segments and retransmissions."""
        delays = self.open.pop(row.key, None)
        tcp = row.tcp
        if tcp is None or not is_kafka(row) or row.opening not in (OPENED, None):
            return
        lost = [tcp.lost(side) for side in (0, 1)]
        kept = self.kept[tcp_key(row)]
        kept.segments += tcp.segments(0) + tcp.segments(1)
        kept.syns += tcp.syn_retransmissions > 0
        kept.answered += row.kinds[ANSWERED]
        if delays is not None and lost[row.client_side]:
            kept.delays.merge(delays)
        holes = row.gaps.get("kafka_undelivered_gaps", 0)
        kept.holes += holes
        kept.stuck += holes > 0
        kept.hole_bytes += row.gaps.get("kafka_undelivered_bytes", 0)
        if any(lost) or tcp.syn_retransmissions or holes:
            kept.note(row)
            kept.last_ns = max(kept.last_ns, row.last_ns or 0)
            kept.lossy += 1
            kept.lost += sum(lost)

    def findings(self) -> Iterator[RulePart]:
        """Pairs that lose too many, or whose requests wait for retransmissions."""
        for key, each in self.kept.items():
            if each.is_unusual or each.explains_latencies:
                evidence = combined([each])
                if each.explains_latencies:  # then these requests are the evidence
                    initialize(evidence, Evidence)
                    join(evidence, each.delays, Evidence)
                yield self.part(key, evidence)

    def _level(self, _: Evidence) -> str:
        return WARNING

    def _message(self, _: Scope, each: Losses) -> str:
        share, delays = each.lost / max(1, each.segments), each.delays
        parts: list[str] = []
        if each.holes:
            parts.append(
                f"{many(each.hole_bytes, 'byte')} on {many(each.stuck, 'connection')} never arrived: "
                "later segments did, but the receiver still waits for them"
            )
        if each.lost or not each.holes:
            parts.append(
                f"{many(each.lost, 'retransmission')} in {each.segments:,} segments ({share:.1%}) on "
                f"{many(each.lossy, 'connection')}"
            )
        message = "; ".join(parts)
        if each.syns:
            message += f", {each.syns:,} opened only after a repeated SYN"
        if delays.count:
            longest_us, exchange = delays.longest
            message += (
                f"; they delayed {many(delays.count, 'request')} by "
                f"{duration(delays.network_us * 1000)} in total, longest {duration(longest_us * 1000)} "
                f"({exchange})"
            )
        return message


@summed
class Stalls(Evidence):
    """How long windows were zero, and what was unacknowledged when the connections ended."""

    stalled_ns: int = total()
    longest_ns: int = largest()
    waiting_bytes: int = total()


@summed
class StalledReader(ConnectionRule):
    """An end whose receive buffer is full is not reading: its process is busy, paused or stuck. Everything
    that the other end sends has to wait, which looks like a slow network or broker.
    """

    name = "stalled-reader"
    severity = WARNING
    of = (*TCP_ENDS, "end")
    lost = "stalled_ns"
    title = "A client or a broker stops reading from a connection (zero window)."
    when = (
        f"The receive window of one end was zero for {STALL_NS // SECOND_NS} s or more in which it sent "
        "nothing either. A broker that has many requests of a connection waiting reads them one by one, so "
        "its window closes, but it responds; and a quota makes it stop reading for the throttle time. "
        "Neither counts."
    )
    advice = (
        "Check the process that stopped reading: pauses, blocked threads, in a consumer slow work between "
        "two calls of poll()."
    )
    counts = Stalls

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the ends that stopped reading."""
        if row.tcp is None or not is_kafka(row):
            return
        for end, side in ((CLIENT, row.client_side), (BROKER, 1 - row.client_side)):
            stalled_ns = row.tcp.stalled_ns(side, row.closed_ns or 0)
            stalled_ns -= row.throttle_ns if end == BROKER else 0
            if stalled_ns >= STALL_NS:
                reader = _PROXY if end == CLIENT and row.hop is not None else end
                kept = self.kept[*tcp_key(row), reader]
                kept.note(row)
                kept.last_ns = max(kept.last_ns, (row.last_ns if row.end is None else row.end.time_ns) or 0)
                kept.stalled_ns += stalled_ns
                kept.longest_ns = max(kept.longest_ns, stalled_ns)
                kept.waiting_bytes += row.tcp.unacknowledged(1 - side)

    def _level(self, _: Evidence) -> str:
        return WARNING

    def _message(self, scope: Scope, each: Stalls) -> str:
        readers = " and the ".join(scope["end"])
        whats = " and ".join("responses" if end != BROKER else "requests" for end in scope["end"])
        waiting = f"; {each.waiting_bytes:,} bytes not acknowledged at the end" if each.waiting_bytes else ""
        return (
            f"the {readers} did not read for {duration(each.stalled_ns)} in total on "
            f"{many(each.count, 'connection')}, while {whats} waited{waiting}"
        )


_UNANSWERED_COPIES = 3


@summed
class Vanished(Evidence):
    """Connections whose client stopped acknowledging, the bytes lost, and when it last opened another one."""

    bytes: int = total()
    returned_ns: int = latest(0)


@summed
class ClientVanished(ConnectionRule):
    """A client that is paused, or loses power or network, does not close its connections. Until the broker
    notices, partitions stay assigned to a member that is gone.
    """

    name = "client-vanished"
    severity = WARNING
    of = TCP_ENDS
    is_event = True
    title = "A client stops acknowledging and comes back on a new connection."
    when = (
        f"The broker retransmitted {_UNANSWERED_COPIES} times or more without an acknowledgment. The client "
        "did not end the connection, or only with an RST, and later opened another one."
    )
    advice = (
        "Look for pauses, restarts and network changes on the client's host or container, and for lost NAT "
        "or firewall state."
    )
    counts = Vanished

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if its client vanished, and when it began otherwise."""
        if row.tcp is None or not is_kafka(row):
            return
        broker_side = 1 - row.client_side
        unread = row.tcp.unacknowledged(broker_side)
        kept = self.kept[tcp_key(row)]
        is_closed = row.ended_by == CLIENT and row.end is not None and not row.end.reset
        if not is_closed and unread and row.tcp.retransmitted(broker_side) >= _UNANSWERED_COPIES:
            kept.note(row, row.last_ns)
            kept.bytes += unread
        else:
            kept.returned_ns = max(kept.returned_ns, row.first_ns or 0)

    def findings(self) -> Iterator[RulePart]:
        """Clients that came back."""
        for key, each in self.kept.items():
            if each.count and each.returned_ns > each.first_ns:
                yield self.part(key, each)

    def _message(self, scope: Scope, each: Vanished) -> str:
        who = CLIENT if scope.get(CLIENT) else _PROXY
        return (
            f"the {who} stopped acknowledging on {many(each.count, 'connection')}, with "
            f"{each.bytes:,} bytes in flight, and came back on a new one"
        )
