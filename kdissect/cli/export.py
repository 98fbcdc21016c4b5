"""``kdissect export``: captures -> typed tables, as JSON lines or Parquet."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import click

from kdissect.capture.inputs import absolute
from kdissect.cli.export_options import (
    export_options,
    finish_or_abandon,
    report_existing,
    report_export,
    report_kept,
    take_export,
)
from kdissect.cli.help import command
from kdissect.cli.jobs import jobs_option, processes
from kdissect.cli.live_run import DeferInterrupt
from kdissect.cli.options import filter_options, input_options, names_option
from kdissect.cli.run import end, open_run, report, take_query
from kdissect.cli.terminal import FAILED, warn
from kdissect.errors import KdissectError, UnexpectedError
from kdissect.files import is_stored
from kdissect.query.records import records_of
from kdissect.runs.run import Here, Selection
from kdissect.sinks.columns import Columns
from kdissect.stats.connection_log import ConnectionLog
from kdissect.tables import manifest
from kdissect.tables.export import Export, ExportJob, tables_of, write_part
from kdissect.tables.manifest import Missing
from kdissect.tables.rows import RECORDS, needs_log
from kdissect.tables.table_files import locked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.net.tcp import Shard
    from kdissect.options import ExportOptions
    from kdissect.pipeline import Dissection
    from kdissect.query.records import Records
    from kdissect.runs.run import Query, Run
    from kdissect.runs.workers import Workers
    from kdissect.sinks.sink import Demand
    from kdissect.tables.export import PartResult
    from kdissect.tables.manifest import Job

EXAMPLES = """\b
Examples:
  kdissect export capture.pcap -o tables
  kdissect export --format parquet captures/ -o tables
  kdissect export --format parquet --partition-by date,api 'ring-*.pcapng.gz' -o tables
  kdissect export --bodies none --tables exchanges,partitions --api Fetch capture.pcap -o tables
  kdissect export --records --topic orders capture.pcap -o tables
  tcpdump -i eth0 -U -w - port 9092 | kdissect export - -o tables

docs/columns.md describes the tables and their columns. Each table is a subdirectory of DIR; files appear
there only when complete. The table's _kdissect subdirectory contains schema.json, schema.ddl,
create_table.sql and manifest.json. To redo an interrupted export, run the same command again. A complete
export is left alone; tables and captures that DIR does not have yet are added.

\b
  schema = open("tables/exchanges/_kdissect/schema.ddl").read()
  spark.read.schema(schema).json("tables/exchanges")
  spark.read.parquet("tables/exchanges")
