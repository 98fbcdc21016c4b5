"""Slots that the kernel fills with packets (packet_mmap(7), TPACKET_V2) -> packets, or pcapng blocks.

The status of a slot says whether it is the kernel's or ours; it is given back as soon as it is read. A packet
that does not fit its slot is in the socket's buffer, in order. Why slots, and not the blocks that others use:
docs/decisions/live-packets-come-in-slots.md. Memory: the slots, shared with the kernel, and a megabyte of
packets that did not fit.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kdissect import core
from kdissect.capture.write import packet_block
from kdissect.limits import MIB
from kdissect.model import Packet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from mmap import mmap

    from kdissect.model import Interface

SLOT_BYTES = 512  # the packets of small exchanges fit, and there are many slots
ETHERNET, IP, COOKED = 1, 101, 276  # LINKTYPE_ values
COOKED_BYTES = 20

# From linux/if_packet.h: status of a slot.
OURS, IN_BUFFER, VLAN_VALID, VLAN_TPID_VALID = 0x1, 0x2, 0x10, 0x40
LINK_ADDRESS_AT = 32

_DEFAULT_TPID = 0x8100
_MAX_BYTES = 1 * MIB  # encoded at a time, plus what Python takes
_USUAL = 128  # packets that the core takes at a time
_SLOT_WORDS = SLOT_BYTES // 4
_NO_STATUS = memoryview(bytes(4 * _USUAL)).cast("I")
_ODD = 16  # packets that Python takes before the core's next turn

_status = struct.Struct("=I").unpack_from  # read first: the kernel writes it last
_header = struct.Struct("=2I2H2I2H").unpack_from  # the rest of tpacket2_hdr
_link_address = struct.Struct("=2x2siHBB8s").unpack_from  # sockaddr_ll, which follows it
_cooked_header = struct.Struct(">2sHiHBB8s").pack


class PacketRing:
    """Takes packets from slots, in order.

    Args:
        slots: their memory.
        interface: of the packets. If its link type is LINKTYPE_LINUX_SLL2, they get that header.
        snaplen: most bytes kept of each packet.
        receive: returns the next packet in the socket's buffer.

    Attributes:
        lost: packets that did not fit their slot while the buffer was full. The kernel does not count them.
    """

    def __init__(
        self, slots: mmap | bytearray, interface: Interface, snaplen: int, receive: Callable[[], bytes]
    ) -> None:
        self.lost = 0
        self._interface, self._snaplen = interface, snaplen
        self._is_cooked = interface.link_type == COOKED
        self._may_be_tagged = interface.link_type == ETHERNET
        self._receive = receive
        self._received: list[bytes] = []  # from the buffer; their slots were not taken yet
        self._slots = slots
        self._words = memoryview(slots).cast("I")
        self._next = 0

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()

    def take(self, limit: int) -> Iterator[Packet]:
        """Packets that have arrived, at most ``limit``. Their number is 0: the reader of all interfaces
        numbers them.
        """
        slots = self._slots
        taken = 0
        while taken < limit:
            pos = self._next * SLOT_BYTES
            (status,) = _status(slots, pos)
            if not status & OURS:
                return
            length, size, start, _, seconds, rest_ns, tag, protocol = _header(slots, pos + 4)
            is_lost = False
            if status & IN_BUFFER:
                data = self._received.pop(0) if self._received else self._receive()
            else:
                data = bytes(slots[pos + start : pos + start + size])
                is_lost = size < min(length, self._snaplen)
            if self._is_cooked:
                data = self._cooked(pos) + data
                length += COOKED_BYTES
            slots[pos : pos + 4] = bytes(4)
            self._next = (self._next + 1) % (len(slots) // SLOT_BYTES)
            if is_lost:
                self.lost += 1
                continue
            if status & VLAN_VALID and self._may_be_tagged:  # the kernel removed the tag
                protocol = protocol if status & VLAN_TPID_VALID else _DEFAULT_TPID
                data = data[:12] + struct.pack(">2H", protocol, tag) + data[12:]
                length += 4
            taken += 1
            yield Packet(0, seconds * 1_000_000_000 + rest_ns, self._interface, data, length)

    def take_encoded(self, limit: int, number: int) -> tuple[bytes, int]:
        """The same packets as blocks of a pcapng file, and how many they are.

        Args:
            limit: of packets.
            number: of the interface in that file.
        """
        pieces: list[bytes] = []
        taken = size = 0
        while taken < limit and size < _MAX_BYTES:
            max_count = min(_USUAL, limit - taken)
            blocks, count, is_odd = self._take_usual(max_count, number)
            pieces.append(blocks)
            taken += count
            if is_odd:
                odd = [packet_block(number, packet) for packet in self.take(min(_ODD, limit - taken))]
                pieces += odd
                taken += len(odd)
                if not odd:
                    break
            elif not count or (count < max_count and self._next):  # at 0, the ring begins again
                break
            size = sum(map(len, pieces))
        return b"".join(pieces), taken

    def _take_usual(self, limit: int, number: int) -> tuple[bytes, int, bool]:
        """As ``take_encoded``, up to the first packet that the core leaves to Python; and whether there is
        one.
        """
        if not core.is_used:
            return b"", 0, True
        first = self._next
        last = min(first + limit, len(self._slots) // SLOT_BYTES)
        words = self._words[first * _SLOT_WORDS : last * _SLOT_WORDS : _SLOT_WORDS]
        statuses = words.tolist()
        # Only then are they copied: what is in a slot was written before its status.
        whole = next((n for n, status in enumerate(statuses) if not status & OURS), len(statuses))
        whole = self._receive_until(statuses[:whole])
        if not whole:
            return b"", 0, False
        form = self._snaplen, self._is_cooked, self._may_be_tagged, number
        slots = bytes(self._slots[first * SLOT_BYTES : (first + whole) * SLOT_BYTES])
        blocks, count = core.native.encode_slots(slots, SLOT_BYTES, self._received, form)
        words[:count] = _NO_STATUS[:count]
        del self._received[: sum(status & IN_BUFFER != 0 for status in statuses[:count])]
        self._next = (first + count) % (len(self._slots) // SLOT_BYTES)
        return blocks, count, count < whole

    def _receive_until(self, statuses: list[int]) -> int:
        """Receive the packets in the socket's buffer that belong to these slots. Returns how many slots that
        covers: not all if the packets exceed ``_MAX_BYTES``.
        """
        in_buffer = [place for place, status in enumerate(statuses) if status & IN_BUFFER]
        size = sum(map(len, self._received))
        for place in in_buffer[len(self._received) :]:
            if size >= _MAX_BYTES:
                return place
            self._received.append(self._receive())
            size += len(self._received[-1])
        return len(statuses)

    def _cooked(self, pos: int) -> bytes:
        """Header of the packet in a slot."""
        protocol, index, hardware, kind, size, address = _link_address(self._slots, pos + LINK_ADDRESS_AT)
        address = address[:size]  # what follows is of an earlier packet
        return _cooked_header(protocol, 0, index, hardware, kind, size, address)
