"""``Exchange`` or ``CarriedRecord`` -> one line: when, who or where, what, and what went wrong. Caches the
cells that many exchanges have in common.

Columns have fixed widths. Where the width of lines is limited, as on a terminal, columns that do not fit are
left out, cells are cut to their column and lines to that width; errors are cut last. Elsewhere nothing is
cut: a longer cell pushes what follows, and at least two blanks separate columns, for grep and awk. An absent
value is ``-``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from io import StringIO
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kdissect.exchanges import content
from kdissect.exchanges.outcomes import outcome
from kdissect.kafka import apis
from kdissect.kafka.bodies import TRAILING_BYTES, decode_exchange, rejected_exchange
from kdissect.kafka.codes import error_name
from kdissect.kafka.primitives import DecodeBudget
from kdissect.kafka.recordbatch import native_records
from kdissect.kafka.vendors import api_name
from kdissect.model import (
    ABANDONED,
    ANSWERED,
    INCOMPLETE,
    INCOMPLETE_REQUEST,
    NOT_EXPECTED,
    ORPHAN,
    PENDING,
    UNACKNOWLEDGED,
    UNANSWERED,
    Embedded,
    Exchange,
    Frame,
    Redacted,
)
from kdissect.names import kept
from kdissect.phrases import (
    ELLIPSIS,
    columns_of,
    duration_us,
    facts,
    many,
    most_frequent,
    printable,
    size,
    truncate,
    truncate_start,
    wrapped,
)
from kdissect.sinks.plan import CommonPlan, LinePlan
from kdissect.tables.columns import BY_NAME
from kdissect.tables.native_rows import usual_records
from kdissect.tables.values import json_bytes
from kdissect.text.about import about, describe_undecoded, undecoded_line
from kdissect.text.page import View
from kdissect.text.style import BOLD, CYAN, FAINT, PLAIN, RED, YELLOW, Style, Times, of_anomaly, severity
from kdissect.text.value_labels import copy_text, failed_text, rejection_of, rejection_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TextIO

    from kdissect.exchanges.partition_records import CarriedRecord, DecodedBatch
    from kdissect.kafka.internal.topics import Payload
    from kdissect.model import Endpoint
    from kdissect.sinks.plan import PlanContext, RecordPlan
    from kdissect.tables.columns import Column


ABSENT = "-"
_NO_RESPONSE = {
    PENDING: PENDING,
    ABANDONED: ABANDONED,
    NOT_EXPECTED: "acks=0",
    ORPHAN: "orphan",
    INCOMPLETE_REQUEST: "incomplete",
}
_UNANSWERED = "no response"

_LATE = "late"
_NOTE = f"{BOLD};{YELLOW}"  # the color of an anomaly that is not an error
_MIN_ABOUT = 8  # terminal columns of the text that errors leave on a narrow terminal
_MIN_TEXT = 4  # terminal columns: a shorter text says nothing
_MIN_WORD = 6  # likewise for what went wrong
_MIDDLE = 120  # a narrower terminal shows few columns
_WIDE = 160  # a terminal this wide shows both ends of a connection

Row = TypeVar("Row")

Word = tuple[str, str]
"""A word after the text, and its color."""


@dataclass(frozen=True, slots=True)
class LineView(View):
    """A column of lines; its width is that of usual cells.

    Attributes:
        cut: shortens a text to a number of terminal columns.
    """

    cut: Callable[[str, int], str] = truncate


def is_narrow(width: int | None) -> bool:
    """Whether a terminal is so narrow that the client is one word and times have milliseconds."""
    return width is not None and width < _MIDDLE


class LineTable(Generic[Row]):
    """Writes the lines.

    Args:
        out: owned and flushed by the caller.
        times: writes the first column.
        width: columns of a line; None: any number.
        style: colors, and names of hosts.
        heading: whether to write the names of the columns first.
    """

    _text_heading: str
    _min_text = 0  # columns of the text that words leave

    def __init__(
        self,
        out: TextIO,
        times: Times,
        *,
        width: int | None = None,
        style: Style = PLAIN,
        heading: bool = False,
    ) -> None:
        self._write = out.write
        self._times = times
        self._width = width
        self._style, self._is_colored = style, style.is_colored
        self._views = self._shown(width)
        self._gap = " " if is_narrow(width) else "  "
        if heading:
            self._write_heading()

    def feed(self, row: Row) -> None:
        """Write one line."""
        self._write(self._line(self._times.text(self._time_ns(row)), row))

    def _line(self, time: str, row: Row) -> str:
        cells = self._cells(row)
        text, words = self._text(row), self._words(row)
        if self._width is not None:
            room = self._width - sum(columns_of(cell) + len(self._gap) for cell in (time, *cells))
            if room < 0:
                return truncate(self._gap.join((time, *cells)), self._width) + "\n"
            text, words = self._fitted(text, words, room)
        if self._is_colored:
            cells, text = self._painted(row, cells), self._painted_text(row, text)
            words = [(self._style.paint(word, color), color) for word, color in words]
        tail = [text] if text else []
        tail += [word for word, _ in words]
        return f"{self._gap.join((time, *cells, *tail)).rstrip()}\n"

    def close(self) -> None:
        """Do nothing: every line is complete."""

    def _write_heading(self) -> None:
        cells = [view.heading.ljust(view.width) for view in self._views]
        line = self._gap.join((self._times.heading.ljust(self._times.width), *cells, self._text_heading))
        if self._width is not None:
            line = truncate(line, self._width)
        self._write(self._style.paint(line, FAINT) + "\n")

    def _filled(self, views: Iterable[LineView], row: Row) -> list[str]:
        """The cells of some columns, each at least as wide as its column."""
        cells = []
        for view in views:
            text = self._style.named(view.cell(row))
            if self._width is not None:
                text = view.cut(text, view.width)
            cells.append(text + " " * (view.width - columns_of(text)))
        return cells

    def _fitted(self, text: str, words: Sequence[Word], room: int) -> tuple[str, Sequence[Word]]:
        """Cut to ``room`` columns: first the text, to no less than ``_min_text``, then the last words."""
        gap = len(self._gap)
        left = room - sum(columns_of(word) + gap for word, _ in words)
        kept = min(self._min_text, columns_of(text))
        if left + gap >= 0 and left >= kept:
            return (truncate(text, left) if left >= min(_MIN_TEXT, columns_of(text)) else ""), words
        if room - kept - gap < _MIN_WORD:
            kept = 0
        shown: list[Word] = []
        left = room - kept - gap if kept else room
        for number, (word, color) in enumerate(words, 1):
            reserved = (
                _MIN_WORD + gap if number < len(words) else 0
            )  # leave room for a sign that there are more
            max_width = left - reserved if left - reserved >= _MIN_WORD else left
            if max_width < _MIN_WORD:
                break
            shown.append((truncate(word, max_width), color))
            left -= columns_of(shown[-1][0]) + gap
        return truncate(text, kept) if kept else "", shown

    def _shown(self, width: int | None) -> Sequence[LineView]:
        """The columns that fit."""
        raise NotImplementedError

    def _time_ns(self, row: Row) -> int:
        raise NotImplementedError

    def _cells(self, row: Row) -> Sequence[str]:
        """The cells between time and text; one string can contain several."""
        return self._filled(self._views, row)

    def _painted(self, row: Row, cells: Sequence[str]) -> Sequence[str]:  # noqa: ARG002
        return cells

    def _painted_text(self, row: Row, text: str) -> str:  # noqa: ARG002
        return text

    def _text(self, row: Row) -> str:
        """The text after the cells, of any length."""
        raise NotImplementedError

    def _words(self, row: Row) -> Sequence[Word]:
        """The words after the text."""
        raise NotImplementedError


# ------------------------------------------------------------------------------------------------------------
# ``Exchange`` -> one line.
# ------------------------------------------------------------------------------------------------------------


_CACHED_PREFIXES = 4096  # distinct prefixes that are cached,
_CACHED_CHARACTERS = 512  # unless they are longer


@lru_cache(4096)
def _end(endpoint: Endpoint) -> str:
    return str(endpoint)


def _client_id(exchange: Exchange) -> str:
    return printable(exchange.client_id) if exchange.client_id else ABSENT


def _client_name(exchange: Exchange) -> str:
    """The client in one word, for narrow terminals."""
    return printable(exchange.client_id) if exchange.client_id else _end(exchange.connection.client)


@lru_cache(4096)
def _api(api: str | None, api_key: int | None, api_version: int | None) -> str:
    if api_key is None:
        return ABSENT
    return f"{api or api_name(api_key) or f'api {api_key}'} v{api_version}"


def api(exchange: Exchange) -> str:
    """Name and version: ``Fetch v13``."""
    if exchange.api_key is None and exchange.kind != ORPHAN:
        return "SASL token"
    return _api(exchange.api, exchange.api_key, exchange.api_version)


def _cut_before(separator: str, text: str, max_width: int) -> str:
    """Shorten a name, but not the number after its last ``separator``."""
    name, _, number = text.rpartition(separator)
    room = max_width - len(separator) - len(number)
    if columns_of(text) <= max_width or room < max_width // 2:
        return truncate(text, max_width)
    return f"{truncate(name, room)}{separator}{number}"


def latency(exchange: Exchange) -> str:
    """The latency of an exchange, or why it has none."""
    if exchange.kind == ANSWERED and (latency_us := exchange.latency_us) is not None:
        return duration_us(latency_us)
    return no_response(exchange)


def no_response(exchange: Exchange) -> str:
    """Why an exchange has no latency."""
    return _NO_RESPONSE.get(outcome(exchange) or "", _UNANSWERED)


_IPV4 = len("192.168.100.200:41234")
_CLIENT = LineView(
    "CLIENT", lambda exchange: _end(exchange.connection.client), width=_IPV4, cut=truncate_start
)
_BROKER = LineView(
    "BROKER", lambda exchange: _end(exchange.connection.broker), width=_IPV4, cut=truncate_start
)
_CLIENT_ID = LineView("CLIENT ID", _client_id, width=20)
_CLIENT_NAME = LineView("CLIENT", _client_name, width=13)
_API = LineView("API", api, width=len("FindCoordinator v4"), cut=partial(_cut_before, " "))
_OUTCOME = LineView("LATENCY", latency, width=len("no response"))

# The outcome comes last: the cells before it are the same for many exchanges.
_ALL = (_CLIENT, _BROKER, _CLIENT_ID, _API, _OUTCOME)
_SOME = (replace(_CLIENT, width=18), replace(_CLIENT_ID, width=14), replace(_API, width=16), _OUTCOME)
_FEW = (_CLIENT_NAME, replace(_API, width=16), replace(_OUTCOME, width=len("123.4ms")))


def _shown(width: int | None) -> Sequence[LineView]:
    return _FEW if is_narrow(width) else _ALL if width is None or width >= _WIDE else _SOME


def hidden_columns(width: int | None) -> int:
    """The number of columns of exchanges for which lines of this width have no room."""
    return len(_ALL) - len(_shown(width))


_Key = tuple[str, "str | None", "int | None", "int | None", bool]
"""All that the cells before the outcome depend on."""


class ExchangeTable(LineTable["Exchange"]):
    """Writes exchanges.

    Args:
        out, times, width, style, heading: see ``LineTable``.
        by_request: whether they come in order of request, so that a line out of order is marked.
    """

    describe = staticmethod(describe_undecoded)

    _text_heading = "ABOUT"

    def __init__(
        self,
        out: TextIO,
        times: Times,
        *,
        width: int | None = None,
        style: Style = PLAIN,
        heading: bool = False,
        by_request: bool = False,
    ) -> None:
        super().__init__(out, times, width=width, style=style, heading=heading)
        self._min_text = _MIN_ABOUT if is_narrow(width) else 0
        self._prefixes: dict[_Key, str] = {}
        self._by_request = by_request
        self._latest_ns = 0
        self._before_lines = ""  # the first time in the next lines of the core

    @property
    def core_plan(self) -> Callable[[PlanContext], LinePlan] | None:
        """What the native core must know to write the same lines; None: a line depends on more than its
        exchange.
        """
        is_free = self._width is None and not (self._is_colored or self._by_request)
        return self._core_plan if is_free and self._times.format is not None else None

    def _core_plan(self, context: PlanContext) -> LinePlan:
        *of_ends, of_client, of_api, of_latency = self._views
        names, limits, protocols = context.names, context.limits, context.decoding.protocols

        def cells(
            views: Sequence[LineView],
            info: Any = None,
            client_id: str | None = None,
            api_key: int | None = None,
            version: int | None = None,
        ) -> str:
            exchange = Exchange(info, 0, ANSWERED, None, None, api_key, version, None, client_id)
            return self._gap.join(self._filled(views, exchange))

        def api_plan(api_key: int, version: int) -> tuple[Any, bytes, list[str]] | None:
            line = undecoded_line(api_key, version)
            cell = cells([of_api], api_key=api_key, version=version)
            return None if line is None else (*line, [cell])

        def rejected(version: int, request: bytes, response: bytes) -> str:
            exchange = rejected_exchange(version, request, response, limits)
            return self._gap.join((self._text(exchange), *(word for word, _ in self._words(exchange))))

        def unanswered(
            api_key: int, version: int, data: bytes, times_ns: tuple[int, int], fin: tuple[int, bool] | None
        ) -> str:
            unknown: Any = None
            time_ns, completed_ns = times_ns
            frame = Frame(data, len(data), 0, unknown, time_ns, time_ns)
            exchange = Exchange(unknown, 0, UNANSWERED, frame, None, api_key, version, None)
            known = apis.by_key(api_key)
            exchange.api, exchange.completed_ns = known.name if known else None, completed_ns
            exchange.ended = True
            exchange.ended_ns, exchange.closed_by_client = fin or (None, None)
            decode_exchange(exchange, budget=DecodeBudget(limits.decoded_bytes))
            return no_response(exchange)

        times = self._times.format
        assert times is not None
        common = CommonPlan(
            shared=lambda info, _: [cells(of_ends, info)],
            api=api_plan,
            error=error_name,
            topic_name=names.name,
            learn_name=names.learn,
            around=self._times.around,
            budget=limits.decoded_bytes,
        )
        return LinePlan(
            common,
            times,
            self._pass_times,
            self._gap,
            of_latency.width,
            lambda client_id: cells([of_client], client_id=client_id),
            lambda info, *exchange: protocols.follow(info.key, *exchange),
            rejected,
            _NO_RESPONSE[NOT_EXPECTED],
            unanswered,
            followed=f"! {TRAILING_BYTES}",
            ends=None if self._style.has_hosts else _IPV4,
        )

    def _pass_times(self, unwritten_ns: int | None, shown_ns: int | None, seen_ns: int) -> None:
        if unwritten_ns is not None:
            self._before_lines = self._times.text(unwritten_ns)
        self._times.jump(shown_ns, seen_ns)

    def add(self, lines: bytes) -> None:
        """Write lines that the native core has made."""
        self._write(self._before_lines + lines.decode())
        self._before_lines = ""

    def _shown(self, width: int | None) -> Sequence[LineView]:
        return _shown(width)

    def _time_ns(self, exchange: Exchange) -> int:
        return exchange.time_ns

    def _cells(self, exchange: Exchange) -> tuple[str, str]:
        key = (
            exchange.connection.id,
            exchange.client_id,
            exchange.api_key,
            exchange.api_version,
            exchange.kind == ORPHAN,
        )
        prefix = self._prefixes.get(key) or self._add_prefix(exchange, key)
        return prefix, latency(exchange).ljust(self._views[-1].width)

    def _add_prefix(self, exchange: Exchange, key: _Key) -> str:
        """The cells between time and outcome, cached for exchanges that have the same."""
        if len(self._prefixes) >= _CACHED_PREFIXES:
            self._prefixes.clear()
        prefix = self._gap.join(self._filled(self._views[:-1], exchange))
        if len(prefix) <= _CACHED_CHARACTERS:
            self._prefixes[key] = prefix
        return prefix

    def _painted(self, exchange: Exchange, cells: Sequence[str]) -> Sequence[str]:
        return cells if exchange.kind == ANSWERED else (cells[0], self._style.paint(cells[1], YELLOW))

    def _text(self, exchange: Exchange) -> str:
        return printable(about(exchange))

    def _words(self, exchange: Exchange) -> Sequence[Word]:
        words: list[Word] = []
        if names := content.errors(exchange):
            expected = exchange.expected_errors
            words += ((name, FAINT if name in expected else f"{BOLD};{RED}") for name in names)
        if self._by_request:
            if exchange.time_ns < self._latest_ns:
                words.append((_LATE, FAINT))
            self._latest_ns = max(self._latest_ns, exchange.time_ns)
        if exchange.anomalies:
            kinds = list(dict.fromkeys(anomaly.kind for anomaly in exchange.anomalies))
            if is_narrow(self._width):
                kinds = sorted(kinds, key=severity)[:1]
            words += ((f"! {kind}", f"{BOLD};{of_anomaly(kind)}") for kind in kinds)
        return words

    def _fitted(self, text: str, words: Sequence[Word], room: int) -> tuple[str, Sequence[Word]]:
        """Cut to ``room`` columns. On a narrow terminal, an anomaly that is not an error becomes a single "!"
        before the text is cut.
        """
        needed = columns_of(text) + sum(columns_of(word) + len(self._gap) for word, _ in words)
        if is_narrow(self._width) and needed > room:
            words = [("!" if color == _NOTE else word, color) for word, color in words]
        return super()._fitted(text, words, room)


# ------------------------------------------------------------------------------------------------------------
# ``CarriedRecord`` -> one line: time, API, partition and offset, key, value, marks.
#
# Bytes that are not UTF-8 become backslash escapes. Null is NULL, an empty string "", and a string that looks
# like one of these is in quotes. Marks are the record's schemas and trace, the error with
# which the broker rejected it, ``[aborted]``, and ``!`` before each kind of anomaly of its batch.
# ------------------------------------------------------------------------------------------------------------


_MIN_VALUE = 24
_NULL = "NULL"
_TRACE_CHARACTERS = 8
_NAME = CYAN  # of marks that are not warnings
_BYTES_PER_COLUMN = 4  # the most of a character in UTF-8: any more would be cut


class RecordTable(LineTable["CarriedRecord"]):
    """Writes records."""

    _text_heading = "VALUE"

    @cached_property
    def _max_bytes(self) -> int | None:
        return None if self._width is None else self._width * _BYTES_PER_COLUMN

    row_mark = b"\n"

    @cached_property
    def _are_plain(self) -> bool:
        is_free = self._width is None and not (self._is_colored or self._style.has_hosts)
        return is_free and self._times.format is not None and self._times.are_independent

    @property
    def plan_of_core(self) -> Callable[[PlanContext], RecordPlan] | None:
        """What the native core must know to write the same lines; None: a line depends on more than its
        record.
        """
        return self._plan_of_core if self._are_plain else None

    def _plan_of_core(self, context: PlanContext) -> RecordPlan:
        api, place, offset, key = self._views
        gap = self._gap

        def cell(_: Column, exchange: Exchange) -> str:
            return (exchange.api or ABSENT).ljust(api.width)

        def printed(payload: bytes, is_key: bool) -> str:
            text = self._payload(payload)
            return of_key(text) if is_key else text.rstrip()

        def of_key(text: str) -> str:
            return text + " " * (key.width - columns_of(text))

        def payloads(record: CarriedRecord) -> list[str]:
            if not (text := self._text(record)):
                raise ValueError(record)  # what follows takes its place
            return [of_key(self._key(record)), "", text, ""]

        def words(record: CarriedRecord) -> str:
            return "".join(gap + word for word, _ in self._names(record))

        columns = [
            ("", ("record_time", 0)),
            (gap, ("of_api", 0)),
            (gap, ("place", place.width)),
            (gap, ("offset", offset.width)),
            (gap, ("key", key.width)),
            (gap, ("value", 0)),
            ("", ("optional", 0)),
            ("", ("error", 0)),
            ("", ("before_fetch_offset", 0)),
        ]
        plan = usual_records(context, [BY_NAME["api"]], cell, columns, "\n", words, payloads)
        times = self._times.format
        assert times is not None
        return plan._replace(
            common=plan.common._replace(around=self._times.around),
            times=times,
            before_fetch=(f"{gap}[before ", "]"),
            rejected=lambda code: f"{gap}[{rejection_of(code)}]",
            printed=printed,
        )

    def fill(self, lines: bytes, _: int | None, also_in: str | None) -> bytes:
        """Lines of the core that end in what is said of a copy."""
        if also_in is None:
            return lines
        return lines.replace(b"\n", f"{self._gap}[{failed_text(also_in)}]\n".encode())

    def add(self, lines: bytes) -> None:
        """Write lines of the core."""
        self._write(lines.decode())

    def feed_batch(self, records: DecodedBatch) -> None:
        """Write all records of a batch."""
        lines = self._native_lines(records)
        if lines is not None:
            self._write(lines)
            return
        for record in records:
            self.feed(record)

    def _native_lines(self, records: DecodedBatch) -> str | None:
        """Their lines, if the native core can write them."""
        native = native_records(records.batch.records)
        if native is None or not (self._are_plain and records.are_plain and len(records)):
            return None
        first = records.plain(0)._replace(key=None, value=None, headers=())
        time, gap = self._times.text(self._time_ns(first)), self._gap
        *before, offset, key = self._views
        return native.text_lines(
            "".join(cell + gap for cell in (time, *self._filled(before, first))),
            gap,
            (offset.width, key.width),
            records.source.offsets_known,
            "".join(gap + word for word, _ in self._words(first)),
            lambda index: self._line(time, records.plain(index)),
        )

    def _shown(self, width: int | None) -> Sequence[LineView]:
        partition, offset, key = (12, 7, 10) if is_narrow(width) else (20, 10, 16)
        return (
            LineView("API", lambda record: record.source.exchange.api or ABSENT, width=len("Produce")),
            LineView("PARTITION", _partition, width=partition, cut=partial(_cut_before, "-")),
            LineView("OFFSET", _offset, width=offset, cut=lambda text, _: text),
            LineView("KEY", self._key, width=key),
        )

    def _time_ns(self, record: CarriedRecord) -> int:
        return record.source.time_ns

    def _painted(self, record: CarriedRecord, cells: Sequence[str]) -> Sequence[str]:
        return [*cells[:-1], self._style.paint(cells[-1], FAINT)] if record.key is None else cells

    def _painted_text(self, record: CarriedRecord, text: str) -> str:
        is_null = record.value is None and not record.control
        return self._style.paint(text, FAINT) if is_null else text

    def _text(self, record: CarriedRecord) -> str:
        text = f"control {record.control}" if record.control else self._payload(record.value)
        return text.rstrip()

    def _names(self, record: CarriedRecord) -> list[Word]:
        """What its headers and schemas name."""
        marks: list[Word] = []
        if (schema := record.key_schema) is not None:
            marks.append((f"key schema {schema}", _NAME))
        if (schema := record.schema) is not None:
            marks.append((f"schema {schema}", _NAME))
        if (trace := record.trace) is not None:
            marks.append((f"trace {printable(self._trace(trace.id))}", _NAME))
        return marks

    def _words(self, record: CarriedRecord) -> Sequence[Word]:
        marks, batch = self._names(record), record.batch
        if (rejection := rejection_text(record.source)) is not None:
            marks.append((f"[{rejection}]", f"{BOLD};{RED}"))
        if record.is_before_fetch:
            marks.append((f"[before {record.source.fetch_offset}]", YELLOW))
        if (copy := copy_text(record)) is not None:
            marks.append((f"[{copy}]", YELLOW))
        if batch.aborted:
            marks.append(("[aborted]", YELLOW))
        if batch.anomalies:
            kinds = dict.fromkeys(anomaly.kind for anomaly in batch.anomalies)
            marks += ((f"! {kind}", f"{BOLD};{of_anomaly(kind)}") for kind in kinds)
        return marks

    def _fitted(self, text: str, words: Sequence[Word], room: int) -> tuple[str, Sequence[Word]]:
        """Cut to ``room`` columns. The first words are the least important, and dropped if they leave no room
        for some of the value; the last one stays if it is a warning.
        """
        room_for_words = room - min(_MIN_VALUE, columns_of(text))
        while len(words) > 1 or (words and words[0][1] == _NAME):
            if sum(columns_of(word) + len(self._gap) for word, _ in words) <= room_for_words:
                break
            words = words[1:]
        return super()._fitted(text, words, room)

    def _trace(self, trace_id: str) -> str:
        if not is_narrow(self._width) or len(trace_id) <= _TRACE_CHARACTERS:
            return trace_id
        return trace_id[:_TRACE_CHARACTERS] + ELLIPSIS

    def _key(self, record: CarriedRecord) -> str:
        return ABSENT if record.control else self._payload(record.key)

    def _payload(self, payload: Payload) -> str:
        if isinstance(payload, bytes):
            text = printable(payload[: self._max_bytes].decode("utf-8", "backslashreplace"))
            return json_bytes(text).decode() if text.strip('\\"') in ("", _NULL) else text
        if isinstance(payload, Embedded):
            return printable(json_bytes(payload.decoded).decode())
        return f"redacted ({payload.length} bytes)" if isinstance(payload, Redacted) else _NULL


def _partition(record: CarriedRecord) -> str:
    return printable(record.source.place) or ABSENT


def _offset(record: CarriedRecord) -> str:
    return ABSENT if record.offset is None else str(record.offset)


# ------------------------------------------------------------------------------------------------------------
# Exchanges or records -> counts, written as one line at the end. Holds the counts, one for each error, and
# the topics, up to a limit.
# ------------------------------------------------------------------------------------------------------------


_ERRORS = 5
_MAX_TOPICS = 10_000


class Tally(Generic[Row]):
    """Counts, and writes the line on ``close``.

    Args:
        out: owned and flushed by the caller.
        width: columns of the terminal; None if ``out`` is not a terminal.
    """

    def __init__(self, out: TextIO, *, width: int | None = None) -> None:
        self._write = out.write
        self._width = width
        self._rows = self._with_anomalies = 0

    def feed(self, row: Row) -> None:
        """Count one."""
        raise NotImplementedError

    def close(self) -> None:
        """Write the line."""
        self._write("\n".join(wrapped(facts(*self._counts()), self._width)) + "\n")

    def _counts(self) -> Iterable[str | None]:
        raise NotImplementedError


_UNKNOWN = "unknown"
_COUNTED = (
    *(ANSWERED, UNANSWERED, UNACKNOWLEDGED),
    *(INCOMPLETE, INCOMPLETE_REQUEST, ABANDONED, PENDING, _UNKNOWN),
)
_KINDS = {
    INCOMPLETE: "with an incomplete response",
    INCOMPLETE_REQUEST: "with an incomplete request",
    UNACKNOWLEDGED: "with acks=0",
    ORPHAN: "without requests",
    _UNKNOWN: "whose response may not have been captured",
}


class ExchangeTally(Tally["Exchange"]):
    """Counts exchanges."""

    def __init__(self, out: TextIO, *, width: int | None = None) -> None:
        super().__init__(out, width=width)
        self._kinds: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._expected = 0
        self.core_plan = ExchangeTable(StringIO(), Times("u")).core_plan  # lines that nobody needs

    def feed(self, exchange: Exchange) -> None:
        """Count one."""
        self._rows += 1
        self._with_anomalies += bool(exchange.anomalies)
        kind = exchange.kind
        is_plain = kind != UNANSWERED and exchange.announced is None
        self._kinds[kind if is_plain else outcome(exchange) or _UNKNOWN] += 1
        self._errors.update(content.errors(exchange))
        self._errors.subtract(exchange.expected_errors)
        self._expected += len(exchange.expected_errors)

    def add_answered(self, count: int) -> None:
        """Count this many answered exchanges without errors or anomalies."""
        self._rows += count
        self._kinds[ANSWERED] += count

    def _counts(self) -> Iterable[str | None]:
        yield many(self._rows, "exchange")
        if len(self._kinds) == 1 and _UNKNOWN not in self._kinds:
            kind = next(iter(self._kinds))
            yield f"{'all ' if self._rows > 1 else ''}{_KINDS.get(kind, kind)}"
        else:
            kinds = [kind for kind in _COUNTED if self._kinds[kind]]
            yield from (f"{self._kinds[kind]:,} {_KINDS.get(kind, kind)}" for kind in kinds)
            yield f"{many(self._kinds[ORPHAN], 'orphan response')}" if self._kinds[ORPHAN] else None
        yield f"{self._with_anomalies:,} with anomalies" if self._with_anomalies else None
        yield many(self._expected, "expected error") if self._expected else None
        counts = +self._errors  # without those that were always expected
        errors = [f"{count:,} {name}" for name, count in most_frequent(counts, _ERRORS)]
        yield f"errors: {', '.join(errors)}" if errors else None
        more = len(counts) - _ERRORS
        yield f"{more:,} more kinds" if more > 0 else None


class RecordTally(Tally["CarriedRecord"]):
    """Counts records."""

    def __init__(self, out: TextIO, *, width: int | None = None) -> None:
        super().__init__(out, width=width)
        self._counted: Counter[str] = Counter()
        self._bytes = 0
        self._topics: set[str] = set()

    def feed(self, record: CarriedRecord) -> None:
        """Count one."""
        self._rows += 1
        self._with_anomalies += bool(record.batch.anomalies)
        self._counted["produced" if record.source.produced else "fetched"] += 1
        self._counted["control"] += record.control is not None
        self._counted["aborted"] += record.batch.aborted
        self._counted["rejected"] += record.source.error is not None
        self._bytes += len(record.record.key or b"") + len(record.record.value or b"")
        names = record.source.names
        if names and names[0] not in self._topics and len(self._topics) < _MAX_TOPICS:
            self._topics.add(kept(names[0]))

    def _counts(self) -> Iterable[str | None]:
        yield many(self._rows, "record")
        for name in ("produced", "fetched", "control", "aborted", "rejected"):
            yield f"{self._counted[name]:,} {name}" if self._counted[name] else None
        yield f"{self._with_anomalies:,} in batches with anomalies" if self._with_anomalies else None
        yield f"{size(self._bytes)} of keys and values"
        topics = many(len(self._topics), "topic")
        yield f"more than {topics}" if len(self._topics) >= _MAX_TOPICS else topics
