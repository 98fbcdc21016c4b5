"""Exchange, record -> their columns: the contract with every reader of our output. Holds nothing.

Each column is told once, here: name, type, what it means, how to read it. JSON lines, CSV, ``--where``,
exports and docs/columns.md all come from this file. Names and types never change; more may join them. An
absent value is None, never "" or -1 of our own making; a list can be empty but is never absent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    BOOLEAN,
    DATE,
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
from kdissect.sinks.values import date, spelled, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from kdissect.analysis.carried import CarriedRecord
    from kdissect.model import Exchange, Frame

    Getter = Callable[[Any], Any]

ANOMALY = Struct((("kind", STRING), ("where", STRING), ("detail", STRING)))
HEADER = Struct((("key", STRING), ("value", STRING), ("value_encoding", STRING)))

_SIZE_FIELD_BYTES = 4
_NO_TIMESTAMP = -1


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


def _capture(exchange: Exchange) -> str:
    name = exchange.first_frame.interface.capture
    # The name of a file is bytes; those that are no text came in as surrogates, which no format can hold.
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()


def _packet(exchange: Exchange) -> int:
    return exchange.first_frame.packet


def _latency_us(exchange: Exchange) -> int | None:
    latency_ns = exchange.latency_ns
    return None if latency_ns is None else latency_ns // 1000


def _frame_bytes(frame: Frame | None) -> int | None:
    return None if frame is None else frame.size + _SIZE_FIELD_BYTES


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

EXPORT_ONLY: tuple[Column, ...] = (
    Column(
        "date", DATE, lambda exchange: date(exchange.time_ns), "Day of `time` in UTC: the partition column."
    ),
    Column(
        "time_ns",
        INT64,
        attrgetter("time_ns"),
        "`time`, for captures that have nanoseconds.",
        "ns since 1970",
    ),
)
"""What exports have beside the columns of ``EXCHANGE``."""

_BY_NAME = {column.name: column for column in EXCHANGE}


def _of_exchange(name: str) -> Column:
    """The same column of the exchange that carried a record."""
    column = _BY_NAME[name]
    get = column.get
    return replace(column, get=lambda record: get(record.carried.exchange))


def _timestamp_ns(record: CarriedRecord) -> int | None:
    time_ms = record.record.timestamp_ms
    return None if time_ms is None or time_ms == _NO_TIMESTAMP else time_ms * 1_000_000


def _headers(record: CarriedRecord) -> list[dict[str, str | None]]:
    return [
        dict(zip(("key", "value", "value_encoding"), (key, *spelled(value)), strict=True))
        for key, value in record.headers
    ]


def _base_offset(record: CarriedRecord) -> int | None:
    return None if record.offset is None else record.batch.base_offset


def _aborted(record: CarriedRecord) -> bool | None:
    return None if record.carried.aborted is None else record.batch.aborted


_ENCODINGS = (
    "`utf-8`; `base64` for bytes that are no UTF-8; `json` for what was decoded in Kafka's own topics and in "
    "control records; `withheld` for a credential, whose text is null; null for null. In Parquet and Spark "
    "keys and values are binary."
)

RECORD: tuple[Column, ...] = (
    _of_exchange("capture"),
    _of_exchange("connection"),
    replace(
        _of_exchange("number"),
        sentence="Number of the exchange that carried the record: with `connection` the key that all tables "
        "join on.",
    ),
    replace(_of_exchange("time"), sentence="Last byte of the request that carried or fetched the record."),
    _of_exchange("api"),
    _of_exchange("correlation_id"),
    _of_exchange("client_id"),
    Column(
        "topic", STRING, attrgetter("carried.topic"), "Name of the topic; null where only its id is known."
    ),
    Column("topic_id", STRING, attrgetter("carried.topic_id"), "Its id, where the message has it."),
    Column("partition", INT32, attrgetter("carried.partition"), "Number of the partition."),
    Column(
        "offset",
        INT64,
        attrgetter("offset"),
        "Place in the partition; of a Produce counted from the response's base offset, null while that is "
        "unknown; null in a snapshot.",
    ),
    Column(
        "timestamp",
        TIMESTAMP,
        _timestamp_ns,
        "The record's own time, in milliseconds; null where it has none.",
    ),
    Column(
        "timestamp_type",
        STRING,
        attrgetter("batch.timestamp_type"),
        "Who set it: `CreateTime`, the producer; `LogAppendTime`, the broker; null for magic 0.",
    ),
    Column("key", STRING, lambda record: spelled(record.key)[0], "The key, see `key_encoding`."),
    Column("key_encoding", STRING, lambda record: spelled(record.key)[1], _ENCODINGS),
    Column("value", STRING, lambda record: spelled(record.value)[0], "The value, see `value_encoding`."),
    Column("value_encoding", STRING, lambda record: spelled(record.value)[1], "As `key_encoding`."),
    Column("headers", Array(HEADER), _headers, "In wire order; a key can occur twice, a value can be null."),
    Column("magic", INT16, attrgetter("batch.magic"), "Format of its batch: 0, 1 or 2."),
    Column(
        "compression",
        STRING,
        attrgetter("batch.compression"),
        "Of its batch: `none`, `gzip`, `snappy`, `lz4`, `zstd`.",
    ),
    Column("base_offset", INT64, _base_offset, "Of its batch; null where `offset` is."),
    Column(
        "producer_id",
        INT64,
        attrgetter("batch.producer_id"),
        "Of its batch; -1: none; null for magic 0 and 1.",
    ),
    Column("producer_epoch", INT16, attrgetter("batch.producer_epoch"), "Likewise."),
    Column("base_sequence", INT32, attrgetter("batch.base_sequence"), "Likewise."),
    Column("leader_epoch", INT32, attrgetter("batch.leader_epoch"), "Likewise; producers write -1 or 0."),
    Column(
        "transactional",
        BOOLEAN,
        attrgetter("batch.transactional"),
        "Whether a transaction's end decides about it.",
    ),
    Column("control", BOOLEAN, attrgetter("batch.control"), "Whether it is a mark for programs, not data."),
    Column(
        "control_type",
        STRING,
        attrgetter("control"),
        "Which mark: `COMMIT`, `ABORT`, `LEADER_CHANGE` ..., `unknown`; null for data.",
    ),
    Column(
        "aborted",
        BOOLEAN,
        _aborted,
        "Whether it lies in the range of an aborted transaction; null where the response does not tell.",
    ),
)


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
    column = _BY_NAME.get(head)
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
    if head == "kafka" and path and path[-1] in _BY_NAME:
        return f'; did you mean "{path[-1]}"?'  # tshark puts the protocol in front
    return (
        did_you_mean(head, _BY_NAME)
        or f'; a text stands in quotes ("{head}"), docs/columns.md has the columns'
    )


def _check_struct(column: Column, path: Sequence[str]) -> None:
    inside = column.type.element if isinstance(column.type, Array) else column.type
    names = [name for name, _ in inside.fields] if isinstance(inside, Struct) else []
    if len(path) > 1 or path[0] not in names:
        parts = f"its parts are {', '.join(names)}" if names else "it has no parts"
        raise UsageError(f'no "{".".join(path)}" in column {column.name}; {parts}')


def markdown() -> str:
    """Write the tables of docs/columns.md."""
    return "\n".join([_HEAD, _table(EXCHANGE), _EXPORTS, _table(EXPORT_ONLY), _RECORDS, _table(RECORD)])


def _table(columns: Sequence[Column]) -> str:
    rows = [f"| `{c.name}` | {c.type} | {c.unit} | {c.sentence} |" for c in columns]
    return "\n".join(["| column | type | unit | meaning |", "|---|---|---|---|", *rows, ""])


_HEAD = """\
# Columns of an exchange

