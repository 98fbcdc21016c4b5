from __future__ import annotations

import shutil
import subprocess
import sys
from struct import pack
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.limits import Limits
from kdissect.model import Endpoint, Interface, Packet, Segment
from kdissect.net.tcp import ACK, PSH, Segments, endpoints
from tests.captures import enhanced, interface, section
from tests.segments import UDP, ipv4, link, packet
from tests.tunnels import (
    CONTROL_WORD_LABEL,
    DESTINATION,
    DESTINATION_6,
    ETHERNET,
    ETHERNET_LABEL,
    SOURCE,
    SOURCE_6,
    scapy_layers,
    segment,
    wrapped,
    wrappings,
)

if TYPE_CHECKING:
    from pathlib import Path

NAMES = list(wrappings())
PAYLOAD = b"hello" * 20
A, B = "192.0.2.1", "192.0.2.2"


def udp(port: int, payload: bytes) -> bytes:
    """A packet with a UDP datagram."""
    return link(ipv4(A, B, pack(">HHHH", 51515, port, 8 + len(payload), 0) + payload, protocol=UDP))


def skipped(data: bytes, *, link_type: int = ETHERNET, limits: Limits | None = None) -> dict[str, int]:
    """The reasons for which a packet was skipped."""
    segments = Segments(limits or Limits())
    assert segments.feed(packet(data, link_type=link_type)) is None
    return segments.skipped


def only(data: bytes, link_type: int, **options: int) -> Segment:
    segments = Segments()
    result = segments.feed(packet(data, link_type=link_type, **options))
    assert result is not None, segments.skipped
    assert not segments.skipped
    return result


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_segment_inside(name: str, six: bool) -> None:
    data = wrapped(name, segment(six=six))
    result = only(data, wrappings()[name].link_type)
    assert result[4:9] == (2**32 - 2, 77, PSH | ACK, PAYLOAD, 100)
    source, destination = (SOURCE_6, DESTINATION_6) if six else (SOURCE, DESTINATION)
    assert endpoints(result.ends) == (Endpoint(*source), Endpoint(*destination))


@pytest.mark.tools
def test_tshark_finds_the_same(tmp_path: Path) -> None:
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("tshark is not installed")
    types = sorted({wrapping.link_type for wrapping in wrappings().values()})
    cases = [(name, six) for name in NAMES for six in (False, True)]
    blocks = [section(), *(interface(link_type=link_type) for link_type in types)]
    for name, six in cases:
        index = types.index(wrappings()[name].link_type)
        blocks.append(enhanced(1, wrapped(name, segment(six=six)), index=index))
    path = tmp_path / "tunnels.pcapng"
    path.write_bytes(b"".join(blocks))
    fields = [part for field in ("tcp.srcport", "tcp.seq_raw", "tcp.len") for part in ("-e", field)]
    decode_rules = (  # what no header has, and tshark would only guess
        "udp.port==8472,vxlan",
        f"mpls.label=={ETHERNET_LABEL},pwethnocw",
        f"mpls.label=={CONTROL_WORD_LABEL},pwethcw",
    )
    decode_as = [part for rule in decode_rules for part in ("-d", rule)]
    command = [tshark, "-n", "-r", str(path), *decode_as, "-T", "fields", *fields]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert dict(zip(cases, lines, strict=True)) == dict.fromkeys(cases, "40000\t4294967294\t100")


