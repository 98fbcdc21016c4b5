from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.model import Endpoint, Interface, Packet, Segment
from kdissect.net.tcp import ACK, PSH, Segments, community_id, endpoints, reversed_ends
from tests.segments import (
    COOKED,
    COOKED_V2,
    ETHERNET,
    IPV4_ONLY,
    IPV6_ONLY,
    LOOP,
    NULL,
    RAW,
    UDP,
    ipv4,
    ipv6,
    link,
    packet,
    tcp,
)

FOUR = (("10.0.0.1", 40000), ("10.0.0.2", 9092))
SIX = (("2001:db8::1", 40000), ("2001:db8::2", 9092))
FOUR_ENDS = bytes((10, 0, 0, 1, 10, 0, 0, 2)) + b"\x9c\x40\x23\x84"
TIMESTAMPS = bytes.fromhex("0101080a 00000001 00000002")


def internet(payload: bytes = b"hello", *, options: bytes = b"", six: bool = False) -> bytes:
    source, destination = SIX if six else FOUR
    segment = tcp(source, destination, 2**32 - 2, 77, PSH | ACK, payload, options=options)
    return (ipv6 if six else ipv4)(source[0], destination[0], segment)


def only(result: Segment | None) -> Segment:
    assert result is not None
    return result


def test_a_usual_packet() -> None:
    data = link(internet(options=TIMESTAMPS))
    source = packet(data, number=7, time_ns=123)
    expected = Segment(7, 123, source.interface, FOUR_ENDS, 2**32 - 2, 77, PSH | ACK, b"hello", 5, 64240)
    assert Segments().feed(source) == expected


@pytest.mark.parametrize("payload", [b"", b"x", b"hello", bytes(1460)])
@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize("link_type", [ETHERNET, COOKED, COOKED_V2, NULL, LOOP, RAW, IPV4_ONLY, IPV6_ONLY])
def test_every_link_type_gives_the_same_segment(link_type: int, six: bool, payload: bytes) -> None:
    if link_type == (IPV4_ONLY if six else IPV6_ONLY):
        return
    for options in (b"", TIMESTAMPS):
        data = link(internet(payload, options=options, six=six), link_type)
        segments = Segments()
        result = only(segments.feed(packet(data, link_type=link_type)))
        assert result[4:9] == (2**32 - 2, 77, PSH | ACK, payload, len(payload))
        assert endpoints(result.ends) == (
            Endpoint(*(SIX if six else FOUR)[0]),
            Endpoint(*(SIX if six else FOUR)[1]),
        )
        assert not segments.skipped


def test_ethernet_padding_is_no_payload() -> None:
    for data in (link(internet(b"")), link(internet(b""), vlan=[(0x8100, 1)])):
        padded = data + bytes(60 - len(data))
        result = only(Segments().feed(packet(padded)))
        assert (result.payload, result.length) == (b"", 0)


