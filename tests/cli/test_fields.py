from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from kdissect.cli.terminal import OK, USAGE
from kdissect.query.where import compile_where
from kdissect.tables.columns import EXCHANGE, RECORD, resolve
from tests.cli.commands import Run, run

CAPTURE = str(Path(__file__).parents[2] / "samples/quickstart.pcap")


def names(done: Run) -> list[str]:
    return [line.split()[0] for line in done.lines if line.startswith("  ")]


def test_all_columns_and_every_field_that_a_filter_knows(capsys: pytest.CaptureFixture[str]) -> None:
    shown = names(run(capsys, "fields"))
    assert {column.name for column in (*EXCHANGE, *RECORD)} <= set(shown)
    for name in shown:
        if "." in name:
            compile_where(f"exists({name})", resolve)


def test_a_pattern_selects(capsys: pytest.CaptureFixture[str]) -> None:
    assert names(run(capsys, "fields", "throttle_")) == ["throttle_time_ms", "response.throttle_time_ms"]
    assert names(run(capsys, "fields", "response.thro*")) == ["response.throttle_time_ms"]
    failed = run(capsys, "fields", "thortle_time_ms")
    assert (failed.status, failed.out) == (USAGE, "")
    assert failed.err.endswith(
        'no column or field matches "thortle_time_ms"; did you mean "throttle_time_ms"?\n'
    )


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    (entry,) = json.loads(run(capsys, "fields", "--json", "request.acks").out)
    assert entry["type"] == "int16"
    assert entry["apis"] == ["Produce"]


NAMES = "number,api,latency_us,errors,request.topics.name,response.throttle_time_ms"


def test_the_same_values_in_all_formats(capsys: pytest.CaptureFixture[str]) -> None:
    objects = [json.loads(line) for line in run(capsys, "read", "--json", "-e", NAMES, CAPTURE).lines]
    whole = [json.loads(line) for line in run(capsys, "read", "--json", CAPTURE).lines]
    assert [list(row) for row in objects] == [NAMES.split(",")] * len(whole)
    for row, full in zip(objects, whole, strict=True):
        assert row["api"] == full["api"]
        assert row["response.throttle_time_ms"] == (full["response"] or {}).get("throttle_time_ms")
    rows = list(csv.reader(io.StringIO(run(capsys, "read", "--csv", "--fields", NAMES, CAPTURE).out)))
    lines = [line.split("\t") for line in run(capsys, "read", "-e", NAMES, CAPTURE).out.split("\n")[:-1]]
    assert rows == [NAMES.split(","), *lines]
    assert lines[0][:3] == [str(whole[0]["number"]), whole[0]["api"], str(whole[0]["latency_us"])]


def test_several_options_add_up_and_workers_write_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    one = run(capsys, "read", "-e", "time,api", "-e", "client_id", CAPTURE)
    assert one.lines[0].count("\t") == 2
    assert run(capsys, "read", "-j", "2", "-e", "time,api,client_id", CAPTURE).out == one.out


def test_times_in_the_format_of_t(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "read", "-t", "r", "-e", "time", "-c", "1", CAPTURE).out == "0.000133\n"


def test_records(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "records", "-e", "topic,partition,offset,key", "-c", "2", CAPTURE).lines
    whole = [json.loads(line) for line in run(capsys, "records", "--json", "-c", "2", CAPTURE).lines]
    assert lines == [f"{row['topic']}\t{row['partition']}\t{row['offset']}\t{row['key']}" for row in whole]
    (line,) = run(capsys, "records", "--json", "-e", "headers.key", "-c", "1", CAPTURE).lines
    assert json.loads(line) == {"headers.key": ["trace"]}


def test_what_is_not_printable_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "records", "-e", "key,value", str(Path(CAPTURE).with_name("midstream.pcap")))
    assert done.status == OK
    assert all(line.count("\t") == 1 and line.replace("\t", "").isprintable() for line in done.lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("read", "-e", "latency_u"), 'no column "latency_u"; did you mean "latency_us"?'),
        (("read", "-e", "request.topic.name"), 'request has no field "topic" in any API; did you mean'),
        (("records", "-e", "tpic"), 'no column "tpic"; did you mean "topic"?'),
        (("records", "-e", "topic.x"), 'no "x" in column topic; it has no fields'),
        (("read", "-V", "-e", "api"), "--fields and -V or -x are mutually exclusive"),
        (("records", "-q", "-e", "api"), "--fields and -q are mutually exclusive"),
    ],
)
def test_usage_errors(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str) -> None:
    failed = run(capsys, *arguments, CAPTURE)
    assert (failed.status, failed.out) == (USAGE, "")
    assert message in failed.err
