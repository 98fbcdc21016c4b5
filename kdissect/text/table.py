"""``Exchange`` -> one line: when, who, what, how long, what about, what went wrong. Holds column widths and
the cells that many lines have in common.

Columns grow with what they show, up to a bound each. On a terminal every line is cut to its width, errors and
marks last; elsewhere nothing is cut, ``-`` stands for what is absent, and two blanks or more end a
column: for grep and awk.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from kdissect.exchanges import content
from kdissect.kafka import apis
from kdissect.model import ANSWERED, KINDS, ORPHAN, UNACKNOWLEDGED, UNANSWERED, Embedded, Withheld
from kdissect.phrases import ELLIPSIS, columns_of, cut, cut_start, duration, facts, many, printable, size
from kdissect.tables.values import json_bytes
from kdissect.text.about import about
from kdissect.text.style import BOLD, CYAN, FAINT, RED, YELLOW, of_anomaly, paint, severity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from kdissect.exchanges.partition_records import CarriedRecord
    from kdissect.kafka.internal.topics import Payload
    from kdissect.model import Endpoint, Exchange
    from kdissect.text.style import Times


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


# ------------------------------------------------------------------------------------------------------------
# ``CarriedRecord`` -> one line: when, in which api, where in the log, key, value, marks. Holds widths.
#
# On a terminal a line is cut to its width, the value first; elsewhere nothing is cut. ``-`` stands for what
# is absent or null, two blanks end a column. Bytes that are no text are shown by backslash escapes. Marks
# are the schema and the trace that the record names, ``aborted``, and ``!`` before what was wrong with its
# batch.
# ------------------------------------------------------------------------------------------------------------


_GAP = "  "
_HEADINGS = ("API", "PARTITION", "OFFSET", "KEY")
_LEAST = (7, 10, 6, 4)
_MOST = (13, 30, 20, 24)
_LEAST_VALUE = 8
_LEAST_MARK = 4
_RECORD_WIDE = 120  # a terminal this wide shows a trace's id whole
_TRACE_CHARACTERS = 8

Mark = tuple[str, str]
"""A word behind the value, and its colour."""

_NAME = CYAN  # of marks that do not warn
_BYTES_PER_COLUMN = 4  # a character has no more in UTF-8: what is behind would be cut


class RecordTable:
    """Writes the lines.

    Args:
        out: where to; the caller owns and flushes it.
        times: writes the first column: the exchange's time.
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
        self._most_bytes = None if width is None else width * _BYTES_PER_COLUMN
        self._widths = list(_LEAST)
        self._gap = gap or _GAP
        self._headed = width is None

    def feed(self, record: CarriedRecord) -> None:
        """Write one line."""
        carried = record.carried
        cells = [
            carried.exchange.api or ABSENT,
            carried.place or ABSENT,
            ABSENT if record.offset is None else str(record.offset),
            ABSENT if record.control else self._text(record.key),
        ]
        time = self._times.text(carried.exchange.time_ns)
        if not self._headed:
            self._headed = True
            head = self._line("TIME".ljust(len(time)), list(_HEADINGS), "VALUE", ())
            self._write((paint(head, FAINT) if self._colour else head) + "\n")
        value = f"control {record.control}" if record.control else self._text(record.value)
        self._write(self._line(time, cells, value, self._marks(record)) + "\n")

    def close(self) -> None:
        """Nothing is left to write: every line was complete."""

    @property
    def widths(self) -> list[int]:
        """Of the columns behind the time, as far as they have grown."""
        return self._widths

    def widen(self, widths: Sequence[int]) -> None:
        """Let the columns be at least as wide."""
        self._widths = [max(pair) for pair in zip(self._widths, widths, strict=True)]

    def _line(self, time: str, cells: list[str], value: str, marks: Sequence[Mark]) -> str:
        shown = [time, *(self._cell(index, printable(text)) for index, text in enumerate(cells))]
        value = printable(value)
        if self._width is not None:
            room = self._width - sum(map(columns_of, shown)) - len(_GAP) * len(shown)
            marks = _record_fitted(marks, room, min(_LEAST_VALUE, columns_of(value)))
            room -= sum(columns_of(mark) + len(_GAP) for mark, _ in marks)
            value = cut(value, room) if room >= min(_LEAST_VALUE, columns_of(value)) else ""
        if not (self._colour and marks):
            line = self._gap.join([*shown, *filter(None, (value, *(mark for mark, _ in marks)))]).rstrip()
            return line if self._width is None else cut(line, self._width)
        return self._gap.join([*shown, *filter(None, (value, *(paint(*mark) for mark in marks)))])

    def _marks(self, record: CarriedRecord) -> list[Mark]:
        marks: list[Mark] = []
        if (schema := record.key_schema) is not None:
            marks.append((f"key schema {schema}", _NAME))
        if (schema := record.schema) is not None:
            marks.append((f"schema {schema}", _NAME))
        if (trace := record.trace) is not None:
            marks.append((f"trace {printable(self._trace(trace.id))}", _NAME))
        batch = record.batch
        if batch.aborted:
            marks.append(("aborted", YELLOW))
        if batch.anomalies:
            kinds = dict.fromkeys(anomaly.kind for anomaly in batch.anomalies)
            marks += ((f"! {kind}", f"{BOLD};{of_anomaly(kind)}") for kind in kinds)
        return marks

    def _trace(self, trace_id: str) -> str:
        if self._width is None or self._width >= _RECORD_WIDE or len(trace_id) <= _TRACE_CHARACTERS:
            return trace_id
        return trace_id[:_TRACE_CHARACTERS] + ELLIPSIS

    def _cell(self, index: int, text: str) -> str:
        """A text in its column, which grows up to its bound."""
        taken = columns_of(text)
        if taken > self._widths[index]:
            self._widths[index] = min(taken, _MOST[index])
            if self._width is not None and taken > _MOST[index]:
                text = cut(text, _MOST[index])
                taken = columns_of(text)
        return text + " " * (self._widths[index] - taken)

    def _text(self, payload: Payload) -> str:
        if isinstance(payload, bytes):
            return payload[: self._most_bytes].decode("utf-8", "backslashreplace") or '""'
        if isinstance(payload, Embedded):
            return json_bytes(payload.decoded).decode()
        return f"withheld ({payload.length} bytes)" if isinstance(payload, Withheld) else ABSENT


