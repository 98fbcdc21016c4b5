"""Messages of magic 0 and 1 -> Record values. Holds the records.

    message   offset int64 | size int32 | crc int32 | magic int8 | attributes int8 | [timestamp int64] |
              key length int32 | key | value length int32 | value

The timestamp is magic 1's; ``size`` counts from the crc, which is the CRC-32 of what follows it (protocol
guide, "Message sets"; KIP-32). A set has no header: messages stand one behind the other, on the wire or
inside the value of a compressed message.
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from kdissect.errors import DecodeError, Malformed
from kdissect.kafka.recordbatch import Record

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG_OVERHEAD = 12  # offset and size, which size does not count
_CRC_FROM = 16
# Magic -> all up to the key, its length, and the least that size can be.
_HEADS = ((Struct(">qiI2xi"), 14), (Struct(">qiI2xqi"), 22))
_LENGTH = Struct(">i")


class MessageSet(NamedTuple):
    """Messages of one kind that stand together.

    Attributes:
        records: as they say themselves: inside a compressed message offsets may be relative, and values of
            compressed messages are as on the wire.
        end: position behind the last one.
        bad_crcs: positions of those whose CRC does not hold; they are shown like the others.
        fault: why there are no more, None when another kind of entry follows, or the end.
    """

    records: list[Record]
    end: int
    bad_crcs: list[int]
    fault: DecodeError | None


def read_messages(data: bytes, pos: int, end: int, most: int) -> MessageSet:
    """Read messages of magic 0 or 1, those with the same magic and attributes as the first; never raises.

    A last one that does not lie wholly before ``end`` is left where it is.

    Args:
        data: holds them from ``pos`` to ``end``.
        pos: where the first one begins, of which at least 18 bytes are there.
        end: of the set.
        most: messages to read.
    """
    records: list[Record] = []
    bad_crcs: list[int] = []
    fault: DecodeError | None = None
    add, new, record = records.append, tuple.__new__, Record
    length_at = _LENGTH.unpack_from
    kind = data[pos + 16 : pos + 18]
    head, least = _HEADS[kind[0]]
    unpack: Callable[[bytes, int], tuple[int, ...]] = head.unpack_from
    head_bytes, shortest = head.size, _LOG_OVERHEAD + least
    timestamp_ms = None
    try:
        while len(records) < most and end - pos >= shortest and data[pos + 16 : pos + 18] == kind:
            if kind[0]:
                offset, size, crc, timestamp_ms, length = unpack(data, pos)
            else:
                offset, size, crc, length = unpack(data, pos)
            if size < least:
                raise Malformed(f"a message of {size} bytes", pos=pos)
            stop = pos + _LOG_OVERHEAD + size
            if stop > end:
                break
            at = pos + head_bytes
            key = None if length == -1 else data[at : (at := at + length)]
            (length,) = length_at(data, at)
            at += 4
            value = None if length == -1 else data[at : (at := at + length)]
            if at != stop:
                raise Malformed("key and value of a message do not fit its size", pos=pos)
            if crc32(data[pos + _CRC_FROM : stop]) != crc:
                bad_crcs.append(pos)
            add(new(record, (offset, timestamp_ms, key, value, ())))
            pos = stop
    except DecodeError as malformed:
        fault = malformed
    except error:
        fault = Malformed("a message ends early", pos=pos)
    return new(MessageSet, (records, pos, bad_crcs, fault))
