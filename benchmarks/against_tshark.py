"""How fast is kdissect compared with tshark, and with the minimum that any tool must do, on the same files?

    python benchmarks/against_tshark.py [WORK ...]            `read`: 60 MB of each kind of traffic
    python benchmarks/against_tshark.py --doing records        `records --json`
    python benchmarks/against_tshark.py --doing summary        `summary`, beside `read`
    python benchmarks/against_tshark.py --full                 a gigabyte of each, 400,000 chatty exchanges
    python benchmarks/against_tshark.py --before DIRECTORY     also run another checkout of kdissect
    python benchmarks/against_tshark.py --jobs 2               also run kdissect with -j 2

Generates each capture (traffic.py), runs the programs in turn, and prints medians: CPU time (user + system,
including child processes), wall-clock time, megabytes per second of CPU time, CPU time per exchange, peak
resident memory, the speedup in CPU time over the first program of the table, and the slowdown relative to
the floor (floor.py). The output of every run is counted: the benchmark fails if exchanges or records are
missing. Starting kdissect takes about 0.12 s, tshark 0.3 s, which matters only for small captures.

tshark gets the port (``-d``) and resolves no names (``-n``). For ``read`` it writes the time and header
fields of Kafka messages (``-T fields``); kdissect also decodes the bodies, and writes a line per exchange.
For ``records`` tshark writes all fields of records that it knows (``-T ek -J kafka``; it neither shows values
nor verifies checksums). These captures have the latest versions whose records tshark 4.0 can read: Produce 8,
Fetch 11.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from traffic import WORKS, make_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from traffic import Contents

REPOSITORY = Path(__file__).resolve().parent.parent
FULL_MEGABYTES = {"chatty": 233}  # 400,000 exchanges; of the others a gigabyte
FIELDS = (
    "frame.time_epoch", "tcp.dstport", "kafka.api_key", "kafka.api_version", "kafka.correlation_id",
    "kafka.client_id",
)  # fmt: skip
TSHARK = ("tshark", "-n", "-d", "tcp.port==9092,kafka")

_TO_PORT, _CORRELATION_ID = (FIELDS.index(field) for field in ("tcp.dstport", "kafka.correlation_id"))


class Program(NamedTuple):
    """A command to run on a capture, and a function that counts its output."""

    name: str
    command: list[str]
    directory: Path
    count_rows: Callable[[Path], int]


class Cost(NamedTuple):
    """The cost of a run."""

    cpu_s: float
    wall_s: float
    peak_mib: float


def lines(output: Path) -> int:
    """Exchanges or records in kdissect's output: one per line."""
    with output.open("rb") as file:
        return sum(1 for _ in file)


def exchanges_in_summary(output: Path) -> int:
    """Exchanges in a summary."""
    count: int = json.loads(output.read_bytes())["capture"]["exchanges"]
    return count


def requests(output: Path) -> int:
    """Requests in tshark's output: it has a line per packet, with the correlation IDs of its messages
    separated by commas. Not every request has a response, and tshark does not show all of those.
    """
    with output.open("rb") as file:
        rows = (line.split(b"\t") for line in file)
        ids = (row[_CORRELATION_ID] for row in rows if row[_TO_PORT] == b"9092")
        return sum(field.count(b",") + 1 for field in ids if field)


def named_records(output: Path) -> int:
    """Records in tshark's output: each has this title."""
    with output.open("rb") as file:
        return sum(line.count(b'"Record"') for line in file)


def first_of(place: int) -> Callable[[Path], int]:
    """A function that returns one of the numbers that floor.py prints."""
    return lambda output: int(output.read_text().split()[place])


def programs(doing: str, before: Path | None, jobs: int | None) -> list[Program]:
    """The programs to compare; the first is the baseline."""
    floor = [sys.executable, str(REPOSITORY / "benchmarks/floor.py")]

    def ours(*words: str, count_rows: Callable[[Path], int], name: str = "kdissect") -> Iterable[Program]:
        command = [sys.executable, "-m", "kdissect", *words]
        if before is not None:
            yield Program(f"{name} before", command, before.resolve(), count_rows)
        if jobs is None:
            yield Program(name, command, REPOSITORY, count_rows)
        else:
            yield Program(f"{name} -j 1", [*command, "-j", "1"], REPOSITORY, count_rows)
            yield Program(f"{name} -j {jobs}", [*command, "-j", str(jobs)], REPOSITORY, count_rows)

    if doing == "summary":
        return [
            *ours("read", count_rows=lines, name="read"),
            *ours("summary", "--json", count_rows=exchanges_in_summary, name="summary"),
            Program("floor", floor, REPOSITORY, first_of(0)),
        ]
    if doing == "records":
        tshark = Program("tshark", [*TSHARK, "-T", "ek", "-J", "kafka", "-r"], REPOSITORY, named_records)
        contenders = [
            *ours("records", "--json", count_rows=lines),
            Program("floor", floor, REPOSITORY, first_of(1)),
        ]
    else:
        fields = [word for field in FIELDS for word in ("-e", field)]
        tshark = Program("tshark", [*TSHARK, "-T", "fields", *fields, "-r"], REPOSITORY, requests)
        contenders = [*ours("read", count_rows=lines)]
    return [tshark, *contenders] if shutil.which("tshark") else contenders


