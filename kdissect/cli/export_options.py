"""Options that say how tables are written -> ``ExportOptions``; the end of an export, and its report."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kdissect.capture.inputs import output_directory
from kdissect.cli.options import combine, mode_option
from kdissect.cli.terminal import warn
from kdissect.errors import UsageError
from kdissect.files import PRIVATE
from kdissect.limits import SECOND_NS
from kdissect.nearest import did_you_mean
from kdissect.options import BOTH, JSONL, PARQUET, ROTATED_BYTES, ExportOptions
from kdissect.phrases import facts, many, most_frequent, size
from kdissect.query.filters import parse_duration, parse_size
from kdissect.tables.exchanges import BODIES
from kdissect.tables.rows import DEFAULT_TABLES, RECORDS, TABLES
from kdissect.tables.table_files import COMPRESSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kdissect.cli.options import Command
    from kdissect.query.records import Records
    from kdissect.runs.run import Run
    from kdissect.tables.export import Export
    from kdissect.tables.manifest import Job, Missing

PARTITIONS = ("date", "api")
MIN_ROTATED_BYTES = 1000
LIVE_ROTATED_NS = 300 * SECOND_NS


def to_rotation(text: str) -> tuple[str, int]:
    """``256MB`` -> ``("bytes", 256_000_000)``, ``5min`` -> ``("duration_ns", 300_000_000_000)``.

    Raises:
        click.BadParameter: the string is not a size or time, is ambiguous, or is too small.
    """
    too_small = f'"{text}" is too small; use 256MB, 1GiB, 30s, 5min'
    unit = re.sub(r"[\d.\s]", "", text)
    if unit == "m":
        raise click.BadParameter(f'"{text}" is ambiguous; use {text}in or {text[:-1]}MB')
    try:
        length_ns = parse_duration(text) if unit != "M" else None
    except UsageError:
        length_ns = None
    if length_ns is not None:
        if length_ns < SECOND_NS:
            raise click.BadParameter(too_small)
        return "duration_ns", length_ns
    try:
        count = parse_size(text)
    except UsageError:
        raise click.BadParameter(f'"{text}" is not a size or a time; use 256MB, 1GiB, 30s, 5min') from None
    if count < MIN_ROTATED_BYTES:
        raise click.BadParameter(too_small)
    return "bytes", count


def _to_directory(_: click.Context, parameter: click.Parameter, text: str) -> Path:
    """The directory for tables.

    Raises:
        click.BadParameter: the string is a URL of another kind than those of object stores.
    """
    try:
        return output_directory(text)
    except UsageError as error:
        raise click.BadParameter(str(error), param=parameter) from None


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
    """Names of partition columns.

    Raises:
        click.BadParameter: there is no such partitioning.
    """
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    if not set(names) <= set(PARTITIONS) or len(set(names)) < len(names):
        raise click.BadParameter(f'invalid partitioning "{text}": use date, api or date,api')
    return names


def table_options(
    prefix: str = "", rotated: str = "256MB", form: str = JSONL, *, by_time: bool = True
) -> Callable[[Command], Command]:
    """How tables are written.

    Args:
        prefix: start of the help of each option.
        rotated: the default of ``--rotate``, for the help.
        form: the default format.
        by_time: whether ``--rotate`` also takes a time.
    """

    def option(name: str, *names: str, text: str, **settings: Any) -> Callable[[Command], Command]:
        help_text = prefix + (text[0].lower() + text[1:] if prefix and text[1].islower() else text)
        return click.option(name, *names, help=help_text, **settings)

    return combine(
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
            text="File compression; Spark reads a compressed JSON file in a single task. [default: none; "
            "Parquet: zst]",
        ),
        option(
            "--tables",
            type=_to_tables,
            metavar="TABLE,...",
            text=f"Tables to write; any of {', '.join(TABLES)}. [default: all but records]",
        ),
        option(
            "--bodies",
            type=click.Choice(["none", *BODIES, BOTH]),
            text="Decoded bodies to include in exchanges; the others are null. Bodies make up most of the "
            "output. [default: both]",
        ),
        option(
            "--rotate",
            "rotate",
            type=to_rotation,
            multiple=True,
            metavar="SIZE|TIME" if by_time else "SIZE",
            text=(
                "Start a new file at this size or after this long (by packet timestamps); repeat the option "
                f"to set both. [default: {rotated}]"
                if by_time
                else f"Start a new file at this size. [default: {rotated}]"
            ),
        ),
        option(
            "--partition-by",
            type=_to_partitions,
            metavar="date|api|date,api",
            text="Hive-style paths: date=2026-11-21/api=Fetch. Tables without an API use only the date.",
        ),
    )


def export_options(form: str = JSONL, *, by_time: bool = True) -> Callable[[Command], Command]:
    """Where tables are written, and how.

    Args:
        form: the default format.
        by_time: whether ``--rotate`` also takes a time.
    """
    return combine(
        click.option(
            "-o",
            "--output",
            "directory",
            required=True,
            type=click.Path(),
            callback=_to_directory,
            metavar="DIR",
            help="Directory for the tables, or its URL in an object store; created if it does not exist.",
        ),
        click.option(
            "--records",
            "with_records",
            is_flag=True,
            help="Also write the records table (decodes all batches).",
        ),
        table_options(form=form, by_time=by_time),
        mode_option,
        click.option(
            "--overwrite",
            is_flag=True,
            help="Remove an existing export in DIR. Other files are never removed.",
        ),
        click.option(
            "--redo",
            is_flag=True,
            help="Replace what DIR has of these captures, for example after an upgrade of kdissect.",
        ),
    )


def take_export(options: dict[str, Any], rotated_ns: int | None = None) -> ExportOptions:
    """Remove ``export_options`` from a command's options and return their values.

    Args:
        options: of the command.
        rotated_ns: the default time after which a new file is started; None: no time.
    """
    rotation = {"duration_ns": rotated_ns, "bytes": ROTATED_BYTES, **dict(options.pop("rotate"))}
    tables = options.pop("tables") or ()
    if options.pop("with_records"):
        tables = (*(tables or DEFAULT_TABLES), RECORDS)
    return ExportOptions(
        output_directory(options.pop("directory")),
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
def finish_or_abandon(writer: Export, run: Run, failures: Sequence[str] = ()) -> Iterator[None]:
    """Finish all files of an export after the block, or remove unfinished ones after an exception.

    Args:
        writer: writes the files.
        run: the run whose rows are written.
        failures: errors of captures that were left out, which make the export incomplete.
    """
    try:
        yield
        totals = run.totals
        warnings = [*failures, *totals.problems]
        complete = not (run.interrupted or totals.failed or failures)
        writer.close(totals.sources, warnings, complete=complete, packets=totals.counts["packets"])
    except BaseException:
        writer.abandon()
        raise


def report_existing(directory: Path, lacks: Missing) -> None:
    """Report that a directory has a complete export."""
    if lacks.outdated:
        versions = ", ".join(lacks.outdated)
        warn(f"{directory} already has this export, from kdissect {versions}; use --redo to write it again")
    else:
        warn(f"{directory} already has this export; use --overwrite to redo it")


def report_kept(directory: Path, lacks: Missing, job: Job) -> None:
    """Report that an export is added to those in its directory."""
    there = len(job["captures"]) - len(lacks.captures)
    of_version = f", from kdissect {', '.join(lacks.outdated)}" if lacks.outdated else ""
    warn(f"{directory} already has {there:,} of {many(len(job['captures']), 'capture')}{of_version}")


def report_export(writer: Export, records: Records, directory: Path) -> None:
    """Report on stderr what was written."""
    for warning in writer.warnings:
        warn(warning)
    if records.anomalies:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in most_frequent(records.anomalies))
        warn(f"anomalies in record batches: {kinds}; details: the anomalies table")
    rows = facts(*(f"{name} {count:,}" for name, count in writer.rows.items()))
    warn(f"{many(writer.files, 'file')} ({size(writer.bytes)}) written to {directory}; rows: {rows}")
