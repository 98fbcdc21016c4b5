"""Requests and their responses -> responses that do not come, do not end, or do not match."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.anomalies import ERROR, WARNING
from kdissect.exchanges.outcomes import exceeded_settings, outstanding_ns, overdue_ns
from kdissect.exchanges.pairing import OUT_OF_ORDER
from kdissect.limits import MILLISECOND_NS, SECOND_NS
from kdissect.model import ANSWERED, ORPHAN, UNANSWERED
from kdissect.phrases import duration, many
from kdissect.stats.findings.connections import ConnectionRule, Waits, is_kafka
from kdissect.stats.findings.rule import Evidence, Rule
from kdissect.stats.quantiles import Bounded
from kdissect.stats.rows import ranked
from kdissect.stats.sums import largest, merged, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.model import ConnectionKey
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import RulePart, Scope

_OVERDUE_S = 5


def _counted(counts: Counter[str]) -> str:
    """``3 Fetch, 1 Produce``: the most frequent first."""
    return ", ".join(f"{count:,} {name}" for name, count in ranked(counts).items())


@summed
class LongWaits(Evidence):
    """Requests of one client to one broker: by API, and how long the oldest was outstanding.

    Attributes:
        until_ns: until when one was outstanding, less the time that it allows the broker to wait.
        muted_ns: until when the broker did not read because of a quota.
    """

    apis: Counter[str] = total(Counter)
    oldest_ns: int = largest()
    until_ns: int = largest()
    muted_ns: int = largest()

    def are_silence(self, sent_ns: int) -> bool:
        """Whether so long nothing came from the broker, which last sent something at ``sent_ns``."""
        return self.until_ns - max(sent_ns, self.muted_ns) > _OVERDUE_S * SECOND_NS


@summed
class RequestTimeouts(Rule):
    """The client times out and retries: the broker may or may not have processed the request."""

    name = "request-timeouts"
    severity = ERROR
    of = ("client", "broker")
    failed = "count"
    lost = "oldest_ns"
    title = "Requests time out: the broker does not respond."
    when = (
        f"An unanswered request was outstanding for {_OVERDUE_S} s longer than the time that it allows the "
        "broker to wait (max_wait_ms, timeout_ms; none for most APIs), its host had acknowledged the request "
        "at the TCP level, no response had begun, and the broker sent nothing else on the connection for so "
        "long. Clients that close the connection with a request outstanding, as consumers do, and the "
        "throttle time of a quota are not reported."
    )
    advice = "Check the broker's log, garbage collection and disks at that time, and the network path to it."
    needs_flaws = True
    counts = LongWaits

    open: Bounded[tuple[str, str, ConnectionKey], LongWaits] = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.open = Bounded(limits.connections, LongWaits)  # by client, broker and connection, until it ends

    def feed(self, facts: Facts) -> None:
        """Count an unanswered request; note a throttle time."""
        exchange, response = facts.exchange, facts.exchange.response_frame
        key = facts.client, facts.broker, exchange.connection.key
        if facts.throttle_ms and response is not None:
            waits = self.open[key]
            waits.muted_ns = max(waits.muted_ns, response.end_ns + facts.throttle_ms * MILLISECOND_NS)
        if facts.outcome != UNANSWERED or exchange.is_held_up:
            return
        if (overdue := overdue_ns(exchange)) > _OVERDUE_S * SECOND_NS:
            waits = self.open[key]
            waits.add(facts)
            waits.apis[facts.api] += 1
            waits.oldest_ns = max(waits.oldest_ns, outstanding_ns(exchange))
            waits.until_ns = max(waits.until_ns, exchange.time_ns + overdue)
            waits.last_ns = max(waits.last_ns, waits.until_ns)

    def connect(self, row: ConnectionLogRow) -> None:
        """Judge by when the broker last sent something."""
        client, broker = row.client_id or row.client.ip, str(row.broker)
        waits = self.open.pop((client, broker, row.key), None)
        if waits is None or not waits.count:
            return
        if row.tcp is None or waits.are_silence(row.tcp.sent_ns(1 - row.client_side)):
            self.kept[client, broker].merge(waits)

    def findings(self) -> Iterator[RulePart]:
        """Clients with such requests."""
        ends: dict[tuple[str, str], LongWaits] = {}
        for (client, broker), each in self.kept.items():
            ends.setdefault((client, broker), LongWaits()).merge(each)
        for (client, broker, _), each in self.open.items():  # of which TCP was not analyzed
            if each.count and each.are_silence(0):
                ends.setdefault((client, broker), LongWaits()).merge(each)
        for key, each in ends.items():
            yield self.part(key, each)

    def _message(self, _: Scope, each: LongWaits) -> str:
        waited = f"outstanding for up to {duration(each.oldest_ns)}"
        return f"{many(each.count, 'unanswered request')} ({_counted(each.apis)}), {waited}"


# ------------------------------------------------------------------------------------------------------------
# Messages that began but did not end -> clients and brokers between which they got stuck.
# ------------------------------------------------------------------------------------------------------------


_STUCK_S = 5


@summed
class CutMessages(Evidence):
    """Incomplete messages by API and which of the two they are; of the largest its announced size, the bytes
    that came, and for how long they came.
    """

    messages: Counter[str] = total(Counter)
    largest: tuple[int, int, int] = largest((0, 0, 0))
    exceeded: Counter[str] = total(Counter)


@summed
class IncompleteMessages(Rule):
    """The client has to send the request again, and if the cause is the size of the message, it gets no
    further.
    """

    name = "incomplete-messages"
    severity = WARNING
    of = ("client", "broker")
    failed = "count"
    title = "Connections end in the middle of a message."
    when = (
        f"The connection ended {_STUCK_S} s or more after the first or the latest byte of an incomplete "
        "message came, or the message was larger than a usual limit. Clients that close a connection while a "
        "response is on its way, as consumers do, are not reported."
    )
    advice = (
        "If the bytes came slowly, the receive window limits them (receive.buffer.bytes of a consumer, "
        "socket.receive.buffer.bytes of a broker), or the path does; otherwise look for a side that does not "
        "read, and for packet loss. Compare the size with socket.request.max.bytes of the broker, and "
        "fetch.max.bytes or receive.message.max.bytes of the client."
    )
    needs_flaws = True
    counts = CutMessages

    def feed(self, facts: Facts) -> None:
        """Count an incomplete message."""
        exchange = facts.exchange
        if exchange.announced is None or not exchange.ended:
            return
        frame = exchange.response_frame or exchange.first_frame
        exceeded = exceeded_settings(exchange)
        if exceeded or exchange.completed_ns - frame.start_ns >= _STUCK_S * SECOND_NS:
            kept = self.kept[facts.client, facts.broker]
            kept.add(facts)
            kept.messages[f"{facts.api} {'response' if exchange.is_cut else 'request'}"] += 1
            came_ns = frame.end_ns - frame.start_ns
            kept.largest = max(kept.largest, (exchange.announced, frame.wire_bytes, came_ns))
            kept.exceeded.update(name for name, _ in exceeded)

    def _message(self, _: Scope, each: CutMessages) -> str:
        announced, came, came_ns = each.largest
        size = f"of {announced:,} bytes announced {came:,} came"
        size += " of the largest" if each.count > 1 else ""
        size += f", in {duration(came_ns)}" if came_ns >= SECOND_NS else ""
        limits = f"; larger than {' and '.join(sorted(each.exceeded))} by default" if each.exceeded else ""
        return f"{many(each.count, 'incomplete message')} ({_counted(each.messages)}): {size}{limits}"


# ------------------------------------------------------------------------------------------------------------
# Responses in another order than their requests -> brokers and proxies that break the order.
# ------------------------------------------------------------------------------------------------------------


@summed
class OutOfOrder(Evidence):
    """Requests that were answered after later ones: by API."""

    apis: Counter[str] = total(Counter)


@summed
class ResponsesOutOfOrder(Rule):
    """Kafka's brokers answer the requests of a connection in order, and clients rely on it: the Java client
    fails when a response is not the one to its oldest request.
    """

    name = "responses-out-of-order"
    severity = WARNING
    of = ("client", "broker")
    failed = "count"
    title = "Responses come in another order than their requests."
    when = "Any request that was answered after a later one of its connection."
    advice = (
        "Find out what answers at this address: a proxy, or a broker that is not Apache Kafka. Its "
        "documentation may say how to keep the order, or which clients can do without it."
    )
    needs_flaws = True
    counts = OutOfOrder

    def feed(self, facts: Facts) -> None:
        """Count a request that later ones overtook."""
        exchange = facts.exchange
        if exchange.kind == ANSWERED and any(each.kind == OUT_OF_ORDER for each in exchange.anomalies):
            kept = self.kept[facts.client, facts.broker]
            kept.add(facts)
            kept.apis[facts.api] += 1

    def _message(self, _: Scope, each: OutOfOrder) -> str:
        requests = f"{many(each.count, 'request')} ({_counted(each.apis)})"
        return f"{requests} answered after a later one of the same connection"


@summed
class ResponseMismatch(ConnectionRule):
    """A response without a request means that a proxy mixes up connections or that a library has a bug.
    Clients close such a connection.
    """

    name = "response-mismatch"
    severity = ERROR
    failed = "requests"
    title = "A response has a correlation ID that matches no outstanding request."
    when = (
        "Any occurrence on a connection that was captured from its start, has no gaps, and has requests "
        "without a response."
    )
    advice = "Look for a proxy between client and broker, and for known bugs in the client library."
    counts = Waits

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if it has responses without requests, and requests without responses."""
        is_whole = row.from_start and not row.gaps and not row.resyncs
        if is_kafka(row) and is_whole and row.kinds[ORPHAN] and row.kinds[UNANSWERED]:
            self.count(row).requests += row.kinds[ORPHAN]

    def _level(self, _: Evidence) -> str:
        return ERROR

    def _message(self, _: Scope, each: Waits) -> str:
        return (
            f"{many(each.requests, 'response')} without a matching request on "
            f"{many(each.count, 'connection')}"
        )
