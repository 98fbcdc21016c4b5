"""``decode`` with Spark. That parts together write what one process writes, whatever the capture, is tested
without it in test_parts.py; that all ways to tables have the same rows in test_every_way.py.
"""

from __future__ import annotations

import os
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from benchmarks.traffic import make
from kdissect.capture.reader import open_capture
from kdissect.errors import CaptureError, OutputError, UsageError
from kdissect.spark.decode import decode
from samples.golden import captures, name_of
from tests.damage import DAMAGES
from tests.shuffling import alone, counted, cut_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdissect.model import Packet

IS_DEEP = os.environ.get("KDISSECT_HYPOTHESIS") == "deep"
SAMPLES = {name_of(path): path for path in captures()}
SMALL_MB, LARGE_MB = (30, 300) if IS_DEEP else (10, 60)
TABLES = ("exchanges", "partitions", "connections", "groups", "topic_ids", "anomalies", "captures")


def packets_of(name: str) -> list[Packet]:
    with open_capture(SAMPLES[name]) as capture:
        return list(capture)


def read(spark: SparkSession, folder: Path, table: str) -> DataFrame:
    schema = (folder / table / "_kdissect" / "schema.ddl").read_text()
    return spark.read.schema(schema).parquet(str(folder / table))


def equal(spark: SparkSession, one: Path, other: Path) -> None:
    """exceptAll both ways is 0; of the tables that have most columns, for Spark takes seconds for each."""
    differing = []
    for table in ("exchanges", "partitions", "connections"):
        left, right = (read(spark, folder, table) for folder in (one, other))
        assert left.schema == right.schema
        rows = left.exceptAll(right).union(right.exceptAll(left))
        differing.append(rows.select(lit(table)))
    assert reduce(DataFrame.union, differing).collect() == []


def test_parquet_by_shuffle_and_by_one_task(spark: SparkSession, tmp_path: Path) -> None:
    names = cut_up(packets_of("kafka-4-basics"), tmp_path / "ring", 5)
    shuffled = decode(spark, names, tmp_path / "many", split="shuffle", range_bytes=20_000, tasks=3)
    single = decode(spark, names, tmp_path / "one")
    assert (shuffled.split, single.split) == ("shuffle", "single")
    assert (shuffled.tasks, single.tasks) == (3, 1)
    assert shuffled.rows == single.rows
    assert shuffled.packets == single.packets == len(packets_of("kafka-4-basics"))
    assert shuffled.counts["unresolved topic ids"] == 0
    equal(spark, tmp_path / "many", tmp_path / "one")
    files = [path for path in (tmp_path / "many").rglob("*") if path.is_file() and "part-" in path.name]
    assert all(path.name.startswith("part-") for path in files)
    assert len(files) == shuffled.files
    again = decode(spark, names, tmp_path / "one")
    assert (again.rows, again.files) == ({}, 0)
    with pytest.raises(OutputError, match="made of other captures or by other options"):
        decode(spark, names[1:], tmp_path / "one")


def test_json_lines_of_a_damaged_capture_in_ranges(spark: SparkSession, tmp_path: Path) -> None:
    from random import Random

    left = DAMAGES["10 % lost, duplicated, shuffled"](packets_of("quickstart"), Random(7)).packets
    (name,) = cut_up(left, tmp_path / "whole", 1)
    Path(name).write_bytes(Path(name).read_bytes()[:-3])
    options: dict[str, Any] = {"form": "jsonl", "partition_by": (), "tables": TABLES}
    done = decode(spark, [name], tmp_path / "many", split="shuffle", range_bytes=8000, tasks=2, **options)
    assert [warning.split(": ")[1] for warning in done.warnings] == [
        warning.split(": ")[1] for warning in alone([name], tmp_path / "one", tables=TABLES).warnings
    ]
    assert "ends in the middle of" in done.warnings[0]
    assert counted(tmp_path / "many") == counted(tmp_path / "one")


def test_what_is_asked_for_is_looked_at_first(tmp_path: Path) -> None:
    unused: Any = None
    name = str(SAMPLES["quickstart"])
    with pytest.raises(UsageError, match="no api"):
        decode(unused, [name], tmp_path, criteria={"api": ["Fetsch"]})
    with pytest.raises(CaptureError, match="no such file"):
        decode(unused, [str(tmp_path / "missing")], tmp_path)


@pytest.mark.deep
def test_one_hot_connection_does_not_make_workers_grow(spark: SparkSession, tmp_path: Path) -> None:
    peaks = {}
    for megabytes in (SMALL_MB, LARGE_MB):
        capture = tmp_path / f"{megabytes}.pcap"
        made = make("bulk", capture, megabytes * 1_000_000)
        folder = tmp_path / str(megabytes)
        done = decode(spark, [str(capture)], folder, split="shuffle", tasks=2)
        assert done.rows["exchanges"] == made.exchanges
        capture.unlink()
        peaks[megabytes] = max(_peaks_kib(spark))
    assert peaks[LARGE_MB] < peaks[SMALL_MB] + 40 * 1024
    assert peaks[LARGE_MB] < 400 * 1024


def _peaks_kib(spark: SparkSession) -> list[int]:
    """The largest memory that each worker, which Spark keeps for the next task, has had so far."""

    def peak(batches: Any) -> Any:
        import pyarrow as pa

        from tests.peak import peak_kib

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"peak": [peak_kib() for _ in range(batch.num_rows)]})

    return [row[0] for row in spark.range(0, 8, 1, 8).mapInArrow(peak, "peak bigint").collect()]
