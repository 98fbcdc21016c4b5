"""Options that say how tables are written -> files, and what is said of them. Holds nothing."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kdissect.cli.options import CRITERIA, mode_option, to_local, together
from kdissect.cli.terminal import warn
from kdissect.errors import UsageError
from kdissect.files import PRIVATE
from kdissect.phrases import facts, many, size
from kdissect.query.filters import SECOND_NS, parse_duration, parse_size
from kdissect.query.nearest import did_you_mean
from kdissect.query.record_filters import RecordFilter, Wanted
from kdissect.query.records import Records
from kdissect.tables.exchanges import BODIES, exchanges
from kdissect.tables.rows import RECORDS, TABLES
from kdissect.tables.table_files import COMPRESSIONS, NONE, ZST, JsonFormat, TableFiles
from kdissect.tables.values import timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kdissect.cli.options import Command
    from kdissect.cli.running import Asked, Run
    from kdissect.limits import Limits
    from kdissect.stats.connection_log import ConnectionLog
    from kdissect.tables.export import Export
    from kdissect.tables.manifest import Job
    from kdissect.tables.table_files import Format

JSONL, PARQUET = "jsonl", "parquet"
PARTITIONS = ("date", "api")
BOTH = "both"
LEAST_ROTATED_BYTES = 1000
ROTATED_BYTES = 256_000_000
LIVE_ROTATED_NS = 300 * SECOND_NS

_NO_DIFFERENCE = frozenset({"folder", "tables", "with_records", "mode"})
"""Options that change nothing in what a table holds."""


class Rotation(NamedTuple):
    """When to begin another file: by its size, or by packet time since it was begun."""

    bytes: int = ROTATED_BYTES
    duration_ns: int | None = None


def to_rotation(text: str) -> tuple[str, int]:
    """``256MB`` or ``5min`` -> a field of ``Rotation``, and its value.

    Raises:
        click.BadParameter: it is neither, or too little for a file.
    """
    said = f'"{text}" is too small; use 256MB, 1GiB, 30s, 5min'
    unit = re.sub(r"[\d.\s]", "", text)
    if unit == "m":
        raise click.BadParameter(f'"{text}" could be a size or a time; use {text}in or {text[:-1]}MB')
    try:
        length_ns = parse_duration(text) if unit != "M" else None
    except UsageError:
        length_ns = None
    if length_ns is not None:
        if length_ns < SECOND_NS:
            raise click.BadParameter(said)
        return "duration_ns", length_ns
    try:
        count = parse_size(text)
    except UsageError:
        raise click.BadParameter(f'"{text}" is not a size or a time; use 256MB, 1GiB, 30s, 5min') from None
    if count < LEAST_ROTATED_BYTES:
        raise click.BadParameter(said)
    return "bytes", count


def _to_tables(text: str) -> tuple[str, ...]:
    """Names of tables.

    Raises:
        click.BadParameter: there is no such table.
    """
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in TABLES:
            hint = did_you_mean(name, TABLES) or f"; known: {', '.join(TABLES)}"
            raise click.BadParameter(f'unknown table "{name}"{hint}')
    return names


def _to_partitions(text: str) -> tuple[str, ...]:
    """What folders are named after.

    Raises:
        click.BadParameter: nothing can be by that.
    """
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    if not set(names) <= set(PARTITIONS) or len(set(names)) < len(names):
        raise click.BadParameter(f'invalid partitioning "{text}": use date, api or date,api')
    return names


def table_options(
    before: str = "", rotated: str = "256MB", form: str = JSONL
) -> Callable[[Command], Command]:
    """How tables are written.

    Args:
        before: begins what is said of each, where a command has other options too.
        rotated: when another file is begun unless it is said.
        form: the format unless it is said.
    """

    def option(name: str, *names: str, text: str, **settings: Any) -> Callable[[Command], Command]:
        said = before + (text[0].lower() + text[1:] if before and text[1].islower() else text)
        return click.option(name, *names, help=said, **settings)

    return together(
        option(
            "--format",
            "form",
            type=click.Choice([JSONL, PARQUET]),
            text=f"JSON lines, or Parquet (needs pyarrow). [default: {form}]",
        ),
        option(
            "--compress",
            "compression",
            type=click.Choice(COMPRESSIONS),
            text="Compression of files; Spark reads a compressed JSON file in one task. [default: none; "
            "Parquet: zst]",
        ),
        option("--tables", type=_to_tables, metavar="TABLE,...", text="Tables to write; see below."),
        option(
            "--bodies",
            type=click.Choice(["none", *BODIES, BOTH]),
            text="Which decoded bodies exchanges include; the others are null. Bodies make up most of "
            "the output. [default: both]",
        ),
        option(
            "--rotate",
            "rotate",
            type=to_rotation,
            multiple=True,
            metavar="SIZE|TIME",
            text="Start a new file at this size, or after this much packet time; both can be given. "
            f"[default: {rotated}]",
        ),
        option(
            "--partition-by",
            type=_to_partitions,
            metavar="date|api|date,api",
            text="Hive-style folders: date=2026-11-21/api=Fetch. Tables without an API use the date only.",
        ),
    )


def export_options(form: str = JSONL) -> Callable[[Command], Command]:
    """Where tables are written, and how.

    Args:
        form: the format unless it is said.
    """
    return together(
        click.option(
            "-o",
            "folder",
            required=True,
            type=click.Path(),
            callback=to_local,
            metavar="DIR",
            help="Folder for the tables; created if it does not exist.",
        ),
        click.option(
            "--records",
            "with_records",
            is_flag=True,
            help="Also write the table records, which decodes all batches.",
        ),
        table_options(form=form),
        mode_option,
        click.option(
            "--overwrite",
            is_flag=True,
            help="Remove an existing export in DIR. Other files are never removed.",
        ),
    )


class Tables(NamedTuple):
    """How tables are written, as the options say it."""

    folder: Path
    form: str
    compression: str | None
    tables: tuple[str, ...] | None
    with_records: bool
    bodies: str
    rotation: Rotation
    partition_by: tuple[str, ...]
    mode: int
    filtered: bool
    told: dict[str, Any]

    @classmethod
    def take(cls, options: dict[str, Any], rotated_ns: int | None = None) -> Tables:
        """Take its own out of a command's options. To be called before others take theirs, because what is
        asked for is written down beside the tables.

        Args:
            options: of the command.
            rotated_ns: after how long another file is begun unless it is said.
        """
        names = (
            "folder",
            "form",
            "compression",
            "tables",
            "with_records",
            "bodies",
            "rotate",
            "partition_by",
            "mode",
        )
        told = {name: options[name] for name in names if name not in _NO_DIFFERENCE and options[name]}
        own = {name: options.pop(name) for name in names}
        asked = (*CRITERIA, "where", "ports", "decode_as", "show_secrets")
        return cls(
            Path(own["folder"]),
            own["form"] or JSONL,
            own["compression"],
            own["tables"],
            own["with_records"],
            own["bodies"] or BOTH,
            Rotation(**{"duration_ns": rotated_ns, **dict(own["rotate"])}),
            own["partition_by"] or (),
            own["mode"] or PRIVATE,
            any(options.get(name) for name in (*CRITERIA, "where")),
            told | {name: options[name] for name in asked if options.get(name)},
        )

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
        from kdissect.tables.parquet import ParquetFormat

        return ParquetFormat(self.compression or ZST, limits)

    def files(self, name: str, form: Format, limits: Limits) -> TableFiles:
        """The files of a table."""
        table = TABLES[name]
        if name == "exchanges":
            table = exchanges(frozenset(BODIES) if self.bodies == BOTH else frozenset({self.bodies}))
        return TableFiles(
            self.folder / name,
            table,
            form,
            partition_by=self.partition_by,
            rotate_bytes=self.rotation.bytes,
            limits=limits,
            mode=self.mode,
        )

    def job(self, captures: Sequence[Mapping[str, Any]], limits: Limits) -> Job:
        """What is exported, as JSON has it."""
        changed = {
            bound.name: value
            for bound in fields(limits)
            if (value := getattr(limits, bound.name)) != bound.default
        }
        job = {"captures": captures, "options": self.told, "limits": changed}
        made: Job = json.loads(json.dumps(job, default=sorted))  # ports are sets
        return made


def records_of(asked: Asked) -> Records:
    """Finds the records that are asked for."""
    wanted = Wanted(topics=asked.criteria["topic"], partitions=asked.criteria["partition"])
    return Records(RecordFilter(wanted, asked.limits), asked.limits, show_secrets=asked.show_secrets)


@contextmanager
def filling(made: Export, run: Run, log: ConnectionLog, lost: Sequence[str] = ()) -> Iterator[None]:
    """Rows are written meanwhile; then all files are finished, or if something is wrong those that are not
    are removed.

    Args:
        made: writes them.
        run: what is read.
        log: of its connections.
        lost: what was wrong with captures that are left out, so that the export is not complete.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        yield
        warnings = [*lost, *run.capture.warnings, *([run.fault] if run.fault is not None else [])]
        span = log.census.span_ns
        clock = {
            "started": started,
            "first_packet": None if span is None else timestamp(span[0]),
            "last_packet": None if span is None else timestamp(span[1]),
        }
        end = {"clock": clock, "packets": run.dissection.counts["packets"], "warnings": warnings}
        complete = not (run.interrupted or run.failed or lost)
        made.close(run.capture.sources, warnings, complete=complete, end=end)
    except BaseException:
        made.abandon()
        raise


def tell(made: Export, records: Records, folder: Path) -> None:
    """Say on stderr what was written."""
    if records.anomalies:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in records.anomalies.most_common())
        warn(f"anomalies in record batches: {kinds}")
    rows = facts(*(f"{name} {count:,}" for name, count in made.rows.items()))
    warn(f"{many(made.files, 'file')} ({size(made.bytes)}) written to {folder}; rows: {rows}")
