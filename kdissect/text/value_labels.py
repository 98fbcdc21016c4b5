"""A field's value -> text with its meaning: a name beside a number, a date beside a timestamp.

The meaning comes from the roles in the schema and from the tables of codes; only timestamps and API keys are
recognized by field name. Long strings and bytes are cut unless ``full``. Stateless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.kafka import codes
from kdissect.kafka.records import RecordData
from kdissect.kafka.vendors import api_name
from kdissect.model import Embedded, Redacted
from kdissect.phrases import ELLIPSIS, many, printable, quoted
from kdissect.text.style import iso_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kdissect.exchanges.partition_records import CarriedRecord, PartitionRecords
    from kdissect.kafka.batches import Batch
    from kdissect.kafka.internal.topics import Payload
    from kdissect.kafka.schema import Field, Message
    from kdissect.model import Body

MAX_CHARACTERS = 400
MAX_BYTES = 32

_TIMESTAMPS = ("timestamp", "timestamp_ms", "append_time_ms", "start_time_ms")
_API_KEYS = ("api_key", "request_api_key")
_OPERATIONS = "authorized_operations"
_NOT_REQUESTED = -(2**31)
_NO_TIMESTAMP = -1


def value_text(value: Any, *, full: bool = False) -> str:
    """A value as text, by its type alone."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value, None if full else MAX_CHARACTERS)
        case bytes():
            return bytes_text(value, full=full)
        case Redacted(length):
            return f"redacted ({many(length, 'byte')})"
        case Embedded(data, _):
            return bytes_text(data, full=full) if isinstance(data, bytes) else value_text(data)
        case RecordData():
            return records_text(value)
    return str(value)


def bytes_text(data: bytes, *, full: bool = False) -> str:
    """The number of bytes, and the first of them in hex."""
    shown = data if full else data[:MAX_BYTES]
    more = f" {ELLIPSIS}" if len(shown) < len(data) else ""
    return f"{many(len(data), 'byte')}{': ' if data else ''}{shown.hex(' ')}{more}"


def payload_text(payload: Payload, *, full: bool = False) -> str:
    """A record's key or value as text: a string if it is UTF-8."""
    if not isinstance(payload, bytes):
        return value_text(payload, full=full)
    try:
        return value_text(payload.decode(), full=full)
    except UnicodeDecodeError:
        return bytes_text(payload, full=full)


def records_text(records: RecordData) -> str:
    """A summary of record data, from its batch headers."""
    scan = records.scan()
    magic_2 = not scan.batches or scan.batches[0]["magic"] == 2
    words = [many(len(scan.batches), "batch" if magic_2 else "message").replace("batchs", "batches")]
    if scan.records is None:
        words.append("records not counted")
    elif magic_2:
        words.append(many(scan.records, "record"))
    words.append(many(len(records), "byte"))
    if scan.cut_off:
        words.append(f"{many(scan.cut_off, 'byte')} of a truncated entry at the end")
    if scan.fault:
        words.append(scan.fault)
    return ", ".join(words)


def batch_text(batch: Body) -> str:
    """The header of a batch or message, in one line."""
    stamp = batch["max_timestamp"] if "max_timestamp" in batch else batch.get("timestamp", -1)
    words = []
    if batch["magic"] == 2:
        base = batch["base_offset"]
        words.append(
            f"offsets {base} to {base + batch['last_offset_delta']}, {many(batch['records_count'], 'record')}"
        )
        words.append(many(batch["batch_length"] + 12, "byte"))
    else:
        words.append(
            f"offset {batch['offset']}, {many(batch['message_size'] + 12, 'byte')}, magic {batch['magic']}"
        )
    words.append(_compression(batch["compression"]))
    if (moment := iso_ms(stamp)) is not None:
        words.append(f"{batch['timestamp_type']} {moment}")
    words += _of_producer(
        batch.get("producer_id"),
        batch.get("producer_epoch"),
        batch.get("base_sequence"),
        batch.get("partition_leader_epoch"),
        [flag for flag in ("transactional", "control", "delete_horizon") if batch.get(flag)],
    )
    return ", ".join(words)


def _compression(codec: str) -> str:
    return "uncompressed" if codec == "none" else codec


def _of_producer(
    producer_id: int | None,
    producer_epoch: int | None,
    base_sequence: int | None,
    leader_epoch: int | None,
    flags: list[str],
) -> list[str]:
    words = list(flags)
    if producer_id is not None and producer_id >= 0:
        words.insert(0, f"producer {producer_id} epoch {producer_epoch} sequence {base_sequence}")
    if leader_epoch is not None and leader_epoch >= 0:
        words.append(f"leader epoch {leader_epoch}")
    return words


