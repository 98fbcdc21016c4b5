"""``kdissect spark report``: tables -> reports of Spark jobs, as text, JSON lines or Parquet."""

from __future__ import annotations

import re
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdissect.capture.stores import StorePath
from kdissect.cli.help import command
from kdissect.cli.options import at_least, color_option
from kdissect.cli.spark import target_options
from kdissect.cli.spark.target_options import DUCKDB, SPARK, has_spark
from kdissect.cli.terminal import output, style_of, warn, wide_option, width
from kdissect.errors import UsageError
from kdissect.nearest import did_you_mean
from kdissect.phrases import json_writer, listed
from kdissect.spark import report as reporting
from kdissect.spark.report import JOBS, ROWS
from kdissect.spark.session import SparkTarget
from kdissect.tables import duck
from kdissect.tables.manifest import DIRECTORY, MANIFEST, is_complete, parsed

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL = "all"
VERSIONS = "versions"
MAX_DUCKDB_BYTES = 1_000_000_000
USUAL_ENGINE = (
    "[default: DuckDB for tables of up to 1 GB on this machine, Spark for others or if an option needs it; "
    "if that one is not installed, the other]"
)

EXAMPLES = """\b
Examples:
  kdissect spark report tables                                     all reports, the first rows of each
  kdissect spark report tables --report latency --by api,client
  kdissect spark report tables --report throughput --by topic --interval 1m --json
  kdissect spark report tables --report latency --interval 1h --sketches -o rollups
  kdissect spark report tables --report latency --interval 1h -o rollups --append
  kdissect spark report tables --report errors --show-sql
  kdissect spark report --master spark://host:7077 /share/tables --report errors
  kdissect spark report 'days/2026-11-*' --report latency --interval 1h

\b
latency      service times (latency without waits), by client ...
waits        time that requests waited, and what for
throughput   bytes and records by topic, partition, client ...
errors       error codes, counts and error rates
lag          consumer lag
rebalances   per group: count, duration, causes
versions     versions in use, and those that newer releases reject
throttle     clients throttled by quotas
connections  number opened, lifetimes, close reasons
"""


def _to_names(text: str) -> tuple[str, ...]:
    """Comma-separated names."""
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def _to_reports(text: str) -> tuple[str, ...]:
    """Names of reports.

    Raises:
        click.BadParameter: there is no such report.
    """
    names = _to_names(text)
    for name in names:
        if name not in (*JOBS, ALL):
            hint = did_you_mean(name, JOBS) or f"; known: {', '.join(JOBS)}, {ALL}"
            raise click.BadParameter(f'unknown report "{name}"{hint}')
    return names


@command(epilog=EXAMPLES)
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=_to_reports,
    metavar="REPORT,...",
    help=f"{', '.join(JOBS)}, or {ALL}. [default: {ALL}]",
)
@click.option(
    "--by",
    type=_to_names,
    multiple=True,
    metavar="COLUMN,...",
    help="Columns to group by: api, topic, partition, client, group, broker, software, connection ... Each "
    "report uses those that apply to it, or its default if none do.",
)
@click.option("--interval", metavar="TIME", help="Group by time interval: 10s, 1m, 1h.")
@click.option(
    "--max-rows",
    type=at_least(1),
    default=ROWS,
    show_default=True,
    metavar="N",
    help="Rows per table.",
)
@click.option(
    "--sketches",
    is_flag=True,
    help="Include the buckets of service times, which add up to quantiles of several intervals or days.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help='Write JSON lines, all rows; the "job" key is the name of the report.',
)
@click.option(
    "-o", "--output", "target", metavar="DIR", help="Write Parquet, all rows, one directory per report."
)
@click.option("--overwrite", is_flag=True, help="With -o: replace existing reports.")
@click.option(
    "--append", is_flag=True, help="With -o and --interval: add the intervals that existing reports lack."
)
@click.option("--show-sql", is_flag=True, help="Print the SQL of the reports instead of running it.")
@click.option(
    "--engine",
    type=click.Choice([SPARK, DUCKDB]),
    help=f"What computes the reports. {USUAL_ENGINE}",
)
@wide_option
@color_option
@target_options.spark_options
def report(directories: tuple[str, ...], **options: Any) -> None:
    """Analyze tables: latency, throughput, errors, lag, rebalances and more.

    DIR is a directory written by kdissect export or kdissect spark decode; with several, or a pattern such as
    'days/*', the rows of all are analyzed together. Computes the same numbers as
    kdissect summary, even for captures too large for one machine. Reports on stderr which engine ran.
    """
    spark_target, log = target_options.take(options)
    target, as_json = options["target"], options["as_json"]
    if target is not None and as_json:
        raise click.UsageError("--json and -o are mutually exclusive")
    replaces, appends, interval = options["overwrite"], options["append"], options["interval"]
    requested = tuple(dict.fromkeys(name for each in options["reports"] for name in each)) or (ALL,)
    jobs = JOBS if ALL in requested else requested
    by = tuple(name for each in options["by"] for name in each)
    if options["show_sql"]:
        with output() as out:
            macros = f"{duck.MACROS}\n" if options["engine"] == DUCKDB else ""
            out.write(macros + reporting.sql(jobs, interval, by, sketches=options["sketches"]))
        return
    if appends:
        _check_append(target, interval, jobs, replaces=replaces)
    where = addresses(directories, spark_target)
    existing = [job for job in jobs if target is not None and Path(target, job).exists()]
    if existing and not replaces and not appends:
        raise click.UsageError(
            f"{target} already has the report {existing[0]}; use --overwrite to replace it"
        )
    reporting.check(jobs, interval, by)
    needs_spark = spark_target != SparkTarget() or log is not None or is_url(target)
    engine = options["engine"] or (SPARK if needs_spark else usual_engine(where))
    if engine == DUCKDB and is_url(target):
        raise click.UsageError("-o URL needs --engine spark")
    check_engine(engine, where)
    with output() as out, target_options.engine(engine, spark_target, log) as session:
        reports = reporting.report(session, where, jobs, interval, by, sketches=options["sketches"])
        if target is not None:
            reporting.write_parquet(reports, address(target), overwrite=replaces, append=appends)
            warn(f"{listed(jobs, 'report')} written to {target}")
        elif as_json:
            reporting.write_json(json_writer(out), reports)
        else:
            style = style_of(out, options["color"])
            reporting.write_page(out, reports, limit=options["max_rows"], width=width(out), style=style)