def test_an_offloaded_packet_with_length_zero() -> None:
    segment = tcp(*FOUR, 1, 1, ACK, bytes(70_000))
    result = only(Segments().feed(packet(link(ipv4(FOUR[0][0], FOUR[1][0], segment, length=0)))))
    assert (len(result.payload), result.length) == (70_000, 70_000)


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize("vlan", [[], [(0x8100, 1)]])
def test_a_packet_cut_anywhere(six: bool, vlan: list[tuple[int, int]]) -> None:
    complete = link(internet(b"0123456789", options=TIMESTAMPS, six=six), vlan=vlan)
    payload_start = len(complete) - 10
    header_end = payload_start - len(TIMESTAMPS)
    for snaplen in range(1, len(complete) + 1):
        segments = Segments()
        result = segments.feed(packet(complete, snaplen=snaplen))
        if snaplen < header_end:
            assert result is None
            assert segments.skipped.total() == 1
            if snaplen >= header_end - 20:
                assert segments.skipped == {"TCP header not captured": 1}
        else:
            assert only(result).length == 10
            assert only(result).payload == b"0123456789"[: max(0, snaplen - payload_start)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (link(ipv4("10.0.0.1", "10.0.0.2", b"x", protocol=UDP)), "UDP"),
        (link(ipv4("10.0.0.1", "10.0.0.2", bytes(40), protocol=50)), "ESP"),
        (link(ipv4("10.0.0.1", "10.0.0.2", b"x" * 19)), "malformed TCP header"),
        (link(ipv4("10.0.0.1", "10.0.0.2", bytes(20))), "malformed TCP header"),
        (link(ipv4("10.0.0.1", "10.0.0.2", bytes(12) + b"\xf0" + bytes(20))), "malformed TCP header"),
        (link(ipv6("fe80::1", "fe80::2", bytes(8), protocol=58)), "ICMPv6"),
        (bytes(12) + b"\x08\x06" + bytes(46), "ARP"),
        (b"", "link header not captured"),
    ],
)
def test_nothing_is_dropped_in_silence(data: bytes, reason: str) -> None:
    segments = Segments()
    assert segments.feed(packet(data)) is None
    assert segments.skipped == {reason: 1}


def test_fragments_that_wait_in_vain_are_counted_at_the_end() -> None:
    segments = Segments()
    data = link(ipv4("10.0.0.1", "10.0.0.2", bytes(64), more=True))
    assert segments.feed(packet(data)) is None
    assert not segments.skipped
    segments.close()
    assert segments.skipped == {"IP fragment of an incomplete datagram": 1}


def test_ends_and_their_reverse() -> None:
    six = only(Segments().feed(packet(link(internet(six=True))))).ends
    for ends in (FOUR_ENDS, six):
        one, two = endpoints(ends)
        assert endpoints(reversed_ends(ends)) == (two, one)
        assert reversed_ends(reversed_ends(ends)) == ends
    assert str(endpoints(six)[0]) == "[2001:db8::1]:40000"


def scapy_layers() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import scapy.all

        return scapy.all


def scapy_packets() -> dict[str, tuple[int, list[Any]]]:
    """The same segment under every header that scapy builds: link type, and the packets that carry it."""
    s = scapy_layers()
    segment = s.TCP(sport=40000, dport=9092, seq=2**32 - 2, ack=77, flags="PA") / s.Raw(b"hello" * 60)
    four, six = s.IP(src="10.0.0.1", dst="10.0.0.2"), s.IPv6(src="2001:db8::1", dst="2001:db8::2")
    options = s.IP(src="10.0.0.1", dst="10.0.0.2", options=[s.IPOption_Router_Alert()])
    with_options = s.TCP(sport=40000, dport=9092, seq=2**32 - 2, ack=77, flags="PA")
    with_options.options = [("NOP", None), ("NOP", None), ("Timestamp", (1, 2))]
    ether = s.Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    fragment_header = s.IPv6ExtHdrFragment(id=5)
    return {
        "Ethernet": (ETHERNET, [ether / four / segment]),
        "IP options": (ETHERNET, [ether / options / segment]),
        "TCP options": (ETHERNET, [ether / four / with_options / s.Raw(b"hello" * 60)]),
        "VLAN": (ETHERNET, [ether / s.Dot1Q(vlan=3) / four / segment]),
        "QinQ": (ETHERNET, [ether / s.Dot1AD(vlan=3) / s.Dot1Q(vlan=4) / six / segment]),
        "cooked": (COOKED, [s.CookedLinux() / four / segment]),
        "cooked, IPv6": (COOKED, [s.CookedLinux(proto=0x86DD) / six / segment]),
        "cooked v2": (COOKED_V2, [s.CookedLinuxV2() / four / segment]),
        "null": (NULL, [s.Loopback(type=2) / four / segment]),
        "null, IPv6": (NULL, [s.Loopback(type=24) / six / segment]),
        "raw": (RAW, [four / segment]),
        "raw, IPv6": (RAW, [six / segment]),
        "IPv6": (ETHERNET, [ether / six / segment]),
        "hop by hop": (ETHERNET, [ether / six / s.IPv6ExtHdrHopByHop(options=[s.RouterAlert()]) / segment]),
        "routing": (ETHERNET, [ether / six / s.IPv6ExtHdrRouting(segleft=0) / segment]),
        "destination": (
            ETHERNET,
            [ether / six / s.IPv6ExtHdrDestOpt(options=[s.PadN(optdata=bytes(20))]) / segment],
        ),
        "fragments": (ETHERNET, s.fragment(ether / four / segment, fragsize=64)),
        "IPv6 fragments": (ETHERNET, s.fragment6(ether / six / fragment_header / segment, 150)),
    }


