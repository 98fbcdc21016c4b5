"""Packets -> a pcapng file with nanosecond timestamps. Memory: the interfaces of the current section."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO

from kdissect.capture.pcapng import (
    ACCEPTED,
    APPLICATION,
    BYTE_ORDER_MAGIC,
    COMMENT,
    DELIVERED,
    DROPPED_BY_INTERFACE,
    DROPPED_BY_SYSTEM,
    ENHANCED_PACKET,
    INTERFACE,
    INTERFACE_NAME,
    INTERFACE_RESOLUTION,
    RECEIVED,
    SECRETS,
    SECTION,
    STATISTICS,
    TLS_KEY_LOG,
)
from kdissect.limits import DEFAULT

if TYPE_CHECKING:
    from kdissect.capture.source import InterfaceStatistics
    from kdissect.model import Interface, Packet

_DECIMAL_NANOSECONDS = b"\x09"
_LATEST_TICKS = (1 << 64) - 1
_OPTION_BYTES = 0xFFFF


class PcapngWriter:
    """Writes packets and the interfaces they were captured on. The caller closes the file.

    Args:
        file: to write to.
        application: name of the writing program, for the section header; empty: none.
        interfaces: most interfaces in a section; then another one begins, since readers have limits too.
    """

    def __init__(
        self, file: BinaryIO, application: str = "", *, interfaces: int = DEFAULT.interfaces
    ) -> None:
        self._file = file
        self._application = application
        self._max_interfaces = interfaces
        self._indexes: dict[Interface, int] = {}
        self._begin_section()

    def write(self, packet: Packet, comment: str = "") -> None:
        """Append a packet, preceded by its interface if this is its first packet."""
        self._file.write(packet_block(self.number_of(packet.interface), packet, comment))

    def number_of(self, interface: Interface) -> int:
        """Its number in the section, to which its packets refer. It is appended if it is new."""
        number = self._indexes.get(interface)
        return self._add_interface(interface) if number is None else number

    def add_key_log(self, lines: bytes) -> None:
        """Append a TLS key log, as a Decryption Secrets Block."""
        self._file.write(block(SECRETS, struct.pack("<II", TLS_KEY_LOG, len(lines)) + lines))

    def count(self, interface: Interface, statistics: InterfaceStatistics, time_ns: int) -> None:
        """Append the counters of an interface as of this time."""
        index = self.number_of(interface)
        codes = (RECEIVED, DROPPED_BY_INTERFACE, DROPPED_BY_SYSTEM, ACCEPTED, DELIVERED)
        options = [
            _option(code, struct.pack("<Q", counter))
            for code, counter in zip(codes, statistics, strict=True)
            if counter is not None
        ]
        head = struct.pack("<3I", index, *_ticks(time_ns))
        self._file.write(block(STATISTICS, head + b"".join(options) + bytes(4)))

    def _add_interface(self, interface: Interface) -> int:
        if len(self._indexes) >= self._max_interfaces:
            self._begin_section()
        index = self._indexes[interface] = len(self._indexes)
        self._file.write(_interface(interface))
        return index

    def _begin_section(self) -> None:
        """Begin a section without interfaces."""
        self._indexes.clear()
        body = struct.pack("<IHHq", BYTE_ORDER_MAGIC, 1, 0, -1)
        if self._application:
            body += _option(APPLICATION, self._application.encode()) + bytes(4)
        self._file.write(block(SECTION, body))


def packet_block(number: int, packet: Packet, comment: str = "") -> bytes:
    """An enhanced packet block. ``number``: of its interface."""
    high, low = _ticks(packet.time_ns)
    body = struct.pack("<5I", number, high, low, len(packet.data), packet.length) + packet.data
    if comment:
        text = comment.encode("utf-8", "backslashreplace")[:_OPTION_BYTES].decode(errors="ignore").encode()
        body += bytes(-len(body) % 4) + _option(COMMENT, text) + bytes(4)
    return block(ENHANCED_PACKET, body)


def block(kind: int, body: bytes) -> bytes:
    """A little-endian pcapng block."""
    padding = -len(body) % 4
    total = struct.pack("<I", 12 + len(body) + padding)
    return struct.pack("<I", kind) + total + body + bytes(padding) + total


def _ticks(time_ns: int) -> tuple[int, int]:
    """Nanoseconds in two halves. Times before 1970, which only a wrong clock has, become 0: the format could
    represent them only with an offset.
    """
    ticks = min(max(time_ns, 0), _LATEST_TICKS)
    return ticks >> 32, ticks & 0xFFFFFFFF


def _interface(interface: Interface) -> bytes:
    options = _option(INTERFACE_RESOLUTION, _DECIMAL_NANOSECONDS)
    if interface.name is not None:
        options += _option(INTERFACE_NAME, interface.name.encode("utf-8", "backslashreplace")[:_OPTION_BYTES])
    body = struct.pack("<HHI", interface.link_type & 0xFFFF, 0, interface.snaplen)
    return block(INTERFACE, body + options + bytes(4))


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)
