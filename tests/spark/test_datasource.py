"""``spark.read.format("kdissect")`` has the rows of exports and of ``read --json``, with the same types."""

from __future__ import annotations

import json
import os
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from kdissect.errors import UsageError
from kdissect.spark import register
from kdissect.spark.datasource import KdissectSource, PushingReader, Reader
from kdissect.spark.options import parse
from kdissect.spark.planning import find
from kdissect.tables import spark_schema
from kdissect.tables.columns import EXCHANGE
from kdissect.tables.rows import TABLES
from samples.golden import ROOT
from tests.damage import DAMAGES
from tests.exports import as_json, export_capture, json_rows
from tests.rings import packets_of, pieces, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SAMPLE = ROOT / "samples" / "kafka-4-transactions.pcap"
SMALL = ROOT / "samples" / "quickstart.pcap"
DEEP = pytest.mark.deep
EXCHANGE_NAMES = [column.name for column in EXCHANGE]


# --- without Spark ------------------------------------------------------------------------------------------


def source(**options: str) -> KdissectSource:
    return KdissectSource(options)


def test_the_schema_is_that_of_the_table() -> None:
    for name, table in TABLES.items():
        schema = StructType.fromJson(spark_schema.struct_type(table.binary_columns))
        assert source(table=name).schema() == schema


def test_the_users_schema_says_which_columns_are_read() -> None:
    narrow_reader = source(path=str(SMALL)).reader(StructType().add("number", "long").add("api", "string"))
    assert type(narrow_reader) is Reader
    (partition,) = narrow_reader.partitions()
    batches = list(narrow_reader.read(partition))
    assert batches[0].schema.names == ["number", "api"]
    assert sum(batch.num_rows for batch in batches) == 75


@pytest.mark.parametrize("split", ["none", "connections"])
def test_tls_is_decrypted(split: str) -> None:
    tls = ROOT / "samples" / "tls.pcap"
    options = {"path": str(tls), "tlsKeylog": str(tls.with_suffix(".keys")), "split": split, "tasks": "2"}
    reader = source(**options).reader(StructType().add("client_id", "string").add("api", "string"))
    rows = [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
    assert len(rows) == 8
    assert {row["client_id"] for row in rows} == {"kp-tls", "aio-tls"}


def test_a_schema_with_other_columns_is_rejected() -> None:
    with pytest.raises(UsageError, match='no column "latency" in exchanges; did you mean "latency_us"'):
        source().reader(StructType().add("latency", "long"))
    with pytest.raises(UsageError, match="column time of exchanges is timestamp, not string"):
        source().reader(StructType().add("time", "string"))


def test_filters_are_pushed_down_only_on_request() -> None:
    schema = StructType().add("api", "string")
    assert type(source(path=str(SAMPLE), pushdown="true").reader(schema)) is PushingReader
    assert type(source(path=str(SAMPLE), pushdown="false").reader(schema)) is Reader


def test_an_unknown_option_is_reported_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r'unknown option "tabel"; did you mean "table"\?; known: api, '):
        source(tabel="exchanges")


# --- in Spark -----------------------------------------------------------------------------------------------


def load(spark: SparkSession, *paths: Path, **options: str) -> DataFrame:
    names = [str(path) for path in paths]
    return spark.read.format("kdissect").options(**options).load(names if len(names) > 1 else names[0])


def json_of(frame: DataFrame, table: str) -> list[dict[str, Any]]:
    """Rows as in JSON lines."""
    types = {column.name: column.type for column in TABLES[table].binary_columns}
    return [
        {name: as_json(value, types[name], name, row) for name, value in row.items()}
        for row in frame.toArrow().to_pylist()
    ]


def difference(one: DataFrame, other: DataFrame) -> tuple[int, int]:
    return one.exceptAll(other).count(), other.exceptAll(one).count()


QUICK = ("exchanges", "records", "captures")  # all types of columns


