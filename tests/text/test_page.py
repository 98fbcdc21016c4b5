from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest

from kdissect.text.page import PageSection, View, write
from kdissect.text.style import COLORED, PLAIN, Style

TABLE = PageSection(
    "Topics",
    [View("TOPIC", str, shrinks=True), View("BYTES", str, right=True)],
    [["orders-of-the-whole-world-and-all-its-customers", "7"], ["x", "12,345"]],
    notes=("first line", "second line"),
    left_out=1200,
)


def page(*sections: PageSection, width: int | None = None, style: Style = PLAIN) -> str:
    out = StringIO()
    write(out, sections, width=width, style=style)
    return out.getvalue()


def test_a_table_with_everything() -> None:
    assert [line.rstrip() for line in page(TABLE).splitlines()] == [
        "Topics",
        "first line",
        "second line",
        "TOPIC                                             BYTES",
        "orders-of-the-whole-world-and-all-its-customers       7",
        "x                                                12,345",
        "1,200 more; use --max-rows to show them",
    ]


def test_a_narrow_terminal_cuts_columns_that_shrink() -> None:
    lines = page(with_kept("BYTES"), width=40).splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert any("…" in line and line.rstrip().endswith("7") for line in lines)
    assert any("12,345" in line for line in lines)


def with_kept(*headings: str) -> PageSection:
    """The table, with columns that are always shown."""
    views = [replace(view, keep=view.heading in headings) for view in TABLE.views]
    return TABLE._replace(views=views)


def test_columns_without_room_are_left_out_and_counted() -> None:
    views = [
        View("A" * 30, str, note="A: what it means"),
        View("B" * 30, str, keep=True, note="B: what it means"),
        View("C" * 10, str, shrinks=True),
        View("D" * 10, str),
    ]
    section = PageSection("Numbers", views, [["1", "2", "3" * 40, "4"]])
    assert page(section).splitlines() == [
        "Numbers",
        "A: what it means",
        "B: what it means",
        f"{'A' * 30}  {'B' * 30}  {'C' * 10}{' ' * 32}{'D' * 10}",
        f"1{' ' * 31}2{' ' * 31}{'3' * 40}  4",
    ]
    for width, hidden, headings in (
        (86, 0, "ABCD"),
        (85, 1, "ABC"),
        (73, 2, "AB"),
        (61, 1, "BCD"),
        (53, 2, "BC"),
        (41, 3, "B"),
        (5, 3, "B"),
    ):
        lines = page(section, width=width).splitlines()
        shown = next(line for line in lines if line.startswith(headings[0] * 4))
        assert [word[0] for word in shown.split()] == list(headings), width
        assert ("A: what it means" in lines) is ("A" in headings)
        assert max(map(len, lines)) <= max(width, 60)
        end = f"{hidden} column{'s' * (hidden > 1)} of Numbers hidden; --wide shows all"
        assert (" ".join(lines).endswith(end)) is (hidden > 0), width
    assert "4 columns of 2 tables hidden" in page(section, section, width=70)


def test_columns_with_absent_cells_cut_no_other() -> None:
    views = [
        View("BROKER", lambda row: str(row[0]), keep=True, shrinks=True),
        View("ERRORS", lambda row: str(row[1]), keep=True),
        View("RACK", lambda row: str(row[2])),
    ]
    cells = [["broker-1.example.com:9092", "-", "a"]]
    for width, headings in (
        (31, ["BROKER", "RACK"]),
        (38, ["BROKER", "RACK"]),
        (39, ["BROKER", "ERRORS", "RACK"]),
    ):
        lines = page(PageSection("", views, cells), width=width).splitlines()
        assert lines[0].split() == headings
        assert lines[1].split()[0] == cells[0][0]
    counted = page(PageSection("", views, [["broker-1.example.com:9092", "1", "a"]]), width=38)
    assert counted.split()[:2] == ["BROKER", "ERRORS"]


def test_sections_are_separated() -> None:
    assert page(PageSection("A", notes=("x",)), PageSection("B")).splitlines() == ["A", "x", "", "B"]


def test_color_only_on_request() -> None:
    assert "\x1b" not in page(TABLE, width=80)
    assert "\x1b[1mTopics" in page(TABLE, width=80, style=COLORED)


def test_control_sequences_are_escaped() -> None:
    evil = "evil\x1b[2J\n\u2028[bold]name"
    section = PageSection(evil, [View(evil, str)], [[evil]], (evil,))
    lines = page(section, width=80, style=COLORED).splitlines()
    assert len(lines) == 4  # title, note, heading, row
    assert all("evil\\x1b[2J\\n\\u2028[bold]name" in line for line in lines)


def test_a_closed_pipe_is_the_callers() -> None:
    class Closed(StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        write(Closed(), [TABLE], width=None, style=PLAIN)
