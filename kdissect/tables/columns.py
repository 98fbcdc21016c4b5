"""Exchange -> its columns: the contract with every reader of our output. Holds nothing.

Each column is told once, here or in columns.py: name, type, what it means, how to read it. JSON lines,
CSV, ``--where``, exports and docs/columns.md all come from these files. Names and types never change; more
may join them. An absent value is None, never "" or -1 of our own making; a list can be empty but is never
absent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kdissect.errors import UsageError
from kdissect.exchanges import content
from kdissect.kafka import apis, codes
from kdissect.model import KINDS
from kdissect.query import where
from kdissect.query.nearest import did_you_mean
from kdissect.query.where import Reference
from kdissect.tables.values import json_bytes, spelled, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from kdissect.exchanges.partition_records import CarriedRecord
    from kdissect.kafka.traces import SchemaId
    from kdissect.model import Exchange, Frame


# ------------------------------------------------------------------------------------------------------------
# The types that columns have, in a language of our own, so that no format's types rule the others.
#
# A type is written as Spark writes its own: ``string``, ``array<string>``,
# ``array<struct<kind:string,where:string>>``.
# ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value, and how formats write it.

    Attributes:
        name: ours.
        sql: Spark's in DDL.
        spark: Spark's in the JSON of a schema.
        arrow: pyarrow's: the function that makes it, and what that takes.
        to_text: makes what JSON lines and CSV hold of what a column's ``get`` returns; None: they hold that.
        to_arrow: the same for pyarrow.
    """

    name: str
    sql: str
    spark: str
    arrow: tuple[str, ...]
    to_text: Callable[[Any], Any] | None = None
    to_arrow: Callable[[Any], Any] | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one type in a row; it can be empty, its elements are never absent."""

    element: Type

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class Struct:
    """Named values."""

    fields: tuple[tuple[str, Type], ...]

    def __str__(self) -> str:
        return f"struct<{','.join(f'{name}:{kind}' for name, kind in self.fields)}>"


Type = Scalar | Array | Struct


def _microseconds(time_ns: int) -> int:
    return time_ns // 1000


STRING = Scalar("string", "STRING", "string", ("string",))
BOOLEAN = Scalar("boolean", "BOOLEAN", "boolean", ("bool_",))
INT16 = Scalar("int16", "SMALLINT", "short", ("int16",))
INT32 = Scalar("int32", "INT", "integer", ("int32",))
INT64 = Scalar("int64", "BIGINT", "long", ("int64",))
BINARY = Scalar("binary", "BINARY", "binary", ("binary",))
"""Bytes, in formats that have them."""
DATE = Scalar("date", "DATE", "date", ("date32",), to_arrow=date.fromisoformat)
"""A day in UTC, as text: ``2026-11-21``."""
TIMESTAMP = Scalar(
    "timestamp",
    "TIMESTAMP",
    "timestamp",
    ("timestamp", "us", "UTC"),
    to_text=timestamp,
    to_arrow=_microseconds,
)
"""Nanoseconds since 1970 as an int; written with microseconds, in UTC: ``2026-11-21T09:05:00.123456Z``."""
OBJECT = Scalar("object", "STRING", "string", ("string",), to_arrow=json_bytes)
"""A decoded body: a JSON object, or a string of JSON where columns are fixed (Parquet, Spark, CSV)."""


# ------------------------------------------------------------------------------------------------------------


if TYPE_CHECKING:
    Getter = Callable[[Any], Any]

ANOMALY = Struct((("kind", STRING), ("where", STRING), ("detail", STRING)))


@dataclass(frozen=True, slots=True)
class Column:
    """One flat named value of an exchange, or of a record.

    Attributes:
        type: see columns.py, which also says what ``get`` returns for a timestamp.
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
    """How to read a column for JSON lines and CSV."""
    return converted(column, column.type.to_text if isinstance(column.type, Scalar) else None)


def arrow_getter(column: Column) -> Getter:
    """How to read a column for pyarrow."""
    return converted(column, column.type.to_arrow if isinstance(column.type, Scalar) else None)