def _record_fitted(marks: Sequence[Mark], room: int, value: int) -> Sequence[Mark]:
    """Leave out the first ones, which say the least, until so much of the value fits, too; one that warns
    stays, if need be cut.
    """
    kept = list(marks)
    while kept and sum(columns_of(mark) + len(_GAP) for mark, _ in kept) > room - value:
        text, colour = kept.pop(0)
        if not kept and colour != _NAME:
            return [(cut(text, room), colour)] if room >= _LEAST_MARK else []
    return kept


# ------------------------------------------------------------------------------------------------------------
# ``Exchange`` -> counts, written as one line at the end. Holds a number for each kind of exchange and each
# error.
# ------------------------------------------------------------------------------------------------------------


_ERRORS = 5


class Tally:
    """Counts exchanges and writes the line on ``close``.

    Args:
        out: where to; the caller owns and flushes it.
    """

    def __init__(self, out: TextIO) -> None:
        self._write = out.write
        self._kinds: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._odd = 0

    def feed(self, exchange: Exchange) -> None:
        """Count one."""
        self._kinds[exchange.kind] += 1
        self._errors.update(content.errors(exchange))
        self._odd += bool(exchange.anomalies)

    def close(self) -> None:
        """Write what was counted."""
        total = self._kinds.total()
        kinds = [f"{self._kinds[kind]:,} {kind}" for kind in KINDS if self._kinds[kind]]
        if len(self._kinds) == 1:
            kinds = [f"{'all ' if total > 1 else ''}{next(iter(self._kinds))}"]
        errors = [f"{count:,} {name}" for name, count in self._errors.most_common(_ERRORS)]
        more = len(self._errors) - _ERRORS
        text = facts(
            many(total, "exchange"),
            *kinds,
            f"{self._odd:,} with anomalies" if self._odd else None,
            f"errors: {', '.join(errors)}" if errors else None,
            many(more, "more error") if more > 0 else None,
        )
        self._write(text + "\n")


# ------------------------------------------------------------------------------------------------------------
# ``CarriedRecord`` -> counts, written as one line at the end. Holds a number for each thing counted, and
# for each topic up to a bound.
# ------------------------------------------------------------------------------------------------------------


_MOST_TOPICS = 10_000


class RecordTally:
    """Counts records and writes the line on ``close``.

    Args:
        out: where to; the caller owns and flushes it.
    """

    def __init__(self, out: TextIO) -> None:
        self._write = out.write
        self._produced = self._fetched = self._control = self._aborted = self._odd = self._bytes = 0
        self._topics: set[str] = set()

    def feed(self, record: CarriedRecord) -> None:
        """Count one."""
        if record.carried.produced:
            self._produced += 1
        else:
            self._fetched += 1
        self._control += record.control is not None
        self._aborted += record.batch.aborted
        self._odd += bool(record.batch.anomalies)
        self._bytes += len(record.record.key or b"") + len(record.record.value or b"")
        if len(self._topics) < _MOST_TOPICS:
            self._topics.update(record.carried.names[:1])

    def close(self) -> None:
        """Write what was counted."""
        topics = many(len(self._topics), "topic")
        text = facts(
            many(self._produced + self._fetched, "record"),
            f"{self._produced:,} produced" if self._produced else None,
            f"{self._fetched:,} fetched" if self._fetched else None,
            f"{self._control:,} control" if self._control else None,
            f"{self._aborted:,} aborted" if self._aborted else None,
            f"{self._odd:,} in batches with anomalies" if self._odd else None,
            f"{size(self._bytes)} of keys and values",
            f"more than {topics}" if len(self._topics) >= _MOST_TOPICS else topics,
        )
        self._write(text + "\n")
