"""PROXY headers, from HAProxy's proxy-protocol.txt: whole and in pieces, alone and in rows, and damaged."""

from __future__ import annotations

from ipaddress import ip_address
from struct import pack
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c

from kdissect.limits import DEFAULT, Limits
from kdissect.model import Data, Endpoint, Gap, Prefaced, Proxy
from kdissect.net.preface import Preface
from tests.frames import LO

if TYPE_CHECKING:
    from collections.abc import Sequence

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
LINE = b"PROXY TCP4 198.51.100.7 203.0.113.1 51000 9092\r\n"
CLIENT = Endpoint("198.51.100.7", 51000)
V6 = Endpoint("2001:db8::7", 51000)
REQUEST = bytes(range(60))
LOCAL, PROXY = 0x20, 0x21
TCP4, UDP4, TCP6, UDP6, UNIX, UNIX_DATAGRAM = 0x11, 0x12, 0x21, 0x22, 0x31, 0x32


def value(kind: int, data: bytes) -> bytes:
    """A type-length-value of version 2."""
    return pack(">BH", kind, len(data)) + data


def binary(
    addresses: bytes | None = None,
    values: bytes = b"",
    *,
    command: int = PROXY,
    family: int = TCP4,
    length: int | None = None,
) -> bytes:
    """A header of version 2; ``length`` as the header is to tell it."""
    if addresses is None:
        ends = ("198.51.100.7", "203.0.113.1") if family < TCP6 else ("2001:db8::7", "2001:db8::1")
        addresses = b"".join(ip_address(each).packed for each in ends) + pack(">HH", 51000, 9092)
    rest = addresses + values
    return SIGNATURE + pack(">BBH", command, family, len(rest) if length is None else length) + rest


def with_checksum(values: bytes = b"", *, flaw: int = 0) -> bytes:
    """A header with a checksum of itself."""
    header = binary(values=values + value(3, bytes(4)))
    stated = crc32c(header) ^ flaw
    return header[:-4] + stated.to_bytes(4, "big")


def tls_value(*inner: bytes) -> bytes:
    return value(0x20, b"\x07" + bytes(4) + b"".join(inner))


ALL_VALUES = (
    value(2, b"broker-1.example.com")
    + value(4, bytes(7))
    + value(1, b"kafka")
    + value(5, b"unique")
    + tls_value(
        value(0x21, b"TLSv1.3"),
        value(0x22, "Zo\u00eb".encode()),
        value(0x23, b"TLS_AES_256_GCM_SHA384"),
        value(0x24, b"RSA-SHA256"),
        value(0x25, b"RSA2048"),
    )
    + value(0x30, b"namespace")
    + value(0xEA, b"\x01vpce-08d2bf15fac5001c9")
    + value(0xEE, b"\x01" + bytes(4))
)
STATED = Proxy(2, CLIENT, "broker-1.example.com", "kafka", "TLSv1.3", "Zo\u00eb", "vpce-08d2bf15fac5001c9")