@pytest.mark.parametrize("tables", [QUICK, pytest.param(tuple(TABLES), marks=DEEP)])
def test_every_table_has_the_rows_of_an_export(
    spark: SparkSession, tmp_path: Path, tables: tuple[str, ...]
) -> None:
    shown = export_capture(SAMPLE, tmp_path, ["none", "parquet"])
    for name in tables:
        rows = json_of(load(spark, SAMPLE, table=name), name)
        assert rows == json_rows(tmp_path / "none" / name), name
        if name == "exchanges":
            assert [{name: row[name] for name in EXCHANGE_NAMES} for row in rows] == shown
    exported = spark.read.parquet(str(tmp_path / "parquet" / "exchanges"))
    assert difference(load(spark, SAMPLE), exported) == (0, 0)


@pytest.mark.parametrize("tables", [("anomalies",), pytest.param(tuple(TABLES), marks=DEEP)])
def test_a_damaged_capture_has_the_rows_of_an_export(
    spark: SparkSession, tmp_path: Path, tables: tuple[str, ...]
) -> None:
    left = DAMAGES["10 % lost, snaplen 200, mid-frame start"](packets_of(SMALL), Random(1)).packets
    path = write(tmp_path / "damaged.pcapng", left)
    path.write_bytes(path.read_bytes()[:-20])
    export_capture(path, tmp_path / "out", ["none"])
    for name in tables:
        expected = json_rows(tmp_path / "out" / "none" / name)
        assert json_of(load(spark, path, table=name), name) == expected
        assert expected or name in ("groups", "topic_ids"), name


OF_OTHERS = ("capture", "packet", "topics")
"""What depends on how files are divided; ``topics`` only with ``files``."""
SHARED = [{"split": "connections", "tasks": "2"}, {"split": "files", "lookback": "20"}, {"split": "none"}]


@pytest.mark.parametrize(("files", "ways"), [(3, SHARED[:1]), pytest.param(20, SHARED, marks=DEEP)])
def test_many_files_have_the_rows_of_one_with_every_split(
    spark: SparkSession, tmp_path: Path, files: int, ways: list[dict[str, str]]
) -> None:
    packets = packets_of(SMALL)
    (tmp_path / "one").mkdir()
    one_file = load(spark, write(tmp_path / "one" / "all.pcapng", packets)).drop(*OF_OTHERS).cache()
    pieces(packets, tmp_path / "ring", files)
    for options in ways:
        shared = load(spark, tmp_path / "ring", **options).drop(*OF_OTHERS)
        assert difference(shared, one_file) == (0, 0), options


LISTINGS: list[tuple[tuple[str, ...], dict[str, str]]] = [
    ((".",), {}),
    (("a", "b"), {}),
    (("a", "empty"), {}),
    (("{a,b}/*.pcap",), {}),
    (("a/x{1,2}.pca[op]",), {}),
    (("*/x?.pcap",), {}),
    (("a/[^xy]*",), {}),
    ((".",), {"pathGlobFilter": "*.{gz,pcapng}"}),
    ((".",), {"pathGlobFilter": "x[12]*"}),
    ((".",), {"pathGlobFilter": "[^x]*"}),
    (("a",), {"modifiedAfter": "2001-09-09T01:46:40"}),
    (("a",), {"modifiedBefore": "2001-09-09T01:46:41"}),
    ((".",), {"modifiedAfter": "2001-09-09T01:46:40", "pathGlobFilter": "x*.pcap"}),
]


