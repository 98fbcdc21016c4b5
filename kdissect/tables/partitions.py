"""Exchange -> rows of ``partitions``, one for each topic-partition in it. Stateless.

The numbers are those of the messages, as on the wire: -1 was written by a client or broker. If both messages
have a field, the response's is shown. Exchanges that only describe a cluster have no rows.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.exchanges.content import group_id, replica_id, transactional_id
from kdissect.exchanges.touched import Touched, touched
from kdissect.kafka.codes import error_name
from kdissect.tables.columns import BOOLEAN, INT16, INT32, INT64, STRING, TIMESTAMP, Array, Column
from kdissect.tables.form import Table, int64, of_exchange, time_columns, valid_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.kafka.records import RecordData
    from kdissect.model import Body, Exchange


_NO_TIMESTAMP = -1
_MS_NS = 1_000_000


class TouchedPartition(NamedTuple):
    """A partition in an exchange.

    Attributes:
        group: the group that contains it in the messages, otherwise the exchange's.
        data: its record data, the response's if both messages have some; None if neither has.
        batches: headers of its batches; empty without record data.
    """

    exchange: Exchange
    touched: Touched
    group: str | None
    transaction: str | None
    data: RecordData | None
    batches: list[Body]


def rows(exchange: Exchange) -> Iterator[TouchedPartition]:
    """The rows of an exchange, in wire order."""
    touched_partitions = touched(exchange)
    if not touched_partitions:
        return
    group, transaction = group_id(exchange), transactional_id(exchange)
    for each in touched_partitions:
        data = each.fetched or each.produced
        batches = [] if data is None else data.batches()
        yield TouchedPartition(exchange, each, each.group or group, transaction, data, batches)


def _topic(row: TouchedPartition) -> str | None:
    topic, topic_id = row.touched.topic, row.touched.topic_id
    return None if topic == topic_id else topic


def _error(row: TouchedPartition) -> str | None:
    code = row.touched.error
    return None if not code else error_name(code)


def _error_expected(row: TouchedPartition) -> bool | None:
    error = _error(row)
    return None if error is None else error in row.exchange.expected_errors


def _compression(row: TouchedPartition) -> list[str]:
    return list(dict.fromkeys(batch["compression"] for batch in row.batches))


def _base_offset(row: TouchedPartition) -> int | None:
    """From the first batch if fetched, from the response if produced."""
    if row.touched.fetched is not None:
        first = next(iter(row.batches), {})
        return first.get("base_offset", first.get("offset"))
    return row.touched.value("base_offset")  # type: ignore[no-any-return]


def _last_offset(row: TouchedPartition) -> int | None:
    """Of the last record fetched, even if compaction has removed it."""
    if row.touched.fetched is None or not row.batches:
        return None
    last = row.batches[-1]
    if "last_offset_delta" in last:
        return int64(last["base_offset"] + last["last_offset_delta"])
    return last.get("offset")


def _lag(row: TouchedPartition) -> int | None:
    """The high watermark minus the offset from which a Fetch reads."""
    end, fetch_offset = row.touched.response.get("high_watermark"), row.touched.request.get("fetch_offset")
    return (
        None
        if end is None or fetch_offset is None or end < 0 or fetch_offset < 0
        else max(0, end - fetch_offset)
    )


def _newest_ns(row: TouchedPartition) -> int | None:
    stamps: list[Any] = [
        batch.get("max_timestamp", batch.get("timestamp", _NO_TIMESTAMP)) for batch in row.batches
    ]
    newest: int = max(stamps, default=_NO_TIMESTAMP)
    return None if newest == _NO_TIMESTAMP else newest * _MS_NS


def message_field(row: TouchedPartition, names: Sequence[str]) -> Any:
    """The first of these fields that the messages have."""
    return next((value for name in names if (value := row.touched.value(name)) is not None), None)


def _of_batch(row: TouchedPartition, name: str) -> Any:
    return next((batch[name] for batch in row.batches if name in batch), None)


def _field(name: str, kind: Any, description: str, *fields: str) -> Column:
    """A number in the messages; ``fields``: its names there, if not the column's."""
    names = fields or (name,)
    return Column(name, kind, partial(message_field, names=names), description)


def _batch_field(name: str, kind: Any, description: str, field: str | None = None) -> Column:
    return Column(name, kind, partial(_of_batch, name=field or name), description)


