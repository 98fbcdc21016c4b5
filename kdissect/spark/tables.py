"""The directory of an export -> its tables as data frames.

Columns and types are those of this version of kdissect: nothing is inferred, and a column that an older
export lacks is null. Only Spark accesses the directory: it may be on a file system that this machine cannot
reach.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson

from kdissect.errors import UsageError
from kdissect.nearest import did_you_mean
from kdissect.tables import spark_schema
from kdissect.tables.manifest import FOLDER, MANIFEST
from kdissect.tables.rows import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession


_FORMATS = {"jsonl": "json", "parquet": "parquet"}
_PATH_NOT_FOUND = "PATH_NOT_FOUND"


def tables(session: SparkSession, folder: str, names: Iterable[str] | None = None) -> dict[str, DataFrame]:
    """The tables by name.

    Args:
        session: Spark session.
        folder: a path, or a URL that Spark can read: ``hdfs://...``, ``s3a://...``.
        names: names of the tables, in the order of the result; None: all tables in the directory, in the
            order of ``TABLES``.

    Raises:
        UsageError: the directory lacks a table, or has none at all.
    """
    by_table = manifests(session, folder)
    selected = list(names) if names is not None else [name for name in TABLES if name in by_table]
    for name in selected:
        if name not in TABLES:
            raise UsageError(
                f'unknown table "{name}"{did_you_mean(name, TABLES)}; known: {", ".join(TABLES)}'
            )
    return {name: _table(session, folder, name, by_table) for name in selected}


def views(session: SparkSession, folder: str) -> list[str]:
    """Create a temporary view for each table in a directory; return their names.

    Raises:
        UsageError: the directory has no tables.
    """
    frames = tables(session, folder)
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    return list(frames)


def manifests(session: SparkSession, folder: str) -> dict[str, dict[str, Any]]:
    """The manifests in a directory by table; ``complete`` in a manifest is false if rows are missing.

    Raises:
        UsageError: the directory has no manifests.
    """
    from pyspark.errors import AnalysisException

    try:
        read = session.read.text(f"{folder.rstrip('/')}/*/{FOLDER}/{MANIFEST}", wholetext=True)
        rows = read.select("_metadata.file_path", "value").collect()
    except AnalysisException as error:
        if error.getCondition() != _PATH_NOT_FOUND:
            raise
        raise UsageError(
            f"no tables in {folder}; create them with kdissect export CAPTURE... -o DIR or "
            "kdissect spark decode"
        ) from None
    return {path.rsplit("/", 3)[1]: json.loads(text) for path, text in rows}


def _table(session: SparkSession, folder: str, name: str, by_table: dict[str, dict[str, Any]]) -> DataFrame:
    if name not in by_table:
        there = ", ".join(table for table in TABLES if table in by_table)
        raise UsageError(f"no table {name} in {folder}; it has {there}")
    format_, partition_by = _FORMATS[by_table[name]["format"]], by_table[name]["partition_by"]
    columns = TABLES[name].columns if format_ == "json" else TABLES[name].binary_columns
    reader = session.read.schema(spark_schema.ddl(spark_schema.in_folders(columns, partition_by))).format(
        format_
    )
    # A value of the wrong type would be a bug, and must not silently become null.
    return reader.option("mode", "FAILFAST").load(f"{folder.rstrip('/')}/{name}")


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


def rows(frame: DataFrame, most: int | None = None) -> Iterator[list[Any]]:
    """Yield the values of each row, in the order of the columns.

    Args:
        frame: data frame; may have several columns of the same name.
        most: maximum number of rows, fetched at once; None: all rows, fetched partition by partition.
    """
    if not frame.columns:  # the result of a statement such as CREATE VIEW
        return
    names = [str(place) for place in range(len(frame.columns))]
    texts = as_json(frame.toDF(*names))
    results = texts.toLocalIterator() if most is None else iter(texts.limit(most).collect())
    for row in results:
        values = orjson.loads(row[0])
        yield [values[name] for name in names]


def as_json(frame: DataFrame) -> DataFrame:
    """A frame of one string column: each row as JSON, with nulls."""
    from pyspark.sql import functions as F  # noqa: N812

    return frame.select(F.to_json(F.struct("*"), _JSON))


def is_number(frame: DataFrame, place: int) -> bool:
    """Whether a column, given by its index, is numeric."""
    return frame.dtypes[place][1].startswith(NUMBERS)
