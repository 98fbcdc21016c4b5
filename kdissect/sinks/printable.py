"""Text from the wire -> text that is safe and whole on a terminal. Holds nothing.

Client ids, topic names and error messages are whatever a client sent: escape sequences that recolour or
retitle a terminal, newlines that fake a line of output, marks that turn the reading direction around. All of
these are shown as backslash escapes.
"""

from __future__ import annotations

from unicodedata import east_asian_width

ELLIPSIS = "…"


def printable(text: str) -> str:
    """Escape every character that is not printable: controls, separators, direction marks."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


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
