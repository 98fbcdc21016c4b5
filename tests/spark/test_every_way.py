"""All ways to produce tables give the same rows: for all samples, and with packets lost or files damaged.

Of three captures, or in long runs of all, the data source has the rows that the matrix of tests/ways expects
of ``export``. Then many captures are in one directory, complete and divided into several files, and are read
together, so that a few runs of Spark cover all. test_parts.py and test_reading.py test each without Spark.
"""

from __future__ import annotations

import gzip
from functools import reduce
from itertools import accumulate, cycle
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, concat, encode, lit, struct, to_json, unbase64, when

from kdissect.capture import inputs
from kdissect.cli.main import main
from kdissect.cli.terminal import OK, USAGE
from kdissect.options import WHOLE, WINDOW
from kdissect.spark.tables import tables
from kdissect.tables import spark_schema
from kdissect.tables.columns import BINARY, EXCHANGE
from kdissect.tables.rows import TABLES
from samples.golden import captures, name_of
from tests.damage import DAMAGES
from tests.depth import IS_DEEP
from tests.exports import json_rows
from tests.late import late_packets
from tests.rings import packets_of, write
from tests.sources import BY_FILE
from tests.ways.matrix import BY_NAME, EXPORT, Matrix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kdissect.model import Packet
    from kdissect.tables.columns import Column

    Frames = Mapping[str, DataFrame]

pytestmark = pytest.mark.spark

SAMPLES = {name_of(path): path for path in captures()}
BESIDE_OTHERS = ("mock-old-versions", "tansu-admin")
"""Captured at the same time as others: in consecutive files the lateness of a lost packet is unknown."""
HARMED = [
    name for name in SAMPLES if not any(word in name for word in ("midstream", "http", "tls", *BESIDE_OTHERS))
]
FORMS = [("jsonl", "none"), ("jsonl", "gz"), ("jsonl", "zst"), ("parquet", "none"), ("parquet", "zst")]
DECODED = [("1", "jsonl"), ("3", "parquet")]
SHOWN = "exchanges as shown"
SHOWN_ALL = (OK, USAGE)
"""Statuses: all that can be read was."""
SPLITS = {
    "none": {},
    "connections": {"tasks": "3"},
    "files": {"lookback": "1000", "filesPerTask": "12" if IS_DEEP else "4"},  # all files before
}


# --- captures that are read together: a sample once, for copies of a connection would be taken for one ------


def in_pieces(directory: Path, names: Iterable[str] = SAMPLES) -> None:
    """Unchanged samples, each divided into three consecutive files."""
    for name in names:
        ring(packets_of(SAMPLES[name]), directory, name)


def ring(packets: list[Packet], directory: Path, name: str) -> None:
    """Three consecutive files, each of which starts after the previous one has ended."""
    latest = list(accumulate((packet.time_ns for packet in packets), max))
    earliest = list(accumulate((packet.time_ns for packet in reversed(packets)), min))[::-1]
    cuts = [place for place in range(1, len(packets)) if latest[place - 1] < earliest[place]]
    third = len(packets) // 3
    first, second = (next((cut for cut in cuts if cut >= third * n), len(packets)) for n in (1, 2))
    for number, own in enumerate((packets[:first], packets[first:second], packets[second:])):
        write(directory / f"{name}-{number}.pcapng", own)


def harmed(directory: Path, samples: Iterable[str], damages: Iterable[str] = DAMAGES) -> None:
    """Samples with packets lost, one kind of damage per sample in turn."""
    for damage, name in zip(damages, samples, strict=False):
        left = DAMAGES[damage](packets_of(SAMPLES[name]), Random(f"{name} {damage}")).packets
        ring(left, directory, name)


def spoilt(directory: Path, samples: Iterable[str]) -> None:
    """Files that are truncated, or have other bytes in the middle or at the start."""
    for number, (kind, name) in enumerate(zip(cycle(SPOILT), samples, strict=False)):
        path = SAMPLES[name]
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        (directory / f"{name}-{kind}").write_bytes(SPOILT[kind](data, number))
    (directory / "nothing.pcap").write_bytes(SAMPLES["quickstart"].read_bytes()[:24] + b"\xff" * 100)


