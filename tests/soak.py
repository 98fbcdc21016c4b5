"""Captures, replayed round and round as if time went on, into ``kdissect live -``: what memory that takes.

Each round is as long as the captures, later by that, with other client ports, and at its end every connection
is reset, as when its client ends. So an hour of traffic passes in a minute.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kdissect.capture.reader import open_capture
from tests.captures import pcap

if TYPE_CHECKING:
    from collections.abc import Sequence

SECOND_NS = 1_000_000_000
PCAP_HEADER, ETHERNET, IP = 24, 14, 20  # bytes
CLIENT_PORTS = range(32_768, 61_000)  # as Linux gives them; brokers of the samples have lower ones
STEP, SETS = 97, 4  # ports from one round to the next, and how many rounds until they are used again
RST_ACK = 0x14


class Sent(NamedTuple):
    """A packet of a round."""

    after_ns: int
    data: bytes
    client_port_at: int


class Rounds:
    """Round after round.

    Args:
        paths: captures of Ethernet and IPv4 without options.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.packets: list[Sent] = []
        self.length_ns = 0
        for path in paths:
            with open_capture(path) as capture:
                self._add([(packet.time_ns, packet.data) for packet in capture])

    def round(self, number: int) -> bytes:
        """One of them, from 0 on; the first begins as a file does."""
        start_ns = 1_700_000_000 * SECOND_NS + number * self.length_ns
        times = (start_ns + packet.after_ns for packet in self.packets)
        return pcap(zip(times, self.frames(number), strict=True))[PCAP_HEADER if number else 0 :]

    def frames(self, number: int) -> list[bytes]:
        """The packets of one of them, as they pass a network card."""
        return [_moved(data, at, number) for _, data, at in self.packets]

    def _add(self, packets: list[tuple[int, bytes]]) -> None:
        first_ns, last = packets[0][0], dict[bytes, bytes]()
        for time_ns, data in packets:
            ports = data[ETHERNET + IP : ETHERNET + IP + 4]
            is_from_client = struct.unpack(">2H", ports)[0] in CLIENT_PORTS
            if is_from_client:
                last[ports[:2]] = data
            after_ns = self.length_ns + time_ns - first_ns
            self.packets.append(Sent(after_ns, data, ETHERNET + IP + (0 if is_from_client else 2)))
        self.length_ns += packets[-1][0] - first_ns + SECOND_NS
        for data in last.values():
            self.packets.append(Sent(self.length_ns - SECOND_NS // 2, _reset(data), ETHERNET + IP))


def _moved(data: bytes, at: int, number: int) -> bytes:
    """The same packet on another port of the client."""
    (port,) = struct.unpack_from(">H", data, at)
    first, ports = CLIENT_PORTS[0], len(CLIENT_PORTS)
    return (
        data[:at] + struct.pack(">H", first + (port - first + number % SETS * STEP) % ports) + data[at + 2 :]
    )


def _reset(data: bytes) -> bytes:
    """What a client sends behind its last packet when it ends at once."""
    total, tcp = struct.unpack_from(">H", data, ETHERNET + 2)[0], ETHERNET + IP
    (sequence,) = struct.unpack_from(">I", data, tcp + 4)
    header = (data[tcp + 12] >> 4) * 4
    flags = data[tcp + 13]
    sequence += total - IP - header + (flags & 1) + (flags >> 1 & 1)
    reset = bytearray(data[: tcp + 20])
    struct.pack_into(">H", reset, ETHERNET + 2, IP + 20)
    struct.pack_into(">I", reset, tcp + 4, sequence & 0xFFFFFFFF)
    reset[tcp + 12 : tcp + 14] = bytes((0x50, RST_ACK))
    return bytes(reset)


def resident_kib(process: int) -> int:
    """Resident memory of a process now."""
    status = Path(f"/proc/{process}/status").read_text()
    match = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    assert match
    return int(match[1])


def children(process: int) -> list[int]:
    """The processes that it has started."""
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(number) for number in text.split()]


def drain(number: int, sizes: list[int]) -> None:
    """Read what somebody writes, to its end, and note how much comes."""
    try:
        while data := os.read(number, 1 << 16):
            sizes.append(len(data))
    except OSError:  # a terminal whose other side was closed
        return
