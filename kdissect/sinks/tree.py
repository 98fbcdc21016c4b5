"""``Exchange`` -> all of it as a tree: who, when, how it went; request and response field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.anomalies import CATALOGUE
from kdissect.kafka import schema, secrets
from kdissect.kafka.bodies import request_layout, response_layout, walk_request, walk_response
from kdissect.kafka.headers import request_header_version, response_header_version
from kdissect.kafka.layout import layout as layout_of
from kdissect.kafka.walker import walk
from kdissect.model import ANSWERED, Embedded
from kdissect.sinks.colours import BOLD, CYAN, of_anomaly, paint
from kdissect.sinks.offsets import offsets
from kdissect.sinks.outline import INDENT, View, outline
from kdissect.sinks.phrases import duration, facts, many
from kdissect.sinks.printable import printable, quoted
from kdissect.sinks.table import UNANSWERED_KINDS, api

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from kdissect.kafka.bodies import Layout
    from kdissect.kafka.walker import Walk
    from kdissect.model import Anomaly, Body, Exchange, Frame
    from kdissect.sinks.opened import Opened, Opener
    from kdissect.sinks.times import Times


class Tree:
    """Writes the trees, an empty line between them.

    Attributes:
        is_first: whether the next one has none before it.

    Args:
        out: where to; the caller owns and flushes it.
        times: writes the time.
        colour: whether to colour.
        show_bytes: put the offset and the bytes of each field in front of it.
        whole: show all of long arrays, texts and bytes.
        show_secrets: show credentials.
        opener: opens record data, so that its records are shown; None: they are not.
    """

    def __init__(
        self,
        out: TextIO,
        times: Times,
        *,
        colour: bool = False,
        show_bytes: bool = False,
        whole: bool = False,
        show_secrets: bool = False,
        opener: Opener | None = None,
    ) -> None:
        self._write = out.write
        self._times = times
        self._colour = colour
        self._show_bytes = show_bytes
        self._whole = whole
        self._show_secrets = show_secrets
        self._opener = opener
        self.is_first = True

    def feed(self, exchange: Exchange) -> None:
        """Write one tree."""
        if not self.is_first:
            self._write("\n")
        self.is_first = False
        for line in self._lines(exchange):
            self._write(line + "\n")

    def close(self) -> None:
        """Nothing is left to write: every tree was complete."""

    def _lines(self, exchange: Exchange) -> Iterator[str]:
        title = f"{exchange.connection.id}/{exchange.number}  {api(exchange)}  {_outcome(exchange)}"
        yield self._paint(title, BOLD)
        frame = exchange.first_frame
        place = f"packet {frame.packet:,} of {printable(frame.interface.capture)}"
        yield f"{INDENT}time:   {self._times.text(exchange.time_ns)}, {place}"
        yield f"{INDENT}client: {_client(exchange)}"
        yield f"{INDENT}broker: {exchange.connection.broker}"
        for anomaly in exchange.anomalies:
            yield INDENT + self._paint(_anomaly(anomaly), of_anomaly(anomaly.kind))
        if exchange.request_frame is not None:
            yield INDENT + self._paint(f"request: {_frame(exchange.request_frame)}", CYAN)
            yield from self._request(exchange, exchange.request_frame)
        if exchange.response_frame is not None:
            yield INDENT + self._paint(f"response: {_frame(exchange.response_frame)}", CYAN)
            yield from self._response(exchange, exchange.response_frame)

    def _paint(self, text: str, colour: str) -> str:
        return paint(text, colour) if self._colour else text

    def _request(self, exchange: Exchange, frame: Frame) -> Iterator[str]:
        if exchange.api_key is not None and exchange.api_version is not None:
            version = request_header_version(exchange.api_key, exchange.api_version)
            yield from self._header("RequestHeader", version, exchange, frame)
        walked = walk_request(exchange, show_secrets=self._show_secrets) if self._show_bytes else None
        opened = self._opener and self._opener.of(exchange, produced=True)
        yield from self._body(exchange, exchange.request, request_layout(exchange), walked, frame, opened)

    def _response(self, exchange: Exchange, frame: Frame) -> Iterator[str]:
        version = 0
        if exchange.api_key is not None and exchange.api_version is not None:
            version = response_header_version(exchange.api_key, exchange.api_version)
        if exchange.api_key is not None or exchange.request_frame is None:
            yield from self._header("ResponseHeader", version, exchange, frame)
        walked = walk_response(exchange, show_secrets=self._show_secrets) if self._show_bytes else None
        opened = self._opener and self._opener.of(exchange, produced=False)
        yield from self._body(exchange, exchange.response, response_layout(exchange), walked, frame, opened)

    def _header(self, name: str, version: int, exchange: Exchange, frame: Frame) -> Iterator[str]:
        message = schema.header(name)
        walked = walk(message, version, frame.data)
        view = View(message, version, exchange.topic_names, self._whole)
        if self._show_bytes:
            yield from offsets(view, walked, frame.data)
        else:
            yield from _indented(outline(view, walked.value, message.fields))

    def _body(
        self,
        exchange: Exchange,
        body: Body | None,
        layout: Layout | None,
        walked: Walk | None,
        frame: Frame,
        opened: Opened | None,
    ) -> Iterator[str]:
        if layout is None:
            view = View(None, 0, exchange.topic_names, self._whole)
            yield from _indented(outline(view, body or {}))
            return
        view = View(
            layout.message, layout.version, exchange.topic_names, self._whole, opened, _forwarded(exchange)
        )
        if walked is None:
            yield from _indented(outline(view, body or {}, layout_of(*layout).fields))
            return
        hide_records = not self._show_secrets and secrets.is_credential_api(exchange.api_key)
        yield from offsets(view, walked, frame.data, body, hide_records=hide_records)
        yield from _indented(outline(view, _beside(body or {})))


def _forwarded(exchange: Exchange) -> tuple[int, int] | None:
    """Api key and version of the request that a broker forwards for its client (KIP-590)."""
    carried = exchange.request.get("request_data") if exchange.request else None
    if not isinstance(carried, Embedded) or "header" not in carried.decoded:
        return None
    header = carried.decoded["header"]
    return header["request_api_key"], header["request_api_version"]


def _beside(body: Body) -> Body:
    """Find what no span tells: bytes that no layout describes."""
    return {name: value for name, value in body.items() if name in ("_left_over", "_undecoded")}


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (INDENT * 2 + line for line in lines)


def _outcome(exchange: Exchange) -> str:
    latency_ns = exchange.latency_ns
    if exchange.kind == ANSWERED and latency_ns is not None:
        return f"answered after {duration(latency_ns)}"
    return UNANSWERED_KINDS.get(exchange.kind, exchange.kind)


def _client(exchange: Exchange) -> str:
    software = (exchange.client_software_name, exchange.client_software_version)
    principal = exchange.principal
    return facts(
        str(exchange.connection.client),
        None if exchange.client_id is None else f"client id {quoted(exchange.client_id)}",
        printable(" ".join(part for part in software if part)),
        None if principal is None else f"principal {quoted(principal)}",
        None if exchange.sasl_mechanism is None else f"mechanism {printable(exchange.sasl_mechanism)}",
    )


def _frame(frame: Frame) -> str:
    missing = frame.size - len(frame.data)
    return facts(many(frame.size + 4, "byte"), f"{missing:,} of them not captured" if missing else None)


def _anomaly(anomaly: Anomaly) -> str:
    known = CATALOGUE.get(anomaly.kind)
    detail = facts(printable(anomaly.where), printable(anomaly.detail))
    return f"! {anomaly.kind} ({known.severity if known else 'unknown'}) in {detail}"
