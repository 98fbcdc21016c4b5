from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import capture_bytes, run, talk

if TYPE_CHECKING:
    from pathlib import Path

BASICS = "samples/kafka-4-basics.pcap"
QUICKSTART = "samples/quickstart.pcap"


def test_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "summary", BASICS)
    assert (done.status, done.err) == (0, "")
    _, *titles = [line for line, before in zip(done.lines, ["", *done.lines], strict=False) if not before]
    tables = ("APIs", "Brokers", "Clients", "Topics", "Errors", "Slowest exchanges")
    assert titles == ["Capture", *tables, "Waits and delays", "Expected errors"]


def test_one_table_alone_in_another_order(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "summary", "--by", "partition", "--order-by", "name", "--max-rows", "2", BASICS)
    assert done.status == 0
    start = done.lines.index("Partitions")
    assert [line.split()[0] for line in done.lines[start + 3 : start + 5]] == ["late-0", "late-1"]
    assert done.lines[-1].endswith(" more; use --max-rows to show them")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "summary", "--json", "--api", "Produce", "--interval", "1s", BASICS)
    document = json.loads(done.out)
    assert [row["api"] for row in document["apis"]] == ["Produce"]
    assert document["capture"]["exchanges"] == sum(
        row["exchanges"] for row in document["intervals"] if row["key"] is None
    )
    assert document["groups"] is None


def test_json_has_every_row_unless_limited(capsys: pytest.CaptureFixture[str]) -> None:
    all_rows = json.loads(run(capsys, "summary", "--json", BASICS).out)
    first_rows = json.loads(run(capsys, "summary", "--json", "--max-rows", "3", BASICS).out)
    assert len(all_rows["apis"]) > 10
    assert first_rows["apis"] == all_rows["apis"][:3]


def test_parts_stand_alone(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "summary", "--lag", BASICS)
    _, *titles = [line for line, before in zip(done.lines, ["", *done.lines], strict=False) if not before]
    assert titles == ["Capture", "Lag"]
    done = run(capsys, "summary", "--groups", "--versions", BASICS)
    assert {"Groups", "Rejected by newer Kafka releases"} < set(done.lines)
    assert "APIs" not in done.lines
    document = json.loads(run(capsys, "summary", "--lag", "--json", BASICS).out)
    assert (document["apis"], document["lag"][0]["kind"]) == (None, "client")


def test_no_match_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "summary", "--topic", "nothing-like-it", BASICS)
    assert done.status == 0
    assert "no match in 246 exchanges" in done.err


@pytest.mark.parametrize("arguments", [("--interval", "0s"), ("--interval", "soon"), ("--by", "color")])
def test_invalid_option_values(arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "summary", *arguments, BASICS)
    assert (done.status, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1


def test_a_damaged_capture_is_summarised_up_to_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(capture_bytes(talk())[:-10])
    done = run(capsys, "summary", str(path))
    assert done.status == 0
    assert "4 exchanges" in done.out
    assert "warning" in done.err


@pytest.mark.parametrize(
    ("sample", "status"), [("samples/mock-old-versions.pcap", 1), (QUICKSTART, 0)], ids=["old", "new"]
)
def test_a_pipeline_can_gate_on_the_audit(
    sample: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "summary", "--versions", "--fail", sample).status == status
    assert run(capsys, "summary", "--versions", sample).status == 0


@pytest.mark.parametrize(
    ("options", "sample", "status"),
    [
        (["--fail"], BASICS, 1),
        (["--fail"], QUICKSTART, 0),
        (["--fail"], "samples/mock-old-versions.pcap", 1),  # its clients would break
        (["--fail-on", "error"], BASICS, 0),
        (["--fail-on", "warning"], BASICS, 1),
        (["--fail-on", "note"], QUICKSTART, 0),
        (["--fail"], "samples/mock-aiokafka.pcap", 0),
        (["--fail-on", "note"], "samples/mock-aiokafka.pcap", 1),
        (["--fail-on", "error"], "samples/http-on-9092.pcap", 1),  # unknown
    ],
)
def test_a_pipeline_can_gate_on_the_first_screen(
    options: list[str], sample: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "summary", sample).status == 0
    assert run(capsys, "summary", *options, sample).status == status


def test_findings_with_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "summary", "--findings", BASICS)
    assert done.status == 0
    assert "warning: throttled" in done.lines
    document = json.loads(run(capsys, "summary", "--findings", "--json", BASICS).out)
    (finding,) = document["findings"]
    (evidence,) = finding["evidence"]
    assert "throttle" in run(capsys, "read", "-V", "--exchange", evidence, BASICS).out


@pytest.mark.parametrize(
    ("sample", "status"), [(BASICS, 1), ("samples/quickstart.pcap", 0)], ids=["some", "none"]
)
def test_a_pipeline_can_gate_on_findings(
    sample: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "summary", "--findings", "--fail", sample).status == status


def test_rules_are_explained_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "summary", "--findings", "--list")
    assert (done.status, done.err) == (0, "")
    rows = json.loads(run(capsys, "summary", "--findings", "--list", "--json").out)
    assert all(row["rule"] in done.out and row["title"] in done.out for row in rows)
    assert run(capsys, "summary", "--list").status == 2


def test_transactions(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "summary", "--transactions", "samples/kafka-4-transactions.pcap")
    _, *titles = [line for line, before in zip(done.lines, ["", *done.lines], strict=False) if not before]
    assert titles == ["Capture", "Producers", "Transactions", "Sequence numbers"]
    assert "5 producers, 10 transactions, 0 still open" in done.lines


def test_sketches(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "sketches.jsonl"
    done = run(capsys, "summary", "--json", "--sketches", str(path), BASICS)
    assert (done.status, done.err) == (0, "")
    document = json.loads(done.out)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    counts = {
        (line["quantity"], line["key"]): (line["count"], line["max"]) for line in lines if line["by"] == "api"
    }
    assert {quantity for quantity, _ in counts} == {"service_us", "wait_us", "total_us"}
    assert counts == {
        (quantity, row["api"]): (row[quantity]["count"], row[quantity]["max"])
        for row in document["apis"]
        for quantity in ("service_us", "wait_us", "total_us")
        if row[quantity]["count"]
    }


def test_sketches_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done = run(capsys, "summary", "--sketches", str(tmp_path / "none" / "sketches.jsonl"), BASICS)
    assert done.status != 0
    assert "cannot write" in done.err


def test_a_filter_on_a_topic_lists_no_other_topic(capsys: pytest.CaptureFixture[str]) -> None:
    """Some of these exchanges are about both topics, plain and spread."""
    capture, parts = (
        "samples/kafka-4-transactions.pcap",
        ["--findings", "--groups", "--lag", "--transactions"],
    )
    everything = json.loads(run(capsys, "summary", "--json", *parts, capture).out)
    assert {row["topic"] for row in everything["lag"]} > {"plain", "spread"}
    for topic, other in (("plain", "spread"), ("spread", "plain")):
        page = run(capsys, "summary", "--topic", topic, capture).out
        document = run(capsys, "summary", "--json", *parts, "--topic", topic, capture).out
        assert topic in page
        assert other not in page
        assert f'"{other}"' not in document
        expected = [row for row in everything["lag"] if row["topic"] == topic]
        assert json.loads(document)["lag"] == expected
    page = run(capsys, "summary", "--json", "--by", "partition", "--partition", "spread-1", capture).out
    assert {(row["topic"], row["partition"]) for row in json.loads(page)["partitions"]} == {("spread", 1)}
