"""``Summary`` -> the page that a person reads: what was captured, then a table for each question."""

from __future__ import annotations

from base64 import b64encode
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kdissect.phrases import ABSENT, absent, duration, listed, many, size, some
from kdissect.tables.values import json_bytes, timestamp
from kdissect.text import groups_page, transactions_page
from kdissect.text.page import Heading, Section, narrowed, picked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from kdissect.stats import document
    from kdissect.stats.document import FindingRow, LagRow, OfferRow, RuleRow, UsedRow, VersionsPart
    from kdissect.stats.summarizer import Summarizer
    from kdissect.stats.traffic import Load


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
        yield from groups_page.sections(summary.group_stories, limit=limit, narrow=narrow)
    if summary.lag is not None:
        yield from lag_sections(summary.lag, limit=limit, narrow=narrow)
    if summary.versions is not None:
        yield from version_sections(summary.versions, limit=limit, narrow=narrow)
    if summary.transactions is not None:
        yield from transactions_page.sections(summary.transactions, limit=limit, narrow=narrow)
    if summary.findings is not None:
        yield from finding_sections(summary.findings, limit=limit)
    if summary.folded:
        counted = ", ".join(f"{count:,} of {name}" for name, count in summary.folded.items())
        yield Section("Not in these tables", notes=(f"exchanges without a row of their own: {counted}",))


def capture(row: document.CaptureRow) -> Section:
    """What was read, in some lines."""
    spoken = ", ".join(f"{count:,} {name}" for name, count in row.connections.items()) or "none"
    exchanges = row.exchanges
    rate = f" ({exchanges / row.seconds:,.1f}/s)" if row.seconds > 0 else ""
    asked = f"{size(row.request_bytes)} of requests, {size(row.response_bytes)} of responses"
    lines = [
        f"{many(row.packets, 'packet')} of {listed(row.captures)}; connections: {spoken}",
        f"{many(exchanges, 'exchange')}{rate}, {asked}",
    ]
    if row.first is not None and row.last is not None:
        lines.append(f"{_time(row.first)} to {_time(row.last)} ({_span(row.seconds)})")
    if row.gaps:
        lines.append(f"{size(row.lost_bytes)} lost in {many(row.gaps, 'gap')}; details: kdissect check")
    if row.anomalies:
        lines.append("anomalies: " + ", ".join(f"{count:,} {kind}" for kind, count in row.anomalies.items()))
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
        Heading("LIBRARY", gives=True),
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
    notes = ("details: kdissect read -V --exchange ID FILE",)
    section = Section("Slowest exchanges", headings, cells, notes)
    return narrowed(section, narrow, {"LATENCY", "API", "CLIENT", "EXCHANGE"})


def us(value: int | None) -> str:
    """A latency in microseconds."""
    return ABSENT if value is None else duration(value * 1000)


def rate(value: float | None) -> str:
    """Exchanges per second, as text."""
    return ABSENT if value is None else f"{value:,.1f}"


def _throttled(row: document.LoadRow) -> str:
    return f"{row.throttled:,} ({duration(row.throttle_time_ms * 1_000_000)})" if row.throttled else ABSENT


def _versions(versions: Sequence[int]) -> str:
    return ",".join(map(str, versions)) or ABSENT


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def _span(seconds: float) -> str:
    return duration(round(seconds * 1e9)) if seconds < 120 else f"{seconds / 60:,.1f} minutes"


# ------------------------------------------------------------------------------------------------------------
# ``LagRow`` -> the part of a summary's page that tells who is behind. Holds nothing.
# ------------------------------------------------------------------------------------------------------------


_HEADINGS = (
    Heading("READER", gives=True),
    Heading("PARTITION", gives=True),
    Heading("LAG", right=True),
    Heading("FIRST", right=True),
    Heading("WORST", right=True),
    Heading("AT"),
    Heading("TIME LAG", right=True),
    Heading("AT WORST", right=True),
    Heading("POSITION", right=True),
    Heading("COMMITTED", right=True),
    Heading("HIGH WATERMARK", right=True),
    Heading("STABLE", right=True),
    Heading("LOG START", right=True),
)
_KEPT = {"READER", "PARTITION", "LAG", "FIRST", "WORST", "TIME LAG"}