PARTITIONS = Table(
    "partitions",
    "A topic partition in an exchange, with its values from request and response. The latencies of an "
    "exchange are in all of its rows; `select distinct connection, number, topic` counts it once for each "
    "topic.",
    (
        *of_exchange("connection", "number"),
        *time_columns(attrgetter("exchange.time_ns"), "See `exchanges`."),
        *of_exchange("kind", "api", "api_version", "client_id", "client_ip", "client_port"),
        *of_exchange("broker_ip", "broker_port", "cluster_id", "principal"),
        *of_exchange("latency_us", "service_us", "total_us"),
        Column(
            "group_id",
            STRING,
            attrgetter("group"),
            "The group under which the message lists the partition, otherwise the group of the request.",
        ),
        Column(
            "transactional_id",
            STRING,
            attrgetter("transaction"),
            "First transactional ID in the request.",
        ),
        Column("topic", STRING, _topic, "Topic name; null if only its ID is known."),
        Column("topic_id", STRING, attrgetter("touched.topic_id"), "Topic ID, if the messages have it."),
        Column("partition", INT32, attrgetter("touched.partition"), "Partition number."),
        Column(
            "error",
            STRING,
            _error,
            "Error name of the partition; null for NONE, or if the response has no error code.",
        ),
        Column(
            "error_expected",
            BOOLEAN,
            _error_expected,
            "Whether it is one of the exchange's `expected_errors`; null if `error` is null.",
        ),
        Column(
            "error_code",
            INT16,
            attrgetter("touched.error"),
            "Error code, 0 for NONE; null if no response has one for the partition.",
        ),
        Column(
            "bytes",
            INT64,
            lambda row: None if row.data is None else len(row.data),
            "Bytes of record data on the wire; null if the messages have none.",
            "bytes",
        ),
        Column(
            "records",
            INT64,
            lambda row: None if row.data is None else row.data.count(),
            "Records in the record data, from the batch headers; null for compressed message sets of magic 0 "
            "and 1, whose headers have no record count.",
        ),
        Column(
            "batches",
            INT32,
            lambda row: None if row.data is None else len(row.batches),
            "Batches in the record data; for magic 0 and 1, the top-level entries of the message set.",
        ),
        Column(
            "control_batches",
            INT32,
            lambda row: None if row.data is None else sum(bool(each.get("control")) for each in row.batches),
            "How many of the batches are control batches: brokers write them, for example to end a "
            "transaction.",
        ),
        Column(
            "markers",
            INT64,
            lambda row: None if row.data is None else row.data.tally().markers,
            "How many of the records are in control batches.",
        ),
        Column("compression", Array(STRING), _compression, "Compression codecs, each once."),
        _batch_field("magic", INT16, "Format of the first batch: 0, 1 or 2."),
        _batch_field("producer_id", INT64, "Producer ID of the first batch; -1: none."),
        _batch_field("producer_epoch", INT16, "Producer epoch of the first batch; -1: none."),
        _batch_field("base_sequence", INT32, "Base sequence of the first batch; -1: none."),
        _batch_field("transactional", BOOLEAN, "Whether the first batch is part of a transaction."),
        Column(
            "base_offset",
            INT64,
            _base_offset,
            "Offset of the first record: where the broker stored what was produced, or where the "
            "fetched data begins.",
        ),
        Column("last_offset", INT64, _last_offset, "Offset of the last record fetched."),
        Column(
            "max_timestamp",
            TIMESTAMP,
            valid_time(_newest_ns),
            "Timestamp of its newest record in milliseconds, from the batch headers.",
        ),
        _field("fetch_offset", INT64, "Offset from which a Fetch reads."),
        _field("high_watermark", INT64, "End of what consumers can read.", "high_watermark"),
        _field("last_stable_offset", INT64, "End of what read_committed consumers can read."),
        _field("log_start_offset", INT64, "First offset of the partition."),
        Column(
            "fetch_lag",
            INT64,
            _lag,
            "`high_watermark` minus `fetch_offset` of the same Fetch, at least 0: the lag when it was sent.",
        ),
        _field("committed_offset", INT64, "Offset that a group commits or fetches."),
        _field("offset", INT64, "Offset returned by ListOffsets, or requested by DeleteRecords."),
        Column(
            "requested_timestamp_ms",
            INT64,
            lambda row: row.touched.request.get("timestamp"),
            "The time for which ListOffsets looks up an offset; -1: the end of the partition, -2: "
            "its beginning.",
            "ms since 1970",
        ),
        Column(
            "replica_id",
            INT32,
            lambda row: replica_id(row.exchange),
            "Broker ID of a replica that fetches; null for consumers.",
        ),
        _field(
            "leader_epoch",
            INT32,
            "Leader epoch in the messages; for a commit, that of the committed record.",
            "leader_epoch",
            "current_leader_epoch",
            "committed_leader_epoch",
        ),
    ),
)
