"""Packets -> a capture file, as an attacker would make it: in tunnels and fragments, with damage at fields of
IP, TCP and the file, of every form and compression.
"""

from __future__ import annotations

import gzip
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import lz4.frame
import zstandard

from tests.attack.mutation import mutated
from tests.attack.test_packets import DAMAGE
from tests.captures import NANOSECONDS, block, counters, interface, pcap, pcapng, section
from tests.disguises import NETWORKS
from tests.segments import ETHERNET, TCP, ipv4, link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from kdissect.model import Packet

FIELDS = (
    (12, 2), (14, 1), (16, 2), (18, 2), (20, 2), (23, 1), (26, 4), (34, 2), (36, 2), (38, 4), (42, 4),
    (46, 1), (47, 1), (48, 2), (52, 2), (54, 2),
)  # fmt: skip
"""Of Ethernet, IPv4 and TCP, in this order: where they begin, and how many bytes they have."""
IN_TUNNEL = 14 + 20 + 16  # so far away they are in VXLAN
FORMS: tuple[Callable[..., bytes], ...] = (
    pcap, pcapng, partial(pcap, order=">"), partial(pcap, magic=NANOSECONDS), partial(pcapng, order=">"),
    partial(pcapng, nanoseconds=True),
)  # fmt: skip
PACKERS: tuple[Callable[[bytes], bytes], ...] = (
    bytes, bytes, bytes, bytes, gzip.compress, lz4.frame.compress, zstandard.compress
)  # fmt: skip


class Place(NamedTuple):
    """A field."""

    pos: int
    size: int


def another_number(data: bytes, place: Place, random: Random) -> bytes:
    """The same with another number in this field, most likely one at a limit or beside the right one."""
    pos, size = place
    number = int.from_bytes(data[pos : pos + size], "big")
    step = 1 << 8 * random.randrange(size)  # whatever the order of the bytes
    other = random.choice(
        (0, 1, number + step, number - step, -1, 1 << 8 * size - 1, random.getrandbits(8 * size))
    )
    return data[:pos] + (other % (1 << 8 * size)).to_bytes(size, "big") + data[pos + size :]


def fragments(packet: Packet, random: Random) -> Iterator[bytes]:
    """The IP packet in pieces that are shuffled, overlap, or do not reach the end."""
    payload = packet.data[34:]
    pieces = []
    for start in range(0, len(payload), 256):
        end = start + 256 + random.choice((0, 0, 0, 8, -8))
        more = end < len(payload) or random.random() < 0.1
        pieces.append((start + random.choice((0, 0, 0, 0, 8)), more, payload[start:end]))
    if random.random() < 0.5:
        random.shuffle(pieces)
    identification = random.randrange(1 << 16)
    for offset, more, piece in pieces:
        data = ipv4(
            "10.0.0.1",
            "10.0.0.2",
            piece,
            protocol=TCP,
            identification=identification,
            offset=offset,
            more=more,
        )
        yield link(data)


def places_in_file(file: bytes) -> list[Place]:
    """The fields of records or blocks, as far as they can be found."""
    if file[:4] != b"\x0a\x0d\x0d\x0a":
        order = "big" if file[0] == 0xA1 else "little"
        places = [Place(4, 2), Place(6, 2), Place(16, 4), Place(20, 4)]
        pos = 24
        while pos < len(file):
            places += [Place(pos + field, 4) for field in (0, 4, 8, 12)]
            pos += 16 + int.from_bytes(file[pos + 8 : pos + 12], order)  # type: ignore[arg-type]
        return places
    order = "big" if file[8] == 0x1A else "little"
    places, pos = [], 0
    while pos < len(file):
        length = int.from_bytes(file[pos + 4 : pos + 8], order)  # type: ignore[arg-type]
        places += [Place(at, 4) for at in (*range(pos, min(pos + length - 4, pos + 32), 4), pos + length - 4)]
        places += [Place(pos + at, 2) for at in (8, 10, length - 8, length - 6)]
        pos += length
    return places


def other_blocks(order: str, random: Random) -> bytes:
    """Blocks of pcapng that hold no packet."""
    big = (1 << 64) - 1
    return random.choice((
        section(order=order), interface(order=order, resolution=random.randrange(256)),
        interface(order=order, link_type=random.randrange(300), snaplen=random.randrange(200)),
        interface(order=order, offset=random.choice((1 << 62, -(1 << 62)))),
        interface(order=order, name="\x1b[2J"),
        counters(order=order, received=big, dropped=big, dropped_by_system=big, index=random.randrange(3)),
        block(4, random.randbytes(40), order=order), block(10, b"KSLT" + random.randbytes(30), order=order),
        block(random.randrange(1 << 31), random.randbytes(random.randrange(60)), order=order),
    ))  # fmt: skip


def file_of(packets: list[Packet], random: Random) -> bytes:
    """These packets, which are IPv4 in Ethernet, in a file, with damage somewhere."""
    if random.random() < 0.25:
        packets = random.choice([*NETWORKS.values()])(packets)
    link_type = packets[0].interface.link_type if packets else ETHERNET
    for _ in range(random.choice((0, 0, 1, 5)) if packets else 0):
        random.choice(DAMAGE)(packets, random.randrange(len(packets)), random)
    timed: list[tuple[int, bytes]] = []
    for packet in packets:
        pieces = fragments(packet, random) if random.random() < 0.05 else (packet.data,)
        timed += [(max(0, packet.time_ns) % (1 << 61), data) for data in pieces]
    for _ in range(random.choice((0, 0, 1, 5)) if timed else 0):
        number = random.randrange(len(timed))
        time_ns, data = timed[number]
        pos, size = random.choice(FIELDS)
        place = Place(pos + random.choice((0, 0, 0, IN_TUNNEL)), size)
        if len(data) >= place.pos + size:
            timed[number] = time_ns, another_number(data, place, random)
    form = random.choice(FORMS)
    of_pcap = getattr(form, "func", form) is pcap
    if of_pcap:
        timed = [(time_ns, data) for time_ns, data in timed if time_ns < (1 << 32) * 10**9]
    file = form(timed, link_type=link_type)
    if random.random() < 0.2:
        places = places_in_file(file)
        for _ in range(random.randint(1, 4)):
            file = another_number(file, random.choice(places), random)
    if not of_pcap and random.random() < 0.2:
        order = ">" if file[8] == 0x1A else "<"
        file += other_blocks(order, random) + form(timed[:20], link_type=link_type)
    if random.random() < 0.1:
        file = file[:24] + mutated(file[24:], random, 0)
    file = random.choice(PACKERS)(file)
    return mutated(file, random, 4) if random.random() < 0.1 else file
