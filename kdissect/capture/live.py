"""A network interface -> its packets, live. Scapy compiles the filter, but dissects nothing. Linux only.

The kernel filters packets and counts those that it has to drop. Packets of an interface with Ethernet or IP
frames are taken unchanged; packets of other interfaces, and of all together (``any``), get a cooked header
(LINKTYPE_LINUX_SLL2). A packet that a machine sends to itself reaches the socket twice; one copy is ignored.

The kernel writes packets into memory that is mapped here (ring.py), so that taking one needs no system call.

Memory: the ring, and a buffer for one packet.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket
import struct
import sys
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from kdissect.capture.ring import COOKED, ETHERNET, IP, SLOT_BYTES, PacketRing
from kdissect.capture.source import InterfaceStatistics
from kdissect.errors import CaptureError
from kdissect.limits import KIB, MIB
from kdissect.model import Interface

if TYPE_CHECKING:
    from kdissect.model import Packet

ANY = "any"
DEFAULT_FILTER = "tcp"
DEFAULT_BUFFER_BYTES = 16 * MIB
DEFAULT_SNAPLEN = 256 * KIB  # longer than any packet, and tcpdump's default

_WITH_ETHERNET = frozenset((1, 772))  # ARPHRD_ETHER, ARPHRD_LOOPBACK
_WITHOUT_HEADER = frozenset((519, 768, 769, 776, 65534))  # ARPHRD_RAWIP, TUNNEL, TUNNEL6, SIT, NONE
_DLT_ETHERNET, _DLT_IP = 1, 12

# From linux/if_packet.h, asm/socket.h, linux/if.h: not in Python's socket module.
_SOL_PACKET, _RING, _STATISTICS, _COPY_THRESHOLD, _VERSION = 263, 5, 6, 7, 10
_TPACKET_V2 = 1
_SO_RCVBUFFORCE, _SO_ATTACH_FILTER, _SO_TIMESTAMPNS = 33, 26, 35
_EVERY_PROTOCOL = 3
_ADD_MEMBERSHIP, _PROMISCUOUS = 1, 1
_SIOCGIFFLAGS, _SIOCGIFHWADDR = 0x8913, 0x8927
_UP, _LOOPBACK = 0x1, 0x8
_DOWN = frozenset((errno.ENETDOWN, errno.ENODEV, errno.ENXIO))

_RING_BLOCK_BYTES = 64 * KIB  # what the kernel allocates at a time: a multiple of any page


class CaptureSettings(NamedTuple):
    """What to capture.

    Attributes:
        names: interfaces, or ``any``.
        filter: in tcpdump's syntax; empty: everything.
        snaplen: most bytes kept of each packet.
        buffer_bytes: size of the kernel's buffer for each interface.
        promiscuous: whether to capture packets addressed to other machines.
        user: to switch to once the interfaces are open; None: the user who ran sudo.
    """

    names: tuple[str, ...]
    filter: str = DEFAULT_FILTER
    snaplen: int = DEFAULT_SNAPLEN
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    promiscuous: bool = True
    user: str | None = None


class InterfaceInfo(NamedTuple):
    """An interface of this machine."""

    name: str
    is_up: bool
    addresses: tuple[str, ...]


class InterfaceDown(Exception):
    """An interface is down: it must be opened again when it is up."""


class PacketSocket:
    """A socket that captures the packets of an interface. Opening it needs privileges, ``attach`` needs none.

    Args:
        name: of the interface, or ``any``.
        number: index among the captured interfaces, from 0.
        settings: what to capture.

    Attributes:
        interface: the ``Packet.interface`` of its packets.
        notes: how the capture differs from the settings, as sentences.

    Raises:
        CaptureError: the interface cannot be captured.
    """

    def __init__(self, name: str, number: int, settings: CaptureSettings) -> None:
        self.notes: list[str] = []
        self._name, self._promiscuous = name, settings.promiscuous and name != ANY
        link_type = _link_type(name)
        try:
            self._socket = self._open(settings, link_type)
        except PermissionError:
            raise CaptureError(_not_permitted(name)) from None
        except OSError as error:
            raise _failed(name, error) from None
        snaplen = settings.snaplen if settings.snaplen < DEFAULT_SNAPLEN else 0
        self.interface = Interface(name, number, link_type, snaplen, name)
        self._ring = PacketRing(self._slots, self.interface, settings.snaplen, self._receive)
        self._buffer = memoryview(bytearray(settings.snaplen))
        self._is_down = False
        self._accepted = self._dropped = 0

    def attach(self) -> None:
        """Start capturing; also after the interface was down, or removed and created again.

        Raises:
            WentDown: the interface is down.
            CaptureError: it cannot be captured.
        """
        name = self._name
        if not is_up(name):
            raise InterfaceDown
        if _link_type(name) != self.interface.link_type:
            raise CaptureError(f"{name} is now a different kind of interface; restart kdissect to capture it")
        try:
            index = 0 if name == ANY else socket.if_nametoindex(name)
            _bind(self._socket, index)
            if self._promiscuous:
                membership = struct.pack("=IHH8x", index, _PROMISCUOUS, 0)
                self._socket.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, membership)
        except OSError as error:
            if error.errno in _DOWN:
                raise InterfaceDown from None
            raise _failed(name, error) from None

    def fileno(self) -> int:
        """File descriptor to poll for packets."""
        return self._socket.fileno()

    def close(self) -> None:
        self._ring.close()
        self._slots.close()
        self._socket.close()

    def take(self, limit: int) -> list[Packet]:
        """Packets that have arrived, at most ``limit``; see ``PacketRing``.

        Raises:
            WentDown: the interface is down, and all packets from before that have been taken.
        """
        packets = list(self._ring.take(limit))
        if not packets:
            self._check_up()
        return packets

    def take_encoded(self, limit: int, number: int) -> tuple[bytes, int]:
        """The same as blocks of a pcapng file; see ``PacketRing``.

        Raises:
            WentDown: as above.
        """
        blocks, count = self._ring.take_encoded(limit, number)
        if not count:
            self._check_up()
        return blocks, count

    def statistics(self) -> InterfaceStatistics:
        """How many packets the filter accepted, and how many of them the kernel dropped."""
        accepted, dropped = struct.unpack("2I", self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 8))
        self._accepted += accepted
        self._dropped += dropped
        return InterfaceStatistics(None, None, self._dropped + self._ring.lost, self._accepted)

    def _open(self, settings: CaptureSettings, link_type: int) -> socket.socket:
        """Open the socket. It captures nothing before it is bound, thus nothing that the filter rejects."""
        kind = socket.SOCK_DGRAM if link_type == COOKED else socket.SOCK_RAW
        opened = socket.socket(socket.AF_PACKET, kind, 0)
        try:
            opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)  # when they arrive
            _attach_filter(opened, self._program(settings, link_type))
            self._enlarge(opened, settings.buffer_bytes)
            opened.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V2)
            opened.setsockopt(_SOL_PACKET, _COPY_THRESHOLD, 1)
            blocks = max(1, settings.buffer_bytes // _RING_BLOCK_BYTES)
            size = blocks * _RING_BLOCK_BYTES
            ring = struct.pack("=4I", _RING_BLOCK_BYTES, blocks, SLOT_BYTES, size // SLOT_BYTES)
            opened.setsockopt(_SOL_PACKET, _RING, ring)
            self._slots = mmap.mmap(opened.fileno(), size)
        except BaseException:
            opened.close()
            raise
        return opened

    def _program(self, settings: CaptureSettings, link_type: int) -> list[_Instruction]:
        # The filter sees packets before they get a cooked header: they begin with IP.
        dlt = _DLT_ETHERNET if link_type == ETHERNET else _DLT_IP
        try:
            program = _compiled(settings.filter, dlt, settings.snaplen)
        except ImportError:
            if settings.filter != DEFAULT_FILTER:
                raise CaptureError(
                    '-f needs libpcap (Debian: libpcap0.8); -f "" captures everything'
                ) from None
            self.notes.append("libpcap not found: capturing everything, not only TCP")
            program = _compiled("", dlt, settings.snaplen)
        return [*_without_echo(), *program]

    def _enlarge(self, opened: socket.socket, buffer_bytes: int) -> None:
        try:
            opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer_bytes)
        except PermissionError:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
            got = opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2  # Linux doubles it
            if got < buffer_bytes:
                self.notes.append(
                    f"the kernel's buffer is {got // KIB} KiB instead of {buffer_bytes // KIB}: "
                    "net.core.rmem_max limits it without cap_net_admin"
                )

    def _receive(self) -> bytes:
        """The next packet in the socket's buffer."""
        while True:
            try:
                size = self._socket.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
            except OSError as error:  # reported once; the packet is still there
                if error.errno not in _DOWN:
                    raise
                self._is_down = True
            else:
                return bytes(self._buffer[:size])

    def _check_up(self) -> None:
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if self._is_down or number in _DOWN:
            self._is_down = False
            raise InterfaceDown
        if number:
            raise OSError(number, os.strerror(number))


