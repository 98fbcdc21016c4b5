"""What stands beside the files of a table, in its folder ``_kdissect``: how to read them, and what they are
of.

    schema.json         a StructType of Spark
    schema.ddl          the same as text
    create_table.sql    a statement that makes a table of the folder
    manifest.json       the files, whether they are all of the export, the captures and options it was made of

The manifest is written before the first file, saying that the export is not complete, and again at its end.
So
a run that finds one knows what it found: an export that can be left alone, one to be made again, or somebody
else's files. Holds nothing.
"""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kdissect import __version__
from kdissect.errors import OutputError
from kdissect.sinks import sparkschema
from kdissect.sinks.phrases import many
from kdissect.sinks.tablefiles import cannot_write, remove_own

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kdissect.sinks.rowfiles import Format
    from kdissect.sinks.tablefiles import TableFiles

FOLDER = "_kdissect"
SCHEMA, DDL, CREATE_TABLE, MANIFEST = "schema.json", "schema.ddl", "create_table.sql", "manifest.json"

Job = dict[str, Any]
"""What an export is made of: captures and options, as JSON has them. Equal jobs make equal exports."""


def missing(folder: Path, tables: Iterable[str], job: Job, *, overwrite: bool) -> list[str]:
    """The tables that are still to be written to a folder; what is left of them from before is removed.

    Args:
        folder: may hold an export, or not exist.
        tables: which are wanted.
        job: what the export is to be made of.
        overwrite: remove a whole export of another job, tables included that are not wanted now.

    Raises:
        OutputError: there is something that must not be removed.
    """
    wanted = list(tables)
    found = _found(folder)
    if not overwrite:
        for name, manifest in found.items():
            # What came through a pipe cannot be told from what comes now.
            if manifest["job"] != job or any(each["bytes"] is None for each in job["captures"]):
                told = f"{folder / name} holds {_told(manifest)}"
                raise OutputError(f"{told}; name a new folder, or --overwrite removes it")
    done = {name for name, manifest in found.items() if manifest["complete"] and not overwrite}
    try:
        for name in wanted:
            if name not in found and _has_files(folder / name):
                raise OutputError(f"{folder / name} is not empty, and holds no export; name a new folder")
        for name in found.keys() - done:
            if overwrite or name in wanted:
                _remove(folder / name)
    except OSError as error:
        raise cannot_write(folder, error) from None
    return [name for name in wanted if name not in done]


def begin(folder: Path, files: TableFiles, form: Format, job: Job) -> None:
    """Write what stands beside a table's files, as long as there are none.

    Raises:
        OutputError: it cannot be written.
    """
    columns = sparkschema.in_folders(form.columns(files.table), files.partition_by)
    absolute = folder.resolve()
    texts = {
        SCHEMA: json.dumps(sparkschema.struct_type(columns), indent=2) + "\n",
        DDL: sparkschema.ddl(columns) + "\n",
        CREATE_TABLE: sparkschema.create_table(
            files.table, columns, absolute, files.partition_by, form.using
        ),
    }
    try:
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / FOLDER / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise cannot_write(folder, error) from None
    write(folder, files, form, job, {"complete": False})


def write(folder: Path, files: TableFiles, form: Format, job: Job, end: Mapping[str, Any]) -> None:
    """Write the manifest, in one piece.

    Args:
        folder: of the table.
        files: of the table.
        form: of the files.
        job: what they are made of.
        end: ``complete``, and what else there is to say about how it ended.

    Raises:
        OutputError: it cannot be written.
    """
    document = {
        "table": files.table.name,
        **end,
        "rows": sum(file.rows for file in files.files),
        "bytes": sum(file.bytes for file in files.files),
        "files": [file._asdict() for file in files.files],
        "format": form.name,
        "compression": form.compression,
        "partition_by": list(files.partition_by),
        "job": job,
        "versions": {"kdissect": __version__, "python": platform.python_version()},
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    path = folder / FOLDER / MANIFEST
    unfinished = path.with_name(f".{MANIFEST}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise cannot_write(folder, error) from None


def _found(folder: Path) -> dict[str, Any]:
    """The manifests of the tables in a folder, by the names of their folders."""
    found = {}
    try:
        for path in sorted(folder.glob(f"*/{FOLDER}/{MANIFEST}")):
            manifest = json.loads(path.read_text(encoding="utf-8"))
            if not {"job", "complete", "rows"} <= manifest.keys():
                raise ValueError
            found[path.parent.parent.name] = manifest
    except OSError as error:
        raise cannot_write(folder, error) from None
    except (ValueError, AttributeError):
        raise OutputError(f"{path} is no manifest of an export; name a new folder") from None
    return found


def _told(manifest: Mapping[str, Any]) -> str:
    captures = [each["path"] for each in manifest["job"]["captures"]]
    more = f" and {len(captures) - 1:,} more" if len(captures) > 1 else ""
    whole = "an export" if manifest["complete"] else "an unfinished export"
    rows = many(manifest["rows"], "row")
    return f"{whole} of {captures[0]}{more} ({rows}), made of other captures or by other options"


def _has_files(folder: Path) -> bool:
    return folder.exists() and next(folder.iterdir(), None) is not None


def _remove(folder: Path) -> None:
    """Remove a table: its manifest last, so that what is left is known for what it is."""
    remove_own(folder)
    for name in (SCHEMA, DDL, CREATE_TABLE, f".{MANIFEST}.unfinished", MANIFEST):
        (folder / FOLDER / name).unlink(missing_ok=True)
    if next((folder / FOLDER).iterdir(), None) is None:
        (folder / FOLDER).rmdir()
