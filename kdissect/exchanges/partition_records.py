"""An exchange -> its record data, and each record with its context. Holds one batch.

Produce requests carry records, and so do responses to Fetch, ShareFetch and FetchSnapshot. The schema says
which fields of a message contain records, and of which partition (below).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from functools import cache, lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.exchanges.content import PARTITION, RECORDS, TOPIC, record_time_ns
from kdissect.kafka.batches import Batch, check_crcs, read_records
from kdissect.kafka.bodies import request_layout, response_layout
from kdissect.kafka.codes import error_name
from kdissect.kafka.compression import Budget
from kdissect.kafka.internal.topics import (
    CLUSTER_METADATA,
    CLUSTER_METADATA_ID,
    is_internal,
    open_control_record,
    open_record,
)
from kdissect.kafka.layout import layout as layout_of
from kdissect.kafka.layout import present
from kdissect.kafka.recordbatch import native_records
from kdissect.kafka.records import TIMESTAMP_TYPES, RecordData
from kdissect.kafka.traces import KEY_HEADER, VALUE_HEADER, schema_id, trace_of
from kdissect.limits import DEFAULT
from kdissect.model import Anomaly, Embedded, Redacted
from kdissect.names import kept
from kdissect.phrases import TopicId, topic_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kdissect.exchanges.learned import BatchCopy
    from kdissect.kafka.bodies import BodyLayout
    from kdissect.kafka.internal.topics import Control, Payload
    from kdissect.kafka.recordbatch import Headers, Record
    from kdissect.kafka.records import BatchOrigin
    from kdissect.kafka.schema import Field
    from kdissect.kafka.traces import SchemaId, Trace
    from kdissect.limits import Limits
    from kdissect.model import Body, ConnectionKey, Exchange


REQUEST, RESPONSE = "request", "response"
FETCH, FETCH_SNAPSHOT = 1, 59

MAX_ALIKE = 256
"""Number of records read together, column by column. Their values are held until the next ones are read."""

_BASE_OFFSET = "base_offset"
LOG_APPEND_TIME = TIMESTAMP_TYPES[1]
_OWN_KEYS = ("_trailing", "_tags")
_new = tuple.__new__  # takes half the time of calling the class


class Slice(NamedTuple):
    """A slice of a snapshot (KIP-630).

    Attributes:
        snapshot: its name: the end offset and the leader epoch.
        position: of the slice's first byte in the snapshot.
        size: of the complete snapshot, in bytes.
    """

    snapshot: tuple[int, int]
    position: int
    size: int


class PartitionRecords(NamedTuple):
    """Record data of one partition.

    Attributes:
        exchange: that contains it.
        produced: whether a client sent it. Otherwise it was fetched.
        topic: name. None if it has not been learned.
        topic_id: None if the message has none.
        partition: None if the message ends before it.
        records: not decoded yet.
        base_offset: of the first record, from the Produce response. None if unknown.
        aborted: ``aborted_transactions`` of a Fetch response. None if it has none.
        log_append_time_ms: when the broker appended the records, from the Produce response, if the topic has
            such timestamps. None if it has the producer's.
        error_code: in the response to a produced batch; 0 is NONE. None without a response, and
            for fetched records.
        piece: of a FetchSnapshot. All but the first can begin anywhere, even inside a batch.
        budget: the limit on the decompressed size of all record data of the message.
        fetch_offset: that a Fetch requests. None if its request does not have it.
    """

    exchange: Exchange
    produced: bool
    topic: str | None
    topic_id: str | None
    partition: int | None
    records: RecordData
    base_offset: int | None = None
    aborted: Sequence[Mapping[str, int]] | None = None
    log_append_time_ms: int | None = None
    error_code: int | None = None
    piece: Slice | None = None
    budget: Budget | None = None
    fetch_offset: int | None = None

    @property
    def time_ns(self) -> int:
        """Time of the records: the last byte of the request, or of the response, that carried them."""
        return record_time_ns(self.exchange)

    def produced_ns(self, batch: Batch) -> int | None:
        """When a fetched batch was produced. None if unknown (``Options.end_to_end``)."""
        known = self.exchange.produced_ns
        if known is None or batch.magic != 2 or self.produced:
            return None
        topic = kept(self.topic_id or self.topic)
        sent_ns = known.get((topic, self.partition, batch.base_offset, batch.base_timestamp_ms))  # type: ignore[arg-type]
        # If a retry got the offset, the response to the request that stored the batch is missing.
        return None if sent_ns is None or sent_ns > self.time_ns else sent_ns

    def copy(self, batch: Batch | BatchOrigin) -> BatchCopy | None:
        """Of a fetched batch the Produce that failed, of one whose Produce failed the Fetch. None if unknown
        (``Options.end_to_end``), and if there is none.
        """
        if not self.exchange.copies:
            return None
        numbers = batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.base_timestamp_ms
        key: Any = (kept(self.topic_id or self.topic), self.partition, *numbers, not self.produced)
        return self.exchange.copies.get(key)

    def as_fetched(self) -> PartitionRecords:
        """With the base offset of a batch whose Produce failed, if it was fetched."""
        first = next(self.records.origins(), None)
        copy = None if first is None else self.copy(first)
        return self if copy is None else self._replace(base_offset=copy.base_offset)

    @property
    def error(self) -> str | None:
        """The name of ``error_code``. None for NONE, and if it is unknown."""
        return error_name(self.error_code) if self.error_code else None

    @property
    def names(self) -> list[str]:
        """The known names of the topic: name, ID."""
        return [name for name in (self.topic, self.topic_id) if name]

    @property
    def place(self) -> str:
        """Topic and partition as in Kafka's own tools: ``orders-1``; ``<id ...>-1`` if only the topic's ID is
        known. Empty if neither is known.
        """
        topic = self.topic or (topic_label(TopicId(self.topic_id)) if self.topic_id else "")
        return "-".join(filter(None, [topic, "" if self.partition is None else str(self.partition)]))

    def timestamp_type(self, batch: Batch) -> str | None:
        """One of ``records.TIMESTAMP_TYPES``. None for magic 0, which has no timestamps."""
        return batch.timestamp_type if self.log_append_time_ms is None else LOG_APPEND_TIME

    @property
    def in_log(self) -> bool:
        """Whether it is part of a log. In a snapshot, records are numbered from 0 (KIP-630)."""
        return self.piece is None

    @property
    def offsets_known(self) -> bool:
        """Whether the offsets of its records are known."""
        return self.in_log and (not self.produced or self.base_offset is not None)


class CarriedRecord(NamedTuple):
    """One record with its context.

    Attributes:
        source: the exchange and the partition.
        batch: the record's batch.
        record: as in the batch. For Kafka's own topics ``key`` and ``value`` are decoded further.
        offset: absolute. None in a snapshot, and in a Produce without a response or with an error.
        key, value, headers: decoded and redacted for output.
        control: ``COMMIT``, ``ABORT`` and so on for a control record, otherwise None.
        ordinal: index among the records of this exchange and partition, from 0.
    """

    source: PartitionRecords
    batch: Batch
    record: Record
    offset: int | None
    key: Payload
    value: Payload
    headers: Headers
    control: str | None = None
    ordinal: int = 0

    @property
    def timestamp_ms(self) -> int | None:
        """The timestamp in the log, if known. -1 if the producer set none, None for magic 0."""
        append_ms = self.source.log_append_time_ms
        return self.record.timestamp_ms if append_ms is None else append_ms

    @property
    def timestamp_type(self) -> str | None:
        """What the timestamp means: one of ``records.TIMESTAMP_TYPES``. None for magic 0."""
        return self.source.timestamp_type(self.batch)

    @property
    def is_before_fetch(self) -> bool | None:
        """Whether the Fetch requests a later offset: brokers send whole batches, and clients skip the records
        before it. None if that is unknown.
        """
        fetch_offset = self.source.fetch_offset
        return None if fetch_offset is None or self.offset is None else self.offset < fetch_offset

    @property
    def schema(self) -> SchemaId | None:
        """The registered schema of its value, if any."""
        return self._schema(self.value, VALUE_HEADER)

    @property
    def key_schema(self) -> SchemaId | None:
        """The registered schema of its key, if any."""
        return self._schema(self.key, KEY_HEADER)

    @property
    def trace(self) -> Trace | None:
        """The trace named by its headers."""
        return trace_of(self.headers)

    def _schema(self, payload: Payload, header: str) -> SchemaId | None:
        header_value = None
        for name, value in self.headers:
            if name == header:
                header_value = value
        if header_value is None and (type(payload) is not bytes or not payload.startswith(b"\0")):
            return None  # the usual case, so checked first
        # Decoded payloads, credentials and control records are Kafka's own.
        if self.control is not None or not isinstance(payload, bytes | None):
            return None
        return schema_id(payload, header_value)


def payloads_alone(key: bytes | None, value: bytes | None, headers: Headers) -> CarriedRecord:
    """A record of which no more is known."""
    return CarriedRecord(None, None, None, None, key, value, headers)  # type: ignore[arg-type]


class RecordPlace(NamedTuple):
    """Where a record is, as the native core knows it.

    Attributes:
        topic: its name, or its ID if only that is known.
        topic_id: None if the message has none.
        partition: its number.
        is_control: None: a client wrote it. Otherwise it is in a topic of Kafka's own, or if true, in a
            control batch.
    """

    topic: str
    topic_id: str | None
    partition: int
    is_control: bool | None


def record_alone(
    place: RecordPlace,
    payloads: tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]],
    *,
    show_secrets: bool = False,
) -> CarriedRecord:
    """A record of which no more is known than where it is. ``payloads``: key, value, headers.

    Raises:
        ValueError: its batch has an anomaly.
    """
    key, value, headers = payloads
    record = payloads_alone(key, value, tuple(headers))._replace(source=_source_at(*place[:3]))
    if place.is_control is None:
        return record
    control = open_control_record(key, value) if place.is_control else None
    if control is not None and control.is_malformed:
        raise ValueError(control)
    return record._replace(**_opened(record, control, place.topic, show_secrets=show_secrets))


@lru_cache(256)
def _source_at(topic: str, topic_id: str | None, partition: int) -> PartitionRecords:
    name = None if topic == topic_id else topic
    return PartitionRecords(None, False, name, topic_id, partition, None)  # type: ignore[arg-type]


class DecodedBatch:
    """The decoded records of a batch. Iterate over it for each with its context.

    Attributes:
        source, batch: shared by all its records.
        are_plain: whether all records are as a client wrote them: no control records, none of Kafka's own
            topics.
    """

    __slots__ = ("_first", "_offsets_known", "_show_secrets", "_topic", "are_plain", "batch", "source")

    def __init__(self, source: PartitionRecords, batch: Batch, first: int, *, show_secrets: bool) -> None:
        self.source = source
        self.batch = batch
        # An unknown topic may be the one with credentials. FetchSnapshot carries only that one.
        self._topic = next(iter(source.names), CLUSTER_METADATA) if source.in_log else CLUSTER_METADATA
        self.are_plain = not batch.controls and not is_internal(self._topic)
        self._first = first
        self._offsets_known = source.offsets_known
        self._show_secrets = show_secrets

    def __len__(self) -> int:
        return len(self.batch.records)

    def __iter__(self) -> Iterator[CarriedRecord]:
        batch = self.batch
        records: Iterable[CarriedRecord] = map(self.plain, range(len(self)))
        if not self.are_plain:
            records = _decoded(self.source, batch, self._first, self._topic, show_secrets=self._show_secrets)
        if batch.bad_messages is None:
            yield from records
        else:
            for index, record in enumerate(records, batch.first):
                yield record._replace(batch=batch.around(index))

    def pieces(self) -> Iterator[DecodedBatch]:
        """Batches of at most ``MAX_ALIKE`` records with the same content. Only for plain records."""
        for start in range(0, len(self), MAX_ALIKE):
            yield self._part(start, start + MAX_ALIKE)

    def by_fetch_offset(self) -> Iterator[DecodedBatch]:
        """The records before the requested offset, and the others: two batches, if there are both, and more
        if offsets descend. Only plain records are divided.
        """
        fetch_offset, start = self.source.fetch_offset or 0, 0
        if not self.are_plain:
            yield self
            return
        for _, records in groupby(self.batch.records, lambda record: record[0] < fetch_offset):
            end = start + sum(1 for _ in records)
            yield self._part(start, end)
            start = end

    def _part(self, start: int, end: int) -> DecodedBatch:
        records = self.batch.records[start:end]
        elsewhere = self.batch.number - len(records)
        batch = self.batch._replace(records=records, first=self.batch.first + start, elsewhere=elsewhere)
        return DecodedBatch(self.source, batch, self._first + start, show_secrets=self._show_secrets)

    def plain(self, index: int) -> CarriedRecord:
        """The record at an index, counted from 0. Only for plain records."""
        record = self.batch.records[index]
        offset = record[0] if self._offsets_known else None
        values = self.source, self.batch, record, offset, *record[2:], None, self._first + index
        return _new(CarriedRecord, values)


def partition_records(exchange: Exchange) -> Iterator[PartitionRecords]:
    """The record data of an exchange in wire order, nulls left out."""
    request, response = request_layout(exchange), response_layout(exchange)
    if request is not None and exchange.request is not None and (plan := plan_for(request, RECORDS)):
        appended, budget = _answers(exchange), Budget(exchange.number)
        for field in field_values(plan, exchange.request):
            base_offset, append_ms, error_code = appended.get(
                (field.topic or field.topic_id, field.partition), _NOT_ANSWERED
            )
            records = _partition_records(
                exchange,
                field,
                produced=True,
                base_offset=base_offset,
                log_append_time_ms=append_ms,
                error_code=error_code,
                budget=budget,
            )
            yield records if base_offset is not None or not exchange.copies else records.as_fetched()
    if response is not None and exchange.response is not None and (plan := plan_for(response, RECORDS)):
        budget, requested = Budget(exchange.number), _requested(exchange)
        for field in field_values(plan, exchange.response):
            aborted = field.struct.get("aborted_transactions")
            piece = _piece(field.struct) if exchange.api_key == FETCH_SNAPSHOT else None
            yield _partition_records(
                exchange,
                field,
                produced=False,
                aborted=aborted,
                piece=piece,
                budget=budget,
                fetch_offset=requested.get((field.topic or field.topic_id, field.partition)),
            )


_TEXT_BYTES = 14
"""Memory for each byte of a record while it is shown, if all are escaped."""


def decode_batches(
    source: PartitionRecords, limits: Limits = DEFAULT, *, show_secrets: bool = False
) -> Iterator[DecodedBatch]:
    """Decode record data batch by batch. Problems are in the anomalies of the batches.

    A slice of a snapshot, except its first, cannot be decoded alone. ``Snapshots`` joins them.
    """
    where = REQUEST if source.produced else RESPONSE
    if source.piece is not None and source.piece.position:
        yield DecodedBatch(
            source, _unaligned(source.records, source.piece, where), 0, show_secrets=show_secrets
        )
        return
    index, fetch_offset = 0, source.fetch_offset
    room = max(0, limits.decoded_bytes - source.exchange.decoded_bytes) // _TEXT_BYTES
    if room < limits.record_bytes:
        limits = replace(limits, record_bytes=room)
    batches = read_records(
        source.records,
        limits,
        base_offset=source.base_offset,
        aborted=source.aborted,
        where=where,
        budget=source.budget,
    )
    for batch in batches:
        decoded = DecodedBatch(source, batch, index, show_secrets=show_secrets)
        if fetch_offset is None or not batch.records or _lowest_offset(batch.records) >= fetch_offset:
            yield decoded
        else:
            yield from decoded.by_fetch_offset()
        index += len(batch.records)


def _lowest_offset(records: Sequence[Record]) -> int:
    native = native_records(records)
    return min(record[0] for record in records) if native is None else native.lowest_offset


def crc_anomalies(exchange: Exchange) -> list[Anomaly]:
    """Checksum errors of an exchange's record batches. Nothing is decoded."""
    anomalies: list[Anomaly] = []
    for each in partition_records(exchange):
        anomalies += check_crcs(each.records, REQUEST if each.produced else RESPONSE)
    return anomalies


