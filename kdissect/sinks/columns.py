"""Exchange -> its columns: the contract with every reader of our output. Holds nothing.

Each column is told once, here or in recordcolumns.py: name, type, what it means, how to read it. JSON lines,
CSV, ``--where``, exports and docs/columns.md all come from these files. Names and types never change; more
may join them. An absent value is None, never "" or -1 of our own making; a list can be empty but is never
absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kdissect.analysis import content, paths
from kdissect.analysis.nearest import did_you_mean
from kdissect.analysis.where import Reference
from kdissect.errors import UsageError
from kdissect.kafka import apis, codes
from kdissect.model import KINDS
from kdissect.sinks.types import (
    INT16,
    INT32,
    INT64,
    OBJECT,
    STRING,
    TIMESTAMP,
    Array,
    Struct,
    Type,
)
from kdissect.sinks.values import timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from kdissect.model import Exchange, Frame

    Getter = Callable[[Any], Any]

ANOMALY = Struct((("kind", STRING), ("where", STRING), ("detail", STRING)))


@dataclass(frozen=True, slots=True)
class Column:
    """One flat named value of an exchange, or of a record.

    Attributes:
        type: see types.py, which also says what ``get`` returns for a timestamp.
        get: reads it, None where it is absent.
        sentence: what it means.
        unit: of numbers.
        needs_bodies: whether the bodies must have been decoded.
    """

    name: str
    type: Type
    get: Getter
    sentence: str
    unit: str = ""
    needs_bodies: bool = False


def file_name(name: str) -> str:
    """The name of a file as text. It is bytes; those that are no text came in as surrogates, which no format
    can hold.
    """
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()


def _capture(exchange: Exchange) -> str:
    return file_name(exchange.first_frame.interface.capture)


def _packet(exchange: Exchange) -> int:
    return exchange.first_frame.packet


def _latency_us(exchange: Exchange) -> int | None:
    latency_ns = exchange.latency_ns
    return None if latency_ns is None else latency_ns // 1000


def _frame_bytes(frame: Frame | None) -> int | None:
    return None if frame is None else frame.wire_bytes


def _anomalies(exchange: Exchange) -> list[dict[str, Any]]:
    return [anomaly._asdict() for anomaly in exchange.anomalies]


EXCHANGE: tuple[Column, ...] = (
    Column("capture", STRING, _capture, "File or interface it came from."),
    Column(
        "connection",
        STRING,
        attrgetter("connection.id"),
        "Short id of the connection: a hash of its two ends and its first packet's time, the same within one "
        "run however its input is divided. A run that did not see the first packet gives another id.",
    ),
    Column(
        "number",
        INT64,
        attrgetter("number"),
        "Place of the exchange among those of its connection, from 1, in order of completion: with "
        "`connection` the key that all tables join on.",
    ),
    Column(
        "packet",
        INT64,
        _packet,
        "Number of the packet in `capture` that completed the request (orphan: the response), from 1: the "
        "number that Wireshark shows.",
    ),
    Column(
        "kind",
        STRING,
        attrgetter("kind"),
        "`answered`, `unanswered`, `unacknowledged` (acks=0) or `orphan` (response only).",
    ),
    Column("time", TIMESTAMP, attrgetter("time_ns"), "Last byte of the request (orphan: of the response)."),
    Column("latency_us", INT64, _latency_us, "Last byte of the request to first byte of the response.", "us"),
    Column("client_ip", STRING, attrgetter("connection.client.ip"), "Address of the client."),
    Column("client_port", INT32, attrgetter("connection.client.port"), "TCP port of the client."),
    Column(
        "broker_ip",
        STRING,
        attrgetter("connection.broker.ip"),
        "Address of the broker: the end that answers.",
    ),
    Column("broker_port", INT32, attrgetter("connection.broker.port"), "TCP port of the broker."),
    Column(
        "client_id", STRING, attrgetter("client_id"), "As the client calls itself in the request's header."
    ),
    Column(
        "client_software_name",
        STRING,
        attrgetter("client_software_name"),
        "The client library, where the connection told it by ApiVersions 3 or later.",
    ),
    Column("client_software_version", STRING, attrgetter("client_software_version"), "And its version."),
    Column(
        "principal",
        STRING,
        attrgetter("principal"),
        "Who authenticated on this connection, where the wire tells.",
    ),
    Column(
        "sasl_mechanism", STRING, attrgetter("sasl_mechanism"), "By which mechanism, as the client named it."
    ),
    Column("api", STRING, attrgetter("api"), "Name of the api; null for an api key that is not known."),
    Column(
        "api_key",
        INT16,
        attrgetter("api_key"),
        "Number of the api; null for an orphan and a bare SASL token.",
    ),
    Column("api_version", INT16, attrgetter("api_version"), "Version of the api that the request is in."),
    Column(
        "correlation_id", INT32, attrgetter("correlation_id"), "The client's number for request and response."
    ),
    Column(
        "request_bytes",
        INT64,
        lambda exchange: _frame_bytes(exchange.request_frame),
        "Size of the request's frame, its 4 length bytes included.",
        "bytes",
    ),
    Column(
        "response_bytes",
        INT64,
        lambda exchange: _frame_bytes(exchange.response_frame),
        "Size of the response's frame, its 4 length bytes included.",
        "bytes",
    ),
    Column(
        "topics",
        Array(STRING),
        content.topics,
        "Distinct topic names in wire order, the request's first; the id where no name is known.",
        needs_bodies=True,
    ),
    Column(
        "group_id",
        STRING,
        content.group_id,
        "First group that the request names, or asks the coordinator of.",
        needs_bodies=True,
    ),
    Column(
        "transactional_id",
        STRING,
        content.transactional_id,
        "First transactional id that the request names, or asks the coordinator of.",
        needs_bodies=True,
    ),
    Column(
        "errors",
        Array(STRING),
        content.errors,
        "Names of the distinct error codes in the response, in wire order, other than NONE.",
        needs_bodies=True,
    ),
    Column(
        "throttle_time_ms",
        INT32,
        content.throttle_time_ms,
        "For how long the broker's quota throttles the client.",
        "ms",
        needs_bodies=True,
    ),
    Column(
        "records",
        INT64,
        content.records,
        "Records carried by request and response, as their batch headers say; null where the api carries "
        "none, and for compressed message sets of magic 0 and 1, which do not tell.",
        needs_bodies=True,
    ),
    Column(
        "records_bytes",
        INT64,
        content.records_bytes,
        "Their bytes on the wire, batch headers included.",
        "bytes",
        needs_bodies=True,
    ),
    Column(
        "request",
        OBJECT,
        attrgetter("request"),
        "The decoded body, names as in the protocol guide.",
        needs_bodies=True,
    ),
    Column(
        "response", OBJECT, attrgetter("response"), "The decoded body of the response.", needs_bodies=True
    ),
    Column(
        "anomalies",
        Array(ANOMALY),
        _anomalies,
        "What was wrong or odd: kind, where (message and field path), detail.",
        needs_bodies=True,
    ),
)

BY_NAME = {column.name: column for column in EXCHANGE}


def text_getter(column: Column) -> Getter:
    """How to read a column for a format of text: as ``column.get``, but times as ISO 8601."""
    get = column.get
    if column.type != TIMESTAMP:
        return get
    return lambda row: None if (time_ns := get(row)) is None else timestamp(time_ns)


def resolve(name: str) -> Reference:
    """What a name in ``--where`` stands for: a column, or a path into one (``request.topics.name``).

    Raises:
        UsageError: there is no such column or path; the text names the nearest.
    """
    head, *path = name.split(".")
    column = BY_NAME.get(head)
    if column is None:
        raise UsageError(f'no column "{head}"{_column_hint(head, path)}')
    get = text_getter(column)
    if not path:
        return Reference(get, column.needs_bodies, partial(_objection, column))
    if column.type == OBJECT:
        paths.check(head, path)
    else:
        _check_struct(column, path)
    return Reference(lambda exchange: paths.value_at(get(exchange), path), column.needs_bodies)


def _objection(column: Column, sign: str, text: str | None) -> str | None:
    """Why a column can never compare with a text, or with a number: a type, or a name that does not exist."""
    kind, signs = column.type, _EQUAL
    if isinstance(kind, Array):
        kind, signs = kind.element, (*_EQUAL, "in", "not in")
    if kind in (INT16, INT32, INT64) and text is not None:
        return f"{column.name} is a number; write it without quotes"
    if kind in (STRING, TIMESTAMP) and text is None:
        return f"{column.name} is a text; write it in quotes"
    if text is None or column.name not in _NAMES or sign not in signs:
        return None
    known = _NAMES[column.name]()
    if text in known or text.startswith(_NAMELESS_ERROR):
        return None
    return f'no {column.name.removesuffix("s")} "{text}"{did_you_mean(text, known)}'


_EQUAL: tuple[str, ...] = ("==", "!=")
_NAMELESS_ERROR = "UNKNOWN_ERROR_"  # and its code, which only a newer broker knows
_NAMES: dict[str, Callable[[], Collection[str]]] = {
    "api": lambda: [api.name for api in apis.all_apis()],
    "kind": lambda: KINDS,
    "errors": lambda: [error.name for error in codes.all_errors()],
}
"""Columns whose every value is known beforehand."""


def _column_hint(head: str, path: Sequence[str]) -> str:
    """What was probably meant by a name that no column has."""
    if head == "kafka" and path and path[-1] in BY_NAME:
        return f'; did you mean "{path[-1]}"?'  # tshark puts the protocol in front
    return (
        did_you_mean(head, BY_NAME)
        or f'; a text stands in quotes ("{head}"), docs/columns.md has the columns'
    )


def _check_struct(column: Column, path: Sequence[str]) -> None:
    inside = column.type.element if isinstance(column.type, Array) else column.type
    names = [name for name, _ in inside.fields] if isinstance(inside, Struct) else []
    if len(path) > 1 or path[0] not in names:
        parts = f"its parts are {', '.join(names)}" if names else "it has no parts"
        raise UsageError(f'no "{".".join(path)}" in column {column.name}; {parts}')