def lag_sections(rows: Sequence[LagRow], *, limit: int | None, narrow: bool = False) -> Iterator[Section]:
    """Yield one table, those that are furthest behind first."""
    shown = rows[:limit]
    behind = sum(1 for row in rows if row.lag)
    notes = (f"{many(len(rows), 'reader')} of partitions, {behind:,} behind at the end",)
    cells = [
        [
            f"{row.kind} {row.name}",
            f"{row.topic}:{row.partition}",
            _count(row.lag),
            _count(row.lag_first),
            _count(row.lag_worst),
            ABSENT if row.worst is None else f"{row.worst:%H:%M:%S}",
            _seconds(row.seconds),
            _seconds(row.seconds_worst),
            absent(row.position),
            absent(row.committed_offset),
            absent(row.high_watermark),
            absent(row.last_stable_offset),
            absent(row.log_start_offset),
        ]
        for row in shown
    ]
    yield narrowed(Section("Lag", _HEADINGS, cells, notes, len(rows) - len(shown)), narrow, _KEPT)


def _count(records: int | None) -> str:
    return ABSENT if records is None else f"{records:,}"


def _seconds(seconds: float | None) -> str:
    return ABSENT if seconds is None else duration(round(seconds * 1e9))


# ------------------------------------------------------------------------------------------------------------
# ``FindingRow`` and ``RuleRow`` -> what an expert would point at, for a person. Holds nothing.
# ------------------------------------------------------------------------------------------------------------


_RULES = (Heading("RULE"), Heading("SEVERITY"), Heading("LOOKS FOR", gives=True))


def finding_sections(rows: Sequence[FindingRow], *, limit: int | None) -> Iterator[Section]:
    """Yield how many there are, then each in some lines: they are sentences, and no table."""
    if not rows:
        yield Section("Findings", notes=("no findings (--list explains the rules)",))
        return
    shown = rows[:limit]
    severities = list(dict.fromkeys(row.severity for row in rows))
    counted = (many(sum(row.severity == each for row in rows), each) for each in severities)
    yield Section("Findings", notes=(", ".join(counted),))
    for place, row in enumerate(shown, 1):
        notes = (
            f"{row.about}: {row.sentence}",
            f"advice: {row.advice}",
            f"{_when(row)}; see {' '.join(row.evidence)}",
        )
        left_out = len(rows) - len(shown) if place == len(shown) else 0
        yield Section(f"{row.severity}: {row.rule}", notes=notes, left_out=left_out)


def rules(rows: Sequence[RuleRow]) -> Iterator[Section]:
    """Yield the rules: a table of all, then when each speaks and what it says."""
    cells = [[row.rule, row.severity, row.title] for row in rows]
    yield Section("Rules", _RULES, cells)
    for row in rows:
        yield Section(row.rule, notes=(row.title, f"when: {row.when}", f"advice: {row.advice}"))


def _when(row: FindingRow) -> str:
    first, last = f"{row.first:%Y-%m-%d %H:%M:%S}", f"{row.last:%H:%M:%S}"
    return first if row.count == 1 else f"{first} to {last}"


# ------------------------------------------------------------------------------------------------------------
# ``VersionsPart`` -> the part of a summary's page to read before an upgrade. Holds nothing.
# ------------------------------------------------------------------------------------------------------------


_USED = (
    Heading("CLIENT", gives=True),
    Heading("LIBRARY", gives=True),
    Heading("FROM", gives=True),
    Heading("API"),
    Heading("VERSION", right=True),
    Heading("SINCE", right=True),
    Heading("REJECTED FROM"),
    Heading("COUNT", right=True),
    Heading("LAST"),
    Heading("EXAMPLE"),
)
_VERSIONS_KEPT = {"CLIENT", "API", "VERSION", "REJECTED FROM", "COUNT"}
_OFFERS = (
    Heading("BROKER"),
    Heading("RELEASE"),
    Heading("ADVERTISED", right=True),
    Heading("USED", right=True),
    Heading("UNUSED", gives=True),
)


