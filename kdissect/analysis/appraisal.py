"""What reading and dissecting told -> ``Check``, the document of ``kdissect check``. Holds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.analysis import quality
from kdissect.analysis.findings import findings, share
from kdissect.analysis.summary.rows import moment
from kdissect.anomalies import CATALOGUE, ERROR, NOTE, WARNING
from kdissect.capture.source import InterfaceStatistics
from kdissect.kafka import apis
from kdissect.limits import SECOND_NS
from kdissect.model import ANSWERED, ORPHAN, UNACKNOWLEDGED, UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kdissect.analysis.census import Census
    from kdissect.analysis.survey import Survey
    from kdissect.capture.source import Source
    from kdissect.model import Interface

_MOST_UNREAD = 50
_CLOSED = "closed_"
_SEVERITIES = (ERROR, WARNING, NOTE)
_UNCOUNTED = InterfaceStatistics(None, None, None)
# https://www.tcpdump.org/linktypes.html, those that people meet.
_LINKS = dict(
    (
        *((0, "BSD loopback"), (1, "Ethernet"), (9, "PPP"), (12, "raw IP"), (14, "raw IP"), (50, "PPP")),
        *((51, "PPPoE"), (101, "raw IP"), (104, "Cisco HDLC"), (105, "802.11"), (107, "Frame Relay")),
        *((108, "OpenBSD loopback"), (113, "Linux cooked"), (117, "pflog"), (127, "802.11 radiotap")),
        *((192, "PPI"), (228, "IPv4"), (229, "IPv6"), (253, "netlink"), (276, "Linux cooked v2")),
    )
)


def appraise(
    sources: Sequence[Source],
    survey: Survey,
    counts: Mapping[str, int],
    skipped: Mapping[str, int],
    warnings: Sequence[str],
) -> quality.Check:
    """Put together what is known at the end of a run.

    Args:
        sources: the files.
        survey: what it counted.
        counts: of the dissection.
        skipped: of the dissection.
        warnings: what was odd about the files; damage that reading ended at is the last.
    """
    census = survey.census
    span = census.span_ns
    parts: dict[str, Any] = {
        "packets": sum(file.packets for file in census.files.values()),
        "files": [_file(source, census) for source in sources],
        "skipped": dict(sorted(skipped.items(), key=lambda reason: -reason[1])),
        "tcp": _tcp(counts),
        "connections": _connections(survey, counts),
        "exchanges": _exchanges(survey, counts),
        "anomalies": sorted(_anomalies(survey), key=_gravity),
        "unknown": list(_unknown(survey)),
        "warnings": list(warnings),
    }
    found = findings(**parts, counts=counts)
    verdict = min((each.verdict for each in found), key=quality.VERDICTS.index, default=quality.GOOD)
    return quality.Check(
        verdict=verdict,
        sentence=share(parts["exchanges"]),
        findings=found,
        first=None if span is None else moment(span[0]),
        last=None if span is None else moment(span[1]),
        seconds=0.0 if span is None else (span[1] - span[0]) / SECOND_NS,
        counts=dict(sorted(counts.items())),
        **parts,
    )


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
        furthest_back_us=file.furthest_back_ns // 1000 if file else 0,
        interfaces=interfaces(source, census),
    )


def interfaces(source: Source, census: Census) -> list[quality.InterfacePart]:
    """The interfaces of a file that packets were captured on, or that were counted."""
    known = dict.fromkeys((*source.interfaces, *source.statistics))
    known.update(dict.fromkeys(each for each in census.interfaces if each.capture == source.name))
    used = [each for each in known if each in census.interfaces or each in source.statistics]
    return [_interface(each, source, census) for each in used]


def _interface(interface: Interface, source: Source, census: Census) -> quality.InterfacePart:
    count = census.interfaces.get(interface)
    told = source.statistics.get(interface, _UNCOUNTED)
    return quality.InterfacePart(
        interface=interface.index,
        name=interface.name,
        link_type=interface.link_type,
        link=_LINKS.get(interface.link_type),
        ticks_per_second=source.interfaces.get(interface),
        snaplen=interface.snaplen,
        packets=count.packets if count else 0,
        cut=count.cut if count else 0,
        cut_to=count.cut_to if count and count.cut else None,
        captured_bytes=count.captured_bytes if count else 0,
        wire_bytes=count.wire_bytes if count else 0,
        received=told.received,
        accepted=told.accepted,
        dropped_by_interface=told.dropped_by_interface,
        dropped_by_system=told.dropped_by_system,
    )


def _tcp(counts: Mapping[str, int]) -> quality.TcpPart:
    names = ("retransmitted_bytes", "overlapping_bytes", "conflicting_bytes", "out_of_order", "gaps")
    return quality.TcpPart(
        **{name: counts.get(name, 0) for name in (*names, "lost_bytes", "cut_bytes")},
        without_connection=counts.get("segments_without_connection", 0),
    )


def _connections(survey: Survey, counts: Mapping[str, int]) -> quality.ConnectionsPart:
    total = survey.protocols.total()
    kafka = survey.protocols["Kafka"]
    closed = sum(count for name, count in counts.items() if name.startswith(_CLOSED))
    return quality.ConnectionsPart(
        total=total,
        protocols=dict(survey.protocols.most_common()),
        ipv4=total - survey.ipv6,
        ipv6=survey.ipv6,
        kafka_from_start=survey.from_start,
        kafka_mid_stream=kafka - survey.from_start,
        kafka_one_sided=survey.one_sided,
        ends=dict(sorted(survey.ends.items())),
        silent=max(0, closed - total - counts.get("connections on other ports", 0)),
        unread=[
            quality.EndPart(protocol=protocol, end=end, connections=count)
            for (protocol, end), count in survey.unread.most_common(_MOST_UNREAD)
        ],
    )


def _exchanges(survey: Survey, counts: Mapping[str, int]) -> quality.ExchangesPart:
    return quality.ExchangesPart(
        total=survey.kinds.total(),
        complete=survey.complete,
        answered=survey.kinds[ANSWERED],
        unacknowledged=survey.kinds[UNACKNOWLEDGED],
        unanswered=survey.kinds[UNANSWERED],
        orphans=survey.kinds[ORPHAN],
        lost=counts.get("exchanges_lost", 0),
        incomplete=counts.get("exchanges_incomplete", 0),
    )


def _anomalies(survey: Survey) -> Iterable[quality.AnomalyPart]:
    for kind, found in survey.anomalies.items():
        severity, sentence = CATALOGUE[kind]
        yield quality.AnomalyPart(
            anomaly=kind,
            severity=severity,
            meaning=sentence,
            exchanges=found.exchanges,
            example=found.example,
        )


def _gravity(part: quality.AnomalyPart) -> tuple[int, int]:
    return _SEVERITIES.index(part.severity), -part.exchanges


def _unknown(survey: Survey) -> Iterable[quality.UnknownPart]:
    for (key, version), count in survey.unknown.most_common(_MOST_UNREAD):
        api = apis.by_key(key)
        yield quality.UnknownPart(
            api_key=key, api=None if api is None else api.name, api_version=version, exchanges=count
        )
