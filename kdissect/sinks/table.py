"""``Exchange`` -> one line: when, who, what, how long, what about, what went wrong. Holds column widths and
the cells that many lines have in common.

Columns grow with what they show, up to a bound each. On a terminal every line is cut to its width, errors and
marks last; elsewhere nothing is cut, ``-`` stands for what is absent, and two blanks or more end a
column: for grep and awk.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from kdissect.analysis import content
from kdissect.kafka import apis
from kdissect.model import ANSWERED, ORPHAN, UNACKNOWLEDGED, UNANSWERED
from kdissect.sinks.about import about
from kdissect.sinks.colours import BOLD, FAINT, RED, YELLOW, of_anomaly, paint, severity
from kdissect.sinks.phrases import duration
from kdissect.sinks.printable import columns_of, cut, cut_start, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from kdissect.model import Endpoint, Exchange
    from kdissect.sinks.times import Times

ABSENT = "-"
UNANSWERED_KINDS = {UNANSWERED: "no answer", UNACKNOWLEDGED: "acks=0", ORPHAN: "orphan"}

_BEGINNINGS = 4096  # lines whose first cells are kept
_LEAST_ABOUT = 4  # columns: in fewer nobody could tell what an exchange was about,
_LEAST_WORD = 6  # ... or what went wrong with it
_WIDE = 160  # a terminal this wide shows both ends
_MIDDLE = 120  # ... shows the client's address and its id; a narrower one has room for one of them


Word = tuple[str, str]
"""A word about what went wrong, and its colour."""


class Column(NamedTuple):
    """One column.

    Attributes:
        least, most: bounds of its width on a terminal.
        cut: shortens a text to a number of terminal columns.
    """

    heading: str
    least: int
    most: int
    text: Callable[[Exchange], str]
    cut: Callable[[str, int], str] = cut


@lru_cache(4096)
def _end(endpoint: Endpoint) -> str:
    return str(endpoint)


def _client_id(exchange: Exchange) -> str:
    return printable(exchange.client_id) if exchange.client_id else ABSENT


def _who(exchange: Exchange) -> str:
    """The client in one word, for narrow terminals."""
    return printable(exchange.client_id) if exchange.client_id else _end(exchange.connection.client)


@lru_cache(4096)
def _api(api_key: int | None, api_version: int | None) -> str:
    if api_key is None:
        return ABSENT
    api = apis.by_key(api_key)
    return f"{api.name if api else f'api {api_key}'} v{api_version}"


def api(exchange: Exchange) -> str:
    """Name and version: ``Fetch v13``."""
    if exchange.api_key is None and exchange.kind != ORPHAN:
        return "SASL token"
    return _api(exchange.api_key, exchange.api_version)


def _cut_api(text: str, most: int) -> str:
    name, _, version = text.rpartition(" ")
    return f"{cut(name, most - len(version) - 1)} {version}"


def outcome(exchange: Exchange) -> str:
    """The latency, or the kind of an exchange that has none."""
    kind = exchange.kind
    if kind == ANSWERED and (latency_ns := exchange.latency_ns) is not None:
        return duration(latency_ns)
    return UNANSWERED_KINDS.get(kind, ABSENT)


_CLIENT = Column("CLIENT", 14, 24, lambda exchange: _end(exchange.connection.client), cut_start)
_BROKER = Column("BROKER", 14, 24, lambda exchange: _end(exchange.connection.broker), cut_start)
_CLIENT_ID = Column("CLIENT ID", 9, 20, _client_id)
_WHO = Column("CLIENT", 8, 13, _who)
_API = Column("API", 14, 24, api, _cut_api)
_OUTCOME = Column("LATENCY", 8, 9, outcome)

# The outcome stands last: the cells before it are the same for many exchanges.
_ALL = (_CLIENT, _BROKER, _CLIENT_ID, _API, _OUTCOME)
_SOME = (_CLIENT, _CLIENT_ID, _API, _OUTCOME)
_FEW = (_WHO, _API._replace(most=18), _OUTCOME._replace(least=7))


def is_narrow(width: int | None) -> bool:
    """Whether a terminal of that width has room for one word about the client, and for milliseconds only."""
    return width is not None and width < _MIDDLE


class Table:
    """Writes the lines.

    Args:
        out: where to; the caller owns and flushes it.
        times: writes the first column.
        width: columns of the terminal, None where it is no terminal.
        colour: whether to colour.
        gap: stands between columns, for who replaces it; None: blanks.
    """

    def __init__(
        self,
        out: TextIO,
        times: Times,
        *,
        width: int | None = None,
        colour: bool = False,
        gap: str | None = None,
    ) -> None:
        self._write = out.write
        self._times = times
        self._width = width
        self._colour = colour
        self._columns = _ALL if width is None or width >= _WIDE else _SOME if width >= _MIDDLE else _FEW
        self._gap = gap or (" " if self._columns is _FEW else "  ")
        self._widths = [column.least for column in self._columns]
        self._beginnings: dict[tuple[str, str | None, int | None, int | None, bool], str] = {}
        self._headed = width is None

    def feed(self, exchange: Exchange) -> None:
        """Write one line."""
        time = self._times.text(exchange.time_ns)
        if not self._headed:
            self._headed = True
            self._head(len(time))
        kind = exchange.kind
        key = (
            exchange.connection.id,
            exchange.client_id,
            exchange.api_key,
            exchange.api_version,
            kind == ORPHAN,
        )
        beginning = self._beginnings.get(key) or self._begin(exchange, key)
        text = outcome(exchange)
        width = self._widths[-1]
        end = text.ljust(width) if len(text) <= width else self._cell(-1, self._columns[-1], text)
        if self._colour and kind != ANSWERED:
            end = paint(end, YELLOW)
        rest = self._rest(exchange, len(time))
        self._write(f"{self._gap.join((time, beginning, end, *rest)).rstrip()}\n")

    def close(self) -> None:
        """Nothing is left to write: every line was complete."""

    @property
    def widths(self) -> list[int]:
        """Of the columns behind the time, as far as they have grown."""
        return self._widths

    def widen(self, widths: Sequence[int]) -> None:
        """Let the columns be at least as wide."""
        self._widths = [max(pair) for pair in zip(self._widths, widths, strict=True)]
        self._beginnings.clear()

    def _head(self, time_width: int) -> None:
        cells = ["TIME".ljust(time_width)]
        cells += (
            column.heading.ljust(width) for column, width in zip(self._columns, self._widths, strict=True)
        )
        line = self._gap.join((*cells, "ABOUT"))
        self._write((paint(line, FAINT) if self._colour else line) + "\n")

    def _begin(self, exchange: Exchange, key: tuple[str, str | None, int | None, int | None, bool]) -> str:
        """The cells between time and outcome, kept for the next exchange that has the same."""
        before = self._widths.copy()
        columns = enumerate(self._columns[:-1])
        cells = [self._cell(index, column, column.text(exchange)) for index, column in columns]
        if self._widths != before or len(self._beginnings) >= _BEGINNINGS:
            self._beginnings.clear()  # they are narrower, or too many
        beginning = self._beginnings[key] = self._gap.join(cells)
        return beginning

    def _cell(self, index: int, column: Column, text: str) -> str:
        """A text that does not fit its column: the column grows, or the text is cut."""
        taken = columns_of(text)
        if taken > self._widths[index]:
            self._widths[index] = min(taken, column.most)
            if self._width is not None and taken > column.most:
                text = column.cut(text, column.most)
                taken = columns_of(text)
        return text + " " * (self._widths[index] - taken)

    def _rest(self, exchange: Exchange, time_width: int) -> list[str]:
        """What it was about and what went wrong; on a terminal cut to the room that is left."""
        text = printable(about(exchange))
        wrong: Sequence[Word] = [(name, RED) for name in content.errors(exchange)]
        if exchange.anomalies:
            wrong = [*wrong, *((f"! {kind}", of_anomaly(kind)) for kind in self._marks(exchange))]
        if self._width is not None:
            room = self._width - time_width - sum(self._widths) - len(self._gap) * (len(self._widths) + 1)
            text, wrong = _fitted(text, wrong, room, len(self._gap))
        words = [text] if text else []
        for word, colour in wrong:
            words.append(paint(word, f"{BOLD};{colour}") if self._colour else word)
        return words

    def _marks(self, exchange: Exchange) -> list[str]:
        """The kinds of its anomalies; where there is little room the worst of them."""
        kinds = list(dict.fromkeys(anomaly.kind for anomaly in exchange.anomalies))
        return sorted(kinds, key=severity)[:1] if is_narrow(self._width) else kinds


def _fitted(text: str, wrong: Sequence[Word], room: int, gap: int) -> tuple[str, Sequence[Word]]:
    """Cut to ``room`` columns: first what it was about, then the last of what went wrong."""
    left = room - sum(len(word) + gap for word, _ in wrong)
    if left + gap >= 0:
        return (cut(text, left) if left >= _LEAST_ABOUT else ""), wrong
    shown: list[Word] = []
    left = room
    for number, (word, colour) in enumerate(wrong, 1):
        behind = _LEAST_WORD + gap if number < len(wrong) else 0  # that more went wrong should be seen
        most = left - behind if left - behind >= _LEAST_WORD else left
        if most < _LEAST_WORD:
            break
        shown.append((cut(word, most), colour))
        left -= len(shown[-1][0]) + gap
    return "", shown
