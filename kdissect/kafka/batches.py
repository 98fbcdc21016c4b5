"""RecordData -> decoded batches: decompressed, checked, each record with its absolute offset and timestamp.

One batch at a time is decoded, on demand, and not held here. A batch with more than
``compression.HELD_BYTES`` of records is returned in parts, and decoded twice, because its first part already
carries the anomalies of the last. A batch has at most ``limits.inflated_bytes`` of records, and at most
``limits.batch_items`` of them. Nothing is raised for any input: records that can be decoded are returned, and
the batch's anomalies describe the rest.

    recordbatch.py   the records of magic 2
    messageset.py    messages of magic 0 and 1
    compression.py   decompression of both
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast
from zlib import crc32

from kdissect.errors import DecodeError, Malformed, Oversized, Truncated, Unsupported
from kdissect.kafka.compression import HELD_BYTES, Budget, in_pieces
from kdissect.kafka.internal.topics import open_control_record
from kdissect.kafka.messageset import (
    MAX_BAD_CRCS,
    MESSAGES,
    BadCrc,
    add_bad_crcs,
    end_of_message,
    message_parts,
    read_messages,
)
from kdissect.kafka.primitives import crc32c
from kdissect.kafka.recordbatch import Record, complete_entries, int64, read_batch, read_pieces
from kdissect.kafka.records import COMPRESSION, TIMESTAMP_TYPES
from kdissect.limits import DEFAULT
from kdissect.model import Anomaly

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from kdissect.kafka.compression import Inflated, Pieces
    from kdissect.kafka.internal.topics import Control
    from kdissect.kafka.records import RecordData
    from kdissect.limits import Limits


_ENTRY = Struct(">qiIbb")  # offset, size, crc or leader epoch, magic, first byte after the magic
_ENTRY_BYTES = _ENTRY.size
_BATCH = Struct(">qiibIhiqqqhii")
_BATCH_BYTES = _BATCH.size
_LOG_OVERHEAD = 12
_MIN_SIZE = (14, 22, 49)
_MAGIC_AT, _ATTRIBUTES_AT = 16, 17
_BATCH_CRC_FROM = 21
_CRC_FROM = (_MAGIC_AT, _MAGIC_AT, _BATCH_CRC_FROM)

_CODEC = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40

_new = tuple.__new__

_MAX_CONTROL_ANOMALIES = 10
"""Most malformed control records of a batch that get their own anomaly. The others share one."""

_KEPT_BYTES, _KEPT_RECORDS = 16 * 1024 * 1024, 50_000
"""The size up to which a large batch is held, so that it is decoded only once."""

_T = TypeVar("_T")

_MAX_OFFSET = 0x7FFFFFFFFFFFFFFF
_MAX_SEQUENCE = 0x7FFFFFFF


class BadMessages(NamedTuple):
    """The messages of a set whose CRC is wrong.

    Attributes:
        of_all: one anomaly for all of them.
        of_each: the anomaly of each, by its index in the batch; of the first ``MAX_BAD_CRCS``.
    """

    of_all: Anomaly
    of_each: Mapping[int, Anomaly]


class Batch(NamedTuple):
    """A record batch, a compressed message set, or consecutive messages of the same kind.

    Attributes:
        pos: of its first byte in the record data.
        size: bytes on the wire.
        magic: 0, 1 or 2. Others are not decoded.
        attributes: as on the wire. The properties interpret them.
        base_offset: of the first record, even if compaction removed it.
        last_offset: of the last record, even if compaction removed it.
        leader_epoch, producer_id, producer_epoch, base_sequence: for magic 2, otherwise None. -1 means none.
        base_timestamp_ms: to which the timestamps of magic 2 records are relative.
        records: in wire order; a list, or what the native core holds (``recordbatch.native_records``).
        anomalies: of the batch.
        controls: for a control batch, the type of each record.
        aborted: whether read_committed consumers do not see it, according to the response.
        first: index in the batch of the first of ``records``. A batch with too many records to hold comes in
            parts.
        elsewhere: number of records in its other parts.
        bad_messages: for magic 0 and 1, those whose CRC is wrong. None if there are none.
    """

    pos: int
    size: int
    magic: int
    attributes: int
    base_offset: int
    last_offset: int
    leader_epoch: int | None
    producer_id: int | None
    producer_epoch: int | None
    base_sequence: int | None
    base_timestamp_ms: int | None
    records: Sequence[Record]
    anomalies: list[Anomaly]
    controls: Sequence[Control] = ()
    aborted: bool = False
    first: int = 0
    elsewhere: int = 0
    bad_messages: BadMessages | None = None

    def around(self, index: int) -> Batch:
        """The batch as one of its records has it: without what is wrong only with others."""
        if self.bad_messages is None:
            return self
        of_all, own = self.bad_messages.of_all, self.bad_messages.of_each.get(index)
        kept = (own if each is of_all else each for each in self.anomalies)
        return self._replace(anomalies=[each for each in kept if each is not None], bad_messages=None)

    @property
    def number(self) -> int:
        """The number of records in all its parts."""
        return len(self.records) + self.elsewhere

    @property
    def compression(self) -> str:
        """The codec's name, as in the headers decoded by records.py."""
        codec = self.attributes & _CODEC
        return COMPRESSION[codec] if codec < len(COMPRESSION) else f"codec {codec}"

    @property
    def timestamp_type(self) -> str | None:
        """One of ``records.TIMESTAMP_TYPES``. None for magic 0, which has no timestamps."""
        return TIMESTAMP_TYPES[bool(self.attributes & _LOG_APPEND_TIME)] if self.magic else None

    @property
    def transactional(self) -> bool:
        """Whether the records belong to a transaction."""
        return self.magic == 2 and bool(self.attributes & _TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """Whether it is a control batch."""
        return self.magic == 2 and bool(self.attributes & _CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may remove tombstones and markers (KIP-534)."""
        return self.base_timestamp_ms if self.magic == 2 and self.attributes & _DELETE_HORIZON else None

    def sequence(self, record: Record) -> int | None:
        """A record's producer sequence number. After 2147483647 it restarts at 0."""
        if self.base_sequence is None or self.base_sequence < 0:
            return None
        return (self.base_sequence + record.offset - self.base_offset) & _MAX_SEQUENCE


def read_records(
    records: RecordData,
    limits: Limits = DEFAULT,
    *,
    base_offset: int | None = None,
    aborted: Iterable[Mapping[str, int]] | None = None,
    where: str = "records",
    budget: Budget | None = None,
) -> Iterator[Batch]:
    """Decode record data batch by batch, a large batch in parts.

    An incomplete batch at the end, as brokers leave it in a Fetch, is not returned. ``RecordData.scan`` has
    its size.

    Args:
        records: a field of a message.
        limits: on the size of the batches.
        base_offset: for a Produce, the base offset in the response. None: offsets are as on the wire,
            absolute in a Fetch, from 0 in a Produce.
        aborted: ``aborted_transactions`` of a Fetch response's partition.
        where: the place named in anomalies.
        budget: shared with the other record data of the frame. None: a new one.
    """
    data, pos, end = records.data, records.start, records.end
    source = _Source(records, where, limits, budget)
    transactions = AbortedTransactions(aborted) if aborted else None
    while end - pos >= _ENTRY_BYTES:
        magic = data[pos + _MAGIC_AT]
        if magic == 2:
            batch = _decode_batch(source, pos, base_offset)
        elif magic < 2:
            batch = _decode_messages(source, pos, base_offset)
        else:
            batch = _unreadable(source, pos)
        if batch is None:
            return
        if transactions is not None:
            batch = batch._replace(aborted=transactions.hide(batch))
        yield batch
        if source.rest is not None:
            number, first = batch.number, len(batch.records)
            for each in source.rest:
                yield batch._replace(records=each, first=first, elsewhere=number - len(each))
                first += len(each)
            source.rest = None
        pos += batch.size
        if base_offset is not None:
            base_offset = int64(batch.last_offset + 1)


def check_crcs(records: RecordData, where: str = "records") -> list[Anomaly]:
    """Verify the checksum of each batch and message, without decoding any. Returns an anomaly for each
    mismatch.
    """
    source = _Source(records, where, DEFAULT, None)
    data, pos, end = records.data, records.start, records.end
    anomalies = []
    while end - pos >= _ENTRY_BYTES:
        _, size, crc, magic, _ = _ENTRY.unpack_from(data, pos)
        stop = pos + _LOG_OVERHEAD + size
        if not 0 <= magic < len(_MIN_SIZE) or size < _MIN_SIZE[magic] or stop > end:
            break
        checked = memoryview(data)[pos + _CRC_FROM[magic] : stop]
        if magic == 2:
            crc = _BATCH.unpack_from(data, pos)[4]
        computed = crc32c(checked) if magic == 2 else crc32(checked)
        if computed != crc:
            anomalies.append(source.bad_crc(pos, crc, computed, magic))
        pos = stop
    return anomalies


@dataclass(slots=True, eq=False)
class _Source:
    """Record data, its name in anomalies, and its budget.

    Attributes:
        rest: for a batch in parts, the records after the first part.
    """

    records: RecordData
    where: str
    limits: Limits
    budget: Budget | None
    rest: Iterator[Sequence[Record]] | None = None

    def inflate(
        self, pos: int, magic: int, codec: int, data: bytes, anomalies: list[Anomaly]
    ) -> Inflated[bytes | Pieces]:
        """Decompress the content of a batch or a wrapper message. Adds what strict readers reject."""
        if self.budget is None:
            self.budget = Budget()
        inflated = self.budget.inflate(codec, data, self.limits, magic)
        anomalies += (self.anomaly(flaw.kind, pos, flaw.text) for flaw in inflated.flaws)
        return inflated

    def anomaly(self, kind: str, pos: int, detail: str, what: str = "batch") -> Anomaly:
        return Anomaly(kind, self.where, f"{what} at byte {pos - self.records.start}: {detail}")

    def bad_crc(self, pos: int, stored: int, computed: int, magic: int) -> Anomaly:
        """The anomaly of a wrong checksum: of a batch, or of a message before magic 2."""
        what, name = ("batch", "CRC32C") if magic == 2 else ("message", "CRC32")
        return self.anomaly("crc_mismatch", pos, f"{name} {_both(stored, computed)}", what)

    def fault(
        self, pos: int, inflating: DecodeError | None, reading: DecodeError | None, shown: str
    ) -> list[Anomaly]:
        """The anomaly for a failure. If decompression failed, that is also why the records end early."""
        match inflating or reading:
            case None:
                return []
            case Oversized() as fault:
                kind = "oversized_records"
            case Unsupported() as fault:
                kind = "unknown_codec"
            case fault:
                kind = "damaged_compression" if inflating else "malformed_records"
        return [self.anomaly(kind, pos, f"{fault.reason}; {shown}")]


def _both(stored: int, computed: int) -> str:
    return f"stored {stored}, computed {computed}"


# --- magic 2 ------------------------------------------------------------------------------------------------


def _decode_batch(source: _Source, pos: int, base_offset: int | None) -> Batch | None:
    data, end = source.records.data, source.records.end
    if end - pos < _BATCH_BYTES:
        return None
    (
        offset,
        size,
        leader_epoch,
        _,
        crc,
        attributes,
        last_delta,
        base_ms,
        max_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = _BATCH.unpack_from(data, pos)
    if size < _MIN_SIZE[2]:
        return _unreadable(source, pos)
    start, stop = pos + _BATCH_BYTES, pos + _LOG_OVERHEAD + size
    if stop > end:
        return None
    if base_offset is not None:
        offset = base_offset
    anomalies: list[Anomaly] = []
    # A copy costs less than a view, except for batches so large that neither matters.
    if (computed := crc32c(data[pos + _BATCH_CRC_FROM : stop])) != crc:
        anomalies.append(source.bad_crc(pos, crc, computed, 2))

    inflating = None
    packed: bytes | Pieces = data
    if attributes & _CODEC and start < stop:
        packed, inflating, _ = source.inflate(pos, 2, attributes & _CODEC, data[start:stop], anomalies)
        start, stop = 0, len(packed)
    if stop - start <= HELD_BYTES:
        records, reading = read_batch(cast("bytes", packed), start, stop, offset, base_ms, source.limits)
        shown = len(records)
    else:

        def parts() -> Generator[Sequence[Record], None, DecodeError | None]:
            pieces = in_pieces(packed, start, stop) if isinstance(packed, bytes) else packed
            return read_pieces(pieces, offset, base_ms, source.limits)

        (records, source.rest, shown, _), reading = _read_twice(parts, stop - start)
        if attributes & _CONTROL and source.rest is not None:  # Kafka's control batches have one record
            shown, source.rest = len(records), None
            reading = reading or Oversized(f"control records of {stop - start} bytes")
    if inflating or reading:
        anomalies += source.fault(pos, inflating, reading, f"{shown} of {count} records are shown")
    elif shown != count:
        detail = f"{count} records declared, {shown} present"
        anomalies.append(source.anomaly("wrong_record_count", pos, detail))
    if attributes & _LOG_APPEND_TIME:
        records = _with_timestamp(records, max_ms)
        source.rest = source.rest and (_with_timestamp(part, max_ms) for part in source.rest)
    controls = _read_controls(records, pos, source, anomalies) if attributes & _CONTROL else ()
    return _new(
        Batch,
        (
            pos - source.records.start,
            _LOG_OVERHEAD + size,
            2,
            attributes,
            offset,
            last if (last := offset + last_delta) <= _MAX_OFFSET else int64(last),
            leader_epoch,
            producer_id,
            producer_epoch,
            base_sequence,
            base_ms,
            records,
            anomalies,
            controls,
            False,
            0,
            shown - len(records),
            None,
        ),
    )


def _with_timestamp(records: Sequence[Record], time_ms: int) -> list[Record]:
    return [_new(Record, (each[0], time_ms, *each[2:])) for each in records]


def _read_controls(
    records: Sequence[Record], pos: int, source: _Source, anomalies: list[Anomaly]
) -> list[Control]:
    controls = [open_control_record(record.key, record.value) for record in records]
    malformed = [
        record.offset for record, control in zip(records, controls, strict=True) if control.is_malformed
    ]
    details = [f"control record at offset {offset}" for offset in malformed[:_MAX_CONTROL_ANOMALIES]]
    if len(malformed) > _MAX_CONTROL_ANOMALIES:
        details.append(f"{len(malformed) - _MAX_CONTROL_ANOMALIES} more control records")
    anomalies += [source.anomaly("malformed_payload", pos, detail) for detail in details]
    return controls


# --- large batches ------------------------------------------------------------------------------------------


class _Parts(NamedTuple):
    """The records of a large batch.

    Attributes:
        first: the first of them.
        rest: the records after those. None if there are no more.
        number: of all records.
        last: None without records.
    """

    first: Sequence[Record]
    rest: Iterator[Sequence[Record]] | None
    number: int
    last: Record | None

    def mapped(self, change: Callable[[Sequence[Record]], Sequence[Record]]) -> _Parts:
        """The same parts with ``change`` applied lazily to all records except ``last``."""
        return self._replace(first=change(self.first), rest=self.rest and map(change, self.rest))


def _as_parts(records: Sequence[Record]) -> _Parts:
    return _Parts(records, None, len(records), records[-1] if records else None)


def _read_twice(read: Callable[[], Generator[Sequence[Record], None, _T]], size: int) -> tuple[_Parts, _T]:
    """Decode all records to count them and to find faults, then start again, unless there are only a few.

    Args:
        read: starts decoding them.
        size: their bytes.

    Returns:
        The records, and the return value of ``read``.
    """
    kept: list[Sequence[Record]] | None = [] if size <= _KEPT_BYTES else None
    number, last = 0, None
    reading = read()
    while True:
        try:
            records = next(reading)
        except StopIteration as end:
            parts = read() if kept is None else iter(kept)
            first = next(parts, [])
            return _Parts(first, parts if len(first) < number else None, number, last), end.value
        number += len(records)
        last = records[-1]
        if kept is not None:
            kept.append(records)
            if number > _KEPT_RECORDS:
                kept = None


# --- magic 0 and 1 ------------------------------------------------------------------------------------------


def _decode_messages(source: _Source, pos: int, base_offset: int | None) -> Batch | None:
    data, end = source.records.data, source.records.end
    magic, attributes = data[pos + _MAGIC_AT], data[pos + _ATTRIBUTES_AT]
    compressed = attributes & _CODEC
    max_messages = 1 if compressed else source.limits.batch_items
    records, stop, bad_crcs, fault = read_messages(data, pos, end, min(max_messages, MESSAGES))
    parts = _as_parts(records)
    if MESSAGES == len(records) < max_messages and not fault:
        parts, (stop, bad_crcs, fault) = _read_twice(
            lambda: message_parts(data, pos, end, max_messages), end - pos
        )
    anomalies: list[Anomaly] = []
    bad_messages = None
    if bad_crcs:
        of_each = {each.number: source.bad_crc(*each[1:], magic) for each in bad_crcs}
        bad_messages = _bad_messages(of_each, anomalies)
    if fault:
        anomalies += source.fault(pos, None, fault, f"{parts.number} records precede it")
        stop = _end_of_unreadable(data, stop, end)
    elif not parts.last:
        return None
    if compressed and parts.last:
        parts, bad_messages = _decode_wrapper(source, pos, parts.last, attributes, anomalies)
    if base_offset is not None:
        parts = _numbered(parts, base_offset)
    first = parts.first[0].offset if parts.first else base_offset or 0
    last = parts.last.offset if parts.last else first - 1
    source.rest = parts.rest
    return _without_producer(
        pos - source.records.start, stop - pos, magic, attributes, first, last, parts.first, anomalies
    )._replace(elsewhere=parts.number - len(parts.first), bad_messages=bad_messages)


def _bad_messages(of_each: Mapping[int, Anomaly], anomalies: list[Anomaly]) -> BadMessages:
    """These, which are counted in one anomaly of the batch."""
    first, count = next(iter(of_each.values())), len(of_each)
    more = f"; {count:,} such messages{' or more' if count >= MAX_BAD_CRCS else ''}" if count > 1 else ""
    of_all = first._replace(detail=f"{first.detail}{more}")
    anomalies.append(of_all)
    return BadMessages(of_all, of_each)


def _numbered(parts: _Parts, base_offset: int) -> _Parts:
    offsets = itertools.count(base_offset)
    return parts.mapped(
        lambda records: [
            each._replace(offset=int64(offset)) for each, offset in zip(records, offsets, strict=False)
        ]
    )._replace(last=parts.last and parts.last._replace(offset=int64(base_offset + parts.number - 1)))


def _end_of_unreadable(data: bytes, pos: int, end: int) -> int:
    """Where an unreadable message ends. ``end`` if its size is not plausible either."""
    size = _ENTRY.unpack_from(data, pos)[1]
    return min(end, pos + _LOG_OVERHEAD + size) if size >= _MIN_SIZE[0] else end


def _decode_wrapper(
    source: _Source, pos: int, wrapper: Record, attributes: int, anomalies: list[Anomaly]
) -> tuple[_Parts, BadMessages | None]:
    """The messages inside a compressed one, with absolute offsets (KIP-31) and their timestamps (KIP-32)."""
    magic = source.records.data[pos + _MAGIC_AT]
    data, inflating, _ = source.inflate(pos, magic, attributes & _CODEC, wrapper.value or b"", anomalies)
    if isinstance(data, bytes):
        records, bad_crcs, reading = _inner_messages(data, source.limits.batch_items)
        parts = _as_parts(records)
    else:
        parts, (bad_crcs, reading) = _read_twice(lambda: _inner_parts(data, source.limits), len(data))
    bad_messages = None
    if bad_crcs:
        of_each = {
            number: source.anomaly(
                "crc_mismatch", pos, f"message {number} inside it: CRC32 {_both(stored, computed)}"
            )
            for number, _, stored, computed in bad_crcs
        }
        bad_messages = _bad_messages(of_each, anomalies)
    if inflating or reading:
        anomalies += source.fault(pos, inflating, reading, f"{parts.number} records are shown")
    if wrapper.timestamp_ms is None or not parts.last:  # magic 0 has absolute offsets inside
        return parts, bad_messages
    # A wrapper has the offset of its last message. Old librdkafka producers set it to 0: then the
    # messages count from 0.
    shift = wrapper.offset - parts.last.offset if wrapper.offset else 0
    time_of_all = wrapper.timestamp_ms if attributes & _LOG_APPEND_TIME else None
    if not shift and time_of_all is None:
        return parts, bad_messages

    def absolute(records: Sequence[Record]) -> list[Record]:
        return [
            _new(
                Record,
                (int64(shift + offset), own_ms if time_of_all is None else time_of_all, key, value, headers),
            )
            for offset, own_ms, key, value, headers in records
        ]

    return parts.mapped(absolute)._replace(last=absolute([parts.last])[0]), bad_messages


def _inner_parts(
    pieces: Iterable[bytes], limits: Limits
) -> Generator[Sequence[Record], None, tuple[list[BadCrc], DecodeError | None]]:
    """Like ``_inner_messages``, for bytes in pieces: yields some records at a time."""
    bad_crcs: list[BadCrc] = []
    left = limits.batch_items
    fault: DecodeError | None = None
    try:
        for data in complete_entries(pieces, end_of_message, limits.record_bytes):
            records, bad, fault = _inner_messages(data, left)
            add_bad_crcs(bad_crcs, bad, limits.batch_items - left)
            left -= len(records)
            if records:
                yield records
            if fault:
                break
    except Oversized as oversized:
        return bad_crcs, oversized
    if isinstance(fault, Oversized):
        fault = Oversized(f"more than {limits.batch_items} records")
    return bad_crcs, fault


def _inner_messages(data: bytes, max_records: int) -> tuple[list[Record], list[BadCrc], DecodeError | None]:
    """Decode inner messages. Returns records, those with a wrong CRC, and why decoding stopped early."""
    records: list[Record] = []
    bad_crcs: list[BadCrc] = []
    pos = 0
    fault: DecodeError | None = None
    while pos < len(data) and not fault:
        start = pos
        if len(data) - pos < _ENTRY_BYTES:
            fault = Truncated("a message is truncated", pos=pos)
        elif data[pos + _MAGIC_AT] > 1:
            fault = Malformed(f"magic {data[pos + _MAGIC_AT]} in a message set", pos=pos)
        elif data[pos + _ATTRIBUTES_AT] & _CODEC:
            fault = Malformed("a compressed message inside a compressed one", pos=pos)
        elif len(records) >= max_records:
            fault = Oversized(f"more than {max_records} records")
        else:
            new_records, pos, bad, fault = read_messages(data, pos, len(data), max_records - len(records))
            add_bad_crcs(bad_crcs, bad, len(records))
            records += new_records
            if pos == start:
                fault = fault or Truncated("a message is truncated", pos=pos)
    return records, bad_crcs, fault


def _unreadable(source: _Source, pos: int) -> Batch:
    """A placeholder for everything up to the end: where the next batch would begin is unknown."""
    offset, size, _, magic, attributes = _ENTRY.unpack_from(source.records.data, pos)
    left = source.records.end - pos
    what = f"an entry of {size} bytes" if 0 <= magic < len(_MIN_SIZE) else f"magic {magic}"
    anomalies = [source.anomaly("malformed_records", pos, f"{what}; {left} bytes are not read")]
    start = pos - source.records.start
    return _without_producer(start, left, magic, attributes, offset, offset, [], anomalies)


def _without_producer(
    pos: int,
    size: int,
    magic: int,
    attributes: int,
    first: int,
    last: int,
    records: Sequence[Record],
    anomalies: list[Anomaly],
) -> Batch:
    no_producer, whole = (None, None, None, None, None), ((), False, 0, 0, None)
    values = (pos, size, magic, attributes, first, last, *no_producer, records, anomalies, *whole)
    return _new(Batch, values)


# ------------------------------------------------------------------------------------------------------------
# The aborted transactions of a Fetch response -> which of its batches they hide.
#
# For read_committed consumers, a response lists the aborted transactions of each partition as producer IDs
# with the first offset (KIP-98). All transactional batches of that producer from there on belong to it, up to
# the producer's abort marker. Holds the list of one partition.
# ------------------------------------------------------------------------------------------------------------


_ABORT = "ABORT"


class AbortedTransactions:
    """Tracks which transactions are open. Call ``hide`` with the partition's batches in order.

    Args:
        aborted: ``aborted_transactions`` as decoded.
    """

    def __init__(self, aborted: Iterable[Mapping[str, int]]) -> None:
        pairs = ((each.get("first_offset", 0), each.get("producer_id", -1)) for each in aborted)
        self._waiting = sorted(pairs, reverse=True)
        self._open: set[int | None] = set()

    def hide(self, batch: Batch) -> bool:
        """Whether the records of the next batch are hidden."""
        while self._waiting and self._waiting[-1][0] <= batch.last_offset:
            self._open.add(self._waiting.pop()[1])
        if batch.producer_id not in self._open:
            return False
        if any(control.type == _ABORT for control in batch.controls):
            self._open.discard(batch.producer_id)
        return batch.transactional and not batch.control