def version_sections(part: VersionsPart, *, limit: int | None, narrow: bool = False) -> Iterator[Section]:
    """Yield what breaks, what else is used, and what is offered."""
    refused, taken = part.used[: part.refused], part.used[part.refused :]
    releases = sorted({row.removed for row in refused if row.removed})
    clients = len({(row.client, row.software) for row in refused})
    reject = "reject" if len(releases) > 1 else "rejects"
    verdict = (
        f"{many(clients, 'client')} with versions that Kafka {' and '.join(releases)} {reject}"
        if refused
        else "no client uses a version that a newer Kafka rejects"
    )
    yield _used("Rejected by a newer Kafka", refused, limit, narrow)._replace(notes=(verdict,))
    if taken:
        yield _used("Other versions in use", taken, limit, narrow)
    if part.offered:
        yield _offers(part.offered, limit)


def _used(title: str, rows: Sequence[UsedRow], limit: int | None, narrow: bool) -> Section:
    shown = rows[:limit]
    cells = [
        [
            row.client,
            absent(row.software),
            listed(row.addresses),
            row.api,
            str(row.version),
            absent(row.since),
            absent(row.removed),
            f"{row.count:,}",
            f"{row.last:%H:%M:%S}",
            row.example,
        ]
        for row in shown
    ]
    return narrowed(Section(title, _USED, cells, left_out=len(rows) - len(shown)), narrow, _VERSIONS_KEPT)


def _offers(rows: Sequence[OfferRow], limit: int | None) -> Section:
    cells: list[list[str]] = []
    for broker, group in groupby(rows, key=lambda row: row.broker):
        offered = list(group)
        idle = [row.api for row in offered if not row.used]
        used = len(offered) - len(idle)
        cells.append([broker, absent(offered[0].release), f"{len(offered)}", f"{used}", ", ".join(idle)])
    shown = cells[:limit]
    return Section("Versions advertised by brokers", _OFFERS, shown, left_out=len(cells) - len(shown))


# ------------------------------------------------------------------------------------------------------------
# What a summary counted -> its sketches of latencies as JSON lines, to be merged with those of other
# captures: by ``Quantiles.merge``, or by Spark, whose kll_merge_agg_double takes them. Holds a line.
# ------------------------------------------------------------------------------------------------------------


SCHEMA = "start timestamp, by string, key string, quantity string, count bigint, total bigint, sketch binary"
"""How Spark reads the lines. ``by``: api, client, broker ...; ``key``: which of them; null: all exchanges.
``start`` is null but in a time series. ``sketch`` is a KLL sketch of doubles, k = 400, of ``quantity``.
"""
QUANTITIES = ("latency_us", "long_poll_us")


def lines(summarizer: Summarizer, by: str | None) -> Iterator[bytes]:
    """The sketches of all exchanges, of each row of its tables, and of each piece of time.

    Make them when the summary is closed: a distribution that is sketched forgets its numbers.

    Args:
        summarizer: all of it.
        by: what the rows of its time series are, besides all exchanges.
    """
    traffic = summarizer.traffic
    tables: dict[str, Mapping[str, Load]] = {
        "api": traffic.tables.apis,
        "broker": traffic.tables.brokers,
        "client": traffic.tables.clients,
        "group": traffic.tables.groups,
        "connection": traffic.tables.connections,
    }
    yield from _lines(None, None, None, traffic.tables.all)
    for name, table in tables.items():
        for key in sorted(table):
            yield from _lines(None, name, key, table[key])
    if summarizer.intervals is not None:
        for start_ns, row, load in summarizer.intervals.loads():
            yield from _lines(timestamp(start_ns), None if row is None else by, row, load)


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
                "sketch": b64encode(quantiles.serialize()).decode("ascii"),
            }
            yield json_bytes(row) + b"\n"
