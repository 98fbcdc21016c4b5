"""The parts of a ``Check`` -> what they mean for whoever relies on the capture, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis import quality
from kdissect.analysis.quality import Finding
from kdissect.anomalies import ERROR, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_KAFKA, _TLS = "Kafka", "TLS"
_NAME_PORT = "If one is, name its port: -d tcp.port==PORT,kafka."
_REFUSED = "Clients may have been refused: look whether the broker listens."
_CUT_SHORT = "ends in the middle"
# Warnings that gaps, cuts, directions, bounds and versions have findings of their own for.
_TOLD = frozenset(
    ("gap", "given_up", "one_direction", "partial_frame", "uncaptured_body", "unknown_api", "unknown_version")
)


def share(exchanges: quality.ExchangesPart) -> str:
    """How many exchanges are complete. What is not all is never called 100 %."""
    total, complete = exchanges.total, exchanges.complete
    if not total:
        return "no exchange was found"
    verb = "is" if total == 1 else "are"
    percent = f"{complete * 1000 // total / 10:.1f}".removesuffix(".0")
    return f"{complete:,} of {_many(total, 'exchange')} {verb} complete ({percent} %)"


def findings(
    *,
    packets: int,
    files: list[quality.FilePart],
    skipped: Mapping[str, int],
    tcp: quality.TcpPart,
    connections: quality.ConnectionsPart,
    exchanges: quality.ExchangesPart,
    anomalies: list[quality.AnomalyPart],
    unknown: list[quality.UnknownPart],
    warnings: list[str],
    counts: Mapping[str, int],
) -> list[Finding]:
    """What there is to say, the worst first."""
    found = [
        *_absence(packets, skipped, connections),
        *_files(files, warnings),
        *_losses(files, counts, exchanges, tcp),
        *_connections(connections),
        *_messages(exchanges, anomalies, unknown),
        *_bounds(counts),
    ]
    return sorted(found, key=lambda each: quality.VERDICTS.index(each.verdict))


def _absence(
    packets: int, skipped: Mapping[str, int], connections: quality.ConnectionsPart
) -> Iterator[Finding]:
    if not packets:
        yield _finding(
            quality.EMPTY, "There is no packet in it.", "Look at interface and filter of the recording."
        )
    elif not connections.protocols.get(_KAFKA):
        others = ", ".join(f"{count:,} {name}" for name, count in connections.protocols.items())
        silent = f"{_many(connections.silent, 'connection')} without data" if connections.silent else ""
        what = (
            f"none of the connections is Kafka's: {others}"
            if others
            else silent or "there is no TCP connection"
        )
        unread = sum(skipped.values())
        looked = f"; {unread:,} of {_many(packets, 'packet')} were not looked into" if unread else ""
        advice = _NAME_PORT if connections.protocols.keys() - {_TLS} else _REFUSED if silent else None
        yield _finding(quality.NO_KAFKA, f"No Kafka was found: {what}{looked}.", advice)


def _files(files: list[quality.FilePart], warnings: list[str]) -> Iterator[Finding]:
    for warning in warnings:
        is_usual = _CUT_SHORT in warning  # whoever stops tcpdump may leave it so
        advice = "Stop the recording with Ctrl-C, so that the last packets are written." if is_usual else None
        yield _finding(quality.GOOD if is_usual else quality.DAMAGED, f"{warning}.", advice)
    backward = sum(file.backward for file in files)
    if backward:
        furthest_us = max(file.furthest_back_us for file in files)
        yield _finding(
            quality.GOOD,
            f"{_many(backward, 'packet')} out of order in time, by {furthest_us / 1000:,.3f} ms at most.",
            "Latencies of this size are not to be relied on." if furthest_us else None,
        )


def _losses(
    files: list[quality.FilePart],
    counts: Mapping[str, int],
    exchanges: quality.ExchangesPart,
    tcp: quality.TcpPart,
) -> Iterator[Finding]:
    interfaces = [interface for file in files for interface in file.interfaces]
    if dropped := quality.total(*(each.dropped for each in interfaces)):
        yield _finding(
            quality.LOSSY,
            f"The capturing program dropped {_many(dropped, 'packet')}, by its own count.",
            "Record with a larger buffer (tcpdump -B 65536, dumpcap -B 64) or a narrower filter.",
        )
    if gaps := counts.get("kafka_gaps", 0):
        lost = f"{_many(counts.get('kafka_lost_bytes', 0), 'byte')} of Kafka connections"
        cost = f": {_many(exchanges.lost, 'exchange')} lost, {exchanges.incomplete:,} incomplete"
        yield _finding(
            quality.LOSSY,
            f"{lost} missing in {_many(gaps, 'gap')}{cost}.",
            None
            if dropped
            else "Record at one of the hosts rather than at a mirror port, or with tcpdump -B 65536.",
        )
    if cut := sum(each.cut for each in interfaces):
        percent = 100 * cut / max(1, sum(each.packets for each in interfaces))
        longest = max(each.cut_to or 0 for each in interfaces)
        yield _finding(
            quality.CUT if counts.get("kafka_cut_bytes") else quality.GOOD,
            f"{_many(cut, 'packet')} ({percent:.1f} %) cut to {longest:,} bytes: bodies are read as far "
            "as they go.",
            "Record whole packets: tcpdump -s 0.",
        )
    if tcp.conflicting_bytes:
        yield _finding(
            quality.GOOD,
            f"{_many(tcp.conflicting_bytes, 'byte')} came twice, but not the same; the first were taken.",
            "Two connections with the same addresses may be mixed, as behind address translation.",
        )


def _connections(connections: quality.ConnectionsPart) -> Iterator[Finding]:
    kafka = connections.protocols.get(_KAFKA, 0)
    if one_sided := connections.kafka_one_sided:
        yield _finding(
            quality.ONE_SIDED if 2 * one_sided > kafka else quality.GOOD,
            f"Of {one_sided:,} of {_many(kafka, 'Kafka connection')} only one side's bytes were captured.",
            "Record where both directions pass; routes and mirror ports can be one-way.",
        )
    if connections.kafka_mid_stream:
        yield _finding(
            quality.GOOD,
            f"{connections.kafka_mid_stream:,} of {_many(kafka, 'Kafka connection')} were open before: who "
            "the client is, and responses to earlier requests, may be unknown.",
            "Start the recording before the clients, or restart them, if that matters.",
        )
    if tls := connections.protocols.get(_TLS):
        yield _finding(
            quality.GOOD,
            f"{_many(tls, 'connection')} with TLS cannot be read.",
            "Record behind what ends TLS, or on a listener without it.",
        )
    others = sum(n for name, n in connections.protocols.items() if name not in (_KAFKA, _TLS))
    if kafka and others:
        yield _finding(
            quality.GOOD,
            f"{_many(others, 'connection')} not Kafka's, or not recognised.",
            _NAME_PORT,
        )


def _messages(
    exchanges: quality.ExchangesPart,
    anomalies: list[quality.AnomalyPart],
    unknown: list[quality.UnknownPart],
) -> Iterator[Finding]:
    if exchanges.unanswered:
        finding = f"{_many(exchanges.unanswered, 'request')} without response"
        why = "connection or capture ended before it came, or it was lost"
        yield _finding(quality.GOOD, f"{finding}: {why}.", None)
    if unknown:
        names = ", ".join(f"{each.api or f'api {each.api_key}'} v{each.api_version}" for each in unknown[:3])
        yield _finding(
            quality.UNREAD,
            f"{_many(sum(each.exchanges for each in unknown), 'exchange')} of apis or versions that this "
            f"program does not know: {names}{', ...' if len(unknown) > 3 else ''}.",
            "A newer kdissect may.",
        )
    if errors := [each for each in anomalies if each.severity == ERROR]:
        kinds = ", ".join(f"{each.exchanges:,} {each.anomaly}" for each in errors)
        yield _finding(
            quality.UNREAD,
            f"Something in messages could not be decoded: {kinds}.",
            f"Look: kdissect read -V --exchange {errors[0].example} FILE.",
        )
    odd = [each for each in anomalies if each.severity == WARNING and each.anomaly not in _TOLD]
    if odd:
        kinds = ", ".join(f"{each.exchanges:,} {each.anomaly}" for each in odd)
        yield _finding(
            quality.GOOD,
            f"Messages were captured whole and are not complete, or wrong: {kinds}.",
            f"Look: kdissect read -V --exchange {odd[0].example} FILE.",
        )


def _bounds(counts: Mapping[str, int]) -> Iterator[Finding]:
    given_up = sum(counts.get(name, 0) for name in ("closed_evicted", "requests_given_up", "shed"))
    if given_up:
        yield _finding(
            quality.GOOD,
            f"What was held reached a bound {_many(given_up, 'time')}.",
            "--limits shows and sets bounds.",
        )


def _finding(verdict: str, finding: str, advice: str | None) -> Finding:
    return Finding(verdict=verdict, finding=finding, advice=advice)


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
