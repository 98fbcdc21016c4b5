"""``kdissect spark decode``: what ``export`` does, by the workers of Spark."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdissect.capture.inputs import STDIN, captures
from kdissect.cli.options import filter_options, input_options
from kdissect.cli.running import Query, close
from kdissect.cli.spark import places
from kdissect.cli.tables import export_options, take_export
from kdissect.cli.terminal import warn
from kdissect.options import PARQUET
from kdissect.phrases import facts, many, size
from kdissect.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from kdissect.spark.decode import DecodeResult
    from kdissect.spark.session import SparkTarget


SPLITS = ("auto", "single", "shards", "shuffle")

EXAMPLES = """\b
Examples:
  kdissect spark decode captures/ -o tables                 all captures in a folder, on all cores
  kdissect spark decode --master 'local[4]' 'ring-*.pcap' -o tables
  kdissect spark decode --partition-by date,api captures/ -o tables
  kdissect spark decode --conf spark.driver.memory=4g huge.pcap -o tables
  kdissect spark decode --master spark://host:7077 /share/captures -o /share/tables
  kdissect spark decode --remote sc://host:15002 /share/captures -o /share/tables

The rows are the same as those of kdissect export, however the work is divided. Captures and DIR must be on
storage that all machines mount at the same path; this is checked. kdissect itself is sent to the workers; the
packages it depends on must be installed there.
"""


@click.command(epilog=EXAMPLES)
@input_options
@filter_options
@export_options(form=PARQUET)
@click.option(
    "--split",
    type=click.Choice(SPLITS),
    default="auto",
    show_default=True,
    help="How to divide the work. single: one task reads everything; shards: each task reads everything "
    "and dissects its share of the connections; shuffle: each task reads a part of the input, and "
    "segments are shuffled by connection; auto: single up to 256 MB, otherwise shards below 16 "
    "concurrent tasks, otherwise shuffle.",
)
@places.place_options
def decode(**options: Any) -> None:
    """Decode captures to typed tables, on all cores or a cluster.

    FILE can be a folder (all captures in it and its subfolders) or a quoted pattern.
    """
    place, log = places.take(options)
    split, overwrite = options.pop("split"), options.pop("overwrite")
    options["form"] = options["form"] or PARQUET
    export = take_export(options)
    query = Query.take(options)
    if STDIN in query.paths:
        raise click.UsageError("workers cannot read stdin; use kdissect export - -o DIR")
    if export.rotate_ns is not None:
        raise click.UsageError("--rotate takes a size here, not a time")
    paths = _paths(captures(query.paths, exclude=export.folder), place)
    shows = place.remote is None and not query.no_progress
    with session(place, log) as spark, progress(spark, "decoding", wanted=shows):
        from kdissect.spark.decode import decode as decoded  # with pyspark, which is there by now

        done = decoded(
            spark,
            paths,
            export,
            query.options,
            split=split,
            overwrite=overwrite,
        )
    _tell(done, export.folder)


def _paths(names: Sequence[str], place: SparkTarget) -> list[str]:
    """Names that workers understand: theirs is another working directory."""
    return [str(Path(name).absolute()) for name in names] if not place.is_embedded else list(names)


def _tell(done: DecodeResult, folder: Path) -> None:
    if not done.rows:
        warn(f"{folder} already has this export; use --overwrite to redo it")
        return
    close(done, done, shown=done.rows.get("exchanges", done.counts["exchanges"]), complete=True)
    if unresolved := done.counts["unresolved topic ids"]:
        warn(f"{many(unresolved, 'topic id')} whose name appears in no capture")
    rows = facts(*(f"{name} {count:,}" for name, count in done.rows.items()))
    by = many(done.tasks, "task")
    warn(f"{many(done.files, 'file')} of {size(done.bytes)} written to {folder} by {by}; rows: {rows}")


# ------------------------------------------------------------------------------------------------------------
# What Spark's tasks are at -> a line on the terminal, twice a second. Holds that line.
# ------------------------------------------------------------------------------------------------------------


EVERY_S = 0.5
_CLEAR = "\r\x1b[K"
_MOST_WAIT_S = 5


@contextmanager
def progress(spark: SparkSession, verb: str, *, wanted: bool) -> Iterator[None]:
    """Tell on stderr what is done meanwhile, if that is a terminal.

    Args:
        spark: not one of Spark Connect, which does not know.
        verb: what is done.
        wanted: whether somebody wants to know.
    """
    if not wanted or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    tracker = spark.sparkContext.statusTracker()
    end = threading.Event()

    def watch() -> None:
        with suppress(Exception):  # Java has ended, or the terminal: whoever waits for the tasks will tell
            while not end.wait(EVERY_S):
                stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
                sys.stderr.write(f"{_CLEAR}{told(verb, stages)}")
                sys.stderr.flush()

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        end.set()
        watcher.join(_MOST_WAIT_S)
        with suppress(OSError):
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


def told(verb: str, stages: Iterable[Any]) -> str:
    """The line: how many tasks are done, of those that Spark knows now."""
    known = [stage for stage in stages if stage is not None]
    if not known:
        return f"{verb} ..."
    done, running, tasks = (
        sum(getattr(stage, name) for stage in known)
        for name in ("numCompletedTasks", "numActiveTasks", "numTasks")
    )
    return f"{verb}: {done:,} of {tasks:,} tasks, {running:,} running"
