"""Options that say how tables are written -> files, and what is said of them. Holds nothing."""

from __future__ import annotations

import re
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.options import mode_option, to_local, together
from kdissect.cli.terminal import warn
from kdissect.errors import UsageError
from kdissect.files import PRIVATE
from kdissect.options import BOTH, JSONL, PARQUET, ROTATED_BYTES, ExportOptions
from kdissect.phrases import facts, many, size
from kdissect.query.filters import SECOND_NS, parse_duration, parse_size
from kdissect.query.nearest import did_you_mean
from kdissect.tables.exchanges import BODIES
from kdissect.tables.rows import DEFAULT_TABLES, RECORDS, TABLES
from kdissect.tables.table_files import COMPRESSIONS
from kdissect.tables.values import timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kdissect.cli.options import Command
    from kdissect.cli.run import Run
    from kdissect.query.records import Records
    from kdissect.stats.connection_log import ConnectionLog
    from kdissect.tables.export import Export

PARTITIONS = ("date", "api")
LEAST_ROTATED_BYTES = 1000
LIVE_ROTATED_NS = 300 * SECOND_NS


def to_rotation(text: str) -> tuple[str, int]:
    """``256MB`` or ``5min`` -> whether it is ``bytes`` or ``duration_ns``, and how many.

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


def take_export(options: dict[str, Any], rotated_ns: int | None = None) -> ExportOptions:
    """Take what ``export_options`` say out of a command's options, and leave the rest.

    Args:
        options: of the command.
        rotated_ns: after how long another file is begun unless it is said.
    """
    rotation = {"duration_ns": rotated_ns, "bytes": ROTATED_BYTES, **dict(options.pop("rotate"))}
    tables = options.pop("tables") or ()
    if options.pop("with_records"):
        tables = (*(tables or DEFAULT_TABLES), RECORDS)
    return ExportOptions(
        Path(options.pop("folder")),
        options.pop("form") or JSONL,
        options.pop("compression"),
        tables,
        options.pop("bodies") or BOTH,
        options.pop("partition_by") or (),
        rotation["bytes"],
        rotation["duration_ns"],
        options.pop("mode") or PRIVATE,
    )


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
