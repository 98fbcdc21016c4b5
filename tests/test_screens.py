"""One fact has one number: in the verdict, on the first screen, in tables, JSON and rows of all samples."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from samples.golden import captures, name_of
from tests.cli.commands import run

if TYPE_CHECKING:
    from pathlib import Path


def figure(text: str, what: str) -> int:
    """A number in a verdict; 0 if it is not there."""
    match = re.search(rf"([\d,]+) {what}", text)
    return int(match[1].replace(",", "")) if match else 0


def serious(row: dict[str, Any]) -> set[str]:
    return set(row["errors"] or ()) - set(row["expected_errors"])


@pytest.mark.parametrize("capture", [pytest.param(path, id=name_of(path)) for path in captures()])
def test_all_screens_have_the_same_numbers(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in run(capsys, "read", "--json", str(capture)).out.splitlines()]
    summary = json.loads(run(capsys, "summary", "--json", str(capture)).out)
    failed = [row for row in rows if serious(row)]
    outcomes = Counter(row["outcome"] for row in rows)
    assert summary["capture"]["exchanges"] == len(rows)
    for table in ("apis", "brokers", "clients"):
        counted = summary[table]
        assert sum(each["exchanges"] for each in counted) == len(rows)
        assert sum(each["errors"] for each in counted) == len(failed)
        assert sum(each["no_answer"] for each in counted) == outcomes["unanswered"]
        assert sum(each["pending"] for each in counted) == outcomes["pending"]
        totals = sum(each["total_us"]["count"] for each in counted)
        assert totals == sum(row["total_us"] is not None for row in rows)
    counts = Counter((error, row["api"]) for row in failed for error in serious(row))
    listed: dict[tuple[str, str], list[int]] = {}
    for each in summary["errors"]:
        listed.setdefault((each["error"], each["api"]), []).append(each["count"] - each["expected"])
    for (error, api), count in counts.items():
        if api is not None:  # an exchange is in several rows if it has the error for several topics
            assert max(listed[error, api]) <= count <= sum(listed[error, api])
    assert {key for key, each in listed.items() if sum(each)} >= {key for key in counts if key[1]}

    page = run(capsys, "summary", str(capture)).out
    verdict = next((line for line in page.splitlines() if line.startswith("traffic ")), "")
    if rows and figure(verdict, "requests?"):
        assert figure(verdict, "requests?") == len(rows) - sum(row["kind"] == "orphan" for row in rows)
        assert figure(verdict, "unanswered") == outcomes["unanswered"]
        assert figure(verdict, "with errors") == len(failed)
    checked = run(capsys, "check", str(capture)).out
    if figure(checked, "with errors"):
        assert figure(checked, "with errors") == len(failed)
