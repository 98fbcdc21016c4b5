"""The directory of an export -> its tables as data frames, of Spark or of DuckDB (duck.py).

Columns and types are those of this version of kdissect: nothing is inferred, and a column that an older
export lacks is null. The files are those of the manifest; if there are others, or some are lost, that is an
error. Only the engine accesses the directory: for Spark it may be on a file system that this
machine cannot reach.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from kdissect.errors import UsageError
from kdissect.nearest import did_you_mean
from kdissect.tables import duck, spark_schema
from kdissect.tables.manifest import DIRECTORY, MANIFEST, compare, files_of
from kdissect.tables.rows import TABLES
from kdissect.tables.table_files import visible_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


_FORMATS = {"jsonl": "json", "parquet": "parquet"}
PATH_NOT_FOUND = "PATH_NOT_FOUND"


def tables(session: Any, directory: str, names: Iterable[str] | None = None) -> dict[str, Any]:
    """The tables by name.

    Args:
        session: Spark session, or a connection of ``duck``.
        directory: a path, or a URL that Spark can read: ``hdfs://...``, ``s3a://...``.
        names: names of the tables, in the order of the result; None: all tables in the directory, in the
            order of ``TABLES``.

    Raises:
        UsageError: the directory lacks a table, or has none at all.
        OutputError: the files of a table are not those of its manifest, which says that it is complete.
    """
    by_table = manifests(session, directory)
    selected = list(names) if names is not None else [name for name in TABLES if name in by_table]
    for name in selected:
        if name not in TABLES:
            raise UsageError(
                f'unknown table "{name}"{did_you_mean(name, TABLES)}; known: {", ".join(TABLES)}'
            )
        if name not in by_table:
            there = ", ".join(table for table in TABLES if table in by_table)
            raise UsageError(f"no table {name} in {directory}; it has {there}")
    found = _found(session, directory, selected)
    return {name: _table(session, directory, name, by_table[name], found[name]) for name in selected}


def views(session: Any, directory: str) -> list[str]:
    """Create a temporary view for each table in a directory; return their names.

    Raises:
        UsageError: the directory has no tables.
    """
    frames = tables(session, directory)
    for name, frame in frames.items():
        (frame.createOrReplaceTempView if is_spark(session) else frame.create_view)(name)
    return list(frames)


def is_spark(session: Any) -> bool:
    """Whether it is a session or frame of Spark, and not of DuckDB."""
    return str(type(session).__module__).startswith("pyspark.")


def manifests(session: Any, directory: str) -> dict[str, dict[str, Any]]:
    """The manifests in a directory by table; ``complete`` in a manifest is false if rows are missing.

    Raises:
        UsageError: the directory has no manifests.
    """
    no_tables = UsageError(
        f"no tables in {directory}; create them with kdissect export CAPTURE... -o DIR "
        "or kdissect spark decode"
    )
    if not is_spark(session):
        paths = Path(directory).glob(f"*/{DIRECTORY}/{MANIFEST}")
        by_table = {path.parts[-3]: json.loads(path.read_text("utf-8")) for path in paths}
        if not by_table:
            raise no_tables
        return by_table
    from pyspark.errors import AnalysisException

    try:
        read = session.read.text(f"{directory.rstrip('/')}/*/{DIRECTORY}/{MANIFEST}", wholetext=True)
        rows = read.select("_metadata.file_path", "value").collect()
    except AnalysisException as error:
        if error.getCondition() != PATH_NOT_FOUND:
            raise
        raise no_tables from None
    return {path.rsplit("/", 3)[1]: json.loads(text) for path, text in rows}


def _found(session: Any, directory: str, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """The files of these tables that readers see: their sizes by table and path."""
    if not is_spark(session):
        return {name: visible_files(Path(directory, name)) for name in names}
    paths = [f"{directory.rstrip('/')}/{name}" for name in names]
    reader = session.read.format("binaryFile").option("recursiveFileLookup", "true")
    found: dict[str, dict[str, int]] = {name: {} for name in names}
    for row in reader.load(paths).select("path", "length").collect() if paths else ():
        parts = row.path.split("/")
        place = max(place for place, part in enumerate(parts) if part in found)
        found[parts[place]]["/".join(parts[place + 1 :])] = row.length
    return found


def _table(
    session: Any, directory: str, name: str, described: Mapping[str, Any], found: Mapping[str, int]
) -> Any:
    where, listed = f"{directory.rstrip('/')}/{name}", files_of(described)
    if listed is not None and described["complete"]:
        compare(where, listed, found)
    # All of them, or those that an interrupted run has finished.
    paths = [f"{where}/{path}" for path in found if listed is None or path in listed]
    format_, partition_by = _FORMATS[described["format"]], described["partition_by"]
    columns = TABLES[name].columns if format_ == "json" else TABLES[name].binary_columns
    if not is_spark(session):
        return duck.table(session, name, paths, columns, format_, partition_by)
    schema = spark_schema.ddl(spark_schema.in_directories(columns, partition_by))
    # A value of the wrong type would be a bug, and must not silently become null.
    reader = session.read.schema(schema).format(format_).option("mode", "FAILFAST")
    if len(paths) == len(found):
        return reader.load(where)  # Spark would list each of many paths in a task of its own
    return reader.option("basePath", where).load(paths) if paths else session.createDataFrame([], schema)


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
