"""One fact has one number: on the first screen, in tables, findings, JSON and rows of all samples."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from tests.ways.matrix import CAPTURES as SAMPLES
from tests.ways.matrix import INCIDENTS, SUMMARY, Capture, Command, Matrix

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CAPTURES = [*(each for each in SAMPLES if each.path.parent.name == "samples"), *INCIDENTS]


def figure(text: str, what: str) -> int:
    """A number in a verdict; 0 if it is not there."""
    match = re.search(rf"([\d,]+) {what}", text)
    return number(match[1]) if match else 0


def number(text: str) -> int:
    return int(text.replace(",", ""))


def serious(row: dict[str, Any]) -> set[str]:
    return set(row["errors"] or ()) - set(row["expected_errors"])


def client_of(row: dict[str, Any]) -> str:
    return str(row["client_id"] or row["client_ip"])


class Screens:
    """What commands show of a capture, each made once: all tests of a capture follow one another."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.matrix: Matrix
        self._texts: dict[Command, str] = {}

    def text(self, name: str, options: str = "") -> str:
        command = Command(name, options)
        if command not in self._texts:
            self._texts[command] = self.matrix.run(self.capture, command).out.decode()
        return self._texts[command]

    @cached_property
    def summary(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.text("summary", "--json"))
        return document

    @property
    def parts(self) -> dict[str, Any]:
        """All that ``summary`` may add, which tests/ways compares for each capture."""
        document: dict[str, Any] = json.loads(self.matrix.expected(self.capture, SUMMARY).out)
        return document

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """All exchanges."""
        return rows_of(self.text("read", "--json --names whole"))

    @property
    def screen(self) -> list[str]:
        return self.text("summary").splitlines()


@pytest.fixture(scope="module", params=CAPTURES, ids=str)
def of_capture(request: pytest.FixtureRequest) -> Screens:
    return Screens(request.param)