SPOILT: dict[str, Callable[[bytes, int], bytes]] = {
    "cut": lambda data, number: data[: -5 - number],
    "spoilt": lambda data, _: data[: len(data) // 2] + b"\xff" * 40 + data[len(data) // 2 + 40 :],
    "cut.gz": lambda data, _: gzip.compress(data)[: -(len(data) // 100)],
    "cut.zst": lambda data, _: zstandard.compress(data)[: -(len(data) // 100)],
}


def some_of_each(directory: Path) -> None:
    """A few captures of every kind. No damage hits a time: the rest of that file would follow all others, too
    late for its connections (``late_segments``); how late depends on what else a task reads.
    """
    ring(late_packets(), directory, "late")
    in_pieces(directory, ["quickstart", "kafka-4-transactions"])
    harmed(directory, ["mock-rebalance", "tansu-sasl"], ["10 % lost", "10 % lost, duplicated, shuffled"])
    spoilt(directory, ["mock-acks0", "raw-requests"])


EACH: dict[str, Callable[[Path], None]] = {
    "samples": in_pieces,
    **{
        f"damage {turn}": lambda directory, turn=turn: harmed(directory, rotated(turn * len(DAMAGES)))
        for turn in range(4)
    },
    "files": lambda directory: spoilt(directory, rotated(5)[:12]),
}


def rotated(places: int) -> list[str]:
    """The samples to damage, starting with another one."""
    places %= len(HARMED)
    return HARMED[places:] + HARMED[:places]


# --- ways to their tables -----------------------------------------------------------------------------------


def ways(spark: SparkSession, read: Path, out: Path, names: str) -> Iterator[tuple[str, Frames]]:
    """The name of each way, and its tables."""
    everything = ["--tables", ",".join(TABLES), "--names", names, "--no-progress"]
    for form, compression in FORMS:
        directory = str(out / f"export-{form}-{compression}")
        arguments = ["--format", form, "--compress", compression, *everything]
        assert main(["export", str(read), "-o", directory, *arguments]) in SHOWN_ALL
        yield f"export {form} {compression}", tables(spark, directory)
    for count, form in DECODED:
        directory = str(out / f"decoded-{count}-{form}")
        arguments = ["--tasks", count, "--format", form, "--partition-by", "date", *everything]
        assert main(["spark", "decode", str(read), "-o", directory, *arguments]) in SHOWN_ALL
        yield f"spark decode --tasks {count} {form}", tables(spark, directory)
    for split, options in SPLITS.items():
        if split == "files" and names == WHOLE:  # of what a task reads
            options = {"filesPerTask": "1000"}
        reader = spark.read.format("kdissect").options(split=split, names=names, **options)
        written = BY_FILE if split == "files" else TABLES
        yield f"source {split}", {name: reader.option("table", name).load(str(read)) for name in written}


def as_text(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Each row as a string; values that JSON lines have as text or base64 are decoded to bytes."""
    kinds = dict(frame.dtypes)
    shown = []
    for column in columns:
        value = col(column.name)
        if column.type == BINARY and kinds[column.name] == "string":
            is_text = col(f"{column.name}_encoding") != "base64"
            value = when(is_text, encode(value, "utf-8")).otherwise(unbase64(value)).alias(column.name)
        shown.append(value)
    return frame.select(
        to_json(struct(shown), {"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS"}).alias("row")
    )


def differing(expected: DataFrame, by_way: Frames) -> list[Any]:
    """exceptAll in both directions, for all ways at once: some missing rows, or additional ones."""
    actual = reduce(
        DataFrame.union, [frame.select(lit(way).alias("way"), "row") for way, frame in by_way.items()]
    )
    actual = actual.cache()
    all_ways = actual.sparkSession.createDataFrame([(way,) for way in by_way], "way string")
    expected_rows = all_ways.crossJoin(expected)
    lacking, besides = expected_rows.exceptAll(actual), actual.exceptAll(expected_rows)
    try:
        return lacking.select(lit("lacks"), "*").union(besides.select(lit("has besides"), "*")).take(5)
    finally:
        actual.unpersist()


IN_TURN = {"quickstart": "none", "kafka-4-transactions": "connections", "field/proxy-variations": "files"}
"""Captures that are always read, and how the data source divides them."""


@pytest.mark.parametrize(
    ("name", "split"), [(name, split) for name in BY_NAME for split in SPLITS] if IS_DEEP else IN_TURN.items()
)
def test_the_data_source_has_the_rows_of_an_export(
    spark: SparkSession,
    shared_directory: Path,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    name: str,
    split: str,
) -> None:
    capture = BY_NAME[name]
    expected = Matrix(shared_directory, capfdbinary).expected(capture, EXPORT)
    reader = spark.read.format("kdissect").options(split=split, names=WHOLE)
    if capture.keys is not None:
        reader = reader.option("tlsKeylog", str(capture.keys))
    of_export, of_source = [], []
    for table in BY_FILE if split == "files" else TABLES:
        rows = [row.removeprefix(b". ") for row in expected.files[table]]
        path = tmp_path / f"{table}.jsonl"
        path.write_bytes(b"\n".join(rows).replace(b"DIRECTORY", bytes(capture.path.parent)))
        exported = spark.read.schema(spark_schema.ddl(TABLES[table].columns)).option("mode", "FAILFAST")
        for frames, frame in (
            (of_export, exported.json(str(path))),
            (of_source, reader.option("table", table).load(str(capture.path))),
        ):
            text = as_text(frame, TABLES[table].binary_columns)
            frames.append(text.select(concat(lit(f"{table} "), "row").alias("row")))
    all_rows = reduce(DataFrame.union, of_source)
    assert differing(reduce(DataFrame.union, of_export), {f"source {split}": all_rows}) == []


@pytest.mark.deep
@pytest.mark.parametrize("names", [WHOLE, WINDOW] if IS_DEEP else [WHOLE])
@pytest.mark.parametrize("name", EACH if IS_DEEP else ["some of each"])
def test_each_way_has_the_same_rows(
    spark: SparkSession, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], name: str, names: str
) -> None:
    (directory := tmp_path / "captures").mkdir()
    EACH.get(name, some_of_each)(directory)
    frames = dict(ways(spark, directory, tmp_path, names))
    by_way = {
        way: {table: as_text(rows, TABLES[table].binary_columns) for table, rows in each.items()}
        for way, each in frames.items()
    }
    capfdbinary.readouterr()
    command = ["read", "--json", "--names", names, "--no-progress", *inputs.captures([str(directory)])]
    assert main(command) in SHOWN_ALL
    (tmp_path / "read.jsonl").write_bytes(capfdbinary.readouterr().out)
    read = spark.read.schema(spark_schema.ddl(EXCHANGE)).option("mode", "FAILFAST")
    by_way["read --json"] = {SHOWN: as_text(read.json(str(tmp_path / "read.jsonl")), EXCHANGE)}
    expected = by_way.pop("export jsonl none")
    expected[SHOWN] = as_text(frames["export jsonl none"]["exchanges"], EXCHANGE)
    for table in TABLES if name in ("samples", "some of each") else ["exchanges", "anomalies"]:
        assert json_rows(tmp_path / "export-jsonl-none" / table), table
    for table, rows in expected.items():
        others = {way: each[table] for way, each in by_way.items() if table in each}
        assert differing(rows, others) == [], table