GOOD = {
    "v1": (LINE, Proxy(1, CLIENT)),
    "v1 IPv6": (b"PROXY TCP6 2001:DB8:0::7 2001:db8::1 51000 9092\r\n", Proxy(1, V6)),
    "v1 longest": (b"PROXY TCP6 " + b" ".join([b":".join([b"ffff"] * 8)] * 2) + b" 65535 65535\r\n",
                   Proxy(1, Endpoint(":".join(["ffff"] * 8), 65535))),
    "v1 unknown": (b"PROXY UNKNOWN\r\n", Proxy(1)),
    "v1 unknown, more": (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", Proxy(1)),
    "v2": (binary(), Proxy(2, CLIENT)),
    "v2 UDP": (binary(family=UDP4), Proxy(2, CLIENT)),
    "v2 IPv6": (binary(family=TCP6), Proxy(2, V6)),
    "v2 UDP over IPv6": (binary(family=UDP6), Proxy(2, V6)),
    "v2 UNIX": (binary(b"/run/a.sock".ljust(216, b"\0"), family=UNIX), Proxy(2)),
    "v2 UNIX datagrams": (binary(bytes(216), family=UNIX_DATAGRAM), Proxy(2)),
    "v2 unspecified": (binary(b"", value(2, b"sni"), family=0), Proxy(2, server_name="sni")),
    "v2 local": (binary(b"", command=LOCAL, family=0), Proxy(2)),
    "v2 local, more": (binary(b"ignored", command=LOCAL, family=0x77), Proxy(2)),
    "v2 values": (binary(values=ALL_VALUES), STATED),
    "v2 checksum": (with_checksum(ALL_VALUES), STATED),
    "v2 not UTF-8": (binary(values=value(2, b"\xff")), Proxy(2, CLIENT, "\\xff")),
    "v2 of AWS, another subtype": (binary(values=value(0xEA, b"\x02id")), Proxy(2, CLIENT)),
    "v2 of AWS, empty": (binary(values=value(0xEA, b"")), Proxy(2, CLIENT)),
    "two": (binary(values=value(2, b"outer")) + LINE, Proxy(1, CLIENT, "outer")),
    "local after another": (LINE + binary(b"", command=LOCAL, family=0), Proxy(2, CLIENT)),
    "eight": (LINE * 7 + binary(), Proxy(2, CLIENT)),
    "4 KiB": (binary(values=value(4, bytes(4096 - 28 - 3))), Proxy(2, CLIENT)),
}  # fmt: skip

REMOVED = {
    "v1 protocol": (b"PROXY TCP5 1.2.3.4 1.2.3.5 1 2\r\n", "not a protocol, two addresses and two ports"),
    "v1 too few": (b"PROXY TCP4 1.2.3.4 1.2.3.5 1\r\n", "not a protocol, two addresses and two ports"),
    "v1 two spaces": (b"PROXY  TCP4 1.2.3.4 1.2.3.5 1 2\r\n", "not a protocol, two addresses and two ports"),
    "v1 address": (b"PROXY TCP4 1.2.3.400 1.2.3.5 1 2\r\n", "invalid address"),
    "v1 destination": (b"PROXY TCP4 1.2.3.4 name 1 2\r\n", "invalid address"),
    "v1 not ASCII": (b"PROXY TCP4 1.2.3.\xff 1.2.3.5 1 2\r\n", "invalid address"),
    "v1 other family": (b"PROXY TCP4 2001:db8::7 2001:db8::1 1 2\r\n", "invalid address"),
    "v1 port": (b"PROXY TCP4 1.2.3.4 1.2.3.5 1 65536\r\n", "invalid port"),
    "v1 negative port": (b"PROXY TCP4 1.2.3.4 1.2.3.5 -1 2\r\n", "invalid port"),
    "v2 command": (binary(command=0x22), "command 2"),
    "v2 family": (binary(family=0x41, addresses=bytes(12)), "family 0x41"),
    "v2 family without protocol": (binary(family=0x10), "family 0x10"),
    "v2 few addresses": (binary(bytes(11)), "11 bytes are too few for addresses of family 0x11"),
    "v2 value cut off": (binary(values=b"\2\0"), "a value is cut off"),
    "v2 value too long": (binary(values=b"\2\0\5abc"), "value 0x02 of 5 bytes, 3 are left"),
    "v2 TLS cut off": (binary(values=value(0x20, b"\7")), "a value is cut off"),
    "v2 TLS value too long": (
        binary(values=value(0x20, bytes(5) + b"\x21\0\5abc")), "value 0x21 of 5 bytes, 3 are left"
    ),
    "v2 size of checksum": (binary(values=value(3, bytes(5))), "a checksum of 5 bytes"),
}  # fmt: skip
"""Malformed headers whose end is known."""

KEPT = {
    "v1 without end": (b"PROXY TCP4 " + bytes(107), "no end of line"),
    "v2 version 3": (SIGNATURE + b"\x31" + bytes(100), "version 3"),
    "v2 too long": (binary(values=value(4, bytes(4096 - 28 - 2))), "no end within 4096 bytes"),
}
"""Malformed headers whose end is not known, or too far away."""


def pieces(data: bytes, size: int) -> list[Data | Gap]:
    return [
        Data(number, number, LO, data[start : start + size])
        for number, start in enumerate(range(0, len(data), size), 1)
    ]


def fed(preface: Preface, items: Sequence[Data | Gap]) -> list[Data | Gap]:
    """What follows, while the preface is not done; then the rest. No byte is lost."""
    out: list[Data | Gap] = []
    headers = b""
    for item in items:
        for each in [item] if preface.is_done else preface.feed(item):
            if isinstance(each, Prefaced):
                headers += each.data.payload
            else:
                out.append(each)
        assert preface.held <= DEFAULT.proxy_header_bytes
    whole = joined(items)
    assert whole.startswith(headers)
    assert whole[len(headers) :].startswith(joined(out))
    return out


def joined(items: Sequence[object]) -> bytes:
    return b"".join(item.payload for item in items if isinstance(item, Data))


@pytest.mark.parametrize("size", [1, 5, 13, 10_000])
@pytest.mark.parametrize("name", GOOD)
def test_headers_in_pieces(name: str, size: int) -> None:
    header, expected = GOOD[name]
    preface = Preface(0, DEFAULT)
    out = fed(preface, pieces(header + REQUEST, size))
    assert (joined(out), preface.proxy, preface.fault) == (REQUEST, expected, None)
    assert preface.is_done


@pytest.mark.parametrize("name", GOOD)
def test_headers_and_nothing_else(name: str) -> None:
    header, expected = GOOD[name]
    preface = Preface(0, DEFAULT)
    assert fed(preface, pieces(header, 100)) == []
    assert (preface.proxy, preface.held, preface.is_done) == (expected, 0, False)  # another one may follow
    assert preface.close() == []
    assert preface.fault is None


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize("name", REMOVED)
def test_malformed_headers_are_not_used(name: str, size: int) -> None:
    header, fault = REMOVED[name]
    preface = Preface(0, DEFAULT)
    out = fed(preface, pieces(header + REQUEST + LINE, size))
    assert (joined(out), preface.proxy, preface.fault) == (REQUEST + LINE, None, fault)


@pytest.mark.parametrize("name", REMOVED)
def test_malformed_headers_and_nothing_else(name: str) -> None:
    header, fault = REMOVED[name]
    preface = Preface(0, DEFAULT)
    assert fed(preface, pieces(header, 7)) == []
    assert joined(preface.close()) == header
    assert (preface.proxy, preface.fault) == (None, fault)


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize("name", KEPT)
def test_headers_without_end_stay(name: str, size: int) -> None:
    header, fault = KEPT[name]
    preface = Preface(0, DEFAULT)
    out = fed(preface, pieces(header + REQUEST, size))
    assert (joined(out), preface.proxy, preface.fault) == (header + REQUEST, None, fault)


def test_a_wrong_checksum_is_stated() -> None:
    header = with_checksum(flaw=1)
    stated = int.from_bytes(header[-4:], "big")
    preface = Preface(0, DEFAULT)
    assert joined(fed(preface, pieces(header + REQUEST, 40))) == REQUEST
    assert preface.fault == f"checksum 0x{stated:08x}, computed 0x{stated ^ 1:08x}"


def test_a_malformed_header_keeps_what_an_earlier_one_says() -> None:
    preface = Preface(0, DEFAULT)
    assert joined(fed(preface, pieces(LINE + REMOVED["v1 port"][0] + REQUEST, 9))) == REQUEST
    assert (preface.proxy, preface.fault) == (Proxy(1, CLIENT), "invalid port")


@pytest.mark.parametrize("size", [1, 10_000])
def test_at_most_eight_headers(size: int) -> None:
    preface = Preface(0, DEFAULT)
    assert joined(fed(preface, pieces(9 * LINE + REQUEST, size))) == LINE + REQUEST
    assert (preface.proxy, preface.fault) == (Proxy(1, CLIENT), "more than 8 headers")


def test_all_headers_together_have_a_limit() -> None:
    long = binary(values=value(4, bytes(2500)))
    preface = Preface(0, DEFAULT)
    assert joined(fed(preface, pieces(2 * long + REQUEST, 1460))) == long + REQUEST
    assert preface.fault == "no end within 4096 bytes"


def test_limits_can_be_set() -> None:
    preface = Preface(0, Limits(proxy_headers=1, proxy_header_bytes=60))
    assert joined(fed(preface, pieces(2 * LINE + REQUEST, 7))) == LINE + REQUEST


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize(
    "data",
    [REQUEST, b"POST / HTTP/1.1\r\n\r\n", b"\r\n\r\n\0\r\nQUIT\r\n", b"PROXYING", b"PROPFIND / HTTP/1.1"],
)
def test_other_bytes_are_passed_on(data: bytes, size: int) -> None:
    preface = Preface(0, DEFAULT)
    assert joined(fed(preface, pieces(data, size))) == data
    assert (preface.proxy, preface.fault, preface.is_done) == (None, None, True)


@pytest.mark.parametrize(("end", "fault"), [(5, None), (6, "incomplete"), (40, "incomplete")])
def test_an_incomplete_header_is_passed_on(end: int, fault: str | None) -> None:
    for gap in (False, True):
        preface = Preface(0, DEFAULT)
        assert fed(preface, pieces(LINE[:end], 3)) == []
        missing = Gap(9, 9, LO, 20, "lost")
        out: Sequence[object] = preface.feed(missing) if gap else preface.close()
        assert (joined(out), out[1:]) == (LINE[:end], [missing] * gap)
        assert (preface.proxy, preface.fault, preface.is_done) == (None, fault, True)


def test_a_gap_before_the_first_byte() -> None:
    preface = Preface(0, DEFAULT)
    items = [Gap(1, 1, LO, 20, "lost"), *pieces(LINE + REQUEST, 1000)]
    assert fed(preface, items) == items


def test_packets_of_what_follows() -> None:
    """What follows a header has the packet that carried it."""
    preface = Preface(0, DEFAULT)
    out = fed(preface, [Data(1, 10, LO, LINE[:9]), Data(2, 20, LO, LINE[9:] + b"a"), Data(3, 30, LO, b"b")])
    assert out == [Data(2, 20, LO, b"a"), Data(3, 30, LO, b"b")]
