"""When brokers sent something, and when connections to them failed -> times in which a broker served nobody.

A single connection does not show whether the broker went away, or its client has trouble. So this rule
compares all connections to a broker: an outage is a time in which it sent nothing on any of them, and in
which attempts to connect failed. If nothing even refused them, the clients must have reached another broker
meanwhile, because otherwise they may have been cut off themselves.

Holds for each client address and broker the times of up to 64 connections or runs of them, and 128 times of 5
seconds in which something went wrong: of an outage of more than 10 minutes, not all attempts are counted.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import merge, nsmallest
from typing import TYPE_CHECKING, NamedTuple

from kdissect.anomalies import ERROR, NOTE, WARNING
from kdissect.exchanges.nodes import nodes
from kdissect.limits import SECOND_NS
from kdissect.names import kept
from kdissect.net.analysis import OPENED, REFUSED, UNOPENED
from kdissect.net.duplex import NEVER_NS
from kdissect.phrases import many, span, times
from kdissect.stats.connection_log import BROKER
from kdissect.stats.contents import EACH
from kdissect.stats.findings.connections import is_kafka
from kdissect.stats.findings.rule import (
    ADVERTISING,
    WORST_FIRST,
    Evidence,
    Rule,
    RulePart,
    combined,
    joined_scope,
)
from kdissect.stats.sums import Summed, joined, latest, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.findings.rule import Scope
    from kdissect.stats.tallies import Tally

    Spans = list[tuple[int, int]]

_PIECE_NS = 5 * SECOND_NS
_MAX_PIECES, _MAX_SPANS, _MAX_NODES = 128, 64, 1000
_MIN_ATTEMPTS = 2  # or one, after the broker ended a connection
_ERROR_AT = 3
_RETRY_NS = 60 * SECOND_NS  # clients try more often than that
_NEXT_NS = 600 * SECOND_NS  # from the restart of one broker to that of the next
_LEAVING_NS = 60 * SECOND_NS  # a broker repeats its request every few seconds until the controller lets it go
_HEARTBEAT, _SHUTDOWN = "BrokerHeartbeat", "ControlledShutdown"


class OutagePiece(NamedTuple):
    """What went wrong within 5 seconds.

    Attributes:
        first: time and ID of the first connection; ``last_ns``: time of the last.
        attempts: to connect that failed, of which the far end ``refused`` some.
        ended: connections that the broker ended.
    """

    first: tuple[int, str]
    last_ns: int
    attempts: int
    refused: int
    ended: int


def _joined(one: dict[int, OutagePiece], other: dict[int, OutagePiece]) -> dict[int, OutagePiece]:
    for place, piece in other.items():
        if (known := one.get(place)) is not None:
            one[place] = OutagePiece(
                min(known.first, piece.first),
                max(known.last_ns, piece.last_ns),
                known.attempts + piece.attempts,
                known.refused + piece.refused,
                known.ended + piece.ended,
            )
        else:
            one[place] = piece
    for place in sorted(one)[_MAX_PIECES:]:
        del one[place]
    return one


def _union(one: Spans, other: Spans) -> Spans:
    """Both, those less than a second apart as one; if there are too many, the closest as one."""
    spans: Spans = []
    for begin, end in merge(one, other):
        if spans and begin - spans[-1][1] < SECOND_NS:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((begin, end))
    while len(spans) > _MAX_SPANS:
        place = min(range(1, len(spans)), key=lambda place: spans[place][0] - spans[place - 1][1])
        spans[place - 1 : place + 1] = [(spans[place - 1][0], spans[place][1])]
    return spans


def _few_nodes(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    for broker, node in other.items():
        one[broker] = min(node, one.get(broker, node))
    return dict(nsmallest(_MAX_NODES, one.items())) if len(one) > _MAX_NODES else one


def _latest_of_few(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    for node, time_ns in other.items():
        one[node] = max(time_ns, one.get(node, time_ns))
    return dict(nsmallest(_MAX_NODES, one.items())) if len(one) > _MAX_NODES else one


@summed
class Presence(Summed):
    """Times in which a client had a connection on which a broker sent something, and what went wrong."""

    spans: Spans = joined(_union, list)
    pieces: dict[int, OutagePiece] = joined(_joined, dict)


@summed
class Outage(Evidence):
    """Times in which a broker served nobody: their number, those that it had requested, those after which it
    came back, and after which nobody tried again; how long they were in all, and what went wrong.
    """

    outages: int = total()
    requested: int = total()
    returns: int = total()
    given_up: int = total()
    gone_ns: int = total()
    ended: int = total()
    attempts: int = total()
    refused: int = total()


@summed
class BrokerUnreachable(Rule):
    """While a broker is gone, clients are refused, leaders and coordinators move, and requests time out: all
    that has one cause.
    """

    name = "broker-unreachable"
    severity = WARNING
    of = (BROKER, "node")
    apart = BROKER
    cut = "attempts"
    lost = "gone_ns"
    title = "A broker that had served clients serves nobody for a time."
    when = (
        f"In that time it sent nothing on any connection, and {_MIN_ATTEMPTS} attempts to connect failed, or "
        "one after it had ended a connection. If none was refused, the clients must have had responses from "
        "another broker meanwhile, because otherwise they may have been cut off themselves. Only attempts of "
        "addresses that brokers served in the capture count. Error if it did not come back, and "
        f"{_ERROR_AT} attempts failed. The time ends when it sent something again, or with the last attempt "
        f"if that was more than {_RETRY_NS // SECOND_NS} s before. A broker to which the controllers say "
        "that it is not fenced came back, even if no client tried again. Brokers of the same clients are one "
        f"row if each had come back, at most {_NEXT_NS // SECOND_NS // 60} minutes before the next was gone. "
        "Note if the broker requested it of its controller, as for a planned restart, and came back."
    )
    advice = (
        "Look at the broker's log and uptime at that time: a restart, a crash, the out-of-memory killer. "
        "Refused attempts mean that its host was up and nothing listened, or that a firewall rejected them; "
        "unanswered ones, that its host was gone or cut off."
    )
    takes = EACH
    apis = ADVERTISING | {_HEARTBEAT, _SHUTDOWN}
    counts = Presence

    node_ids: dict[str, int] = joined(_few_nodes)
    unfenced_ns: dict[int, int] = joined(_latest_of_few)
    leaving_ns: dict[int, int] = joined(_latest_of_few)
    seen_ns: int = latest(0)

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.node_ids, self.unfenced_ns, self.leaving_ns, self.seen_ns = {}, {}, {}, 0

    def feed(self, tally: Tally) -> None:
        """Note the IDs of brokers, when each last requested to leave, and was last let serve clients."""
        if (exemplar := tally.exemplar) is None:
            return
        if tally.api in (_HEARTBEAT, _SHUTDOWN):
            self._note_state(tally.api, exemplar)
        for node in nodes(exemplar):
            host = f"[{node.host}]" if ":" in node.host else node.host
            broker = kept(f"{host}:{node.port}")
            if self.node_ids.get(broker, node.id + 1) > node.id:
                self.node_ids = _few_nodes(self.node_ids, {broker: node.id})

    def _note_state(self, api: str, exchange: Exchange) -> None:
        request, response = exchange.request or {}, exchange.response or {}
        node, frame = request.get("broker_id"), exchange.response_frame
        if node is None or frame is None or response.get("error_code"):
            return
        if api == _SHUTDOWN or request.get("want_shut_down"):
            self.leaving_ns = _latest_of_few(self.leaving_ns, {node: frame.end_ns})
        elif response.get("is_fenced") is False:
            self.unfenced_ns = _latest_of_few(self.unfenced_ns, {node: frame.end_ns})

    def connect(self, row: ConnectionLogRow) -> None:
        """Note when the broker was there, and when it was not."""
        if row.tcp is None:
            return
        presence = self.kept[row.client.ip, str(row.broker)]
        begin_ns = row.first_ns or 0
        self.seen_ns = max(self.seen_ns, row.last_ns or begin_ns)
        if row.opening in UNOPENED:
            if (refused := row.opening == REFUSED) or row.tcp.syn_retransmissions:
                _note(presence, OutagePiece((begin_ns, row.id), begin_ns, 1, int(refused), 0))
        elif is_kafka(row) and row.opening in (OPENED, None):
            until_ns = max(begin_ns, row.tcp.sent_ns(1 - row.client_side))
            presence.spans = _union(presence.spans, [(begin_ns, until_ns)])
            if row.end is not None and row.ended_by == BROKER:
                _note(presence, OutagePiece((row.end.time_ns, row.id), row.end.time_ns, 0, 0, 1))

    def findings(self) -> Iterator[RulePart]:
        """Brokers that were gone."""
        back: list[RulePart] = []
        for part, outage in self._outages():
            if outage.outages == outage.returns == 1:
                back.append(part)
            else:
                yield part
        yield from self._one_after_another(back)

    def _outages(self) -> Iterator[tuple[RulePart, Outage]]:
        """Each broker that was gone."""
        brokers: dict[str, dict[str, Presence]] = {}
        clients = {host for (host, _), presence in self.kept.items() if presence.spans}
        for (host, broker), presence in self.kept.items():
            if host in clients:  # others may be scanners, or forged
                brokers.setdefault(broker, {})[host] = presence
        for broker, by_host in brokers.items():
            spans: Spans = []
            for presence in by_host.values():
                spans = _union(spans, presence.spans)
            outage = Outage()
            for begin_ns, end_ns in self._gaps(spans):
                self._judge(outage, broker, by_host, begin_ns, end_ns)
            if outage.outages:
                until_ns = outage.last_ns if outage.returns == outage.outages else NEVER_NS
                yield self.part((broker, self.node_ids.get(broker)), outage, until_ns=until_ns), outage

    def _one_after_another(self, parts: Iterable[RulePart]) -> Iterator[RulePart]:
        """Brokers of which each had come back before the next was gone, as one finding."""
        run: list[RulePart] = []
        for part in sorted(parts, key=lambda part: (part.evidence.first_ns, part.scope[BROKER])):
            if run and not _follows(run[-1].evidence, part.evidence):
                yield self._joined(run)
                run = []
            run.append(part)
        if run:
            yield self._joined(run)

    def _joined(self, run: Sequence[RulePart]) -> RulePart:
        evidence = combined([part.evidence for part in run])
        scope = joined_scope([part.scope for part in run])
        severity = min((part.severity for part in run), key=WORST_FIRST.index)
        return RulePart(self, scope, evidence, severity, evidence.last_ns)

    def _gaps(self, spans: Spans) -> Iterator[tuple[int, int]]:
        """The times between spans, and after the last."""
        begins = [begin for begin, _ in spans[1:]]
        yield from zip((end for _, end in spans), [*begins, NEVER_NS], strict=False)

    def _judge(
        self, outage: Outage, broker: str, by_host: dict[str, Presence], begin_ns: int, end_ns: int
    ) -> None:
        """Add the time between two spans, if the broker was gone in it."""
        pieces = [
            (host, piece)
            for host, presence in by_host.items()
            for piece in presence.pieces.values()
            if begin_ns <= piece.last_ns < end_ns
        ]
        attempts = sum(piece.attempts for _, piece in pieces)
        refused = sum(piece.refused for _, piece in pieces)
        ended = sum(piece.ended for _, piece in pieces)
        if not attempts or (attempts < _MIN_ATTEMPTS and not ended):
            return
        last_ns = max(piece.last_ns for _, piece in pieces if piece.attempts)
        hosts = {host for host, piece in pieces if piece.attempts}
        if not refused and not self._reach_others(hosts, broker, begin_ns, min(end_ns, last_ns)):
            return
        for host, piece in pieces:
            time_ns, connection = piece.first
            outage.take(max(time_ns, begin_ns), connection, piece.attempts + piece.ended)
            outage.touch(host, broker)
        until_ns = end_ns if end_ns - last_ns <= _RETRY_NS else last_ns  # nobody tried: it may have been back
        first_ns = min(max(begin_ns, piece.first[0]) for _, piece in pieces)
        outage.last_ns = max(outage.last_ns, until_ns)
        node = self.node_ids.get(broker, -1)
        outage.outages += 1
        outage.requested += first_ns - _LEAVING_NS <= self.leaving_ns.get(node, NEVER_NS) <= last_ns
        outage.returns += end_ns != NEVER_NS or self.unfenced_ns.get(node, last_ns) > last_ns
        outage.given_up += end_ns == NEVER_NS and self.seen_ns - last_ns > _RETRY_NS
        outage.gone_ns += until_ns - first_ns
        outage.ended += ended
        outage.attempts += attempts
        outage.refused += refused

    def _reach_others(self, hosts: set[str], broker: str, begin_ns: int, end_ns: int) -> bool:
        """Whether all of these had responses from other brokers in a time."""
        reached = {
            host
            for (host, other), presence in self.kept.items()
            if other != broker and host in hosts and _overlaps(presence.spans, begin_ns, end_ns)
        }
        return reached == hosts

    def _level(self, each: Outage) -> str:
        if each.returns == each.outages:
            return NOTE if each.requested == each.outages else WARNING
        return ERROR if each.requested < each.outages and each.attempts >= _ERROR_AT else WARNING

    def _message(self, scope: Scope, each: Outage) -> str:
        together = len(scope[BROKER]) > 1
        how_often = "one after the other" if together else times(each.outages)
        often = f" {how_often}, {span(each.gone_ns)} in all" if each.outages > 1 else ""
        counts = (
            (each.ended, "connection", "ended"),
            (each.refused, "attempt", "to connect refused"),
            (each.attempts - each.refused, "attempt", "to connect unanswered"),
        )
        texts = [f"{many(count, noun)} {what}" for count, noun, what in counts if count]
        who = "all" if together else "it"
        if each.returns == each.outages:
            back = f"{who} came back"
        else:
            back = "nobody tried again" if each.given_up else "it did not come back in the capture"
        why = "after a controlled shutdown, " if each.requested == each.outages else ""
        return f"{why}served nobody{often}: {', '.join(texts)}; {back}"


def _follows(one: Evidence, other: Evidence) -> bool:
    """Whether an outage began after another had ended, and clients of both had a part in it."""
    waited_ns = other.first_ns - one.last_ns
    hosts, others = ({host for host, _ in each.ends} for each in (one, other))
    return 0 <= waited_ns <= _NEXT_NS and not hosts.isdisjoint(others)


def _note(presence: Presence, piece: OutagePiece) -> None:
    presence.pieces = _joined(presence.pieces, {piece.first[0] // _PIECE_NS: piece})


def _overlaps(spans: Spans, begin_ns: int, end_ns: int) -> bool:
    place = bisect_right(spans, (end_ns, NEVER_NS))
    return place > 0 and spans[place - 1][1] > begin_ns