@pytest.fixture
def shown(of_capture: Screens, shared_directory: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Screens:
    of_capture.matrix = Matrix(shared_directory, capfdbinary)
    return of_capture


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def items(page: Iterable[str], label: str) -> list[str]:
    """The items of a block of the first screen."""
    texts, heading = [], ""
    for line in page:
        if not line:
            break
        heading = line[:12].strip() or heading
        if heading == label:
            texts.append(line[12:])
    return texts


def test_all_screens_have_the_same_numbers(shown: Screens) -> None:
    rows = shown.rows
    summary = shown.summary
    failed = [row for row in rows if serious(row)]
    outcomes = Counter(row["outcome"] for row in rows)
    assert summary["capture"]["exchanges"] == len(rows)
    for table in ("apis", "brokers", "clients"):
        counted = summary[table]
        assert sum(each["exchanges"] for each in counted) == len(rows)
        assert sum(each["errors"] for each in counted) == len(failed)
        assert sum(each["no_answer"] for each in counted) == outcomes["unanswered"]
        assert sum(each["abandoned"] for each in counted) == outcomes["abandoned"]
        assert sum(each["pending"] for each in counted) == outcomes["pending"]
        totals = sum(each["total_us"]["count"] for each in counted)
        assert totals == sum(row["total_us"] is not None for row in rows)

    screen = shown.screen
    (verdict,) = items(screen, "traffic")[:1] or [""]
    checked = json.loads(shown.text("check", "--json"))
    if rows and figure(verdict, "requests?"):
        assert figure(verdict, "requests?") == len(rows) - sum(row["kind"] == "orphan" for row in rows)
        for name in ("unanswered", "abandoned", "pending"):
            assert figure(verdict, name) == outcomes[name]
        assert figure(verdict, "with errors") == len(failed)
        assert checked["health"]["message"] in verdict
    assert checked["exchanges"]["total"] == len(rows)
    kinds = {"no_answer": "unanswered", "abandoned": "abandoned", "pending": "pending"}
    assert {name: checked["exchanges"][name] for name in kinds} == {
        name: outcomes[value] for name, value in kinds.items()
    }


def test_errors_have_the_same_numbers(shown: Screens) -> None:
    rows = shown.rows
    summary = shown.summary
    counts = Counter(
        (error, row["api"], client_of(row)) for row in rows if row["api"] for error in serious(row)
    )
    listed: dict[tuple[str, str, str], list[int]] = {}
    for each in summary["errors"]:
        if each["api"] != "unknown" and (count := each["count"] - each["expected"]):
            listed.setdefault((each["error"], each["api"], each["client"]), []).append(count)
    assert listed.keys() == counts.keys()
    for key, count in counts.items():  # an exchange is in several rows if it has the error for several topics
        assert max(listed[key]) <= count <= sum(listed[key])

    in_tables = {(each["count"] - each["expected"], each["error"], each["api"]) for each in summary["errors"]}
    for line in items(shown.screen, "errors"):
        if match := re.match(r"([\d,]+) ([A-Z_0-9]+): ([^,]+)", line):
            assert (number(match[1]), match[2], match[3]) in in_tables
        else:
            assert re.fullmatch(r"[\d,]+ more", line)


def test_records_have_the_same_numbers(shown: Screens) -> None:
    exchanges = {(row["connection"], row["number"]): row for row in shown.rows}
    counts: dict[str, Counter[str]] = {}
    for record in rows_of(shown.text("records", "--json")):
        exchange = exchanges[record["connection"], record["number"]]
        of_topic = counts.setdefault(record["topic"] or record["topic_id"], Counter())
        request = exchange["request"] or {}
        if record["control"] or record["error"]:
            continue
        if record["api"] == "Produce":
            known = exchange["outcome"] in ("answered", "not_expected")
            of_topic["produced_records" if known else "unknown_records"] += 1
        elif (request.get("replica_state") or request).get("replica_id", -1) < 0:
            of_topic["fetched_records"] += 1
    topics = shown.summary["topics"] or []
    assert {topic for topic, count in counts.items() if count} <= {each["topic"] for each in topics}
    for each in topics:
        counted = counts.get(each["topic"], Counter())
        for name in ("produced_records", "fetched_records", "unknown_records"):
            if each[name] is not None:  # of compressed message sets, the number is not in any header
                assert (each["topic"], name, each[name]) == (each["topic"], name, counted[name])


def test_groups_lag_and_findings_have_the_same_numbers(shown: Screens) -> None:
    rows = shown.rows
    summary = shown.parts
    screen = shown.screen
    lag: Counter[str] = Counter()
    for each in summary["lag"]:
        lag[each["name"]] += (each["lag"] or 0) if each["kind"] == "group" else 0

    groups = {each["group"]: each for each in summary["group_history"]}
    for line in items(screen, "groups"):
        name = line.rpartition(": ")[0] if ": " not in line else line.split(": ")[0]
        group = groups.get(name)
        if group is not None:
            assert figure(line, "rebalances?") == len(group["rebalances"])
            assert figure(line, "storms?") == len(group["storms"])
            if "committed lag" in line:
                assert number(re.findall(r"committed lag ([\d,]+)", line)[0]) == lag[name]
    commits: Counter[tuple[str, bool]] = Counter()
    for row in rows:
        if row["api"] in ("OffsetCommit", "TxnOffsetCommit") and row["response"] is not None:
            for topic in row["response"].get("topics") or ():
                for partition in topic["partitions"]:
                    commits[row["group_id"], partition["error_code"] == 0] += 1
    answered = {row["group_id"] for row in rows if row["api"] in ("OffsetCommit", "TxnOffsetCommit")}
    for name in answered & groups.keys():
        committed = groups[name]["committed"]
        assert sum(each["commits"] for each in committed) == commits[name, True]

    findings = summary["findings"]
    causes = [each for each in findings if each["explained_by"] is None]
    lines = [line for line in items(screen, "findings") if not re.match(r" *explains |\d+ more: ", line)]
    assert bool(lines) == bool(causes)
    assert [f"{each['rule']}: {each['subject']}: {each['message']}" for each in causes[: len(lines)]] == [
        re.sub(r"^\w+ [\d:-]+( \([\d,]+ (s|min)\))? ", "", line) for line in lines
    ]
    by_id = {f"{row['connection']}/{row['number']}" for row in rows}
    for each in findings:
        exchanges = [evidence for evidence in each["evidence"] if "/" in evidence]
        assert by_id.issuperset(exchanges)
        assert each["count"] >= len(each["evidence"])
    denied = Counter(
        (error, client_of(row)) for row in rows for error in serious(row) if "AUTHORIZATION_FAILED" in error
    )
    reported: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        for each in finding["parts"] or [finding]:
            if finding["rule"] == "authorization-denied":
                client = re.sub(r"^client (.*?)( as .*)?$", r"\1", each["subject"])
                reported[each["message"].rpartition(": ")[2], client] += each["count"]
    assert reported == denied
    details = items(screen, "details")
    for option, rows_shown in (("finding", findings), ("consumer-partition pair", summary["lag"])):
        assert not details or figure(details[0], f"{option}s?") == len(rows_shown)
