"""The tables of an export -> reports of the jobs: pages for people, JSON lines, Parquet. Holds the rows that
a page shows.
"""

from __future__ import annotations

import inspect
import uuid
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdissect.errors import UsageError
from kdissect.nearest import did_you_mean
from kdissect.phrases import ABSENT, duration, listed, many, size
from kdissect.spark.jobs import keys
from kdissect.spark.tables import PATH_NOT_FOUND, is_spark, rows, tables
from kdissect.tables import duck
from kdissect.tables.values import json_line
from kdissect.text import page
from kdissect.text.page import PageSection, View, table
from kdissect.text.style import PLAIN, Style

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType
    from typing import TextIO

ROWS = 10
"""Default number of rows per table of the page."""

JobResult = tuple[str, Any]
"""The name of a job, and its rows: a data frame of Spark or DuckDB."""

_TITLES = {
    "latency": "Service times",
    "waits": "Waits and delays",
    "throughput": "Throughput",
    "errors": "Errors",
    "lag": "Lag",
    "rebalances": "Rebalances",
    "versions": "Versions in use",
    "throttle": "Throttled by quotas",
    "connections": "Connections",
}
JOBS: Sequence[str] = tuple(_TITLES)
"""All jobs: modules of ``kdissect.spark.jobs``, each with a function of the same name."""
FOLDS = {"lag": "--lag", "rebalances": "--groups"}
"""Jobs that are not SQL alone, and the option of the summary whose functions they use."""
_FIRST = {
    "latency": ("exchanges", "measured", "p50_us", "p99_us", "total_p99_us", "errors"),
    "waits": ("wait", "waits", "total_us", "p50_us", "p99_us", "undetermined"),
    "throughput": ("produced_records", "produced_bytes", "fetched_bytes", "errors"),
    "errors": ("count", "share", "example"),
    "lag": ("kind", "name", "topic", "partition", "lag", "lag_worst", "seconds"),
    "rebalances": ("group", "seconds", "cause", "generation_after", "rebalances", "max_seconds", "by_cause"),
    "versions": ("client", "api", "version", "removed", "count"),
    "throttle": ("exchanges", "throttled", "throttle_time_ms", "max_ms"),
    "connections": ("connections", "closed", "reset", "p50_ms", "exchanges"),
}
"""Columns that are shown first, besides ``start`` and those of ``by``."""


def report(
    session: Any,
    directories: str | Sequence[str],
    jobs: Sequence[str] = JOBS,
    window: str | None = None,
    by: Sequence[str] = (),
    *,
    sketches: bool = False,
) -> list[JobResult]:
    """Set up jobs on the tables of an export; their rows are computed lazily.

    Args:
        session: Spark session, or a connection of ``duck``.
        directories: written by ``kdissect export`` or ``kdissect spark decode``: paths, or URLs that Spark
            can read, or patterns of them.
        jobs: names from ``JOBS``.
        window: duration of a time window: jobs that support it have a row per window.
        by: columns to group by; a job uses those that it has, or its default if it has none of them.
        sketches: whether latency includes its sketches, which can be merged.

    Raises:
        UsageError: unknown job, table or column, or invalid duration.
    """
    modules = check(jobs, window, by)
    names = dict.fromkeys(each for module in modules.values() for each in module.TABLES)
    frames = tables(session, directories, names)
    return [(name, _run(name, module, frames, window, by, sketches)) for name, module in modules.items()]


def sql(jobs: Sequence[str], window: str | None, by: Sequence[str], *, sketches: bool) -> str:
    """The SQL of jobs, for views named like the tables.

    Raises:
        UsageError: as for ``report``.
    """
    statements = []
    for name, module in check(jobs, window, by).items():
        text = f"-- not SQL: the functions of kdissect summary {FOLDS.get(name)}"
        if name not in FOLDS:
            names = {table: table for table in module.TABLES}
            text = f"{_run(name, module, names, window, by, sketches).rstrip()};"
        statements.append(f"-- {name}\n{text}\n")
    return "\n".join(statements)


def check(jobs: Sequence[str], window: str | None, by: Sequence[str]) -> dict[str, ModuleType]:
    """Check the arguments of ``report``.

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
        keys.length_us(window)
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
        width: columns of the terminal; None: any number.
        style: of headings, and names of hosts.
    """
    sections = (_section(name, frame, limit) for name, frame in results)
    page.write(out, sections, width=width, style=style)