def _partition_records(exchange: Exchange, field: FieldValue, **known: Any) -> PartitionRecords:
    topic_id = field.topic_id
    name = field.topic or (None if topic_id is None else exchange.topic_ids.get(topic_id))
    return PartitionRecords(
        exchange=exchange,
        topic=name,
        topic_id=topic_id,
        partition=field.partition,
        records=field.value,
        **known,
    )


_Answer = tuple[int | None, int | None, int | None]
_NOT_ANSWERED: _Answer = (None, None, None)


def _answers(exchange: Exchange) -> dict[tuple[str | None, int | None], _Answer]:
    """For each partition of a Produce response the offset of the first record and the LogAppendTime, if the
    broker appended the records, and the error code.
    """
    layout = response_layout(exchange)
    plan = None if layout is None else plan_for(layout, _BASE_OFFSET)
    if plan is None or exchange.response is None:
        return {}
    answers: dict[tuple[str | None, int | None], _Answer] = {}
    for field in field_values(plan, exchange.response):
        code = field.struct.get("error_code")
        append_ms = field.struct.get("log_append_time_ms", -1)
        known = (None, None) if code else (_unless_negative(field.value), _unless_negative(append_ms))
        answers[field.topic or field.topic_id, field.partition] = *known, code
    return answers


def _requested(exchange: Exchange) -> dict[tuple[str | None, int | None], int]:
    """For each partition that a Fetch names the requested offset."""
    if exchange.api_key != FETCH or exchange.request is None:
        return {}
    return {
        (topic.get("topic") or topic.get("topic_id"), each["partition"]): each["fetch_offset"]
        for topic in exchange.request.get("topics") or ()
        for each in topic.get("partitions") or ()
        if "fetch_offset" in each  # the message may end before it
    }