def converted(column: Column, convert: Callable[[Any], Any] | None) -> Getter:
    """How to read a column, and make something of what is not absent."""
    get = column.get
    if convert is None:
        return get
    return lambda row: None if (value := get(row)) is None else convert(value)


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
        where.check(head, path)
    else:
        _check_struct(column, path)
    return Reference(lambda exchange: where.value_at(get(exchange), path), column.needs_bodies)


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


# ------------------------------------------------------------------------------------------------------------
# Record -> its columns: those of the exchange that carried it, its own, and those of its batch. Holds
# nothing.
#
# Names and types never change; more may join them. An absent value is None; a list can be empty but is
# never absent.
# ------------------------------------------------------------------------------------------------------------


HEADER = Struct((("key", STRING), ("value", STRING), ("value_encoding", STRING)))

NO_TIMESTAMP = -1
"""What a producer writes that sets none."""


def _of_exchange(name: str) -> Column:
    """The same column of the exchange that carried a record."""
    column = BY_NAME[name]
    get = column.get
    return replace(column, get=lambda record: get(record.carried.exchange))


def _timestamp_ns(record: CarriedRecord) -> int | None:
    time_ms = record.timestamp_ms
    return None if time_ms is None or time_ms == NO_TIMESTAMP else time_ms * 1_000_000


def _headers(record: CarriedRecord) -> list[dict[str, str | None]]:
    return [
        dict(zip(("key", "value", "value_encoding"), (key, *spelled(value)), strict=True))
        for key, value in record.headers
    ]


def _base_offset(record: CarriedRecord) -> int | None:
    return None if record.offset is None else record.batch.base_offset


def _id(schema: SchemaId | None) -> int | None:
    return None if schema is None else schema.id


def _guid(schema: SchemaId | None) -> str | None:
    return None if schema is None else schema.guid


def _record_anomalies(record: CarriedRecord) -> list[dict[str, str]]:
    found = record.batch.anomalies
    return [anomaly._asdict() for anomaly in found] if found else []


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
        attrgetter("timestamp_type"),
        "Who set it: `CreateTime`, the producer; `LogAppendTime`, the broker (of a Produce as its response "
        "tells); null for magic 0.",
    ),
    Column("key", STRING, lambda record: spelled(record.key)[0], "The key, see `key_encoding`."),
    Column("key_encoding", STRING, lambda record: spelled(record.key)[1], _ENCODINGS),
    Column("value", STRING, lambda record: spelled(record.value)[0], "The value, see `value_encoding`."),
    Column("value_encoding", STRING, lambda record: spelled(record.value)[1], "As `key_encoding`."),
    Column(
        "key_schema_id",
        INT32,
        lambda record: _id(record.key_schema),
        "Id of the key's schema in a registry; null where nothing says that there is one.",
    ),
    Column(
        "key_schema_guid",
        STRING,
        lambda record: _guid(record.key_schema),
        "Its GUID, where a header `__key_schema_id` tells that instead.",
    ),
    Column(
        "schema_id",
        INT32,
        lambda record: _id(record.schema),
        "Id of the value's schema: from a header `__value_schema_id`, else what a value of Confluent's "
        "serializers begins with. A value of 8 bytes is taken for a number; other values of one's own that "
        "begin with a zero byte can be mistaken.",
    ),
    Column(
        "schema_guid",
        STRING,
        lambda record: _guid(record.schema),
        "Its GUID, where a header `__value_schema_id` tells that instead.",
    ),
    Column("headers", Array(HEADER), _headers, "In wire order; a key can occur twice, a value can be null."),
    Column(
        "trace_id",
        STRING,
        lambda record: None if (trace := record.trace) is None else trace.id,
        "Id of the trace that headers name: W3C `traceparent`, B3, or SkyWalking's `sw8`, in this order.",
    ),
    Column(
        "span_id",
        STRING,
        lambda record: None if (trace := record.trace) is None else trace.span_id,
        "The span that wrote the record; of `sw8` segment and number of the span: `segment/3`.",
    ),
    Column(
        "trace_format",
        STRING,
        lambda record: None if (trace := record.trace) is None else trace.format,
        "`w3c`, `b3` or `sw8`.",
    ),
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
    Column(
        "anomalies",
        Array(ANOMALY),
        _record_anomalies,
        "What was wrong with its batch: kind, where (message), detail.",
    ),
)
