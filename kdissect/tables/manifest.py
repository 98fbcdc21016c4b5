"""A table and its files -> the directory ``_kdissect`` beside them: how to read the files, and their sources.
Stateless.

    schema.json         a StructType of Spark
    schema.ddl          the same as DDL
    create_table.sql    a statement that creates a table over the directory
    manifest.json       the files, whether the export is complete, the captures and options it was made from

The manifest is written before the first file, saying that the export is not complete, and again at the end.
So the next run knows what is in the directory: a complete export, which it leaves alone; an unfinished one,
which it writes again; or files of other programs. An export of more captures is added: the manifest describes
the latest job, and has the earlier ones in ``jobs``. A live export cannot start over: it adds to what earlier
runs wrote, and its manifest lists those runs.
"""

from __future__ import annotations

import json
import platform
import re
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.capture import stores
from kdissect.capture.inputs import STDIN
from kdissect.errors import OutputError, WriteError
from kdissect.files import create, make_directory, publish, replacing
from kdissect.options import WINDOW
from kdissect.phrases import many
from kdissect.tables import spark_schema
from kdissect.tables.table_files import (
    UNFINISHED,
    FinishedFile,
    Listing,
    file_number,
    remove_row_files,
    row_files,
    visible_files,
)
from kdissect.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from kdissect.capture.stores import Status
    from kdissect.limits import Limits
    from kdissect.options import ExportOptions, Options
    from kdissect.tables.columns import Column
    from kdissect.tables.table_files import Format, TableFiles

DIRECTORY = "_kdissect"
SCHEMA, DDL, CREATE_TABLE, MANIFEST = "schema.json", "schema.ddl", "create_table.sql", "manifest.json"

Job = dict[str, Any]
"""What an export is made from: captures and options, as JSON. Equal jobs make equal exports."""

_FILE_SETTINGS = ("form", "compression", "bodies", "partition_by", "rotate_bytes", "rotate_ns")
"""Fields of ``ExportOptions`` that change the files."""
_UNFINISHED_MANIFEST = f".{MANIFEST}{UNFINISHED}"
_MAX_RUNS = 100
_NO_FIELDS: Mapping[str, Any] = {}
_OLDER = ("files", "rows", "bytes")
_HINT = "use a new directory"
_AGAIN = "--overwrite exports it again"
_ROWS = re.compile(r"\.(parquet|jsonl?)(\.gz|\.zst)?$")
"""The end of the name of a file that has rows for those who read the whole directory."""
_FIRST = {"names": WINDOW}  # what the first versions did, whose manifests do not say it
_OF_CAPTURES = frozenset({"cluster", "clusters"})
"""Options that jobs with other captures need not share."""
_NOT_IN_JOB = ("limits", "end_to_end", "pcapng_files")  # the latter two follow from the rest
_JOB_FIELDS = (
    *("complete", "clock", "packets", "warnings", "job", "versions", "written"),
    *("rows", "bytes", "files"),
)
_RUN_FIELDS = ("complete", "first_part", "clock", "packets", "warnings", "job", "versions", "written")


def job_of(
    captures: Iterable[str],
    options: Options,
    export: ExportOptions,
    *,
    is_live: bool = False,
    statuses: Mapping[str, Status] = _NO_FIELDS,
    begins: Mapping[str, int] = _NO_FIELDS,
) -> Job:
    """The job of an export; live captures have only a name.

    Args:
        captures: their names.
        options: what is dissected.
        export: how the tables are written.
        is_live: whether the captures are live.
        statuses: those that are already known.
        begins: ``stores.begins`` of files, as far as known.
    """
    settings = {name: getattr(export, name) for name in _FILE_SETTINGS}
    for setting in fields(options):
        value = getattr(options, setting.name)
        if setting.name not in _NOT_IN_JOB and value != _FIRST.get(setting.name, setting.default):
            settings[setting.name] = value
    changed = {
        limit.name: value
        for limit in fields(options.limits)
        if (value := getattr(options.limits, limit.name)) != limit.default
    }
    job = {
        "captures": [
            _capture(path, statuses.get(path), begins.get(path), is_live=is_live) for path in captures
        ],
        "options": {name: value for name, value in settings.items() if value},
        "limits": changed,
    }
    described: Job = json.loads(json.dumps(job, default=sorted))  # ports are sets
    return described