def _unless_negative(number: int) -> int | None:
    return number if number >= 0 else None


def _piece(struct: Body) -> Slice:
    snapshot = struct.get("snapshot_id") or {}
    name = snapshot.get("end_offset", -1), snapshot.get("epoch", -1)
    return Slice(name, struct.get("position", 0), struct.get("size", 0))


# --- records ------------------------------------------------------------------------------------------------


def _unaligned(records: RecordData, piece: Slice, where: str) -> Batch:
    """A placeholder for batches of unknown position."""
    detail = (
        f"{len(records)} bytes from byte {piece.position} of a snapshot, whose preceding bytes are missing"
    )
    return Batch(
        pos=0,
        size=len(records),
        magic=2,
        attributes=0,
        base_offset=0,
        last_offset=-1,
        leader_epoch=None,
        producer_id=None,
        producer_epoch=None,
        base_sequence=None,
        base_timestamp_ms=None,
        records=[],
        anomalies=[Anomaly("unaligned_records", where, detail)],
    )


def _decoded(
    source: PartitionRecords, batch: Batch, first: int, topic: str, *, show_secrets: bool
) -> Iterator[CarriedRecord]:
    """Records of Kafka's own topics, and control records in any topic."""
    offsets_known, controls = source.offsets_known, batch.controls
    for ordinal, record in enumerate(batch.records):
        control = controls[ordinal] if ordinal < len(controls) else None
        yield CarriedRecord(
            source=source,
            batch=batch,
            record=record,
            offset=record.offset if offsets_known else None,
            ordinal=first + ordinal,
            **_opened(record, control, topic, show_secrets=show_secrets),
        )


