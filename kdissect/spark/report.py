"""The tables of an export -> reports of the jobs: pages for people, JSON lines, Parquet. Holds the rows that
a page shows.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from kdissect.errors import UsageError
from kdissect.nearest import did_you_mean
from kdissect.phrases import ABSENT, duration, listed, many, size
from kdissect.spark.tables import as_json
from kdissect.text import page
from kdissect.text.page import PageSection, View, table
from kdissect.text.style import PLAIN, Style

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import ModuleType
    from typing import TextIO

    from pyspark.sql import DataFrame, SparkSession

ROWS = 10
"""Default number of rows per table of the page."""

JobResult = tuple[str, "DataFrame"]
"""The name of a job, and its rows."""

JOBS: Sequence[str] = (
    *("latency", "waits", "throughput", "errors", "lag", "rebalances", "versions", "throttle", "connections"),
)
"""All jobs: modules of ``kdissect.spark.jobs``, each with a function of the same name."""

_TITLES = {
    "latency": "Service times",
    "waits": "Waits",
    "throughput": "Throughput",
    "errors": "Errors",
    "lag": "Lag",
    "rebalances": "Rebalances",
    "versions": "Versions in use",
    "throttle": "Throttled by quotas",
    "connections": "Connections",
}
_NARROW = {
    "latency": ("exchanges", "measured", "p50_us", "p99_us", "errors"),
    "waits": ("wait", "waits", "total_us", "p50_us", "p99_us", "undetermined"),
    "throughput": ("produced_records", "produced_bytes", "fetched_bytes", "errors"),
    "errors": ("count", "share", "example"),
    "lag": ("kind", "name", "topic", "partition", "lag", "lag_worst", "seconds"),
    "rebalances": ("group", "seconds", "cause", "generation_after", "rebalances", "max_seconds", "by_cause"),
    "versions": ("client", "api", "version", "removed", "count"),
    "throttle": ("exchanges", "throttled", "throttle_time_ms", "max_ms"),
    "connections": ("connections", "closed", "reset", "p50_ms", "exchanges"),
}
"""Columns that remain on a narrow terminal, besides ``start`` and those of ``by``."""
_WIDE = 160


def report(
    session: SparkSession,
    folder: str,
    jobs: Sequence[str] = JOBS,
    window: str | None = None,
    by: Sequence[str] = (),
    *,
    sketches: bool = False,
) -> list[JobResult]:
    """Set up jobs on the tables of an export; Spark computes their rows lazily.

    Args:
        session: Spark session.
        folder: written by ``kdissect export`` or ``kdissect spark decode``; a path or URL that Spark can
            read.
        jobs: names from ``JOBS``.
        window: duration of a time window: jobs that support it have a row per window.
        by: columns to group by; a job uses those that it has, or its default if it has none of them.
        sketches: whether latency includes its sketches, which can be merged.

    Raises:
        UsageError: unknown job, table or column, or invalid duration.
    """
    modules = check(jobs, window, by)
    from kdissect.spark.tables import tables

    needed = dict.fromkeys(table for module in modules.values() for table in module.TABLES)
    frames = tables(session, folder, needed)
    return [(name, _run(name, module, frames, window, by, sketches)) for name, module in modules.items()]


def check(jobs: Sequence[str], window: str | None, by: Sequence[str]) -> dict[str, ModuleType]:
    """Check the arguments of ``report``. Needs pyspark, but no session.

    Returns:
        The modules of the jobs, by name.

    Raises:
        UsageError: unknown job or column, or invalid duration.
    """
    for name in jobs:
        if name not in JOBS:
            raise UsageError(f'unknown job "{name}"{did_you_mean(name, JOBS)}; known: {", ".join(JOBS)}')
    modules = {name: _module(name) for name in jobs}
    known = dict.fromkeys(column for module in modules.values() for column in module.BY)
    for column in by:
        if column not in known:
            there = f"known: {', '.join(known)}" if known else "none of these jobs has any"
            raise UsageError(f'cannot group by "{column}"{did_you_mean(column, known)}; {there}')
    if window is not None:
        from kdissect.spark.jobs.keys import length_us

        length_us(window)
    return modules


def write_page(
    out: TextIO,
    results: Iterable[JobResult],
    *,
    limit: int = ROWS,
    width: int | None = None,
    style: Style = PLAIN,
) -> None:
    """Write tables for people.

    Args:
        out: where to write; the caller closes it.
        results: returned by ``report``.
        limit: maximum rows of each table.
        width: width of the terminal; None if ``out`` is not a terminal.
        style: of headings, and names of hosts.
    """
    narrow = width is not None and width < _WIDE
    sections = (_section(name, frame, limit, narrow=narrow) for name, frame in results)
    page.write(out, sections, width=width, style=style)


def write_json(write: Callable[[bytes], object], results: Iterable[JobResult]) -> None:
    """Write JSON lines: the columns of a row, and the name of its ``job``. Times are UTC, sketches base64."""
    for name, frame in results:
        job = f'{{"job":{json.dumps(name)},'
        for text in _json(frame):
            write(f"{job}{text[1:]}\n".encode())


def write_parquet(results: Iterable[JobResult], folder: str, *, overwrite: bool = False) -> None:
    """Write Parquet, a directory for each job.

    Args:
        results: returned by ``report``.
        folder: where to write; a path or URL that Spark can write to.
        overwrite: whether to replace existing files; otherwise Spark raises an error.
    """
    for name, frame in results:
        mode = "overwrite" if overwrite else "error"
        frame.write.mode(mode).parquet(f"{folder.rstrip('/')}/{name}")


def _module(name: str) -> ModuleType:
    from importlib import import_module  # imports pyspark, which --help does not need

    return import_module(f"kdissect.spark.jobs.{name}")


def _run(
    name: str,
    module: ModuleType,
    frames: Mapping[str, DataFrame],
    window: str | None,
    by: Sequence[str],
    sketches: bool,
) -> DataFrame:
    options: dict[str, Any] = {}
    if module.BY:
        options["by"] = [column for column in by if column in module.BY] or module.USUAL
    if window is not None and name != "versions":
        options["window"] = window
    if sketches and name == "latency":
        options["sketches"] = True
    frame: DataFrame = getattr(module, name)(*(frames[table] for table in module.TABLES), **options)
    return frame


def _json(frame: DataFrame) -> Iterator[str]:
    """Each row as JSON."""
    return (row[0] for row in as_json(frame).toLocalIterator())


def _section(name: str, frame: DataFrame, limit: int, *, narrow: bool) -> PageSection:
    kept = {"start", *_module(name).BY, *_NARROW[name]}
    shown = [(column, kind) for column, kind in frame.dtypes if not narrow or column in kept]
    first_time = next((column for column, kind in shown if kind == "timestamp"), None)
    views = [_view(column, kind, zone=" (UTC)" if column == first_time else "") for column, kind in shown]
    rows = [json.loads(text) for text in islice(_json(frame.limit(limit + 1)), limit + 1)]
    more = (f"first {many(limit, 'row')}; use --max-rows to show more",) if len(rows) > limit else ()
    return table(_TITLES[name], views, rows[:limit], notes=more if rows else ("no rows",))


_UNITS: Mapping[str, Callable[[Any], str]] = {
    "_us": lambda value: duration(round(value * 1000)),
    "_ms": lambda value: duration(round(value * 1_000_000)),
    "seconds": lambda value: duration(round(value * 1e9)),
    "seconds_worst": lambda value: duration(round(value * 1e9)),
    "_bytes": lambda value: size(round(value)),
    "_bytes_per_second": lambda value: f"{size(round(value))}/s",
    "_per_second": lambda value: f"{value:,.1f}/s",
}
"""Formats by suffix of the column's name; the longest matching suffix applies."""


