"""``kdissect export``: captures as typed tables, for Spark and whatever else reads JSON lines or Parquet."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kdissect.analysis.connectionlog import ConnectionLog
from kdissect.analysis.nearest import did_you_mean
from kdissect.analysis.quantities import parse_size
from kdissect.analysis.recordfilters import RecordFilter, Wanted
from kdissect.analysis.records import Records
from kdissect.cli.inputs import STDIN, captures
from kdissect.cli.options import CRITERIA, filter_options, input_options
from kdissect.cli.running import Asked, Run, running
from kdissect.cli.terminal import warn
from kdissect.cli.whole import Whole
from kdissect.sinks import manifest
from kdissect.sinks.export import Export
from kdissect.sinks.phrases import facts, many, size
from kdissect.sinks.rowfiles import COMPRESSIONS, NONE, ZST, JsonFormat
from kdissect.sinks.tablefiles import TableFiles
from kdissect.sinks.tables.catalogue import RECORDS, TABLES
from kdissect.sinks.tables.exchanges import BODIES, exchanges
from kdissect.sinks.values import timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kdissect.limits import Limits
    from kdissect.sinks.rowfiles import Format

JSONL, PARQUET = "jsonl", "parquet"
PARTITIONS = ("date", "api")
LEAST_ROTATED_BYTES = 1000

EXAMPLES = """\b
Examples:
  kdissect export capture.pcap -o tables
  kdissect export --format parquet captures/ -o tables
  kdissect export --format parquet --partition-by date,api 'ring-*.pcapng.gz' -o tables
  kdissect export --bodies none --tables exchanges,partitions --api Fetch capture.pcap -o tables
  kdissect export --records --topic orders capture.pcap -o tables
  tcpdump -i eth0 -U -w - port 9092 | kdissect export - -o tables

Tables, all of which but records are written unless --tables says which: exchanges, records, partitions,
connections, groups, topic_ids, anomalies, captures; docs/columns.md has their columns. Each is a folder of
DIR. Its files appear when they are complete; schema.json, schema.ddl, create_table.sql and manifest.json
stand beside them in _kdissect. An export that was interrupted is made again by the same command; one that
is complete is left alone, tables that it does not have are added.

  spark.read.schema(open("tables/exchanges/_kdissect/schema.ddl").read()).json("tables/exchanges")
  spark.read.parquet("tables/exchanges")