def _opened(
    record: Record | CarriedRecord, control: Control | None, topic: str, *, show_secrets: bool
) -> dict[str, Any]:
    """What a record that no client wrote has in the place of its payloads. ``control``: what it is in a
    control batch.
    """
    redacts = not show_secrets and topic in (CLUSTER_METADATA, CLUSTER_METADATA_ID)
    key: Payload
    value: Payload
    if control is not None:
        key, value = _control_payloads(control, redacts=redacts)
    else:
        key, value = open_record(topic, record.key, record.value, show_secrets=show_secrets)  # type: ignore[arg-type]
        if redacts and isinstance(key, bytes):  # brokers write no keys there
            key = Redacted(len(key))
    return {
        "key": key,
        "value": value,
        # Brokers write no headers there, and damage can put anything in their place.
        "headers": () if redacts else record.headers,
        "control": None if control is None else control.type or "unknown",
    }


def _control_payloads(control: Control, *, redacts: bool) -> tuple[Payload, Payload]:
    """Key and value of a control record. Undecoded bytes can be anything, so they are redacted."""
    if not redacts:
        return control.key, control.value
    return _known(control.key), _known(control.value)


def _known(payload: bytes | Embedded | None) -> Payload:
    match payload:
        case None:
            return None
        case Embedded(bytes(data), decoded):
            is_forged = any(key in decoded for key in _OWN_KEYS)
            return Redacted(len(data)) if is_forged else Embedded(Redacted(len(data)), decoded)
        case bytes():
            return Redacted(len(payload))
        case _:
            return payload


