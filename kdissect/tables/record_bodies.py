"""The columns ``request`` and ``response`` -> the same with the records inside record data. Stateless.

Each batch is its header followed by ``records``, and by ``anomalies`` if there are any. Records have the
names and encodings of columns.py. Data that is not a batch has no header.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from orjson import Fragment

from kdissect.exchanges.partition_records import REQUEST, RESPONSE, decode_batches, partition_records
from kdissect.kafka.primitives import DecodeBudget
from kdissect.kafka.records import RecordData
from kdissect.limits import DEFAULT
from kdissect.model import Anomaly
from kdissect.tables.columns import EXCHANGE, RECORD, Column, text_getter
from kdissect.tables.values import json_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kdissect.exchanges.partition_records import DecodedBatch, PartitionRecords
    from kdissect.kafka.batches import Batch
    from kdissect.limits import Limits
    from kdissect.model import Body, Exchange


_LOG_OVERHEAD = 12
_ORJSON_BYTES = 8 * 1024  # orjson allocates at least this much for a text, so a shorter one is copied
_HEADER_COST, _ROW_COST = 2400, 500
"""Bytes of memory that a batch header takes, and a row in addition to its text."""

_SHOWN = (
    *("offset", "timestamp", "timestamp_type"),
    *("key", "key_encoding", "value", "value_encoding", "headers", "control_type", "aborted"),
)
_GETTERS = [(column.name, text_getter(column)) for column in RECORD if column.name in _SHOWN]


def with_records(opener: Opener) -> tuple[Column, ...]:
    """The columns of an exchange, with records in the bodies."""

    def request(exchange: Exchange) -> Body | None:
        return _body(exchange, exchange.request, opener, produced=True)

    def response(exchange: Exchange) -> Body | None:
        return _body(exchange, exchange.response, opener, produced=False)

    getters = {"request": request, "response": response}
    return tuple(
        replace(column, get=getters[column.name]) if column.name in getters else column for column in EXCHANGE
    )


def _body(exchange: Exchange, body: Body | None, opener: Opener, *, produced: bool) -> Body | None:
    decoded_records = opener.of(exchange, produced=produced)
    if body is None or not decoded_records.partitions:
        return body
    return {name: _value(value, decoded_records) for name, value in body.items()}


def _value(value: Any, decoded_records: DecodedRecords) -> Any:
    if isinstance(value, RecordData):
        return _batches(value, decoded_records)
    if isinstance(value, dict):
        return {name: _value(inner, decoded_records) for name, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [_value(inner, decoded_records) for inner in value]
    return value


def _batches(data: RecordData, decoded_records: DecodedRecords) -> RecordData | list[Body]:
    source = decoded_records.partitions.get(data.end)
    if source is None:
        return data
    budget = decoded_records.budget
    headers = _with_ends(data.headers())
    header = next(headers, None)
    entries: list[Body] = []
    rows: list[Fragment] = []
    for records in decoded_records.open(source):
        batch = records.batch
        if not batch.first:
            rows = []
            budget.left -= _HEADER_COST
        is_set = batch.magic < 2 and batch.compression == "none"  # each record has its own header
        for record in records:
            row = json_bytes({name: get(record) for name, get in _GETTERS})
            if len(row) < _ORJSON_BYTES:
                row = bytes(memoryview(row))
            budget.left -= 2 * len(row) + (
                _HEADER_COST if is_set else _ROW_COST
            )  # the row, and its copy in the line
            if budget.left < 0:
                break
            rows.append(Fragment(row))
        if budget.left >= 0 and batch.first + len(records) < batch.number:
            continue
        inside: list[Body] = []
        max_headers = max(1, len(rows)) if budget.left < 0 else len(data)
        while header is not None and header[0] <= batch.pos + batch.size and len(inside) < max_headers:
            inside.append(header[1])
            header = next(headers, None)
        extra = []
        if budget.left < 0:
            extra.append(_oversized(source, f"{len(rows)} of {batch.number} records are shown"))
        entries += _entries(inside, rows, batch, extra)
        if budget.left < 0:
            break
    remaining = chain(() if header is None else (header[1],), (each for _, each in headers))
    if budget.left >= 0:
        entries += remaining
    elif left_out := sum(1 for _ in remaining):
        shown = f"{left_out} batches or messages after them are not"
        entries.append({"records": [], "anomalies": [_oversized(source, shown)._asdict()]})
    return entries


def _oversized(partition: PartitionRecords, shown: str) -> Anomaly:
    where = REQUEST if partition.produced else RESPONSE
    return Anomaly("oversized_records", where, f"more would exceed decoded_bytes; {shown}")


def _with_ends(headers: Iterable[Body]) -> Iterator[tuple[int, Body]]:
    end = 0
    for header in headers:
        end += _LOG_OVERHEAD + header["batch_length" if header["magic"] == 2 else "message_size"]
        yield end, header


def _entries(headers: list[Body], rows: list[Fragment], batch: Batch, extra: list[Anomaly]) -> list[Body]:
    """One entry for each header: consecutive messages of magic 0 and 1 are decoded together. The first has
    the anomalies of all; those of one message are in its own entry. ``extra``: more of the former.
    """
    if len(headers) > 1 and len(headers) == len(rows):
        own = batch.bad_messages.of_each if batch.bad_messages else {}
        anomalies = batch.around(-1).anomalies + extra
        entries = []
        for index, (header, row) in enumerate(zip(headers, rows, strict=True)):
            entries.append(_entry(header, [row], [*anomalies, own[index]] if index in own else anomalies))
            anomalies = []
        return entries
    return [_entry(headers[0] if headers else {}, rows, batch.anomalies + extra), *headers[1:]]


def _entry(header: Body, rows: list[Fragment], anomalies: list[Anomaly]) -> Body:
    entry: Body = {**header, "records": rows}
    if anomalies:
        entry["anomalies"] = [anomaly._asdict() for anomaly in anomalies]
    return entry


# ------------------------------------------------------------------------------------------------------------
# Record data in a body -> its decoded batches, for sinks that show complete bodies. Holds which partition
# each ``records`` field of a message belongs to.
# ------------------------------------------------------------------------------------------------------------


class DecodedRecords(NamedTuple):
    """The record data of one message.

    Attributes:
        partitions: by where the record data ends in the frame, which is the same in compiled code and walker.
        opener: how to decode it.
        budget: most memory of the records where all are needed together.
    """

    partitions: Mapping[int, PartitionRecords]
    opener: Opener
    budget: DecodeBudget

    def open(self, partition: PartitionRecords) -> Iterator[DecodedBatch]:
        """Decode one of them, batch by batch."""
        return decode_batches(partition, self.opener.limits, show_secrets=self.opener.show_secrets)


class Opener(NamedTuple):
    """How to decode record data."""

    show_secrets: bool = False
    limits: Limits = DEFAULT

    def of(self, exchange: Exchange, *, produced: bool) -> DecodedRecords:
        """The record data of the request if ``produced``, otherwise of the response."""
        partitions = {
            each.records.end: each for each in partition_records(exchange) if each.produced == produced
        }
        return DecodedRecords(
            partitions, self, DecodeBudget(self.limits.decoded_bytes - exchange.decoded_bytes)
        )