@pytest.mark.parametrize(
    "listings", [LISTINGS[2:12:3], pytest.param(LISTINGS, marks=DEEP)], ids=["some", "all"]
)
def test_files_are_those_that_sparks_own_sources_read(
    spark: SparkSession, tmp_path: Path, listings: list[tuple[tuple[str, ...], dict[str, str]]]
) -> None:
    names = ("a/x1.pcap", "a/x2.pcap", "a/y1.pcap.gz", "a/z.pcapng", "b/x1.pcap", "b/c/x3.pcap", "a/.h.pcap")
    for second, name in enumerate(names, 1_000_000_000):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(SMALL.read_bytes()[:24])
        os.utime(tmp_path / name, (second, second))
    (tmp_path / "empty").mkdir()
    for paths, options in listings:
        there = [f"{tmp_path}/{path}" for path in paths]
        own = find(parse({"paths": json.dumps(there), **options})).files
        frame = spark.read.format("binaryFile").option("recursiveFileLookup", "true").options(**options)
        (listed,) = frame.load(there).selectExpr("collect_set(path)").collect()
        assert {f"file:{os.path.normpath(path)}" for path in own} == set(listed[0]), (paths, options)


def test_sql_sees_a_capture_as_a_view(spark: SparkSession) -> None:
    spark.sql(
        "create or replace temporary view touched using kdissect "
        f"options (path '{SMALL}', table 'partitions', api 'Produce')"
    )
    (row,) = spark.sql("select count(*) n, sum(records) r from touched where topic = 'orders'").collect()
    assert (row["n"], row["r"]) == (9, 24)


@pytest.mark.parametrize(
    "where",
    [
        "api in ('Produce', 'Metadata') and time >= timestamp'2026-11-21 09:25:32' and latency_us > 300",
        pytest.param("group_id is not null and client_id like 'web%' or kind <> 'answered'", marks=DEEP),
        "date = date'2026-11-21' and number <= 9 and request like '%orders%' and group_id is null",
    ],
)
def test_pushed_down_filters_change_nothing(spark: SparkSession, where: str) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    pushed = load(spark, SMALL, pushdown="true").where(where)
    plain = load(spark, SMALL).where(where)
    assert json_of(pushed, "exchanges") == json_of(plain, "exchanges")


def test_options_filter_and_several_paths_are_one_capture(spark: SparkSession) -> None:
    frame = load(spark, SMALL, SAMPLE, table="exchanges", api="Fetch", bodies="none", kind="answered")
    rows = json_of(frame, "exchanges")
    assert {row["api"] for row in rows} == {"Fetch"}
    assert {row["capture"] for row in rows} == {str(SMALL), str(SAMPLE)}
    assert {row["request"] for row in rows} == {None}


def test_credentials_are_redacted_by_default(spark: SparkSession) -> None:
    sasl = ROOT / "samples" / "tansu-sasl.pcap"
    redacted = load(spark, sasl, api="SaslAuthenticate").toArrow()["request"].to_pylist()
    shown = load(spark, sasl, api="SaslAuthenticate", showSecrets="true").toArrow()["request"].to_pylist()
    assert "withheld" in json.loads(redacted[0])["auth_bytes"]
    assert "withheld" not in json.loads(shown[0])["auth_bytes"]


def test_spark_shows_our_error_messages(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    first = (
        r'^\[PYTHON_DATA_SOURCE_ERROR\] [^\n]*: kdissect.errors.UsageError: unknown option "tabel"; did you'
    )
    with pytest.raises(PySparkException, match=first):
        load(spark, SMALL, tabel="x")
    with pytest.raises(PySparkException, match='UsageError: no column "latency" in exchanges'):
        spark.read.format("kdissect").schema("latency bigint").load(str(SMALL)).count()
    with pytest.raises(PySparkException, match=r"CaptureError: .*none\.pcap: no such file"):
        load(spark, tmp_path / "none.pcap").count()


def test_a_registered_session_reads_captures_and_says_what_columns_mean(spark: SparkSession) -> None:
    register(spark)
    frame = spark.read.format("kdissect").load(str(SMALL))
    assert frame.count() == 75
    frame.createOrReplaceTempView("registered")
    comments = {row.col_name: row.comment for row in spark.sql("describe registered").collect()}
    assert comments == {column.name: column.description for column in TABLES["exchanges"].binary_columns}


def test_a_table_that_spark_keeps_is_rejected_with_what_works(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"create table kept using kdissect options (path '{SMALL}')")
