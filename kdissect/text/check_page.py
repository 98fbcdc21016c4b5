"""``Check`` -> a page for people: the verdict, its reasons, then the counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.capture.inputs import STDIN
from kdissect.phrases import between, facts, many, size
from kdissect.text.page import PageSection, View, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from kdissect.stats import quality
    from kdissect.stats.document import CaptureFinding

_INTERFACES = 8  # of a file, before the rest is only counted
_TICKS = {1: "s", 1000: "ms", 1_000_000: "us", 1_000_000_000: "ns"}

_ENDS = {
    "fin": "closed by FIN",
    "reset": "closed by RST",
    "reused": "replaced by a new connection on the same ports",
    "idle": "idle for too long",
    "evicted": "evicted",
    "end": "still open at the end",
}


def sections(check: quality.Check, *, limit: int) -> Iterator[PageSection]:
    """Yield the page; at most ``limit`` rows of each list."""
    yield PageSection(f"capture: {check.verdict}, {check.message}", notes=finding_notes(check.findings))
    health, details = check.health, "details: kdissect summary --findings FILE"
    reason = () if health.reason is None else (f"- {health.reason}", details)
    total, selected = check.exchanges.total, check.exchanges.selected
    part = f" ({selected:,} of {many(total, 'exchange')})" if selected < total else ""
    yield PageSection(f"traffic{part}: {health.verdict}, {health.message}", notes=reason)
    for file in check.files[:limit]:
        yield PageSection("stdin" if file.file == STDIN else file.file, notes=tuple(_file(file)))
    if len(check.files) > limit:
        yield PageSection(f"and {many(len(check.files) - limit, 'more file')}; --json shows them")
    yield PageSection("Packets", notes=tuple(_packets(check)))
    if check.connections.total or check.connections.without_data:
        yield PageSection("Connections", notes=tuple(_connections(check)))
    if check.connections.tls:
        yield table("TLS", _TLS, check.connections.tls, limit=limit)
    if check.connections.not_kafka:
        yield table("Other protocols", _NOT_KAFKA, check.connections.not_kafka, limit=limit)
    if check.exchanges.total:
        yield PageSection("Exchanges", notes=tuple(_exchanges(check.exchanges)))
    if check.anomalies:
        meanings = (f"{each.anomaly}: {each.meaning}" for each in check.anomalies[:limit])
        notes = (*meanings, "details: kdissect read -V --exchange EXAMPLE FILE")
        yield table("Anomalies", _ANOMALIES, check.anomalies, limit=limit, notes=notes)
    if check.notices:
        shown = check.notices[:limit]
        yield PageSection(
            "Anomalies outside exchanges", notes=tuple(shown), left_out=len(check.notices) - len(shown)
        )
    if check.unknown:
        yield table("Unknown APIs and versions", _UNKNOWN, check.unknown, limit=limit)


def finding_notes(findings: Iterable[CaptureFinding]) -> tuple[str, ...]:
    """A line for each finding about the capture."""
    return tuple(f"- {each.message}{f' {each.advice}' if each.advice else ''}" for each in findings)


def _file(file: quality.FilePart) -> Iterator[str]:
    order = f"{file.byte_order} endian" if file.byte_order else None
    written = f"written by {file.application}" if file.application else None
    yield facts(file.format or "unreadable", order, file.compression, size(file.bytes), written)
    yield facts(many(file.packets, "packet"), _span(file.first, file.last))
    for interface in file.interfaces[:_INTERFACES]:
        yield _interface(interface)
    if len(file.interfaces) > _INTERFACES:
        yield f"and {many(len(file.interfaces) - _INTERFACES, 'more interface')}"


def _interface(part: quality.InterfacePart) -> str:
    name = f" ({part.name})" if part.name else ""
    ticks = part.ticks_per_second
    clock = f"timestamps in {_TICKS.get(ticks, f'1/{ticks:,} s')}" if ticks else None
    of_total = f" of {size(part.wire_bytes)}" if part.captured_bytes < part.wire_bytes else ""
    return f"interface {part.interface}{name}: " + facts(
        part.link or f"link type {part.link_type}",
        clock,
        f"snaplen {part.snaplen:,}" if part.snaplen else "no snaplen",
        many(part.packets, "packet"),
        f"{size(part.captured_bytes)}{of_total}",
        _some(part.cut, "truncated"),
        f"{part.received:,} received" if part.received is not None else None,
        f"{part.accepted:,} passed the filter" if part.accepted is not None else None,
        f"{part.dropped:,} dropped" if part.dropped is not None else None,
    )


def _packets(check: quality.Check) -> Iterator[str]:
    span = _span(check.first, check.last) if len(check.files) > 1 else None
    yield facts(many(check.packets, "packet"), span)
    if check.skipped:
        yield f"skipped: {_counted(check.skipped)}"
    tcp = check.tcp
    yield facts(
        f"TCP: {many(tcp.gaps, 'gap')}",
        _some(tcp.lost_bytes, "lost", of="byte"),
        _some(tcp.undelivered_bytes, "not delivered", of="byte"),
        _some(tcp.cut_bytes, "truncated", of="byte"),
        _some(tcp.out_of_order, "out of order", of="segment"),
        _some(tcp.retransmitted_bytes, "retransmitted or captured twice", of="byte"),
        _some(tcp.overlapping_bytes, "overlapping", of="byte"),
        _some(tcp.conflicting_bytes, "in conflict", of="byte"),
        _some(tcp.without_connection, "of unknown connections", of="empty segment"),
    )


def _connections(check: quality.Check) -> Iterator[str]:
    part, skipped = check.connections, check.counts.get("kafka_skipped_bytes")
    yield facts(
        f"{many(part.total, 'connection')}: {_counted(part.protocols)}" if part.total else None,
        f"{part.ipv4:,} over IPv4" if part.ipv4 and part.ipv6 else None,
        _some(part.ipv6, "over IPv6"),
    )
    unopened = part.unopened + part.unopened_others
    which = "all" if part.unopened == unopened else f"{part.unopened:,}"
    to_listeners = f"; {which} to Kafka listeners" if part.unopened else ""
    others = facts(
        _some(part.without_data, "more without data"),
        f"{many(unopened, 'failed connection attempt')} (refused, unanswered or one-way{to_listeners})"
        if unopened
        else None,
    )
    if others:
        yield others
    if part.protocols.get("Kafka"):
        yield facts(
            f"Kafka: {part.kafka_from_start:,} captured from the start",
            f"{part.kafka_mid_stream:,} joined mid-stream",
            _some(part.kafka_one_sided, "one-sided"),
            f"skipped {many(skipped, 'byte')} of partial messages" if skipped else None,
        )
    if part.close_reasons:
        yield ", ".join(f"{count:,} {_ENDS[end]}" for end, count in part.close_reasons.items())


def _exchanges(part: quality.ExchangesPart) -> Iterator[str]:
    yield facts(
        many(part.total, "exchange"),
        _some(part.answered, "answered"),
        _some(part.unacknowledged, "with acks=0"),
        _some(part.no_answer, "unanswered"),
        _some(part.abandoned, "abandoned"),
        _some(part.pending, "pending"),
        _some(part.incomplete_responses, of="incomplete response"),
        _some(part.incomplete_requests, of="incomplete request"),
        _some(part.unclear, "whose response may not have been captured"),
        _some(part.orphans, of="orphan response"),
    )
    if part.lost or part.incomplete:
        yield f"affected by gaps and truncation: {part.lost:,} lost, {part.incomplete:,} incomplete"


def _some(count: int, what: str = "", *, of: str = "") -> str | None:
    """A number, of a noun if there is one, and what is said of it; None if it is zero."""
    number = many(count, of) if of else f"{count:,}"
    return f"{number} {what}".rstrip() if count else None


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _span(first: datetime | None, last: datetime | None) -> str | None:
    if first is None or last is None:
        return None
    seconds = (last - first).total_seconds()
    return f"{seconds:,.3f} s from {between(first, last)}"


_TLS = (
    View("ENDPOINT", lambda row: row.endpoint),
    View("VERSION", lambda row: row.version or "?"),
    View("CIPHER", lambda row: row.cipher or "?", shrinks=True),
    View("DECRYPTED", lambda row: "yes" if row.decrypted else "no"),
    View("CONNECTIONS", lambda row: f"{row.connections:,}", right=True),
)
_NOT_KAFKA = (
    View("PROTOCOL", lambda row: row.protocol),
    View("ENDPOINT", lambda row: row.endpoint),
    View("CONNECTIONS", lambda row: f"{row.connections:,}", right=True),
)
_ANOMALIES = (
    View("ANOMALY", lambda row: row.anomaly),
    View("SEVERITY", lambda row: row.severity),
    View("EXCHANGES", lambda row: f"{row.exchanges:,}", right=True),
    View("EXAMPLE", lambda row: row.example),
)
_UNKNOWN = (
    View("API KEY", lambda row: str(row.api_key), right=True),
    View("API", lambda row: row.api or "?"),
    View("VERSION", lambda row: "" if row.api_version is None else str(row.api_version), right=True),
    View("EXCHANGES", lambda row: f"{row.exchanges:,}", right=True),
)
