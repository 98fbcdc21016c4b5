"""Floods: what takes an attacker little to send or to hand over takes bounded memory here, and time that is
linear in the bytes. Each is measured in a process of its own. The same for connections of many kinds, up to a
million of them, is in tests/test_growth.py.

The long forms are marked deep; their figures are those of SECURITY.md.
"""

from __future__ import annotations

import gzip
import re
import resource
import subprocess
import sys
from itertools import count
from typing import TYPE_CHECKING

import lz4.frame
import pytest
import zstandard
from prometheus_client import generate_latest

from kdissect import dissect
from kdissect.limits import DEFAULT
from kdissect.stats.facts import Facts
from kdissect.stats.pulse import Pulse
from kdissect.text.metrics import Metrics
from tests.captures import pcap
from tests.depth import IS_DEEP
from tests.frames import METADATA, heartbeat_answers, heartbeats, request, response
from tests.segments import ACK, PSH, START_NS, Talk, ipv4, link
from tests.test_growth import MEASURED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MAX_KIB = 100 * 1024  # a process that dissects nothing takes 45 MB

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstandard.compress,
    "lz4": lz4.frame.compress,
}


def measured(path: Path, *arguments: str) -> tuple[float, int, str]:
    """Processor time in seconds, peak memory in KiB, and stderr of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments, str(path)], capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    text, _, peak = done.stderr.strip().rpartition("\n")
    return after.ru_utime - before.ru_utime, int(peak), text


def overlapping(number: int) -> Iterator[bytes]:
    """Behind a hole, segments that overlap each other, each with other bytes; then the hole is filled."""
    talk = Talk(mss=60_000).handshake()
    for place in range(number):
        talk.put(0, PSH | ACK, bytes([place % 256]) * 1400, sequence=1101 + place)
    talk.client_sends(heartbeats(1)[0])
    talk.broker_sends(heartbeat_answers(1)[0])
    return (packet.data for packet in talk.packets)


def fragmented(number: int) -> Iterator[bytes]:
    """Pieces of datagrams that overlap, and of which none is ever complete."""
    talk = Talk(mss=60_000).client_sends(heartbeats(40)[0] * 40)
    payload = talk.packets[0].data[34:]
    for identification in range(number):
        offset = identification % 3 * 8
        yield link(
            ipv4(
                "10.0.0.1", "10.0.0.2", payload[offset : offset + 1400],
                identification=identification // 3 % 65536, offset=offset, more=True,
            )
        )  # fmt: skip


def half_open(number: int) -> Iterator[bytes]:
    """The first packets of connections from other addresses and ports."""
    syn = bytearray(Talk().handshake().packets[0].data)
    for each in range(number):
        syn[28:30] = (each >> 16).to_bytes(2, "big")
        syn[34:36] = (each & 0xFFFF).to_bytes(2, "big")
        yield bytes(syn)


def busy(number: int) -> Iterator[bytes]:
    """Connections from other addresses and ports that stay open: each has two exchanges, the second one after
    all others had their first.
    """
    talk = Talk(mss=60_000).handshake()
    for heartbeat, answer in zip(heartbeats(2), heartbeat_answers(2), strict=True):
        talk.client_sends(heartbeat).broker_sends(answer)
    sides = (0, 1, 0, 0, 1, 0, 1)
    packets = [(side, bytearray(packet.data)) for side, packet in zip(sides, talk.packets, strict=True)]
    for part in (packets[:5], packets[5:]):
        for each in range(number // len(packets)):
            for side, packet in part:
                address, port = (26, 34) if side == 0 else (30, 36)
                packet[address + 2 : address + 4] = (each >> 15).to_bytes(2, "big")
                packet[port : port + 2] = (each & 0x7FFF).to_bytes(2, "big")
                yield bytes(packet)


FLOODS: dict[Callable[[int], Iterator[bytes]], tuple[int, int]] = {
    overlapping: (1_000, 40_000),
    fragmented: (5_000, 1_000_000),
    half_open: (5_000, 1_000_000),
    busy: (5_000, 1_400_000),
}
"""And how many packets of each in the short and in the long form."""


def flood(kind: Callable[[int], Iterator[bytes]], number: int, directory: Path) -> tuple[float, int, str]:
    path = directory / "flood.pcap"
    path.write_bytes(pcap(zip(count(START_NS, 1000), kind(number), strict=False)))
    return measured(path, "read", "-q")


@pytest.mark.parametrize("kind", FLOODS, ids=lambda kind: kind.__name__)
def test_a_flood_of_packets_stays_within_bounds(
    kind: Callable[[int], Iterator[bytes]], tmp_path: Path
) -> None:
    cpu_s, peak, _ = flood(kind, FLOODS[kind][0], tmp_path)
    assert peak < MAX_KIB
    assert cpu_s < 10


@pytest.mark.deep
@pytest.mark.parametrize("kind", FLOODS, ids=lambda kind: kind.__name__)
def test_a_long_one_too(
    kind: Callable[[int], Iterator[bytes]], tmp_path: Path, report_line: Callable[[str, str], None]
) -> None:
    number = FLOODS[kind][1] // (1 if IS_DEEP else 10)
    cpu_s, peak, _ = flood(kind, number, tmp_path)
    report_line(f"{kind.__name__}, {number:,} packets: {cpu_s:.1f} s, {peak // 1024} MiB", "attack")
    assert peak < 2 * MAX_KIB


def bomb(packer: Callable[[bytes], bytes], size: int) -> bytes:
    """A capture of empty packets, and behind it one packet of 15 MiB after another."""
    large = (0).to_bytes(8, "little") + (15 << 20).to_bytes(4, "little") * 2 + bytes(15 << 20)
    plain = pcap([]) + bytes(1 << 20) + large * (size // len(large))
    return packer(plain)


@pytest.mark.parametrize("form", PACKERS)
def test_a_capture_as_a_bomb_stays_within_bounds(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"bomb.pcap.{form}"
    path.write_bytes(bomb(PACKERS[form], 64 << 20))
    assert path.stat().st_size < 1 << 20
    cpu_s, peak, _ = measured(path, "read", "-q")
    assert peak < 2 * MAX_KIB
    assert cpu_s < 10


@pytest.mark.deep
@pytest.mark.parametrize("form", PACKERS)
def test_a_large_one_too(form: str, tmp_path: Path, report_line: Callable[[str, str], None]) -> None:
    path = tmp_path / f"bomb.pcap.{form}"
    size = (1 << 30) if IS_DEEP else 128 << 20
    path.write_bytes(bomb(PACKERS[form], size))
    cpu_s, peak, _ = measured(path, "read", "-q")
    packed = path.stat().st_size
    report_line(f"{form} bomb, {packed:,} to {size:,} bytes: {cpu_s:.1f} s, {peak // 1024} MiB", "attack")
    assert peak < 2 * MAX_KIB


@pytest.mark.parametrize("names", [2_000, pytest.param(65_000, marks=pytest.mark.deep)])
def test_many_names_make_few_time_series(names: int, report_line: Callable[[str, str], None]) -> None:
    """Each exchange is from another client and names another topic."""
    talk = Talk(mss=60_000).handshake()
    for number in range(names):
        body = {"topics": [{"name": f"topic-{number}", "error_code": 3}]}
        header = {"correlation_id": number, "client_id": f"client-{number}"}
        talk.client_sends(request(METADATA, 1, {}, **header))
        talk.broker_sends(response(METADATA, 1, body, correlation_id=number))
    pulse = Pulse()
    metrics = Metrics(DEFAULT, pulse.now, lambda: (0, 0))
    for exchange in dissect(talk.packets, kafka_ports=[9092]):
        facts = Facts(exchange)
        pulse.feed(facts)
        metrics.feed(facts)
    text = generate_latest(metrics.registry).decode()
    series = set(re.findall(r"client=\"(client-[0-9]+)\"", text))
    assert len(series) == DEFAULT.metric_labels
    assert f"client-{names - 1}" not in text
    lines = len(text.splitlines())
    report_line(f"metrics of {names:,} clients and topics: {lines:,} lines", "attack")
    assert lines < 6 * DEFAULT.metric_labels