def decoded_batch_text(source: PartitionRecords, batch: Batch) -> str:
    """The header of a decoded batch, with absolute offsets if they are known."""
    timestamp_type = source.timestamp_type(batch)
    words = [
        *([f"offsets {batch.base_offset} to {batch.last_offset}"] if source.offsets_known else []),
        many(batch.number, "record"),
        many(batch.size, "byte"),
        *([] if batch.magic == 2 else [f"magic {batch.magic}"]),
        _compression(batch.compression),
        *([timestamp_type] if timestamp_type else []),
    ]
    flags = {"transactional": batch.transactional, "control": batch.control, "aborted": batch.aborted}
    words += _of_producer(
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.leader_epoch,
        [name for name, is_set in flags.items() if is_set],
    )
    if (horizon := batch.delete_horizon_ms) is not None:
        words.append(f"delete horizon {iso_ms(horizon) or horizon}")
    return ", ".join(words)


_AFTER_APPEND = (
    7,
    20,
)  # REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND: the leader may have stored them


def rejection_text(source: PartitionRecords) -> str | None:
    """The error with which the broker rejected produced records. None if there is none."""
    return rejection_of(source.error_code) if source.error_code else None


def rejection_of(error_code: int) -> str:
    """The same of the error."""
    return f"{'unconfirmed' if error_code in _AFTER_APPEND else 'rejected'}: {codes.error_name(error_code)}"


def copy_text(record: CarriedRecord) -> str | None:
    """Where there is another copy of its batch, whose Produce failed. None if there is none."""
    copy = record.source.copy(record.batch)
    if copy is None:
        return None
    if record.source.produced:
        return f"fetched nevertheless in {copy.exchange}"
    return failed_text(copy.exchange)


def failed_text(exchange: str) -> str:
    """What a fetched batch says of its Produce, if that failed."""
    return f"its Produce {exchange} failed"


def offset_text(record: CarriedRecord) -> str:
    """The offset of a record, as text."""
    if record.offset is not None:
        return f"offset {record.offset}"
    return "offset unknown" if record.source.in_log else "in a snapshot"


def time_text(record: CarriedRecord) -> str | None:
    """The timestamp of a record, as text; None if it has none."""
    time_ms = record.timestamp_ms
    return None if time_ms is None or time_ms == _NO_TIMESTAMP else iso_ms(time_ms) or str(time_ms)


def schemas_and_trace(record: CarriedRecord) -> list[str]:
    """The schemas of key and value and the trace of a record, as far as it names them."""
    trace = record.trace
    return [
        *([f"key schema: {record.key_schema}"] if record.key_schema else []),
        *([f"schema: {record.schema}"] if record.schema else []),
        *([f"trace: {printable(trace.id)} ({trace.format})"] if trace else []),
    ]


def meaning(
    message: Message,
    path: str,
    field: Field | None,
    value: Any,
    topic_names: Mapping[str, str],
    vendor: str | None = None,
) -> str | None:
    """What a number or id means; None if there is nothing to add."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        name = topic_names.get(value) if field is not None and field.type == "uuid" else None
        return None if name is None else quoted(name)
    if not isinstance(value, int):
        return None
    name = field.name if field is not None else path.rpartition(".")[2]
    if field is not None and field.role == "error":
        return codes.error_name(value)
    if (known := codes.enum_name(message.name, path, value)) is not None:
        return known
    if name in _API_KEYS:
        return api_name(value, vendor)
    if name.endswith(_OPERATIONS):
        return _operations(value)
    if name.endswith(_TIMESTAMPS) and (field is None or field.type == "int64"):
        return iso_ms(value)
    return None


def _operations(bits: int) -> str:
    """The names of the operations in a bit field (KIP-430)."""
    if bits == _NOT_REQUESTED:
        return "not requested"
    names = (codes.enum_name("DescribeAclsRequest", "operation", bit) for bit in range(31) if bits >> bit & 1)
    return ", ".join(name for name in names if name) or "none"


def described(
    message: Message | None,
    path: str,
    field: Field | None,
    value: Any,
    topic_names: Mapping[str, str],
    *,
    full: bool = False,
    vendor: str | None = None,
) -> str:
    """A value as text, with its meaning in parentheses. ``vendor``: of the broker."""
    is_id = field is not None and field.type == "uuid" and isinstance(value, str)
    text = printable(value) if is_id else value_text(value, full=full)
    label = None if message is None else meaning(message, path, field, value, topic_names, vendor)
    return text if label is None else f"{text} ({label})"