def _view(column: str, kind: str, zone: str = "") -> View:
    """The format of a column: by its unit if the name ends with one, otherwise by its type.

    ``zone`` goes into the heading of times.
    """

    def view(write: Callable[[Any], str], name: str = column, **options: bool) -> View:
        def cell(row: Mapping[str, Any]) -> str:
            return ABSENT if row[column] is None else write(row[column])

        return View(name.replace("_", " ").upper(), cell, **options)

    ends = sorted((end for end in _UNITS if column.endswith(end)), key=len)
    if ends and not kind.startswith("array"):
        unit = ends[-1] if ends[-1] in ("_us", "_ms", "_bytes") else ""
        return view(_UNITS[ends[-1]], column.removesuffix(unit), right=True)
    if column == "share":
        return view(lambda value: f"{100 * value:.1f}%", right=True)
    if kind in ("bigint", "int", "smallint"):
        plain = column.startswith(("generation", "version", "partition", "api_key"))
        return view(str if plain else "{:,}".format, right=True)
    if kind == "timestamp":
        return view(lambda value: value[:19].replace("T", " "), f"{column}{zone}")
    if kind.startswith("map"):
        return view(
            lambda value: ", ".join(f"{count:,} {name}" for name, count in value.items()), shrinks=True
        )
    if kind.startswith("array"):
        return view(_named, shrinks=True)
    if kind == "binary":
        return view(lambda value: size(len(value) * 3 // 4), right=True)
    return view(str, shrinks=True)


def _named(values: Sequence[Any]) -> str:
    return listed([each["cause"] if isinstance(each, dict) else str(each) for each in values])
