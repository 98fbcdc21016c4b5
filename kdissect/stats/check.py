"""Counts of a run -> ``Check``, the document of ``kdissect check``. Holds no state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.anomalies import CATALOGUE, ERROR, NOTE, WARNING
from kdissect.capture.source import InterfaceStatistics
from kdissect.kafka import apis
from kdissect.limits import SECOND_NS
from kdissect.model import (
    ABANDONED,
    ANSWERED,
    INCOMPLETE,
    INCOMPLETE_REQUEST,
    ORPHAN,
    PENDING,
    UNACKNOWLEDGED,
    UNANSWERED,
)
from kdissect.phrases import many, span
from kdissect.stats import quality
from kdissect.stats.document import SCHEMA_VERSION
from kdissect.stats.findings.capture import findings
from kdissect.stats.health import NO_VERDICT
from kdissect.stats.rows import moment, ranked, row_of
from kdissect.stats.survey import KAFKA, InterfaceCount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kdissect.capture.source import Source
    from kdissect.model import Interface
    from kdissect.stats.document import Verdict
    from kdissect.stats.survey import Census, Survey


_MAX_ROWS = 50
_CLOSED = "closed_"
_UNRECOGNIZED_PORT = "not recognized on port "  # ``not_kafka`` has these, by endpoint
_TLS_DECRYPTED, _TLS_NOT_DECRYPTED = "TLS decrypted", "TLS not decrypted: "  # counts of tls/decryption.py
_SEVERITIES = (ERROR, WARNING, NOTE)
_UNCOUNTED = InterfaceStatistics(None, None, None)
# The common ones of https://www.tcpdump.org/linktypes.html.
_LINKS = dict(
    (
        *((0, "BSD loopback"), (1, "Ethernet"), (9, "PPP"), (12, "raw IP"), (14, "raw IP"), (50, "PPP")),
        *((51, "PPPoE"), (101, "raw IP"), (104, "Cisco HDLC"), (105, "802.11"), (107, "Frame Relay")),
        *((108, "OpenBSD loopback"), (113, "Linux cooked"), (117, "pflog"), (127, "802.11 radiotap")),
        *((192, "PPI"), (228, "IPv4"), (229, "IPv6"), (253, "netlink"), (276, "Linux cooked v2")),
    )
)


def build_check(
    sources: Sequence[Source],
    observer: Survey,
    counts: Mapping[str, int],
    skipped: Mapping[str, int],
    warnings: Sequence[str],
    notices: Sequence[str] = (),
    health: Verdict | None = None,
    selected: int | None = None,
) -> quality.Check:
    """Assemble the document at the end of a run.

    Args:
        sources: the capture files.
        observer: observer of the run, with its counts.
        counts: ``Dissection.counts``.
        skipped: ``Dissection.skipped``.
        warnings: problems of the files; damage that ended the reading comes last.
        notices: ``Dissection.notices``.
        health: the verdict on the traffic; None: there is none.
        selected: number of exchanges that it is about; None: all.
    """
    census = observer.census
    span_ns = census.span_ns
    exchanges = _exchanges(observer, counts, selected)
    check = quality.Check(
        schema_version=SCHEMA_VERSION,
        verdict=quality.GOOD,
        message=f"{completeness(exchanges)}{_duration(span_ns)}",
        health=health or NO_VERDICT,
        findings=[],
        packets=sum(file.packets for file in census.files.values()),
        first=None if span_ns is None else moment(span_ns[0]),
        last=None if span_ns is None else moment(span_ns[1]),
        seconds=0.0 if span_ns is None else (span_ns[1] - span_ns[0]) / SECOND_NS,
        files=[_file(source, census) for source in sources],
        skipped=ranked(skipped),
        tcp=_tcp(counts),
        connections=_connections(observer, counts),
        exchanges=exchanges,
        anomalies=sorted(_anomalies(observer), key=_severity_then_count),
        unknown=list(_unknown(observer)),
        warnings=list(warnings),
        notices=list(notices),
        counts={name: counts[name] for name in sorted(counts) if not name.startswith(_UNRECOGNIZED_PORT)},
    )
    check.findings = findings(check)
    check.verdict = check.findings[0].verdict if check.findings else quality.GOOD
    return check


def _duration(span_ns: tuple[int, int] | None) -> str:
    return "" if span_ns is None else f"; packets span {span(span_ns[1] - span_ns[0])}"


def _file(source: Source, census: Census) -> quality.FilePart:
    form, file = source.form, census.files.get(source.name)
    return quality.FilePart(
        file=source.name,
        format=form and form.name,
        byte_order=form and form.byte_order,
        compression=source.compression,
        application=form and form.application,
        bytes=source.bytes_read,
        packets=file.packets if file else 0,
        first=moment(file.first_ns) if file else None,
        last=moment(file.last_ns) if file else None,
        backward=file.backward if file else 0,
        backward_max_us=file.furthest_back_ns // 1000 if file else 0,
        interfaces=interfaces(source, census),
    )


def interfaces(source: Source, census: Census) -> list[quality.InterfacePart]:
    """The interfaces of a file that have packets or statistics."""
    known = dict.fromkeys((*source.interfaces, *source.statistics))
    known.update(dict.fromkeys(each for each in census.interfaces if each.capture == source.name))
    used = [each for each in known if each in census.interfaces or each in source.statistics]
    return [_interface(each, source, census) for each in used]


def _interface(interface: Interface, source: Source, census: Census) -> quality.InterfacePart:
    count = census.interfaces.get(interface) or InterfaceCount()
    dropped = source.statistics.get(interface, _UNCOUNTED)
    return row_of(
        quality.InterfacePart,
        count,
        interface=interface.index,
        name=interface.name,
        link_type=interface.link_type,
        link=_LINKS.get(interface.link_type),
        ticks_per_second=source.interfaces.get(interface),
        snaplen=interface.snaplen,
        cut_to=count.cut_to if count.cut else None,
        received=dropped.received,
        accepted=dropped.accepted,
        dropped_by_interface=dropped.dropped_by_interface,
        dropped_by_system=dropped.dropped_by_system,
    )


def _tcp(counts: Mapping[str, int]) -> quality.TcpPart:
    names = (
        *("retransmitted_bytes", "overlapping_bytes", "conflicting_bytes", "out_of_order", "gaps"),
        *("lost_bytes", "cut_bytes", "undelivered_gaps", "undelivered_bytes"),
    )
    return quality.TcpPart(
        **{name: counts.get(name, 0) for name in names},
        without_connection=counts.get("segments_without_connection", 0),
    )


def _connections(observer: Survey, counts: Mapping[str, int]) -> quality.ConnectionsPart:
    total = observer.protocols.total()
    kafka = observer.protocols[KAFKA]
    closed = sum(count for name, count in counts.items() if name.startswith(_CLOSED))
    unopened = sum(count for end, count in observer.unopened.items() if end in observer.listeners)
    return quality.ConnectionsPart(
        total=total,
        protocols=ranked(observer.protocols),
        ipv4=total - observer.ipv6,
        ipv6=observer.ipv6,
        kafka_from_start=observer.from_start,
        kafka_mid_stream=kafka - observer.from_start,
        kafka_one_sided=observer.one_sided,
        close_reasons=dict(sorted(observer.ends.items())),
        without_data=max(
            0, closed - total - counts.get("connections on other ports", 0) - observer.unopened.total()
        ),
        unopened=unopened,
        unopened_others=observer.unopened.total() - unopened,
        tls_decrypted=counts.get(_TLS_DECRYPTED, 0),
        tls_not_decrypted={
            name.removeprefix(_TLS_NOT_DECRYPTED): count
            for name, count in sorted(counts.items())
            if name.startswith(_TLS_NOT_DECRYPTED)
        },
        tls=[
            quality.TlsPart(
                endpoint=endpoint, version=version, cipher=cipher, decrypted=decrypted, connections=count
            )
            for (endpoint, version, cipher, decrypted), count in _most_frequent(observer.tls)
        ],
        not_kafka=[
            quality.EndpointPart(protocol=protocol, endpoint=endpoint, connections=count)
            for (protocol, endpoint), count in _most_frequent(observer.unread)
        ],
    )


def _exchanges(observer: Survey, counts: Mapping[str, int], selected: int | None) -> quality.ExchangesPart:
    return quality.ExchangesPart(
        total=observer.kinds.total(),
        selected=observer.kinds.total() if selected is None else selected,
        complete=observer.complete,
        whole=observer.whole,
        answered=observer.kinds[ANSWERED],
        unacknowledged=observer.kinds[UNACKNOWLEDGED],
        unanswered=observer.kinds[UNANSWERED],
        no_answer=observer.outcomes[UNANSWERED],
        abandoned=observer.outcomes[ABANDONED],
        pending=observer.outcomes[PENDING],
        incomplete_responses=observer.outcomes[INCOMPLETE],
        incomplete_requests=observer.outcomes[INCOMPLETE_REQUEST],
        orphans=observer.kinds[ORPHAN],
        lost=counts.get("exchanges_lost", 0),
        incomplete=counts.get("exchanges_incomplete", 0),
    )


def _anomalies(observer: Survey) -> Iterable[quality.AnomalyPart]:
    for kind, count in observer.anomalies.items():
        severity, description = CATALOGUE[kind]
        yield row_of(quality.AnomalyPart, count, anomaly=kind, severity=severity, meaning=description)


def _severity_then_count(part: quality.AnomalyPart) -> tuple[int, int, str]:
    return _SEVERITIES.index(part.severity), -part.exchanges, part.anomaly


def _most_frequent(counted: Mapping[tuple[Any, ...], int]) -> list[tuple[Any, int]]:
    """The most frequent keys first, then in order; None comes before anything else."""

    def order(item: tuple[tuple[Any, ...], int]) -> tuple[Any, ...]:
        key, count = item
        return -count, *((part is not None, part) for part in key)

    return sorted(counted.items(), key=order)[:_MAX_ROWS]


def _unknown(observer: Survey) -> Iterable[quality.UnknownPart]:
    for (key, version), count in _most_frequent(observer.unknown):
        api = apis.by_key(key)
        yield quality.UnknownPart(
            api_key=key, api=None if api is None else api.name, api_version=version, exchanges=count
        )


def completeness(exchanges: quality.ExchangesPart) -> str:
    """How many exchanges were fully captured; rounds down, so 100% means all."""
    total, whole = exchanges.total, exchanges.whole
    if not total:
        return "no exchanges"
    if whole == total:
        text = f"{'all ' if total > 1 else ''}{many(total, 'exchange')} fully captured"
        return f"{text}, {exchanges.pending:,} still pending" if exchanges.pending else text
    percent = f"{whole * 1000 // total / 10:.1f}".removesuffix(".0")
    return f"{whole:,} of {many(total, 'exchange')} fully captured ({percent}%)"
