"""The records of one batch of magic 2, decompressed -> Record values.

    record    length varint | attributes int8 | timestamp_delta varlong | offset_delta varint |
              key | value | header count varint | headers
    key, value, each header's two parts: length varint (-1: null), bytes

All varints are zigzag (KIP-98). This is the innermost loop of everything that reads records, and written for
speed: varints of one and two bytes are looked up in tables, and nothing is compared with the end of the
buffer before it is read. Faults show up as an IndexError, as None in a table, or at the end of the record.
Then ``_fault`` decodes that one record again, step by step, to find the cause. Holds the records (of a large
batch those of a piece) and a few thousand header keys.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect import core
from kdissect.errors import DecodeError, Malformed, Oversized, Truncated
from kdissect.kafka.primitives import utf8

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from kdissect.limits import Limits


Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record. What it shares with others is in its batch (kafka/batches.py).

    Attributes:
        offset: as in its batch: absolute in a Fetch, and in a Produce once the response's base offset is
            known.
        timestamp_ms: since 1970. -1 if the producer set none. None for magic 0, which has none.
        key, value: None is null.
        headers: in wire order. Keys can repeat.
    """

    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


# First byte of a varint -> its value. If it is above 127, the ``_HIGH`` of the second byte is added. Lengths
# below -1 are invalid: they are None, and adding None raises. -1 itself is checked first.
_LENGTH: list[Any] = [None if byte & 1 else (byte & 0x7F) >> 1 for byte in range(256)]
_DELTA = [(byte & 0x7F) >> 1 ^ -(byte & 1) for byte in range(256)]
_HIGH = [byte << 6 for byte in range(128)]
_NULL = 1
# First byte of a header -> bytes of its key, including the key's length and the first byte of the value's
# length.
_HEAD_BYTES = [None if byte & 1 or byte > 127 else (byte >> 1) + 2 for byte in range(256)]

_MAX_HEADS = 4096  # of 66 bytes at most

_VARINT_BYTES = 5
_VARLONG_BYTES = 10
_MIN_HEADER_BYTES = 2
_MIN_SAFE, _MAX_SAFE = -(1 << 62), 1 << 62  # sums of two such numbers fit 64 bits
_new = tuple.__new__
_new_record = partial(_new, Record)
_FAULTS = (IndexError, TypeError, DecodeError)


class _Heads(dict[bytes, tuple[str, int | None]]):
    """The bytes of a header before its value -> its key as text and the value's length, None if that takes
    more than one byte. Records mostly have the same ones, even across batches.
    """

    def __missing__(self, raw: bytes) -> tuple[str, int | None]:
        if len(self) >= _MAX_HEADS:
            self.clear()
        head = self[raw] = utf8(raw[1:-1]), None if raw[-1] > 127 else _LENGTH[raw[-1]]
        return head


_HEADS = _Heads()


def read_batch(
    data: bytes, pos: int, end: int, base_offset: int, base_timestamp_ms: int, limits: Limits
) -> tuple[Sequence[Record], DecodeError | None]:
    """Decode records up to ``end``, whatever count was declared. Never raises.

    Returns:
        The records, and why decoding stopped. None if it reached the end.
    """
    if core.is_used:
        bounds = limits.batch_items, limits.record_headers, limits.batch_items
        records = core.native.read_records(
            data, (pos, end), base_offset, base_timestamp_ms, bounds, _new_record
        )
        if records is not None:
            return records, None
    return read_any_batch(data, pos, end, base_offset, base_timestamp_ms, limits)


