"""Nanoseconds of packet time -> text in one of tshark's formats. Holds the last second's text, three times.

``a`` and ``ad`` are local time, ``u`` and ``ud`` UTC; ``r`` counts from the capture's first packet, ``d``
from the exchange before, ``dd`` from the exchange shown before; ``e`` is seconds since 1970. Where tshark
prints a date with a blank behind it, we print ISO 8601: one word for awk, and what ``--since`` reads back.
"""

from __future__ import annotations

from datetime import UTC, datetime

from kdissect.anomalies import CATALOGUE, ERROR, NOTE, WARNING

FORMATS = {
    "a": "local time",
    "ad": "local date and time",
    "d": "seconds since the previous exchange",
    "dd": "seconds since the previous exchange shown",
    "e": "seconds since 1970",
    "r": "seconds since the first packet",
    "u": "UTC time",
    "ud": "UTC date and time",
}

_SECOND = 1_000_000_000
_LAST_SECOND = 253_402_300_799  # the end of the year 9999: a calendar has no more, a damaged timestamp has


class Times:
    """Writes times in one format.

    Args:
        name: one of ``FORMATS``.
        digits: behind the point, 6 or fewer.

    Attributes:
        first_ns: what ``r`` counts from; the first time seen unless somebody knows an earlier one.
    """

    def __init__(self, name: str = "ud", *, digits: int = 6, first_ns: int | None = None) -> None:
        self.first_ns = first_ns
        self._name = name
        self._digits = digits
        self._seen_ns: int | None = None
        self._shown_ns: int | None = None
        self._second: int | None = None
        self._prefix = ""
        self._suffix = ""

    def text(self, time_ns: int) -> str:
        """Write the time of an exchange that is shown."""
        if self._name in ("d", "dd", "r"):
            text = self._since(time_ns)
        else:
            second, rest = divmod(time_ns, _SECOND)
            if second != self._second:
                self._second = second
                self._prefix, self._suffix = _moment(self._name, second)
            text = f"{self._prefix}.{str(_SECOND + rest)[1 : self._digits + 1]}{self._suffix}"
        self._shown_ns = time_ns
        self.skip(time_ns)
        return text

    def skip(self, time_ns: int) -> None:
        """Take note of the time of an exchange that is not shown."""
        if self.first_ns is None:
            self.first_ns = time_ns
        self._seen_ns = time_ns

    def _since(self, time_ns: int) -> str:
        origin = {"d": self._seen_ns, "dd": self._shown_ns, "r": self.first_ns}[self._name]
        ns = 0 if origin is None else time_ns - origin
        second, rest = divmod(abs(ns), _SECOND)
        return f"{'-' if ns < 0 else ''}{second}.{f'{rest:09d}'[: self._digits]}"


def iso_ms(time_ms: int) -> str | None:
    """Write a timestamp from the wire in UTC; None for what is no date (-1, or past the year 9999)."""
    second, rest = divmod(time_ms, 1000)
    if not 0 <= second <= _LAST_SECOND:
        return None
    prefix, suffix = _moment("ud", second)
    return f"{prefix}.{rest:03d}{suffix}"


def _moment(name: str, second: int) -> tuple[str, str]:
    """Write what stands before and behind the point and its digits."""
    if name == "e" or not 0 <= second <= _LAST_SECOND:
        return str(second), ""
    moment = datetime.fromtimestamp(second, UTC)
    if name in ("a", "ad"):
        moment = moment.astimezone()
    if name in ("a", "u"):
        return f"{moment:%H:%M:%S}", ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}", "Z" if name == "ud" else moment.isoformat()[19:]


# ------------------------------------------------------------------------------------------------------------
# Text -> the same text in colour, for a terminal that wants it. Holds nothing.
# ------------------------------------------------------------------------------------------------------------


RED = "31"
YELLOW = "33"
CYAN = "36"
BOLD = "1"
FAINT = "2"


def paint(text: str, colour: str) -> str:
    """Put the text between the sequences that switch the colour on and everything off."""
    return f"\x1b[{colour}m{text}\x1b[0m" if text else text


def severity(kind: str) -> int:
    """Rank an anomaly: 0 is the worst."""
    known = CATALOGUE.get(kind)
    return (ERROR, WARNING, NOTE).index(known.severity if known else NOTE)


def of_anomaly(kind: str) -> str:
    """Choose red where something could not be decoded, yellow where something is missing or odd."""
    return YELLOW if severity(kind) else RED