def from_scapy(parts: list[Any], link_type: int) -> list[Packet]:
    interface = Interface("scapy", 0, link_type)
    data = [bytes(part) for part in parts]
    return [Packet(number, number, interface, each, len(each)) for number, each in enumerate(data, 1)]


@pytest.mark.parametrize("name", scapy_packets())
@pytest.mark.parametrize("backwards", [False, True])
def test_what_scapy_builds(name: str, backwards: bool) -> None:
    link_type, parts = scapy_packets()[name]
    packets = from_scapy(parts, link_type)
    if name.endswith("fragments"):
        assert len(packets) > 2
    segments = Segments()
    result = [segments.feed(each) for each in (reversed(packets) if backwards else packets)]
    assert result[:-1] == [None] * (len(packets) - 1)
    last = only(result[-1])
    assert last[4:9] == (2**32 - 2, 77, PSH | ACK, b"hello" * 60, 300)
    addresses = endpoints(last.ends)
    assert addresses in ((Endpoint(*FOUR[0]), Endpoint(*FOUR[1])), (Endpoint(*SIX[0]), Endpoint(*SIX[1])))
    segments.close()
    assert not segments.skipped


MUTATED = [(link_type, bytes(part)) for link_type, parts in scapy_packets().values() for part in parts]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(MUTATED),
            st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=4),
            st.integers(0, 400),
            st.integers(-50, 70_000),
        ),
        max_size=12,
    )
)
def test_mutated_packets_raise_nothing(
    mutations: list[tuple[tuple[int, bytes], list[tuple[int, int]], int, int]],
) -> None:
    segments = Segments()
    fed = parsed = 0
    for (link_type, original), changes, cut, length in mutations:
        data = bytearray(original[: max(0, len(original) - cut % 97)])
        for place, value in changes:
            if place < len(data):
                data[place] = value
        result = segments.feed(Packet(1, 1, Interface("x", 0, link_type), bytes(data), len(data) + length))
        fed += 1
        if result is not None:
            parsed += 1
            assert 0 <= len(result.payload) <= max(result.length, 0)
            assert len(result.ends) in (12, 36)
    segments.close()
    assert fed >= parsed


@pytest.mark.parametrize(
    ("one", "other", "known"),
    [  # those of the specification's authors, for their own programs
        (("128.232.110.120", 34855), ("66.35.250.204", 80), "1:LQU9qZlK+B5F3KDmev6m5PMibrg="),
        (("1.2.3.4", 1122), ("5.6.7.8", 3344), "1:wCb3OG7yAFWelaUydu0D+125CLM="),
    ],
)
def test_community_ids_are_those_of_zeek(one: tuple[str, int], other: tuple[str, int], known: str) -> None:
    assert community_id(Endpoint(*one), Endpoint(*other)) == known
    assert community_id(Endpoint(*other), Endpoint(*one)) == known


def test_both_ends_of_a_community_id_can_have_one_address() -> None:
    ends = [Endpoint("::1", 9092), Endpoint("::1", 1), Endpoint("::2", 1)]
    ids = {community_id(one, other) for one in ends for other in ends if one is not other}
    assert len(ids) == 3
