from __future__ import annotations

import select
import socket
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from kdissect.capture.live import (
    ANY,
    CaptureSettings,
    InterfaceDown,
    PacketSocket,
    check_names,
    is_up,
    listed,
)
from kdissect.errors import CaptureError
from kdissect.net.tcp import Segments
from tests.loopback import WAIT_S, Client, broker, listens

if TYPE_CHECKING:
    from kdissect.model import Packet

HOUR_NS = 3_600_000_000_000  # clocks of virtual machines are set now and then


def received(name: str, port: int, beats: int, snaplen: int = 262_144) -> list[Packet]:
    """Packets that a listener captures of some heartbeats: as many segments as these take."""
    listener = PacketSocket(name, 0, CaptureSettings((name,), f"tcp port {port}", snaplen))
    listener.attach()
    packets: list[Packet] = []
    try:
        with Client(port) as client:
            client.beat(beats)
        until = time.monotonic() + WAIT_S
        while sum(bool(segment.length) for segment in segments(packets)) < 2 * beats:
            assert time.monotonic() < until
            select.select([listener], [], [], 1)
            packets += listener.take(1000)
        statistics = listener.statistics()
    finally:
        listener.close()
    assert statistics.dropped_by_system == 0
    assert (statistics.accepted or 0) >= len(packets)
    return packets


def segments(packets: list[Packet]) -> list[object]:
    stage = Segments()
    return [segment for packet in packets if (segment := stage.feed(packet)) is not None]


@listens
@pytest.mark.parametrize(("name", "link_type"), [("lo", 1), (ANY, 276)])
def test_each_packet_of_a_conversation_with_oneself_once(name: str, link_type: int) -> None:
    before_ns = time.time_ns()
    with broker() as port:
        packets = received(name, port, 3)
    assert packets[0].interface.name == name
    assert packets[0].interface.link_type == link_type
    assert all(packet.length == len(packet.data) for packet in packets)
    assert all(abs(packet.time_ns - before_ns) < HOUR_NS for packet in packets)
    payloads = [segment.payload for segment in segments(packets) if segment.length]  # type: ignore[attr-defined]
    assert len(payloads) == 6


@listens
def test_a_snaplen_cuts_but_the_length_stays() -> None:
    with broker() as port:
        packets = received("lo", port, 2, snaplen=70)
    assert max(len(packet.data) for packet in packets) == 70
    assert max(packet.length for packet in packets) > 100
    assert packets[0].interface.snaplen == 70


@listens
def test_large_packets_are_complete() -> None:
    listener = None
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        listener = PacketSocket("lo", 0, CaptureSettings(("lo",), f"tcp port {address[1]}"))
        listener.attach()
        with socket.create_connection(address) as client, server.accept()[0] as other:
            client.sendall(bytes(500_000))
            got = 0
            while got < 500_000:
                got += len(other.recv(1 << 20))
    packets = list(listener.take(1000))
    listener.close()
    assert sum(segment.length for segment in segments(packets)) >= 500_000  # type: ignore[attr-defined]
    assert all(len(packet.data) == packet.length for packet in packets)


@listens
def test_an_invalid_filter_is_an_error() -> None:
    with pytest.raises(CaptureError, match=r'-f "tcp and": .*syntax error'):
        PacketSocket("lo", 0, CaptureSettings(("lo",), "tcp and"))


@listens
def test_an_interface_that_is_not_there_is_down() -> None:
    listener = PacketSocket("nowhere0", 0, CaptureSettings(("nowhere0",)))
    with closing(listener), pytest.raises(InterfaceDown):
        listener.attach()


def test_interfaces_are_listed_with_their_addresses() -> None:
    loopback = next(each for each in listed() if each.name == "lo")
    assert "127.0.0.1" in loopback.addresses
    assert loopback.is_up == is_up("lo")
    assert is_up(ANY)


def test_an_unknown_interface_is_an_error_that_lists_the_others() -> None:
    check_names(("lo", ANY))
    with pytest.raises(CaptureError, match=r"no interface nowhere0; available: lo, .*any"):
        check_names(("nowhere0",))
