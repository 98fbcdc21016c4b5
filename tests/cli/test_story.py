"""``kdissect story``: its forms of output, and what it says when there is nothing to show."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from kdissect.cli.main import main
from samples.pages import Terminal
from tests.cli.commands import run
from tests.test_hostile import AS_KAFKA, assert_harmless, capture

__all__ = ["capture"]  # a fixture

STORM, FENCED = "samples/kafka-4-storm.pcap.gz", "samples/kafka-4-fenced.pcap.gz"
CLUSTER, NO_NAMES = "samples/kafka-4-cluster.pcap.gz", "samples/kafka-4-latecomer.pcap.gz"


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        ("group:restles", 'no group "restles"; did you mean "restless"?'),
        ("client:stedy", 'no client "stedy"; did you mean "steady"?'),
        ("topic:spred", 'no topic "spred"; did you mean "spread"?'),
        ("txn:pay", 'no transactional ID "pay"'),
        ("record:spread-1@99", 'no record "spread-1@99"; did you mean "spread-1@0"?'),
    ],
)
def test_a_subject_that_does_not_occur(
    subject: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ((), ("--diagram",), ("--mermaid",)):
        done = run(capsys, "story", subject, *option, STORM)
        assert done == (0, "", f"kdissect: no match in 233 exchanges: {message}\n")


def test_a_subject_that_is_none_of_the_forms(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "story", "restless", STORM)
    assert done.status == 2
    assert done.lines == []
    assert done.err.count("\n") == 1
    assert "group:G, client:C, txn:ID, topic:T or record:T-P@OFFSET" in done.err


def test_lines_have_both_ends_and_the_exchange(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "story", "txn:pay-alone", FENCED)
    assert done.err == ""
    entries = [re.split(r" {2,}", line) for line in done.lines if "* " not in line]
    assert {cells[3] for cells in entries} == {"127.0.0.1:19291"}
    for cells in entries:
        read = run(capsys, "read", "--exchange", cells[6], FENCED)
        assert cells[4] in read.out
        assert cells[0] in read.out


@pytest.mark.parametrize("option", ["--diagram", "--mermaid"])
def test_forms_of_diagrams(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "story", "txn:pay-alone", option, FENCED)
    assert (done.status, done.err) == (0, "")
    assert (done.lines[0] == "sequenceDiagram") is (option == "--mermaid")
    assert sum("EndTxn" in line for line in done.lines) >= 2
    assert run(capsys, "story", "txn:pay-alone", "--diagram", "--mermaid", FENCED).status == 2


def test_lines_where_a_diagram_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, errors = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", errors)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["story", "topic:spread", "--diagram", CLUSTER]) == 0
    assert re.search(r"\d+ participants do not fit side by side in 80 columns", errors.getvalue())
    assert screen.shown().startswith("TIME (UTC)   AFTER   CLIENT")
    assert all(len(line) <= 80 for line in screen.shown().splitlines())


def test_names_of_topics_are_of_the_whole_input_unless_from_a_pipe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, window = (
        run(capsys, "story", "topic:orders", "--names", names, NO_NAMES) for names in ("whole", "window")
    )
    assert whole.err == ""
    assert len(whole.lines) >= len(window.lines)
    assert run(capsys, "story", "topic:orders", NO_NAMES) == whole


@pytest.mark.parametrize("option", ["--colour=always", "--diagram", "--mermaid"])
def test_names_from_the_network_are_escaped(
    option: str, capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(capsys, "story", "client:*", option, *AS_KAFKA, str(capture))
    assert done.status == 0
    assert "PWNED" in done.out
    assert_harmless(done.out)
    assert_harmless(done.err)


def test_json_has_the_entries_and_notes_of_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "story", "-t", "ud", "group:restless", STORM).lines
    rows = [json.loads(line) for line in run(capsys, "story", "group:restless", "--json", STORM).lines]
    assert [row["type"] == "note" for row in rows] == ["* " in line for line in lines]
    for row, line in zip(rows, lines, strict=True):
        assert line.startswith(row["time"].rstrip("Z"))
        if row["type"] == "exchange":
            assert row["exchange"] in line
            assert all(error in line for error in row["errors"])
            assert row["latency_us"] is None or row["latency_us"] > 0


def test_filters_select_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    everything = run(capsys, "story", "group:restless", "--json", STORM).lines
    rows = [json.loads(line) for line in everything]
    joined = run(capsys, "story", "group:restless", "--json", "--api", "JoinGroup", STORM)
    shown = [json.loads(line) for line in joined.lines]
    assert joined.err == ""
    assert {row["api"] for row in shown if row["type"] == "exchange"} == {"JoinGroup"}
    assert [row["exchange"] for row in shown if row["type"] == "exchange"] == [
        row["exchange"] for row in rows if row.get("api") == "JoinGroup"
    ]
    rebalances = [row["text"] for row in rows if "rebalance" in row.get("text", "")]
    assert [row["text"] for row in shown if "rebalance" in row.get("text", "")] == rebalances
    middle = rows[len(rows) // 2]["time"]
    later = run(capsys, "story", "group:restless", "--json", "--since", middle, STORM)
    assert all(json.loads(line)["end"] >= middle for line in later.lines)
    assert 0 < len(later.lines) < len(rows)
    nothing = run(capsys, "story", "group:restless", "--since", "2027-01-01T00:00:00Z", STORM)
    assert (nothing.status, nothing.out) == (0, "")
    assert re.fullmatch(r"kdissect: the filters exclude all \d+ exchanges of group restless\n", nothing.err)


FIELD = Path(__file__).resolve().parents[1] / "field"


def test_the_story_of_a_record_begins_with_the_produce_that_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(FIELD / "idempotent-epoch-bump-duplicates.pcap")
    rows = [json.loads(line) for line in run(capsys, "story", "--json", "record:seqs-0@2704", path).lines]
    assert [(row["exchange"], row["errors"], row["text"].partition(":")[0]) for row in rows] == [
        (
            "267c6eafe895/2",
            ["NOT_LEADER_OR_FOLLOWER"],
            "produced, fetched nevertheless in 109cc5869b61/5",
        ),
        ("109cc5869b61/1", ["UNKNOWN_PRODUCER_ID"], "produced, fetched nevertheless in 109cc5869b61/5"),
        ("109cc5869b61/5", [], "fetched, its Produce 267c6eafe895/2 failed"),
    ]


def test_the_story_of_a_record_that_clients_skip(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(FIELD / "compacted-tail-stuck.pcap")
    rows = [json.loads(line) for line in run(capsys, "story", "--json", "record:state-0@110", path).lines]
    assert len(rows) == 30
    assert rows[0]["text"].startswith("fetched, before the requested offset: state-0 from 120")
