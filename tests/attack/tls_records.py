"""The TLS records of the samples -> others, as an attacker who knows the format would change them: headers
and contents of records, the fields of hellos, and which record comes when.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kdissect import open_capture
from kdissect.limits import DEFAULT
from kdissect.model import Data
from kdissect.net.connection import Connections
from kdissect.net.tcp import Segments
from tests.attack.mutation import mutated
from tests.segments import Talk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from kdissect.model import Packet

SAMPLES = {
    "samples/tls.pcap": "samples/tls.keys",
    "samples/tls/kafka-4-tls.pcap.gz": "samples/tls/kafka-4-tls.keys",
}
HEADER_BYTES = 5
HANDSHAKE, HELLOS = 22, (1, 2)
MAX_RECORDS = 60  # of a connection; its first ones matter most

Records = list[tuple[int, bytes]]
"""Side and bytes of each record of a connection, with its header."""


@cache
def connections(sample: str) -> list[Records]:
    """What each connection of a sample carries."""
    segments, table = Segments(DEFAULT), Connections(DEFAULT)
    streams: dict[object, tuple[list[bytearray], Records]] = {}
    with open_capture(sample) as packets:
        for packet in packets:
            segment = segments.feed(packet)
            for connection, side, item in table.feed(segment) if segment else ():
                if isinstance(item, Data):
                    buffers, records = streams.setdefault(connection, ([bytearray(), bytearray()], []))
                    buffers[side] += item.payload
                    records += ((side, record) for record in complete(buffers[side]))
    return [records[:MAX_RECORDS] for _, records in streams.values() if records]


def complete(buffer: bytearray) -> Iterator[bytes]:
    """Remove and yield the complete records at the beginning of a stream."""
    while len(buffer) >= HEADER_BYTES:
        end = HEADER_BYTES + int.from_bytes(buffer[3:HEADER_BYTES], "big")
        if len(buffer) < end:
            return
        yield bytes(buffer[:end])
        del buffer[:end]


def lengths_in_hello(record: bytes) -> list[tuple[int, int]]:
    """Where the lengths, versions and types in a hello stand, and how many bytes each has (RFC 8446, 4.1)."""
    places = [(6, 3), (9, 2), (43, 1)]
    pos = 44 + record[43]
    if record[HEADER_BYTES] == 1:
        places.append((pos, 2))  # cipher suites
        pos += 2 + int.from_bytes(record[pos : pos + 2], "big")
        places.append((pos, 1))  # compression methods
        pos += 1 + record[pos]
    else:
        places.append((pos, 2))
        pos += 3
    places.append((pos, 2))
    pos += 2
    while pos + 4 < len(record):
        places += [(pos, 2), (pos + 2, 2), (pos + 4, 2)]  # the last one is often another length
        pos += 4 + int.from_bytes(record[pos + 2 : pos + 4], "big")
    return places


def is_hello(record: bytes) -> bool:
    return len(record) > 50 and record[0] == HANDSHAKE and record[HEADER_BYTES] in HELLOS


def framed(content: bytes, kind: int, *, length: int | None = None, version: int = 0x0303) -> bytes:
    """A record."""
    size = len(content) if length is None else length
    return bytes([kind]) + version.to_bytes(2, "big") + (size % (1 << 16)).to_bytes(2, "big") + content


# Each changes the records of a connection from a place on.


def header(records: Records, place: int, random: Random) -> None:
    """Another type, version or length."""
    side, record = records[place]
    changed = framed(
        record[HEADER_BYTES:],
        random.choice((record[0], record[0], 20, 21, 22, 23, 24, random.randrange(256))),
        length=random.choice((None, None, 0, 1, 0x4000, 0x4800, 0xFFFF, len(record), len(record) - 6)),
        version=random.choice((0x0303, 0x0300, 0x0304, 0x0002, random.randrange(1 << 16))),
    )
    records[place] = side, changed


def content(records: Records, place: int, random: Random) -> None:
    """Other bytes under a header that is right."""
    side, record = records[place]
    records[place] = side, framed(mutated(record[HEADER_BYTES:], random, 0), record[0])


def hello(records: Records, _place: int, random: Random) -> None:
    """Another number in a hello, if there is one."""
    hellos = [number for number, (_, record) in enumerate(records) if is_hello(record)]
    if not hellos:
        return
    place = random.choice(hellos)
    side, record = records[place]
    pos, size = random.choice(lengths_in_hello(record))
    number = int.from_bytes(record[pos : pos + size], "big")
    others = (
        0,
        number + 1,
        number - 1,
        1 << 8 * size - 1,
        (1 << 8 * size) - 1,
        random.randrange(1 << 8 * size),
    )
    changed = (random.choice(others) % (1 << 8 * size)).to_bytes(size, "big")
    records[place] = side, record[:pos] + changed + record[pos + size :]


def lost(records: Records, place: int, random: Random) -> None:
    del records[place : place + random.choice((1, 1, 4))]


def again(records: Records, place: int, random: Random) -> None:
    records[place:place] = [random.choice(records)] * random.choice((1, 1, 50))


def swapped(records: Records, place: int, random: Random) -> None:
    other = random.randrange(len(records))
    records[place], records[other] = records[other], records[place]


def other_side(records: Records, place: int, _random: Random) -> None:
    side, record = records[place]
    records[place] = 1 - side, record


def divided(records: Records, place: int, random: Random) -> None:
    """In tiny records."""
    side, record = records[place]
    step = random.choice((1, 2, 100))
    starts = range(HEADER_BYTES, min(len(record), 300), step)
    records[place : place + 1] = [(side, framed(record[pos : pos + step], record[0])) for pos in starts]


def foreign(records: Records, place: int, random: Random) -> None:
    """Records that no key is needed for, and ones that no key opens."""
    kind = random.choice((20, 21, 22, 23))
    junk = framed(random.choice((b"", b"\1", random.randbytes(2), random.randbytes(200))), kind)
    records[place:place] = [(random.randrange(2), junk)] * random.choice((1, 3, 200))


def plain(records: Records, place: int, random: Random) -> None:
    """Bytes that are no record."""
    records.insert(place, (random.randrange(2), random.randbytes(random.choice((1, 4, 100)))))


CHANGES: tuple[Callable[[Records, int, Random], None], ...] = (
    header, content, hello, hello, lost, again, swapped, other_side, divided, foreign, plain,
)  # fmt: skip


def conversation(random: Random) -> tuple[list[Packet], int, str]:
    """Connections of a sample with damaged records: packets, how many records, and its key log."""
    sample = random.choice([*SAMPLES])
    packets: list[Packet] = []
    number = 0
    for _ in range(3):
        records = list(random.choice(connections(sample)))
        for _ in range(random.randint(1, 4)):
            if records:
                random.choice(CHANGES)(records, random.randrange(len(records)), random)
        talk = Talk(("10.0.0.1", random.randrange(1024, 65536)), mss=random.choice((90, 536, 1460, 60_000)))
        if random.random() < 0.8:
            talk.handshake()
        for side, record in records:
            (talk.broker_sends if side else talk.client_sends)(record)
        packets += (talk.finish() if random.random() < 0.5 else talk).packets
        number += len(records)
    return sorted(packets, key=lambda packet: packet.time_ns), number, SAMPLES[sample]


def key_log(file: str, random: Random) -> bytes:
    """A key log as it is, with lines that are damaged, or with those of strangers."""
    lines = Path(file).read_bytes().splitlines(keepends=True)
    match random.randrange(4):
        case 0:
            return mutated(b"".join(lines), random, 0)
        case 1:
            random.shuffle(lines)
            return b"".join(line if random.random() < 0.7 else mutated(line, random, 0) for line in lines)
        case _:
            return b"".join(lines)