def _capture(path: str, status: Status | None, begins: int | None, *, is_live: bool) -> dict[str, Any]:
    """A capture, with the properties that differ if another file has replaced it."""
    if status is None and not (is_live or path == STDIN):
        with suppress(OSError):
            status = stores.status(path)
    if status is None or status.size is None:
        return {"path": path, "bytes": None, "modified": None}
    if begins is None:
        with suppress(OSError):
            begins = stores.begins(path, status.size)
    modified = datetime.fromtimestamp(status.modified_ns / 1e9, UTC)
    return {"path": path, "bytes": status.size, "modified": modified.isoformat(), "begins": begins}


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a capture is the one of that name that was exported: its content counts, not its time."""
    name = "modified" if None in (one.get("begins"), other.get("begins")) else "begins"
    return one["bytes"] is not None and (one["bytes"], one[name]) == (other["bytes"], other[name])


class Earlier(NamedTuple):
    """What earlier runs left in the directory.

    Attributes:
        runs: from their manifests, by table; the latest last.
        files: number of their files, in all tables.
        removed: number of unfinished files that were removed: a run was killed.
    """

    runs: dict[str, list[dict[str, Any]]]
    files: int
    removed: int


class Missing(NamedTuple):
    """What the tables in a directory lack of a job.

    Attributes:
        tables: those that lack something; empty: the directory has everything.
        job: the job, of the captures that these lack.
        kept: their other jobs, as their manifests have them.
        outdated: versions of kdissect, other than this one, that wrote what the directory has.
    """

    tables: list[str]
    job: Job
    kept: dict[str, list[dict[str, Any]]]
    outdated: list[str]

    @property
    def captures(self) -> set[str]:
        """The captures to read."""
        return {each["path"] for each in self.job["captures"]}


def missing(
    directory: Path, tables: Iterable[str], job: Job, *, overwrite: bool = False, redo: bool = False
) -> Missing:
    """Find out what must be written to a directory. Nothing is changed.

    Args:
        directory: may contain an export, or not exist.
        tables: which are requested.
        job: what the export is made from.
        overwrite: write everything, in place of what is there.
        redo: write everything, in place of earlier exports of the same captures.

    Raises:
        OutputError: the directory contains something that must not be removed, or an export with other
            options; or the files of a table are not those of its manifest.
    """
    requested, manifests = list(tables), _manifests(directory)
    try:
        for name in requested:
            if name not in manifests and _has_files(directory / name):
                raise OutputError(f"{directory / name} is not empty and has no export; {_HINT}")
    except OSError as error:
        raise WriteError.of(directory, error) from None
    if overwrite:
        return Missing(requested, job, {}, [])
    lacking: dict[str, list[dict[str, Any]]] = {}
    kept: dict[str, list[dict[str, Any]]] = {}
    versions = set[str]()
    for name, manifest in manifests.items():
        entries = _kept(directory / name, manifest, job, redo=redo and name in requested)
        known = {each["path"]: entry for entry in entries for each in entry["job"]["captures"]}
        if name in requested:
            kept[name] = entries
            lacking[name] = [each for each in job["captures"] if each["path"] not in known]
            versions |= {
                known[each["path"]]["versions"]["kdissect"]
                for each in job["captures"]
                if each["path"] in known
            }
            files = {file["path"]: file["bytes"] for entry in entries for file in entry["files"]}
            is_all = len(entries) == len(_entries(manifest)) and is_complete(manifest)
            compare(directory / name, files, is_all=is_all)
    lacking.update((name, job["captures"]) for name in requested if name not in manifests)
    left = [name for name in requested if lacking[name]]
    captures = lacking[left[0]] if left else []
    if (other := next((name for name in left if lacking[name] != captures), None)) is not None:
        raise OutputError(
            f"{directory / left[0]} and {directory / other} lack different captures; "
            f"export them one after the other with --tables"
        )
    versions.discard(__version__)
    rest = {**job, "captures": captures}
    return Missing(left, rest, {name: kept.get(name, []) for name in left}, sorted(versions))


def _settings(job: Job, without: Collection[str]) -> tuple[dict[str, Any], Any]:
    """The options of a job except some, and its limits."""
    return {name: value for name, value in job["options"].items() if name not in without}, job["limits"]


def _kept(table: Path, manifest: Mapping[str, Any], job: Job, *, redo: bool) -> list[dict[str, Any]]:
    """The jobs of a table that remain beside a job: those of other captures, and those that are complete,
    unless they are to be done again.

    Raises:
        OutputError: one has other options, or one of its captures has changed.
    """
    given = {each["path"]: each for each in job["captures"]}
    kept = []
    for entry in _entries(manifest):
        own = {each["path"]: each for each in entry["job"]["captures"]}
        common = own.keys() & given.keys()
        is_again = common and (redo or not entry["complete"])
        is_whole = common == own.keys()
        is_pipe = any(each["bytes"] is None for each in (*own.values(), *given.values()))
        has_changed = [path for path in common if not _is_same(own[path], given[path])]
        apart = () if common else _OF_CAPTURES
        differs = _settings(entry["job"], apart) != _settings(job, apart)
        if "runs" in manifest or is_pipe or (differs and not (redo and is_whole)):
            raise OutputError(
                f"{table} has {_describe(manifest)} made from other captures or with other options; "
                f"{_HINT}, or --overwrite to remove it"
            )
        if has_changed and not is_again:
            raise OutputError(f"{has_changed[0]} has changed since it was exported; --redo exports it again")
        if is_again and not is_whole:
            other = next(iter(own.keys() - common))
            raise OutputError(
                f"{table} has {next(iter(common))} together with {other}; export them together again"
            )
        if not is_again:
            kept.append(entry)
    return kept


def prepare(directory: Path, lacks: Missing, *, overwrite: bool = False) -> int:
    """Remove what will be written again, and return the number of the first file to write.

    Args:
        directory: may contain an export, or not exist.
        lacks: what must be written.
        overwrite: remove all of an earlier export, including tables that are not written now.

    Raises:
        OutputError: something cannot be removed.
    """
    first = 0
    try:
        for name in _manifests(directory):
            if overwrite or not lacks.kept.get(name, name not in lacks.tables):
                _remove(directory / name)
        for name, entries in lacks.kept.items():
            known = {file["path"] for entry in entries for file in entry["files"]}
            for path in list(row_files(directory / name)) if known else ():
                if path.relative_to(directory / name).as_posix() in known:
                    first = max(first, file_number(path) + 1)
                else:
                    path.unlink()
    except OSError as error:
        raise WriteError.of(directory, error) from None
    return first


def resume(directory: Path, tables: Mapping[str, TableFiles], form: Format, limits: Limits) -> Earlier:
    """Continue the tables where earlier runs ended. Their unfinished files are removed.

    Args:
        directory: may contain a live export, or not exist.
        tables: which are requested.
        form: of the files.
        limits: see ``Limits``.

    Raises:
        OutputError: the directory contains something that cannot be continued.
    """
    manifests = _manifests(directory)
    for name, manifest in manifests.items():
        if "runs" not in manifest:
            raise OutputError(
                f"{directory / name} has {_describe(manifest)}, which is not from a live run; {_HINT}"
            )
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in tables}
    removed = 0
    for name, files in tables.items():
        path = directory / name
        files.files = Listing(max_names=limits.export_listed)
        try:
            if name in manifests:
                _check_compatible(path, manifests[name], files, form)
            elif _has_files(path):
                raise OutputError(f"{path} is not empty and has no export; {_HINT}")
        except OSError as error:
            raise WriteError.of(path, error) from None
    for name in tables.keys() & manifests.keys():
        manifest = manifests[name]
        removed += _resume_table(directory / name, manifest, tables[name], limits)
        run = {key: manifest[key] for key in _RUN_FIELDS if key in manifest}
        runs[name] = [*manifest["runs"], run][-_MAX_RUNS:]
    return Earlier(runs, sum(len(files.files) for files in tables.values()), removed)


def begin(
    directory: Path, files: TableFiles, form: Format, job: Job, end: Mapping[str, Any] = _NO_FIELDS
) -> None:
    """Write the directory ``_kdissect`` of a table, before its first file.

    Raises:
        OutputError: it cannot be written.
    """
    columns = _columns(files, form)
    absolute = directory.resolve()
    texts = {
        SCHEMA: json.dumps(spark_schema.struct_type(columns), indent=2) + "\n",
        DDL: _ddl(files, form),
        CREATE_TABLE: spark_schema.create_table(
            files.table, columns, absolute, files.partition_by, form.using
        ),
    }
    try:
        make_directory(directory / DIRECTORY, files.mode, below=directory.parent)
        write(
            directory, files, form, job, {"complete": False, **end}
        )  # first: it marks the directory as ours
        for name, text in texts.items():
            with replacing(directory / DIRECTORY / name, files.mode) as file:
                file.write(text.encode())
    except OSError as error:
        raise WriteError.of(directory, error) from None


def write(directory: Path, files: TableFiles, form: Format, job: Job, end: Mapping[str, Any]) -> None:
    """Write the manifest, atomically.

    Args:
        directory: of the table.
        files: of the table.
        form: of the files.
        job: what they are made from.
        end: ``complete``, and further fields about how the run ended.

    Raises:
        OutputError: it cannot be written.
    """
    document = {
        "table": files.table.name,
        "first_part": files.first,
        **end,
        "rows": files.files.rows,
        "bytes": files.files.bytes,
        "files": [file._asdict() for file in files.files],
        "older": dict(zip(_OLDER, files.files.older, strict=True)),
        "format": form.name,
        "compression": form.compression,
        "partition_by": list(files.partition_by),
        "job": job,
        "versions": {"kdissect": __version__, "python": platform.python_version()},
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    path = directory / DIRECTORY / MANIFEST
    unfinished = path.with_name(_UNFINISHED_MANIFEST)
    try:
        with create(unfinished, files.mode) as file:
            file.write(json.dumps(document, indent=2).encode() + b"\n")
            publish(file, unfinished, path)
    except OSError as error:
        raise WriteError.of(directory, error) from None


def _manifests(directory: Path) -> dict[str, Any]:
    """The manifests of the tables in a directory, by table."""
    try:
        tables = [path.parent.parent for path in sorted(directory.glob(f"*/{DIRECTORY}/{MANIFEST}"))]
    except OSError as error:
        raise WriteError.of(directory, error) from None
    return {table.name: read(table) for table in tables}


def read(directory: Path) -> dict[str, Any]:
    """The manifest of a table.

    Raises:
        OutputError: it cannot be read, or is something else.
    """
    path = directory / DIRECTORY / MANIFEST
    try:
        return parsed(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise WriteError.of(directory, error) from None


def parsed(text: bytes | str, path: Path | str) -> dict[str, Any]:
    """A manifest.

    Raises:
        OutputError: the text of this file is something else.
    """
    try:
        manifest: dict[str, Any] = json.loads(text)
        if {"table", "format", "partition_by", "job", "complete", "rows"} <= manifest.keys():
            return manifest
    except (ValueError, AttributeError):
        pass
    raise OutputError(f"{path} is not the manifest of an export; {_HINT}")


def check(directory: Path) -> None:
    """Check that the files of a table are those of its manifest, unless that says that the export is not
    complete.

    Raises:
        OutputError: they are not, or cannot be listed.
    """
    if (files := files_of(manifest := read(directory))) is not None and is_complete(manifest):
        compare(directory, files)


def _entries(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The jobs of a table, the latest last."""
    latest = {name: manifest[name] for name in _JOB_FIELDS if name in manifest}
    return [*manifest.get("jobs", ()), latest]


