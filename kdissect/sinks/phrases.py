"""Values -> a few words for people: amounts, names, lists that stop. No machine format uses these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ABSENT = "-"
NAMES = 3  # names listed before the rest is only counted


def many(number: int, noun: str) -> str:
    """``1 record``, ``12,000 records``; the plural is regular."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(count: int) -> str:
    """Write bytes in the largest unit that leaves a number above one: ``3.4 KB`` (1 KB is 1000 bytes)."""
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
    us = ns // 1000
    if -1000 < us < 1000:
        return f"{us}us"
    if abs(us) < 10_000:
        return f"{us / 1000:.2f}ms"
    if abs(us) < 1_000_000:
        return f"{us / 1000:.1f}ms"
    return f"{us / 1_000_000:.2f}s"


def absent(value: Any) -> str:
    """Write a value that may not be known."""
    return ABSENT if value is None or value == "" else str(value)


def some(count: int) -> str:
    """Write a number that is nothing to look at where it is zero."""
    return f"{count:,}" if count else ABSENT


def facts(*texts: str | None) -> str:
    """Join what there is to say."""
    return ", ".join([text for text in texts if text])


def named(label: str, value: Any) -> str:
    """Put a word before a value; nothing where the value is null or empty."""
    return f"{label} {value}" if value is not None and value != "" else ""


def numbered(label: str, value: int | None) -> str:
    """Put a word before a number; nothing where it is null, or negative, which means the same on the wire."""
    return f"{label} {value}" if value is not None and value >= 0 else ""


def listed(names: Sequence[Any], noun: str = "") -> str:
    """List the first few names and count the rest; the noun says what they are."""
    if not names:
        return ""
    shown = ", ".join(str(name) for name in names[:NAMES])
    rest = len(names) - NAMES
    label = f"{noun}s " if noun and len(names) > 1 else f"{noun} " if noun else ""
    return f"{label}{shown} and {rest:,} more" if rest > 0 else f"{label}{shown}"
