"""What is said about incidents recorded on a real cluster: the truth is named, and nothing false."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kdissect.cli.main import kdissect
from tests.core import needs_core, without_core

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).parent
INCIDENTS = sorted(path.name.removesuffix(".json") for path in HERE.glob("*.json"))

# Incident -> rule, the worst first -> the beginnings of subject and message. Without notes about habits.
FINDINGS: Mapping[str, Mapping[str, list[tuple[str, str]]]] = {
    "many-inflight": {
        "queueing": [("client bursty", "695 of 3,936 Produce requests on 1 connection waited")]
    },
    "mtu-blackhole": {
        "mtu-black-hole": [
            (
                "client scanner at 10.99.0.13, 2 brokers: 10.99.0.1:9092 and 10.99.0.3:9092",
                "1,448-byte segments of requests never arrive, those of up to 782 bytes do (10 connections)",
            )
        ],
        "network-loss": [
            (
                "client scanner at 10.99.0.13, 2 brokers: 10.99.0.1:9092 and 10.99.0.3:9092",
                "104,256 bytes on 10 connections never arrived",
            )
        ],
    },
    "poll-timeout": {
        "poll-timeout": [
            ("group invoicing, client inv-1 at 10.99.0.11", "left the group once: it did not call")
        ],
        "queueing": [("client billing", "462 of 1,477 Produce requests on 3 connections waited")],
    },
    "tiny-window": {
        "slow-transfer": [
            (
                "client images-small at 10.99.0.13, broker 10.99.0.2:9092",
                "27.4 KB/s while messages were under way, for 29.97s: 1.1 KB in each round trip of 40.7ms",
            )
        ],
        "incomplete-messages": [
            (
                "client images-small, broker 10.99.0.2:9092",
                "1 incomplete message (1 Fetch response): of 1,048,650 bytes announced 822,539 came, in 2",
            )
        ],
    },
    "topic-recreated": {
        "topic-recreated": [("topic carts", "deleted and created again once")],
        "queueing": [("client carts-prod", "273 of 729 Produce requests on 3 connections waited")],
    },
    "txn-timeout": {
        "readers-blocked": [
            (
                "partition refunds-1, client refund-1, transactional ID refund-1",
                "a transaction was open until it timed out (transaction.timeout.ms is 4,000)",
            )
        ],
        "transaction-failed": [
            (
                "client refund-1, transactional ID refund-1",
                "EndTxn refused with INVALID_TXN_STATE, once; its transaction.timeout.ms is 4,000",
            )
        ],
    },
}
VERDICTS = {"txn-timeout": "failing"}


@cache
def document_of(incident: str, command: str = "summary") -> Any:
    parts = ["--findings", "--groups"] if command == "summary" else []
    result = CliRunner().invoke(kdissect, [command, "--json", *parts, str(HERE / f"{incident}.pcap.zst")])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def truth(incident: str) -> Any:
    return json.loads((HERE / f"{incident}.json").read_text())["expect"]["facts"]


@pytest.mark.parametrize("incident", INCIDENTS)
def test_the_truth_is_named_and_nothing_else(incident: str) -> None:
    by_rule: dict[str, list[tuple[str, str]]] = {}
    for row in document_of(incident)["findings"]:
        if row["severity"] != "note":
            by_rule.setdefault(row["rule"], []).append((row["subject"], row["message"]))
    expected = FINDINGS[incident]
    assert list(by_rule) == list(expected)
    for rule, rows in expected.items():
        for (subject, message), (known, begins) in zip(by_rule[rule], rows, strict=True):
            assert (subject, message[: len(begins)]) == (known, begins)


@pytest.mark.parametrize("incident", INCIDENTS)
def test_the_capture_is_good_and_the_traffic_is_not(incident: str) -> None:
    """The network may have lost bytes, but no capture did."""
    summary, check = document_of(incident), document_of(incident, "check")
    assert summary["health"] == check["health"]
    assert summary["health"]["verdict"] == VERDICTS.get(incident, "degraded")
    assert check["verdict"] == "good"
    assert (check["tcp"]["gaps"], check["tcp"]["lost_bytes"]) == (0, 0)
    assert "gap" not in {each["anomaly"] for each in check["anomalies"]}
    assert not any("not captured" in notice for notice in check["notices"])


def test_leaders_that_did_not_move() -> None:
    assert truth("topic-recreated")["leader_changes"] == 0
    assert "leaders-moving" not in {row["rule"] for row in document_of("topic-recreated")["findings"]}


def test_a_slow_transfer_lasts_until_its_last_byte() -> None:
    row = document_of("tiny-window")["findings"][0]
    assert (row["first"][:19], row["last"][:19]) == ("2026-11-27T17:06:32", "2026-11-27T17:07:02")


def test_each_rebalance_of_the_group_and_no_storm() -> None:
    (group,) = document_of("poll-timeout")["group_history"]
    assert [(each["client"], each["left_reason"]) for each in group["members"]] == [
        ("inv-2", "the consumer is being closed"),
        ("inv-1", "consumer poll timeout has expired."),
        ("inv-1", "the consumer is being closed"),
    ]
    assert len(group["rebalances"]) == 1 + truth("poll-timeout")["rebalances_after_first"]
    assert (group["storms"], group["state"], group["present"]) == ([], "empty", 0)


@needs_core
@pytest.mark.parametrize("incident", INCIDENTS)
def test_the_core_changes_nothing(incident: str) -> None:
    expected = document_of(incident)["findings"]
    with without_core():
        assert document_of.__wrapped__(incident)["findings"] == expected