def is_complete(manifest: Mapping[str, Any]) -> bool:
    """Whether all jobs of a table have ended."""
    return all(entry["complete"] for entry in _entries(manifest))


def captures_of(manifest: Mapping[str, Any]) -> list[tuple[str, int | None]]:
    """Names and sizes of the captures of a table."""
    captures = (each for entry in _entries(manifest) for each in entry["job"]["captures"])
    return [(each["path"], each["bytes"]) for each in captures]


def files_of(manifest: Mapping[str, Any]) -> dict[str, int] | None:
    """The files of a table and their sizes, by path below its directory. None: a live export, whose manifest
    lists only the latest, and whose users remove old ones.
    """
    if "runs" in manifest:
        return None
    return {file["path"]: file["bytes"] for entry in _entries(manifest) for file in entry["files"]}


def compare(
    directory: Path | str,
    files: Mapping[str, int],
    sizes: Mapping[str, int] | None = None,
    *,
    is_all: bool = True,
) -> None:
    """Compare the files of a table with those that its manifest lists.

    Args:
        directory: of the table.
        files: the manifest's: sizes by path.
        sizes: those that readers see; None: list them.
        is_all: whether there must not be others.

    Raises:
        OutputError: one is lost or has another size, or there is another one with rows; or the files cannot
            be listed.
    """
    if sizes is None:
        assert not isinstance(directory, str)
        try:
            sizes = visible_files(directory)
        except OSError as error:
            raise OutputError(f"cannot read {directory}: {error.strerror or error}") from None
    foreign = (path for path in sizes.keys() - files.keys() if is_all and _ROWS.search(path))
    lost = (
        path for path, size in files.items() if sizes.get(path, 0) != size
    )  # Spark does not list empty ones
    path = min(lost, default=min(foreign, default=None))
    if path is None:
        return
    if path not in files:
        fault = f"has {path}, which its manifest does not list; move that elsewhere"
    elif path not in sizes:
        fault = f"lacks {path}, which its manifest lists; {_AGAIN}"
    else:
        fault = f"has {sizes[path]:,} bytes of {path}, not {files[path]:,} as its manifest says; {_AGAIN}"
    raise OutputError(f"{directory} {fault}")


