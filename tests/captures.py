"""Packets as (time in ns, link-layer bytes) -> the bytes of pcap and pcapng files, in every variant.

Shares no code with the readers and writers of kdissect.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

TimedBytes = tuple[int, bytes]

MICROSECONDS = 0xA1B2C3D4
NANOSECONDS = 0xA1B23C4D
MODIFIED = 0xA1B2CD34
SECOND_NS = 1_000_000_000


_PIPE_BYTES = 1 << 20  # largest capacity of a pipe


def full_pipe(path: Path) -> int:
    """The end to read of a pipe that holds the bytes of a file, as many as it can; the rest follows at once.
    While ``live`` waits, time passes, so its output would depend on how soon a writer begins.
    """
    receiving, sending = os.pipe()
    fcntl.fcntl(sending, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    data = path.read_bytes()
    os.write(sending, data[:_PIPE_BYTES])
    if rest := data[_PIPE_BYTES:]:
        threading.Thread(target=_write, args=(sending, rest), daemon=True).start()
    else:
        os.close(sending)
    return receiving


def _write(pipe: int, data: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(pipe, "wb") as file:
        file.write(data)


def open_in(directory: Path) -> int:
    """How many file descriptors this process has for files in a directory. How many it has at all may change
    meanwhile: those of earlier tests are closed when the collector comes to them.
    """
    own = {(status.st_dev, status.st_ino) for status in (path.stat() for path in directory.iterdir())}
    result = 0
    for number in os.listdir("/dev/fd"):  # noqa: PTH208
        with suppress(OSError):
            status = os.fstat(int(number))
            result += (status.st_dev, status.st_ino) in own
    return result


def pcap(
    packets: Iterable[TimedBytes],
    *,
    order: str = "<",
    magic: int = MICROSECONDS,
    link_type: int = 1,
    snaplen: int = 262144,
    version: tuple[int, int] = (2, 4),
    longer: int = 0,
) -> bytes:
    """A pcap file. ``longer`` is added to the length on the wire; ``snaplen`` does not cut packets."""
    out = [struct.pack(order + "IHHiIII", magic, *version, 0, 0, snaplen, link_type)]
    for time_ns, data in packets:
        seconds, rest = divmod(time_ns, SECOND_NS)
        ticks = rest if magic == NANOSECONDS else rest // 1000
        out.append(struct.pack(order + "4I", seconds, ticks, len(data), len(data) + longer))
        if magic == MODIFIED:
            out.append(struct.pack(order + "IHBB", 2, 0x0800, 0, 0))
        out.append(data)
    return b"".join(out)


def block(kind: int, body: bytes, *, order: str = "<") -> bytes:
    """A pcapng block of any type."""
    total = struct.pack(order + "I", 12 + len(body) + -len(body) % 4)
    return struct.pack(order + "I", kind) + total + body + bytes(-len(body) % 4) + total


def option(code: int, value: bytes, *, order: str = "<") -> bytes:
    """An option of a pcapng block; a list of them ends with ``option(0, b"")``."""
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(*, order: str = "<", version: tuple[int, int] = (1, 0)) -> bytes:
    """A section header block, its length unknown."""
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, *version, -1), order=order)


def interface(
    *,
    order: str = "<",
    link_type: int = 1,
    snaplen: int = 262144,
    resolution: int | None = None,
    offset: int | None = None,
    name: str | None = None,
) -> bytes:
    """An interface description block with the options that are given."""
    options = b""
    if name is not None:
        options += option(2, name.encode(), order=order)
    if resolution is not None:
        options += option(9, bytes([resolution]), order=order)
    if offset is not None:
        options += option(14, struct.pack(order + "q", offset), order=order)
    if options:
        options += option(0, b"", order=order)
    return block(1, struct.pack(order + "HHI", link_type, 0, snaplen) + options, order=order)


def enhanced(
    ticks: int, data: bytes, *, order: str = "<", index: int = 0, longer: int = 0, options: bytes = b""
) -> bytes:
    """An enhanced packet block, its time in the interface's ticks."""
    head = struct.pack(order + "5I", index, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data) + longer)
    return block(6, head + data + bytes(-len(data) % 4) + options, order=order)


def simple(data: bytes, *, order: str = "<", length: int | None = None) -> bytes:
    """A simple packet block; ``length`` on the wire where it is not that of the data."""
    return block(3, struct.pack(order + "I", len(data) if length is None else length) + data, order=order)


def obsolete(ticks: int, data: bytes, *, order: str = "<", index: int = 0) -> bytes:
    """An obsolete packet block."""
    head = struct.pack(order + "HH4I", index, 0, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data))
    return block(2, head + data, order=order)


def counters(
    *, order: str = "<", index: int = 0, received: int = 0, dropped: int = 0, dropped_by_system: int = 0
) -> bytes:
    """An interface statistics block."""
    options = b"".join(
        option(code, struct.pack(order + "Q", value), order=order)
        for code, value in ((4, received), (5, dropped), (7, dropped_by_system))
    )
    return block(
        5, struct.pack(order + "3I", index, 0, 0) + options + option(0, b"", order=order), order=order
    )


def pcapng(
    packets: Iterable[TimedBytes], *, order: str = "<", link_type: int = 1, nanoseconds: bool = False
) -> bytes:
    """A pcapng file of one section with one interface and enhanced packet blocks."""
    out = [
        section(order=order),
        interface(order=order, link_type=link_type, resolution=9 if nanoseconds else None),
    ]
    out += [enhanced(ns if nanoseconds else ns // 1000, data, order=order) for ns, data in packets]
    return b"".join(out)


def gzipped(data: bytes) -> bytes:
    """As ``gzip`` makes it, without a time."""
    return gzip.compress(data, mtime=0)


def zstd_compressed(data: bytes) -> bytes:
    """One frame that does not tell its size, as ``zstd`` makes it of a pipe."""
    import zstandard

    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


def lz4_compressed(data: bytes) -> bytes:
    """One lz4 frame."""
    import lz4.frame

    compressed: bytes = lz4.frame.compress(data)
    return compressed


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzipped,
    "zstd": zstd_compressed,
    "lz4": lz4_compressed,
}

EXAMPLE: Sequence[TimedBytes] = tuple(
    (1_700_000_000 * SECOND_NS + number * 1_001_000, bytes([number]) * (number * 7 % 61))
    for number in range(12)
)
"""A dozen small packets of whole microseconds, one of them empty, none of a protocol."""

VARIANTS: dict[str, Callable[[Iterable[TimedBytes]], bytes]] = {
    "pcap": pcap,
    "pcap big-endian": lambda packets: pcap(packets, order=">"),
    "pcap nanoseconds": lambda packets: pcap(packets, magic=NANOSECONDS),
    "pcap nanoseconds big-endian": lambda packets: pcap(packets, order=">", magic=NANOSECONDS),
    "pcap modified": lambda packets: pcap(packets, magic=MODIFIED),
    "pcapng": pcapng,
    "pcapng big-endian": lambda packets: pcapng(packets, order=">"),
    "pcapng nanoseconds": lambda packets: pcapng(packets, nanoseconds=True),
}
"""Every variant that can hold ``EXAMPLE`` exactly."""
