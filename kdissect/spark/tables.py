"""A folder that ``kdissect export`` or ``kdissect spark decode`` made -> its tables as data frames. Holds
nothing.

Columns and types are those that this kdissect knows, so nothing is inferred, and a column that an older
export lacks is null. The folder is only looked at by Spark: it may be on a file system that this machine does
not have.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kdissect.analysis.nearest import did_you_mean
from kdissect.errors import UsageError
from kdissect.sinks import sparkschema
from kdissect.sinks.manifest import FOLDER, MANIFEST
from kdissect.sinks.tables.catalogue import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

_FORMATS = {"jsonl": "json", "parquet": "parquet"}
_PATH_NOT_FOUND = "PATH_NOT_FOUND"


def tables(session: SparkSession, folder: str, names: Iterable[str] | None = None) -> dict[str, DataFrame]:
    """The tables by name, in the order of the catalogue.

    Args:
        session: of Spark.
        folder: a path, or an address that Spark knows: ``hdfs://...``, ``s3a://...``.
        names: which; None: all that the folder has.

    Raises:
        UsageError: a table is not there, or none at all.
    """
    told = manifests(session, folder)
    wanted = list(names) if names is not None else [name for name in TABLES if name in told]
    for name in wanted:
        if name not in TABLES:
            raise UsageError(f'no table "{name}"{did_you_mean(name, TABLES)}; there are {", ".join(TABLES)}')
    return {name: _table(session, folder, name, told) for name in wanted}


def views(session: SparkSession, folder: str) -> list[str]:
    """Make each table of a folder a view of its own name in the session; get their names.

    Raises:
        UsageError: there are no tables.
    """
    found = tables(session, folder)
    for name, frame in found.items():
        frame.createOrReplaceTempView(name)
    return list(found)


def manifests(session: SparkSession, folder: str) -> dict[str, dict[str, Any]]:
    """The manifests in a folder, by table: ``complete`` tells whether one is whole.

    Raises:
        UsageError: there are none.
    """
    from pyspark.errors import AnalysisException

    try:
        read = session.read.text(f"{folder.rstrip('/')}/*/{FOLDER}/{MANIFEST}", wholetext=True)
        rows = read.select("_metadata.file_path", "value").collect()
    except AnalysisException as error:
        if error.getCondition() != _PATH_NOT_FOUND:
            raise
        raise UsageError(
            f"no tables in {folder}; kdissect export CAPTURE... -o DIR makes some, or kdissect spark decode"
        ) from None
    return {path.rsplit("/", 3)[1]: json.loads(text) for path, text in rows}


def _table(session: SparkSession, folder: str, name: str, told: dict[str, dict[str, Any]]) -> DataFrame:
    if name not in told:
        there = ", ".join(table for table in TABLES if table in told)
        raise UsageError(f"no table {name} in {folder}; it has {there}")
    form, partition_by = _FORMATS[told[name]["format"]], told[name]["partition_by"]
    columns = TABLES[name].columns if form == "json" else TABLES[name].binary_columns
    reader = session.read.schema(sparkschema.ddl(sparkschema.in_folders(columns, partition_by))).format(form)
    # A value of another type is a fault of ours, and must not become null.
    return reader.option("mode", "FAILFAST").load(f"{folder.rstrip('/')}/{name}")
