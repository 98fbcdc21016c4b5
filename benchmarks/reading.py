"""How long does it take to read a packet, and how much memory does it need?

    python benchmarks/reading.py [PACKETS [BYTES]]

Writes a capture of that many packets (840,000 of 259 bytes by default, as for 420,000 small exchanges) in
every format to a temporary directory, and reads each in a separate process, best of three. For comparison, on
the same pcap: the alternative loops that were considered for the reader, and tcpdump copying the file, if it
is installed.
"""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from kdissect.capture.reader import open_capture  # noqa: E402
from kdissect.capture.write import PcapngWriter  # noqa: E402
from kdissect.model import Interface, Packet  # noqa: E402
from tests import captures  # noqa: E402

HEADER = struct.Struct("<4I")
LOOPBACK = Interface("bench", 0, 1)


def ours(path: str) -> Iterable[Packet]:
    return open_capture(path)


def several(path: str) -> Iterable[Packet]:
    return open_capture(path, path)


def piped(path: str) -> Iterable[Packet]:
    sender = subprocess.Popen(["cat", path], stdout=subprocess.PIPE)
    assert sender.stdout is not None
    return open_capture(sender.stdout)


def mapped(path: str, *, release_pages: bool = False) -> Iterator[Packet]:
    """Read a memory map of the file; ``release_pages``: return the pages to the kernel every 4 MiB."""
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        unpack, new, size = HEADER.unpack_from, tuple.__new__, len(data)
        number, pos, released = 0, 24, 0
        while pos + 16 <= size:
            seconds, ticks, captured, length = unpack(data, pos)
            start = pos + 16
            pos = start + captured
            number += 1
            yield new(Packet, (number, seconds * 10**9 + ticks, LOOPBACK, data[start:pos], length))
            if release_pages and pos - released > 4 << 20:
                end = pos & ~(mmap.PAGESIZE - 1)
                data.madvise(mmap.MADV_DONTNEED, released, end - released)
                released = end


def mapped_released(path: str) -> Iterator[Packet]:
    return mapped(path, release_pages=True)


def two_reads_a_packet(path: str) -> Iterator[Packet]:
    with Path(path).open("rb") as file:
        file.read(24)
        number = 0
        while len(head := file.read(16)) == 16:
            seconds, ticks, captured, length = HEADER.unpack(head)
            number += 1
            yield Packet(number, seconds * 10**9 + ticks, LOOPBACK, file.read(captured), length)


READERS: dict[str, Callable[[str], Iterable[Packet]]] = {
    "ours": ours,
    "several": several,
    "piped": piped,
    "mapped": mapped,
    "mapped_released": mapped_released,
    "two_reads_a_packet": two_reads_a_packet,
}


def measure(reader: str, path: str) -> None:
    """Read ``path`` three times and print the best time and this process's peak of resident memory."""
    best, count = float("inf"), 0
    for _ in range(3):
        began = time.perf_counter()
        count = sum(1 for _ in READERS[reader](path))
        best = min(best, time.perf_counter() - began)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{best / count * 1e6:8.3f} us a packet {count / best / 1e3:7.0f} k packets/s {peak_mib:6.0f} MiB")


def make(directory: Path, packets: int, size: int) -> dict[str, Path]:
    """Write the same packets in every format. Half of each packet is noise, so that it compresses like
    traffic.
    """
    import gzip

    import lz4.frame
    import zstandard

    paths = {name: directory / f"bench.{name}" for name in ("pcap", "pcapng", "gz", "zst", "lz4")}
    noise = os.urandom(1 << 20)
    with paths["pcap"].open("wb") as pcap, paths["pcapng"].open("wb") as pcapng:
        writer = PcapngWriter(pcapng)
        pcap.write(captures.pcap((), magic=captures.NANOSECONDS))
        for number in range(packets):
            start = number * 37 % (len(noise) - size)
            data = noise[start : start + size // 2] + bytes(size - size // 2)
            time_ns = 1_700_000_000 * 10**9 + number * 2000
            pcap.write(HEADER.pack(*divmod(time_ns, 10**9), size, size) + data)
            writer.write(Packet(0, time_ns, LOOPBACK, data, size))
    with (
        paths["pcap"].open("rb") as source,
        gzip.open(paths["gz"], "wb", compresslevel=4) as gz,
        zstandard.open(paths["zst"], "wb") as zst,
        lz4.frame.open(paths["lz4"], "wb") as lz,
    ):
        while block := source.read(1 << 20):
            for target in (gz, zst, lz):
                target.write(block)
    return paths


def run(label: str, reader: str, path: Path) -> None:
    print(f"{label:30}", end="", flush=True)
    subprocess.run([sys.executable, __file__, "--measure", reader, str(path)], check=True)


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], sys.argv[3])
        return
    packets, size = (int(word) for word in (*sys.argv[1:], "840000", "259")[:2])
    with tempfile.TemporaryDirectory() as directory:
        paths = make(Path(directory), packets, size)
        print(f"{packets} packets of {size} bytes, {paths['pcap'].stat().st_size / 1e6:.0f} MB as pcap")
        for form, path in paths.items():
            run(form, "ours", path)
        run("pcap, through a pipe", "piped", paths["pcap"])
        run("pcap, twice, merged", "several", paths["pcap"])
        run("loop: memory map", "mapped", paths["pcap"])
        run("loop: memory map, given back", "mapped_released", paths["pcap"])
        run("loop: two reads a packet", "two_reads_a_packet", paths["pcap"])
        if tcpdump := shutil.which("tcpdump"):
            began = time.perf_counter()
            command = [tcpdump, "-r", str(paths["pcap"]), "-w", "/dev/null"]
            subprocess.run(command, check=True, capture_output=True)
            cost = (time.perf_counter() - began) / packets
            print(f"{'tcpdump -r -w /dev/null':30}{cost * 1e6:8.3f} us a packet")


if __name__ == "__main__":
    main()