@pytest.mark.parametrize("name", NAMES)
def test_a_packet_cut_anywhere(name: str) -> None:
    outer = wrapped(name, segment())
    link_type = wrappings()[name].link_type
    start = outer.index(PAYLOAD)
    for snaplen in range(1, len(outer)):
        segments = Segments()
        result = segments.feed(packet(outer, link_type=link_type, snaplen=snaplen))
        if result is None:
            assert segments.skipped.total() == 1
            assert snaplen < start - 12  # TCP options
        else:
            assert result.length == 100
            assert result.payload == PAYLOAD[: max(0, snaplen - start)]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_tcp_is_named_with_its_tunnel(name: str) -> None:
    s = scapy_layers()
    wrapping = wrappings()[name]
    inside = s.IP(src="10.0.0.1", dst="10.0.0.2") / s.UDP(sport=53, dport=53) / s.Raw(b"x" * 40)
    reason = f"UDP in {wrapping.name}" if wrapping.name else "UDP"
    assert skipped(wrapped(name, inside), link_type=wrapping.link_type) == {reason: 1}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (udp(53, bytes(40)), "UDP"),
        (link(ipv4(A, B, b"x", protocol=UDP)), "UDP"),
        (udp(4789, b"\x08" + bytes(6)), "header not captured in VXLAN"),
        (udp(4789, bytes(40)), "malformed header in VXLAN"),
        (udp(4789, b"\x08" + bytes(7) + bytes(12) + b"\x08\x06" + bytes(28)), "ARP in VXLAN"),
        (udp(4790, b"\x0c\0\0\x09" + bytes(40)), "no IP in VXLAN"),
        (udp(4790, b"\x0c\0\0\x04" + bytes(40)), "malformed header in NSH in VXLAN"),
        (udp(4790, b"\x0c\0\0\x04" + bytes(6)), "header not captured in NSH in VXLAN"),
        (udp(6081, b"\xc0" + bytes(40)), "malformed header in Geneve"),
        (udp(6081, bytes(7)), "header not captured in Geneve"),
        (udp(6081, b"\0\0\x12\x34" + bytes(40)), "ethertype 0x1234 in Geneve"),
        (udp(1701, bytes(3)), "malformed header in L2TP"),
        (udp(2152, b"\x30\x01\0\0" + bytes(4)), "no IP in GTP-U"),
        (link(ipv4(A, B, bytes(3), protocol=47)), "header not captured in GRE"),
        (link(ipv4(A, B, b"\0\0\x88\xcc" + bytes(20), protocol=47)), "LLDP in GRE"),
        (link(ipv4(A, B, b"\x20\0\x08\0" + bytes(3), protocol=47)), "link header not captured in GRE"),
        (link(ipv4(A, B, b"\x40\0\x08\0" + bytes(40), protocol=47)), "no IP in GRE"),
        (link(ipv4(A, B, b"\x45" + bytes(9), protocol=4)), "IP header not captured in IP in IP"),
        (bytes(12) + b"\x88\x64\x11\0\0\x01\0\x06\xc0\x21" + bytes(4), "no IP in PPPoE"),
        (bytes(12) + b"\x88\x47" + bytes(80), "no IP in MPLS"),
    ],
)
def test_the_reason_why_a_tunnel_cannot_be_parsed(data: bytes, reason: str) -> None:
    assert skipped(data) == {reason: 1}


def test_encrypted_802_11_has_no_ip() -> None:
    s = scapy_layers()
    data = bytes(s.RadioTap() / s.Dot11(type=2, subtype=8, FCfield=0x41) / s.Dot11QoS() / s.Raw(bytes(80)))
    assert skipped(data, link_type=127) == {"no IP in 802.11": 1}


def test_responses_from_the_port_of_a_tunnel() -> None:
    s = scapy_layers()
    outside = [s.IP(src=A, dst=B), s.UDP(sport=1701, dport=51515), s.L2TP(tunnel_id=1), s.PPP(proto=0x21)]
    data = s.Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    for layer in outside:
        data /= layer
    assert only(bytes(data / segment()), ETHERNET).payload == PAYLOAD


def test_fragments_outside_and_inside() -> None:
    s = scapy_layers()
    inside = segment(bytes(range(256)) * 10)
    outside = s.Ether(wrapped("VXLAN", inside))
    in_fragments = [bytes(part) for part in s.fragment(outside, fragsize=400)]
    of_fragments = [wrapped("VXLAN", part) for part in s.fragment(inside, fragsize=400)]
    fragments_of_fragments = []
    for number, part in enumerate(of_fragments):
        outer = s.Ether(part)
        outer.id = number  # scapy numbers all datagrams alike
        fragments_of_fragments += [bytes(piece) for piece in s.fragment(outer, fragsize=200)]
    for parts in (in_fragments, of_fragments, fragments_of_fragments):
        assert len(parts) > 5
        segments = Segments()
        result = [each for part in parts if (each := segments.feed(packet(part)))]
        segments.close()
        assert not segments.skipped
        assert [each.payload for each in result] == [bytes(range(256)) * 10]