One row, or one JSON object a line, for each request, and for each response whose request was never seen.
Names and types never change; more may join them.

An absent value is null (CSV: nothing between two commas), never "" or -1 of our own making; an array can be
empty but is never null. Times are UTC with microseconds, ISO 8601 ending in Z. Wire values are shown as they
are: in `request` and `response` error codes and enumerations are numbers, in the other columns they are
names.
"""

_EXPORTS = """\
Inside `request` and `response`, names are those of the protocol guide, in wire order. Bytes are
`{"base64": "..."}`, with `"decoded": {...}` beside it where the payload is known; a uuid is text as Kafka
prints it; record data is an array of batch headers; a credential is `{"withheld": 16}`: its length in bytes.
Unknown tags stand under `_tags` by number, bytes behind a complete body under `_left_over`, bytes that could
not be decoded under `_undecoded`. A float64 that is not a number is null. Where columns are fixed (CSV,
Parquet, Spark), `object` is a string of JSON.

Exports have two more columns:
"""

_RECORDS = """\
# Columns of a record

One JSON object a line, by `kdissect records --json`, for each record that was produced or fetched: one that
was produced and fetched twice comes three times, `--unique` shows the first. Records of Kafka's own topics
are decoded, credentials in them withheld. What was wrong with a batch is counted on stderr.
"""
