from __future__ import annotations

import pytest

from kdissect.nearest import did_you_mean, nearest

KNOWN = ("latency_us", "topics", "client_id")


@pytest.mark.parametrize(
    ("word", "suggestion"),
    [
        ("latency", "latency_us"),
        ("LATENCY-US", "latency_us"),
        ("topic", "topics"),
        ("clientid", "client_id"),
        ("ltency", "latency_us"),
        ("qqq", None),
        ("", None),
    ],
)
def test_nearest(word: str, suggestion: str | None) -> None:
    assert nearest(word, KNOWN) == suggestion


def test_a_shared_beginning_counts_more_than_similar_letters() -> None:
    known = ("NOT_CONTROLLER", "NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR")
    assert nearest("NOT_LEADR", known) == "NOT_LEADER_OR_FOLLOWER"
    assert nearest("NOT_CONTROLER", known) == "NOT_CONTROLLER"


def test_did_you_mean() -> None:
    assert did_you_mean("topic", KNOWN) == '; did you mean "topics"?'
    assert did_you_mean("qqq", KNOWN) == ""
