from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

from kdissect.cli.terminal import OK, USAGE
from tests.cli.commands import Run, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Reporting = Callable[..., Run]


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str], tables: Path) -> Reporting:
    return lambda *options: run(capsys, "spark", "report", str(tables), *options)


@pytest.fixture(params=["spark", "duckdb"])
def report_on(report: Reporting, request: pytest.FixtureRequest) -> Reporting:
    """On each engine; checks that it is printed, and removes that line."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    else:
        pytest.importorskip("duckdb")

    def run_there(*options: str) -> Run:
        done = report("--engine", request.param, *options)
        engine, _, others = done.err.partition("\n")
        assert engine.lower().startswith(f"kdissect: engine: {request.param} ")
        return done._replace(err=others)

    return run_there


def test_tables_for_a_person(report_on: Reporting) -> None:
    done = report_on("--report", "latency", "--report", "versions", "--max-rows", "1")
    assert (done.status, done.err) == (OK, "")
    assert [line for line in done.lines if line in ("Service times", "Errors", "Versions in use")] == [
        "Service times",
        "Versions in use",
    ]
    assert "first 1 row; use --max-rows to show more" in done.lines


def test_json(report_on: Reporting) -> None:
    done = report_on("--report", "latency,errors", "--by", "api", "--json")
    rows = [json.loads(line) for line in done.lines]
    assert [(row["job"], row["api"]) for row in rows if row["job"] == "latency"] == [
        ("latency", "Heartbeat"),
        ("latency", "Metadata"),
    ]
    assert {row["job"] for row in rows} == {"latency", "errors"}


def test_parquet(report_on: Reporting, report: Reporting, tmp_path: Path) -> None:
    target = str(tmp_path / "reports")
    done = report_on("--report", "latency", "--interval", "1m", "-o", target)
    assert (done.status, done.out, done.err) == (OK, "", f"kdissect: report latency written to {target}\n")
    assert parquet.read_table(f"{target}/latency").num_rows == 2
    again = report("--report", "latency", "-o", target)
    assert again.status == USAGE
    assert f"{target} already has the report latency; use --overwrite to replace it" in again.err
    assert report_on("--report", "latency", "-o", target, "--overwrite").status == OK
    assert "start" not in parquet.read_table(f"{target}/latency").column_names


def test_intervals_are_appended_once(report_on: Reporting, tmp_path: Path) -> None:
    target = tmp_path / "reports"
    options = ("--report", "latency", "--interval", "1ms", "-o", str(target), "--append")
    assert report_on(*options).status == OK
    (part,) = (target / "latency").glob("*.parquet")
    every = parquet.read_table(part)
    assert every.num_rows > 1
    parquet.write_table(every.slice(1), part)
    for crc in part.parent.glob(".*.crc"):
        crc.unlink()
    for _ in range(2):
        assert report_on(*options).status == OK
        appended = parquet.read_table(part.parent)
        assert sorted(map(str, appended.to_pylist())) == sorted(map(str, every.to_pylist()))


def test_small_tables_are_read_by_duckdb(report: Reporting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither pyspark nor Java are needed."""
    pytest.importorskip("duckdb")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    done = report("--report", "all", "--interval", "1m", "--by", "topic")
    assert done.status == OK
    assert done.err.startswith("kdissect: engine: DuckDB ")


def test_sql(report: Reporting) -> None:
    done = report("--report", "throttle", "--show-sql")
    assert (done.status, done.err) == (OK, "")
    assert done.out.startswith("-- throttle\nselect\n  coalesce(nullif(client_id, ''), client_ip) as client,")
    assert done.out.endswith("order by throttle_time_ms desc, client;\n")
    macros = report("--report", "throttle", "--show-sql", "--engine", "duckdb").out
    assert macros.startswith("create or replace macro ")
    assert macros.endswith(done.out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--report", "latencies"], 'unknown report "latencies"; did you mean "latency"?'),
        (["--report", "nix"], 'unknown report "nix"; known: latency, waits, throughput'),
        (["--json", "-o", "x"], "--json and -o are mutually exclusive"),
        (["--append"], "--append needs -o and --interval"),
        (["--append", "-o", "x", "--interval", "1m"], "the report versions has no intervals"),
        (["--engine", "duckdb", "-o", "s3a://x/y"], "-o URL needs --engine spark"),
        (["--engine", "duckdb", "--conf", "spark.x=1"], "--master, --remote, --conf and --log need --engine"),
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
    monkeypatch.delattr("kdissect.cli.spark.target_options.session")
    done = report("--engine", "spark", *options)
    assert (done.status, done.out) == (USAGE, "")
    assert message in done.err
