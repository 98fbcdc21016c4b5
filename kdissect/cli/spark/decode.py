"""``kdissect spark decode``: captures -> typed tables, like ``export``, in tasks of Spark."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from kdissect.capture.inputs import STDIN, absolute
from kdissect.cli.export_options import export_options, report_existing, report_kept, take_export
from kdissect.cli.help import command
from kdissect.cli.options import filter_options, input_options, names_option
from kdissect.cli.run import report_totals, report_unnamed, take_query
from kdissect.cli.spark import target_options
from kdissect.cli.terminal import FAILED, USAGE, warn
from kdissect.options import PARQUET, WHOLE
from kdissect.phrases import facts, many, size
from kdissect.spark.session import MAX_TASKS, session
from kdissect.tables.export import tables_of
from kdissect.tables.manifest import job_of, missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kdissect.runs.run import Query
    from kdissect.spark.decode import DecodeResult


EXAMPLES = """\b
Examples:
  kdissect spark decode captures/ -o tables                 all captures in a directory, on all cores
  kdissect spark decode --master 'local[4]' 'ring-*.pcap' -o tables
  kdissect spark decode --partition-by date,api captures/ -o tables
  kdissect spark decode --conf spark.driver.memory=4g huge.pcap -o tables
  kdissect spark decode --master spark://host:7077 /share/pcaps -o /share/out
  kdissect spark decode --remote sc://host:15002 /share/pcaps -o /share/out

The rows are the same as those of kdissect export, however the work is divided. On a cluster, captures and DIR
must be in an object store, or on storage that all machines mount at the same path; this is checked. kdissect
itself is sent to the workers; the packages it depends on must be installed there.
"""

tasks_option = click.option(
    "--tasks",
    type=click.IntRange(1, MAX_TASKS),
    metavar="N",
    help="Number of tasks that dissect. A single one reads everything; of several, each gets the packets of "
    "its connections. At most 4 per core, unless each has 32 MiB of captures.  "
    "[default: 1 up to 256 MiB of captures, then 1 per 128 MiB, but at least 2 per core]",
)


@command(epilog=EXAMPLES)
@input_options
@names_option(WHOLE)
@filter_options
@export_options(form=PARQUET, by_time=False)
@tasks_option
@target_options.spark_options
def decode(**options: Any) -> None:
    """Decode captures into typed tables, on this machine or a cluster."""
    spark_target, log = target_options.take(options)
    tasks, overwrite, redo = (options.pop(name) for name in ("tasks", "overwrite", "redo"))
    options["form"] = options["form"] or PARQUET
    export = take_export(options)
    query = take_query(options, exclude=export.directory)
    if STDIN in query.paths:
        raise click.UsageError("workers cannot read stdin; use kdissect export - -o DIR")
    if export.rotate_ns is not None:
        raise click.UsageError("--rotate takes a size here, not a time")
    paths = [absolute(path) for path in query.paths]  # workers have another working directory
    job = job_of(paths, query.options, export)
    lacks = missing(export.directory, tables_of(export), job, overwrite=overwrite, redo=redo)
    if not lacks.tables:  # Spark takes long to start
        report_existing(export.directory, lacks)
        return
    if len(lacks.captures) < len(paths):
        report_kept(export.directory, lacks, job)
    show_progress = spark_target.remote is None and not query.no_progress
    with session(spark_target, log) as spark, progress(spark, "decoding", enabled=show_progress):
        from kdissect.spark.decode import (
            decode as decode_captures,  # imports pyspark, which session() has checked
        )

        result = decode_captures(
            spark,
            paths,
            export,
            query.options,
            overwrite=overwrite,
            redo=redo,
            tasks=tasks,
        )
    query.filter.notes.merge(result.notes)
    _report(result, export.directory, query)


def _report(result: DecodeResult, directory: Path, query: Query) -> None:
    report_totals(
        result, shown=result.rows.get("exchanges", result.counts["exchanges"]), complete=result.complete
    )
    report_unnamed(query)
    if unresolved := result.counts["unresolved topic IDs"]:
        warn(f"no capture has the name of {many(unresolved, 'topic ID')}")
    rows = facts(*(f"{name} {count:,}" for name, count in result.rows.items()))
    by = many(result.tasks, "task")
    warn(f"{many(result.files, 'file')} ({size(result.bytes)}) written to {directory} by {by}; rows: {rows}")
    if not result.complete:
        warn("the export is incomplete; run the same command again to redo it")
        raise click.exceptions.Exit(FAILED)
    if result.unreadable:
        raise click.exceptions.Exit(USAGE)


# ------------------------------------------------------------------------------------------------------------
# The state of Spark's tasks -> a line on the terminal, twice a second.
# ------------------------------------------------------------------------------------------------------------


EVERY_S = 0.5
_CLEAR = "\r\x1b[K"
_MAX_WAIT_S = 5


@contextmanager
def progress(spark: SparkSession, verb: str, *, enabled: bool) -> Iterator[None]:
    """Show the progress of Spark's tasks on stderr inside the block, if it is a terminal.

    Args:
        spark: not a session of Spark Connect, which has no status tracker.
        verb: start of the line.
        enabled: whether to show it.
    """
    if not enabled or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    tracker = spark.sparkContext.statusTracker()
    end = threading.Event()

    def watch() -> None:
        with suppress(Exception):  # Java or the terminal is gone; the main thread reports it
            while not end.wait(EVERY_S):
                stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
                sys.stderr.write(f"{_CLEAR}{progress_line(verb, stages)}")
                sys.stderr.flush()

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        end.set()
        watcher.join(_MAX_WAIT_S)
        with suppress(OSError):
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


def progress_line(verb: str, stages: Iterable[Any]) -> str:
    """Format the line: tasks done, and tasks that Spark has planned so far."""
    known = [stage for stage in stages if stage is not None]
    if not known:
        return f"{verb} ..."
    done, running, tasks = (
        sum(getattr(stage, name) for stage in known)
        for name in ("numCompletedTasks", "numActiveTasks", "numTasks")
    )
    return f"{verb}: {done:,} of {tasks:,} tasks, {running:,} running"
