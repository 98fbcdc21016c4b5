"""``kdissect spark summary``: captures -> what ``summary`` or ``report`` writes, counted by Spark's tasks."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdissect.capture.inputs import STDIN, absolute
from kdissect.cli import report
from kdissect.cli.help import command
from kdissect.cli.options import color_option
from kdissect.cli.spark import target_options
from kdissect.cli.spark.decode import progress, tasks_option
from kdissect.cli.summary import summarize, summary_options
from kdissect.cli.terminal import ended_by_signals, output, wide_option
from kdissect.runs.run import Run, Totals
from kdissect.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.runs.run import Query
    from kdissect.stats.survey import Survey

EXAMPLES = """\b
Examples:
  kdissect spark summary captures/                          on all cores of this machine
  kdissect spark summary --findings --json captures/
  kdissect spark summary --by topic --order-by bytes 'ring-*.pcap'
  kdissect spark summary --master spark://host:7077 /share/pcaps --html report.html
  kdissect spark summary --remote sc://host:15002 s3://bucket/captures/ --lag

Shows what kdissect summary shows, for captures too large for one machine, and writes no tables. On a cluster,
captures must be in an object store, or on storage that all machines mount at the same path; this is checked.
"""


@command(epilog=EXAMPLES)
@summary_options
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the page of kdissect report to FILE instead: all parts of the summary, and charts, but not "
    "the exchanges that findings name.",
)
@tasks_option
@wide_option
@color_option
@target_options.spark_options
def summary(html: Path | None, tasks: int | None, **options: Any) -> None:
    """Summarize captures on this machine or a cluster, without tables.

    Each task counts the exchanges of its part of the connections, and the counts are added up: the result is
    that of kdissect summary, except that a full table may keep other rows. Memory use does not grow with the
    captures.
    """
    spark_target, log = target_options.take(options)

    @contextmanager
    def opened(query: Query, _: Survey) -> Iterator[Run]:
        if STDIN in query.paths:
            raise click.UsageError("workers cannot read stdin; use kdissect summary -")
        with ended_by_signals(), output() as out, session(spark_target, log) as spark:
            place = Tasks(spark, tasks, shows_progress=spark_target.remote is None)
            run = Run(query, place.known, (), out)
            run.place = place
            yield run

    if html is None:
        summarize(opened, **options)
        return
    for name in _OF_PAGES:
        if options.pop(name):
            raise click.UsageError("--html writes all parts of the summary; leave out the options for others")
    report.write_page(html, options, opened)


_OF_PAGES = (
    *("columns", "order", "max_rows", "interval_ns", "group_history", "lag", "versions", "transactions"),
    *("client_connections", "findings", "lists_rules", "fail", "fail_on", "as_json", "sketches"),
)
"""Options that choose what is counted, or how it is shown."""


class Tasks:
    """Dissects in tasks of Spark: a place of a ``Run``.

    Args:
        spark: the session.
        tasks: their number; None: depends on the captures.
        shows_progress: whether a terminal may show a line of it.

    Attributes:
        known: what is known of the captures so far.
    """

    def __init__(self, spark: Any, tasks: int | None, *, shows_progress: bool) -> None:
        self._spark = spark
        self._tasks = tasks
        self._shows_progress = shows_progress
        self.known = Totals(Counter(), Counter(), [], [], [], None, unreadable=False)

    def totals(self, _: Run) -> Totals:
        """See ``RunPlace``."""
        return self.known

    def into(self, run: Run, sink: Any, _: int | None, *, flush: bool) -> None:  # noqa: ARG002  (counts only)
        """See ``RunPlace``."""
        from kdissect.spark.tallies import tally  # imports pyspark, which session() has checked

        query = run.query
        paths = [absolute(path) for path in query.paths]  # workers have another working directory
        with progress(self._spark, "counting", enabled=self._shows_progress and not query.no_progress):
            done = tally(self._spark, paths, query.options, sink, tasks=self._tasks)
        query.filter.notes.merge(done.notes)
        run.shown, run.complete = done.rows, done.complete
        self.known = Totals(
            done.counts, done.skipped, done.notices, done.warnings, done.sources, None, done.unreadable
        )
