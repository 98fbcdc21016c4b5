from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from kdissect.cli.main import main
from kdissect.cli.spark import report
from kdissect.cli.terminal import OK, USAGE
from kdissect.extras import install
from samples.pages import Terminal
from tests.cli.commands import Run, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Asking = Callable[..., Run]

COUNTED = "select api, count(*) n, max(latency_us) most from exchanges group by api order by api"


@pytest.fixture
def query(capsys: pytest.CaptureFixture[str], spark: object, tables: Path) -> Asking:
    def run_there(*options: str) -> Run:
        done = run(capsys, "spark", "sql", "--engine", "spark", str(tables), *options)
        engine, _, others = done.err.partition("\n")
        assert engine.startswith("kdissect: engine: Spark ")
        return done._replace(err=others)

    return run_there


def test_a_table(query: Asking) -> None:
    done = query(COUNTED)
    assert (done.status, done.err) == (OK, "")
    assert [line.split() for line in done.lines] == [
        ["api", "n", "most"],
        ["Heartbeat", "3", "1000"],
        ["Metadata", "1", "1000"],
    ]


@pytest.mark.parametrize("is_small", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("lacks", ["", "spark", "duckdb"])
def test_the_usual_engine(monkeypatch: pytest.MonkeyPatch, tables: Path, lacks: str, is_small: bool) -> None:
    pytest.importorskip("duckdb")
    usual, other = ("duckdb", "spark") if is_small else ("spark", "duckdb")
    monkeypatch.setattr(report, "has_spark", lambda: lacks != "spark")
    if lacks == "duckdb":
        monkeypatch.setattr("kdissect.tables.duck.why_not", lambda: "not installed")
    if not is_small:
        monkeypatch.setattr(report, "MAX_DUCKDB_BYTES", 0)
    assert report.usual_engine([str(tables)]) == (other if lacks == usual else usual)
    assert report.usual_engine(["s3a://bucket/tables"]) == "spark"


@pytest.mark.parametrize("command", [("sql", COUNTED), ("report", "--report", "errors")], ids=" ".join)
def test_reports_and_queries_have_the_same(
    capsys: pytest.CaptureFixture[str], tables: Path, command: tuple[str, ...]
) -> None:
    pytest.importorskip("duckdb")
    name, *rest = command
    done = run(capsys, "spark", name, str(tables), *rest)
    assert done.status == OK
    assert done.err.startswith("kdissect: engine: DuckDB ")


def test_tables_in_a_store(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(capsys, "spark", "sql", "--engine", "duckdb", "s3://bucket/tables", "select 1")
    assert done.status == USAGE
    assert "DuckDB reads only directories on this machine, not s3a://bucket/tables; use --eng" in done.err


def test_json_lines(query: Asking) -> None:
    done = query(
        "--json", "select time, topics, response, acks from exchanges left join (select 1 acks) on false"
    )
    first = json.loads(done.lines[0])
    assert len(done.lines) == 4
    assert first["time"] == "2023-11-14T22:13:20.003000Z"
    assert first["topics"] == ["orders"]
    assert json.loads(first["response"])["topics"][0]["name"] == "orders"
    assert first["acks"] is None


def test_csv(query: Asking) -> None:
    done = query("--csv", "select 'a,b' text, null nothing, array(1, 2) numbers, 1.5D half")
    assert done.out == 'text,nothing,numbers,half\r\n"a,b",,"[1,2]",1.5\r\n'


def test_on_a_terminal_texts_are_escaped(
    spark: object, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for form, shown in (("--json", '{"text":"a\\u009b"}\n'), ("--csv", "text\r\na\\x9b\r\n")):
        screen = Terminal()
        monkeypatch.setattr(sys, "stdout", screen)
        assert (
            main(
                ["spark", "sql", "--engine", "spark", form, str(tables), "select concat('a', chr(155)) text"]
            )
            == OK
        )
        assert screen.shown() == shown


def test_columns_of_one_name(query: Asking) -> None:
    assert query("select 1 a, 2 a").lines[1].split() == ["1", "2"]
    done = query("--json", "select 1 a, 2 a")
    assert done == Run(USAGE, "", done.err)
    assert "two columns are named a; rename one of them: a AS NAME" in done.err


def test_limit(query: Asking) -> None:
    assert len(query("--json", "--max-rows", "2", "select * from exchanges").lines) == 2
    shown = query("--max-rows", "2", "select number from exchanges")
    assert shown.lines[0] == "first 2 rows; use --max-rows to show more"
    assert [line.strip() for line in shown.lines[1:]] == ["number", "1", "2"]
    assert query("select 1 where false").lines == ["no rows"]


def test_all_tables_are_there(query: Asking) -> None:
    names = [json.loads(line)["viewName"] for line in query("--json", "show views").lines]
    assert {"exchanges", "partitions", "connections", "groups", "topic_ids", "anomalies", "captures"} <= {
        *names
    }


def test_a_statement_that_answers_nothing(query: Asking) -> None:
    assert query("create or replace temporary view nothing as select 1") == Run(OK, "", "")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("selct 1", "kdissect: [PARSE_SYNTAX_ERROR] Syntax error at or near 'selct'. (line 1, pos 0)"),
        ("select * from exchange", "kdissect: [TABLE_OR_VIEW_NOT_FOUND] The table or view `exchange` cannot"),
        ("select nix from exchanges", "kdissect: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or"),
        ("select raise_error('boo')", "kdissect: [USER_RAISED_EXCEPTION] boo"),
    ],
)
def test_mistakes_are_one_line(query: Asking, statement: str, message: str) -> None:
    done = query(statement)
    assert (done.status, done.out) == (USAGE, "")
    assert done.err.startswith(message)
    assert done.err.count("\n") == 1


def test_no_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Reported before Spark is started: this test has no session."""
    done = run(capsys, "spark", "sql", str(tmp_path), "select 1")
    assert done.status == USAGE
    assert done.err == (
        f"kdissect: no tables in {tmp_path}; create them with kdissect export or kdissect spark decode\n"
    )


@pytest.fixture
def duckdb_query(capsys: pytest.CaptureFixture[str], tables: Path) -> Asking:
    pytest.importorskip("duckdb")
    return lambda *options: run(capsys, "spark", "sql", "--engine", "duckdb", str(tables), *options)


def test_values_on_duckdb(duckdb_query: Asking) -> None:
    done = duckdb_query(
        "--json",
        "select timestamptz '2026-11-21 09:05:00.123456+01:00' as time, date '2026-11-21' as day, "
        "'abc'::blob as bytes, null as nothing, [1, null] as numbers, {a: 1, b: 'x'} as struct, "
        "map {'k': 2} as map, 9223372036854775807 as large, 1.5 as half, 'nan'::double as nan, sum(1) as one",
    )
    assert json.loads(done.out) == {
        "time": "2026-11-21T08:05:00.123456Z",
        "day": "2026-11-21",
        "bytes": "YWJj",
        "nothing": None,
        "numbers": [1, None],
        "struct": {"a": 1, "b": "x"},
        "map": {"k": 2},
        "large": 9223372036854775807,
        "half": 1.5,
        "nan": "NaN",
        "one": 1,
    }


def test_tables_on_duckdb(duckdb_query: Asking) -> None:
    done = duckdb_query(COUNTED)
    assert (done.status, done.err.split()[:3]) == (OK, ["kdissect:", "engine:", "DuckDB"])
    assert [line.split() for line in done.lines][1:] == [
        ["Heartbeat", "3", "1000"],
        ["Metadata", "1", "1000"],
    ]
    first = json.loads(duckdb_query("--json", "select time, topics, response from exchanges").lines[0])
    assert first["time"] == "2023-11-14T22:13:20.003000Z"
    assert json.loads(first["response"])["topics"][0]["name"] == "orders"
    assert duckdb_query("create view nothing as select 1").out == ""


def test_mistakes_on_duckdb_are_one_line(duckdb_query: Asking) -> None:
    done = duckdb_query("select nix from exchanges")
    assert (done.status, done.out) == (USAGE, "")
    assert done.err.splitlines()[1].startswith("kdissect: Binder Error: Referenced column")
    assert done.err.count("\n") == 2


def test_without_duckdb(
    capsys: pytest.CaptureFixture[str], tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdissect.tables.duck.find_spec", lambda name: None if name == "duckdb" else name)
    done = run(capsys, "spark", "sql", "--engine", "duckdb", str(tables), "select 1")
    assert (done.status, done.err) == (
        USAGE,
        f"kdissect: duckdb not installed; {install('duckdb')}\n",
    )
