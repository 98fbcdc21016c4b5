"""``frames`` with Spark: the rows are those of ``export``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import kdissect.spark
from kdissect.cli.main import main
from kdissect.errors import CaptureError, UsageError, WriteError
from kdissect.spark import dataframes
from kdissect.tables.rows import TABLES
from samples.golden import captures, name_of
from tests.rings import pieces
from tests.shuffling import cut_up
from tests.spark.test_decode import packets_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SAMPLES = {name_of(path): path for path in captures()}


def rows(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


@pytest.mark.parametrize("tasks", [3, None])
def test_rows_are_those_of_export(spark: SparkSession, tmp_path: Path, tasks: int | None) -> None:
    directory, place = tmp_path / "ring", tmp_path / "pl[a]{1}*\\ce"  # no pattern
    cut_up(packets_of("kafka-4-basics"), directory, 3)
    (directory / "notes.txt").write_text("no capture")
    place.mkdir()
    options = ("--format", "parquet", "--tables", ",".join(TABLES))
    assert main(["export", str(directory), "-o", str(tmp_path / "out"), *options]) == 0
    division: dict[str, Any] = {"range_bytes": 50_000} | ({} if tasks is None else {"tasks": tasks})
    with dataframes.frames(spark, str(directory), tuple(TABLES), directory=str(place), **division) as frames:
        for name, table in TABLES.items():
            assert rows(frames[name].toArrow()) == rows(parquet.read_table(tmp_path / "out" / name)), name
            assert frames[name].schema.fields[0].metadata["comment"] == table.columns[0].description
        frames["exchanges"].coalesce(1).write.mode("append").saveAsTable("from_frames")
        assert spark.table("from_frames").count() == frames["exchanges"].count()
        spark.sql("drop table from_frames")
        assert len(list(place.iterdir())) == 1
    assert list(place.iterdir()) == []


def test_a_query_reads_only_its_columns(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    with dataframes.frames(spark, str(SAMPLES["quickstart"]), ["exchanges"]) as frames:
        frames["exchanges"].where("api = 'Fetch'").select("latency_us").explain()
    plan = capfd.readouterr().out
    assert "PushedFilters: [IsNotNull(api), EqualTo(api,Fetch)]" in plan
    assert "ReadSchema: struct<latency_us:bigint,api:string>" in plan


def test_damage_is_counted_or_an_error(spark: SparkSession, tmp_path: Path) -> None:
    data = SAMPLES["quickstart"].read_bytes()
    (tmp_path / "cut.pcap").write_bytes(data[:-5])
    (tmp_path / "good.pcap").write_bytes(data)
    before = spark.conf.getAll
    with kdissect.spark.frames(spark, str(tmp_path), ["captures"]) as frames:
        assert frames["captures"].count() == 2
        assert (frames.damaged, len(frames.warnings)) == (1, 1)
    assert spark.conf.getAll == before
    with kdissect.spark.frames(spark, str(tmp_path), ["brokers"], range_bytes=10_000, tasks=2) as frames:
        assert (frames.damaged, len(frames.warnings)) == (1, 1)
    with pytest.raises(CaptureError, match=r"cut.pcap: ends in the middle of packet .*; mode=PERMISSIVE"):
        kdissect.spark.frames(spark, str(tmp_path), ["captures"], mode="FAILFAST")


def test_rows_beyond_a_limit_are_no_damage(spark: SparkSession) -> None:
    options = {"limits": "export_brokers=1", "mode": "FAILFAST"}
    with kdissect.spark.frames(spark, str(SAMPLES["kafka-4-cluster"]), ["brokers"], **options) as frames:
        assert frames.damaged == 0
        assert frames.warnings == [
            "brokers: more than the limit export_brokers; the others are not in the table"
        ]


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    unused: Any = None
    with pytest.raises(WriteError, match=f"^cannot write {tmp_path}/nix: No such file or directory$"):
        kdissect.spark.frames(unused, str(SAMPLES["quickstart"]), directory=str(tmp_path / "nix"))


def test_bodies_can_be_variants(spark: SparkSession) -> None:
    with kdissect.spark.frames(spark, str(SAMPLES["quickstart"]), ["exchanges"], variant=True) as frames:
        exchanges = frames["exchanges"].where("api = 'Produce'")
        assert exchanges.schema["request"].dataType.simpleString() == "variant"
        assert exchanges.schema["request"].metadata["comment"]
        acks = exchanges.selectExpr("variant_get(request, '$.acks', 'int') as acks").distinct()
        assert {row.acks for row in acks.collect()} <= {-1, 0, 1}
        assert acks.count()


DERIVED = (
    "connection", "client_ip", "client_port", "broker_ip", "broker_port", "hop_ip", "hop_port", "proxy",
    "community_id", "client_id", "client_software_name", "client_software_version", "principal",
    "sasl_mechanism", "cluster_id", "exchanges", "answered", "unanswered", "no_answer", "unacknowledged",
    "orphans", "request_bytes",
    "response_bytes",
)  # fmt: skip


def test_connections_of_a_stream_are_those_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    path = str(SAMPLES["quickstart"])
    table = spark.read.format("kdissect").option("table", "connections").load(path)
    derived = kdissect.spark.stream_connections(spark.read.format("kdissect").load(path))
    assert derived.columns == [name for name in table.columns if name in derived.columns]
    assert {name: field.metadata for name, field in zip(derived.columns, derived.schema, strict=True)} == {
        name: table.schema[name].metadata for name in derived.columns
    }
    expected = rows(table.where("exchanges > 0").select(*DERIVED).toArrow())
    assert rows(derived.select(*DERIVED).toArrow()) == expected


@pytest.mark.deep
def test_a_stream_of_connections_has_those_that_have_ended(spark: SparkSession, tmp_path: Path) -> None:
    pieces(packets_of("quickstart"), tmp_path / "ring", 3)
    stream = spark.readStream.format("kdissect").option("includeLast", "true").load(str(tmp_path / "ring"))
    written = kdissect.spark.stream_connections(stream, "1 second").writeStream.format("memory")
    written = written.queryName("ended").trigger(availableNow=True)
    written.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(300)
    total = spark.read.format("kdissect").load(str(tmp_path / "ring")).count()
    assert 0 < spark.table("ended").selectExpr("sum(exchanges) as n").collect()[0].n <= total


def test_arguments_are_checked_first(tmp_path: Path) -> None:
    unused: Any = None
    for options, message in (
        ({"lookback": 2}, "option lookback is for the data source"),
        ({"api": "Fetsch"}, "unknown API"),
        ({"tables": ["exchange"]}, 'unknown table "exchange"'),
        ({"tables": []}, "no table is selected; known: exchanges, "),
    ):
        with pytest.raises(UsageError, match=message):
            kdissect.spark.frames(unused, str(SAMPLES["quickstart"]), **options)
