"""``kdissect export``: captures as typed tables, for Spark and whatever else reads JSON lines or Parquet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from kdissect.capture.inputs import captures
from kdissect.cli.listening import DeferInterrupt
from kdissect.cli.options import filter_options, input_options
from kdissect.cli.running import Query, running
from kdissect.cli.sharing import SharedRun, jobs_option, processes, sharing
from kdissect.cli.tables import export_options, filling, take_export, tell
from kdissect.cli.terminal import FAILED, warn
from kdissect.errors import KdissectError, UnexpectedError
from kdissect.query.records import records_of
from kdissect.stats.connection_log import ConnectionLog
from kdissect.tables import manifest
from kdissect.tables.export import Export, ExportJob, tables_of
from kdissect.tables.table_files import locked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.cli.running import Run
    from kdissect.options import ExportOptions
    from kdissect.query.records import Records
    from kdissect.tables.manifest import Job

EXAMPLES = """\b
Examples:
  kdissect export capture.pcap -o tables
  kdissect export --format parquet captures/ -o tables
  kdissect export --format parquet --partition-by date,api 'ring-*.pcapng.gz' -o tables
  kdissect export --bodies none --tables exchanges,partitions --api Fetch capture.pcap -o tables
  kdissect export --records --topic orders capture.pcap -o tables
  tcpdump -i eth0 -U -w - port 9092 | kdissect export - -o tables

Tables: exchanges, records, partitions, connections, groups, topic_ids, anomalies, captures. By default all
but records are written; --tables selects. docs/columns.md describes their columns. Each table is a folder in
DIR, whose files appear once they are complete; its subfolder _kdissect has schema.json, schema.ddl,
create_table.sql and manifest.json. To complete an interrupted export, run the same command again. A complete
export is left alone; missing tables are added.

  spark.read.schema(open("tables/exchanges/_kdissect/schema.ddl").read()).json("tables/exchanges")
  spark.read.parquet("tables/exchanges")
"""


@click.command(epilog=EXAMPLES)
@input_options
@filter_options
@export_options()
@jobs_option(
    "Stdin and --rotate by time use one process.", "Each writes its own files; the rows are the same."
)
def export(jobs: int | None, **options: Any) -> None:
    """Write typed tables for Spark, DuckDB, pandas, polars.

    FILE can be a folder (all captures in it and its subfolders) or a quoted pattern. Filters select
    exchanges, whose partitions, group events and connections are written with them. Columns are named like
    the keys of read --json.
    """
    tables = take_export(options)
    overwrite = options.pop("overwrite")
    query = Query.take(options)
    query = replace(query, paths=captures(query.paths, exclude=tables.folder))
    job = manifest.job_of(query.paths, query.options, tables)
    is_pipe = any(each["bytes"] is None for each in job["captures"])
    jobs = processes(query, jobs, ever=tables.rotate_ns is None)
    lost: list[str] = []
    while True:
        try:
            done = _write(query, tables, job, jobs, lost, overwrite=overwrite)
            break
        except UnexpectedError as error:
            if len(query.paths) == 1 or is_pipe:  # which is read once
                raise
            fault = _alone(query, tables, error)
            if fault.capture is None:
                raise
            lost.append(str(fault))
            warn(f"{fault}; the other captures are exported without it")
            query = replace(query, paths=tuple(path for path in query.paths if path != fault.capture))
    if done is None:
        warn(f"{tables.folder} already has this export; use --overwrite to redo it")
        return
    run, made, records = done
    run.tell(run.shown)
    tell(made, records, tables.folder)
    if run.interrupted or run.failed or lost:
        warn(
            "the export is incomplete; "
            f"{'use --overwrite' if is_pipe else 'run the same command again'} to complete it"
        )
    run.end("exchange")
    if lost:
        raise click.exceptions.Exit(FAILED)


def _write(
    query: Query,
    tables: ExportOptions,
    described: Job,
    jobs: int,
    lost: Sequence[str] = (),
    *,
    overwrite: bool = False,
) -> tuple[Run, Export, Records] | None:
    """Write the tables of all captures that are asked for, and say so beside them; None: they are there.

    Args:
        query: what is read.
        tables: what is written.
        described: the export, as its manifests describe it.
        jobs: processes that write.
        lost: what was wrong with captures of the job that are not asked for any more.
        overwrite: remove another export.

    Raises:
        KdissectError: it could not be done.
    """
    log = ConnectionLog(query.limits)
    records = records_of(query.options)
    opened = (
        running(query, bar=lambda _: True, observer=log) if jobs == 1 else sharing(query, bar=lambda _: True)
    )
    with opened as run, locked(tables.folder, tables.mode):
        wanted = manifest.missing(tables.folder, tables_of(tables), described, overwrite=overwrite)
        if not wanted:
            return None
        job = ExportJob(query.options, replace(tables, tables=tuple(wanted)), query.paths, run.first_ns)
        made = Export(job, job.files(in_parts=jobs > 1), described, log, records)
        whole = DeferInterrupt()
        with filling(made, run, log, lost):
            if isinstance(run, SharedRun):
                results = run.export(jobs, job, log)
                made.adopt(results)
                for each in results:
                    records.add(each.records)
            else:
                with whole.listening():
                    run.show(run.selected(whole(made.pass_over)), whole(made.feed))
    return run, made, records


def _alone(query: Query, tables: ExportOptions, error: UnexpectedError) -> UnexpectedError:
    """Find the capture that fails alone, to export the others without it: the one that was being read is
    tried first, but it may be another one whose rows were written only then.

    Returns:
        What was wrong with it; ``error`` where each can be exported alone.
    """
    for path in sorted(query.paths, key=lambda path: path != error.capture):
        there = tables.folder if tables.folder.is_dir() else None
        with TemporaryDirectory(prefix=".trial-", dir=there) as folder:
            one = replace(query, paths=(path,), no_progress=True)
            trial = replace(tables, folder=Path(folder))
            try:
                done = _write(one, trial, manifest.job_of([path], query.options, trial), 1)
            except UnexpectedError as fault:
                return fault
            except KdissectError:  # it is damaged, which the others can do with
                continue
            if done is not None and done[0].interrupted:
                raise click.Abort
    return error
