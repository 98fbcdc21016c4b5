from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING

import pytest

from kdissect.capture.live import CaptureSettings
from kdissect.capture.ongoing import InterfaceSource, LiveSources, PipeSource
from kdissect.capture.privileges import User
from kdissect.capture.source import one_by_one
from kdissect.errors import CaptureError
from kdissect.limits import LIVE
from kdissect.model import IdleTick, Packet, PacketBlock
from tests.captures import pcap, pcapng
from tests.loopback import listens

if TYPE_CHECKING:
    from collections.abc import Iterator

START_NS = 1_700_000_000_000_000_000
ROOT = User("root", 0, 0) if os.geteuid() == 0 else None
PACKETS = [(START_NS + number * 1_000_000, bytes([number]) * 40) for number in range(5)]


@contextmanager
def piped() -> Iterator[tuple[LiveSources, int]]:
    """A live capture from a pipe, and the writing end of the pipe."""
    out, into = os.pipe()
    with LiveSources([PipeSource("-", LIVE, out)]) as ongoing:
        yield ongoing, into
    os.close(out)


def packets_of(ongoing: LiveSources, count: int) -> list[Packet]:
    """The next packets, without the idle ticks between them."""
    packets: list[Packet] = []
    while len(packets) < count:
        item = next(iter(ongoing))
        if isinstance(item, PacketBlock):
            packets += item.packets
    return packets


@pytest.mark.parametrize("file", [pcap(PACKETS), pcapng(PACKETS)], ids=["pcap", "pcapng"])
def test_a_packet_comes_as_soon_as_it_is_there(file: bytes) -> None:
    """Split at any byte: complete packets are not held back by an incomplete one."""
    with piped() as (ongoing, into):
        os.write(into, file[: -len(file) // 10])
        assert [packet.data for packet in packets_of(ongoing, 4)] == [data for _, data in PACKETS[:4]]
        os.write(into, file[-len(file) // 10 :])
        assert packets_of(ongoing, 1)[0].number == 5
        os.close(into)
        assert [item for item in one_by_one(ongoing) if isinstance(item, Packet)] == []
        assert ongoing.warnings == []


@pytest.mark.parametrize("file", [pcap(PACKETS), pcapng(PACKETS)], ids=["pcap", "pcapng"])
def test_time_goes_on_when_nothing_comes(file: bytes) -> None:
    with piped() as (ongoing, into):
        os.write(into, file)
        assert len(packets_of(ongoing, 5)) == 5
        ticks = [next(iter(ongoing)) for _ in range(3)]
        assert all(isinstance(tick, IdleTick) for tick in ticks)
        times = [tick.time_ns for tick in ticks]
        assert times == sorted(times)
        assert PACKETS[-1][0] <= times[0] < times[2]
        os.close(into)


def test_byte_by_byte() -> None:
    file = pcapng(PACKETS)
    with piped() as (ongoing, into):

        def write() -> None:
            for pos in range(len(file)):
                os.write(into, file[pos : pos + 1])
            os.close(into)

        thread = threading.Thread(target=write)
        thread.start()
        got = [item for item in one_by_one(ongoing) if isinstance(item, Packet)]
        thread.join()
    assert [(packet.time_ns, packet.data) for packet in got] == PACKETS


def test_what_has_come_is_read_when_it_is_stopped() -> None:
    with piped() as (ongoing, into):
        os.write(into, pcap(PACKETS))
        first = packets_of(ongoing, 1)
        ongoing.stop()
        assert len(first + [item for item in one_by_one(ongoing) if isinstance(item, Packet)]) == 5
        os.close(into)


def test_what_is_no_capture_is_refused() -> None:
    with piped() as (ongoing, into):
        os.write(into, b"tcpdump: no suitable device\n")
        os.close(into)
        with pytest.raises(CaptureError, match="neither pcap nor pcapng; it is text"):
            list(ongoing)


@listens
def test_why_nothing_can_be_captured_is_reported_once() -> None:
    reported: list[str] = []
    with pytest.raises(CaptureError, match=r"^no interface nowhere0; available: "):
        InterfaceSource(CaptureSettings(("nowhere0",)), LIVE, reported.append)
    assert reported == []


@listens
def test_an_interface_is_listened_to_until_it_is_stopped() -> None:
    reported: list[str] = []

    def report(text: str) -> None:
        reported.append(text)
        ongoing.stop()

    ongoing = LiveSources([InterfaceSource(CaptureSettings(("lo",), "tcp port 1"), LIVE, report, ROOT)])
    with ongoing:
        assert list(takewhile(lambda item: isinstance(item, IdleTick), ongoing)) == []
        assert ongoing.sources[0].form is not None
    assert reported == ['listening on lo, filter "tcp port 1"']
