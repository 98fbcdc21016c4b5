from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kdissect.cli.terminal import OK, USAGE
from tests.cli.commands import Run, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    Reporting = Callable[..., Run]


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str], tables: Path) -> Reporting:
    return lambda *options: run(capsys, "spark", "report", str(tables), *options)


def test_tables_for_a_person(report: Reporting, spark: SparkSession) -> None:
    done = report("--report", "latency", "--report", "versions", "--max-rows", "1")
    assert (done.status, done.err) == (OK, "")
    assert [line for line in done.lines if line in ("Service times", "Errors", "Versions in use")] == [
        "Service times",
        "Versions in use",
    ]
    assert "first 1 row; use --max-rows to show more" in done.lines


def test_json(report: Reporting, spark: SparkSession) -> None:
    done = report("--report", "latency,errors", "--by", "api", "--json")
    rows = [json.loads(line) for line in done.lines]
    assert [(row["job"], row["api"]) for row in rows if row["job"] == "latency"] == [
        ("latency", "Heartbeat"),
        ("latency", "Metadata"),
    ]
    assert {row["job"] for row in rows} == {"latency", "errors"}


def test_parquet(report: Reporting, spark: SparkSession, tmp_path: Path) -> None:
    target = str(tmp_path / "reports")
    done = report("--report", "latency", "--interval", "1m", "-o", target)
    assert (done.status, done.out, done.err) == (OK, "", f"kdissect: report latency written to {target}\n")
    assert spark.read.parquet(f"{target}/latency").count() == 2
    again = report("--report", "latency", "-o", target)
    assert again.status == USAGE
    assert f"{target} already has the report latency; use --overwrite to replace it" in again.err
    assert report("--report", "latency", "-o", target, "--overwrite").status == OK


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--report", "latencies"], 'unknown report "latencies"; did you mean "latency"?'),
        (["--report", "nix"], 'unknown report "nix"; known: latency, waits, throughput'),
        (["--json", "-o", "x"], "--json and -o are mutually exclusive"),
        (["--master", "local[2]", "--remote", "sc://h"], "--master and --remote are mutually exclusive"),
        (["--remote", "spark://h"], 'invalid Spark Connect server "spark://h": use sc://HOST:PORT'),
        (["--conf", "driver.memory=4g"], 'invalid Spark setting "driver.memory=4g": use spark.NAME=VALUE'),
    ],
)
def test_invalid_options(report: Reporting, options: list[str], message: str) -> None:
    done = report(*options)
    assert (done.status, done.out) == (USAGE, "")
    assert message in done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by", "clint"], 'cannot group by "clint"; did you mean "client"?'),
        (["--interval", "1 minuet"], 'invalid duration "1 minuet"'),
        (["--interval", "1ns"], '"1ns" is too short; use 10s, 1m'),
    ],
)
def test_invalid_reports_fail_before_spark_starts(
    report: Reporting, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.delattr("kdissect.cli.spark.report.session")
    done = report(*options)
    assert (done.status, done.out) == (USAGE, "")
    assert message in done.err
