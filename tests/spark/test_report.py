from __future__ import annotations

import json
import re
from importlib import import_module
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.errors import UsageError
from kdissect.spark.report import JOBS, report, write_json, write_page, write_parquet
from kdissect.tables.rows import TABLES
from samples.golden import captures, name_of
from tests.exports import export_capture

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

(STORM,) = (path for path in captures() if name_of(path) == "kafka-4-storm")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    export = tmp_path_factory.mktemp("storm")
    export_capture(STORM, export, ["parquet"])
    return str(export / "parquet")


def test_a_page_for_people(spark: SparkSession, directory: str) -> None:
    out = StringIO()
    write_page(out, report(spark, directory, ["rebalances", "latency", "throttle"]), limit=3)
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["Rebalances", "first 3 rows; use --max-rows to show more"]
    assert re.search(
        r"^calm +2026-11-21 14:08:00 +2026-11-21 14:08:00 +[\d.]+ms +first ", out.getvalue(), re.MULTILINE
    )
    assert re.search(
        r"^Metadata +42 +42( +0){6} +1\.6 KB +5\.7 KB +\d+ +[\d.]+(us|ms) ",
        out.getvalue(),
        re.MULTILINE,
    )
    assert lines[-2:] == ["Throttled by quotas", "no rows"]


def test_a_narrow_page_has_fewer_columns(spark: SparkSession, directory: str) -> None:
    out = StringIO()
    write_page(out, report(spark, directory, ["latency"], by=["client", "api"]), limit=3, width=80)
    lines = out.getvalue().splitlines()
    headings = lines[2].split()
    for heading in ("CLIENT", "API", "EXCHANGES", "N", "P50", "P99", "TOTAL", "ERRORS"):
        assert heading in headings
    assert "MIN" not in headings
    assert lines[-1].endswith(" columns of Service times hidden; --wide shows all")
    assert max(map(len, lines)) <= 80


def test_json_lines(spark: SparkSession, directory: str) -> None:
    out: list[bytes] = []
    write_json(out.append, report(spark, directory, ["latency", "rebalances"], window="1h", by=["broker"]))
    rows = [json.loads(line) for line in out]
    assert {row["job"] for row in rows} == {"latency", "rebalances"}
    assert {row["start"] for row in rows} == {"2026-11-21T14:00:00.000000Z"}
    busy = rows[0]
    assert busy["broker"].startswith("127.0.0.1:")
    assert busy["exchanges"] > 200
    assert busy["max_us"] is not None
    (restless,) = (row for row in rows if row.get("group") == "restless")
    assert restless["by_cause"]["leave"] == 4


def test_parquet(spark: SparkSession, directory: str, tmp_path: Path) -> None:
    results = report(spark, directory, ["latency"], sketches=True)
    write_parquet(results, f"{tmp_path}/")
    assert spark.read.parquet(str(tmp_path / "latency")).dtypes == results[0][1].dtypes
    with pytest.raises(Exception, match="PATH_ALREADY_EXISTS"):
        write_parquet(results, str(tmp_path))
    write_parquet(results, str(tmp_path), overwrite=True)


@pytest.mark.parametrize(("options", "message"), [
    ({"jobs": ["latencies"]}, 'unknown job "latencies"; did you mean "latency"'),
    ({"jobs": ["lag"], "by": ["api"]}, 'cannot group by "api"; none of these jobs has any'),
    ({"jobs": ["latency"], "by": ["brokr"]}, 'cannot group by "brokr"; did you mean "broker"'),
    ({"jobs": ["latency"], "window": "soon"}, 'invalid duration "soon"'),
])  # fmt: skip
def test_invalid_arguments_are_reported(
    spark: SparkSession, directory: str, options: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        report(spark, directory, **options)


def test_jobs_read_tables_that_exports_have() -> None:
    for job in JOBS:
        module = import_module(f"kdissect.spark.jobs.{job}")
        assert set(module.TABLES) <= TABLES.keys()
        assert set(module.USUAL) <= set(module.BY)