def read_any_batch(
    data: bytes, pos: int, end: int, base_offset: int, base_timestamp_ms: int, limits: Limits
) -> tuple[list[Record], DecodeError | None]:
    """The same, without the native core."""
    records: list[Record] = []
    length_of, delta_of, high = _LENGTH, _DELTA, _HIGH
    spare = limits.batch_items
    sane = _MIN_SAFE < base_offset < _MAX_SAFE and _MIN_SAFE < base_timestamp_ms < _MAX_SAFE
    begin = pos
    fault: DecodeError | None = None
    try:
        for _ in range(limits.batch_items):
            if pos >= end:
                break
            begin = pos

            byte = data[pos]
            if byte < 128:
                pos += 1
                stop = pos + length_of[byte]
            elif (second := data[pos + 1]) < 128:
                pos += 2
                stop = pos + length_of[byte] + high[second]
            else:
                length, pos = _varint(data, pos)
                stop = pos + length

            byte = data[pos + 1]  # after the attributes
            if byte < 128:
                pos += 2
                timestamp = delta_of[byte]
            elif (second := data[pos + 2]) < 128:
                pos += 3
                timestamp = delta_of[byte] - high[second] if byte & 1 else delta_of[byte] + high[second]
            else:
                timestamp, pos = _varint(data, pos + 1, _VARLONG_BYTES)
                sane = sane and _MIN_SAFE < timestamp < _MAX_SAFE

            byte = data[pos]
            if byte < 128:
                pos += 1
                offset = delta_of[byte]
            elif (second := data[pos + 1]) < 128:
                pos += 2
                offset = delta_of[byte] - high[second] if byte & 1 else delta_of[byte] + high[second]
            else:
                offset, pos = _varint(data, pos)

            byte = data[pos]
            pos += 1
            if byte == _NULL:
                key = None
            elif byte < 128:
                key = data[pos : (pos := pos + length_of[byte])]
            else:
                length, pos = _length(data, pos - 1)
                key = data[pos : (pos := pos + length)]

            byte = data[pos]
            pos += 1
            if byte > 127:
                if (second := data[pos]) < 128:
                    pos += 1
                    value = data[pos : (pos := pos + length_of[byte] + high[second])]
                else:
                    length, pos = _length(data, pos - 1)
                    value = data[pos : (pos := pos + length)]
            elif byte == _NULL:
                value = None
            else:
                value = data[pos : (pos := pos + length_of[byte])]

            byte = data[pos]
            if not byte:
                pos += 1
                headers: Headers = ()
            else:
                if byte < 128:
                    pos += 1
                    count = length_of[byte]
                else:
                    count, pos = _count(data, pos, end)
                    if count > limits.record_headers:
                        raise Oversized(f"a record with {count} headers")
                spare -= count
                if spare < 0:
                    raise Oversized(f"more than {limits.batch_items} headers")
                pairs: list[tuple[str, bytes | None]] = []
                while count:
                    count -= 1
                    size = _HEAD_BYTES[data[pos]]
                    if size is None:
                        raw, pos = _bytes(data, pos)
                        name, (content, pos) = utf8(raw or b""), _bytes(data, pos)
                        pairs.append((name, content))
                        continue
                    name, size = _HEADS[data[pos : (pos := pos + size)]]
                    if size is None:
                        content, pos = _bytes(data, pos - 1)
                        pairs.append((name, content))
                    else:
                        pairs.append((name, data[pos : (pos := pos + size)]))
                headers = tuple(pairs)

            if pos != stop:
                raise Malformed("a record's length does not match its content")
            values = base_offset + offset, base_timestamp_ms + timestamp, key, value, headers
            records.append(_new(Record, values))
        if pos < end:
            raise Oversized(f"more than {limits.batch_items} records")
        if pos > end:
            records.pop()
            raise Truncated("a record extends past the end of its batch")
    except Oversized as error:
        fault = error
    except _FAULTS:
        fault = _fault(data, begin, end)
    return records if sane else [_wrapped(each) for each in records], fault


def read_pieces(
    pieces: Iterable[bytes], base_offset: int, base_timestamp_ms: int, limits: Limits
) -> Generator[Sequence[Record], None, DecodeError | None]:
    """The same for bytes in pieces, split anywhere. Yields some records at a time, returns why decoding
    stopped.
    """
    records_left = headers_left = limits.batch_items
    try:
        for data in complete_entries(pieces, _end_of_record, limits.record_bytes):
            records, fault = read_batch(data, 0, len(data), base_offset, base_timestamp_ms, limits)
            if len(records) > records_left:
                records = records[:records_left]
                fault = Oversized(f"more than {limits.batch_items} records")
            records_left -= len(records)
            headers_left -= _headers_in(records)
            if records:
                yield records
            if fault:
                return fault
            if headers_left < 0:
                return Oversized(f"more than {limits.batch_items} headers")
    except Oversized as fault:
        return fault
    return None


def native_records(records: Sequence[Record]) -> core.native.Records | None:
    """The same records if the native core holds them, which can write them as lines. Otherwise None."""
    return records if core.is_used and isinstance(records, core.native.Records) else None


