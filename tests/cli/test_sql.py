from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from kdissect.cli import sql
from kdissect.cli.terminal import INTERRUPTED, OK, USAGE
from kdissect.errors import OutputError
from kdissect.tables.rows import DEFAULT_TABLES
from tests.cli.commands import Run, capture_bytes, run, spawn, talk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    RunSql = Callable[..., Run]

QUICKSTART, BASICS = "samples/quickstart.pcap", "samples/kafka-4-basics.pcap"
COUNTED = "select api, count(*) n from exchanges group by all order by n desc, api limit 3"


@pytest.fixture
def run_sql(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSql:
    """Run queries; nothing is left behind."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def run_there(*arguments: str) -> Run:
        done = run(capsys, "sql", *arguments)
        assert list(tmp_path.iterdir()) == []
        return done

    return run_there


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_rows_are_those_of_read(run_sql: RunSql, capsys: pytest.CaptureFixture[str], jobs: str) -> None:
    by_read = [
        json.loads(line) for line in run(capsys, "read", "--json", "--names", "whole", QUICKSTART).lines
    ]
    query = "from exchanges select connection, number, api, latency_us, topics order by all"
    rows = [json.loads(line) for line in run_sql("--json", "-j", jobs, QUICKSTART, query).lines]
    keys = list(rows[0])
    assert sorted(map(str, rows)) == sorted(str({key: each[key] for key in keys}) for each in by_read)


def test_several_captures_as_a_page_and_as_csv(run_sql: RunSql) -> None:
    done = run_sql(QUICKSTART, BASICS, COUNTED)
    assert (done.status, done.err) == (OK, "")
    assert [line.split() for line in done.lines] == [
        ["api", "n"],
        ["Metadata", "61"],
        ["ApiVersions", "60"],
        ["Produce", "27"],
    ]
    table = list(csv.reader(io.StringIO(run_sql("--csv", QUICKSTART, BASICS, COUNTED).out)))
    assert table[:2] == [["api", "n"], ["Metadata", "61"]]


def test_show_tables_lists_those_of_an_export(run_sql: RunSql) -> None:
    assert run_sql("--csv", QUICKSTART, "show tables").lines == ["name", *sorted(DEFAULT_TABLES)]


def test_filters_and_records(run_sql: RunSql) -> None:
    query = "from records select topic, count(*) n where topic is not null group by all"
    done = run_sql("--json", "--api", "Produce", "--client", "billing", QUICKSTART, query)
    assert [json.loads(line) for line in done.lines] == [{"topic": "payments", "n": 1}]


def test_bodies_only_if_the_query_is_about_them(run_sql: RunSql, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = []
    written = sql.write_tables

    def watched(query: object, tables: object, *others: object) -> object:
        bodies.append((tables.bodies, tables.tables))  # type: ignore[attr-defined]
        return written(query, tables, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(sql, "write_tables", watched)
    count = "select count(*) filter (where {} is not null) n from exchanges"
    for column in ("latency_us", "request", "response"):
        (line,) = run_sql("--json", "--api", "Metadata", QUICKSTART, count.format(column)).lines
        assert json.loads(line) == {"n": 13 if column == "request" else 12}  # one was not answered
    run_sql(QUICKSTART, "from (select * from exchanges) limit 1")
    assert bodies == [("none", ("exchanges",)), *[("both", ("exchanges",))] * 3]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("select apis from exchanges", 'column "apis" not found in FROM clause! Candidate bindings: "api'),
        ("select api from exchange", 'Table with name exchange does not exist! Did you mean "exchanges"?'),
        ("selec", "syntax error"),
    ],
)
def test_mistakes_are_reported_before_reading(
    run_sql: RunSql, monkeypatch: pytest.MonkeyPatch, query: str, text: str
) -> None:
    monkeypatch.setattr(sql, "write_tables", None)
    done = run_sql(QUICKSTART, query)
    assert (done.status, done.out) == (USAGE, "")
    assert text in done.err
    assert done.err.count("\n") == 1


def test_a_query_without_a_capture_and_a_capture_without_a_query(run_sql: RunSql) -> None:
    assert "FILE" in run_sql(COUNTED).err
    done = run_sql(QUICKSTART)
    assert done.status == USAGE
    assert f'the last argument is the query: kdissect sql {QUICKSTART} "select ..."' in done.err
    done = run_sql(QUICKSTART, "nowhere.pcap", COUNTED)
    assert done.status == USAGE
    assert "nowhere.pcap: no such file" in done.err
    assert len(done.lines) == 4  # of the other capture


def test_without_room(run_sql: RunSql, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OutputError("cannot write part-0.parquet: No space left on device")

    monkeypatch.setattr(sql, "write_tables", full)
    done = run_sql(QUICKSTART, COUNTED)
    assert done.err.endswith("No space left on device; TMPDIR names a directory with more room\n")
    assert done.status != OK


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_an_interrupted_query_leaves_nothing(tmp_path: Path, number: int, status: int) -> None:
    with spawn(
        "sql", "-", COUNTED, stdin=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as running:
        assert running.stdin is not None
        running.stdin.write(capture_bytes(talk()))
        running.stdin.flush()
        while not any(tmp_path.glob("kdissect-sql-*/*")):
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(number)
        running.wait(60)
    assert list(tmp_path.iterdir()) == []
    assert running.returncode == status
