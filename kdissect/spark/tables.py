"""The directories of exports -> their tables as data frames, of Spark or of DuckDB (duck.py).

Columns and types are those of this version of kdissect: nothing is inferred, and a column that an older
export lacks is null. The files are those of the manifest; if there are others, or some are lost, that is an
error. Only the engine accesses the directory: for Spark it may be on a file system that this
machine cannot reach.
"""

from __future__ import annotations

import re
from functools import reduce
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import orjson

from kdissect.errors import UsageError
from kdissect.files import is_stored
from kdissect.nearest import did_you_mean
from kdissect.tables import duck, spark_schema
from kdissect.tables.manifest import (
    DIRECTORY,
    MANIFEST,
    captures_of,
    compare,
    files_of,
    is_complete,
    parsed,
    read,
)
from kdissect.tables.rows import TABLES
from kdissect.tables.table_files import visible_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


_FORMATS = {"jsonl": "json", "parquet": "parquet"}
PATH_NOT_FOUND = "PATH_NOT_FOUND"


def tables(
    session: Any, directories: str | Sequence[str], names: Iterable[str] | None = None
) -> dict[str, Any]:
    """The tables by name, each with the rows of all directories.

    Args:
        session: Spark session, or a connection of ``duck``.
        directories: paths, or URLs that Spark can read: ``hdfs://...``, ``s3a://...``; or patterns of them.
        names: names of the tables, in the order of the result; None: all tables in the directories, in the
            order of ``TABLES``.

    Raises:
        UsageError: the directories lack a table, or have none at all; or two have the same captures.
        OutputError: the files of a table are not those of its manifest, which says that it is complete.
    """
    by_table = manifests(session, directories)
    selected = list(names) if names is not None else [name for name in TABLES if name in by_table]
    for name in selected:
        if name not in TABLES:
            raise UsageError(
                f'unknown table "{name}"{did_you_mean(name, TABLES)}; known: {", ".join(TABLES)}'
            )
        if name not in by_table:
            there = ", ".join(table for table in TABLES if table in by_table)
            raise UsageError(f"no table {name} in {_listed(directories)}; it has {there}")
        _check_apart(by_table[name])
    result = {}
    sizes = _sizes(session, [f"{directory}/{name}" for name in selected for directory in by_table[name]])
    for name in selected:
        frames = [
            _table(session, f"{directory}/{name}", described, sizes[f"{directory}/{name}"])
            for directory, described in by_table[name].items()
        ]
        result[name] = reduce(lambda one, other: one.unionByName(other), frames)
    return result


def _listed(directories: str | Sequence[str]) -> str:
    return directories if isinstance(directories, str) else ", ".join(directories)


