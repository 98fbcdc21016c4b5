from __future__ import annotations

import pytest

from kdissect.net.link import IPV4, IPV6, network_layer, not_ip
from tests.segments import (
    COOKED,
    COOKED_V2,
    ETHERNET,
    IPV4_ONLY,
    IPV6_ONLY,
    LOOP,
    NULL,
    RAW,
    ipv4,
    ipv6,
    link,
)

FOUR = ipv4("10.0.0.1", "10.0.0.2", b"payload")
SIX = ipv6("fe80::1", "fe80::2", b"payload")
MACS = bytes(12)


@pytest.mark.parametrize(
    ("link_type", "header"),
    [(ETHERNET, 14), (COOKED, 16), (COOKED_V2, 20), (NULL, 4), (LOOP, 4), (RAW, 0), (12, 0), (14, 0)],
)
def test_both_versions_after_every_link_header(link_type: int, header: int) -> None:
    builder = RAW if link_type in (12, 14) else link_type
    assert network_layer(link_type, link(FOUR, builder)) == (IPV4, header)
    assert network_layer(link_type, link(SIX, builder)) == (IPV6, header)


def test_link_types_of_one_version() -> None:
    assert network_layer(IPV4_ONLY, FOUR) == (IPV4, 0)
    assert network_layer(IPV6_ONLY, SIX) == (IPV6, 0)


@pytest.mark.parametrize("link_type", [ETHERNET, COOKED, COOKED_V2])
@pytest.mark.parametrize(
    "tags", [[(0x8100, 7)], [(0x88A8, 7), (0x8100, 8)], [(0x9100, 1), (0x8100, 2)], [(0x8100, 1)] * 3]
)
def test_vlan_tags_are_skipped(link_type: int, tags: list[tuple[int, int]]) -> None:
    data = link(FOUR, link_type, vlan=tags)
    assert network_layer(link_type, data) == (IPV4, len(data) - len(FOUR))


@pytest.mark.parametrize("family", [24, 28, 30])
@pytest.mark.parametrize("order", ["big", "little"])
def test_null_families_in_either_byte_order(family: int, order: str) -> None:
    word = family.to_bytes(4, "big") if order == "big" else family.to_bytes(4, "little")
    assert network_layer(NULL, word + SIX) == (IPV6, 4)
    assert network_layer(LOOP, word + SIX) == (IPV6, 4)


@pytest.mark.parametrize(
    ("link_type", "data", "reason"),
    [
        (127, FOUR, "link type 127"),
        (ETHERNET, MACS + b"\x08", "link header not captured"),
        (ETHERNET, MACS + b"\x81\x00\x00\x01\x08", "link header not captured"),
        (COOKED, bytes(15), "link header not captured"),
        (COOKED_V2, b"\x08\x00" + bytes(17), "link header not captured"),
        (NULL, b"\x02\x00\x00", "link header not captured"),
        (NULL, b"\x07\x00\x00\x00", "address family 7"),
        (RAW, b"", "link header not captured"),
        (RAW, b"\x55", "neither IPv4 nor IPv6"),
    ],
)
def test_headers_that_cannot_be_read(link_type: int, data: bytes, reason: str) -> None:
    assert network_layer(link_type, data) == reason


@pytest.mark.parametrize(
    ("ethertype", "name"),
    [
        (0x0806, "ARP"),
        (0x8863, "PPPoE discovery"),
        (0x0026, "802.3 frame"),
        (0x1234, "ethertype 0x1234"),
    ],
)
def test_what_is_no_ip_is_named(ethertype: int, name: str) -> None:
    number = ethertype.to_bytes(2, "big")
    assert network_layer(ETHERNET, MACS + number) == (ethertype, 14)
    assert network_layer(ETHERNET, MACS + b"\x81\x00\x00\x01" + number) == (ethertype, 18)
    assert not_ip(ethertype) == name


def test_snap_and_bridged_ethernet_are_skipped() -> None:
    snap = MACS + b"\x00\x26" + b"\xaa\xaa\x03\0\0\0"
    assert network_layer(ETHERNET, snap + b"\x08\x00" + FOUR) == (IPV4, 22)
    assert network_layer(ETHERNET, snap + b"\x81\x00\x00\x01\x86\xdd" + SIX) == (IPV6, 26)
    assert network_layer(ETHERNET, MACS + b"\x65\x58" + MACS + b"\x08\x00" + FOUR) == (IPV4, 28)
    assert network_layer(ETHERNET, snap + b"\x08") == "link header not captured"
    assert network_layer(ETHERNET, MACS + b"\x65\x58" + MACS) == "link header not captured"
