"""``Summary`` -> a page for people: what was captured, then a table for each question."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kdissect.capture.inputs import STDIN
from kdissect.phrases import (
    ABSENT,
    absent,
    bar,
    between,
    duration,
    facts,
    listed,
    many,
    nonzero,
    size,
    span,
    topic_label,
)
from kdissect.stats.document import ExchangesByRow, LoadRow, RecordsByRow
from kdissect.stats.health import when
from kdissect.stats.quantiles import middle_of
from kdissect.stats.tallies import Load
from kdissect.stats.views import TABLES, ranked, share_amount
from kdissect.tables.values import json_bytes, timestamp
from kdissect.text import groups_page, transactions_page
from kdissect.text.check_page import finding_notes
from kdissect.text.page import IPV4, IPV4_PORT, PageSection, View, number, seconds, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kdissect.stats import document
    from kdissect.stats.document import ErrorRow, FindingPart, FindingRow, LagRow, RuleRow, VersionsPart
    from kdissect.stats.summarizer import Summarizer
    from kdissect.stats.traffic import ClientOfCluster

    Grouped = ExchangesByRow | RecordsByRow


def sections(
    summary: document.Summary,
    *,
    limit: int | None,
    order: str | None = None,
    has_histogram: bool = False,
    interval_ns: int = 0,
    by: str | None = None,
) -> Iterator[PageSection]:
    """Yield the page.

    Args:
        summary: a part that is None is left out.
        limit: rows of each table; None: all.
        order: by which the tables are ordered, see ``views.ordered``.
        has_histogram: whether to show how the service times of each API are distributed.
        interval_ns: length of the intervals of the time series.
        by: what its rows are.
    """
    key = replace(_INTERVALS[1], heading=(by or "all").upper())
    intervals = (_INTERVALS[0], key, *_INTERVALS[2:])
    over_time = f"Over time{f', in intervals of {span(interval_ns)}' if interval_ns else ''}"
    yield capture(summary.capture)
    failed = [row for row in summary.errors or () if row.expected < row.count]
    for title, views, rows in (
        ("APIs", _APIS, summary.apis),
        ("Brokers", _BROKERS, summary.brokers),
        ("Clients", _CLIENTS, summary.clients),
        ("Topics", _TOPICS, summary.topics),
        ("Partitions", _PARTITIONS, summary.partitions),
        ("Groups", _GROUPS, summary.groups),
        ("Connections", _CONNECTIONS, summary.connections),
        *(
            (_grouped_title(rows), _grouped_views(rows, views), rows)
            for rows, views in ((summary.exchanges_by, _LOAD), (summary.records_by, _RECORDS))
        ),
        (over_time, intervals, [row for row in summary.intervals or () if row.exchanges]),
        ("Unanswered", _UNANSWERED, summary.unanswered),
        ("Errors", _error_views(failed), failed),
        ("Slowest exchanges", _SLOWEST, summary.slowest),
        ("Waits and delays", _WAITS, [row for row in summary.waits or () if _is_known(row)]),
    ):
        if rows:
            notes: tuple[str, ...] = _NOTES.get(title, ())
            if title in _RANKED or isinstance(rows[0], ExchangesByRow | RecordsByRow):
                views, more = ranked_views(views, rows, order)
                notes += more
            yield table(title, views, rows, limit=limit, notes=notes)
    if has_histogram and summary.apis:
        rows = [row for row in summary.apis if row.service_us.count]
        yield table("Distribution of service times", _HISTOGRAM, rows, limit=limit)
    expected = [row for row in summary.errors or () if row.expected == row.count]
    if expected:
        notes = ("normal steps of the protocol, not counted as errors above",)
        views = _error_views(expected)
        section = table("Expected errors", views, expected, limit=limit, notes=notes)
        yield section._replace(is_dim=True)
    if summary.group_history is not None:
        yield from groups_page.sections(summary.group_history, limit=limit)
    if summary.lag is not None:
        yield from lag_sections(summary.lag, limit=limit)
    if summary.versions is not None:
        yield from version_sections(summary.versions, limit=limit)
    if summary.transactions is not None:
        yield from transactions_page.sections(summary.transactions, limit=limit)
    if summary.client_connections is not None:
        yield from connection_sections(
            summary.client_connections, summary.host_connections or (), limit=limit
        )
    if summary.quality_findings:
        notes = "conclusions are worth less, because:", *finding_notes(summary.quality_findings)
        yield PageSection("About the capture", notes=notes)
    if summary.findings is not None:
        yield from finding_sections(summary.findings, limit=limit)
    if summary.other:
        counted = ", ".join(f"{count:,} of {name}" for name, count in summary.other.items())
        yield PageSection(
            "Not in these tables", notes=(f"exchanges counted together because a table was full: {counted}",)
        )


_NOTES = {
    "APIs": ("percentiles are of N service times: how long the broker worked on a request",),
    "Unanswered": (
        "all: kdissect read -Y 'outcome == \"unanswered\"' FILE",
        "details: kdissect read -V --exchange ID FILE",
    ),
    "Slowest exchanges": ("by service time; details: kdissect read -V --exchange ID FILE",),
    "Waits and delays": (
        (
            "latency that is not service time; UNKNOWN: exchanges where the capture does not tell, for "
            "example because it begins after their connection"
        ),
    ),
}
"""What to know about a table."""
_RANKING: dict[tuple[str | None, bool], str] = {
    ("count", False): "RECORDS",
    ("bytes", True): "BYTES",
    ("throttle", True): "THROTTLED",
    **{("service", of_load): "P95" for of_load in (False, True)},
    **{("errors", of_load): "ERRORS" for of_load in (False, True)},
}
"""Headings of the numbers by which rows are ranked, by order and whether they are about exchanges; otherwise
EXCHANGES, or BYTES of records."""
_SUMS = frozenset({"BYTES", "RECORDS"})
"""Only shown if they rank the rows; of exchanges instead of these:"""
_SUMMANDS = frozenset({"REQUESTS", "RESPONSES"})
_RANKED = frozenset({"APIs", "Brokers", "Clients", "Topics", "Partitions", "Groups", "Connections"})


def ranked_views(
    views: Sequence[View], rows: Sequence[Any], order: str | None
) -> tuple[tuple[View, ...], tuple[str, ...]]:
    """The columns of a table whose first numbers are the one that ranks its rows, and each row's share of the
    total; and notes.
    """
    of_load = isinstance(rows[0], LoadRow)
    usual = "EXCHANGES" if of_load else "BYTES"
    by_heading = {view.heading: view for view in (*views, *([_BYTES_MOVED] if of_load else []))}
    heading = _RANKING.get((order, of_load), usual)
    if heading not in by_heading:
        heading, order = usual, None
    total = sum(share_amount(row, order) for row in rows)

    def share(row: Any) -> str:
        return f"{100 * share_amount(row, order) / total:.1f}%" if total else ABSENT

    first = [replace(by_heading[heading], keep=True), View("SHARE", share, right=True, keep=True)]
    hidden = {heading, *_SUMS} | (_SUMMANDS if heading == "BYTES" and of_load else set())
    rest = [view for view in views if view.heading not in hidden]
    place = next(at for at, view in enumerate(views) if view.heading == usual)
    notes = tuple(
        note
        for note, applies in (
            ("ordered by P95; SHARE: of the sum of service times", order == "service"),
            ("BYTES: in + out + replicated to other brokers", heading == "BYTES" and not of_load),
        )
        if applies
    )
    return (*rest[:place], *first, *rest[place:]), notes


_TITLES = TABLES | {"api": "APIs"}


def _grouped_title(rows: Sequence[Grouped] | None) -> str:
    """The title of a table by several columns: ``Clients, topics``."""
    title = ", ".join(_TITLES[name] for name in (rows[0].by if rows else ()))
    return title[:1].upper() + title[1:]


def _grouped_views(rows: Sequence[Grouped] | None, views: tuple[View, ...]) -> tuple[View, ...]:
    """The columns of a table by several columns, and others."""

    def view(name: str) -> View:
        def cell(row: Grouped) -> str:
            value = row.by[name]
            return absent(topic_label(value) if isinstance(value, str) else value)

        is_number = name == "partition"
        return View(name.upper(), cell, right=is_number, keep=True, shrinks=not is_number)

    return (*map(view, rows[0].by if rows else ()), *views)


def capture(row: document.CaptureRow) -> PageSection:
    """What was read, in a few lines."""
    protocols = ", ".join(f"{count:,} {name}" for name, count in row.connections.items()) or "none"
    exchanges = row.exchanges
    rate = f" ({exchanges / row.seconds:,.1f}/s)" if row.seconds > 0 else ""
    volume = f"{size(row.request_bytes)} of requests, {size(row.response_bytes)} of responses"
    captures = listed(["stdin" if name == STDIN else name for name in row.captures])
    lines = [
        f"{many(row.packets, 'packet')} from {captures}; connections: {protocols}",
        f"{many(exchanges, 'exchange')}{rate}, {volume}",
    ]
    if row.first is not None and row.last is not None:
        lines.append(
            f"exchanges from {between(row.first, row.last, digits=3)} ({span(round(row.seconds * 1e9))})"
        )
    if row.gaps:
        lines.append(
            f"{size(row.lost_bytes)} missing in {many(row.gaps, 'gap')}; details: kdissect check FILE"
        )
    if row.anomalies:
        lines.append("anomalies: " + ", ".join(f"{count:,} {kind}" for kind, count in row.anomalies.items()))
    return PageSection("Capture", notes=tuple(lines))


def us(value: int | None) -> str:
    """A latency in microseconds."""
    return ABSENT if value is None else duration(value * 1000)


def rate(value: float | None) -> str:
    """Exchanges per second, as text."""
    return ABSENT if value is None else f"{value:,.1f}"


def _throttled(row: document.LoadRow) -> str:
    return f"{row.throttled:,} ({duration(row.throttle_time_ms * 1_000_000)})" if row.throttled else ABSENT


def _partition(row: document.PartitionRow | LagRow) -> str:
    return f"{topic_label(row.topic)}-{row.partition}"


def _topics(row: document.SlowRow | document.UnansweredRow) -> str:
    return listed([topic_label(topic) for topic in row.topics]) or ABSENT


def _versions(versions: Sequence[int]) -> str:
    return ",".join(map(str, versions)) or ABSENT


def _bytes(per_second: float | None) -> str:
    return ABSENT if per_second is None else size(round(per_second))


def _goodput(row: document.TopicRow) -> str:
    """What was accepted, where some of it was more than once."""
    return _bytes(row.goodput_bytes_per_second) if row.duplicate_bytes else ABSENT


def _sent(row: document.RecordsRow) -> str:
    """Throughput, where it is more than what was accepted."""
    return ABSENT if row.sent_bytes == row.produced_bytes else _bytes(row.sent_bytes_per_second)


def _per_batch(row: document.RecordsRow) -> str:
    records, batches = row.produced_records, row.produced_batches
    return ABSENT if not records or not batches else f"{records / batches:,.1f}"


def _batch_size(row: document.RecordsRow) -> str:
    batches = row.produced_batches
    return ABSENT if not batches else size(round(row.produced_bytes / batches))


def _throttle(time_ms: int | None) -> str:
    return f"{time_ms:,}ms" if time_ms else ABSENT


def _spread(name: str) -> tuple[View, ...]:
    """Columns for a distribution of durations: the number of values, then five of them."""

    def value(heading: str, which: str, *, keep: bool = False) -> View:
        return View(heading, lambda row: us(getattr(getattr(row, name), which)), right=True, keep=keep)

    return (
        View("N", lambda row: nonzero(getattr(row, name).count), right=True, keep=True),
        value("MIN", "min"),
        value("P50", "p50", keep=True),
        value("P95", "p95"),
        value("P99", "p99", keep=True),
        value("MAX", "max"),
    )


_TOTAL = "TOTAL: what clients waited, including long polls, throttling and queueing"
_LOAD = (
    View("EXCHANGES", lambda row: f"{row.exchanges:,}", right=True, keep=True),
    View("RATE/s", lambda row: rate(row.per_second), right=True),
    View("REQUESTS", lambda row: size(row.request_bytes), right=True),
    View("RESPONSES", lambda row: size(row.response_bytes), right=True),
    *_spread("service_us"),
    View("TOTAL P50", lambda row: us(row.total_us.p50), right=True, note=_TOTAL),
    View("TOTAL P99", lambda row: us(row.total_us.p99), right=True, note=_TOTAL),
    View("ERRORS", lambda row: nonzero(row.errors), right=True, keep=True),
    View("UNANSWERED", lambda row: nonzero(row.no_answer), right=True, keep=True),
    View(
        "INCOMPLETE",
        lambda row: nonzero(row.incomplete_responses + row.incomplete_requests),
        right=True,
        keep=True,
        is_rare=True,
    ),
    View("THROTTLED", _throttled, right=True),
)
"""Columns of a load; those to keep are the count, two percentiles of N service times, errors and missing
answers."""
_DECADES = ("<100us", "<1ms", "<10ms", "<100ms", "<1s", "<10s", ">=10s")
_BAR = 6  # columns


def _decade(place: int, heading: str) -> View:
    """A column of a histogram: a bar for the share of the values."""
    return View(
        heading, lambda row: bar(row.service_histogram[place] / row.service_us.count, _BAR), keep=True
    )


_HISTOGRAM = (
    View("API", lambda row: row.api, keep=True, shrinks=True),
    View("N", lambda row: nonzero(row.service_us.count), right=True, keep=True),
    *(_decade(place, heading) for place, heading in enumerate(_DECADES)),
)
_APIS = (
    View("API", lambda row: row.api, keep=True),
    View("VERSIONS", lambda row: _versions(row.versions), shrinks=True),
    *_LOAD,
)
_BYTES_MOVED = View("BYTES", lambda row: size(row.request_bytes + row.response_bytes), right=True)
"""Replaces two columns of a load, if rows are ranked by it."""
_BROKERS = (
    View("BROKER", lambda row: row.broker, keep=True),
    View("ID", lambda row: ", ".join(map(str, [*row.earlier_ids, absent(row.id)])), right=True, keep=True),
    View("RACK", lambda row: absent(row.rack), shrinks=True),
    View("RELEASE", lambda row: absent(row.release), shrinks=True),
    View("CONNECTIONS", lambda row: f"{row.connections:,}", right=True, shrinks=True),
    *_LOAD,
)
_CLIENTS = (
    View("CLIENT", lambda row: row.client, keep=True, shrinks=True),
    View("LIBRARY", lambda row: listed(row.software) or ABSENT, shrinks=True),
    View("FROM", lambda row: listed(row.addresses), shrinks=True, width=IPV4),
    View("CONNECTIONS", lambda row: f"{row.connections:,}", right=True, shrinks=True),
    View("APIS", lambda row: listed(list(row.apis)), shrinks=True),
    *_LOAD,
)
_GROUPS = (
    View("GROUP", lambda row: row.group, keep=True, shrinks=True),
    View("CLIENTS", lambda row: listed(row.clients), shrinks=True),
    View("APIS", lambda row: listed(list(row.apis)), shrinks=True),
    *_LOAD,
)
_CONNECTIONS = (
    View("CONNECTION", lambda row: row.connection, keep=True),
    View("CLIENT", lambda row: row.client, shrinks=True),
    View("FROM", lambda row: row.client_address, shrinks=True, width=IPV4),
    View("BROKER", lambda row: row.broker, shrinks=True, width=IPV4_PORT),
    *_LOAD,
)
_INTERVALS = (
    View("START", lambda row: f"{row.start:%H:%M:%S}", keep=True),
    View("", lambda row: row.key or "(all)", keep=True),
    *_LOAD,
)
_VOLUME = (
    View("BYTES", lambda row: size(round(ranked(row, "bytes"))), right=True, keep=True),
    View("RECORDS", lambda row: f"{ranked(row, 'count'):,}", right=True),
    View("RECORDS IN", lambda row: number(row.produced_records), right=True, keep=True),
    View("BYTES IN", lambda row: size(row.produced_bytes), right=True, keep=True),
    View("BYTES IN/s", lambda row: _bytes(row.produced_bytes_per_second), right=True),
    View("RECORDS/BATCH", lambda row: _per_batch(row), right=True),
    View("BYTES/BATCH", lambda row: _batch_size(row), right=True),
    View("UNKNOWN RECORDS", lambda row: nonzero(row.unknown_records or 0), right=True, is_rare=True),
    View("RECORDS OUT", lambda row: number(row.fetched_records), right=True),
    View("BYTES OUT", lambda row: size(row.fetched_bytes), right=True, keep=True),
    View("BYTES OUT/s", lambda row: _bytes(row.fetched_bytes_per_second), right=True),
    View("CODEC IN", lambda row: listed(list(row.compression)) or ABSENT, shrinks=True),
    View("CODEC OUT", lambda row: listed(list(row.fetched_compression)) or ABSENT, shrinks=True),
    View(
        "RATIO",
        lambda row: ABSENT if row.compression_ratio is None else f"{row.compression_ratio:.1f}",
        right=True,
    ),
    View("SENT/s", lambda row: _sent(row), right=True, is_rare=True),
    View("ERRORS", lambda row: nonzero(sum(row.errors.values())), right=True, keep=True),
)
_RECORDS = (
    *_VOLUME,
    View("N", lambda row: nonzero(row.produce_service_us.count), right=True),
    View("P95", lambda row: us(row.produce_service_us.p95), right=True),
)
_TOPICS = (
    View("TOPIC", lambda row: topic_label(row.topic), keep=True, shrinks=True),
    View("PARTITIONS", lambda row: f"{row.partitions:,}", right=True),
    View("PRODUCERS", lambda row: listed(row.producers) or ABSENT, shrinks=True),
    View("CONSUMERS", lambda row: listed(row.consumers) or ABSENT, shrinks=True),
    *_RECORDS,
    View("GOODPUT/s", lambda row: _goodput(row), right=True, keep=True, is_rare=True),
)
_PARTITIONS = (
    View("PARTITION", _partition, keep=True, shrinks=True),
    *_VOLUME,
)
_ERRORS = (
    View("EXCHANGES", lambda row: f"{row.count - row.expected or row.count:,}", right=True, keep=True),
    View(
        "EXPECTED",
        lambda row: nonzero(row.expected if row.expected < row.count else 0),
        right=True,
        is_rare=True,
    ),
    View("ERROR", lambda row: row.error, keep=True),
    View("API", lambda row: row.api, keep=True),
    View("TOPIC", lambda row: absent(row.topic and topic_label(row.topic)), shrinks=True),
    View("CLIENT", lambda row: row.client, shrinks=True),
    View("FIRST", lambda row: f"{row.first:%H:%M:%S}"),
    View("LAST", lambda row: f"{row.last:%H:%M:%S}"),
    View("EXAMPLE", lambda row: row.example, keep=True),
    View("MESSAGE", lambda row: row.message or "", shrinks=True),
)


def _error_views(rows: Sequence[ErrorRow]) -> Sequence[View]:
    """Without messages of brokers if there are none."""
    return _ERRORS if any(row.message for row in rows) else _ERRORS[:-1]


_UNANSWERED = (
    View("WAITED", lambda row: us(row.age_us), right=True, keep=True),
    View("API", lambda row: row.api, keep=True),
    View("CLIENT", lambda row: row.client, keep=True, shrinks=True),
    View("BROKER", lambda row: row.broker, shrinks=True, width=IPV4_PORT),
    View("TOPICS", _topics, shrinks=True),
    View("TIME", lambda row: f"{row.time:%H:%M:%S.%f}"),
    View("EXCHANGE", lambda row: row.exchange, keep=True),
)
_SLOWEST = (
    View("SERVICE", lambda row: us(row.service_us), right=True, keep=True),
    View("LATENCY", lambda row: us(row.latency_us), right=True),
    View("TOTAL", lambda row: us(row.total_us), right=True),
    View("API", lambda row: row.api, keep=True),
    View("CLIENT", lambda row: row.client, keep=True, shrinks=True),
    View("BROKER", lambda row: row.broker, shrinks=True, width=IPV4_PORT),
    View("TOPICS", _topics, shrinks=True),
    View("THROTTLE", lambda row: _throttle(row.throttle_time_ms), right=True),
    View("TIME", lambda row: f"{row.time:%H:%M:%S.%f}"),
    View("EXCHANGE", lambda row: row.exchange, keep=True),
)
_WAITED_FOR = {"queued": "previous response", "throttled": "quota", "network": "retransmission"}


def _is_known(row: document.WaitRow) -> bool:
    """Whether there is more to say of a delay than how often it is unknown."""
    return bool(row.us.count) or row.kind not in _WAITED_FOR


_WAITS = (
    View("CAUSE", lambda row: _WAITED_FOR.get(row.kind, row.kind), keep=True),
    View("TOTAL", lambda row: us(row.total_us or None), right=True, keep=True),
    *_spread("us"),
    View("UNKNOWN", lambda row: nonzero(row.undetermined), right=True, keep=True),
)


# ------------------------------------------------------------------------------------------------------------
# ``LagRow`` -> the part of the page about lag.
# ------------------------------------------------------------------------------------------------------------


_THINK = "THINK: share of the time that the consumer takes between fetches; the rest, it waits for them"
_LAG = (
    View("CONSUMER", lambda row: f"{row.kind} {row.name}", keep=True, shrinks=True),
    View("PARTITION", _partition, keep=True, shrinks=True),
    View("LAG", lambda row: number(row.lag), right=True, keep=True),
    View("FIRST LAG", lambda row: number(row.lag_first), right=True, keep=True),
    View("MAX LAG", lambda row: number(row.lag_worst), right=True, keep=True),
    View("MAX AT", lambda row: ABSENT if row.worst is None else f"{row.worst:%H:%M:%S}"),
    View("TIME LAG", lambda row: seconds(row.seconds), right=True, keep=True),
    View("MAX TIME LAG", lambda row: seconds(row.seconds_worst), right=True),
    View("THINK", lambda row: _think(row), right=True, note=_THINK),
    View("POSITION", lambda row: absent(row.position), right=True),
    View("COMMITTED", lambda row: absent(row.committed_offset), right=True),
    View("HIGH WATERMARK", lambda row: absent(row.high_watermark), right=True),
    View("LAST STABLE", lambda row: absent(row.last_stable_offset), right=True),
    View("LOG START", lambda row: absent(row.log_start_offset), right=True),
)


def _think(row: LagRow) -> str:
    """The share of its time in which a consumer has requested nothing."""
    if row.think_us is None or row.waited_us is None:
        return ABSENT
    return f"{row.think_us / max(1, row.think_us + row.waited_us):.0%}"


def lag_sections(rows: Sequence[LagRow], *, limit: int | None) -> Iterator[PageSection]:
    """Yield one table; the largest lag comes first."""
    lagging = sum(1 for row in rows if row.lag)
    pairs = many(len(rows), "consumer-partition pair")
    note = f"{pairs}, {lagging:,} lagging when last seen; LAG: records, at the last fetch or commit"
    yield table("Lag", _LAG, rows, limit=limit, notes=(note,))


# ------------------------------------------------------------------------------------------------------------
# ``ClientConnectionsRow`` -> the part of the page about TCP connections.
# ------------------------------------------------------------------------------------------------------------


def _round_trip(spread: document.Spread) -> str:
    return f"{us(spread.p50)} {us(spread.max)}" if spread.count else ABSENT


def _lost(row: document.ClientConnectionsRow) -> str:
    """Retransmissions that were necessary, and their share."""
    segments = row.client_segments + row.broker_segments
    again = row.client_retransmissions + row.broker_retransmissions
    return _share(max(0, again - row.client_spurious - row.broker_spurious), segments)


def _share(count: int, total: int) -> str:
    return f"{count:,} ({100 * count / total:.1f}%)" if count and total else nonzero(count)


def _not_opened(row: document.ClientConnectionsRow) -> str:
    counts = ((row.refused, "refused"), (row.unanswered, "unanswered"), (row.one_way, "one-way"))
    return ", ".join(f"{count:,} {name}" for count, name in counts if count) or ABSENT


_RTT = "RTT: the shortest round trip of each connection to the client or broker: median and maximum"
_ZERO_WINDOW = "ZERO WINDOW: how long the receive window of the client or broker was zero"
_TCP = (
    View("CLIENT", lambda row: row.client, keep=True, shrinks=True),
    View("BROKER", lambda row: row.broker, keep=True),
    View("CONNECTIONS", lambda row: f"{row.connections:,}", right=True, keep=True),
    View("NOT OPENED", _not_opened, keep=True),
    View("CONNECT P50", lambda row: us(row.connect_us.p50), right=True),
    View("MAX", lambda row: us(row.connect_us.max), right=True),
    View("RTT CLIENT", lambda row: _round_trip(row.client_round_trip_us), right=True, note=_RTT),
    View("RTT BROKER", lambda row: _round_trip(row.broker_round_trip_us), right=True, note=_RTT),
    View("RETRANSMITTED", _lost, right=True, keep=True),
    View("DUP ACKS", lambda row: nonzero(row.client_duplicate_acks + row.broker_duplicate_acks), right=True),
    View(
        "CLIENT ZERO WINDOW",
        lambda row: us(row.client_zero_window_us or None),
        right=True,
        note=_ZERO_WINDOW,
    ),
    View(
        "BROKER ZERO WINDOW",
        lambda row: us(row.broker_zero_window_us or None),
        right=True,
        note=_ZERO_WINDOW,
    ),
    View("OUTSTANDING", lambda row: nonzero(row.outstanding), right=True, keep=True),
    View(
        "ENDED BY", lambda row: ", ".join(f"{count:,} {end}" for end, count in row.ends.items()), shrinks=True
    ),
    View("TLS", lambda row: ", ".join(f"{count:,} {name}" for name, count in row.tls.items()), shrinks=True),
)


def _windows(row: document.HostConnectionsRow) -> str:
    ends = ((row.client_window_bytes, row.client_unscaled), (row.broker_window_bytes, row.broker_unscaled))
    return " ".join(
        f"{size(window)}{'*' * bool(unscaled)}" for window, unscaled in ends if window is not None
    )


_HOSTS_NOTE = (
    "RTT: the shortest round trip of each connection: median and maximum; LOST: segments that had to be "
    "retransmitted"
)
_WINDOWS = (
    "WINDOWS: the largest receive window of client and broker, which is all that a connection carries in a "
    "round trip; *: that end did not offer window scaling, on some connections at least"
)
_HOSTS = (
    View("HOST", lambda row: row.host, keep=True, shrinks=True, width=IPV4),
    View("BROKER", lambda row: row.broker, keep=True),
    View("CONNECTIONS", lambda row: f"{row.connections:,}", right=True),
    View("FAILED", lambda row: nonzero(row.failed), right=True, keep=True),
    View("LOST", lambda row: _share(row.lost, row.segments), right=True, keep=True),
    View("RTT", lambda row: us(row.round_trip_us.p50), right=True, keep=True),
    View("MAX", lambda row: us(row.round_trip_us.max), right=True),
    View("WINDOWS", lambda row: _windows(row) or ABSENT, right=True, note=_WINDOWS),
    View("BYTES", lambda row: size(row.bytes), right=True),
    View("BYTES/s", lambda row: _bytes(row.bytes_per_second), right=True, keep=True),
)


def connection_sections(
    rows: Sequence[document.ClientConnectionsRow],
    hosts: Sequence[document.HostConnectionsRow],
    *,
    limit: int | None,
) -> Iterator[PageSection]:
    """Yield two tables, by client and by host; those with the most connections come first."""
    total = sum(row.connections for row in rows)
    unopened = sum(row.refused + row.unanswered + row.one_way for row in rows)
    notes = (f"{many(total, 'connection')} to Kafka listeners, {many(unopened, 'attempt')} failed",)
    views = _TCP if any(row.tls for row in rows) else _TCP[:-1]
    yield table("TCP connections", views, rows, limit=limit, notes=notes)
    if hosts:
        yield table("Client hosts and brokers", _HOSTS, hosts, limit=limit, notes=(_HOSTS_NOTE,))


# ------------------------------------------------------------------------------------------------------------
# ``FindingRow`` and ``RuleRow`` -> the part of the page about findings.
# ------------------------------------------------------------------------------------------------------------


_RULES = (
    View("RULE", lambda row: row.rule),
    View("SEVERITY", lambda row: row.severity),
    View("LOOKS FOR", lambda row: row.title, shrinks=True),
)


def finding_sections(rows: Sequence[FindingRow], *, limit: int | None) -> Iterator[PageSection]:
    """Yield the number of findings, then each finding in a few lines."""
    if not rows:
        yield PageSection("Findings", notes=("no findings (--list explains the rules)",))
        return
    shown = rows[:limit]
    causes = [row for row in rows if row.explained_by is None]
    severities = list(dict.fromkeys(row.severity for row in causes))
    counted = [many(sum(row.severity == each for row in causes), each) for each in severities]
    if len(causes) < len(rows):
        counted.append(f"{many(len(rows) - len(causes), 'consequence')}, each below its cause")
    how = (
        "to see the evidence: kdissect read --exchange ID FILE (IDs with a slash), or --connection ID FILE "
        "(IDs without)"
    )
    yield PageSection("Findings", notes=(", ".join(counted), how))
    for place, row in enumerate(shown, 1):
        left_out = len(rows) - len(shown) if place == len(shown) else 0
        title = f"explained by {row.explained_by}" if row.explained_by else row.severity
        yield PageSection(f"{title}: {row.rule}", notes=tuple(_finding_notes(row)), left_out=left_out)


_PARTS = 20


def _finding_notes(row: FindingRow) -> Iterator[str]:
    """What happened, to whom and when, what it cost, and the parts."""
    yield f"{row.subject}: {row.message}"
    several = [number for number, names in hit(row.scope) if names.count != 1]
    yield facts(_when(row), *cost(row.impact), *several)
    if row.explained_by is None:
        yield f"advice: {row.advice}"
    yield f"evidence: {', '.join(row.evidence)}"
    for part in row.parts[:_PARTS]:
        yield f"- {part.subject}: {part.message}; {_when(part)}; {', '.join(part.evidence[:1])}"
    if len(row.parts) > _PARTS:
        yield f"- {len(row.parts) - _PARTS:,} more, with --json"


def cost(impact: document.ImpactRow) -> Iterator[str]:
    """What a finding cost, as far as it is known."""
    if impact.requests:
        yield f"{many(impact.requests, 'request')} failed"
    if impact.connections:
        yield f"{many(impact.connections, 'connection')} failed"
    if impact.records:
        yield f"{many(impact.records, 'record')} affected"
    if impact.lost_us:
        yield f"{span(impact.lost_us * 1000)} lost"


def hit(scope: document.ScopeRow) -> Iterator[tuple[str, document.NamesRow]]:
    """Whom a finding is about: how many, such as ``3 clients``, and the names."""
    for names, noun in (
        (scope.clients, "client"),
        (scope.hosts, "client host"),
        (scope.brokers, "broker"),
        (scope.topics, "topic"),
        (scope.groups, "group"),
        (scope.connections, "connection"),
    ):
        if names.count:
            yield many(names.count, noun), names


def rules(rows: Sequence[RuleRow]) -> Iterator[PageSection]:
    """Yield the rules: a table, then condition and advice of each."""
    yield table("Rules", _RULES, rows)
    for row in rows:
        advice = [f"advice: {row.advice}"] if row.advice else []
        yield PageSection(row.rule, notes=(row.title, f"when: {row.when}", *advice))


def _when(row: FindingRow | FindingPart) -> str:
    return f"{row.first:%Y-%m-%d} {when(row)}"


# ------------------------------------------------------------------------------------------------------------
# ``VersionsPart`` -> the part of the page to read before an upgrade.
# ------------------------------------------------------------------------------------------------------------


_USED = (
    View("CLIENT", lambda row: row.client, keep=True, shrinks=True),
    View("LIBRARY", lambda row: absent(row.software), shrinks=True),
    View("FROM", lambda row: listed(row.addresses), shrinks=True, width=IPV4),
    View("API", lambda row: row.api, keep=True),
    View("VERSION", lambda row: str(row.version), right=True, keep=True),
    View("ADDED IN", lambda row: absent(row.since), right=True),
    View("REMOVED IN", lambda row: absent(row.removed), keep=True),
    View("EXCHANGES", lambda row: f"{row.count:,}", right=True, keep=True),
    View("LAST", lambda row: f"{row.last:%H:%M:%S}"),
    View("EXAMPLE", lambda row: row.example),
)
_OFFERS = (
    View("BROKER", lambda offers: offers[0].broker),
    View("RELEASE", lambda offers: absent(offers[0].release)),
    View("ADVERTISED", lambda offers: str(len(offers)), right=True),
    View("USED", lambda offers: str(sum(1 for offer in offers if offer.used)), right=True),
    View("UNUSED", lambda offers: ", ".join(each.api for each in offers if not each.used), shrinks=True),
)
"""Columns for all versions that a broker advertises."""


def version_sections(part: VersionsPart, *, limit: int | None) -> Iterator[PageSection]:
    """Yield the versions that a newer Kafka rejects, the others in use, and those that brokers advertise."""
    refused, accepted = part.used[: part.rejected], part.used[part.rejected :]
    releases = sorted({row.removed for row in refused if row.removed})
    clients = len({(row.client, row.software) for row in refused})
    reject = "reject" if len(releases) > 1 else "rejects"
    verdict = (
        f"{many(clients, 'client')} with versions that Kafka {' and '.join(releases)} {reject}"
        if refused
        else "no client uses an API version that newer Kafka releases reject"
    )
    yield table("Rejected by newer Kafka releases", _USED, refused, limit=limit, notes=(verdict,))
    if accepted:
        yield table("Other versions in use", _USED, accepted, limit=limit)
    if part.advertised:
        offers = [list(group) for _, group in groupby(part.advertised, key=lambda row: row.broker)]
        yield table("Versions advertised by brokers", _OFFERS, offers, limit=limit)


# ------------------------------------------------------------------------------------------------------------
# Summary -> its quantile sketches of latencies as JSON lines, to be added to those of other captures. Holds a
# line.
# ------------------------------------------------------------------------------------------------------------


SCHEMA = (
    "start timestamp, by string, key string, quantity string, count bigint, total bigint, "
    "min bigint, max bigint, buckets array<struct<middle: bigint, count: bigint>>"
)
"""The Spark schema of the lines. ``by``: api, client, broker ...; ``key``: which of them; null: all
exchanges. ``start`` is null except in a time series. ``total`` is the sum of ``quantity``. ``buckets`` are
those of quantiles.py that are not empty, each with its middle.
"""
QUANTITIES = ("service_us", "wait_us", "total_us")


def lines(summarizer: Summarizer, by: str | None) -> Iterator[bytes]:
    """The sketches of all exchanges, of each row of the tables, and of each interval.

    Args:
        summarizer: the summary.
        by: what the rows of its time series are, besides all exchanges.
    """
    summarizer.settle()
    traffic = summarizer.traffic
    tables: dict[str, Mapping[str, Load]] = {
        "api": traffic.tables.apis,
        "broker": traffic.tables.brokers,
        "client": _by_client(traffic.tables.clients),
        "group": traffic.tables.groups,
        "connection": traffic.tables.connections,
    }
    yield from _lines(None, None, None, traffic.tables.all)
    for name, loads in tables.items():
        for key in sorted(loads):
            yield from _lines(None, name, key, loads[key])
    if summarizer.intervals is not None:
        for start_ns, row, load in summarizer.intervals.loads():
            yield from _lines(timestamp(start_ns), None if row is None else by, row, load)


def _by_client(loads: Mapping[ClientOfCluster, Load]) -> dict[str, Load]:
    """The loads of each client, in all clusters."""
    result: dict[str, Load] = {}
    for (client, _), load in loads.items():
        result.setdefault(client, Load()).merge(load)
    return result


def _lines(start: str | None, by: str | None, key: str | None, load: Load) -> Iterator[bytes]:
    for quantity in QUANTITIES:
        quantiles = getattr(load, quantity)
        if quantiles.count:
            row = {
                "start": start,
                "by": by,
                "key": key,
                "quantity": quantity,
                "count": quantiles.count,
                "total": quantiles.total,
                "min": quantiles.min,
                "max": quantiles.max,
                "buckets": [
                    {"middle": middle_of(bucket), "count": count}
                    for bucket, count in quantiles.buckets().items()
                ],
            }
            yield json_bytes(row) + b"\n"