def _check_apart(described: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that no capture is in two directories: its rows would count twice.

    Raises:
        UsageError: one is.
    """
    places: dict[tuple[str, int | None], str] = {}
    for directory, manifest in described.items():
        for capture in set(captures_of(manifest)) if files_of(manifest) is not None else ():
            if (other := places.setdefault(capture, directory)) != directory:
                raise UsageError(f"{capture[0]} is in {other} and in {directory}")


def views(session: Any, directories: str | Sequence[str]) -> list[str]:
    """Create a temporary view for each table in directories; return their names.

    Raises:
        UsageError: there are no tables, or two directories have the same captures.
        OutputError: see ``tables``.
    """
    frames = tables(session, directories)
    for name, frame in frames.items():
        (frame.createOrReplaceTempView if is_spark(session) else frame.create_view)(name)
    return list(frames)


def is_spark(session: Any) -> bool:
    """Whether it is a session or frame of Spark, and not of DuckDB."""
    return str(type(session).__module__).startswith("pyspark.")


def manifests(session: Any, directories: str | Sequence[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """The manifests by table and directory; ``complete`` in a manifest is false if rows are missing.

    Raises:
        UsageError: the directories have no manifests.
        OutputError: one is something else.
    """
    places = [directories] if isinstance(directories, str) else directories
    patterns = [f"{place.rstrip('/')}/*/{DIRECTORY}/{MANIFEST}" for place in places]
    by_table: dict[str, dict[str, dict[str, Any]]] = {}
    texts = _by_spark(session, patterns) if is_spark(session) else _here(patterns)
    for path, text in sorted(texts):
        directory, table, _, _ = path.rsplit("/", 3)
        by_table.setdefault(table, {})[directory] = parsed(text, path)
    if not by_table:
        raise UsageError(
            f"no tables in {_listed(directories)}; create them with kdissect export CAPTURE... -o DIR "
            "or kdissect spark decode"
        )
    return by_table


def _here(patterns: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pattern in patterns:
        for path in glob(pattern):  # noqa: PTH207  (Path.glob takes no absolute pattern)
            yield path, Path(path).read_text("utf-8")


def _by_spark(session: Any, patterns: Sequence[str]) -> Iterator[tuple[str, str]]:
    from pyspark.errors import AnalysisException

    for pattern in patterns:
        try:
            texts = session.read.text(pattern, wholetext=True)
            rows = texts.select("_metadata.file_path", "value").collect()
        except AnalysisException as error:
            if error.getCondition() != PATH_NOT_FOUND:
                raise
            continue
        yield from ((_path(unquote(path)), text) for path, text in rows)


def _path(url: str) -> str:
    """A path of Spark as people write it."""
    return re.sub("^file:/+", "/", url)


def _sizes(session: Any, tables: Sequence[str]) -> dict[str, dict[str, int]]:
    """The files of these directories of tables that readers see: their sizes by path."""
    if not is_spark(session):
        return {table: visible_files(Path(table)) for table in tables}
    sizes: dict[str, dict[str, int]] = {table: {} for table in tables}
    reader = session.read.format("binaryFile").option("recursiveFileLookup", "true")
    for row in reader.load(list(map(_literal, tables))).select("path", "length").collect() if tables else ():
        path = _path(row.path)
        table = next(each for each in _parents(path) if each in sizes)
        sizes[table][path[len(table) + 1 :]] = row.length
    return sizes


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def written(session: Any, directory: Path) -> Any:
    """A table that this process has just written.

    Args:
        session: Spark session.
        directory: of the table; absolute.
    """
    where = directory.as_uri() if is_stored(directory) else f"file:{directory}"
    return _table(session, where, read(directory), visible_files(directory))


def _table(session: Any, where: str, described: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """A table in one directory."""
    name, listed = where.rpartition("/")[2], files_of(described)
    if listed is not None and is_complete(described):
        compare(where, listed, sizes)
    # All of them, or those that an interrupted run has finished.
    paths = [f"{where}/{path}" for path in sizes if listed is None or path in listed]
    format_, partition_by = _FORMATS[described["format"]], described["partition_by"]
    columns = TABLES[name].columns if format_ == "json" else TABLES[name].binary_columns
    if not is_spark(session):
        return duck.table(session, paths, columns, format_, partition_by)
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(spark_schema.struct_type(spark_schema.in_directories(columns, partition_by)))
    # A value of the wrong type would be a bug, and must not silently become null.
    reader = session.read.schema(schema).format(format_).option("mode", "FAILFAST")
    if len(paths) == len(sizes):
        return reader.load(_literal(where))  # Spark would list each of many paths in a separate task
    if not paths:
        return session.createDataFrame([], schema)
    return reader.option("basePath", where).load(list(map(_literal, paths)))


def _literal(path: str) -> str:
    """The pattern that Spark takes for a path: the path itself."""
    return re.sub(r"[][{}*?\\]", r"\\\g<0>", path)


# ------------------------------------------------------------------------------------------------------------
# A data frame -> rows of plain values. Holds the rows that Spark delivers at a time.
#
# Spark itself writes each row as JSON. So values look as they do in exports, wherever the frame is
# computed: times are UTC and end in Z, bytes are base64.
# ------------------------------------------------------------------------------------------------------------


_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX",
}
NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
"""Prefixes of the names of types that are aligned right."""


def rows(frame: Any, max_rows: int | None = None) -> Iterator[list[Any]]:
    """Yield the values of each row, in the order of the columns.

    Args:
        frame: data frame; may have several columns of the same name.
        max_rows: maximum number of rows, fetched at once; None: all rows, fetched partition by partition.
    """
    if not is_spark(frame):
        yield from frame.rows(max_rows)
        return
    if not frame.columns:  # the result of a statement such as CREATE VIEW
        return
    names = [str(place) for place in range(len(frame.columns))]
    from pyspark.sql import functions as F  # noqa: N812

    texts = frame.toDF(*names).select(F.to_json(F.struct("*"), _JSON))
    results = texts.toLocalIterator() if max_rows is None else iter(texts.limit(max_rows).collect())
    for row in results:
        values = orjson.loads(row[0])
        yield [values[name] for name in names]


def is_number(frame: Any, place: int) -> bool:
    """Whether a column, given by its index, is numeric."""
    return str(frame.dtypes[place][1]).startswith(NUMBERS)
