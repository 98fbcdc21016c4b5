"""One fact has one number: on the first screen, in tables, findings, JSON and rows of all samples."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from samples.golden import captures, name_of
from tests.cli.commands import Run, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CAPTURES = [*captures(), *sorted(Path("tests/cluster").glob("*.pcap.zst"))]
PARTS = "--findings --groups --lag --transactions"


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


@pytest.fixture(scope="module", params=CAPTURES, ids=name_of)
def kept(request: pytest.FixtureRequest) -> tuple[Path, dict[str, Run]]:
    """A capture, and what commands have shown of it: all tests of a capture follow one another."""
    return request.param, {}


@pytest.fixture
def shown(kept: tuple[Path, dict[str, Run]], capsys: pytest.CaptureFixture[str]) -> Callable[[str], Run]:
    """What a command shows of the capture."""
    capture, runs = kept

    def show(command: str) -> Run:
        if command not in runs:
            runs[command] = run(capsys, *command.split(), str(capture))
        return runs[command]

    return show


def rows_of(shown: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shown.lines]


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


def test_all_screens_have_the_same_numbers(shown: Callable[[str], Run]) -> None:
    rows = rows_of(shown("read --json"))
    summary = json.loads(shown("summary --json").out)
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

    screen = shown("summary").lines
    (verdict,) = items(screen, "traffic")[:1] or [""]
    checked = json.loads(shown("check --json").out)
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


def test_errors_have_the_same_numbers(shown: Callable[[str], Run]) -> None:
    rows = rows_of(shown("read --json"))
    summary = json.loads(shown("summary --json").out)
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
    for line in items(shown("summary").lines, "errors"):
        if match := re.match(r"([\d,]+) ([A-Z_0-9]+): ([^,]+)", line):
            assert (number(match[1]), match[2], match[3]) in in_tables
        else:
            assert re.fullmatch(r"[\d,]+ more", line)


def test_records_have_the_same_numbers(shown: Callable[[str], Run]) -> None:
    exchanges = {
        (row["connection"], row["number"]): row for row in rows_of(shown("read --json --names whole"))
    }
    counts: dict[str, Counter[str]] = {}
    for record in rows_of(shown("records --json")):
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
    topics = json.loads(shown("summary --json").out)["topics"] or []
    assert {topic for topic, count in counts.items() if count} <= {each["topic"] for each in topics}
    for each in topics:
        counted = counts.get(each["topic"], Counter())
        for name in ("produced_records", "fetched_records", "unknown_records"):
            if each[name] is not None:  # of compressed message sets, the number is not in any header
                assert (each["topic"], name, each[name]) == (each["topic"], name, counted[name])


def test_groups_lag_and_findings_have_the_same_numbers(shown: Callable[[str], Run]) -> None:
    rows = rows_of(shown("read --json --names whole"))
    summary = json.loads(shown(f"summary --json {PARTS}").out)
    screen = shown("summary").lines
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
