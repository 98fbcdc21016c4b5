"""What do recordings of real clients and brokers cost, whole and cut, beside tshark?

    python benchmarks/recordings.py                          share of the exchanges that leave the core
    python benchmarks/recordings.py --times [CAPTURE ...]    60 interleaved copies: CPU time beside tshark's
    python benchmarks/recordings.py --times --before DIR     also run another checkout of kdissect

A recording is each capture in samples/ and tests/cluster, or those named. It is read in three forms: whole;
without its first third of packets, as a capture begins while clients run; and 60 copies with other client
ports, interleaved in time, because one alone takes less than the start of a program.

The core leaves to Python what it cannot finish; what it finishes and Python counts one by one for a summary
(docs/core.md) is not left. Not counted are exchanges that Python should take: SASL,
those with an anomaly or a redacted value, and orphans.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import struct
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from against_tshark import REPOSITORY, Program, lines, machine, programs, run

from kdissect.cli.main import main as kdissect
from kdissect.model import ORPHAN
from kdissect.pipeline import Dissection
from tests.rings import packets_of, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.model import Exchange, Packet

COPIES = 60
COMMANDS = (
    "read", "read --json", "read --csv", "summary", "check", "records --json",
    "export --format parquet -o OUT",
)  # fmt: skip
_APART_NS = 1_000_000
_FIRST_PORT, _PORTS = 1024, 64_000
_SASL = {17, 36}
_IPV4, _IPV6, _TCP = 0x0800, 0x86DD, 6
_SYN, _ACK = 2, 16


def recordings() -> list[Path]:
    """All captures with a truth beside them."""
    return sorted(
        path
        for directory in ("samples", "tests/cluster")
        for path in (REPOSITORY / directory).iterdir()
        if ".pcap" in path.name
    )


def tcp_place(data: bytes) -> int | None:
    """Where the TCP header of an Ethernet packet is; None if there is none, or it is in a tunnel."""
    kind = int.from_bytes(data[12:14])
    if kind == _IPV4 and data[23] == _TCP:
        return 14 + 4 * (data[14] & 15)
    return 54 if kind == _IPV6 and data[20] == _TCP else None


def copies(packets: Sequence[Packet]) -> list[Packet]:
    """The packets and 59 copies of those with TCP: each connection with another client port in each."""
    clients: dict[frozenset[bytes], bytes] = {}
    ends = []
    for packet in packets:
        place = tcp_place(packet.data)
        if place is None:
            ends.append(None)
            continue
        start, size = (26, 4) if packet.data[12:14] == b"\x08\x00" else (22, 16)
        source, target = (
            packet.data[start + side * size :][:size] + packet.data[place + 2 * side :][:2] for side in (0, 1)
        )
        both = frozenset({source, target})
        opens = packet.data[place + 13] & (_SYN | _ACK)
        if opens == _SYN or both not in clients:  # the larger port is the client's where no SYN says so
            clients[both] = source if opens == _SYN else max(source, target, key=lambda end: end[-2:])
        ends.append((both, place if clients[both] == source else place + 2))
    ports: dict[tuple[frozenset[bytes], int], int] = {}
    result = []
    for number, (packet, end) in enumerate(zip(packets, ends, strict=True)):
        if end is None:
            result.append((packet.time_ns, number, 0, packet))
            continue
        both, place = end
        for copy in range(COPIES):
            port = ports.setdefault((both, copy), _FIRST_PORT + len(ports) % _PORTS)
            time_ns = packet.time_ns + copy * _APART_NS
            data = packet.data[:place] + struct.pack(">H", port) + packet.data[place + 2 :]
            result.append((time_ns, number, copy, packet._replace(time_ns=time_ns, data=data)))
    return [packet for *_, packet in sorted(result, key=lambda each: each[:3])]


def forms(path: Path) -> dict[str, list[Packet]]:
    """The packets of a recording, whole, and without its first third."""
    packets = packets_of(path)
    return {"whole": packets, "cut": packets[len(packets) // 3 :]}


def is_pythons(exchange: Exchange) -> bool:
    """Whether Python should take it."""
    return bool(
        exchange.api_key in _SASL
        or exchange.anomalies
        or exchange.kind == ORPHAN
        or "Redacted(" in repr((exchange.request, exchange.response))
    )


def left_by_core(command: str, path: Path, out: Path) -> tuple[int, Counter[str]]:
    """How many exchanges a command takes, and those of them that leave the core, by API and error."""
    left: Counter[str] = Counter()
    total = 0
    into = Dissection.into

    def counting(self: Dissection, sink: Any, *more: Any, **named: Any) -> Any:
        nonlocal total
        feed = sink.feed

        def fed(exchange: Exchange) -> None:
            nonlocal total
            if is_pythons(exchange):
                total -= 1
            else:
                left[f"{exchange.api} v{exchange.api_version} {' '.join(exchange.errors)}".strip()] += 1
            feed(exchange)

        sink.feed = fed
        yield from into(self, sink, *more, **named)
        total += self.counts["exchanges"]

    words = command.replace("OUT", str(out)).split()
    Dissection.into = counting  # type: ignore[method-assign]
    try:
        with Path(os.devnull).open("w") as nowhere:
            saved = os.dup(1), os.dup(2)
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            try:
                with contextlib.suppress(SystemExit):
                    kdissect([words[0], *(() if words[0] == "check" else ("-j", "1")), *words[1:], str(path)])
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                for number, descriptor in enumerate(saved, 1):
                    os.dup2(descriptor, number)
                    os.close(descriptor)
    finally:
        Dissection.into = into  # type: ignore[method-assign]
        shutil.rmtree(out, ignore_errors=True)
    return total, left


def report_shares(paths: Sequence[Path], directory: Path) -> None:
    """Print the share of the exchanges that leave the core, by command and form."""
    sums: dict[tuple[str, str], list[int]] = {}
    reasons: Counter[str] = Counter()
    print(
        f"{'recording':30} {'form':6} {'exchanges':>9}  " + " ".join(f"{name[:13]:>13}" for name in COMMANDS)
    )
    for path in paths:
        for form, packets in forms(path).items():
            capture = write(directory / "capture.pcapng", packets)
            cells = []
            for command in COMMANDS:
                total, left = left_by_core(command, capture, directory / "out")
                count = left.total()
                sums.setdefault((form, command), [0, 0])
                sums[form, command][0] += count
                sums[form, command][1] += total
                cells.append(f"{count / total if total else 0:13.1%}")
                if command == "read":
                    reasons.update({f"{form}: {name}": number for name, number in left.items()})
            if not total:
                continue
            print(f"{path.name[:30]:30} {form:6} {total:9,}  " + " ".join(cells), flush=True)
    for form in ("whole", "cut"):
        shares = (sums[form, command] for command in COMMANDS)
        print(
            f"{'all':30} {form:6} {'':9}  "
            + " ".join(f"{left / (total or 1):13.1%}" for left, total in shares)
        )
    print("\nleft most often by read:")
    for name, number in reasons.most_common(30):
        print(f"{number:7,}  {name}")


def report_times(paths: Sequence[Path], directory: Path, before: Path | None, rounds: int) -> None:
    """Print processor times on 60 copies, whole and cut, and how many times faster than tshark that is. What
    tshark prints is not compared: it knows fewer versions.
    """
    racing: list[Program] = programs("read", before, None)[: 3 if before else 2]
    racing += [
        Program(
            f"{' '.join(words)}{label}",
            [sys.executable, "-m", "kdissect", *words],
            place,
            lines,
        )
        for words in (["summary"], ["read", "--json"])
        for label, place in ((" before", before), ("", REPOSITORY))
        if place is not None
    ]
    print(machine())
    names = " ".join(f"{each.name:>21}" for each in racing)
    print(f"{'recording in 60 copies':30} {'form':6} {'MB':>5} {names}")
    for path in paths:
        for form, packets in forms(path).items():
            capture = write(directory / "copies.pcapng", copies(packets))
            times = [
                median(run(each, capture, directory / "output").cpu_s for _ in range(rounds))
                for each in racing
            ]
            print(
                f"{path.name[:30]:30} {form:6} {capture.stat().st_size / 1e6:5.0f} "
                + " ".join(f"{each:13.2f} {times[0] / each:6.1f}x" for each in times),
                flush=True,
            )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("captures", nargs="*", type=Path)
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    paths = [path.resolve() for path in options.captures] or recordings()
    with tempfile.TemporaryDirectory() as directory:
        if options.times:
            report_times(paths, Path(directory), options.before, options.rounds)
        else:
            report_shares(paths, Path(directory))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
