"""What does a packet cost that is not Kafka's?

    python benchmarks/other_protocols.py [TRAFFIC ...] [--packets 100000] [--rounds 3] [--before DIRECTORY]

Generates captures of other protocols and prints the processor time of each packet in microseconds, by
command: the median of the rounds, less that of a capture without packets. Each protocol comes in small
packets and in bulk, and these in several forms:

    whole        a few connections from their SYN on
    mid-stream   the same, but the capture begins later
    one-way      mid-stream, and only packets from the server were captured
    short        ten messages on each connection
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from itertools import cycle, islice
from pathlib import Path
from random import Random
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.traffic import ETHERNET_MSS, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.traffic import Talk

COMMANDS = {
    "read": "read -j 1 FILE",
    "summary": "summary -j 1 FILE",
    "check": "check FILE",
    "export": "export -j 1 --format parquet -o OUT --overwrite FILE",
    "pipe": "read -j 1 -",
}
FORMS = ("whole", "mid-stream", "one-way", "short")
REPOSITORY = Path(__file__).resolve().parent.parent
CLIENT, SERVER = 0, 1

_SMALL, _BULK = 60, 30_000  # bytes of a row, a body or a record
_CONNECTIONS = 4
_SHORT_MESSAGES = 10


class Message(NamedTuple):
    """What one side sends at a time."""

    side: int
    data: bytes


def postgres(random: Random, size: int) -> Iterator[Message]:
    """Startup, then queries: a tag, a size that includes itself, and the rest."""

    def tagged(tag: bytes, data: bytes) -> bytes:
        return tag + (len(data) + 4).to_bytes(4, "big") + data

    startup = b"\0\3\0\0user\0app\0database\0orders\0\0"
    yield Message(CLIENT, (len(startup) + 4).to_bytes(4, "big") + startup)
    yield Message(SERVER, tagged(b"R", bytes(4)) + tagged(b"Z", b"I"))
    for number in range(1 << 30):
        yield Message(CLIENT, tagged(b"Q", b"SELECT * FROM orders WHERE id = %d\0" % number))
        row = b"\0\1" + size.to_bytes(4, "big") + random.randbytes(size // 2).hex().encode()
        yield Message(SERVER, tagged(b"D", row) + tagged(b"C", b"SELECT 1\0") + tagged(b"Z", b"I"))


def http(random: Random, size: int) -> Iterator[Message]:
    """Requests of a connection that is kept alive."""
    for number in range(1 << 30):
        yield Message(CLIENT, b"GET /orders/%d HTTP/1.1\r\nHost: shop\r\n\r\n" % number)
        body = random.randbytes(size)
        yield Message(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (size, body))


def noise(random: Random, size: int) -> Iterator[Message]:
    """Random bytes of both sides."""
    for _ in range(1 << 30):
        yield Message(CLIENT, random.randbytes(_SMALL))
        yield Message(SERVER, random.randbytes(size))


def counted(random: Random, size: int) -> Iterator[Message]:
    """Frames with a size of four bytes and a counter, as many protocols have them."""
    for number in range(1 << 30):
        for side, length in ((CLIENT, _SMALL), (SERVER, size)):
            frame = number.to_bytes(4, "big") + random.randbytes(length)
            yield Message(side, len(frame).to_bytes(4, "big") + frame)


def tls(random: Random, size: int) -> Iterator[Message]:
    """Hellos, then application data in records of at most 16 KiB."""

    def records(kind: int, data: bytes) -> bytes:
        parts = (data[start : start + (1 << 14)] for start in range(0, len(data), 1 << 14))
        return b"".join(bytes((kind, 3, 3)) + len(part).to_bytes(2, "big") + part for part in parts)

    for side, kind in ((CLIENT, 1), (SERVER, 2)):
        hello = b"\3\3" + random.randbytes(32) + b"\0" + (b"\0\2\x13\1\1\0" if kind == 1 else b"\x13\1\0")
        yield Message(side, records(22, bytes((kind, 0, 0, len(hello))) + hello))
    for _ in range(1 << 30):
        yield Message(CLIENT, records(23, random.randbytes(_SMALL)))
        yield Message(SERVER, records(23, random.randbytes(size)))


def ssh(random: Random, size: int) -> Iterator[Message]:
    """Versions, then what is encrypted."""
    for side in (CLIENT, SERVER):
        yield Message(side, b"SSH-2.0-OpenSSH_9.6\r\n")
    yield from noise(random, size)


class SlowWire(Wire):
    """A packet every 100 microseconds."""

    def segment(self, talk: Talk, side: int, flags: int, data: bytes = b"") -> None:
        super().segment(talk, side, flags, data)
        self._us += 90


PROTOCOLS: dict[str, Callable[[Random, int], Iterator[Message]]] = {
    "postgres": postgres,
    "http": http,
    "noise": noise,
    "counted": counted,
    "tls": tls,
    "ssh": ssh,
}
TRAFFIC = [
    f"{protocol}:{size}:{form}" for protocol in PROTOCOLS for size in ("small", "bulk") for form in FORMS
]


def make(traffic: str, path: Path, packets: int) -> int:
    """Write a capture of at least so many packets. Returns how many it has."""
    protocol, size, form = traffic.split(":")
    random = Random(traffic)
    with path.open("wb", buffering=1 << 20) as file:
        wire = SlowWire(file, ETHERNET_MSS)
        if not packets:
            return 0
        if form == "short":
            for number in range(1 << 30):
                if wire.packets >= packets:
                    return wire.packets
                talk = wire.open(number, random)
                messages = PROTOCOLS[protocol](random, _SMALL if size == "small" else _BULK)
                for side, data in islice(messages, _SHORT_MESSAGES):
                    wire.frame(talk, side, data)
                wire.close(talk)
        talks = [wire.open(number, random) for number in range(_CONNECTIONS)]
        streams = [PROTOCOLS[protocol](random, _SMALL if size == "small" else _BULK) for _ in talks]
        if form != "whole":  # neither the handshake nor the first messages were captured
            file.seek(0)
            wire = SlowWire(file, ETHERNET_MSS)
            for stream in streams:
                next(islice(stream, 7, None))
        for talk, stream in cycle(zip(talks, streams, strict=True)):
            if wire.packets >= packets:
                file.truncate()
                return wire.packets
            side, data = next(stream)
            if form != "one-way":
                wire.frame(talk, side, data)
            elif side == SERVER:
                for start in range(0, len(data), ETHERNET_MSS):
                    wire.segment(talk, side, 0x18, data[start : start + ETHERNET_MSS])
    return wire.packets


def cpu_s(command: str, capture: Path, place: Path, *, pure: bool) -> float:
    """Processor time of a command, in seconds."""
    with tempfile.TemporaryDirectory() as out, capture.open("rb") as file:
        words = command.replace("OUT", f"{out}/tables").replace("FILE", str(capture)).split()
        before = getrusage(RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "kdissect", *words],
            stdin=file if words[-1] == "-" else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=place,
            env={**os.environ, "KDISSECT_PURE": "1" if pure else "0"},
            check=False,
        )
        after = getrusage(RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr.decode())
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("traffic", nargs="*", metavar="TRAFFIC", default=TRAFFIC, help=", ".join(TRAFFIC))
    parser.add_argument("--packets", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--before", type=Path, help="measure this checkout instead")
    parser.add_argument("--pure", action="store_true", help="without the native core")
    options = parser.parse_args(arguments)
    place, pure = (options.before or REPOSITORY).resolve(), options.pure
    with tempfile.TemporaryDirectory() as directory:
        capture, empty = Path(directory) / "capture", Path(directory) / "empty"
        make(TRAFFIC[0], empty, 0)

        def costs(path: Path) -> list[float]:
            commands = [COMMANDS[name] for name in options.commands]
            return [
                median(cpu_s(each, path, place, pure=pure) for _ in range(options.rounds))
                for each in commands
            ]

        starts = costs(empty)
        print(f"{'us per packet':28}", *(f"{name:>8}" for name in options.commands))
        for traffic in options.traffic:
            packets = make(traffic, capture, options.packets)
            each_us = (
                (cost - start) / packets * 1e6 for cost, start in zip(costs(capture), starts, strict=True)
            )
            print(f"{traffic:28}", *(f"{us:8.2f}" for us in each_us), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
