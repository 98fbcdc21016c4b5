from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest

from kdissect import model
from kdissect.cli.main import COMMANDS, main
from kdissect.cli.terminal import OK, USAGE
from kdissect.exchanges import kafka_connection
from kdissect.kafka import codes
from kdissect.net.analysis import OPENED, UNOPENED
from kdissect.stats import health, pulse_groups, quality, transactions
from kdissect.stats.connection_log import BROKER, CLIENT
from kdissect.stats.findings.rule import WORST_FIRST
from kdissect.stats.findings.rules import RULES
from kdissect.text import groups_page, table
from kdissect.text.explanations import explain, log_lines
from samples.golden import ROOT
from tests.cli.commands import run

if TYPE_CHECKING:
    from kdissect.text.explanations import LogLine

CAPTURE = str(ROOT / "samples" / "quickstart.pcap")


@pytest.mark.parametrize(
    ("word", "first"),
    [
        ("369295616", "size 369,295,616"),
        ("352518912", "size 352,518,912"),
        ("1195725856", "size 1,195,725,856"),
        ("218762506", "size 218,762,506"),
        ("-1", "error -1, UNKNOWN_SERVER_ERROR"),
        ("not-leader-for-partition", "error 6, NOT_LEADER_OR_FOLLOWER"),
        ("NotLeaderOrFollowerException", "error 6, NOT_LEADER_OR_FOLLOWER"),
        (
            "org.apache.kafka.common.errors.GroupAuthorizationException",
            "error 30, GROUP_AUTHORIZATION_FAILED",
        ),
        ("FIND_COORDINATOR", "API FindCoordinator, key 10"),
        ("rebalance-storm", "finding rebalance-storm (warning)"),
        ("wait_us", "column wait_us"),
        ("oversized", "anomaly oversized (warning)"),
        ("max.poll.interval.ms", "config max.poll.interval.ms"),
        ("2147483646", "coordinator on node 1"),
        ("abandoned", "outcome of a request: abandoned"),
        ("degraded", "verdict on the traffic: degraded"),
        ("timed out", "outcome of a transaction: timed_out"),
        ("broker RST", "end of a connection: broker RST"),
    ],
)
def test_a_word(capsys: pytest.CaptureFixture[str], word: str, first: str) -> None:
    done = run(capsys, "explain", word)
    assert done.status == OK
    assert done.lines[0] == first
    assert any(line.startswith("  $ kdissect ") for line in done.lines)


def test_the_beginnings_of_other_protocols() -> None:
    texts = {
        number: explain(str(number))[0].text[0] for number in (369295616, 352518912, 1347571544, 1397966893)
    }
    assert [text.partition("are how ")[2] for text in texts.values()] == [
        "a TLS handshake begins.",
        "a TLS alert begins.",
        "PROXY protocol version 1 begins.",
        "SSH begins.",
    ]
    assert all("size" not in each.what for each in explain("100"))  # of a message


WORDS = {
    "outcome of a request": model.OUTCOMES,
    "kind of an exchange": model.KINDS,
    "verdict on the traffic": (health.FAILING, health.DEGRADED, health.UNKNOWN, health.GOOD),
    "verdict on a capture": quality.VERDICTS,
    "state of a group": (*pulse_groups.STATES, "unknown"),
    "cause of a rebalance": groups_page._CAUSES,
    "outcome of a transaction": transactions.OUTCOMES,
    "attempt to connect": {OPENED, *UNOPENED},
    "end of a connection": [f"{end} {how}" for end in (BROKER, CLIENT) for how in ("FIN", "RST")] + ["open"],
    "close reason": kafka_connection._CUT_BY,
    "severity": WORST_FIRST,
    "latency in a line": {*table._NO_RESPONSE.values(), table._UNANSWERED},
}


@pytest.mark.parametrize("kind", WORDS)
def test_every_word_in_a_column_of_outcomes_or_states_is_known(kind: str) -> None:
    for word in WORDS[kind]:
        known = {each.what: each for each in explain(word)}
        assert f"{kind}: {word}" in known or kind in ("latency in a line", "kind of an exchange")
        assert all(each.text[0].endswith(".") and each.commands for each in known.values())


def test_every_error_has_a_meaning() -> None:
    for error in codes.all_errors():
        assert error.meaning.endswith("."), error.name
        assert any(error.meaning in each.text for each in explain(error.name))


def test_a_number_can_mean_several_things(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "explain", "10")
    heads = [line for line in done.lines if line and not line.startswith(" ")]
    assert heads == ["error 10, MESSAGE_TOO_LARGE", "API FindCoordinator, key 10"]
    assert main(["explain", "--json", "10"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["what"] for each in document] == heads


@pytest.mark.parametrize("line", log_lines(), ids=lambda line: line.example[:40])
def test_a_line_of_a_log(line: LogLine) -> None:
    assert next(each for each in log_lines() if each.pattern.search(line.example)) is line
    meanings = explain(line.example)
    assert any(line.meaning in each.text for each in meanings)
    assert set(line.findings) <= {rule.name for rule in RULES}


def test_the_commands_run(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        *(line.example for line in log_lines()),
        *("369295616", "6", "Fetch", "oversized", "wait_us"),
        *(row["word"] for row in codes.rows("words.tsv")),
    ]
    failed = {}
    for command in dict.fromkeys(
        each for word in words for means in explain(word) for each in means.commands
    ):
        first, *others = [CAPTURE if word == "CAPTURE" else word for word in shlex.split(command)]
        assert first in COMMANDS
        status, _, error = run(capsys, first, *others)
        if status != OK and not error.startswith(("kdissect: no match", "kdissect: no group")):
            failed[command] = error
    assert failed == {}


def test_what_a_line_names_is_in_its_commands() -> None:
    (meaning,) = explain("Member c in group my workers has failed, removing it from the group")
    assert meaning.commands == ("story 'group:my workers' CAPTURE",)
    kinds = [
        each.what
        for each in explain(
            "Got error produce response with correlation id 4 on topic-partition a-b-3, "
            "retrying. Error: NOT_LEADER_OR_FOLLOWER"
        )
    ]
    assert kinds == ["logged by a Java client", "error 6, NOT_LEADER_OR_FOLLOWER"]


def test_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "explain", "LEADER_NOT_AVAILABL")
    assert done.status == USAGE
    assert 'did you mean "LEADER_NOT_AVAILABLE"?' in done.err
    assert run(capsys, "explain", "nothing", "like", "that").status == USAGE
    assert run(capsys, "explain", "99999999999999999999999999").status == USAGE
    assert run(capsys, "explain", "").status == USAGE


@pytest.mark.parametrize("text", ["369,295,616", "0x16030100"])
def test_a_number_as_it_is_shown(text: str) -> None:
    assert explain(text) == explain("369295616")