# ------------------------------------------------------------------------------------------------------------
# A layout -> the fields of a type or name in its bodies, and the topic and partition around them.
#
# The schema's roles identify topic and partition. The paths are computed once per layout and cached.
# ------------------------------------------------------------------------------------------------------------


_NO_TOPIC_ID = "A" * 22


class FieldWalk(NamedTuple):
    """Which fields of a struct name topic and partition, have the requested value, or contain structs that
    do.
    """

    topic: str | None
    topic_id: str | None
    partition: str | None
    values: tuple[str, ...]
    inner: tuple[tuple[str, bool, FieldWalk], ...]


class FieldValue(NamedTuple):
    """A value, the struct it is a field of, and the topic and partition around it."""

    topic: str | None
    topic_id: str | None
    partition: int | None
    struct: Body
    value: Any


def field_values(
    plan: FieldWalk,
    struct: Body,
    topic: str | None = None,
    topic_id: str | None = None,
    partition: int | None = None,
) -> Iterator[FieldValue]:
    """Find the values in wire order. Topic and partition are those around the struct."""
    if plan.topic is not None:
        topic = struct.get(plan.topic) or topic
    if plan.topic_id is not None and (struct_id := struct.get(plan.topic_id)) != _NO_TOPIC_ID:
        topic_id = struct_id or topic_id
    if plan.partition is not None:
        partition = struct.get(plan.partition, partition)
    for name in plan.values:
        if (value := struct.get(name)) is not None:
            yield FieldValue(topic, topic_id, partition, struct, value)
    for name, array, inner in plan.inner:
        if (value := struct.get(name)) is not None:
            for deeper in value if array else (value,):
                yield from field_values(inner, deeper, topic, topic_id, partition)