def test_the_inner_length_of_a_truncated_packet() -> None:
    data = wrapped("Geneve", segment())
    result = only(data, ETHERNET, snaplen=len(data) - 60)
    assert (len(result.payload), result.length) == (40, 100)


def test_an_offloaded_packet_with_length_zero_inside() -> None:
    s = scapy_layers()
    inside = segment(bytes(3000))
    inside.len = 0
    data = bytes(s.Ether() / s.IP(proto=4, len=0) / inside)
    assert only(data, ETHERNET).length == 3000
    assert only(data, ETHERNET, snaplen=200).length == 3000


@pytest.mark.parametrize("depth", [1, 8, 9, 200])
def test_tunnels_in_tunnels_are_limited(depth: int) -> None:
    data = bytes(segment())
    for _ in range(depth):
        data = ipv4(A, B, data, protocol=4)
    segments = Segments(Limits(tunnels=8))
    assert (segments.feed(packet(link(data))) is None) == (depth > 8)
    assert sum("too many tunnels" in reason for reason in segments.skipped) == (depth > 8)


def test_reasons_are_limited() -> None:
    segments = Segments(Limits(skip_reasons=10))
    for ethertype in range(0x1000, 0x1100):
        segments.feed(packet(udp(6081, b"\0\0" + pack(">H", ethertype) + bytes(40))))
    assert len(segments.skipped) == 11
    assert segments.skipped["other reasons"] == 246


MUTATED = [
    (wrapping.link_type, wrapped(name, segment(b"x" * 8, six=six)))
    for six in (False, True)
    for name, wrapping in wrappings(six=six).items()
]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(MUTATED),
            st.lists(st.tuples(st.integers(0, 130), st.integers(0, 255)), max_size=4),
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
    parsed = 0
    for (link_type, original), changes, cut, length in mutations:
        data = bytearray(original[: max(0, len(original) - cut % 151)])
        for place, value in changes:
            if place < len(data):
                data[place] = value
        each = segments.feed(Packet(1, 1, Interface("x", 0, link_type), bytes(data), len(data) + length))
        if each is not None:
            parsed += 1
            assert 0 <= len(each.payload) <= max(each.length, 0)
    segments.close()
    assert parsed + segments.skipped.total() >= 0


@given(st.sampled_from([0, 9, 50, 51, 104, 105, 117, 119, 127, 163, 192, 204]), st.binary(max_size=200))
def test_noise_raises_nothing(link_type: int, data: bytes) -> None:
    segments = Segments()
    segments.feed(packet(data, link_type=link_type))
    segments.feed(packet(udp((1701, 2152, 6635, 37008)[len(data) % 4], data)))
    segments.feed(packet(bytes(12) + (b"\x88\x47", b"\x88\x64", b"\x88\xe7")[len(data) % 3] + data))


SILENTLY = """
import sys
from kdissect.model import Interface, Packet
from kdissect.net.tcp import Segments
assert not [name for name in sys.modules if name.startswith("scapy")]
segments = Segments()
for line in sys.stdin:
    link_type, data = int(line.split()[0]), bytes.fromhex(line.split()[1])
    segment = segments.feed(Packet(1, 1, Interface("x", 0, link_type), data, len(data)))
    assert segment is not None, segments.skipped
assert "scapy" in sys.modules and "scapy.all" not in sys.modules
from scapy.config import conf
assert not conf.route.routes and not conf.route6.routes
"""


def test_scapy_is_loaded_when_needed_and_says_nothing() -> None:
    lines = [f"{wrappings()[name].link_type} {wrapped(name, segment()).hex()}\n" for name in NAMES]
    command = [sys.executable, "-W", "error", "-c", SILENTLY]
    run = subprocess.run(command, input="".join(lines), capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