def _headers_in(records: Sequence[Record]) -> int:
    held = native_records(records)
    return sum(len(record[4]) for record in records) if held is None else int(held.headers)


def complete_entries(
    pieces: Iterable[bytes], end_of: Callable[[bytes, int], int], max_bytes: int
) -> Iterator[bytes]:
    """Split bytes in pieces again, between entries. Only the last entry can be incomplete or malformed.

    Args:
        pieces: split anywhere.
        end_of: the end of an entry that begins at a position. Raises IndexError if more bytes are needed to
            know it, Malformed if it is invalid.
        max_bytes: of an entry.

    Raises:
        Oversized: an entry has more.
    """
    held: list[bytes] = []
    size, needed = 0, 1
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size < needed:
            continue
        data = b"".join(held)
        end = 0
        try:
            while (next_end := end_of(data, end)) <= size:
                end = next_end
            needed = next_end - end
        except IndexError:
            needed = size - end + 1
        except Malformed:  # the decoder will report it
            yield data
            return
        if end:
            yield data[:end]
        if needed > max_bytes:
            raise Oversized(f"a record of {needed} bytes")
        held = [data[end:]]
        size -= end
    if size:
        yield b"".join(held)


def _end_of_record(data: bytes, pos: int) -> int:
    byte = data[pos]
    if byte < 128 and not byte & 1:
        return pos + 1 + (byte >> 1)
    length, pos = _length(data, pos)
    return pos + length


def _varint(data: bytes, pos: int, max_bytes: int = _VARINT_BYTES) -> tuple[int, int]:
    """Decode a zigzag varint of any length. Bits beyond the type are dropped, as in Kafka's own readers."""
    value = 0
    for index in range(max_bytes):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            value &= 0xFFFFFFFF if max_bytes == _VARINT_BYTES else 0xFFFFFFFFFFFFFFFF
            return value >> 1 ^ -(value & 1), pos
    raise Malformed(f"a varint of more than {max_bytes} bytes", pos=pos)


def _bytes(data: bytes, pos: int) -> tuple[bytes | None, int]:
    if data[pos] == _NULL:
        return None, pos + 1
    length, pos = _length(data, pos)
    return data[pos : pos + length], pos + length


def _length(data: bytes, pos: int) -> tuple[int, int]:
    length, pos = _varint(data, pos)
    if length < 0:
        raise Malformed(f"a length of {length}", pos=pos)
    return length, pos


def _count(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Decode a number of headers, no more than the bytes up to ``end`` can hold."""
    count, pos = _varint(data, pos)
    if not 0 <= count <= (end - pos) // _MIN_HEADER_BYTES:
        raise Malformed(f"{count} headers declared, {end - pos} bytes left", pos=pos)
    return count, pos


def _wrapped(record: Record) -> Record:
    """Sums beyond 64 bits wrap around, as in Kafka's own readers."""
    assert record.timestamp_ms is not None
    return record._replace(offset=int64(record.offset), timestamp_ms=int64(record.timestamp_ms))


def int64(value: int) -> int:
    """A sum as in Java, wrapped around to 64 bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _fault(data: bytes, pos: int, end: int) -> DecodeError:
    """Why no record can be decoded at ``pos``: decodes it again, slowly."""
    begin = pos
    try:
        length, pos = _length(data, pos)
        if length > end - pos:
            raise Truncated(f"it has {length} bytes, {max(end - pos, 0)} are left")
        stop = pos + length
        data = data[:stop]
        _, pos = _varint(data, pos + 1, _VARLONG_BYTES)
        _, pos = _varint(data, pos)
        pos = _skipped(data, pos)
        pos = _skipped(data, pos)
        count, pos = _count(data, pos, stop)
        for _ in range(count):
            pos = _skipped(data, pos)
            pos = _skipped(data, pos)
    except IndexError:
        return Truncated("a truncated record", pos=begin)
    except DecodeError as error:
        return type(error)(f"an invalid record: {error.reason}", pos=begin)
    return Malformed(f"{stop - pos} bytes after the headers of a record", pos=begin)


def _skipped(data: bytes, pos: int) -> int:
    """The position after a length-prefixed value."""
    if data[pos] == _NULL:
        return pos + 1
    length, pos = _length(data, pos)
    if length > len(data) - pos:
        raise Truncated(f"{length} bytes declared, {max(len(data) - pos, 0)} bytes left")
    return pos + length
