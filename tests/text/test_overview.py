"""The first screen of ``summary``: what it names, that it fits, and is the same however it is run."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from docs import incidents
from kdissect.phrases import columns_of
from kdissect.stats.document import ErrorRow
from kdissect.stats.findings.rules import RULES
from kdissect.stats.summarizer import summarize
from kdissect.text.overview import LINES, overview
from samples.golden import captures
from samples.pages import shown
from tests.exchange_factory import exchange
from tests.findings import finding as make_finding
from tests.groups import heartbeat, join, leave

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.stats.document import FindingRow

SAMPLES = Path("samples")
INCIDENTS = incidents.PAGE.read_text().splitlines()
STORM = SAMPLES / "kafka-4-storm.pcap.gz"


def first_screen(arguments: Sequence[str], width: int = 80, stdin: Path = STORM) -> list[str]:
    text = shown(arguments, width, stdin)
    return text[text.index("capture  ") :].split("\n\n")[0].splitlines()


OF_ENDPOINTS = "|".join(rule.name for rule in RULES if "broker" in rule.of)


def assert_it_fits(lines: Sequence[str]) -> None:
    """No more lines and columns than a terminal has, and no finding is cut before its endpoint."""
    assert len(lines) <= LINES
    assert all(columns_of(line) <= 80 for line in lines)
    text = "\n".join(line[12:] for line in lines)
    for item in re.findall(
        rf"^(?:error|warning|note) \S+ (?:\(.*\) )?(?:{OF_ENDPOINTS}): .*(?:\n  .*)*", text, re.MULTILINE
    ):
        assert "…" not in item or re.search(r":\d+\b|\d brokers", item.partition(": ")[2]), item


@pytest.mark.parametrize("path", [*captures(), *incidents.CLUSTER], ids=lambda path: path.name)
def test_it_fits_on_a_terminal_and_the_options_are_not_cut(path: Path) -> None:
    lines = first_screen(["summary", str(path)])
    assert_it_fits(lines)
    assert incidents.row(path, lines) in INCIDENTS, "run docs/incidents.py"
    first = next(number for number, line in enumerate(lines) if line.startswith("details "))
    assert "…" not in "".join(lines[first:])


@pytest.mark.parametrize("path", incidents.TROUBLES, ids=lambda path: path.name)
def test_the_cause_of_a_trouble_is_named(path: Path) -> None:
    truth = json.loads(path.with_name(path.name.replace(".pcap.gz", ".truth.json")).read_text())
    lines = first_screen(incidents.command(path))
    assert_it_fits(lines)
    assert incidents.row(path, lines) in INCIDENTS, "run docs/incidents.py"
    assert lines[0].startswith(("capture     good: ", "capture     No Kafka")), "the capture is not to blame"
    traffic = next(line for line in lines if line.startswith("traffic"))
    verdict = traffic.removeprefix("traffic").split(":")[0].strip()
    assert (verdict == "good") == (not truth["findings"])
    text = " ".join(line[12:].strip() for line in lines)
    for rule in truth["findings"]:
        assert re.search(rf"[ ]{rule}(:|,|$| \w)", text) is not None, truth["what"]


@pytest.mark.parametrize("name", ["quickstart.pcap", "kafka-4-streams.pcap.gz", "mock-rebalance.pcapng"])
def test_healthy_traffic_is_good(name: str) -> None:
    lines = first_screen(["summary", str(SAMPLES / name)])
    assert lines[0].startswith("capture     good: all ")
    assert lines[1].startswith("traffic     good: ")
    assert not any(line.startswith("findings") for line in lines)


def test_every_way_of_running_shows_the_same() -> None:
    expected = first_screen(["summary", str(STORM)])
    for arguments in (["summary", "-j", "3", str(STORM)], ["summary", "-"]):
        assert first_screen(arguments) == expected, arguments
    *others, commands = first_screen(["summary", str(STORM)], 200)
    *shown, live_commands = first_screen(["live", "-q", "--summary", "-"], 200)
    assert shown == others
    assert live_commands.replace("save the packets with -w FILE, then: ", "") == commands


def test_causes_of_rebalances() -> None:
    lines = first_screen(["summary", str(STORM)], 200)
    assert lines[3:5] == [
        ("groups      restless: empty, 1 storm, 11 rebalances (5 joins, 4 leaves, 1 first join, 1 timeout)"),
        "            calm: empty, 1 rebalance (calm joined as the first member)",
    ]


def test_the_reason_that_a_member_gives() -> None:
    exchanges = [
        join("a", 1, 1, members=["a"], request_member_id="", until=1.1),
        join("b", 5, 2, request_member_id="", until=5.3),
        join("a", 5.1, 2, members=["a", "b"], until=5.3),
        leave("b", 9, "closed\x1b[2J" + "!" * 99),
        heartbeat("a", 9.1, 2, error=27),
        join("a", 9.2, 3, members=["a"], until=9.3),
    ]
    lines = [
        line
        for line in overview(summarize(exchanges, parts=["group_history"]), 200).notes
        if line.startswith("groups")
    ]
    assert len(lines) == 1
    assert '(1 first join, 1 join, 1 leave; "closed' in lines[0]
    assert lines[0].isprintable()
    assert lines[0].endswith("once)")


def test_what_cannot_be_read() -> None:
    assert first_screen(["summary", "samples/tls.pcap"]) == [
        "capture     No Kafka traffic (connections: 6 TLS).",
        "traffic     unknown: no requests",
        "details     kdissect check FILE",
    ]


def finding(number: int) -> FindingRow:
    return make_finding(f"rule-{number}", "error", "it failed " * 40)


def error(number: int) -> ErrorRow:
    at = datetime(2026, 11, 22, tzinfo=UTC)
    return ErrorRow(
        error="UNKNOWN_SERVER_ERROR", api="Produce", topic="orders" * 20, client=f"client-{number}", count=1,
        expected=0, first=at, last=at, example="c1/1", message=None,
    )  # fmt: skip


def test_what_does_not_fit_is_counted() -> None:
    summary = summarize([exchange(response={})], parts=["findings"])
    summary.findings = [finding(number) for number in range(2)]
    lines = overview(summary, 80).notes
    assert [line.partition(": ")[0] for line in lines if "rule-" in line] == [
        "findings    error 00:00:00 rule-0",
        "            error 00:00:00 rule-1",
    ]
    assert len(lines) == 1 + 2 * 5 + 2, "a finding takes five lines, and its rest is cut"
    assert lines[5].endswith("…")
    summary.findings = [finding(number) for number in range(30)]
    summary.errors = [error(number) for number in range(30)]
    lines = overview(summary, 80).notes
    assert len(lines) == LINES
    shown = [line for line in lines if re.search(r"error 00:00:00 rule-\d: ", line)]
    assert len(shown) == 5
    assert sum("it failed it failed" in line for line in lines) >= 10, "two lines each"
    assert any(line.startswith("            25 more: rule-5, rule-6, rule-7, ") for line in lines)
    assert "            28 more" in lines
    assert overview(summary, None).notes[1].endswith("it failed "), "in a pipe nothing is cut"


def test_with_little_room_the_others_are_counted_too_and_the_verdict_is_whole() -> None:
    lines = first_screen(["summary", "samples/kafka-0.10.2.pcap.gz"])
    text = " ".join(line[12:].strip() for line in lines)
    assert "degraded: 327 requests, 9 unanswered, 2 pending, 3 incomplete, 4 with errors, 3 warnings" in text
    ends = {line.split()[0]: line[-9:] for line in lines if line.endswith(" more)")}
    assert ends == {"errors": "(+3 more)", "unanswered": "(+8 more)"}


def test_what_a_finding_explains_stands_below_it() -> None:
    summary = summarize([exchange(response={})], parts=["findings"])
    rows = [finding(number) for number in range(6)]
    for place in (1, 2, 5):
        rows[place].explained_by = rows[place - 1].rule
    summary.findings = rows
    lines = overview(summary, None).notes
    assert [line.partition(": ")[0].strip() for line in lines[1:-2]] == [
        *("findings    error 00:00:00 rule-0", "explains rule-1, rule-2"),
        *("error 00:00:00 rule-3", "error 00:00:00 rule-4", "explains rule-5"),
    ]


def test_causes_that_follow_each_other_have_a_line_of_time() -> None:
    summary = summarize([exchange(response={})], parts=["findings"])
    summary.findings = rows = [finding(number) for number in range(3)]
    assert not any(line.startswith("timeline") for line in overview(summary, None).notes)
    rows[0].first = rows[0].last = rows[0].first + timedelta(seconds=21)
    rows[2].explained_by = "rule-1"
    (line,) = (line for line in overview(summary, None).notes if line.startswith("timeline"))
    assert line == "timeline    00:00:00 rule-1 -> 00:00:21 rule-0"


def test_names_from_the_wire_are_safe() -> None:
    summary = summarize([exchange(client_id="evil\x1b]0;x\x07", request={})], parts=["findings"])
    row = finding(0)
    row.subject = "client evil\x1b]0;x\x07"
    summary.findings = [row]
    assert all(line.isprintable() for line in overview(summary, 80).notes)
