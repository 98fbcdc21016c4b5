"""Nanoseconds of packet time -> text in one of tshark's formats. Holds the text of the last second and three
times.

``a`` and ``ad`` are local time, ``u`` and ``ud`` UTC; ``r`` counts from the first packet, ``d`` from the
previous exchange, ``dd`` from the previous exchange shown; ``e`` is seconds since 1970. Where tshark
separates date and time by a blank, we print ISO 8601: one word for awk, and input for ``--since``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from kdissect.anomalies import CATALOGUE, ERROR, NOTE, WARNING
from kdissect.phrases import columns_of
from kdissect.sinks.plan import MAX_INT64, TimeFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMATS = {
    "a": "local time",
    "ad": "local date and time",
    "d": "seconds since the previous exchange or record, even if filtered out",
    "dd": "since the previous one shown",
    "e": "seconds since 1970",
    "r": "seconds since the first packet",
    "u": "UTC time",
    "ud": "UTC date and time",
}

_SINCE = {"d": "seen", "dd": "shown", "r": "first"}
"""What relative times count from, by format: ``TimeFormat.since``."""
_RELATIVE_WIDTH = 6  # sign, four digits and the decimal point
_HEADINGS = {
    **dict.fromkeys(("a", "ad"), "TIME (local)"),
    **dict.fromkeys(("u", "ud"), "TIME (UTC)"),
    **dict.fromkeys(("d", "dd"), "DELTA (s)"),
    "r": "TIME (s)",
}
_WIDTHS = {"u": 9, "a": 9, "ud": 21, "ad": 26, "e": 11, "r": 2, "d": 2, "dd": 2}  # without the digits
_SECOND = 1_000_000_000
_LAST_SECOND = (
    253_402_300_799  # the end of the year 9999, and of the calendar; a damaged timestamp can be later
)


class Times:
    """Writes times in one format.

    Args:
        name: one of ``FORMATS``.
        digits: after the decimal point, at most 6.
        in_column: whether times are in a column, aligned, with the zone in the heading.

    Attributes:
        first_ns: what ``r`` counts from; if not set, the first time seen.
        heading: of a column.
        width: of usual times.
    """

    def __init__(
        self, name: str = "ud", *, digits: int = 6, first_ns: int | None = None, in_column: bool = False
    ) -> None:
        self.first_ns = first_ns
        self._in_column = in_column
        self._width = _RELATIVE_WIDTH + digits if in_column and name in _SINCE else 0
        self.heading = _HEADINGS.get(name, "TIME").rjust(self._width)
        self.width = self._width or _WIDTHS[name] + digits
        self._name = name
        self._digits = digits
        self._seen_ns: int | None = None
        self._shown_ns: int | None = None
        self._second: int | None = None
        self._prefix = ""
        self._suffix = ""

    def text(self, time_ns: int) -> str:
        """The time of an exchange that is shown, as text."""
        if self._name in _SINCE:
            text = self._since(time_ns)
        else:
            second, rest = divmod(time_ns, _SECOND)
            if second != self._second:
                self._second = second
                self._prefix, self._suffix = self.around(second)
            text = f"{self._prefix}.{str(_SECOND + rest)[1 : self._digits + 1]}{self._suffix}"
        self._shown_ns = time_ns
        self.skip(time_ns)
        return text.rjust(self._width)

    @property
    def format(self) -> TimeFormat | None:
        """The same for the native core. None: it is not known yet what times count from, or no int64."""
        first_ns, since = self.first_ns or 0, _SINCE.get(self._name, "epoch")
        if abs(first_ns) > MAX_INT64 or (since == "first" and self.first_ns is None):
            return None
        return TimeFormat(self._digits, self._width, since, first_ns)

    @property
    def are_independent(self) -> bool:
        """Whether no text depends on exchanges before."""
        return self._name not in ("d", "dd")

    def around(self, second: int) -> tuple[str, str]:
        """The text before and after the decimal point and its digits."""
        prefix, suffix = _moment(self._name, second)
        return prefix, "" if self._in_column else suffix

    def skip(self, time_ns: int) -> None:
        """Note the time of an exchange that is not shown."""
        if self.first_ns is None:
            self.first_ns = time_ns
        self._seen_ns = time_ns

    def jump(self, shown_ns: int | None, seen_ns: int) -> None:
        """Note the time of the last exchange of several, and of the last one that is shown, if any is."""
        self._seen_ns = seen_ns
        self._shown_ns = shown_ns if shown_ns is not None else self._shown_ns

    def _since(self, time_ns: int) -> str:
        origin = {"d": self._seen_ns, "dd": self._shown_ns, "r": self.first_ns}[self._name]
        ns = 0 if origin is None else time_ns - origin
        second, rest = divmod(abs(ns), _SECOND)
        return f"{'-' if ns < 0 else ''}{second}.{f'{rest:09d}'[: self._digits]}"


def iso_ms(time_ms: int) -> str | None:
    """A timestamp from the wire in UTC; None if it is not a date (-1, or after the year 9999)."""
    second, rest = divmod(time_ms, 1000)
    if not 0 <= second <= _LAST_SECOND:
        return None
    prefix, suffix = _moment("ud", second)
    return f"{prefix}.{rest:03d}{suffix}"


@lru_cache(64)
def _moment(name: str, second: int) -> tuple[str, str]:
    """The text before and after the decimal point and its digits."""
    if name == "e" or not 0 <= second <= _LAST_SECOND:
        return str(second), ""
    moment = datetime.fromtimestamp(second, UTC)
    if name in ("a", "ad"):
        moment = moment.astimezone()
    if name in ("a", "u"):
        return f"{moment:%H:%M:%S}", ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}", "Z" if name == "ud" else moment.isoformat()[19:]


# ------------------------------------------------------------------------------------------------------------
# Text -> the same text in color, for a terminal, and with names of hosts.
# ------------------------------------------------------------------------------------------------------------


RED = "31"
YELLOW = "33"
CYAN = "36"
BOLD = "1"
FAINT = "2"
_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")

_SEQUENCE = re.compile("(\x1b\\[[0-9;]*m)")
_START = re.compile(r"(?:[0-9a-f]{6}  (?:(?:[0-9a-f]{2} )+|not shown) *)? *")


COLORS = {"error": RED, "warning": YELLOW, "mark": CYAN, "heading": BOLD, "faint": FAINT}
"""What can have another color, and the code it has by default."""
CODES = {
    "bold": BOLD,
    "dim": FAINT,
    "italic": "3",
    "underline": "4",
    "reverse": "7",
    **{name: f"3{code}" for code, name in enumerate(_NAMES)},
    **{f"bright_{name}": f"9{code}" for code, name in enumerate(_NAMES)},
}
"""Words of a color, such as "bold bright_red", and their codes (ECMA-48, SGR)."""


class Style:
    """How text for people looks.

    Args:
        is_colored: whether there are escape sequences.
        colors: other colors than the usual ones: words of ``CODES`` by what has the color.
        hosts: names to show for addresses, with or without a port.

    Attributes:
        looks: words of rich's styles, by what has the color.
        heading, faint: two of them.
        has_hosts: whether ``named`` replaces anything.
    """

    def __init__(
        self,
        is_colored: bool = False,
        colors: Mapping[str, str] | None = None,
        hosts: Mapping[str, str] | None = None,
    ) -> None:
        self.is_colored = is_colored
        usual = {"": "", "error": "red", "warning": "yellow", "heading": "bold", "faint": "dim"}
        self.looks: Mapping[str, str] = {**usual, **(colors or {})}
        self.heading, self.faint = self.looks["heading"], self.looks["faint"]
        self._codes: dict[str, str] = {}
        for name, words in (colors or {}).items():
            self._codes[COLORS[name]] = ";".join(CODES[word] for word in words.split())
        self.has_hosts = bool(hosts)
        self._hosts = {**(hosts or {}), **{f"[{ip}]": name for ip, name in (hosts or {}).items()}}
        longest_first = "|".join(map(re.escape, sorted(self._hosts, key=len, reverse=True)))
        self._addresses = re.compile(rf"(?<![\w.:])(?:{longest_first})(?!\w|\.\d)") if hosts else None

    def paint(self, text: str, color: str) -> str:
        """Enclose text in the escape sequences that set a color and reset it.

        Args:
            text: without escape sequences.
            color: codes, separated by semicolons.
        """
        if not (self.is_colored and text):
            return text
        if self._codes:
            color = ";".join(self._codes.get(code, code) for code in color.split(";"))
        return f"\x1b[{color}m{text}\x1b[0m"

    def named(self, text: str) -> str:
        """Replace addresses by names of hosts."""
        addresses, hosts = self._addresses, self._hosts
        return text if addresses is None else addresses.sub(lambda address: hosts[address[0]], text)


PLAIN, COLORED = Style(), Style(True)


def unpainted(text: str) -> str:
    """Remove what ``paint`` added."""
    return _SEQUENCE.sub("", text)


def folded(line: str, max_width: int) -> list[str]:
    """Break a line, in color or not, between words if possible, otherwise after a hyphen. What follows is
    indented more than the line, or than the text of a field after offset and bytes.
    """
    if columns_of(unpainted(line)) <= max_width:
        return [line]
    start = _START.match(unpainted(line))
    indent = min(start.end() if start else 0, max_width // 2) + 2
    lines: list[str] = []
    current: list[str] = []
    used, last_blank, last_hyphen = 0, 0, 0
    for piece in _SEQUENCE.split(line):
        if piece.startswith("\x1b"):
            current.append(piece)
            continue
        for character in piece:
            columns = columns_of(character)
            if used + columns > max_width:
                cut_at = last_blank or last_hyphen or len(current)
                lines.append("".join(current[:cut_at]).rstrip(" "))
                current = [" " * indent, *current[cut_at:]]
                used, last_blank, last_hyphen = columns_of(unpainted("".join(current))), 0, 0
            current.append(character)
            used += columns
            if character == " " and used > 2 * indent:
                last_blank = len(current)
            elif character == "-" and used > 2 * indent:
                last_hyphen = len(current)
    return [*lines, "".join(current)]


def severity(kind: str) -> int:
    """The rank of an anomaly: 0 is the worst."""
    known = CATALOGUE.get(kind)
    return (ERROR, WARNING, NOTE).index(known.severity if known else NOTE)


def of_anomaly(kind: str) -> str:
    """The color of an anomaly: red if something was not decoded, yellow if something is missing or
    unusual.
    """
    return YELLOW if severity(kind) else RED
