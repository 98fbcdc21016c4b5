from __future__ import annotations

import pytest

from kdissect.phrases import (
    TopicId,
    bar,
    duration,
    encodable_bars,
    facts,
    listed,
    many,
    named,
    nonzero,
    numbered,
    size,
    topic_label,
    wrapped,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (3449, "3.4 KB"),
        (999_949, "999.9 KB"),
        (999_950, "1.0 MB"),
        (1_500_000_000, "1.5 GB"),
        (3_000_000_000_000, "3.0 TB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0us"),
        (999_999, "999us"),
        (1_234_567, "1.23ms"),
        (45_600_000, "45.6ms"),
        (12_300_000_000, "12.30s"),
        (-5_000, "-5us"),
    ],
)
def test_durations(ns: int, text: str) -> None:
    assert duration(ns) == text


def test_bars() -> None:
    assert [bar(share, 4) for share in (0, 0.001, 0.5, 0.53, 1)] == ["", "▏", "██", "██▏", "████"]
    assert encodable_bars("a ██▏", "utf-8") == "a ██▏"
    assert encodable_bars("a ██▏", "ascii") == "a ##."


def test_topics() -> None:
    assert (topic_label("orders"), topic_label(TopicId("x1"))) == ("orders", "<id x1>")


def test_words() -> None:
    assert many(1, "record") == "1 record"
    assert many(12_000, "record") == "12,000 records"
    assert facts("a", None, "", "b") == "a, b"
    assert named("group", "g") == "group g"
    assert named("group", "") == named("group", None) == ""
    assert named("offset", 0) == "offset 0"
    assert numbered("session", -1) == numbered("session", None) == ""


def test_lists_stop() -> None:
    assert listed([]) == ""
    assert listed(["a"], "group") == "group a"
    assert listed(["a", "b"], "group") == "groups a, b"
    assert listed(list("abcdef")) == "a, b, c and 3 more"


def test_zero_is_shown_as_a_dash() -> None:
    assert [nonzero(0), nonzero(7), nonzero(12_000)] == ["-", "7", "12,000"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a bb ccc", ["a bb ccc"]),
        ("captured 573.8 KB of it", ["captured", "  573.8 KB", "  of it"]),
        ("6 NOT_LEADER, 1", ["6 NOT_LEADER,", "  1"]),
        ("  世界世界 世界 世界", ["  世界世界", "  世界 世界"]),
        ("", [""]),
    ],
)
def test_lines_wrap_between_words(text: str, lines: list[str]) -> None:
    assert wrapped(text, 11, "  ") == lines
    assert wrapped(text, None) == [text]