def _describe(manifest: Mapping[str, Any]) -> str:
    captures = [each["path"] for each in manifest["job"]["captures"]]
    more = f" and {len(captures) - 1:,} more" if len(captures) > 1 else ""
    state = "an export" if manifest["complete"] else "an unfinished export"
    rows = many(manifest["rows"], "row")
    return f"{state} of {captures[0]}{more} ({rows})"


def _check_compatible(directory: Path, manifest: Mapping[str, Any], files: TableFiles, form: Format) -> None:
    """Check that new files of a table would match the existing ones.

    Raises:
        OutputError: format, partitions or columns differ.
    """
    was = {name: manifest[name] for name in ("format", "partition_by")}
    now = {"format": form.name, "partition_by": list(files.partition_by)}
    if was != now:
        partitions = f", by {','.join(was['partition_by'])}" if was["partition_by"] else ""
        raise OutputError(f"{directory} has {was['format']}{partitions}; {_HINT}, or use the same options")
    if (directory / DIRECTORY / DDL).read_text(encoding="utf-8") != _ddl(files, form):
        by = manifest["versions"]["kdissect"]
        raise OutputError(f"{directory} has different columns (written by kdissect {by}); {_HINT}")


def _resume_table(directory: Path, manifest: Mapping[str, Any], files: TableFiles, limits: Limits) -> int:
    """Continue a table after the existing files, and return how many unfinished ones were removed. A
    writer that was killed may have finished files that its manifest does not list.
    """
    removed = 0
    listed = [FinishedFile(**file) for file in manifest["files"]]
    older = tuple(manifest["older"][name] for name in _OLDER)
    paths = {file.path for file in listed}
    known = min((file_number(directory / path) for path in paths), default=0) if older[0] else 0
    first = manifest["first_part"]
    try:
        for path in list(row_files(directory)):
            number, name = file_number(path), path.relative_to(directory).as_posix()
            first = max(first, number + 1)
            if path.name.endswith(UNFINISHED):
                path.unlink()
                removed += 1
            elif name not in paths and number >= known:
                listed.append(FinishedFile(name, None, path.stat().st_size))
    except OSError as error:
        raise WriteError.of(directory, error) from None
    files.continue_from(first, Listing(listed, limits.export_listed, older))
    return removed


def _columns(files: TableFiles, form: Format) -> tuple[Column, ...]:
    return spark_schema.in_directories(form.columns(files.table), files.partition_by)


def _ddl(files: TableFiles, form: Format) -> str:
    return spark_schema.ddl(_columns(files, form)) + "\n"


def _has_files(directory: Path) -> bool:
    """Whether there are files in it; an unfinished manifest of ours does not count."""
    if not directory.exists():
        return False
    there = (path for top in directory.iterdir() for path in (top, *top.rglob("*")))
    return any(not path.is_dir() and path.name != _UNFINISHED_MANIFEST for path in there)


def _remove(directory: Path) -> None:
    """Remove a table. The manifest goes last, so that an interrupted removal is recognized."""
    remove_row_files(directory)
    for name in (SCHEMA, DDL, CREATE_TABLE, _UNFINISHED_MANIFEST, MANIFEST):
        (directory / DIRECTORY / name).unlink(missing_ok=True)
    if next((directory / DIRECTORY).iterdir(), None) is None:
        (directory / DIRECTORY).rmdir()
