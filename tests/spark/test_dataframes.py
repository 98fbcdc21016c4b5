"""``frames`` with Spark: the rows are those of ``export``, also when Spark makes them again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import kdissect.spark
from kdissect.cli.main import main
from kdissect.errors import UsageError
from kdissect.spark import dataframes
from kdissect.tables.rows import TABLES
from samples.golden import captures, name_of
from tests.shuffling import cut_up
from tests.spark.test_decode import packets_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SAMPLES = {name_of(path): path for path in captures()}


def rows(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def test_rows_are_those_of_export_and_the_same_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ring"
    cut_up(packets_of("kafka-4-basics"), folder, 3)
    (folder / "notes.txt").write_text("no capture")
    options = ("--format", "parquet", "--tables", ",".join(TABLES))
    assert main(["export", str(folder), "-o", str(tmp_path / "out"), *options]) == 0
    with dataframes.frames(spark, str(folder), tuple(TABLES), range_bytes=50_000, parts=3) as frames:
        tables = {name: rows(frame.toArrow()) for name, frame in frames.items()}
        for name, table in TABLES.items():
            assert tables[name] == rows(parquet.read_table(tmp_path / "out" / name)), name
            assert frames[name].schema.fields[0].metadata["comment"] == table.columns[0].sentence
        spark.catalog.clearCache()  # as if all executors were lost
        assert rows(frames["exchanges"].toArrow()) == tables["exchanges"]
        frames["exchanges"].coalesce(1).write.mode("append").saveAsTable("from_frames")
        assert spark.table("from_frames").count() == tables["exchanges"].total()
        spark.sql("drop table from_frames")


def test_arguments_are_checked_first(tmp_path: Path) -> None:
    unused: Any = None
    for options, message in (
        ({"lookback": 2}, "option lookback is for the data source"),
        ({"api": "Fetsch"}, "unknown API"),
        ({"tables": ["exchange"]}, 'unknown table "exchange"'),
    ):
        with pytest.raises(UsageError, match=message):
            kdissect.spark.frames(unused, str(SAMPLES["quickstart"]), **options)