def _check_append(target: str | None, interval: str | None, jobs: Sequence[str], *, replaces: bool) -> None:
    if target is None or interval is None:
        raise click.UsageError("--append needs -o and --interval")
    if replaces:
        raise click.UsageError("--append and --overwrite are mutually exclusive")
    if VERSIONS in jobs:
        raise click.UsageError(f"the report {VERSIONS} has no intervals; select others with --report")


def usual_engine(where: Sequence[str]) -> str:
    """DuckDB for small tables on this machine, Spark for others; if that one is not installed, the other."""
    if any(map(is_url, where)):
        return SPARK
    total = sum(path.stat().st_size for each in where for path in Path(each).rglob("part-*"))
    has_duckdb = duck.why_not() is None
    if total <= MAX_DUCKDB_BYTES:
        return DUCKDB if has_duckdb or not has_spark() else SPARK
    return SPARK if has_spark() or not has_duckdb else DUCKDB


def is_url(name: str | None) -> bool:
    """Whether it names something that is not a path."""
    return name is not None and _URL.match(name) is not None


def check_engine(engine: str, where: Sequence[str]) -> None:
    """Check that an engine can read the tables.

    Raises:
        click.UsageError: it cannot.
    """
    if engine == DUCKDB and (url := next(filter(is_url, where), None)) is not None:
        raise click.UsageError(
            f"DuckDB reads only directories on this machine, not {url}; use --engine spark"
        )


# ------------------------------------------------------------------------------------------------------------
# The directory of tables -> its address for Spark.
#
# A directory on this machine is checked before Spark is started, which takes seconds.
# ------------------------------------------------------------------------------------------------------------


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def addresses(directories: Sequence[str], spark_target: SparkTarget) -> list[str]:
    """Return the absolute paths or URLs of directories of tables, each once, and warn if some are incomplete.
    Patterns of paths are expanded here, those of URLs by Spark.

    Args:
        directories: paths, URLs that Spark can read, and patterns.
        spark_target: where Spark runs.

    Raises:
        UsageError: there are no tables.
    """
    paths: dict[str, None] = {}
    for directory in directories:
        is_pattern = not is_url(directory) and not Path(directory).is_dir()
        expanded = sorted(glob(directory)) if is_pattern else []  # noqa: PTH207  (Path.glob takes no absolute one)
        for each in expanded or [directory]:
            if not is_url(each):
                _check(each, spark_target)
            paths[address(each)] = None
    return list(paths)


def _check(directory: str, spark_target: SparkTarget) -> None:
    paths = sorted(Path(directory).glob(f"*/{DIRECTORY}/{MANIFEST}"))
    if spark_target.is_here and not paths:
        raise UsageError(
            f"no tables in {directory}; create them with kdissect export or kdissect spark decode"
        )
    manifests = [parsed(each.read_bytes(), each) for each in paths]
    unfinished = ", ".join(each["table"] for each in manifests if not is_complete(each))
    if unfinished:
        warn(f"warning: incomplete, because the run that wrote it was interrupted: {unfinished}")


def address(directory: str) -> str:
    """Return the absolute path or URL of a directory, because a server has another working directory."""
    return StorePath(directory).as_uri() if is_url(directory) else str(Path(directory).absolute())
