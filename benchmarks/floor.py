"""The minimum that any tool must do with a capture of traffic.py, as a lower bound for kdissect.

    python benchmarks/floor.py FILE

Maps the file into memory, walks its packets, joins the payloads of each direction into frames, and verifies
and decompresses every record batch with the libraries that kdissect uses. Prints two numbers: exchanges, and
records according to the batches. It ignores link types, lost packets, order, versions and fields, and reads
only what traffic.py writes: Ethernet, IPv4, TCP with 20 bytes of options, in order.
"""

from __future__ import annotations

import mmap
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import lz4.frame
import zstandard
from crc32c import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PACKET = struct.Struct("<8x2I")
_TCP = 14 + 20 + 32  # where the payload begins, in a packet
_ENDS = slice(26, 38)  # both addresses and both ports
_FIRST_PACKET = 24

_PRODUCE_8, _FETCH_11 = (0, 8), (1, 11)
_LZ4, _ZSTD = 3, 4


def text_end(data: bytes, at: int) -> int:
    """The position after a string: an int16 length (-1: null) and its bytes."""
    return at + 2 + max(0, int.from_bytes(data[at : at + 2], "big", signed=True))


def batches_of(request: tuple[int, int] | None, data: bytes) -> Iterator[bytes]:
    """The batch of a Produce request, or the batch of each partition of a Fetch response."""
    if request == _PRODUCE_8:
        at = text_end(data, text_end(data, 8)) + 6 + 4  # client ID, transactional ID, acks, timeout; topics
        at = text_end(data, at) + 4 + 4  # partitions, index
        yield data[at + 4 : at + 4 + int.from_bytes(data[at : at + 4], "big")]
    elif request == _FETCH_11:
        at = text_end(data, 4 + 4 + 2 + 4 + 4) + 4  # the one topic, partitions
        for _ in range(int.from_bytes(data[at - 4 : at], "big")):
            at += 4 + 2 + 3 * 8  # index, error, three offsets
            at += 4 + 16 * max(0, int.from_bytes(data[at : at + 4], "big", signed=True)) + 4
            size = int.from_bytes(data[at : at + 4], "big")
            yield data[at + 4 : at + 4 + size]
            at += 4 + size


def open_batch(batch: bytes) -> int:
    """Verify the checksum and decompress; return the number of records."""
    view = memoryview(batch)
    if crc32c(view[21:]) != int.from_bytes(view[17:21], "big"):
        raise SystemExit("a batch has another checksum")
    codec = batch[22] & 7
    if codec == _LZ4:
        lz4.frame.decompress(view[61:])
    elif codec == _ZSTD:
        zstandard.ZstdDecompressor().decompressobj().decompress(view[61:])
    elif codec:
        raise SystemExit(f"codec {codec} is not for the floor")
    return int.from_bytes(view[57:61], "big")


def walk(data: mmap.mmap) -> tuple[int, int]:
    """The numbers of exchanges and records."""
    waiting: dict[bytes, list[bytes]] = {}
    sizes: dict[bytes, list[int]] = {}
    requests: dict[tuple[bytes, bytes], tuple[int, int]] = {}
    exchanges = records = 0
    at, end = _FIRST_PACKET, len(data)
    unpack = _PACKET.unpack_from
    while at < end:
        size = unpack(data, at)[0]
        start, at = at + 16 + _TCP, at + 16 + size
        if start == at:
            continue
        head = start - _TCP
        ends = data[head + _ENDS.start : head + _ENDS.stop]
        payload = data[start:at]
        if ends not in sizes:
            sizes[ends], waiting[ends] = [0, 0], []
        of_frame = sizes[ends]  # bytes announced, bytes there
        if not of_frame[0]:
            of_frame[0] = 4 + int.from_bytes(payload[:4], "big")
        of_frame[1] += len(payload)
        waiting[ends].append(payload)
        if of_frame[1] < of_frame[0]:
            continue
        frame = b"".join(waiting[ends])[4:]
        batches: Iterable[bytes]
        waiting[ends].clear()
        of_frame[0] = of_frame[1] = 0
        if ends[10:12] == b"\x23\x84":  # to port 9092: a request
            key, version = struct.unpack_from(">hh", frame)
            requests[ends, frame[4:8]] = (key, version)
            batches = batches_of((key, version), frame) if key == _PRODUCE_8[0] else ()
        else:
            back = ends[4:8] + ends[:4] + ends[10:12] + ends[8:10]
            request = requests.pop((back, frame[:4]))
            exchanges += 1
            batches = batches_of(request, frame) if request == _FETCH_11 else ()
        for batch in batches:
            records += open_batch(batch)
    return exchanges, records


def main(path: str) -> int:
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        print(*walk(data))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