def listed() -> list[InterfaceInfo]:
    """The interfaces of this machine, with their addresses."""
    _load_scapy()
    from scapy.config import conf

    interfaces = sorted(conf.ifaces.values(), key=lambda each: each.index)
    return [
        InterfaceInfo(each.name, bool(int(each.flags) & _UP), tuple(chain.from_iterable(each.ips.values())))
        for each in interfaces
    ]


def check_names(names: tuple[str, ...]) -> None:
    """Check that the interfaces exist.

    Raises:
        CaptureError: one does not, or this is not Linux.
    """
    if not sys.platform.startswith("linux"):
        raise CaptureError("-i requires Linux; elsewhere: tcpdump -i IFACE -U -w - | kdissect live -")
    for name in names:
        if not is_there(name):
            known = [known for _, known in socket.if_nameindex()]
            raise CaptureError(f"no interface {name}; available: {', '.join((*known, ANY))}")


def is_there(name: str) -> bool:
    """Whether an interface exists, up or down."""
    return name == ANY or any(name == known for _, known in socket.if_nameindex())


def is_up(name: str) -> bool:
    return name == ANY or bool(_of_interface(name, _SIOCGIFFLAGS) & _UP)


def _of_interface(name: str, request: int) -> int:
    """A number that the kernel knows about an interface; 0 if there is no such interface."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            reply = fcntl.ioctl(any_socket, request, struct.pack("16s24x", name.encode()))
        except OSError:
            return 0
    return int.from_bytes(reply[16:18], sys.byteorder)


def _not_permitted(name: str) -> str:
    python = os.path.realpath(sys.executable)
    return (
        f"{name}: capturing needs root, or run once: setcap cap_net_raw,cap_net_admin=eip {python}; or use a "
        f"pipe: tcpdump -i {name} -U -w - | kdissect live -"
    )


def _failed(name: str, error: OSError) -> CaptureError:
    return CaptureError(f"{name}: {(error.strerror or str(error)).lower()}")


def _link_type(name: str) -> int:
    if name == ANY:
        return COOKED
    hardware = _of_interface(name, _SIOCGIFHWADDR)
    if hardware in _WITH_ETHERNET:
        return ETHERNET
    return IP if hardware in _WITHOUT_HEADER else COOKED


# Scapy


def _load_scapy() -> None:
    """Load scapy, without its warnings and without reading the routing table."""
    import logging
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("scapy").setLevel(logging.CRITICAL)
        from scapy.config import conf

        conf.route_autoload = conf.route6_autoload = False
        import scapy.arch.linux  # noqa: F401


def _bind(to: socket.socket, index: int) -> None:
    """Let an interface's packets arrive; index 0: those of all interfaces, which Python cannot bind to."""
    import ctypes

    address = struct.pack("=HHiHBB8x", socket.AF_PACKET, socket.htons(_EVERY_PROTOCOL), index, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).bind(to.fileno(), address, len(address)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# Filters: programs of classic BPF, which the kernel runs

_Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, constant."""

_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_PACKET_TYPE, _INTERFACE_INDEX = 0xFFFFF004, 0xFFFFF008  # addresses of packet metadata (SKF_AD_OFF)
_OUTGOING = 4


def _compiled(text: str, dlt: int, snaplen: int) -> list[_Instruction]:
    """Compile a filter with libpcap, through scapy's bindings. Scapy's own function would truncate packets at
    65,535 bytes, which packets on a loopback interface exceed by their Ethernet header.

    Raises:
        ImportError: libpcap is not installed.
        CaptureError: invalid filter.
    """
    if not text.strip():
        return [(_RETURN, 0, 0, snaplen)]
    from ctypes import byref

    _load_scapy()
    try:
        from scapy.libs import winpcapy as pcap
        from scapy.libs.structures import bpf_program
    except OSError as error:
        raise ImportError(str(error)) from None
    handle = pcap.pcap_open_dead(dlt, snaplen)
    program = bpf_program()
    try:
        if pcap.pcap_compile(handle, byref(program), text.encode(), 1, -1):
            fault = bytearray(pcap.pcap_geterr(handle)).rstrip(b"\0").decode("utf-8", "backslashreplace")
            raise CaptureError(f'-f "{text}": {fault}')
        code = [program.bf_insns[place] for place in range(program.bf_len)]
        instructions = [(each.code, each.jt, each.jf, each.k) for each in code]
        pcap.pcap_freecode(byref(program))
    finally:
        pcap.pcap_close(handle)
    return instructions


def _without_echo() -> list[_Instruction]:
    """Instructions that drop outgoing packets of a loopback interface: each of them is captured again when
    it arrives.
    """
    own = [index for index, name in socket.if_nameindex() if _of_interface(name, _SIOCGIFFLAGS) & _LOOPBACK]
    if len(own) != 1:
        return []
    return [
        (_LOAD, 0, 0, _PACKET_TYPE),
        (_JUMP_IF_EQUAL, 0, 3, _OUTGOING),
        (_LOAD, 0, 0, _INTERFACE_INDEX),
        (_JUMP_IF_EQUAL, 0, 1, own[0]),
        (_RETURN, 0, 0, 0),
    ]


def _attach_filter(to: socket.socket, program: list[_Instruction]) -> None:
    from ctypes import addressof, create_string_buffer

    code = create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in program))
    to.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(program), addressof(code)))
