"""``Summary`` -> the page that a person reads: what was captured, then a table for each question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.sinks import findingspage, groupspage, lagpage, transactionspage, versionspage
from kdissect.sinks.page import Heading, Section, narrowed, picked
from kdissect.sinks.phrases import ABSENT, absent, duration, listed, many, size, some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from kdissect.analysis.summary import document


_LOAD = (
    Heading("COUNT", right=True),
    Heading("RATE/s", right=True),
    Heading("REQUESTS", right=True),
    Heading("RESPONSES", right=True),
    Heading("MIN", right=True),
    Heading("P50", right=True),
    Heading("P95", right=True),
    Heading("P99", right=True),
    Heading("MAX", right=True),
    Heading("ERRORS", right=True),
    Heading("THROTTLED", right=True),
)


def sections(summary: document.Summary, *, limit: int | None, narrow: bool = False) -> Iterator[Section]:
    """Yield the page.

    Args:
        summary: a part that is None is left out.
        limit: rows of each table; None: all.
        narrow: leave out columns that a terminal of 80 has no room for.
    """
    yield capture(summary.capture)
    tables: tuple[tuple[Sequence[Any] | None, Callable[[Sequence[Any], bool], Section]], ...] = (
        (summary.apis, _apis),
        (summary.brokers, _brokers),
        (summary.clients, _clients),
        (summary.topics, _topics),
        (summary.partitions, _partitions),
        (summary.groups, _groups),
        (summary.connections, _connections),
        (summary.intervals, _intervals),
        (summary.errors, _errors),
        (summary.slowest, _slowest),
    )
    for rows, table in tables:
        if rows:
            shown = rows[:limit]
            yield table(shown, narrow)._replace(left_out=len(rows) - len(shown))
    if summary.group_stories is not None:
        yield from groupspage.sections(summary.group_stories, limit=limit, narrow=narrow)
    if summary.lag is not None:
        yield from lagpage.sections(summary.lag, limit=limit, narrow=narrow)
    if summary.versions is not None:
        yield from versionspage.sections(summary.versions, limit=limit, narrow=narrow)
    if summary.transactions is not None:
        yield from transactionspage.sections(summary.transactions, limit=limit, narrow=narrow)
    if summary.findings is not None:
        yield from findingspage.sections(summary.findings, limit=limit)
    if summary.folded:
        counted = ", ".join(f"{count:,} of {name}" for name, count in summary.folded.items())
        yield Section("Not in these tables", notes=(f"exchanges that no row was left for: {counted}",))


def capture(row: document.CaptureRow) -> Section:
    """What was read, in some lines."""
    spoken = ", ".join(f"{count:,} {name}" for name, count in row.connections.items()) or "none"
    exchanges = row.exchanges
    rate = f", {exchanges / row.seconds:,.1f} a second" if row.seconds > 0 else ""
    asked = f"{size(row.request_bytes)} asked, {size(row.response_bytes)} answered"
    lines = [
        f"{many(row.packets, 'packet')} of {listed(row.captures)}; connections: {spoken}",
        f"{many(exchanges, 'exchange')}{rate}, {asked}",
    ]
    if row.first is not None and row.last is not None:
        lines.append(f"{_time(row.first)} to {_time(row.last)} ({_span(row.seconds)})")
    if row.gaps:
        lines.append(f"{size(row.lost_bytes)} lost in {many(row.gaps, 'gap')}: kdissect check says more")
    if row.anomalies:
        lines.append(
            "wrong or odd: " + ", ".join(f"{count:,} {kind}" for kind, count in row.anomalies.items())
        )
    return Section("Capture", notes=tuple(lines))


def _load(row: document.LoadRow) -> list[str]:
    latency = row.latency_us
    return [
        f"{row.exchanges:,}",
        rate(row.per_second),
        size(row.request_bytes),
        size(row.response_bytes),
        *(us(value) for value in (latency.min, latency.p50, latency.p95, latency.p99, latency.max)),
        some(row.errors),
        _throttled(row),
    ]


def _with_load(
    title: str, headings: Sequence[Heading], cells: Callable[[Any], list[str]]
) -> Callable[[Sequence[Any], bool], Section]:
    """A table whose rows begin with what they are about, and go on with a load."""
    # Of a load, where there is little room: how many, how slow, how bad.
    kept = {"COUNT", "P50", "P99", "ERRORS"}

    def table(rows: Sequence[Any], narrow: bool) -> Section:
        places = [place for place, heading in enumerate(_LOAD) if not narrow or heading.name in kept]
        first = [
            place for place, heading in enumerate(headings) if not narrow or not heading.gives or not place
        ]
        return Section(
            title,
            [*(headings[place] for place in first), *(_LOAD[place] for place in places)],
            [[*picked(cells(row), first), *picked(_load(row), places)] for row in rows],
        )

    return table


_apis = _with_load(
    "APIs",
    (Heading("API"), Heading("VERSIONS", gives=True), Heading("LONG POLLS", right=True, gives=True)),
    lambda row: [row.api, _versions(row.versions), some(row.long_polls)],
)
_brokers = _with_load(
    "Brokers",
    (
        Heading("BROKER"),
        Heading("ID", right=True),
        Heading("RACK", gives=True),
        Heading("RELEASE", gives=True),
        Heading("CONNECTIONS", right=True, gives=True),
    ),
    lambda row: [row.broker, absent(row.id), absent(row.rack), absent(row.release), f"{row.connections:,}"],
)
_clients = _with_load(
    "Clients",
    (
        Heading("CLIENT", gives=True),
        Heading("SOFTWARE", gives=True),
        Heading("FROM", gives=True),
        Heading("CONNECTIONS", right=True, gives=True),
        Heading("APIS", gives=True),
    ),
    lambda row: [
        row.client,
        listed(row.software) or ABSENT,
        listed(row.addresses),
        f"{row.connections:,}",
        listed(list(row.apis)),
    ],
)
_groups = _with_load(
    "Groups",
    (Heading("GROUP", gives=True), Heading("CLIENTS", gives=True), Heading("APIS", gives=True)),
    lambda row: [row.group, listed(row.clients), listed(list(row.apis))],
)
_connections = _with_load(
    "Connections",
    (
        Heading("CONNECTION"),
        Heading("CLIENT", gives=True),
        Heading("FROM", gives=True),
        Heading("BROKER", gives=True),
    ),
    lambda row: [row.connection, row.client, row.client_address, row.broker],
)
_intervals = _with_load(
    "Over time",
    (Heading("START"), Heading("OF")),
    lambda row: [f"{row.start:%H:%M:%S}", row.key or "all"],
)


def _topics(rows: Sequence[document.TopicRow], narrow: bool) -> Section:
    headings = [
        Heading("TOPIC", gives=True),
        Heading("PARTITIONS", right=True),
        Heading("PRODUCERS", gives=True),
        Heading("CONSUMERS", gives=True),
        *_VOLUME,
        Heading("P99", right=True),
    ]
    cells = [
        [
            row.topic,
            f"{row.partitions:,}",
            listed(row.producers) or ABSENT,
            listed(row.consumers) or ABSENT,
            *_volume(row),
            us(row.produce_latency_us.p99),
        ]
        for row in rows
    ]
    return narrowed(
        Section("Topics", headings, cells), narrow, {"TOPIC", "IN", "OUT", "RECORDS IN", "ERRORS"}
    )


def _partitions(rows: Sequence[document.PartitionRow], narrow: bool) -> Section:
    headings = [Heading("PARTITION", gives=True), *_VOLUME]
    cells = [[f"{row.topic}:{row.partition}", *_volume(row)] for row in rows]
    section = Section("Partitions", headings, cells)
    return narrowed(section, narrow, {"PARTITION", "IN", "OUT", "RECORDS IN", "ERRORS"})


_VOLUME = (
    Heading("RECORDS IN", right=True),
    Heading("IN", right=True),
    Heading("IN/s", right=True),
    Heading("PER BATCH", right=True),
    Heading("RECORDS OUT", right=True),
    Heading("OUT", right=True),
    Heading("OUT/s", right=True),
    Heading("CODEC"),
    Heading("RATIO", right=True),
    Heading("ERRORS", right=True),
)


def _volume(row: document.RecordsRow) -> list[str]:
    produced, batches = row.produced_records, row.produced_batches
    return [
        ABSENT if produced is None else f"{produced:,}",
        size(row.produced_bytes),
        ABSENT if row.produced_bytes_per_second is None else size(round(row.produced_bytes_per_second)),
        ABSENT if not produced or not batches else f"{produced / batches:,.1f}",
        ABSENT if row.fetched_records is None else f"{row.fetched_records:,}",
        size(row.fetched_bytes),
        ABSENT if row.fetched_bytes_per_second is None else size(round(row.fetched_bytes_per_second)),
        listed(list(row.compression)) or ABSENT,
        ABSENT if row.ratio is None else f"{row.ratio:.1f}",
        some(sum(row.errors.values())),
    ]


def _errors(rows: Sequence[document.ErrorRow], narrow: bool) -> Section:
    headings = [
        Heading("COUNT", right=True),
        Heading("ERROR"),
        Heading("API"),
        Heading("TOPIC", gives=True),
        Heading("CLIENT", gives=True),
        Heading("FIRST"),
        Heading("LAST"),
        Heading("EXAMPLE"),
    ]
    cells = [
        [
            f"{row.count:,}",
            row.error,
            row.api,
            absent(row.topic),
            row.client,
            f"{row.first:%H:%M:%S}",
            f"{row.last:%H:%M:%S}",
            row.example,
        ]
        for row in rows
    ]
    return narrowed(Section("Errors", headings, cells), narrow, {"COUNT", "ERROR", "API", "EXAMPLE"})


def _slowest(rows: Sequence[document.SlowRow], narrow: bool) -> Section:
    headings = [
        Heading("LATENCY", right=True),
        Heading("API"),
        Heading("CLIENT", gives=True),
        Heading("BROKER", gives=True),
        Heading("TOPICS", gives=True),
        Heading("THROTTLE", right=True),
        Heading("TIME"),
        Heading("EXCHANGE"),
    ]
    cells = [
        [
            us(row.latency_us),
            row.api,
            row.client,
            row.broker,
            listed(row.topics) or ABSENT,
            f"{row.throttle_time_ms:,}ms" if row.throttle_time_ms else ABSENT,
            f"{row.time:%H:%M:%S.%f}",
            row.exchange,
        ]
        for row in rows
    ]
    notes = ("read --exchange EXCHANGE shows one whole",)
    section = Section("Slowest exchanges", headings, cells, notes)
    return narrowed(section, narrow, {"LATENCY", "API", "CLIENT", "EXCHANGE"})


def us(value: int | None) -> str:
    """A latency in microseconds."""
    return ABSENT if value is None else duration(value * 1000)


def rate(value: float | None) -> str:
    """So many a second."""
    return ABSENT if value is None else f"{value:,.1f}"


def _throttled(row: document.LoadRow) -> str:
    return f"{row.throttled:,} ({duration(row.throttle_time_ms * 1_000_000)})" if row.throttled else ABSENT


def _versions(versions: Sequence[int]) -> str:
    return ",".join(map(str, versions)) or ABSENT


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def _span(seconds: float) -> str:
    return duration(round(seconds * 1e9)) if seconds < 120 else f"{seconds / 60:,.1f} minutes"
