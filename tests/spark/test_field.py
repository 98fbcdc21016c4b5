"""Captures of what people reported: Spark has the exchanges that ``read`` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from kdissect.options import WHOLE
from tests.cli.commands import run
from tests.field.test_ways import CAPTURES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS = ("connection", "number", "packet", "kind", "outcome", "api", "client_ip", "client_id", "latency_us")


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_spark_has_the_same_exchanges(
    spark: SparkSession, capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = [
        orjson.loads(line) for line in run(capsys, "read", "--json", "--names", WHOLE, str(capture)).lines
    ]
    table = spark.read.format("kdissect").option("table", "exchanges").load(str(capture))
    found = [tuple(row) for row in table.select(*COLUMNS).collect()]
    assert sorted(found) == sorted(tuple(row[name] for name in COLUMNS) for row in shown)