@cache
def plan_for(layout: BodyLayout, target: str) -> FieldWalk | None:
    """The plan to find the fields of a type or name. None if the layout has none."""
    return _plan(layout_of(*layout).fields, layout.version, target)


def _plan(fields: Sequence[Field], version: int, target: str) -> FieldWalk | None:
    """The plan of a struct. None if no field in it has the type or name."""
    here = present(fields, version)
    values = tuple(field.name for field in here if target in (field.type, field.name))
    deeper = [(field.name, field.array, _plan(field.fields, version, target)) for field in here]
    inner = tuple((name, array, plan) for name, array, plan in deeper if plan is not None)
    if not values and not inner:
        return None
    single = {(field.role, field.type): field.name for field in here if not field.array}
    return FieldWalk(
        topic=single.get((TOPIC, "string")),
        topic_id=single.get((TOPIC, "uuid")),
        partition=single.get((PARTITION, "int32")),
        values=values,
        inner=inner,
    )


# ------------------------------------------------------------------------------------------------------------
# Slices of snapshots -> the same slices, each with complete batches only. Holds the incomplete last batch of
# each snapshot's latest slice until the next slice arrives: at most ``limits.snapshot_bytes`` in total, and
# ``limits.snapshots`` snapshots.
#
# A broker fetches the snapshot of the metadata log in slices of 8 MiB (KIP-630), which begin and end
# anywhere.
# ------------------------------------------------------------------------------------------------------------


if TYPE_CHECKING:
    Key = tuple[ConnectionKey, str | None, int | None, tuple[int, int]]


class _Rest(NamedTuple):
    """An incomplete batch, and the position in the snapshot where it continues."""

    position: int
    data: bytes


class Snapshots:
    """Joins the slices of snapshots, for each connection separately."""

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._limits = limits
        self._rests: OrderedDict[Key, _Rest] = OrderedDict()
        self._held_bytes = 0

    @property
    def unfinished(self) -> int:
        """The number of snapshots that wait for a slice."""
        return len(self._rests)

    def join(self, partition: PartitionRecords) -> PartitionRecords:
        """Prepend the rest of the previous slice. Unchanged if it is not a slice, or if the previous slice is
        missing.
        """
        if partition.piece is None:
            return partition
        piece = partition.piece
        key = (partition.exchange.connection.key, partition.topic, partition.partition, piece.snapshot)
        rest = self._take(key)
        if piece.position and (rest is None or rest.position != piece.position):
            return partition
        records = partition.records
        end = piece.position + len(records)
        if piece.position and rest is not None and rest.data:
            joined = rest.data + records.payload
            records = RecordData(joined, 0, len(joined))
        scan = records.scan()
        if end < piece.size and scan.fault is None:
            self._put(key, _Rest(end, records.data[records.end - scan.cut_off : records.end]))
        return partition._replace(records=records, piece=piece._replace(position=0))

    def _take(self, key: Key) -> _Rest | None:
        rest = self._rests.pop(key, None)
        if rest is not None:
            self._held_bytes -= len(rest.data)
        return rest

    def _put(self, key: Key, rest: _Rest) -> None:
        self._rests[key] = rest
        self._held_bytes += len(rest.data)
        while self._held_bytes > self._limits.snapshot_bytes or len(self._rests) > self._limits.snapshots:
            self._take(next(iter(self._rests)))
