"""Values -> short text for people: amounts, names, shortened lists. Not used in machine-readable output."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from typing import TextIO


ABSENT = "-"
NAMES = 3  # names listed before the rest is only counted


def many(number: int, noun: str, plural: str = "") -> str:
    """``1 record``, ``12,000 records``; ``plural`` if it is not regular."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def times(number: int) -> str:
    """``once``, ``12 times``."""
    return "once" if number == 1 else f"{number:,} times"


def size(count: int) -> str:
    """Write bytes in the largest unit that gives at least 1: ``3.4 KB`` (1 KB is 1000 bytes)."""
    if count < 1000:
        return f"{count} B"
    amount = float(count)
    for unit in ("KB", "MB", "GB"):
        amount /= 1000
        if amount < 999.95:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:.1f} TB"


def duration(ns: int) -> str:
    """Write a latency with three or four digits: ``812us``, ``1.23ms``, ``45.6ms``, ``12.30s``."""
    return duration_us(ns // 1000)


def duration_us(us: int) -> str:
    """The same, of microseconds."""
    if -1000 < us < 1000:
        return f"{us}us"
    if abs(us) < 10_000:
        return f"{us / 1000:.2f}ms"
    if abs(us) < 1_000_000:
        return f"{us / 1000:.1f}ms"
    return f"{us / 1_000_000:.2f}s"


def span(ns: int) -> str:
    """Write how long something lasted, in the largest unit that gives at least 2: ``3.5 minutes``."""
    for unit, unit_ns in (("days", 86_400 * 10**9), ("hours", 3_600 * 10**9), ("minutes", 60 * 10**9)):
        if ns >= 2 * unit_ns:
            return f"{ns / unit_ns:,.1f} {unit}"
    return duration(ns)


def between(first: datetime, last: datetime, digits: int = 6) -> str:
    """``2026-11-21 12:56:38.528 to 12:57:34.775 UTC``: the second date only if it differs."""
    shown = "%H:%M:%S.%f" if first.date() == last.date() else "%Y-%m-%d %H:%M:%S.%f"
    rest = 6 - digits
    first_text, last_text = f"{first:%Y-%m-%d %H:%M:%S.%f}", f"{last:{shown}}"
    return f"{first_text[: len(first_text) - rest]} to {last_text[: len(last_text) - rest]} UTC"


class TopicId(str):
    """The ID of a topic whose name is not known, where there is a name otherwise."""

    __slots__ = ()


def topic_label(topic: str) -> str:
    """Write a topic: its name, or ``<id ...>``, which cannot be a name."""
    return f"<id {topic}>" if isinstance(topic, TopicId) else topic


def client_label(client: str) -> str:
    """Write a client: its ID or address; an ID that looks like a number in quotes."""
    return f'"{client}"' if client.isdecimal() else client


_EIGHTHS = " ▏▎▍▌▋▊▉█"
_ASCII_BARS = str.maketrans("▏▎▍▌▋▊▉█", "...#####")


def bar(fraction: float, width: int) -> str:
    """A horizontal bar: of ``width`` blocks for 1, and never empty for more than 0."""
    full, eighths = divmod(max(1, round(fraction * width * 8)) if fraction else 0, 8)
    return "█" * full + _EIGHTHS[eighths].strip()


def encodable_bars(text: str, encoding: str | None) -> str:
    """The text with bars of ASCII characters if the encoding does not have these blocks."""
    try:
        "█".encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(_ASCII_BARS)
    return text


def absent(value: Any) -> str:
    """Write a value, or a dash if it is unknown."""
    return ABSENT if value is None or value == "" else str(value)


def nonzero(count: int) -> str:
    """Write a number, or a dash if it is zero."""
    return f"{count:,}" if count else ABSENT


def facts(*texts: str | None) -> str:
    """Join the strings that are not empty with commas."""
    return ", ".join([text for text in texts if text])


def named(label: str, value: Any) -> str:
    """Put a label before a value; an empty string if the value is null or empty."""
    return f"{label} {value}" if value is not None and value != "" else ""


def numbered(label: str, value: int | None) -> str:
    """Put a label before a number; an empty string if it is null or negative, which also means null."""
    return f"{label} {value}" if value is not None and value >= 0 else ""


def listed(names: Sequence[Any], noun: str = "") -> str:
    """List the first few names and count the rest, after a noun if there is one."""
    if not names:
        return ""
    shown = ", ".join(str(name) for name in names[:NAMES])
    rest = len(names) - NAMES
    label = f"{noun}s " if noun and len(names) > 1 else f"{noun} " if noun else ""
    return f"{label}{shown} and {rest:,} more" if rest > 0 else f"{label}{shown}"


# ------------------------------------------------------------------------------------------------------------
# Text from the wire -> text that is safe to show on a terminal.
#
# A client can send any client ID, topic name or error message. They may contain escape sequences that
# recolor or retitle a terminal, newlines that forge a line of output, or marks that reverse the reading
# direction. Only the functions below escape them: in all text for people, and in JSON and CSV on a terminal.
# In files and pipes, JSON and CSV are unchanged.
# ------------------------------------------------------------------------------------------------------------


ELLIPSIS = "…"

_ESCAPE_CHUNK = 64 * 1024  # characters: each of them may become a separate string in memory


def printable(text: str, escape: Callable[[str], str] | None = None) -> str:
    """Escape every character that is not printable: controls, separators, direction marks.

    Args:
        text: from anywhere.
        escape: returns the escape of such a character; None: Python's backslash escapes.
    """
    if text.isprintable():
        return text
    if len(text) > _ESCAPE_CHUNK:
        pieces = range(0, len(text), _ESCAPE_CHUNK)
        return "".join(printable(text[at : at + _ESCAPE_CHUNK], escape) for at in pieces)
    escape = escape or _backslash
    return "".join(character if character.isprintable() else escape(character) for character in text)


def printable_json(data: bytes) -> bytes:
    """Escape them in JSON (UTF-8) with JSON's own escapes: its meaning and its line breaks do not change."""
    lines = data.decode().split("\n")
    return "\n".join(printable(line, _unicode_escape) for line in lines).encode()


def json_writer(out: TextIO) -> Callable[[bytes], object]:
    """A function that writes JSON to a stream: printable on a terminal, otherwise unchanged."""
    write = out.buffer.write
    return (lambda data: write(printable_json(data))) if out.isatty() else write


def _backslash(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _unicode_escape(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def quoted(text: str, limit: int | None = None) -> str:
    """Put the text in quotes, cut after ``limit`` characters, with the number of characters cut."""
    if limit is None or len(text) <= limit:
        return f'"{printable(text)}"'
    return f'"{printable(text[:limit])}" {ELLIPSIS} {len(text) - limit:,} more characters'


def columns_of(text: str) -> int:
    """Count the columns of a terminal that the text takes: an ideograph takes two."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def truncate(text: str, limit: int) -> str:
    """Replace the end by an ellipsis where the text takes more than ``limit`` columns."""
    if columns_of(text) <= limit:
        return text
    kept, room = [], limit - 1
    for character in text:
        room -= columns_of(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS


_UNIT = re.compile(r"(?<=\d) (?=(?:B|KB|MB|GB|TB|ms|us|s|%)(?!\w)|[A-Z]+_)")


def wrapped(text: str, limit: int | None, indent: str = "") -> list[str]:
    """Break a line between words, so that none takes more than ``limit`` columns of a terminal.

    A number and its unit or error code stay together. A longer word is not broken. ``indent`` precedes all
    lines but the first.
    """
    if limit is None or columns_of(text) <= limit:
        return [text]
    margin = len(text) - len(text.lstrip(" "))
    first, *words = _UNIT.sub("\0", text[margin:]).split(" ")
    lines = [text[:margin] + first]
    for word in words:
        if columns_of(lines[-1]) + 1 + columns_of(word) > limit:
            lines.append(indent + word)
        else:
            lines[-1] += f" {word}"
    return [line.replace("\0", " ").rstrip() for line in lines]


def truncate_start(text: str, limit: int) -> str:
    """Replace the start by an ellipsis: for addresses, whose end is more specific. ASCII only."""
    return text if len(text) <= limit else ELLIPSIS + text[len(text) - limit + 1 :]


def most_frequent(counts: Mapping[str, int], limit: int | None = None) -> list[tuple[str, int]]:
    """Names and counts, at most ``limit``, the most frequent first. Equally frequent names are in
    alphabetical order: which process counted one first does not matter.
    """
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:limit]
