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
from kdissect.phrases import span
from kdissect.pipeline import NO_SERVER_HELLO
from kdissect.stats import quality
from kdissect.stats.document import SCHEMA_VERSION
from kdissect.stats.health import NO_VERDICT
from kdissect.stats.quality import Finding
from kdissect.stats.rows import moment, ranked, row_of
from kdissect.stats.survey import InterfaceCount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kdissect.capture.source import Source
    from kdissect.model import Interface
    from kdissect.stats.document import Verdict
    from kdissect.stats.survey import Census, Survey


_MAX_ROWS = 50
_CLOSED = "closed_"
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
    """
    census = observer.census
    span_ns = census.span_ns
    parts: dict[str, Any] = {
        "packets": sum(file.packets for file in census.files.values()),
        "files": [_file(source, census) for source in sources],
        "skipped": ranked(skipped),
        "tcp": _tcp(counts),
        "connections": _connections(observer, counts),
        "exchanges": _exchanges(observer, counts),
        "anomalies": sorted(_anomalies(observer), key=_severity_then_count),
        "unknown": list(_unknown(observer)),
        "warnings": list(warnings),
    }
    all_findings = findings(**parts, counts=counts)
    verdict = min((each.verdict for each in all_findings), key=quality.VERDICTS.index, default=quality.GOOD)
    return quality.Check(
        schema_version=SCHEMA_VERSION,
        verdict=verdict,
        message=f"{completeness(parts['exchanges'])}{_duration(span_ns)}",
        health=health or NO_VERDICT,
        findings=all_findings,
        first=None if span_ns is None else moment(span_ns[0]),
        last=None if span_ns is None else moment(span_ns[1]),
        seconds=0.0 if span_ns is None else (span_ns[1] - span_ns[0]) / SECOND_NS,
        counts={name: counts[name] for name in sorted(counts) if not name.startswith(_UNRECOGNIZED_PORT)},
        notices=list(notices),
        **parts,
    )


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
    kafka = observer.protocols["Kafka"]
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


def _exchanges(observer: Survey, counts: Mapping[str, int]) -> quality.ExchangesPart:
    return quality.ExchangesPart(
        total=observer.kinds.total(),
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


# ------------------------------------------------------------------------------------------------------------
# The parts of a ``Check`` -> findings: how far the capture can be trusted, and advice.
# ------------------------------------------------------------------------------------------------------------


_KAFKA, _TLS = "Kafka", "TLS"
_DECRYPT = "Decrypt with a key log (--tls-keylog), or capture behind a TLS-terminating proxy."
_UNRECOGNIZED_PORT = "not recognized on port "  # ``not_kafka`` has these, by endpoint
_TLS_DECRYPTED, _TLS_NOT_DECRYPTED = "TLS decrypted", "TLS not decrypted: "  # counts of tls/decryption.py
_NAME_PORT = "If one of them carries Kafka, decode its port as Kafka: -d tcp.port==PORT,kafka."
_REFUSED = "Clients may have been refused; check that the broker is listening."
_CUT_SHORT = "ends in the middle"
# Anomalies that other findings cover: gaps, truncation, directions, limits, versions.
_COVERED = frozenset(
    (
        "gap",
        "given_up",
        "incomplete_message",
        "one_direction",
        "partial_frame",
        "tls_alert",
        "undelivered",
        "uncaptured_body",
        "unknown_api",
        "unknown_version",
    )
)


_MISSING = 20  # more than one in this many exchanges not fully captured: incomplete


def completeness(exchanges: quality.ExchangesPart) -> str:
    """How many exchanges were fully captured; rounds down, so 100% means all."""
    total, whole = exchanges.total, exchanges.whole
    if not total:
        return "no exchanges"
    if whole == total:
        text = f"{'all ' if total > 1 else ''}{_plural(total, 'exchange')} fully captured"
        return f"{text}, {exchanges.pending:,} still pending" if exchanges.pending else text
    percent = f"{whole * 1000 // total / 10:.1f}".removesuffix(".0")
    return f"{whole:,} of {_plural(total, 'exchange')} fully captured ({percent}%)"


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
    """All findings, the worst first."""
    results = [
        *_no_kafka(packets, skipped, connections),
        *_files(files, warnings),
        *_loss_findings(files, counts, exchanges, tcp),
        *_connection_findings(connections, counts),
        *_messages(exchanges, connections, anomalies, unknown),
        *_limits(counts),
    ]
    return sorted(results, key=lambda each: quality.VERDICTS.index(each.verdict))


def _no_kafka(
    packets: int, skipped: Mapping[str, int], connections: quality.ConnectionsPart
) -> Iterator[Finding]:
    if not packets:
        yield _finding(
            quality.EMPTY, "The capture has no packets.", "Check the interface and filter of the capture."
        )
    elif not connections.protocols.get(_KAFKA):
        others = ", ".join(f"{count:,} {name}" for name, count in connections.protocols.items())
        empty = connections.without_data + connections.unopened + connections.unopened_others
        silent = f"{_plural(empty, 'connection')} without data" if empty else ""
        what = f"connections: {others}" if others else silent or "no TCP connections"
        unread = sum(skipped.values())
        skipped_text = f"; {unread:,} of {_plural(packets, 'packet')} skipped" if unread else ""
        advice = _NAME_PORT if connections.protocols.keys() - {_TLS} else _REFUSED if silent else None
        yield _finding(quality.NO_KAFKA, f"No Kafka traffic ({what}{skipped_text}).", advice)


def _files(files: list[quality.FilePart], warnings: list[str]) -> Iterator[Finding]:
    for warning in warnings:
        is_usual = _CUT_SHORT in warning  # as when tcpdump is killed
        advice = (
            "If the file was copied while it was being written, copy it again. Otherwise stop the capture "
            "with Ctrl-C so that the last packets are written, and check that the disk is not full."
            if is_usual
            else None
        )
        yield _finding(quality.GOOD if is_usual else quality.DAMAGED, f"{warning}.", advice)
    backward = sum(file.backward for file in files)
    if backward:
        furthest_us = max(file.backward_max_us for file in files)
        yield _finding(
            quality.GOOD,
            f"{_plural(backward, 'packet')} out of time order, by at most {furthest_us / 1000:,.3f} ms.",
            "Latencies up to this size are unreliable." if furthest_us else None,
        )


def _loss_findings(
    files: list[quality.FilePart],
    counts: Mapping[str, int],
    exchanges: quality.ExchangesPart,
    tcp: quality.TcpPart,
) -> Iterator[Finding]:
    interfaces = [interface for file in files for interface in file.interfaces]
    if dropped := quality.total(*(each.dropped for each in interfaces)):
        yield _finding(
            quality.LOSSY,
            f"The capture program reported {_plural(dropped, 'packet')} dropped.",
            "Capture with a larger buffer (tcpdump -B 65536, dumpcap -B 64) or a narrower filter.",
        )
    if gaps := counts.get("kafka_gaps", 0):
        lost = f"{_plural(counts.get('kafka_lost_bytes', 0), 'byte')} of Kafka connections"
        cost = f": {_plural(exchanges.lost, 'exchange')} lost, {exchanges.incomplete:,} incomplete"
        yield _finding(
            quality.LOSSY,
            f"{lost} missing in {_plural(gaps, 'gap')}{cost}.",
            None
            if dropped
            else "Capture on one of the hosts rather than a mirror port, or with tcpdump -B 65536.",
        )
    if gaps := counts.get("kafka_undelivered_gaps", 0):
        missing = _plural(counts.get("kafka_undelivered_bytes", 0), "byte")
        yield _finding(
            quality.GOOD,
            f"{missing} of Kafka connections did not arrive, in {_plural(gaps, 'gap')}: the receiver did not "
            "acknowledge them, so the network lost them, not the capture.",
            "See network-loss: kdissect summary --findings FILE.",
        )
    if cut := sum(each.cut for each in interfaces):
        percent = 100 * cut / max(1, sum(each.packets for each in interfaces))
        longest = max(each.cut_to or 0 for each in interfaces)
        yield _finding(
            quality.TRUNCATED if counts.get("kafka_cut_bytes") else quality.GOOD,
            f"{_plural(cut, 'packet')} ({percent:.1f}%) truncated to {longest:,} bytes; bodies are decoded "
            "up to there.",
            "Capture whole packets: tcpdump -s 0.",
        )
    if tcp.conflicting_bytes:
        yield _finding(
            quality.GOOD,
            f"{_plural(tcp.conflicting_bytes, 'byte')} captured twice with different content; the "
            "first copy is used.",
            "Two connections with the same addresses may be mixed up, for example by NAT.",
        )


def _connection_findings(
    connections: quality.ConnectionsPart, counts: Mapping[str, int]
) -> Iterator[Finding]:
    kafka = connections.protocols.get(_KAFKA, 0)
    if one_sided := connections.kafka_one_sided:
        yield _finding(
            quality.ONE_SIDED if 2 * one_sided > kafka else quality.GOOD,
            f"{_of(one_sided, kafka, 'Kafka connection')} captured in one direction only.",
            (
                "Capture at a point that sees both directions; asymmetric routing or a one-way "
                "mirror (SPAN) port hides one of them."
            ),
        )
    if connections.kafka_mid_stream:
        evicted = ", or evicted because of a limit" if counts.get("closed_evicted") else ""
        yield _finding(
            quality.GOOD,
            f"{_of(connections.kafka_mid_stream, kafka, 'Kafka connection')} already open when the capture "
            f"started{evicted}. The client library and version, and the requests that the first responses "
            "answer, may be missing.",
            "If you need them, start the capture before the clients, or restart the clients.",
        )
    if connections.tls_decrypted:
        decrypted = _plural(connections.tls_decrypted, "TLS connection")
        yield _finding(quality.GOOD, f"{decrypted} decrypted with the key log.", None)
    if tls := connections.protocols.get(_TLS):
        reasons = connections.tls_not_decrypted.items()
        why = "; ".join(f"{count:,}: {reason}" for reason, count in reasons)
        advice = None if why else _DECRYPT
        if tls == counts.get(NO_SERVER_HELLO):
            why, advice = "no server answered a ClientHello", "See kdissect summary --findings FILE."
        yield _finding(
            quality.GOOD,
            f"{_plural(tls, 'TLS connection')} cannot be read{f' ({why})' if why else ''}.",
            advice,
        )
    others = sum(n for name, n in connections.protocols.items() if name not in (_KAFKA, _TLS))
    if kafka and others:
        yield _finding(
            quality.GOOD,
            f"{_plural(others, 'connection')} with other protocols, or not recognized.",
            _NAME_PORT,
        )


def _messages(
    exchanges: quality.ExchangesPart,
    connections: quality.ConnectionsPart,
    anomalies: list[quality.AnomalyPart],
    unknown: list[quality.UnknownPart],
) -> Iterator[Finding]:
    if missing := exchanges.total - exchanges.whole:
        unclear = exchanges.unclear
        excused = exchanges.orphans if connections.kafka_mid_stream else 0  # their requests came before
        parts = (
            (exchanges.orphans, "has no request", "have no request"),
            (unclear, "has no response", "have no response"),
            (missing - exchanges.orphans - unclear, "is incomplete", "are incomplete"),
        )
        counted = ", ".join(f"{count:,} {one if count == 1 else more}" for count, one, more in parts if count)
        yield _finding(
            quality.INCOMPLETE if (missing - excused) * _MISSING > exchanges.total else quality.GOOD,
            f"{_plural(missing, 'exchange')} {'was' if missing == 1 else 'were'} not fully captured: "
            f"{counted}.",
            None,
        )
    if cut := exchanges.incomplete_responses + exchanges.incomplete_requests:
        messages = f"{_plural(cut, 'message')} began but did not end"
        yield _finding(quality.GOOD, f"{messages}: the connection or the capture ended first.", None)
    if exchanges.pending:
        waiting = _plural(exchanges.pending, "request")
        yield _finding(quality.GOOD, f"{waiting} had no response yet when the capture ended.", None)
    if unknown:
        names = ", ".join(f"{each.api or f'API {each.api_key}'} v{each.api_version}" for each in unknown[:3])
        yield _finding(
            quality.PARTLY_DECODED,
            f"{_plural(sum(each.exchanges for each in unknown), 'exchange')} with APIs or versions unknown "
            f"to this version of kdissect: {names}{', ...' if len(unknown) > 3 else ''}.",
            "Upgrade kdissect: a newer version may decode them.",
        )
    if errors := [each for each in anomalies if each.severity == ERROR]:
        kinds = ", ".join(f"{each.exchanges:,} {each.anomaly}" for each in errors)
        yield _finding(
            quality.PARTLY_DECODED,
            f"Parts of messages could not be decoded: {kinds}.",
            f"Details: kdissect read -V --exchange {errors[0].example} FILE.",
        )
    odd = [each for each in anomalies if each.severity == WARNING and each.anomaly not in _COVERED]
    if odd:
        kinds = ", ".join(f"{each.exchanges:,} {each.anomaly}" for each in odd)
        yield _finding(
            quality.GOOD,
            f"Fully captured messages could not be fully decoded: {kinds}.",
            f"Details: kdissect read -V --exchange {odd[0].example} FILE.",
        )


def _limits(counts: Mapping[str, int]) -> Iterator[Finding]:
    evicted, dropped, shed = (counts.get(name, 0) for name in ("closed_evicted", "requests_given_up", "shed"))
    reached = [
        f"{_plural(evicted, 'connection')} evicted" if evicted else None,
        f"{_plural(dropped, 'outstanding request')} dropped" if dropped else None,
        f"buffered data dropped {_plural(shed, 'time')}" if shed else None,
    ]
    if any(reached):
        yield _finding(
            quality.GOOD,
            f"Limits were reached: {', '.join(filter(None, reached))}.",
            "--limits shows all limits; --limits NAME=VALUE raises one.",
        )


def _finding(verdict: str, message: str, advice: str | None) -> Finding:
    return Finding(verdict=verdict, message=message, advice=advice)


def _of(number: int, total: int, noun: str) -> str:
    """``1 of 3 connections was``, ``2 of 3 connections were``, ``All 3 connections were``."""
    if number == total > 1:
        return f"All {_plural(total, noun)} were"
    return f"{number:,} of {_plural(total, noun)} {'was' if number == 1 else 'were'}"


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
