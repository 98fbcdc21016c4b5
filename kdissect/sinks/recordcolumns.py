"""Record -> its columns: those of the exchange that carried it, its own, and those of its batch. Holds
nothing.

Names and types never change; more may join them. An absent value is None; a list can be empty but is never
absent.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from kdissect.sinks.columns import ANOMALY, BY_NAME, Column
from kdissect.sinks.types import BOOLEAN, INT16, INT32, INT64, STRING, TIMESTAMP, Array, Struct
from kdissect.sinks.values import spelled

if TYPE_CHECKING:
    from kdissect.analysis.carried import CarriedRecord
    from kdissect.kafka.schema_ids import SchemaId

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


def _anomalies(record: CarriedRecord) -> list[dict[str, str]]:
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
        _anomalies,
        "What was wrong with its batch: kind, where (message), detail.",
    ),
)
