"""``kdissect story``: its forms of output, and what it says when there is nothing to show."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from kdissect.cli.main import main
from samples.pages import Terminal
from tests.captures import pcap
from tests.cli.commands import run
from tests.stats.findings.test_troubles import refused
from tests.test_hostile import AS_KAFKA, assert_harmless, capture
from tests.tshark import program

__all__ = ["capture"]  # a fixture

STORM, FENCED = "samples/kafka-4-storm.pcap.gz", "samples/kafka-4-fenced.pcap.gz"
VERDICT = 3  # lines before the entries, where nothing is wrapped
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
    for option in ((), ("--diagram",), ("--mermaid",), ("--svg",), ("--html",)):
        done = run(capsys, "story", subject, *option, STORM)
        assert done == (0, "", f"kdissect: no match in 233 exchanges: {message}\n")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("advertised", "advertised-listener-unreachable: client at 127.0.0.1, broker 127.0.0.9:19999"),
        ("firewall", "connect-timeout: client at 127.0.0.1, broker 127.0.0.1:19291"),
        ("foreign", "nothing to explain"),  # somebody else's connections
    ],
)
def test_failed_attempts_of_a_client_are_part_of_its_story(
    name: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(capsys, "story", "client:writer", f"samples/troubles/{name}.pcap.gz")
    assert done.lines[2].startswith(f"why    {why}")


def test_elections_and_brokers_that_join(capsys: pytest.CaptureFixture[str]) -> None:
    """As the truth of the sample has it: controller 3 is elected, leaves, and returns with an empty log."""
    done = run(capsys, "story", "quorum", "--json", "samples/kafka-4-kraft.pcap.gz")
    rows = [row for row in map(json.loads, done.lines) if "api" in row]
    votes = [row["text"] for row in rows if row["api"] == "Vote"]
    assert "node 3, epoch 1, voter 1 -> granted" in votes
    assert "node 2, epoch 1, voter 1 -> refused" in votes
    leaders = [row["text"] for row in rows if row["api"] == "BeginQuorumEpoch"]
    assert [text[:17] for text in leaders] == 2 * ["leader 3, epoch 1"] + 2 * ["leader 1, epoch 2"]
    apis = {row["api"] for row in rows}
    assert {"BrokerRegistration", "BrokerHeartbeat", "Fetch", "FetchSnapshot"} <= apis
    assert not apis & {"Produce", "ApiVersions", "CreateTopics"}


def test_a_subject_that_is_none_of_the_forms(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "story", "restless", STORM)
    assert done.status == 2
    assert done.lines == []
    assert done.err.count("\n") == 1
    assert "group:G, client:C, txn:ID, topic:T, record:T-P@OFFSET, broker:N, host:IP or quorum" in done.err


def test_lines_have_both_ends_and_the_exchange(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "story", "txn:pay-alone", FENCED)
    assert done.err == ""
    entries = [re.split(r" {2,}", line) for line in done.lines[VERDICT:] if "* " not in line]
    assert {cells[3] for cells in entries} == {"127.0.0.1:19291"}
    for cells in entries:
        read = run(capsys, "read", "--exchange", cells[6], FENCED)
        assert cells[4] in read.out
        assert cells[0] in read.out


@pytest.mark.parametrize("option", ["--diagram", "--mermaid", "--svg", "--html"])
def test_forms_of_diagrams(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "story", "txn:pay-alone", option, FENCED)
    assert (done.status, done.err) == (0, "")
    assert (done.lines[0] == "sequenceDiagram") is (option == "--mermaid")
    assert done.out.startswith("<svg ") is (option == "--svg")
    assert done.out.startswith("<!doctype html>") is (option == "--html")
    assert done.out.count("EndTxn") >= 2
    assert run(capsys, "story", "txn:pay-alone", "--diagram", "--mermaid", FENCED).status == 2


def test_lines_where_a_diagram_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, errors = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", errors)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["story", "topic:spread", "--diagram", CLUSTER]) == 0
    assert re.search(r"\d+ participants do not fit side by side in 80 columns", errors.getvalue())
    assert re.match(r"(?s)what   .+\nsince  .+\nwhy    [^\n]+\nTIME \(UTC\)   AFTER   CLIENT", screen.shown())
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


@pytest.mark.parametrize("option", ["--colour=always", "--diagram", "--mermaid", "--svg", "--html"])
def test_names_from_the_network_are_escaped(
    option: str, capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(capsys, "story", "client:*", option, *AS_KAFKA, str(capture))
    assert done.status == 0
    assert "PWNED" in done.out
    assert_harmless(done.out)
    assert_harmless(done.err)


def test_json_has_the_entries_and_notes_of_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    (what, since, why, *lines) = run(capsys, "story", "-t", "ud", "group:restless", STORM).lines
    verdict, *rows = map(json.loads, run(capsys, "story", "group:restless", "--json", STORM).lines)
    assert (verdict["type"], what, why) == ("note", f"what   {verdict['text']}", f"why    {verdict['why']}")
    assert since.startswith(f"since  {verdict['time'].rstrip('Z')} to {verdict['end'].rstrip('Z')} (")
    assert not any("why" in row for row in rows)
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
    _, *rows = map(json.loads, run(capsys, "story", "--json", "record:seqs-0@2704", path).lines)
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
    _, *rows = map(json.loads, run(capsys, "story", "--json", "record:state-0@110", path).lines)
    assert len(rows) == 30
    assert rows[0]["text"].startswith("fetched, before the requested offset: state-0 from 120")


# --- verdicts -----------------------------------------------------------------------------------------------

INCIDENTS = Path(__file__).resolve().parents[1] / "cluster"


def rows_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    done = run(capsys, "story", "--json", *arguments)
    assert done.status == 0
    return [json.loads(line) for line in done.lines]


def incident(name: str) -> str:
    return str(INCIDENTS / f"{name}.pcap.zst")


def test_the_verdict_on_a_group_says_what_happened_since_when_and_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts = json.loads((INCIDENTS / "poll-timeout.json").read_text())["expect"]["facts"]
    verdict, *rows = rows_of(capsys, "group:invoicing", incident("poll-timeout"))
    rebalances = 1 + facts["rebalances_after_first"]
    assert verdict["text"].startswith(
        f"group invoicing: {facts['generations']} generations, {rebalances} rebalances "
    )
    assert verdict["why"] == (
        "poll-timeout: group invoicing, client inv-1 at 10.99.0.11: left the group once: "
        "it did not call poll() within max.poll.interval.ms"
    )
    (kicked,) = (row for row in rows if row.get("api") == "LeaveGroup" and row["time"] < "2026-11-27T17:04")
    assert (verdict["time"], kicked["client"]) == (kicked["time"], "inv-1")


def test_a_topic_that_is_created_again_is_why(capsys: pytest.CaptureFixture[str]) -> None:
    verdict, *_ = rows_of(capsys, "topic:carts", incident("topic-recreated"))
    assert verdict["why"].startswith("topic-recreated: topic carts: ")
    assert verdict["why"].endswith("; also found: queueing")
    assert "17:10:44" < verdict["time"][11:] < "17:10:51", "as the json beside it says"


def test_a_verdict_says_if_nothing_happened_or_the_evidence_does_not_decide(
    capsys: pytest.CaptureFixture[str],
) -> None:
    calm, *rows = rows_of(capsys, "group:calm", STORM)
    assert calm["why"] == "nothing to explain: no finding, no unexpected error"
    assert (calm["time"], calm["end"]) == (rows[0]["time"], max(row["end"] for row in rows))
    cut, *rows = rows_of(capsys, "topic:spread", CLUSTER)
    assert cut["why"] == "the evidence does not decide: no rule explains 1 Fetch incomplete"
    assert cut["time"] in {row["time"] for row in rows if row["type"] == "exchange"}


def test_members_that_say_why_they_leave_and_those_that_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    verdict, *rows = rows_of(capsys, "group:restless", STORM)
    left = sum(" begins: " in row["text"] and " left" in row["text"] for row in rows)
    assert verdict["why"].endswith(f"; members left without a reason {left} times")


def test_filters_narrow_the_list_but_not_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    whole, *rows = rows_of(capsys, "group:restless", STORM)
    narrow, *fewer = rows_of(capsys, "group:restless", "--api", "JoinGroup", STORM)
    assert len(fewer) < len(rows)
    assert narrow == whole


# --- brokers and hosts --------------------------------------------------------------------------------------

STOPPED = "127.0.0.1:19293"  # broker 2, which the sample stops and starts again


def of_tshark(condition: str, field: str = "tcp.stream") -> set[str]:
    command = [
        program(),
        "-n",
        "-r",
        CLUSTER,
        "-Y",
        f"tcp.port==19293 && {condition}",
        "-T",
        "fields",
        "-e",
        field,
    ]
    return set(subprocess.run(command, capture_output=True, check=True, text=True).stdout.split())


def test_a_broker_has_what_it_answered_and_its_connections(capsys: pytest.CaptureFixture[str]) -> None:
    verdict, *rows = rows_of(capsys, f"broker:{STOPPED}", "--limits", "story_entries=10000", CLUSTER)
    answered = json.loads(Path("samples/kafka-4-cluster.truth.json").read_text())["broker_requests"]["19293"]
    listed: Counter[str] = Counter()
    for row in rows:
        if row["type"] == "exchange" and row["latency_us"] is not None:
            listed[row["api"]] += row["count"]
    assert listed == answered
    notes = [row["text"] for row in rows if row["type"] == "note"]
    assert sum(" opened: " in text for text in notes) == len(of_tshark("tcp.len > 0"))
    ends = Counter(" ".join(text.split()[4:6]) for text in notes if " ended by " in text)
    assert ends.keys() == {"client FIN", "broker FIN"}
    assert ends.total() == len(of_tshark("tcp.len > 0")), "none is open at the end"
    refused = len(of_tshark("tcp.flags.reset == 1 && tcp.seq == 1 && tcp.ack == 1 && tcp.srcport == 19293"))
    (attempts,) = (row for row in rows if "connection refused" in row["text"])
    assert f"connection refused, {refused} times in " in attempts["text"]
    assert verdict["why"].startswith(f"broker-unreachable: broker {STOPPED}")
    assert verdict["time"] < attempts["time"] < attempts["end"] < verdict["end"]


def test_a_node_id_is_a_name_of_its_address(capsys: pytest.CaptureFixture[str]) -> None:
    by_address = rows_of(capsys, f"broker:{STOPPED}", CLUSTER)
    assert rows_of(capsys, "broker:2", CLUSTER) == by_address
    no_such = run(capsys, "story", "broker:7", CLUSTER)
    assert (no_such.status, no_such.out) == (0, "")
    assert no_such.err.endswith(': no broker "7"\n')


def test_a_node_id_needs_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = run(capsys, "story", "broker:2", str(pipe))
    assert (done.status, done.out) == (2, "")
    assert "broker:N reads the input twice, so it needs files; use broker:HOST:PORT" in done.err


def test_a_host_has_both_its_sides(capsys: pytest.CaptureFixture[str]) -> None:
    verdict, *rows = rows_of(capsys, "host:10.99.0.13", incident("mtu-blackhole"))
    assert verdict["why"].startswith("mtu-black-hole: client scanner at 10.99.0.13, ")
    assert {row["client_ip"] for row in rows if row["type"] == "exchange"} == {"10.99.0.13"}
    assert any(" opened: scanner at 10.99.0.13 to 10.99.0.1:9092" in row["text"] for row in rows)
    _, *rows = rows_of(capsys, "host:10.99.0.3", incident("mtu-blackhole"))
    assert {row["broker"] for row in rows if row["type"] == "exchange"} == {"10.99.0.3:9092"}


def test_a_broker_that_nobody_reached_has_a_story_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "gone.pcap"
    packets = chain(*(refused(place, place).packets for place in range(3)))
    path.write_bytes(pcap([(packet.time_ns, packet.data) for packet in packets]))
    done = run(capsys, "story", "--json", "host:10.0.0.2", "-d", "tcp.port==9092,kafka", str(path))
    verdict, attempts = map(json.loads, done.lines)
    assert (verdict["why"].split(":")[0], done.status) == ("connection-refused", 0)
    assert attempts["text"] == "10.0.0.1 to 10.0.0.2:9092: connection refused, 3 times in 2.00s"


def test_notes_on_connections_do_not_grow(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, f"broker:{STOPPED}", "--limits", "story_entries=8", CLUSTER)
    notes = [row["text"] for row in rows if row["type"] == "note"]
    assert sum("connection" in text for text in notes) <= 8
    (left_out,) = (row["text"] for row in rows if "left out" in row["text"])
    assert re.match(r"\d+ exchanges, .*\d+ notes left out; ", left_out)


# --- two lines for one exchange -----------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 130, 200])
def test_what_has_no_room_beside_the_columns_stands_below(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["story", "group:invoicing", incident("poll-timeout")]) == 0
    lines = screen.shown().splitlines()
    assert all(len(line) <= width for line in lines)
    about = "because need to re-join with the given "
    (place,) = (place for place, line in enumerate(lines) if "17:03:39.889" in line)
    beside, below = lines[place : place + 2]
    assert (about in beside, about in below) == ((True, False) if width == 200 else (False, True))
    (short,) = (line for line in lines if "17:03:40.531" in line)
    assert short.endswith("  invoices-1,0,2"), "what fits does not take two lines"
    facts = json.loads((INCIDENTS / "poll-timeout.json").read_text())["expect"]["facts"]
    assert sum("REBALANCE_IN_PROGRESS" in line for line in lines) == facts["rebalances_after_first"]
