"""``50ms``, ``1MB``, ``2026-11-21T09:05Z`` -> integers. Holds nothing."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, NamedTuple

from kdissect.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

SECOND_NS = 1_000_000_000
DAY_NS = 86_400 * SECOND_NS

_DURATIONS = {
    "ns": 1,
    "us": 1000,
    "µs": 1000,
    "ms": 1_000_000,
    "s": SECOND_NS,
    "m": 60 * SECOND_NS,
    "min": 60 * SECOND_NS,
    "h": 3600 * SECOND_NS,
    "d": DAY_NS,
}
# SI and IEC: k is a thousand, Ki is 1024. In any case of letters: nobody means millibytes or bits.
_SIZES = {
    letter + binary + byte: (1024 if binary else 1000) ** power
    for power, letter in enumerate(("", "k", "m", "g", "t"))
    for binary in ("", "i")
    for byte in ("", "b")
    if letter or not binary
}

_AMOUNT = re.compile(r"\s*(?P<number>\d{1,18}(?:\.\d{1,9})?)\s*(?P<unit>[a-zµ]*)\s*", re.IGNORECASE)
_TIME = re.compile(
    r"\s*(?:(?P<date>\d{4}-\d\d-\d\d)[T ])?"
    r"(?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"\s*(?:(?P<utc>Z)|(?P<sign>[+-])(?P<east>\d\d):?(?P<minutes>\d\d))?\s*",
    re.ASCII,
)
_DATE = re.compile(r"\s*\d{4}-\d\d-\d\d\s*", re.ASCII)
_SINCE_1970 = re.compile(r"\s*@?(?P<seconds>\d{9,11})(?:\.(?P<fraction>\d{1,9}))?\s*", re.ASCII)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY = "1970-01-01"


class Moment(NamedTuple):
    """A point in time.

    Attributes:
        ns: nanoseconds since 1970; without a date, since the beginning of a UTC day (zones can make that less
            than 0 or more than a day).
        dated: whether the text had a date.
    """

    ns: int
    dated: bool


def parse_duration(text: str) -> int:
    """``50ms`` -> nanoseconds.

    Raises:
        UsageError: it is not a number with a unit of time behind it.
    """
    ns = _parse_amount(text, _DURATIONS)
    if ns is None:
        raise UsageError(f'"{text}" is no duration; write 50ms, 1.5s, 2m (units: {", ".join(_DURATIONS)})')
    return ns


def parse_size(text: str) -> int:
    """``1MB`` -> bytes.

    Raises:
        UsageError: it is not a number, alone or with a unit of size.
    """
    size = _parse_amount(text, _SIZES)
    if size is None:
        raise UsageError(f'"{text}" is no size; write 1000, 64KB (1000 bytes each), 1MiB (1024 x 1024 bytes)')
    return size


def _parse_amount(text: str, units: Mapping[str, int]) -> int | None:
    from decimal import Decimal  # which few runs need, and the first line should not wait for

    match = _AMOUNT.fullmatch(text)
    unit = None if match is None else units.get(match["unit"].lower())
    return None if match is None or unit is None else int(Decimal(match["number"]) * unit)


def parse_moment(text: str) -> Moment:
    """ISO 8601 (UTC unless it has a zone), a clock time, or seconds since 1970 (at least 9 digits).

    Raises:
        UsageError: it is none of these, or no such day or hour exists.
    """
    if match := _SINCE_1970.fullmatch(text):
        return Moment(int(match["seconds"]) * SECOND_NS + _fraction_ns(match["fraction"]), dated=True)
    match = _TIME.fullmatch(f"{text.strip()}T00:00" if _DATE.fullmatch(text) else text)
    if match is None:
        forms = "2026-11-21T09:05:00Z, 2026-11-21, 09:05:00, or seconds since 1970"
        raise UsageError(f'"{text}" is no time; write {forms}')
    east = timedelta(hours=int(match["east"] or 0), minutes=int(match["minutes"] or 0))
    try:
        day = datetime.strptime(match["date"] or _FIRST_DAY, "%Y-%m-%d")  # noqa: DTZ007  (the zone follows)
        clock = day.replace(
            hour=int(match["hour"]),
            minute=int(match["minute"]),
            second=int(match["second"] or 0),
            tzinfo=timezone(-east if match["sign"] == "-" else east),
        )
    except ValueError as error:
        raise UsageError(f'"{text}" is no time: {error}') from None
    since_1970 = clock - _EPOCH
    seconds = since_1970.days * 86_400 + since_1970.seconds
    return Moment(seconds * SECOND_NS + _fraction_ns(match["fraction"]), dated=match["date"] is not None)


def _fraction_ns(digits: str | None) -> int:
    return int((digits or "0").ljust(9, "0"))
