r"""The first bytes of a connection -> its PROXY headers, and the bytes after them.

A proxy or load balancer that opens a connection for a client says at its beginning who that client is
(HAProxy's proxy-protocol.txt, which names and numbers below come from), in a line of text or in binary:

    PROXY TCP4 198.51.100.7 203.0.113.1 51000 9092\r\n
    | signature 12 | version and command 1 | family 1 | length 2 | addresses | type 1, length 2, value | ...

``TCP6`` is IPv6; ``UNKNOWN``, the command LOCAL (a health check of the proxy) and addresses of UNIX sockets
name no client. Where proxies form a chain, several headers can follow each other; the last was written by the
proxy next to the client. Nothing proves what a header says: it is a claim of the end that connected.

Holds the bytes of an incomplete header, at most ``Limits.proxy_header_bytes``.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kdissect.errors import DecodeError
from kdissect.model import Data, Endpoint, Gap, Prefaced, Proxy
from kdissect.net.tcp import address_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits

_LINE = b"PROXY "
_LINE_BYTES = 107  # the longest with its CRLF: section 2.1
_LINE_PARTS = 6
_BINARY = b"\r\n\r\n\0\r\nQUIT\n"
_BINARY_HEAD = Struct(">12xBBH")  # section 2.2
_VERSION = 2
_LOCAL, _PROXY = 0, 1
_ADDRESSES = {0x00: 0, 0x11: 12, 0x12: 12, 0x21: 36, 0x22: 36, 0x31: 216, 0x32: 216}
"""Bytes of addresses by family: none, TCP and UDP over IPv4 and IPv6, UNIX streams and datagrams."""
_IPV4, _IPV6 = 12, 36
_ADDRESS_BYTES = {b"TCP4": 4, b"TCP6": 16}
_UNKNOWN = b"UNKNOWN"
_MAX_PORT = 0xFFFF

_VALUE = Struct(">BH")
_ALPN, _AUTHORITY, _CRC32C, _TLS, _AWS = 0x01, 0x02, 0x03, 0x20, 0xEA
_TLS_HEAD_BYTES = 5  # which certificates there were, and whether they were valid
_TLS_VERSION, _TLS_COMMON_NAME = 0x21, 0x22
_AWS_ENDPOINT_ID = 1  # the first byte of an AWS value
_CRC_BYTES = 4


class Header(NamedTuple):
    """What the next bytes are.

    Attributes:
        size: of the header; 0: the stream continues here.
        proxy: what it says; None if it is malformed, or there is none.
        fault: what is wrong with it.
    """

    size: int
    proxy: Proxy | None = None
    fault: str | None = None


class Preface:
    """The side of a connection that may begin with headers.

    Args:
        side: 0 or 1.
        limits: to respect.

    Attributes:
        proxy: what the headers so far say; None without one.
        fault: what is wrong with a header; the stream continues after it, or with it if its end is unknown.
        is_done: whether all that follows is passed on as it is.
    """

    __slots__ = ("_headers", "_held", "_limits", "_room", "fault", "is_done", "proxy", "side")

    def __init__(self, side: int, limits: Limits) -> None:
        self.side = side
        self._limits = limits
        self._held: Data | None = None
        self._headers = 0
        self._room = limits.proxy_header_bytes
        self.proxy: Proxy | None = None
        self.fault: str | None = None
        self.is_done = False

    @property
    def held(self) -> int:
        """Bytes held."""
        return 0 if self._held is None else len(self._held.payload)

    def feed(self, item: Data | Gap) -> list[Data | Gap | Prefaced]:
        """Process the next bytes. Returns headers, and the bytes that follow them, once it is known which."""
        if isinstance(item, Gap):
            return [*self.close(), item]
        if self._held is not None:
            item = item._replace(payload=self._held.payload + item.payload)
            self._held = None
        data, pos = item.payload, 0
        while pos < len(data) and not self.is_done:
            header = self._header(data[pos:])
            end = pos if header is None else pos + header.size
            if header is None or (header.fault is not None and end == len(data)):
                self._held = item._replace(payload=data[pos:])
                break
            self.is_done = not header.size or header.fault is not None
            self.proxy = _joined(self.proxy, header.proxy)
            self.fault = header.fault
            self._room -= header.size
            self._headers += 1
            pos = end
        out: list[Data | Gap | Prefaced] = [Prefaced(item._replace(payload=data[:pos]))] if pos else []
        if pos < len(data) and self.is_done:
            out.append(item._replace(payload=data[pos:]))
        return out

    def close(self) -> list[Data | Gap]:
        """No more bytes follow, or some are missing. Returns those that are held."""
        held, self._held, self.is_done = self._held, None, True
        if held is None:
            return []
        header = self._header(held.payload)
        self.fault = "incomplete" if header is None else header.fault
        if _is_prefix(held.payload, _LINE) or _is_prefix(held.payload, _BINARY):
            self.fault = None  # too few bytes to say that it is a header
        return [held]

    def _header(self, data: bytes) -> Header | None:
        header = read_header(data)
        if (len(data) if header is None else header.size) > self._room:
            return Header(0, fault=f"no end within {self._limits.proxy_header_bytes} bytes")
        if header is not None and header.size and self._headers == self._limits.proxy_headers:
            return Header(0, fault=f"more than {self._headers} headers")
        return header


def read_header(data: bytes) -> Header | None:
    """The header that begins here; None if more bytes are needed to tell."""
    if data.startswith(_LINE):
        return _read_line(data)
    if data.startswith(_BINARY):
        return _read_binary(data)
    return None if _is_prefix(data, _LINE) or _is_prefix(data, _BINARY) else Header(0)


def _is_prefix(data: bytes, signature: bytes) -> bool:
    return len(data) < len(signature) and signature.startswith(data)


def _joined(before: Proxy | None, proxy: Proxy | None) -> Proxy | None:
    """What two headers in a row say: the later one, and what only the earlier one has."""
    if before is None or proxy is None:
        return proxy or before
    return before._replace(**{name: value for name, value in proxy._asdict().items() if value is not None})


def _read_line(data: bytes) -> Header | None:
    line, ending, _ = data[:_LINE_BYTES].partition(b"\r\n")
    if not ending:
        return Header(0, fault="no end of line") if len(data) >= _LINE_BYTES else None
    try:
        return Header(len(line) + len(ending), Proxy(1, _client_in(line.split(b" "))))
    except DecodeError as error:
        return Header(len(line) + len(ending), fault=error.reason)


def _client_in(parts: list[bytes]) -> Endpoint | None:
    """The client that a line names.

    Raises:
        DecodeError: it is malformed.
    """
    if parts[1] == _UNKNOWN:
        return None
    size = _ADDRESS_BYTES.get(parts[1])
    if size is None or len(parts) != _LINE_PARTS:
        raise DecodeError("not a protocol, two addresses and two ports")
    _, _, source, destination, port, destination_port = parts
    client = _endpoint(source, port, size)
    _endpoint(destination, destination_port, size)
    return client


def _endpoint(address: bytes, port: bytes, size: int) -> Endpoint:
    from ipaddress import ip_address  # few captures need it

    if not port.isdigit() or int(port) > _MAX_PORT:
        raise DecodeError("invalid port")
    try:
        packed = ip_address(address.decode()).packed
    except ValueError:
        packed = b""
    if len(packed) != size:
        raise DecodeError("invalid address")
    return Endpoint(address_text(packed), int(port))


def _read_binary(data: bytes) -> Header | None:
    version = data[len(_BINARY)] >> 4 if len(data) > len(_BINARY) else _VERSION
    if version != _VERSION:
        return Header(0, fault=f"version {version}")
    if len(data) < _BINARY_HEAD.size:
        return None
    version_and_command, family, length = _BINARY_HEAD.unpack_from(data)
    size = _BINARY_HEAD.size + length
    if len(data) < size:
        return None
    try:
        return Header(size, _proxy_in(data[:size], version_and_command & 0x0F, family))
    except DecodeError as error:
        return Header(size, fault=error.reason)


def _proxy_in(header: bytes, command: int, family: int) -> Proxy:
    """What a binary header says.

    Raises:
        DecodeError: it is malformed.
    """
    if command == _LOCAL:
        return Proxy(_VERSION)
    if command != _PROXY:
        raise DecodeError(f"command {command}")
    if family not in _ADDRESSES:
        raise DecodeError(f"family 0x{family:02x}")
    start, size = _BINARY_HEAD.size, _ADDRESSES[family]
    if len(header) < start + size:
        raise DecodeError(f"{len(header) - start} bytes are too few for addresses of family 0x{family:02x}")
    client = None
    if size in (_IPV4, _IPV6):
        address = (size - 4) // 2  # two addresses, two ports
        port = int.from_bytes(header[start + 2 * address : start + 2 * address + 2], "big")
        client = Endpoint(address_text(header[start : start + address]), port)
    texts: dict[str, str] = {}
    for kind, pos, end in _values(header, start + size, len(header)):
        value = header[pos:end]
        if kind == _CRC32C:
            _verify(header, pos, end)
        elif kind == _ALPN:
            texts["alpn"] = _text(value)
        elif kind == _AUTHORITY:
            texts["server_name"] = _text(value)
        elif kind == _AWS and value[:1] == bytes((_AWS_ENDPOINT_ID,)):
            texts["aws_endpoint_id"] = _text(value[1:])
        elif kind == _TLS:
            for inner, begin, stop in _values(header, pos + _TLS_HEAD_BYTES, end):
                if inner == _TLS_VERSION:
                    texts["tls_version"] = _text(header[begin:stop])
                elif inner == _TLS_COMMON_NAME:
                    texts["common_name"] = _text(header[begin:stop])
    return Proxy(_VERSION, client, **texts)


def _values(header: bytes, pos: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Type, start and end of each value between two positions.

    Raises:
        DecodeError: one of them does not end where it should.
    """
    while pos != end:
        if end - pos < _VALUE.size:
            raise DecodeError("a value is cut off")
        kind, length = _VALUE.unpack_from(header, pos)
        pos += _VALUE.size
        if end - pos < length:
            raise DecodeError(f"value 0x{kind:02x} of {length} bytes, {end - pos} are left")
        yield kind, pos, pos + length
        pos += length


def _verify(header: bytes, pos: int, end: int) -> None:
    from crc32c import crc32c  # few captures need it

    if end - pos != _CRC_BYTES:
        raise DecodeError(f"a checksum of {end - pos} bytes")
    stated = int.from_bytes(header[pos:end], "big")
    actual = crc32c(header[:pos] + bytes(_CRC_BYTES) + header[end:])
    if stated != actual:
        raise DecodeError(f"checksum 0x{stated:08x}, computed 0x{actual:08x}")


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")
