"""``Exchange`` or ``CarriedRecord`` -> a tree of lines with everything in it, messages field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kdissect.anomalies import CATALOGUE
from kdissect.kafka import schema, secrets
from kdissect.kafka.bodies import request_layout, response_layout, walk_request, walk_response
from kdissect.kafka.headers import request_header_version, response_header_version
from kdissect.kafka.layout import layout as layout_of
from kdissect.kafka.records import RecordData
from kdissect.kafka.walker import walk
from kdissect.model import ANSWERED, Embedded, Redacted
from kdissect.phrases import ELLIPSIS, duration, duration_us, facts, many, printable, quoted
from kdissect.text.outline import (
    INDENT,
    MAX_ELEMENTS,
    BodyContext,
    array_text,
    batches,
    embedded,
    more_text,
    outline,
    record_details,
)
from kdissect.text.style import BOLD, CYAN, PLAIN, RED, YELLOW, Style, folded, of_anomaly
from kdissect.text.table import api, no_response
from kdissect.text.value_labels import MAX_BYTES, copy_text, decoded_batch_text, offset_text, rejection_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from kdissect.exchanges.partition_records import CarriedRecord
    from kdissect.kafka.bodies import BodyLayout
    from kdissect.kafka.walker import Span, Walk
    from kdissect.model import Anomaly, Body, ConnectionInfo, Exchange, Frame
    from kdissect.tables.record_bodies import DecodedRecords, Opener
    from kdissect.text.style import Times


Row = TypeVar("Row")


class Tree(Generic[Row]):
    """Writes trees, separated by empty lines.

    Args:
        out: owned and flushed by the caller.
        times: writes the time of the exchange.
        style: colors, and names of hosts.
        full: whether to cut nothing: no array, string, bytes or list of headers.
        width: columns of the terminal, at which lines are broken; None if ``out`` is not a terminal.
    """

    def __init__(
        self,
        out: TextIO,
        times: Times,
        *,
        style: Style = PLAIN,
        full: bool = False,
        width: int | None = None,
    ) -> None:
        self._write = out.write
        self._times = times
        self._style = style
        self._full = full
        self._max_width = width
        self._is_first = True

    def feed(self, row: Row) -> None:
        """Write one tree."""
        if not self._is_first:
            self._write("\n")
        self._is_first = False
        for line in self._lines(row):
            for part in (line,) if self._max_width is None else folded(line, self._max_width):
                self._write(part + "\n")

    def divide(self) -> int:
        """See ``sink.Each``: an empty line comes between two trees."""
        self._is_first = False
        return 1

    def close(self) -> None:
        """Do nothing: every tree is complete."""

    def _lines(self, row: Row) -> Iterator[str]:
        raise NotImplementedError

    def _paint(self, text: str, color: str) -> str:
        return self._style.paint(text, color)


class ExchangeTree(Tree["Exchange"]):
    """Writes exchanges.

    Args:
        out, times, style, full, width: see ``Tree``.
        show_bytes: write offset and bytes before each field.
        show_secrets: show credentials.
        opener: decodes record data, to show its records; None: they are not shown.
    """

    def __init__(
        self,
        out: TextIO,
        times: Times,
        *,
        style: Style = PLAIN,
        full: bool = False,
        width: int | None = None,
        show_bytes: bool = False,
        show_secrets: bool = False,
        opener: Opener | None = None,
    ) -> None:
        super().__init__(out, times, style=style, full=full, width=width)
        self._show_bytes = show_bytes
        self._show_secrets = show_secrets
        self._opener = opener

    def _lines(self, exchange: Exchange) -> Iterator[str]:
        title = f"{exchange.id}  {api(exchange)}  {_outcome(exchange)}"
        yield self._paint(title, BOLD)
        frame = exchange.first_frame
        place = f"packet {frame.packet:,} of {printable(frame.interface.capture)}"
        yield f"{INDENT}time:   {self._times.text(exchange.time_ns)}, {place}"
        yield f"{INDENT}client: {self._style.named(_client(exchange))}"
        if (hop := _hop(exchange.connection)) is not None:
            yield f"{INDENT}hop:    {self._style.named(hop)}"
        yield f"{INDENT}broker: {self._style.named(str(exchange.connection.broker))}"
        for anomaly in exchange.anomalies:
            yield INDENT + self._paint(_anomaly(anomaly), of_anomaly(anomaly.kind))
        if exchange.request_frame is not None:
            yield INDENT + self._paint(f"request: {_frame(exchange.request_frame)}", CYAN)
            yield from self._request(exchange, exchange.request_frame)
        if exchange.response_frame is not None:
            yield INDENT + self._paint(f"response: {_frame(exchange.response_frame)}", CYAN)
            yield from self._response(exchange, exchange.response_frame)

    def _request(self, exchange: Exchange, frame: Frame) -> Iterator[str]:
        if exchange.api_key is not None and exchange.api_version is not None:
            version = request_header_version(exchange.api_key, exchange.api_version)
            yield from self._header("RequestHeader", version, exchange, frame)
        walked = walk_request(exchange, show_secrets=self._show_secrets) if self._show_bytes else None
        decoded_records = self._opener and self._opener.of(exchange, produced=True)
        yield from self._body(
            exchange, exchange.request, request_layout(exchange), walked, frame, decoded_records
        )

    def _response(self, exchange: Exchange, frame: Frame) -> Iterator[str]:
        version = 0
        if exchange.api_key is not None and exchange.api_version is not None:
            version = response_header_version(exchange.api_key, exchange.api_version)
        if exchange.api_key is not None or exchange.request_frame is None:
            yield from self._header("ResponseHeader", version, exchange, frame)
        walked = walk_response(exchange, show_secrets=self._show_secrets) if self._show_bytes else None
        decoded_records = self._opener and self._opener.of(exchange, produced=False)
        yield from self._body(
            exchange, exchange.response, response_layout(exchange), walked, frame, decoded_records
        )

    def _header(self, name: str, version: int, exchange: Exchange, frame: Frame) -> Iterator[str]:
        message = schema.header(name)
        walked = walk(message, version, frame.data)
        view = BodyContext(
            message,
            version,
            exchange.topic_ids,
            self._full,
            style=self._style,
            vendor=exchange.connection.vendor,
        )
        if self._show_bytes:
            yield from offsets(view, walked, frame.data)
        else:
            yield from _indented(outline(view, walked.value, message.fields))

    def _body(
        self,
        exchange: Exchange,
        body: Body | None,
        layout: BodyLayout | None,
        walked: Walk | None,
        frame: Frame,
        decoded_records: DecodedRecords | None,
    ) -> Iterator[str]:
        if layout is None:
            view = BodyContext(None, 0, exchange.topic_ids, self._full, style=self._style)
            yield from _indented(outline(view, body or {}))
            return
        view = BodyContext(
            layout.message,
            layout.version,
            exchange.topic_ids,
            self._full,
            decoded_records,
            _forwarded(exchange),
            self._style,
            exchange.connection.vendor,
        )
        if walked is None:
            yield from _indented(outline(view, body or {}, layout_of(*layout).fields))
            return
        hide_records = not self._show_secrets and secrets.is_credential_api(exchange.api_key)
        yield from offsets(view, walked, frame.data, body, hide_records=hide_records)
        yield from _indented(outline(view, _without_layout(body or {})))


def _forwarded(exchange: Exchange) -> tuple[int, int] | None:
    """API key and version of the request that a broker forwards for its client (KIP-590)."""
    request = exchange.request.get("request_data") if exchange.request else None
    if not isinstance(request, Embedded) or "header" not in request.decoded:
        return None
    header = request.decoded["header"]
    return header["request_api_key"], header["request_api_version"]


def _without_layout(body: Body) -> Body:
    """The bytes of a body that no span has, because no layout describes them."""
    return {name: value for name, value in body.items() if name in ("_trailing", "_undecoded")}


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (INDENT * 2 + line for line in lines)


def _outcome(exchange: Exchange) -> str:
    latency_us = exchange.latency_us
    if exchange.kind == ANSWERED and latency_us is not None:
        return f"{'incomplete ' if exchange.is_cut else ''}response after {duration_us(latency_us)}"
    return no_response(exchange)


def _client(exchange: Exchange) -> str:
    software = (exchange.client_software_name, exchange.client_software_version)
    principal = exchange.principal
    return facts(
        str(exchange.connection.client),
        None if exchange.client_id is None else f"client ID {quoted(exchange.client_id)}",
        printable(" ".join(part for part in software if part)),
        None if principal is None else f"principal {quoted(principal)}",
        None if exchange.sasl_mechanism is None else f"mechanism {printable(exchange.sasl_mechanism)}",
    )


def _hop(info: ConnectionInfo) -> str | None:
    """What opened the TCP connection for the client, and what its PROXY header says; None without one."""
    if (proxy := info.proxy) is None:
        return None
    values = {
        "SNI": proxy.server_name,
        "ALPN": proxy.alpn,
        "TLS": proxy.tls_version,
        "common name": proxy.common_name,
        "AWS endpoint": proxy.aws_endpoint_id,
    }
    texts = (None if value is None else f"{name} {quoted(value)}" for name, value in values.items())
    return facts(str(info.hop), f"PROXY header v{proxy.version}", *texts)


def _frame(frame: Frame) -> str:
    missing = frame.size - len(frame.data)
    return facts(many(frame.size + 4, "byte"), f"{missing:,} of them not captured" if missing else None)


def _anomaly(anomaly: Anomaly) -> str:
    known = CATALOGUE.get(anomaly.kind)
    detail = facts(printable(anomaly.where), printable(anomaly.detail))
    return f"! {anomaly.kind} ({known.severity if known else 'unknown'}) in {detail}"


# ------------------------------------------------------------------------------------------------------------
# ``CarriedRecord`` -> a small tree: origin, batch, key, headers and value.
# ------------------------------------------------------------------------------------------------------------


class RecordTree(Tree["CarriedRecord"]):
    """Writes records.

    Args:
        out, times, style, full, width: see ``Tree``.
        dump_row: bytes in a line of the hex dumps of key and value; 0: without these.
    """

    def __init__(
        self,
        out: TextIO,
        times: Times,
        *,
        style: Style = PLAIN,
        full: bool = False,
        width: int | None = None,
        dump_row: int = 0,
    ) -> None:
        super().__init__(out, times, style=style, full=full, width=width)
        self._dump_row = dump_row

    def _lines(self, record: CarriedRecord) -> Iterator[str]:
        source, exchange = record.source, record.source.exchange
        topic = next(iter(source.names), None)
        title = facts(
            "unknown topic" if topic is None else f"topic {printable(topic)}",
            None if source.partition is None else f"partition {source.partition}",
            offset_text(record),
        )
        yield self._paint(title, BOLD)
        way = "sent in" if source.produced else "fetched by"
        client = None if exchange.client_id is None else f"client ID {quoted(exchange.client_id)}"
        where = f"{exchange.api} {exchange.id}"
        yield f"{INDENT}{way}: {facts(where, self._times.text(source.time_ns), client)}"
        if (sent_ns := source.produced_ns(record.batch)) is not None:
            yield f"{INDENT}end-to-end latency: {duration(source.time_ns - sent_ns)}"
        if (copy := copy_text(record)) is not None:
            yield INDENT + self._paint(copy, YELLOW)
        if record.is_before_fetch:
            yield f"{INDENT}before offset {source.fetch_offset}, which was requested"
        if (rejection := rejection_text(source)) is not None:
            yield INDENT + self._paint(rejection, RED)
        if source.topic is not None and source.topic_id is not None:
            yield f"{INDENT}topic ID: {printable(source.topic_id)}"
        yield f"{INDENT}batch: {decoded_batch_text(source, record.batch)}"
        for anomaly in record.batch.anomalies:
            text = f"! {anomaly.kind}: {printable(anomaly.detail)}"
            yield INDENT + self._paint(text, of_anomaly(anomaly.kind))
        view = BodyContext(None, 0, exchange.topic_ids, self._full, style=self._style)
        yield from record_details(view, record, 1, self._dump_row)


# ------------------------------------------------------------------------------------------------------------
# A walked message -> lines with position and bytes of each field before its name and value.
#
# Containers show their own bytes only: count, null marker, tag and size; their contents follow. A redacted
# field shows no bytes. Of record data that may contain credentials only the first batch's header is shown.
# ------------------------------------------------------------------------------------------------------------


ROW = 8  # bytes of a line
BATCH_HEADER = 61
_MARGIN = " " * (8 + 3 * ROW + 1)


def offsets(
    view: BodyContext, walked: Walk, data: bytes, body: Body | None = None, *, hide_records: bool = True
) -> Iterator[str]:
    """Write every span.

    Args:
        view: see ``BodyContext``.
        walked: the positions of the fields in ``data``.
        data: the frame without its size field; offset 0 is its first byte.
        body: the same message with embedded messages decoded, which are shown below their bytes.
        hide_records: whether record data may contain credentials.
    """
    lengths: dict[int, int] = {}  # of the enclosing arrays, by the depth of their elements
    left_out_at: int | None = None
    spans = walked.spans
    payloads = {} if body is None else _payloads(spans, body)
    for index, span in enumerate(spans):
        number = int(span.name[1:-1]) if span.name.startswith("[") else None
        if left_out_at is not None and (span.depth > left_out_at or number is not None):
            continue
        left_out_at = None
        if number is not None and number >= MAX_ELEMENTS and not view.full:
            left_out_at = span.depth
            yield _MARGIN + more_text(span.depth, lengths[span.depth] - number)
            continue
        if isinstance(span.value, list):
            lengths[span.depth + 1] = len(span.value)
        yield from _span(view, span, _own_bytes(spans, index, data), hide_records=hide_records)
        if index in payloads:
            lines = embedded(view, payloads[index].decoded, span.depth + 1)
            yield from (_MARGIN + line for line in lines)
    if walked.error is not None:
        yield f"{_MARGIN}(ends here: {walked.error})"


def _payloads(spans: list[Span], body: Body) -> dict[int, Embedded]:
    """The spans whose bytes are embedded messages, from walking body and spans in parallel."""
    payloads: dict[int, Embedded] = {}
    containers: list[tuple[int, Body | list[Any]]] = [(-1, body)]
    for index, span in enumerate(spans):
        while containers[-1][0] >= span.depth:
            containers.pop()
        inside = containers[-1][1]
        if span.type == "tags":  # tagged fields are beside the others in the body
            containers.append((span.depth, inside))
            continue
        value = _value(inside, span.name)
        if isinstance(value, Embedded):
            payloads[index] = value
        elif isinstance(value, dict | list):
            containers.append((span.depth, value))
        elif span.value is not None and (span.type == "struct" or span.type.startswith("[]")):
            containers.append((span.depth, {}))  # not in the body: malformed or oversized
    return payloads


def _value(container: Body | list[Any], name: str) -> Any:
    """The value of a span in its container; None if the message ended before it was complete."""
    if isinstance(container, dict):
        return container.get(name)
    number = int(name[1:-1])
    return container[number] if number < len(container) else None


def _own_bytes(spans: list[Span], index: int, data: bytes) -> bytes:
    """The bytes of a span before those of the spans inside it."""
    span = spans[index]
    end = span.pos + span.length
    if index + 1 < len(spans) and spans[index + 1].depth > span.depth:
        end = spans[index + 1].pos
    return data[span.pos : end]


def _span(view: BodyContext, span: Span, own: bytes, *, hide_records: bool) -> Iterator[str]:
    max_shown = len(own) if view.full else MAX_BYTES
    rest: Iterator[str] = iter(())
    if span.type == "records" and span.value is not None:
        max_shown = min(max_shown, BATCH_HEADER) if hide_records else max_shown
        records = span.value if isinstance(span.value, RecordData) else None
        rest = batches(view, records, span.pos + span.length, span.depth + 1)
    text = f"{INDENT * span.depth}{_text(view, span)}"
    if isinstance(span.value, Redacted):
        yield f"{span.pos:06x}  {'not shown':<{3 * ROW}} {text}"
        yield from (_MARGIN + line for line in rest)
        return
    shown = own[:max_shown]
    yield f"{span.pos:06x}  {shown[:ROW].hex(' '):<{3 * ROW}} {text}"
    for row in range(ROW, len(shown), ROW):
        yield f"{span.pos + row:06x}  {shown[row : row + ROW].hex(' ')}"
    if len(own) > max_shown:
        yield f"{'':8}{ELLIPSIS} {len(own) - max_shown:,} more bytes"
    yield from (_MARGIN + line for line in rest)


def _text(view: BodyContext, span: Span) -> str:
    match span.type:
        case "tags":
            return f"{span.name}: {span.value}"
        case "tag":
            return f"(unknown tag {span.name}): {view.text(span.path, None, span.value)}"
        case "struct":
            name = span.name if span.name.startswith("[") else f"{span.name}:"
            return f"{name} null" if span.value is None else name
    if span.type.startswith("[]"):
        return f"{span.name}: {array_text(span.value)}"
    return f"{span.name}: {view.text(span.path, span.field, span.value)}"
