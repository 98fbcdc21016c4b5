"""From packet bytes to JSON lines: whatever the bytes, nothing is raised, and no more comes out than went in.

Half of the packets belong to a real conversation, so that damage reaches every stage and not the first alone.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import orjson
import pytest

from kdissect import dissect
from kdissect.limits import Limits
from kdissect.model import Interface, Packet
from kdissect.net.tcp import Segments, endpoints
from kdissect.tables.lines import JsonLines
from tests.attack.mutation import mutated
from tests.depth import IS_DEEP
from tests.segments import ipv4, link, tcp
from tests.test_pipeline import talk

if TYPE_CHECKING:
    from collections.abc import Callable


DEEP_RUNS = 100_000 if IS_DEEP else 2_000
LINK_TYPES = (0, 1, 12, 101, 108, 113, 228, 229, 276, 147)
SMALL = Limits(
    stream_bytes=4_000, total_stream_bytes=6_000, connections=2, resync_bytes=2_000, search_bytes=3_000,
    frame_bytes=1_000, pending_requests=3, pending_bytes=2_000, total_held_bytes=3_000, naming_rows=2,
    order_rows=2, fragment_datagrams=2,
)  # fmt: skip

TALKS = [talk(mss=mss).packets for mss in (90, 536, 65_000)]


def changed_bytes(packets: list[Packet], place: int, random: Random) -> None:
    packets[place] = packets[place]._replace(data=mutated(packets[place].data, random, 0))


def changed_payload(packets: list[Packet], place: int, random: Random) -> None:
    """Other bytes in a good segment: checksums are nobody's business, frames and bodies are."""
    segment = Segments().feed(packets[place])
    if segment is None or len(segment.ends) != 12:
        return
    source, destination = endpoints(segment.ends)
    payload = mutated(segment.payload, random, 0)[:60_000]
    segment_bytes = tcp(source, destination, segment.sequence, segment.acknowledgment, segment.flags, payload)
    packets[place] = packets[place]._replace(data=link(ipv4(source.ip, destination.ip, segment_bytes)))


def another_flag(packets: list[Packet], place: int, random: Random) -> None:
    data = bytearray(packets[place].data)
    if len(data) > 47:
        data[47] = random.randrange(256)
    packets[place] = packets[place]._replace(data=bytes(data))


def noise(packets: list[Packet], place: int, random: Random) -> None:
    interface = Interface("test.pcap", 0, random.choice(LINK_TYPES))
    data = random.randbytes(random.randrange(120))
    packets.insert(place, Packet(place, packets[place].time_ns, interface, data, len(data)))


def lost(packets: list[Packet], place: int, random: Random) -> None:
    if len(packets) > 1:
        del packets[place]


def again(packets: list[Packet], place: int, random: Random) -> None:
    packets.insert(random.randrange(len(packets)), packets[place])


def cut(packets: list[Packet], place: int, random: Random) -> None:
    data = packets[place].data
    packets[place] = packets[place]._replace(data=data[: random.randint(0, len(data))])


def another_time(packets: list[Packet], place: int, random: Random) -> None:
    step = random.choice((-(10**18), -(10**9), 10**9, 10**12))
    packets[place] = packets[place]._replace(time_ns=packets[place].time_ns + step)


def snapped(packets: list[Packet], place: int, random: Random) -> None:
    """Each packet from here on is cut to the same few bytes."""
    snaplen = random.randint(50, 120)
    packets[place:] = [packet._replace(data=packet.data[:snaplen]) for packet in packets[place:]]


DAMAGE: list[Callable[[list[Packet], int, Random], None]] = [
    changed_bytes, changed_payload, changed_payload, another_flag, noise, lost, again, cut, another_time,
    snapped,
]  # fmt: skip


def run(seed: int) -> int:
    """One capture of a few dozen packets; how many exchanges came out."""
    random = Random(seed)
    packets = list(random.choice(TALKS))
    for _ in range(random.choice((1, 3, 10, 30))):
        random.choice(DAMAGE)(packets, random.randrange(len(packets)), random)
    lines: list[bytes] = []
    sink = JsonLines(lines.append)
    exchanges = 0
    options = random.choice(({}, {"kafka_ports": {9092}}, {"show_secrets": True}, {"limits": SMALL}))
    for exchange in dissect(packets, **options):  # type: ignore[arg-type]
        sink.feed(exchange)
        exchanges += 1
    sink.close()
    rows = b"".join(lines).splitlines()
    assert len(rows) == exchanges
    assert all(orjson.loads(line) for line in rows)
    assert exchanges <= sum(len(packet.data) for packet in packets) / 4
    return exchanges


def test_any_packets_become_json_lines() -> None:
    assert sum(map(run, range(150))) > 150


@pytest.mark.deep
def test_any_packets_become_json_lines_many_times() -> None:
    assert sum(map(run, range(1_000, 1_000 + DEEP_RUNS))) > DEEP_RUNS