"""


def _to_size(text: str) -> int:
    """Bytes.

    Raises:
        click.BadParameter: too few for a file.
    """
    count = parse_size(text)
    if count < LEAST_ROTATED_BYTES:
        raise click.BadParameter(f'"{text}" is too small; write 256MB, 1GiB')
    return count


def _to_tables(text: str) -> tuple[str, ...]:
    """Names of tables.

    Raises:
        click.BadParameter: there is no such table.
    """
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in TABLES:
            hint = did_you_mean(name, TABLES) or f"; there are {', '.join(TABLES)}"
            raise click.BadParameter(f'no table "{name}"{hint}')
    return names


def _to_partitions(text: str) -> tuple[str, ...]:
    """What folders are named after.

    Raises:
        click.BadParameter: nothing can be by that.
    """
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    if not set(names) <= set(PARTITIONS) or len(set(names)) < len(names):
        raise click.BadParameter(f'"{text}" is no partition; write date, api or date,api')
    return names


class Look(NamedTuple):
    """How tables are written, as the options say it."""

    folder: Path
    form: str
    compression: str | None
    tables: tuple[str, ...] | None
    with_records: bool
    bodies: str
    rotate_bytes: int
    partition_by: tuple[str, ...]
    overwrite: bool

    @property
    def wanted(self) -> tuple[str, ...]:
        """The tables, in the order of the catalogue."""
        named = self.tables or tuple(name for name in TABLES if name != RECORDS)
        return tuple(name for name in TABLES if name in named or (name == RECORDS and self.with_records))

    def format(self, limits: Limits) -> Format:
        """The format of files.

        Raises:
            UsageError: a library for it is missing.
        """
        if self.form == JSONL:
            return JsonFormat(self.compression or NONE)
        from kdissect.sinks.parquet import ParquetFormat

        return ParquetFormat(self.compression or ZST, limits)

    def files(self, name: str, form: Format, limits: Limits) -> TableFiles:
        """The files of a table."""
        table = TABLES[name]
        if name == "exchanges":
            table = exchanges(frozenset(BODIES) if self.bodies == "both" else frozenset({self.bodies}))
        return TableFiles(
            self.folder / name,
            table,
            form,
            partition_by=self.partition_by,
            rotate_bytes=self.rotate_bytes,
            limits=limits,
        )


@click.command(epilog=EXAMPLES)
@input_options
@filter_options
@click.option(
    "-o",
    "folder",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder of the tables; made where it does not exist.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice([JSONL, PARQUET]),
    default=JSONL,
    show_default=True,
    help="JSON lines, or Parquet, which needs pyarrow.",
)
@click.option(
    "--compress",
    "compression",
    type=click.Choice(COMPRESSIONS),
    help="Of the files; Spark reads a compressed JSON file in one task. [default: none; Parquet: zst]",
)
@click.option("--tables", type=_to_tables, metavar="TABLE,...", help="These tables alone; see below.")
@click.option("--records", "with_records", is_flag=True, help="The table records too: opens every batch.")
@click.option(
    "--bodies",
    type=click.Choice(["none", *BODIES, "both"]),
    default="both",
    show_default=True,
    help="Which decoded bodies exchanges have; the others are null. They are most of what is written.",
)
@click.option(
    "--rotate",
    "rotate_bytes",
    type=_to_size,
    default="256MB",
    show_default=True,
    metavar="SIZE",
    help="Begin another file when one has this size.",
)
@click.option(
    "--partition-by",
    type=_to_partitions,
    default="",
    metavar="date|api|date,api",
    help="Folders as Hive has them: date=2026-11-21/api=Fetch. Tables without an api have those of the date.",
)
@click.option(
    "--overwrite", is_flag=True, help="Remove an export that DIR holds. No other files are ever removed."
)
def export(**options: Any) -> None:
    """Write typed tables for Spark, DuckDB, pandas, polars.

    FILE can be a folder, which stands for all captures in it and below, or a pattern in quotes. Exchanges
    that pass the filters are written, with what they do to partitions and groups; so are the connections of
    these. Everything that read --json shows is there, in columns of the same names.
    """
    is_filtered = any(options.get(name) for name in (*CRITERIA, "where"))
    told = {name: value for name, value in options.items() if name not in _NO_DIFFERENCE and value}
    asked = Asked.take(options)
    look = Look(**options)
    asked = replace(asked, paths=captures(asked.paths, but=look.folder))
    form = look.format(asked.limits)
    job = _job(asked, told)
    log = ConnectionLog(asked.limits)
    records = _records(asked)
    with running(asked, bar=lambda _: True, survey=log) as run:
        wanted = manifest.missing(look.folder, look.wanted, job, overwrite=look.overwrite)
        if not wanted:
            warn(f"{look.folder} holds this export already; --overwrite makes it again")
            return
        files = {name: look.files(name, form, asked.limits) for name in wanted}
        made = Export(
            look.folder, files, form, job, log, records, asked.limits, every_connection=not is_filtered
        )
        _write(run, made, log)
    run.tell(run.shown)
    if records.anomalies:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in records.anomalies.most_common())
        warn(f"wrong or odd in record batches: {kinds}")
    rows = facts(*(f"{name} {count:,}" for name, count in made.rows.items()))
    warn(f"{many(made.files, 'file')} of {size(made.bytes)} written to {look.folder}; rows: {rows}")
    if run.interrupted:
        is_pipe = any(each["bytes"] is None for each in job["captures"])
        warn(f"the export is not complete; {'--overwrite' if is_pipe else 'the same command'} makes it again")
    run.end("exchange")


_NO_DIFFERENCE = frozenset(
    {"files", "also_files", "no_progress", "folder", "tables", "with_records", "overwrite", "limits"}
)
"""Options that change nothing in what a table holds, or that the manifest has in other words."""


def _job(asked: Asked, told: Mapping[str, Any]) -> manifest.Job:
    """What is exported, as JSON has it."""
    limits = {
        bound.name: value
        for bound in fields(asked.limits)
        if (value := getattr(asked.limits, bound.name)) != bound.default
    }
    job = {"captures": [_capture(path) for path in asked.paths], "options": told, "limits": limits}
    made: manifest.Job = json.loads(json.dumps(job, default=sorted))  # ports are sets
    return made


def _capture(path: str) -> dict[str, Any]:
    """A capture, such that it is seen when there is another one in its place."""
    if path == STDIN or not Path(path).is_file():
        return {"path": path, "bytes": None, "modified": None}
    status = Path(path).stat()
    modified = datetime.fromtimestamp(status.st_mtime, UTC)
    return {"path": path, "bytes": status.st_size, "modified": modified.isoformat()}


def _records(asked: Asked) -> Records:
    wanted = Wanted(topics=asked.criteria["topic"], partitions=asked.criteria["partition"])
    return Records(RecordFilter(wanted, asked.limits), asked.limits, show_secrets=asked.show_secrets)


def _write(run: Run, made: Export, log: ConnectionLog) -> None:
    whole = Whole()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        with whole.listening():
            run.show(run.selected(whole(made.pass_over)), whole(made.feed))
        warnings = [*run.capture.warnings, *([run.fault] if run.fault is not None else [])]
        span = log.census.span_ns
        clock = {
            "started": started,
            "first_packet": None if span is None else timestamp(span[0]),
            "last_packet": None if span is None else timestamp(span[1]),
        }
        made.close(
            run.capture.sources,
            warnings,
            complete=not run.interrupted,
            end={"clock": clock, "packets": run.dissection.counts["packets"], "warnings": warnings},
        )
    except BaseException:
        made.abandon()
        raise
