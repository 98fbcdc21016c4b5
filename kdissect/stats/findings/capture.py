"""What is known about a capture -> findings: how far it can be trusted, and advice. Holds no state.

A new rule is a class here, an entry in ``CAPTURE_RULES``, and a case in tests/stats/test_findings.py.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from kdissect.anomalies import ERROR, WARNING
from kdissect.phrases import many
from kdissect.pipeline import NO_SERVER_HELLO
from kdissect.stats.document import CaptureFinding
from kdissect.stats.findings.rule import Declared
from kdissect.stats.quality import (
    DAMAGED,
    EMPTY,
    GOOD,
    INCOMPLETE,
    LOSSY,
    NO_KAFKA,
    ONE_SIDED,
    PARTLY_DECODED,
    TRUNCATED,
    VERDICTS,
)
from kdissect.stats.survey import KAFKA, TLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.stats.quality import AnomalyPart, Check

_NAME_PORT = "If one of them carries Kafka, decode its port as Kafka: -d tcp.port==PORT,kafka."
_CUT_SHORT = "ends in the middle"  # as warnings of files say it


class CaptureRule(Declared):
    """A rule about a capture: finds something in what is known of it. ``severity`` is the verdict that its
    findings usually lead to; good: harmless.
    """

    command = "check"

    def findings(self, check: Check) -> Iterator[CaptureFinding]:
        """What it finds; ``check`` has no findings yet."""
        for message in self._messages(check):
            yield CaptureFinding(
                rule=self.name, verdict=self._level(check), message=message, advice=self._advice(check)
            )

    @abstractmethod
    def _messages(self, check: Check) -> Iterator[str]:
        """One sentence for each finding."""

    def _level(self, _: Check) -> str:
        return self.severity

    def _advice(self, _: Check) -> str | None:
        return self.advice or None


class EmptyCapture(CaptureRule):
    """There is nothing to judge."""

    name, severity = "empty-capture", EMPTY
    title = "The capture has no packets."
    when = "No packet could be read from any file."
    advice = "Check the interface and filter of the capture."

    def _messages(self, check: Check) -> Iterator[str]:
        if not check.packets:
            yield self.title


class NoKafka(CaptureRule):
    """There is nothing to judge either, but the packets may say why."""

    name, severity = "no-kafka", NO_KAFKA
    title = "No connection carries Kafka."
    when = "There are packets, and no connection was recognized as Kafka."
    advice = _NAME_PORT

    def _messages(self, check: Check) -> Iterator[str]:
        connections = check.connections
        if check.packets and not connections.kafka:
            others = ", ".join(f"{count:,} {name}" for name, count in connections.protocols.items())
            empty = connections.empty
            silent = f"{many(empty, 'connection')} without data" if empty else ""
            what = f"connections: {others}" if others else silent or "no TCP connections"
            skipped = sum(check.skipped.values())
            rest = f"; {skipped:,} of {many(check.packets, 'packet')} skipped" if skipped else ""
            yield f"No Kafka traffic ({what}{rest})."

    def _advice(self, check: Check) -> str | None:
        if check.connections.protocols.keys() - {TLS}:
            return self.advice
        if check.connections.empty:
            return "Clients may have been refused; check that the broker is listening."
        return None


class DamagedFile(CaptureRule):
    """What follows the damage is missing."""

    name, severity = "damaged-file", DAMAGED
    title = "A file has bytes that no capture program writes, or cannot be read."
    when = "One warning about a file that does not only end too early."
    advice = ""

    def _messages(self, check: Check) -> Iterator[str]:
        return (f"{warning}." for warning in check.warnings if _CUT_SHORT not in warning)


class FileCutShort(CaptureRule):
    """Usual if the capture program was killed: only the last packets are missing."""

    name, severity = "file-cut-short", GOOD
    title = "A file ends in the middle of a packet or of its compressed data."
    when = "Any."
    advice = (
        "If the file was copied while it was being written, copy it again. Otherwise stop the capture with "
        "Ctrl-C so that the last packets are written, and check that the disk is not full."
    )

    def _messages(self, check: Check) -> Iterator[str]:
        return (f"{warning}." for warning in check.warnings if _CUT_SHORT in warning)


class OutOfTimeOrder(CaptureRule):
    """Packets of several interfaces or CPUs can be written in another order than they were captured in."""

    name, severity = "out-of-time-order", GOOD
    title = "Packets have earlier timestamps than packets before them in the file."
    when = "Any packet."
    advice = "Latencies up to this size are unreliable."

    def _messages(self, check: Check) -> Iterator[str]:
        if backward := sum(file.backward for file in check.files):
            furthest_us = max(file.backward_max_us for file in check.files)
            yield f"{many(backward, 'packet')} out of time order, by at most {furthest_us / 1000:,.3f} ms."

    def _advice(self, check: Check) -> str | None:
        return self.advice if any(file.backward_max_us for file in check.files) else None


class DroppedPackets(CaptureRule):
    """What was dropped may be of any connection, and of none: the gaps say what it cost."""

    name, severity = "dropped-packets", LOSSY
    title = "The capture program could not keep up."
    when = "Its statistics count at least one dropped packet."
    advice = "Capture with a larger buffer (tcpdump -B 65536, dumpcap -B 64) or a narrower filter."

    def _messages(self, check: Check) -> Iterator[str]:
        if dropped := check.dropped:
            yield f"The capture program reported {many(dropped, 'packet')} dropped."


class MissingBytes(CaptureRule):
    """Exchanges in a gap are lost, and those beside it incomplete: counts are too low, and a request may
    seem to be unanswered.
    """

    name, severity = "missing-bytes", LOSSY
    title = "Bytes of Kafka connections were received, but not captured."
    when = "One gap. What the receiver did not acknowledge either is `lost-in-network`."
    advice = "Capture on one of the hosts rather than a mirror port, or with tcpdump -B 65536."

    def _messages(self, check: Check) -> Iterator[str]:
        if gaps := check.counts.get("kafka_gaps", 0):
            lost = f"{many(check.counts.get('kafka_lost_bytes', 0), 'byte')} of Kafka connections"
            cost = f"{many(check.exchanges.lost, 'exchange')} lost, {check.exchanges.incomplete:,} incomplete"
            yield f"{lost} missing in {many(gaps, 'gap')}: {cost}."

    def _advice(self, check: Check) -> str | None:
        return None if check.dropped else self.advice  # dropped-packets has the better one


class LostInNetwork(CaptureRule):
    """The capture is complete: this is a problem of the traffic, and ``network-loss`` weighs it."""

    name, severity = "lost-in-network", GOOD
    title = "Bytes of Kafka connections did not arrive."
    when = "One gap that the receiver did not acknowledge either."
    advice = "See network-loss: kdissect summary --findings FILE."

    def _messages(self, check: Check) -> Iterator[str]:
        if gaps := check.counts.get("kafka_undelivered_gaps", 0):
            missing = many(check.counts.get("kafka_undelivered_bytes", 0), "byte")
            yield (
                f"{missing} of Kafka connections did not arrive, in {many(gaps, 'gap')}: the receiver did "
                "not acknowledge them, so the network lost them, not the capture."
            )


class TruncatedPackets(CaptureRule):
    """Sizes and times are complete; bodies are not: topics, partitions, errors and records are missing."""

    name, severity = "truncated-packets", TRUNCATED
    title = "The snapshot length cut packets off."
    when = "One packet; harmless if that cost no byte of a Kafka connection."
    advice = "Capture whole packets: tcpdump -s 0."

    def _messages(self, check: Check) -> Iterator[str]:
        interfaces = check.interfaces
        if cut := sum(each.cut for each in interfaces):
            percent = 100 * cut / max(1, sum(each.packets for each in interfaces))
            longest = max(each.cut_to or 0 for each in interfaces)
            yield (
                f"{many(cut, 'packet')} ({percent:.1f}%) truncated to {longest:,} bytes; bodies are decoded "
                "up to there."
            )

    def _level(self, check: Check) -> str:
        return self.severity if check.counts.get("kafka_cut_bytes") else GOOD


class ConflictingBytes(CaptureRule):
    """Retransmissions repeat the same bytes."""

    name, severity = "conflicting-bytes", GOOD
    title = "A connection has different bytes in the same place."
    when = "One byte."
    advice = "Two connections with the same addresses may be mixed up, for example by NAT."

    def _messages(self, check: Check) -> Iterator[str]:
        if conflicting := check.tcp.conflicting_bytes:
            twice = many(conflicting, "byte")
            yield f"{twice} captured twice with different content; the first copy is used."


class OneDirection(CaptureRule):
    """With one direction there are no latencies, and requests or responses are missing."""

    name, severity = "one-direction", ONE_SIDED
    title = "Only one direction of Kafka connections was captured."
    when = "One connection; harmless up to half of them."
    advice = (
        "Capture at a point that sees both directions; asymmetric routing or a one-way mirror (SPAN) port "
        "hides one of them."
    )

    def _messages(self, check: Check) -> Iterator[str]:
        if one_sided := check.connections.kafka_one_sided:
            connections = _of(one_sided, check.connections.kafka, "Kafka connection")
            yield f"{connections} captured in one direction only."

    def _level(self, check: Check) -> str:
        return self.severity if 2 * check.connections.kafka_one_sided > check.connections.kafka else GOOD


class OpenBefore(CaptureRule):
    """Usual for long-lived connections; a client says only at the beginning who it is."""

    name, severity = "open-before", GOOD
    title = "Kafka connections were open before the capture."
    when = "One connection."
    advice = "If you need them, start the capture before the clients, or restart the clients."

    def _messages(self, check: Check) -> Iterator[str]:
        if mid_stream := check.connections.kafka_mid_stream:
            connections = _of(mid_stream, check.connections.kafka, "Kafka connection")
            evicted = ", or evicted because of a limit" if check.counts.get("closed_evicted") else ""
            yield (
                f"{connections} already open when the capture started{evicted}. The client library and "
                "version, and the requests that the first responses answer, may be missing."
            )


class TlsDecrypted(CaptureRule):
    """The key log is that of the capture."""

    name, severity = "tls-decrypted", GOOD
    title = "TLS connections were decrypted."
    when = "One connection."
    advice = ""

    def _messages(self, check: Check) -> Iterator[str]:
        if decrypted := check.connections.tls_decrypted:
            yield f"{many(decrypted, 'TLS connection')} decrypted with the key log."


class TlsUnread(CaptureRule):
    """They may be Kafka; nobody can tell."""

    name, severity = "tls-unread", GOOD
    title = "TLS connections could not be read."
    when = "One connection."
    advice = "Decrypt with a key log (--tls-keylog), or capture behind a TLS-terminating proxy."

    def _messages(self, check: Check) -> Iterator[str]:
        if tls := check.connections.protocols.get(TLS):
            reasons = check.connections.tls_not_decrypted.items()
            why = "; ".join(f"{count:,}: {reason}" for reason, count in reasons)
            if _is_unanswered(check):
                why = "no server answered a ClientHello"
            yield f"{many(tls, 'TLS connection')} cannot be read{f' ({why})' if why else ''}."

    def _advice(self, check: Check) -> str | None:
        if _is_unanswered(check):
            return "See kdissect summary --findings FILE."
        return None if check.connections.tls_not_decrypted else self.advice


def _is_unanswered(check: Check) -> bool:
    return check.connections.protocols.get(TLS) == check.counts.get(NO_SERVER_HELLO)


class OtherProtocols(CaptureRule):
    """Kafka is recognized on any port if its first bytes were captured."""

    name, severity = "other-protocols", GOOD
    title = "There are connections besides Kafka, neither of it nor of TLS."
    when = "One connection beside Kafka; without any Kafka that is `no-kafka`."
    advice = _NAME_PORT

    def _messages(self, check: Check) -> Iterator[str]:
        protocols = check.connections.protocols
        others = sum(count for name, count in protocols.items() if name not in (KAFKA, TLS))
        if check.connections.kafka and others:
            yield f"{many(others, 'connection')} with other protocols, or not recognized."


class ExchangesIncomplete(CaptureRule):
    """What is not captured is not counted, or counted without a latency."""

    name, severity = "exchanges-incomplete", INCOMPLETE
    title = "Exchanges were not fully captured."
    when = (
        "One exchange; harmless up to 1 in 20, as at the edges of any capture. Responses do not count if "
        "connections were open before: their requests were, too."
    )
    advice = ""
    _one_in = 20

    def _messages(self, check: Check) -> Iterator[str]:
        exchanges = check.exchanges
        if missing := exchanges.missing:
            parts = (
                (exchanges.orphans, "has no request", "have no request"),
                (exchanges.unclear, "has no response", "have no response"),
                (missing - exchanges.orphans - exchanges.unclear, "is incomplete", "are incomplete"),
            )
            counted = ", ".join(many(count, one, more) for count, one, more in parts if count)
            were = "was" if missing == 1 else "were"
            yield f"{many(missing, 'exchange')} {were} not fully captured: {counted}."

    def _level(self, check: Check) -> str:
        exchanges = check.exchanges
        excused = exchanges.orphans if check.connections.kafka_mid_stream else 0
        is_much = (exchanges.missing - excused) * self._one_in > exchanges.total
        return self.severity if is_much else GOOD


class MessagesUnfinished(CaptureRule):
    """Nothing is missing from the capture: they were never sent to their end, or later."""

    name, severity = "messages-unfinished", GOOD
    title = "Messages began and did not end."
    when = "One message, if its connection or the capture ended."
    advice = ""

    def _messages(self, check: Check) -> Iterator[str]:
        if cut := check.exchanges.incomplete_responses + check.exchanges.incomplete_requests:
            messages = f"{many(cut, 'message')} began but did not end"
            yield f"{messages}: the connection or the capture ended first."


class RequestsPending(CaptureRule):
    """A longer capture would have the responses."""

    name, severity = "requests-pending", GOOD
    title = "Requests were still waiting when the capture ended."
    when = "One request."
    advice = ""

    def _messages(self, check: Check) -> Iterator[str]:
        if pending := check.exchanges.pending:
            yield f"{many(pending, 'request')} had no response yet when the capture ended."


class UnknownApis(CaptureRule):
    """Their headers are decoded, their bodies are not."""

    name, severity = "unknown-apis", PARTLY_DECODED
    title = "Exchanges have APIs or versions that this version of kdissect does not know."
    when = "One exchange."
    advice = "Upgrade kdissect: a newer version may decode them."
    _named = 3

    def _messages(self, check: Check) -> Iterator[str]:
        if unknown := check.unknown:
            names = [f"{each.api or f'API {each.api_key}'} v{each.api_version}" for each in unknown]
            some = ", ".join((*names[: self._named], *(["..."] if len(names) > self._named else ())))
            yield (
                f"{many(sum(each.exchanges for each in unknown), 'exchange')} with APIs or versions unknown "
                f"to this version of kdissect: {some}."
            )


class _Undecoded(CaptureRule):
    """Anomalies of one severity, but not those that other rules are about: gaps, truncation, directions,
    limits, versions.
    """

    advice = "Details: kdissect read -V --exchange EXAMPLE FILE."
    of: ClassVar[str]
    what: ClassVar[str]

    def _messages(self, check: Check) -> Iterator[str]:
        if anomalies := self._anomalies(check):
            yield f"{self.what}: {', '.join(f'{each.exchanges:,} {each.anomaly}' for each in anomalies)}."

    def _advice(self, check: Check) -> str:
        return self.advice.replace("EXAMPLE", self._anomalies(check)[0].example)

    def _anomalies(self, check: Check) -> list[AnomalyPart]:
        return [each for each in check.anomalies if each.severity == self.of and each.anomaly not in COVERED]


COVERED = frozenset(
    (
        *("gap", "given_up", "incomplete_message", "one_direction", "partial_frame", "tls_alert"),
        *("undelivered", "uncaptured_body", "unknown_api", "unknown_version"),
    )
)


class PartsUndecoded(_Undecoded):
    """What could not be decoded is shown as bytes, and counted by what stands before it."""

    name, severity = "parts-undecoded", PARTLY_DECODED
    title = "Messages do not match their layout."
    when = "One exchange with an anomaly that is an error."
    of, what = ERROR, "Parts of messages could not be decoded"


class WholeUndecoded(_Undecoded):
    """They are limits of what is decoded, or odd clients."""

    name, severity = "whole-undecoded", GOOD
    title = "Messages were captured as a whole, but not fully decoded."
    when = "One exchange with an anomaly that is a warning, and that no other rule is about."
    of, what = WARNING, "Fully captured messages could not be fully decoded"


class LimitsReached(CaptureRule):
    """Memory is bounded: what no longer fits is dropped, the oldest first."""

    name, severity = "limits-reached", GOOD
    title = "Limits on connections, requests or buffered bytes were reached."
    when = "Any was reached."
    advice = "--limits shows all limits; --limits NAME=VALUE raises one."

    def _messages(self, check: Check) -> Iterator[str]:
        evicted, dropped, shed = (
            check.counts.get(name, 0) for name in ("closed_evicted", "requests_given_up", "shed")
        )
        reached = [
            f"{many(evicted, 'connection')} evicted" if evicted else "",
            f"{many(dropped, 'outstanding request')} dropped" if dropped else "",
            f"buffered data dropped {many(shed, 'time')}" if shed else "",
        ]
        if any(reached):
            yield f"Limits were reached: {', '.join(filter(None, reached))}."


CAPTURE_RULES: tuple[type[CaptureRule], ...] = (
    *(EmptyCapture, NoKafka),
    *(DamagedFile, FileCutShort, OutOfTimeOrder),
    *(DroppedPackets, MissingBytes, LostInNetwork, TruncatedPackets, ConflictingBytes),
    *(OneDirection, OpenBefore, TlsDecrypted, TlsUnread, OtherProtocols),
    *(ExchangesIncomplete, MessagesUnfinished, RequestsPending),
    *(UnknownApis, PartsUndecoded, WholeUndecoded, LimitsReached),
)
"""In this order: all of it, files, packets, connections, exchanges, messages. Worse verdicts come first."""


def findings(check: Check) -> list[CaptureFinding]:
    """All findings, the worst first."""
    results = [finding for rule in CAPTURE_RULES for finding in rule().findings(check)]
    return sorted(results, key=lambda each: VERDICTS.index(each.verdict))


def _of(number: int, total: int, noun: str) -> str:
    """``1 of 3 connections was``, ``2 of 3 connections were``, ``All 3 connections were``."""
    if number == total > 1:
        return f"All {many(total, noun)} were"
    return f"{number:,} of {many(total, noun)} {'was' if number == 1 else 'were'}"
