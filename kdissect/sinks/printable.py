"""Text from the wire -> text that is safe and whole on a terminal. Holds nothing.

Client ids, topic names and error messages are whatever a client sent: escape sequences that recolor or
retitle a terminal, newlines that forge a line of output, marks that reverse the reading direction. Here, and
nowhere else, they become escapes: in all text for people, and in JSON and CSV on the way to a terminal. Files
and pipes get JSON and CSV as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from unicodedata import east_asian_width

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

ELLIPSIS = "…"


def printable(text: str, escape: Callable[[str], str] | None = None) -> str:
    """Escape every character that is not printable: controls, separators, direction marks.

    Args:
        text: from anywhere.
        escape: turns such a character into its escape; None: Python's backslash escapes.
    """
    if text.isprintable():
        return text
    escape = escape or _backslash
    return "".join(character if character.isprintable() else escape(character) for character in text)


def printable_json(data: bytes) -> bytes:
    """The same for JSON in UTF-8, by escapes of JSON's own: it stays the same JSON, with its line breaks."""
    lines = data.decode().split("\n")
    return "\n".join(printable(line, _unicode_escape) for line in lines).encode()


def json_writer(out: TextIO) -> Callable[[bytes], object]:
    """What takes JSON for a stream: on a terminal it comes out printable, elsewhere as it is."""
    write = out.buffer.write
    return (lambda data: write(printable_json(data))) if out.isatty() else write


def _backslash(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _unicode_escape(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def quoted(text: str, most: int | None = None) -> str:
    """Put the text in quotes, cut behind ``most`` characters with a word on how many follow."""
    if most is None or len(text) <= most:
        return f'"{printable(text)}"'
    return f'"{printable(text[:most])}" {ELLIPSIS} {len(text) - most:,} more characters'


def columns_of(text: str) -> int:
    """Count the columns of a terminal that the text takes: an ideograph takes two."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def cut(text: str, most: int) -> str:
    """Replace the end by an ellipsis where the text takes more than ``most`` columns."""
    if columns_of(text) <= most:
        return text
    kept, room = [], most - 1
    for character in text:
        room -= columns_of(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS


def cut_start(text: str, most: int) -> str:
    """Replace the start by an ellipsis: for addresses, whose end tells more. ASCII only."""
    return text if len(text) <= most else ELLIPSIS + text[len(text) - most + 1 :]
