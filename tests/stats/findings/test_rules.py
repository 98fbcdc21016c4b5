"""What is found in real captures: all that is listed here was looked at, and is so."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kdissect import dissect, open_capture, summarize
from kdissect.limits import DEFAULT
from kdissect.stats.findings.rules import RULES, Findings
from samples.golden import captures, name_of
from tests.findings import produce

if TYPE_CHECKING:
    from pathlib import Path

# Recorded with a quota, a leader that is moved, wrong passwords. acks=1 is what clients did by default before
# 3.0, and aiokafka still does.
STORIES = {"throttled": 1, "leaders-moving": 1}
EXPECTED: dict[str, dict[str, int]] = {
    "kafka-0.8.2": {"leaders-moving": 1, "acks": 1},
    "kafka-0.9": {**STORIES, "acks": 1},
    "kafka-0.10.2": {**STORIES, "acks": 1},
    "kafka-0.11": {**STORIES, "acks": 1},
    "kafka-1.1": {**STORIES, "acks": 1, "sasl-failures": 2},
    "kafka-2.8": {**STORIES, "acks": 1, "sasl-failures": 2},
    "kafka-3.9": {**STORIES, "sasl-failures": 2},
    "kafka-3.9-zookeeper": {**STORIES, "sasl-failures": 2},
    "kafka-4-cluster": STORIES,
    "kafka-4-basics": {"throttled": 1},
    "kafka-4-kraft": {"leaders-moving": 1},
    "kafka-4-sasl": {"sasl-failures": 7},
    "kafka-4-storm": {"rebalance-storm": 1},
    "kafka-4-lag": {"falling-behind": 1},
    "kafka-4-quota": {"throttled": 2},
    "kafka-4-fenced": {"fenced-producers": 1},
    "kafka-4-habits": {"tiny-batches": 1, "connection-per-request": 1},
    "mock-acks0": {"acks": 1},
    "mock-aiokafka": {"acks": 1},
    "mock-librdkafka": {"acks": 1},
    # kafka-python 3 cannot read how the mock cluster refuses ApiVersions, and tries again and again.
    "mock-kafka-python": {"unsupported-version-loop": 1},
}


@pytest.mark.parametrize("path", captures(), ids=name_of)
def test_samples_say_what_is_so_and_nothing_else(path: Path) -> None:
    with open_capture(path) as packets:
        rows = summarize(dissect(packets), parts=["findings"]).findings
    assert rows is not None
    assert Counter(row.rule for row in rows) == EXPECTED.get(name_of(path), {})
    assert all(0 < len(row.evidence) <= min(5, row.count) for row in rows)
    assert all(row.first <= row.last for row in rows)


def test_the_worst_stands_first() -> None:
    findings = Findings(DEFAULT)
    for number in range(300):
        findings.feed(produce(10 + number / 50, error=10 if number == 5 else 0))
    assert [(row.severity, row.rule) for row in findings.rows()] == [
        ("error", "oversized-messages"),
        ("warning", "tiny-batches"),
    ]


def test_no_findings_without_exchanges() -> None:
    assert Findings(DEFAULT).rows() == []
    assert len(Findings(DEFAULT).rules) == len(RULES)
