"""TLS on Spark: tasks decrypt what the command line does, and need not read key logs."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from kdissect.options import ExportOptions, Options
from kdissect.spark.datasource import KdissectSource
from kdissect.spark.decode import decode
from tests.cli.commands import run
from tests.cli.test_tls import pcapng_with_secrets, secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPTURE = Path(__file__).parents[2] / "samples" / "tls.pcap"
KEYS = CAPTURE.with_suffix(".keys")
SPLITS = {"none": {}, "connections": {"tasks": "2"}, "files": {"filesPerTask": "1"}}
COLUMNS = StructType().add("client_id", "string").add("api", "string").add("correlation_id", "integer")


def rows(reader: Any, partitions: list[Any]) -> list[Any]:
    found = [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]
    return sorted(tuple(row.values()) for row in found)


@pytest.fixture
def expected(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    done = run(capsys, "read", "--json", "--tls-keylog", str(KEYS), str(CAPTURE))
    shown = map(json.loads, done.lines)
    return sorted((row["client_id"], row["api"], row["correlation_id"]) for row in shown)


@pytest.mark.parametrize("split", SPLITS)
def test_tasks_need_not_read_the_key_log(tmp_path: Path, split: str, expected: list[Any]) -> None:
    keys = tmp_path / "keys.log"
    keys.write_bytes(KEYS.read_bytes())
    source = KdissectSource({"path": str(CAPTURE), "tlsKeylog": str(keys), "split": split, **SPLITS[split]})
    reader = source.reader(COLUMNS)
    partitions = reader.partitions()
    keys.unlink()
    assert rows(*pickle.loads(pickle.dumps((reader, partitions)))) == expected
    shown = repr([vars(reader), [each.value for each in partitions]])
    assert not any(secret in shown or repr(bytes.fromhex(secret)) in shown for secret in secrets())


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("after", [0, 100])
def test_secrets_inside_a_capture(tmp_path: Path, split: str, after: int, expected: list[Any]) -> None:
    path = pcapng_with_secrets(tmp_path / "tls.pcapng", after)
    reader = KdissectSource({"path": path, "split": split, **SPLITS[split]}).reader(COLUMNS)
    assert rows(reader, reader.partitions()) == expected


@pytest.mark.spark
@pytest.mark.parametrize("tasks", [1, 2])
def test_decode(spark: SparkSession, tmp_path: Path, tasks: int, expected: list[Any]) -> None:
    inside = pcapng_with_secrets(tmp_path / "tls.pcapng", 100)
    for path, options in ((str(CAPTURE), Options(key_logs=(str(KEYS),))), (inside, Options())):
        directory = tmp_path / Path(path).suffix
        decode(spark, [path], ExportOptions(directory), options, tasks=tasks)
        files = [each for each in directory.rglob("*") if each.is_file()]
        lines = [
            line for each in directory.glob("exchanges/*.jsonl") for line in each.read_text().splitlines()
        ]
        shown = map(json.loads, lines)
        assert sorted((row["client_id"], row["api"], row["correlation_id"]) for row in shown) == expected
        written = b"".join(each.read_bytes() for each in files)
        assert not any(secret.encode() in written for secret in secrets())


@pytest.mark.spark
def test_the_plan_has_no_secrets(spark: SparkSession, expected: list[Any]) -> None:
    spark.dataSource.register(KdissectSource)
    frame = spark.read.format("kdissect").option("tlsKeylog", str(KEYS)).load(str(CAPTURE))
    shown = frame.select("client_id", "api", "correlation_id")
    assert sorted(map(tuple, shown.collect())) == expected
    plan = shown._jdf.queryExecution().toString()
    assert not any(secret in plan for secret in secrets())
