"""What is written is read back; scapy and tshark judge the files in test_oracles.py and test_tools.py."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from kdissect.capture.source import FileFormat
from kdissect.capture.write import PcapngWriter
from kdissect.limits import Limits
from kdissect.model import Interface, Packet
from tests.capture.reading import read

TIMES = st.integers(0, (1 << 63) - 1)
INTERFACES = st.builds(
    Interface,
    st.just("a.pcap"),
    st.integers(0, 3),
    st.sampled_from([0, 1, 101, 113, 276]),
    st.sampled_from([0, 96, 262144]),
    st.none()
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20),
)
PACKETS = st.builds(
    Packet, st.just(0), TIMES, INTERFACES, st.binary(max_size=100), st.integers(0, (1 << 32) - 1)
)


@given(st.lists(PACKETS, max_size=20))
def test_pcapng_keeps_packets_and_their_interfaces(packets: list[Packet]) -> None:
    file = io.BytesIO()
    writer = PcapngWriter(file)
    for packet in packets:
        writer.write(packet)
    seen = read(file.getvalue())
    assert (seen.warnings, seen.fault) == ([], None)
    assert [(p.time_ns, p.data, p.length) for p in seen.packets] == [
        (p.time_ns, p.data, p.length) for p in packets
    ]
    interfaces = [(p.interface.link_type, p.interface.snaplen, p.interface.name) for p in seen.packets]
    assert interfaces == [(p.interface.link_type, p.interface.snaplen, p.interface.name) for p in packets]
    indexes = list(dict.fromkeys(p.interface for p in packets))
    assert [p.interface.index for p in seen.packets] == [indexes.index(p.interface) for p in packets]


def test_times_before_1970_are_written_as_1970() -> None:
    file = io.BytesIO()
    PcapngWriter(file).write(Packet(1, -5, Interface("a", 0, 1), b"x", 1))
    assert read(file.getvalue()).timed == [(0, b"x")]


def test_a_section_has_no_more_interfaces_than_readers_take() -> None:
    file = io.BytesIO()
    writer = PcapngWriter(file, "a program", interfaces=2)
    interfaces = [Interface(f"{number}.pcap", 0, 1, number) for number in range(5)]
    for time_ns, interface in enumerate([*interfaces, interfaces[0], interfaces[4]]):
        writer.write(Packet(0, time_ns, interface, b"x", 1))
    seen = read(file.getvalue(), limits=Limits(interfaces=2))
    assert (seen.warnings, seen.fault) == ([], None)
    assert [p.interface.snaplen for p in seen.packets] == [0, 1, 2, 3, 4, 0, 4]
    assert seen.source.form == FileFormat("pcapng", "little", "a program")
