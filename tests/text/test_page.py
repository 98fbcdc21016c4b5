from __future__ import annotations

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
    lines = page(TABLE, width=40).splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert any("…" in line and line.rstrip().endswith("7") for line in lines)
    assert any("12,345" in line for line in lines)


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
