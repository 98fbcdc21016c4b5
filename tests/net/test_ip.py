from __future__ import annotations

from collections import Counter
from itertools import permutations
from random import Random
from struct import pack

import pytest

from kdissect.limits import Limits
from kdissect.net.ip import Datagram, Fragment, Fragments, internet_layer, not_tcp
from kdissect.net.link import IPV4, IPV6
from tests.segments import MILLISECOND, START_NS, UDP, ipv4, ipv6, packet

A, B = "10.0.0.1", "10.0.0.2"
C, D = "2001:db8::1", "2001:db8::2"
FOUR_ENDS = bytes((10, 0, 0, 1, 10, 0, 0, 2))
BODY = bytes(range(200))

OPTIONS = bytes.fromhex("00 010400000000")  # an extension header of 8 bytes, without its first


def read(data: bytes, ethertype: int = IPV4, **options: int) -> Datagram | Fragment | str:
    return internet_layer(ethertype, packet(data, **options), 0)


def test_ipv4() -> None:
    assert read(ipv4(A, B, BODY)) == Datagram(FOUR_ENDS, 6, BODY, 200)
    assert read(ipv4(A, B, BODY, options=b"\x94\x04\0\0")) == Datagram(FOUR_ENDS, 6, BODY, 200)


def test_padding_is_no_payload() -> None:
    assert read(ipv4(A, B, b"x") + bytes(25)) == Datagram(FOUR_ENDS, 6, b"x", 1)
    result = read(ipv6(C, D, b"x") + bytes(25), IPV6)
    assert isinstance(result, Datagram)
    assert (result.payload, result.length) == (b"x", 1)


def test_length_zero_means_the_packets_own_length() -> None:
    assert read(ipv4(A, B, BODY, length=0)) == Datagram(FOUR_ENDS, 6, BODY, 200)
    result = read(ipv6(C, D, BODY, length=0), IPV6)
    assert isinstance(result, Datagram)
    assert (result.payload, result.length) == (BODY, 200)
    result = read(ipv6(C, D, BODY, length=0)[:100], IPV6, length=240)
    assert isinstance(result, Datagram)
    assert (result.payload, result.length) == (BODY[:60], 200)


def test_a_captured_length_above_the_original_one() -> None:
    assert read(ipv4(A, B, BODY, length=0), length=60) == Datagram(FOUR_ENDS, 6, BODY, 200)


def test_the_length_on_the_wire_of_a_truncated_packet() -> None:
    assert read(ipv4(A, B, BODY), snaplen=96) == Datagram(FOUR_ENDS, 6, BODY[:76], 200)


@pytest.mark.parametrize(
    "extensions",
    [
        [(0, OPTIONS)],
        [(43, OPTIONS)],
        [(60, OPTIONS)],
        [(0, OPTIONS), (60, OPTIONS), (43, OPTIONS), (60, OPTIONS)],
        [(51, b"\x04" + bytes(22))],
        [(44, b"\0" + pack(">HI", 0, 99))],  # a fragment that is the whole (RFC 6946)
        [(135, OPTIONS), (139, OPTIONS), (140, OPTIONS)],
    ],
)
def test_extension_headers_are_skipped(extensions: list[tuple[int, bytes]]) -> None:
    result = read(ipv6(C, D, BODY, extensions=extensions), IPV6)
    assert isinstance(result, Datagram)
    assert (result.protocol, result.payload, result.length) == (6, BODY, 200)


def test_the_authentication_header_of_ipv4() -> None:
    result = read(ipv4(A, B, b"\x06\x04" + bytes(22) + BODY, protocol=51))
    assert result == Datagram(FOUR_ENDS, 6, BODY, 200)


@pytest.mark.parametrize(
    ("data", "ethertype", "reason"),
    [
        (b"\x45" + bytes(18), IPV4, "IP header not captured"),
        (bytes(39), IPV6, "IP header not captured"),
        (b"\x65" + bytes(30), IPV4, "malformed IPv4 header"),
        (b"\x44" + bytes(30), IPV4, "malformed IPv4 header"),
        (ipv4(A, B, BODY, length=19), IPV4, "malformed IPv4 header"),
        (bytes(40), IPV6, "malformed IPv6 header"),
        (ipv6(C, D, b"\x06\0", protocol=0), IPV6, "malformed IP extension header"),
        (ipv6(C, D, b"\x06\xff" + BODY, protocol=0), IPV6, "malformed IP extension header"),
        (ipv6(C, D, b"\x06\0" + BODY, protocol=0)[:44], IPV6, "IP header not captured"),
    ],
)
def test_headers_that_cannot_be(data: bytes, ethertype: int, reason: str) -> None:
    assert read(data, ethertype) == reason


@pytest.mark.parametrize(
    ("protocol", "name"), [(UDP, "UDP"), (1, "ICMP"), (50, "ESP"), (200, "IP protocol 200")]
)
def test_what_is_no_tcp_is_named(protocol: int, name: str) -> None:
    assert not_tcp(protocol) == name


def fragments_of_four(body: bytes, size: int, identification: int = 7) -> list[bytes]:
    return [
        ipv4(
            A,
            B,
            body[start : start + size],
            identification=identification,
            offset=start,
            more=start + size < len(body),
        )
        for start in range(0, len(body), size)
    ]


def fragments_of_six(body: bytes, size: int) -> list[bytes]:
    parts = []
    for start in range(0, len(body), size):
        more = start + size < len(body)
        header = b"\0" + pack(">HI", start | more, 7)
        parts.append(ipv6(C, D, body[start : start + size], extensions=[(44, header)]))
    return parts


