"""A ``records`` field -> the headers of the batches and message sets in it.

Nothing is copied, decompressed or decoded until needed: ``RecordData`` remembers where the bytes are, and the
first call that needs the headers (61 bytes per batch) reads and caches them.

Three entry formats share their first 17 bytes, so that the magic at byte 16 distinguishes them (protocol
guide, "Messages"; KIP-98):

    magic 0, 1   offset int64 | size int32 | crc int32 | magic int8 | attributes int8 |
                 [timestamp int64] | key | value
    magic 2      base_offset int64 | batch_length int32 | partition_leader_epoch int32 | magic int8 |
                 crc uint32 | ...
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from kdissect.model import Body

_ENTRY = Struct(">qiibb")  # offset, size, crc or leader epoch, magic, first byte after the magic
_BATCH = Struct(">qiibIhiqqqhii")
_USUAL = Struct(">8xi4xb4xh34xi")  # of a batch: size, magic, attributes, records count
_TIMESTAMP = Struct(">q")

_BATCH_FIELDS = (
    "base_offset",
    "batch_length",
    "partition_leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "records_count",
)
_ORIGIN = Struct(">q19xq8xqhi")  # the fields of BatchOrigin
_LOG_OVERHEAD = 12  # offset and size: the size field counts what follows it
_MIN_ENTRY = _ENTRY.size
_MIN_BATCH_LENGTH = 49
_MIN_MESSAGE_SIZE = 14  # crc, magic, attributes, two null lengths

COMPRESSION = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40


class RecordScan(NamedTuple):
    """The headers of record data.

    Attributes:
        batches: one dict per batch (magic 2) or message (magic 0, 1), in wire order.
        records: number of records. None if a compressed message set hides it.
        cut_off: bytes of an incomplete last entry, which brokers leave in Fetch responses on purpose.
        fault: why reading stopped before the end. None if it did not.
    """

    batches: list[Body]
    records: int | None
    cut_off: int
    fault: str | None


class BatchTotals(NamedTuple):
    """A summary of the headers.

    Attributes:
        records: as in ``RecordScan``.
        codecs: the compression of each batch or message, in wire order, without control batches.
        markers: how many of the records are in control batches: brokers wrote them.
    """

    records: int | None
    codecs: list[str]
    markers: int = 0


class BatchOrigin(NamedTuple):
    """Header fields by which copies of a batch are known: from the producer, except ``base_offset``."""

    base_offset: int
    base_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


class RecordData:
    """The bytes of one ``records`` field inside a frame, not decoded.

    Attributes:
        data: the buffer that contains them, shared with the frame.
        start, end: their position in it.
    """

    __slots__ = ("_scan", "_tally", "data", "end", "start")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.data = data
        self.start = start
        self.end = end
        self._scan: RecordScan | None = None
        self._tally: BatchTotals | None = None

    def __len__(self) -> int:
        return self.end - self.start

    def __bool__(self) -> bool:
        return True  # an empty field is not a null one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordData) and self.payload == other.payload

    def __hash__(self) -> int:
        return hash(self.payload)

    def __repr__(self) -> str:
        return f"RecordData({len(self)} bytes)"

    @property
    def payload(self) -> bytes:
        """A copy of the bytes."""
        return self.data[self.start : self.end]

    def scan(self) -> RecordScan:
        """Read the headers, once."""
        if self._scan is None:
            self._scan = scan(self.data, self.start, self.end)
        return self._scan

    def headers(self) -> Iterator[Body]:
        """The headers one by one, without caching them."""
        return (
            read_headers(self.data, self.start, self.end) if self._scan is None else iter(self._scan.batches)
        )

    def batches(self) -> list[Body]:
        """The header of each batch: fields by name, with the attribute bits decoded."""
        return self.scan().batches

    def origins(self) -> Iterator[BatchOrigin]:
        """Where each batch of magic 2 comes from, up to the first that is cut off."""
        pos, end = self.start, self.end
        while end - pos >= _USUAL.size:
            size, magic, _, _ = _USUAL.unpack_from(self.data, pos)
            if not _MIN_MESSAGE_SIZE <= size <= end - pos - _LOG_OVERHEAD:
                return
            if magic == 2:
                yield BatchOrigin._make(_ORIGIN.unpack_from(self.data, pos))
            pos += _LOG_OVERHEAD + size

    def count(self) -> int | None:
        """Number of records, None when a compressed message set (magic 0 and 1) hides it."""
        return self.tally().records

    def tally(self) -> BatchTotals:
        """Count records and codecs, once."""
        if self._tally is None:
            self._tally = self._totals()
        return self._tally

    def _totals(self) -> BatchTotals:
        """For complete batches, the usual case, nothing else is read."""
        pos, end = self.start, self.end
        records = markers = 0
        codecs = []
        while end - pos >= _USUAL.size:
            size, magic, attributes, count = _USUAL.unpack_from(self.data, pos)
            if magic != 2 or not _MIN_BATCH_LENGTH <= size <= end - pos - _LOG_OVERHEAD:
                break
            records += max(0, count)
            if attributes & _CONTROL:
                markers += max(0, count)
            else:
                codecs.append(_codec(attributes))
            pos += _LOG_OVERHEAD + size
        if pos == end:
            return BatchTotals(records, codecs, markers)
        known: int | None = 0
        markers = 0
        codecs = []
        for header in self.headers():
            number = _records(header)
            known = None if known is None or number is None else known + number
            if header.get("control"):
                markers += number or 0
            else:
                codecs.append(header["compression"])
        return BatchTotals(known, codecs, markers)


def scan(data: bytes, start: int, end: int) -> RecordScan:
    """Read all headers."""
    batches: list[Body] = []
    reading = read_headers(data, start, end)
    while True:
        try:
            batches.append(next(reading))
        except StopIteration as stop:
            numbers = [_records(header) for header in batches]
            records = None if None in numbers else sum(filter(None, numbers))
            return RecordScan(batches, records, *stop.value)


def _records(header: Body) -> int | None:
    """The number of records in an entry. None if compression hides it."""
    if header["magic"] == 2:
        return max(0, int(header["records_count"]))
    return None if header["attributes"] & _CODEC_MASK else 1


def read_headers(data: bytes, start: int, end: int) -> Generator[Body, None, tuple[int, str | None]]:
    """Step from entry to entry by their sizes, reading only headers. Returns the end of a ``RecordScan``."""
    fault = None
    pos = start
    while end - pos >= _MIN_ENTRY:
        _, size, _, magic, attributes = _ENTRY.unpack_from(data, pos)
        min_size = _MIN_BATCH_LENGTH if magic == 2 else _MIN_MESSAGE_SIZE
        if not 0 <= magic <= 2:
            fault = f"magic {magic}"
        elif size < min_size:
            fault = f"an entry of {size} bytes"
        if fault or size > end - pos - _LOG_OVERHEAD:
            break
        yield _batch(data, pos) if magic == 2 else _message(data, pos, magic, attributes)
        pos += _LOG_OVERHEAD + size
    return 0 if fault else end - pos, fault and f"{fault} at byte {pos - start}"


def _batch(data: bytes, pos: int) -> Body:
    batch: Body = dict(zip(_BATCH_FIELDS, _BATCH.unpack_from(data, pos), strict=True))
    attributes = batch["attributes"]
    batch["compression"] = _codec(attributes)
    batch["timestamp_type"] = TIMESTAMP_TYPES[bool(attributes & _LOG_APPEND_TIME)]
    batch["transactional"] = bool(attributes & _TRANSACTIONAL)
    batch["control"] = bool(attributes & _CONTROL)
    batch["delete_horizon"] = bool(attributes & _DELETE_HORIZON)
    return batch


def _message(data: bytes, pos: int, magic: int, attributes: int) -> Body:
    offset, size, crc = _ENTRY.unpack_from(data, pos)[:3]
    message: Body = {
        "offset": offset,
        "message_size": size,
        "crc": crc & 0xFFFFFFFF,
        "magic": magic,
        "attributes": attributes,
    }
    if magic == 1 and size >= _MIN_MESSAGE_SIZE + 8:
        message["timestamp"] = _TIMESTAMP.unpack_from(data, pos + 18)[0]
    message["compression"] = _codec(attributes)
    if magic == 1:
        message["timestamp_type"] = TIMESTAMP_TYPES[bool(attributes & _LOG_APPEND_TIME)]
    return message


def _codec(attributes: int) -> str:
    codec = attributes & _CODEC_MASK
    return COMPRESSION[codec] if codec < len(COMPRESSION) else f"codec {codec}"
