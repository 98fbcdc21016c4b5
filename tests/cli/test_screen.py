from __future__ import annotations

import os
import pty
import termios
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from rich.text import Text

from kdissect.cli.top import Screen, keys_in, open_keyboard

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"q", ["q"]),
        (b"1\t?", ["1", "tab", "?"]),
        (b"\x1b[A\x1b[B\x1b[C\x1b[D", ["up", "down", "right", "left"]),
        (b"\x1bOA\x1bOH", ["up", "home"]),
        (b"\x1b[5~\x1b[6~\x1b[Z", ["pageup", "pagedown", "backtab"]),
        (b"\x1b", ["escape"]),
        (b"\x0c", ["redraw"]),
        ("é".encode(), ["é"]),
        (b"\xff\x1b[1;5C", ["\ufffd", "\x1b[1;5C"]),
    ],
)
def test_what_is_typed_are_keys(typed: bytes, keys: list[str]) -> None:
    assert keys_in(typed) == keys


class Pair:
    """A screen and the other end of its pseudo-terminal."""

    def __init__(self, *, color: bool = True) -> None:
        self.person, self.terminal = pty.openpty()
        termios.tcsetwinsize(self.terminal, (24, 80))
        self.screen = Screen(self.terminal, self.terminal, color=color)

    def read(self) -> str:
        return os.read(self.person, 1 << 16).decode()

    def close(self) -> None:
        for end in (self.person, self.terminal):
            os.close(end)


@contextmanager
def pair(*, color: bool = True) -> Iterator[Pair]:
    ends = Pair(color=color)
    try:
        yield ends
    finally:
        ends.close()


def test_it_restores_the_terminal() -> None:
    with pair() as ends:
        before = termios.tcgetattr(ends.terminal)
        ends.screen.enter()
        assert ends.read() == "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
        during = termios.tcgetattr(ends.terminal)
        assert not during[3] & (termios.ICANON | termios.ECHO)
        assert during[3] & termios.ISIG
        assert not during[0] & termios.IXON
        ends.screen.leave()
        assert ends.read() == "\x1b[?7h\x1b[?25h\x1b[?1049l"
        assert termios.tcgetattr(ends.terminal) == before


def lines(*texts: str) -> list[Text]:
    return [Text(text) for text in texts]


def test_only_what_changed_is_written() -> None:
    with pair() as ends:
        assert ends.screen.size == (80, 24)
        ends.screen.show(lines("one", "two"), (80, 24))
        assert ends.read() == "\x1b[2J\x1b[1;1Hone\x1b[2;1Htwo"
        ends.screen.show(lines("one", "2"), (80, 24))
        assert ends.read() == "\x1b[2;1H2"
        ends.screen.show(lines("one", "2"), (80, 24))
        assert not ends.screen.has_changed
        termios.tcsetwinsize(ends.terminal, (10, 20))
        assert ends.screen.has_changed
        ends.screen.show(lines("one"), (20, 10))
        assert ends.read() == "\x1b[2J\x1b[1;1Hone"
        ends.screen.forget()
        ends.screen.show(lines("one"), (20, 10))
        assert ends.read() == "\x1b[2J\x1b[1;1Hone"


@pytest.mark.parametrize(("color", "written"), [(True, "\x1b[1;31mbad\x1b[0m"), (False, "\x1b[1mbad\x1b[0m")])
def test_colors(color: bool, written: str) -> None:
    with pair(color=color) as ends:
        ends.screen.show([Text("bad", "bold red")], (80, 24))
        assert ends.read().endswith(f"1;1H{written}")


def test_a_terminal_of_unknown_size_has_the_default_size() -> None:
    with pair() as ends:
        termios.tcsetwinsize(ends.terminal, (0, 0))
        assert ends.screen.size == (80, 24)


def test_a_terminal_that_takes_few_characters() -> None:
    person, terminal = pty.openpty()
    Screen(terminal, None, color=False, encoding="ascii").show([Text("/s▼")], (80, 24))
    assert os.read(person, 100) == b"\x1b[2J\x1b[1;1H/s?"
    for end in (person, terminal):
        os.close(end)


def test_long_lines_are_not_folded() -> None:
    with pair() as ends:
        ends.screen.show([Text("x" * 500, no_wrap=True)], (500, 24))
        assert ends.read().endswith("x" * 500)


def test_keys_are_waited_for_and_escapes_put_together() -> None:
    with pair() as ends:
        ends.screen.enter()
        assert ends.screen.keys(0) == []
        os.write(ends.person, b"q\x1b[A")
        assert ends.screen.keys(5) == ["q", "up"]
        os.write(ends.person, b"\x1b")
        assert ends.screen.keys(5) == ["escape"]


def test_a_terminal_that_is_gone() -> None:
    person, terminal = pty.openpty()
    screen = Screen(terminal, terminal, color=False)
    screen.enter()
    os.close(person)
    with pytest.raises(OSError, match=r"closed|Input/output"):
        screen.keys(5)
    screen.leave()
    os.close(terminal)


def test_without_a_keyboard_nothing_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError

    monkeypatch.setattr(os, "open", refuse)
    assert open_keyboard() is None
    monkeypatch.undo()
    person, terminal = pty.openpty()
    screen = Screen(terminal, None, color=False)
    screen.enter()
    assert screen.keys(0) == []
    screen.leave()
    for end in (person, terminal):
        os.close(end)