def environment(directory: Path) -> dict[str, str]:
    """A user's environment: output is buffered, and compiled modules are cached."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**variables, "PYTHONPYCACHEPREFIX": str(directory / "modules")}


def run(program: Program, capture: Path, output: Path) -> Cost:
    """Run a program once, with its output in a file so that it can be counted."""
    with output.open("wb") as file:
        began = time.perf_counter()
        process = subprocess.Popen(
            [*program.command, str(capture)],
            stdout=file,
            stderr=subprocess.DEVNULL,
            cwd=program.directory,
            env=environment(output.parent),
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{program.name} ended with {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss / 1024)


def compare(racing: list[Program], capture: Path, expected: int, rounds: int) -> dict[str, Cost]:
    """Median costs. The programs take turns, so that other load on the machine affects all of them alike."""
    costs: dict[str, list[Cost]] = {program.name: [] for program in racing}
    output = capture.with_suffix(".out")
    for number in range(rounds + 1):  # the first round fills the caches
        for program in racing:
            cost = run(program, capture, output)
            if number:
                costs[program.name].append(cost)
            actual = program.count_rows(output)
            if actual != expected:
                raise SystemExit(f"{program.name} reported {actual} of {expected} in {capture.name}")
    output.unlink()
    return {name: Cost(*map(median, zip(*each, strict=True))) for name, each in costs.items()}


def report(label: str, size: int, contents: Contents, medians: dict[str, Cost]) -> None:
    """Print a line per program."""
    yardstick = next(iter(medians.values()))
    floor = medians.get("floor")
    for name, cost in medians.items():
        each_us = cost.cpu_s / contents.exchanges * 1e6
        ratios = f"{yardstick.cpu_s / cost.cpu_s:6.2f}x"
        if floor is not None:
            ratios += f" {cost.cpu_s / floor.cpu_s:6.2f}x"
        print(
            f"{label:34} {name:15} {cost.cpu_s:7.2f} {cost.wall_s:7.2f} {size / 1e6 / cost.cpu_s:7.0f}"
            f" {each_us:11.1f} {cost.peak_mib:5.0f} {ratios}",
            flush=True,
        )


def machine() -> str:
    """Platform and versions."""
    parts = [platform.platform(), f"{os.cpu_count()} processors", f"Python {platform.python_version()}"]
    if shutil.which("tshark"):
        version = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=True)
        parts.append(version.stdout.partition(" (Git")[0])
    return ", ".join(parts)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"{', '.join(WORKS)}; all of them")
    parser.add_argument("--doing", choices=("read", "records", "summary"), default="read")
    parser.add_argument("--megabytes", type=float, default=60)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--jobs", type=int)
    options = parser.parse_args(arguments)
    racing = programs(options.doing, options.before, options.jobs)
    print(machine())
    print(
        f"{options.doing:34} {'':15} {'cpu s':>7} {'wall s':>7} {'MB/s':>7} {'us/exchange':>11} {'MiB':>5}"
        f"  faster{'  vs floor' if racing[-1].name == 'floor' else ''}"
    )
    with tempfile.TemporaryDirectory() as directory:
        for work in options.works or WORKS:
            capture = Path(directory) / f"{work}.pcap"
            megabytes = FULL_MEGABYTES.get(work, 1000) if options.full else options.megabytes
            size = int(megabytes * 1e6)
            contents = make_apart(work, capture, size, codec=options.codec, connections=options.connections)
            size = capture.stat().st_size
            label = f"{work} {options.codec} {size / 1e6:.0f} MB, {contents.packets:,} packets"
            expected = contents.records if options.doing == "records" else contents.exchanges
            report(label, size, contents, compare(racing, capture, expected, options.rounds))
            capture.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
