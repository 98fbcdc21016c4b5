"""Messages of magic 0 and 1 -> Record values. Holds the records.

    message   offset int64 | size int32 | crc int32 | magic int8 | attributes int8 | [timestamp int64] |
              key length int32 | key | value length int32 | value

Only magic 1 has the timestamp. ``size`` counts from the crc, which is the CRC-32 of what follows it (protocol
guide, "Message sets"; KIP-32). A set has no header: messages follow each other, on the wire or inside the
value of a compressed message.
"""

from __future__ import annotations

from itertools import islice
from struct import Struct, error
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from kdissect.errors import DecodeError, Malformed
from kdissect.kafka.recordbatch import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

_LOG_OVERHEAD = 12  # offset and size, not included in size
_CRC_FROM = 16
# All up to the key, and four bytes more: the value's length if the key is null.
_HEADS = Struct(">qiIHii"), Struct(">qiIHqii")
_length = Struct(">i").unpack_from
_LENGTH_BYTES = 4
_MIN_SIZE = 14  # crc, magic, attributes, two null lengths
_size = Struct(">8xi").unpack_from
_new = tuple.__new__


MESSAGES = 20_000
"""Messages that are decoded at a time."""


MAX_BAD_CRCS = MESSAGES
"""Messages with a wrong CRC that are listed, of consecutive ones."""


class BadCrc(NamedTuple):
    """A message whose CRC is wrong.

    Attributes:
        number: among the messages decoded together, from 0.
        pos: of the message.
        stored: in the message.
        computed: from its bytes.
    """

    number: int
    pos: int
    stored: int
    computed: int


class MessageSet(NamedTuple):
    """Consecutive messages of the same kind.

    Attributes:
        records: as on the wire: inside a compressed message offsets can be relative, and the values of
            compressed messages are still compressed.
        end: position after the last one.
        bad_crcs: the messages with a wrong CRC. They are among the records.
        fault: why decoding stopped. None if another kind of entry follows, or the end.
    """

    records: list[Record]
    end: int
    bad_crcs: list[BadCrc]
    fault: DecodeError | None


def read_messages(data: bytes, pos: int, end: int, max_messages: int) -> MessageSet:
    """Decode messages of magic 0 or 1 with the same magic and attributes as the first. Never raises.

    Stops before a message that extends past ``end``.

    Args:
        data: contains them from ``pos`` to ``end``.
        pos: of the first one. At least 18 bytes of it are there.
        end: of the set.
        max_messages: to read.
    """
    records: list[Record] = []
    bad_crcs: list[BadCrc] = []
    fault: DecodeError | None = None
    kind = data[pos + _CRC_FROM] << 8 | data[pos + _CRC_FROM + 1]
    head = _HEADS[kind >> 8]
    unpack: Callable[[bytes, int], tuple[int, ...]] = head.unpack_from
    shortest = head.size
    timestamp_ms = None
    try:
        for _ in range(max_messages):
            if end - pos < shortest:
                break
            if kind > 0xFF:
                offset, size, crc, kind_here, timestamp_ms, length, next_length = unpack(data, pos)
            else:
                offset, size, crc, kind_here, length, next_length = unpack(data, pos)
            if kind_here != kind:
                break
            stop = pos + _LOG_OVERHEAD + size
            if stop > end:
                break
            at = pos + shortest
            if stop < at:
                raise Malformed(f"a message of {size} bytes", pos=pos)
            if length == -1:
                key = None
                length = next_length
            else:
                at -= _LENGTH_BYTES
                key = data[at : (at := at + length)]
                (length,) = _length(data, at)
                at += _LENGTH_BYTES
            value = None if length == -1 else data[at : (at := at + length)]
            if at != stop:
                raise Malformed("key and value of a message do not fit its size", pos=pos)
            if (computed := crc32(data[pos + _CRC_FROM : stop])) != crc:
                bad_crcs.append(BadCrc(len(records), pos, crc, computed))
            records.append(_new(Record, (offset, timestamp_ms, key, value, ())))
            pos = stop
    except DecodeError as malformed:
        fault = malformed
    except error:
        fault = Malformed("a message is truncated", pos=pos)
    return _new(MessageSet, (records, pos, bad_crcs, fault))


def message_parts(
    data: bytes, pos: int, end: int, max_messages: int
) -> Generator[list[Record], None, tuple[int, list[BadCrc], DecodeError | None]]:
    """The same in parts: yields up to ``MESSAGES`` records at a time, returns the rest of a
    ``MessageSet``.
    """
    kind = data[pos + _CRC_FROM : pos + _CRC_FROM + 2]
    bad_crcs: list[BadCrc] = []
    number = 0
    fault: DecodeError | None = None
    while max_messages and not fault and data[pos + _CRC_FROM : min(pos + _CRC_FROM + 2, end)] == kind:
        records, pos, bad, fault = read_messages(data, pos, end, min(max_messages, MESSAGES))
        add_bad_crcs(bad_crcs, bad, number)
        if not records:
            break
        number += len(records)
        max_messages -= len(records)
        yield records
    return pos, bad_crcs, fault


def add_bad_crcs(known: list[BadCrc], more: Iterable[BadCrc], before: int) -> None:
    """Add those of the next messages, up to ``MAX_BAD_CRCS`` in all. ``before``: number of those before."""
    room = MAX_BAD_CRCS - len(known)
    known += (each._replace(number=before + each.number) for each in islice(more, room))


def end_of_message(data: bytes, pos: int) -> int:
    """The end of a message.

    Raises:
        IndexError: fewer bytes than a message header can have.
        Malformed: its size is too small.
    """
    if len(data) - pos < _HEADS[1].size:
        raise IndexError
    (size,) = _size(data, pos)
    if size < _MIN_SIZE:
        raise Malformed(f"a message of {size} bytes", pos=pos)
    return int(pos + _LOG_OVERHEAD + size)