def write_json(write: Callable[[bytes], object], results: Iterable[JobResult]) -> None:
    """Write JSON lines: the columns of a row, and the name of its ``job``. Times are UTC, sketches base64."""
    for name, frame in results:
        for row in rows(frame):
            write(json_line({"job": name, **dict(zip(frame.columns, row, strict=True))}))


def write_parquet(
    results: Iterable[JobResult], directory: str, *, overwrite: bool = False, append: bool = False
) -> None:
    """Write Parquet, a directory for each job.

    Args:
        results: returned by ``report``.
        directory: where to write; a path, or a URL that Spark can write to.
        overwrite: whether to replace existing files; otherwise Spark raises an error.
        append: whether to add to existing files the time windows that they lack.

    Raises:
        OutputError: DuckDB cannot write the files.
    """
    for name, frame in results:
        where = f"{directory.rstrip('/')}/{name}"
        new = _without_windows_of(where, frame) if append else frame
        if is_spark(frame):
            new.write.mode("append" if append else "overwrite" if overwrite else "error").parquet(where)
            continue
        earlier = [] if append else list(Path(where).glob("*.parquet"))
        new.write_parquet(Path(where, f"part-{uuid.uuid4()}.parquet"))
        for path in earlier:
            path.unlink()


def _without_windows_of(directory: str, frame: Any) -> Any:
    """The rows of a frame, without those of time windows that a directory has."""
    text = "select * from new where start not in (select start from old)"
    if not is_spark(frame):
        files = f"{directory}/*.parquet"
        if not any(Path(directory).glob("*.parquet")):
            return frame
        return keys.query(text, new=frame, old=duck.sql(frame.connection, f"from read_parquet('{files}')"))
    from pyspark.errors import AnalysisException

    try:
        old = frame.sparkSession.read.parquet(directory)
    except AnalysisException as error:
        if error.getCondition() != PATH_NOT_FOUND:
            raise
        return frame
    return keys.query(text, new=frame, old=old)


def _module(name: str) -> ModuleType:
    return import_module(f"kdissect.spark.jobs.{name}")


def _run(
    name: str,
    module: ModuleType,
    frames: Mapping[str, Any],
    window: str | None,
    by: Sequence[str],
    sketches: bool,
) -> Any:
    """Call a job with its tables, and those of the other arguments that it has."""
    job = getattr(module, name)
    by = [column for column in by if column in module.BY] or module.USUAL
    options = {"by": by, "window": window, "sketches": sketches}.items()
    known = inspect.signature(job).parameters
    return job(
        *(frames[each] for each in module.TABLES), **{key: each for key, each in options if key in known}
    )


def _section(name: str, frame: Any, limit: int) -> PageSection:
    kept = {"start", *_CLUSTER, *_module(name).BY, *_FIRST[name]}
    shown_rows = [dict(zip(frame.columns, row, strict=True)) for row in rows(frame, limit + 1)]
    is_only_key = {"cluster"} == set(frame.columns).intersection(_module(name).BY)
    hidden = () if is_only_key else _single_cluster(shown_rows)
    shown = [(column, kind) for column, kind in frame.dtypes if column not in hidden]
    first_time = next((column for column, kind in shown if kind == "timestamp"), None)
    views = [
        replace(_view(column, kind, zone=" (UTC)" if column == first_time else ""), keep=column in kept)
        for column, kind in shown
    ]
    more = (f"first {many(limit, 'row')}; use --max-rows to show more",) if len(shown_rows) > limit else ()
    return table(_TITLES[name], views, shown_rows[:limit], notes=more if shown_rows else ("no rows",))


_CLUSTER = ("cluster", "cluster_id")


def _single_cluster(shown_rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The columns of clusters that have the same value in all rows."""
    return tuple(name for name in _CLUSTER if len({row.get(name) for row in shown_rows}) <= 1)


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


_HEADINGS: Mapping[str, str] = {
    "cluster_id": "cluster",
    "unanswered": "without response",
    "no_answer": "unanswered",
    "unacknowledged": "acks=0",
    "software": "library",
    "measured": "n",
    "undetermined": "unknown",
    "lag_worst": "max lag",
    "since": "added in",
    "removed": "removed in",
}
"""Where pages of ``summary`` have another word than the column, which is public."""


def _view(column: str, kind: str, zone: str = "") -> View:
    """The format of a column: by its unit if the name ends with one, otherwise by its type.

    ``zone`` goes into the heading of times.
    """

    def view(write: Callable[[Any], str], name: str = column, **options: Any) -> View:
        def cell(row: Mapping[str, Any]) -> str:
            return ABSENT if row[column] is None else write(row[column])

        return View(_HEADINGS.get(name, name).replace("_", " ").upper(), cell, **options)

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