class Reassembly:
    def __init__(self, limits: Limits | None = None) -> None:
        self.skipped: Counter[str] = Counter()
        self.fragments = Fragments(limits or Limits(), self.skipped)

    def feed(self, data: bytes, ethertype: int = IPV4, **options: int) -> Datagram | str | None:
        carrier = packet(data, **options)
        fragment = internet_layer(ethertype, carrier, 0)
        assert isinstance(fragment, Fragment)
        return self.fragments.feed(fragment, carrier)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_fragments_in_any_order(order: tuple[int, ...]) -> None:
    for ethertype, parts in ((IPV4, fragments_of_four(BODY, 56)), (IPV6, fragments_of_six(BODY, 56))):
        reassembly = Reassembly()
        result = [reassembly.feed(parts[place], ethertype) for place in order]
        assert result[:-1] == [None] * 3
        assert isinstance(result[-1], Datagram)
        assert (result[-1].protocol, result[-1].payload, result[-1].length) == (6, BODY, 200)
        reassembly.fragments.close()
        assert not reassembly.skipped


def test_duplicates_and_overlaps_the_first_wins() -> None:
    reassembly = Reassembly()
    assert reassembly.feed(ipv4(A, B, b"a" * 16, offset=0, more=True)) is None
    assert reassembly.feed(ipv4(A, B, b"a" * 16, offset=0, more=True)) is None
    assert reassembly.feed(ipv4(A, B, b"b" * 16, offset=8, more=True)) is None
    result = reassembly.feed(ipv4(A, B, b"c" * 24, offset=16))
    assert isinstance(result, Datagram)
    assert result.payload == b"a" * 16 + b"b" * 8 + b"c" * 16
    assert reassembly.skipped == {"repeated IP fragment": 1, "overlapping IP fragment": 2}


def test_a_datagram_that_comes_twice_at_once_is_one() -> None:
    one, two = fragments_of_four(BODY, 104)
    reassembly = Reassembly()
    result = [reassembly.feed(part) for part in (one, one, two, two, one)]
    assert result[:3] == [None, None, Datagram(FOUR_ENDS, 6, BODY, 200)]
    assert result[3:] == ["repeated IP fragment"] * 2
    later = START_NS + 300 * MILLISECOND  # the numbers of datagrams are used again
    assert reassembly.feed(one, time_ns=later) is None
    assert reassembly.feed(two, time_ns=later) == Datagram(FOUR_ENDS, 6, BODY, 200)
    reassembly.fragments.close()
    assert reassembly.skipped == {"repeated IP fragment": 1}


def test_a_cut_fragment_ends_the_payload_but_not_the_length() -> None:
    one, two = fragments_of_four(BODY, 104)
    reassembly = Reassembly()
    assert reassembly.feed(one, snaplen=60) is None
    assert reassembly.feed(two) == Datagram(FOUR_ENDS, 6, BODY[:40], 200)


def test_extension_headers_inside_fragments() -> None:
    inner = b"\x06" + OPTIONS + BODY
    reassembly = Reassembly()
    parts = [inner[:104], inner[104:]]
    header = [b"\0" + pack(">HI", 0 | 1, 7), b"\0" + pack(">HI", 104, 7)]
    result = [
        reassembly.feed(ipv6(C, D, part, protocol=60, extensions=[(44, head)]), IPV6)
        for part, head in zip(parts, header, strict=True)
    ]
    assert isinstance(result[1], Datagram)
    assert (result[1].protocol, result[1].payload) == (6, BODY)


def test_datagrams_do_not_mix() -> None:
    random = Random(1)
    bodies = [random.randbytes(400) for _ in range(20)]
    parts = [part for number, body in enumerate(bodies) for part in fragments_of_four(body, 64, number)]
    random.shuffle(parts)
    reassembly = Reassembly()
    result = {datagram.payload for part in parts if isinstance(datagram := reassembly.feed(part), Datagram)}
    assert result == set(bodies)


def test_limits_of_count_bytes_and_age() -> None:
    first = fragments_of_four(BODY, 104)[0]
    skipped = "IP fragment of an incomplete datagram"

    few = Reassembly(Limits(fragment_datagrams=2))
    for number in range(5):
        assert few.feed(fragments_of_four(BODY, 104, number)[0]) is None
    assert few.skipped == {skipped: 3}

    completed = Reassembly(Limits(fragment_datagrams=2))
    for number in range(5):
        for part in fragments_of_four(BODY, 104, number):
            completed.feed(part)
    assert len(completed.fragments._completed_ns) == 2

    small = Reassembly(Limits(fragment_bytes=1000))
    for number in range(5):
        assert small.feed(fragments_of_four(BODY, 104, number)[0]) is None
    assert small.skipped == {skipped: 3}

    old = Reassembly(Limits(fragment_age_ns=MILLISECOND))
    assert old.feed(first) is None
    assert old.feed(fragments_of_four(BODY, 104)[1], time_ns=START_NS + 2 * MILLISECOND) is None
    assert old.skipped == {skipped: 1}
    old.fragments.close()
    assert old.skipped == {skipped: 2}


def test_a_last_fragment_before_others_never_completes() -> None:
    reassembly = Reassembly()
    assert reassembly.feed(ipv4(A, B, b"a" * 8, offset=8)) is None
    assert reassembly.feed(ipv4(A, B, b"b" * 8, offset=32, more=True)) is None
    assert reassembly.feed(ipv4(A, B, b"c" * 8, offset=0, more=True)) is None
    assert reassembly.feed(ipv4(A, B, b"", offset=0, more=True)) == "malformed IP fragment"