"""


@command(epilog=EXAMPLES)
@input_options
@names_option()
@filter_options
@export_options()
@jobs_option(
    "Always 1 for stdin and for --rotate by time.", "Each worker writes its own files; the rows are the same."
)
def export(jobs: int | None, **options: Any) -> None:
    """Write typed tables for Spark, DuckDB, pandas or Polars.

    Filters select exchanges; their partitions, group events and connections are written with them. Column
    names are the keys of read --json.
    """
    tables = take_export(options)
    overwrite, redo = options.pop("overwrite"), options.pop("redo")
    query = take_query(options, exclude=tables.directory)
    paths = tuple(absolute(path) for path in query.paths)  # the tables are read elsewhere
    query = replace(query, paths=paths, options=replace(query.options, end_to_end=RECORDS in tables.tables))
    job = manifest.job_of(query.paths, query.options, tables)
    is_pipe = any(each["bytes"] is None for each in job["captures"])
    jobs = processes(query, jobs, allowed=tables.rotate_ns is None)
    failures: list[str] = []
    while True:
        try:
            result = write_tables(query, tables, job, jobs, failures, overwrite=overwrite, redo=redo)
            break
        except UnexpectedError as error:
            if len(query.paths) == 1 or is_pipe:  # a pipe can be read only once
                raise
            fault = _find_failing_capture(query, tables, error)
            if fault.capture is None:
                raise
            failures.append(str(fault))
            warn(f"{fault}; the other captures are exported without it")
            query = replace(query, paths=tuple(path for path in query.paths if path != fault.capture))
    if isinstance(result, Missing):
        report_existing(tables.directory, result)
        return
    run, writer, records = result
    report(run, run.shown)
    report_export(writer, records, tables.directory)
    if run.interrupted or run.totals.failed or failures:
        warn(
            "the export is incomplete; "
            f"{'use --overwrite' if is_pipe else 'run the same command again'} to redo it"
        )
    end(run, "exchange")
    if failures:
        raise click.exceptions.Exit(FAILED)


def write_tables(
    query: Query,
    tables: ExportOptions,
    description: Job,
    jobs: int,
    failures: Sequence[str] = (),
    *,
    overwrite: bool = False,
    redo: bool = False,
) -> tuple[Run, Export, Records] | Missing:
    """Write the tables of all captures of a query that they lack, with their manifests. If they lack none,
    return what is there.

    Args:
        query: what to read.
        tables: what to write.
        description: the export as its manifests describe it.
        jobs: number of processes.
        failures: errors of captures that are in the description but not in the query.
        overwrite: remove an existing export.
        redo: replace existing exports of the same captures.

    Raises:
        KdissectError: a capture cannot be read or the tables cannot be written.
    """
    with locked(tables.directory, tables.mode):
        lacks = manifest.missing(
            tables.directory, tables_of(tables), description, overwrite=overwrite, redo=redo
        )
        if not lacks.tables:
            return lacks
        if len(lacks.captures) < len(description["captures"]):
            report_kept(tables.directory, lacks, description)
        query = replace(query, paths=tuple(path for path in query.paths if path in lacks.captures))
        return _write_missing(query, tables, lacks, jobs, failures, overwrite=overwrite)


def _write_missing(
    query: Query,
    tables: ExportOptions,
    lacks: Missing,
    jobs: int,
    failures: Sequence[str],
    *,
    overwrite: bool,
) -> tuple[Run, Export, Records]:
    """Write what a directory lacks; see ``write_tables``."""
    log = ConnectionLog(query.limits)
    records = records_of(query.options)
    observes = jobs > 1 or needs_log(tables_of(tables))
    with open_run(query, jobs=jobs, observer=log, analyzes=observes) as run:
        first_file = manifest.prepare(tables.directory, lacks, overwrite=overwrite)
        own = replace(tables, tables=tuple(lacks.tables))
        job = ExportJob(query.options, own, query.paths, run.first_ns, first_file=first_file)
        writer = Export(job, job.files(in_parts=jobs > 1), lacks.job, log, records, kept=lacks.kept)
        defer = DeferInterrupt()
        with finish_or_abandon(writer, run, failures):
            if isinstance(run.place, Here):
                with defer.installed():
                    run.into(Columns(writer, _demand(query), defer, writer.release))
            else:
                workers = cast("Workers", run.place)
                parts = workers.parts_of(run, partial(_part, job, log, query))
                run.shown = sum(part.selected for part in parts)
                writer.adopt(sorted(parts, key=attrgetter("part")))
                for each in parts:
                    records.add(each.records)
    return run, writer, records


def _demand(query: Query) -> Demand:
    """Batches are joined after the core has made their rows."""
    return replace(query, options=replace(query.options, end_to_end=False)).demand()


def _part(
    job: ExportJob, log: ConnectionLog, query: Query, dissection: Dissection, shard: Shard
) -> PartResult:
    """Write the tables of a shard, in a worker."""
    selects = Selection(query)
    return write_part(job, shard.number, dissection, log, selects, _demand(query), shard.number + 1, shard.of)


def _find_failing_capture(query: Query, tables: ExportOptions, error: UnexpectedError) -> UnexpectedError:
    """Find the capture whose export fails on its own, so that the others can be exported without it. The one
    that was being read is tried first. It may be another one, because rows are written later.

    Returns:
        The error of that capture; ``error`` if each capture can be exported on its own.
    """
    for path in sorted(query.paths, key=lambda path: path != error.capture):
        is_here = not is_stored(tables.directory) and tables.directory.is_dir()
        parent = tables.directory if is_here else None
        with TemporaryDirectory(prefix=".trial-", dir=parent) as directory:
            single_query = replace(query, paths=(path,), no_progress=True)
            single_tables = replace(tables, directory=Path(directory))
            try:
                result = write_tables(
                    single_query, single_tables, manifest.job_of([path], query.options, single_tables), 1
                )
            except UnexpectedError as fault:
                return fault
            except KdissectError:  # a damaged capture does not stop an export
                continue
            if not isinstance(result, Missing) and result[0].interrupted:
                raise click.Abort
    return error
