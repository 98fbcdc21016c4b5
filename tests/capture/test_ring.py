from __future__ import annotations

import io
import struct
from collections import deque
from random import Random

import pytest
from hypothesis import settings

from kdissect import core
from kdissect.capture.reader import open_capture
from kdissect.capture.ring import (
    COOKED,
    ETHERNET,
    IN_BUFFER,
    IP,
    LINK_ADDRESS_AT,
    OURS,
    SLOT_BYTES,
    VLAN_TPID_VALID,
    VLAN_VALID,
    PacketRing,
)
from kdissect.capture.write import PcapngWriter
from kdissect.model import Interface, Packet
from tests.core import needs_core, without_core

SLOTS = 8
FIRST_BYTE = 82  # of a packet in its slot
ROOM = SLOT_BYTES - FIRST_BYTE
SECOND = 1_700_000_000


class Kernel:
    """What the kernel does: fills slots in turn, and the buffer with what does not fit."""

    def __init__(self, snaplen: int = 262_144, most_buffered: int = 100) -> None:
        self.slots = bytearray(SLOTS * SLOT_BYTES)
        self.buffered: deque[bytes] = deque()
        self._snaplen, self._most_buffered = snaplen, most_buffered
        self._next = self._time_ns = 0

    def write(
        self, data: bytes, status: int = OURS, tag: tuple[int, int] = (0, 0), address: bytes = b""
    ) -> bool:
        """Whether there is room for a packet."""
        pos = self._next * SLOT_BYTES
        if self.slots[pos]:
            return False
        size = min(len(data), self._snaplen)
        if size > ROOM:
            if len(self.buffered) < self._most_buffered:
                self.buffered.append(data[:size])
                status |= IN_BUFFER
            size = ROOM
        self._time_ns += 1
        head = struct.pack("=3I2H2I2H", status, len(data), size, FIRST_BYTE, 0, SECOND, self._time_ns, *tag)
        self.slots[pos : pos + len(head)] = head
        place = pos + LINK_ADDRESS_AT
        self.slots[place : place + len(address)] = address
        self.slots[pos + FIRST_BYTE : pos + FIRST_BYTE + size] = data[:size]
        self._next = (self._next + 1) % SLOTS
        return True

    def ring(self, link_type: int = ETHERNET) -> PacketRing:
        interface = Interface("eth0", 0, link_type, 0, "eth0")
        return PacketRing(self.slots, interface, self._snaplen, self.buffered.popleft)


def encoded(ring: PacketRing, limit: int = 100, link_type: int = ETHERNET) -> list[Packet]:
    """Packets that are taken as blocks."""
    file = io.BytesIO()
    number = PcapngWriter(file).number_of(Interface("eth0", 0, link_type, 0, "eth0"))
    blocks, count = ring.take_encoded(limit, number)
    with open_capture(io.BytesIO(file.getvalue() + blocks)) as capture:
        packets = [packet._replace(number=0) for packet in capture]
    assert len(packets) == count
    return packets


def test_packets_come_in_order_and_their_slots_are_free_again() -> None:
    kernel = Kernel()
    ring = kernel.ring()
    for start in range(0, 30, SLOTS):
        sent = [bytes([number]) * (50 * (number + 1)) for number in range(start, start + SLOTS)]
        assert all(map(kernel.write, sent))
        assert not kernel.write(b"no room")
        packets = list(ring.take(3)) + encoded(ring)
        assert [packet.data for packet in packets] == sent
        assert [packet.length for packet in packets] == list(map(len, sent))
        assert packets[-1].time_ns == SECOND * 1_000_000_000 + start + SLOTS
    assert ring.lost == 0


def test_what_fits_neither_slot_nor_buffer_is_counted() -> None:
    kernel = Kernel(most_buffered=1)
    ring = kernel.ring()
    for size in (ROOM, ROOM + 1, ROOM + 2, 10):
        kernel.write(bytes(size))
    assert [packet.length for packet in encoded(ring)] == [ROOM, ROOM + 1, 10]
    assert ring.lost == 1


@pytest.mark.skipif(not core.is_used, reason="Python receives them one by one")
def test_a_bounded_number_of_bytes_is_received_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdissect.capture.ring._MAX_BYTES", 1000)
    kernel = Kernel()
    ring = kernel.ring()
    sent = [bytes([number]) * 600 for number in range(5)]
    assert all(map(kernel.write, sent))
    assert [packet.data for packet in encoded(ring)] == sent[:2]
    assert len(kernel.buffered) == 3
    assert [packet.data for packet in encoded(ring) + encoded(ring)] == sent[2:]


def test_a_snaplen_cuts() -> None:
    kernel = Kernel(snaplen=60)
    for size in (59, 60, 61):
        kernel.write(bytes(size))
    packets = encoded(kernel.ring())
    assert [(len(packet.data), packet.length) for packet in packets] == [(59, 59), (60, 60), (60, 61)]


def test_vlan_tags_are_put_back() -> None:
    kernel = Kernel()
    addresses, rest = bytes(range(12)), bytes(range(50, 90))
    kernel.write(addresses + rest, OURS | VLAN_VALID, (7, 0))
    kernel.write(addresses + rest, OURS | VLAN_VALID | VLAN_TPID_VALID, (7, 0x88A8))
    packets = encoded(kernel.ring())
    assert [packet.data for packet in packets] == [
        addresses + bytes.fromhex(protocol + "0007") + rest for protocol in ("8100", "88a8")
    ]
    assert [packet.length for packet in packets] == [56, 56]


def test_a_cooked_header_has_no_bytes_of_an_earlier_address() -> None:
    kernel = Kernel()
    address = struct.pack("=H2siHBB8s", 17, b"\x08\x00", 3, 1, 4, 6, b"abcdefgh")
    kernel.write(b"packet", address=address)
    (packet,) = encoded(kernel.ring(COOKED), link_type=COOKED)
    assert packet.data == bytes.fromhex("0800 0000 00000003 0001 04 06") + b"abcdef\0\0" + b"packet"
    assert packet.length == len(packet.data)


@needs_core
@pytest.mark.parametrize("link_type", [ETHERNET, IP, COOKED])
def test_the_core_takes_what_python_takes(link_type: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(link_type)
    for _ in range(2 * settings().max_examples):
        snaplen, most_buffered = random.choice([70, 300, 262_144]), random.randrange(3)
        kernels = Kernel(snaplen, most_buffered), Kernel(snaplen, most_buffered)
        rings = [kernel.ring(link_type) for kernel in kernels]
        for _ in range(3):
            for _ in range(random.randrange(1, SLOTS + 2)):
                data = random.randbytes(random.choice([1, 11, 14, 66, 200, ROOM, 600]))
                status = OURS | random.getrandbits(8) & ~IN_BUFFER
                tag = random.getrandbits(16), random.getrandbits(16)
                address = random.randbytes(20)
                for kernel in kernels:
                    kernel.write(data, status, tag, address)
            limit = random.randrange(1, 2 * SLOTS)
            blocks = rings[0].take_encoded(limit, 2)
            with without_core():
                assert rings[1].take_encoded(limit, 2) == blocks
            assert kernels[0].slots == kernels[1].slots
            assert rings[0].lost == rings[1].lost
