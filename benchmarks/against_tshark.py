"""How fast is kdissect beside tshark, and beside the least that any tool can do, on the same files?

    python benchmarks/against_tshark.py [WORK ...]            `read`: 60 MB of each, or of those named
    python benchmarks/against_tshark.py --doing records        `records --json`
    python benchmarks/against_tshark.py --doing summary        `summary`, beside `read`
    python benchmarks/against_tshark.py --full                 a gigabyte of each, 400,000 chatty exchanges
    python benchmarks/against_tshark.py --before DIRECTORY     another checkout of kdissect runs, too
    python benchmarks/against_tshark.py --jobs 2               kdissect runs with -j 2, too

Makes each capture (traffic.py says of what), then runs the programs by turns, and prints medians: processor
time (user + system, of the whole process and of those that it started), time on the clock, megabytes a second
of processor time, processor time an exchange, peak of resident memory, how many times less processor time
than the first in the table that is, and how many times more than the floor (floor.py). Every run's output is
counted: one that does not tell all exchanges, or all records, ends the benchmark. A start of kdissect takes
about 0.12 s, one of tshark 0.3 s, which small captures show and large ones do not.

tshark is told its port (``-d``) and resolves no names (``-n``). For ``read`` it writes the time and header
fields of Kafka messages (``-T fields``); kdissect decodes the bodies as well, and writes a line for each
exchange. For ``records`` it writes every field that it knows of them (``-T ek -J kafka``; it neither shows
values nor checks checksums), and the versions in these captures are the latest whose records tshark 4.0
reads: Produce 8, Fetch 11.
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

    from traffic import Made

REPOSITORY = Path(__file__).resolve().parent.parent
FULL_MEGABYTES = {"chatty": 233}  # 400,000 exchanges; of the others a gigabyte
FIELDS = ("frame.time_epoch", "kafka.api_key", "kafka.api_version", "kafka.correlation_id", "kafka.client_id")
TSHARK = ("tshark", "-n", "-d", "tcp.port==9092,kafka")

_CORRELATION_ID = FIELDS.index("kafka.correlation_id")


class Program(NamedTuple):
    """What is run on a capture, and how its output is counted."""

    name: str
    command: list[str]
    directory: Path
    told: Callable[[Path], int]


class Cost(NamedTuple):
    """What a run took."""

    cpu_s: float
    wall_s: float
    peak_mib: float


def lines(output: Path) -> int:
    """Exchanges or records in what kdissect wrote: a line each."""
    with output.open("rb") as file:
        return sum(1 for _ in file)


def summed_up(output: Path) -> int:
    """Exchanges in a summary."""
    found: int = json.loads(output.read_bytes())["capture"]["exchanges"]
    return found


def requests(output: Path) -> int:
    """Exchanges in what tshark wrote: a line for each packet, in which the correlation ids of its messages
    stand with commas between them.
    """
    with output.open("rb") as file:
        ids = (line.split(b"\t")[_CORRELATION_ID] for line in file)
        return sum(field.count(b",") + 1 for field in ids if field) // 2


def named_records(output: Path) -> int:
    """Records in what tshark wrote: each has this for a title."""
    with output.open("rb") as file:
        return sum(line.count(b'"Record"') for line in file)


def first_of(place: int) -> Callable[[Path], int]:
    """What floor.py prints at a place."""
    return lambda output: int(output.read_text().split()[place])


def programs(doing: str, before: Path | None, jobs: int | None) -> list[Program]:
    """What runs; the yardstick first."""
    floor = [sys.executable, str(REPOSITORY / "benchmarks/floor.py")]

    def ours(*words: str, told: Callable[[Path], int], name: str = "kdissect") -> Iterable[Program]:
        command = [sys.executable, "-m", "kdissect", *words]
        if before is not None:
            yield Program(f"{name} before", command, before.resolve(), told)
        if jobs is None:
            yield Program(name, command, REPOSITORY, told)
        else:
            yield Program(f"{name} -j 1", [*command, "-j", "1"], REPOSITORY, told)
            yield Program(f"{name} -j {jobs}", [*command, "-j", str(jobs)], REPOSITORY, told)

    if doing == "summary":
        return [
            *ours("read", told=lines, name="read"),
            *ours("summary", "--json", told=summed_up, name="summary"),
            Program("floor", floor, REPOSITORY, first_of(0)),
        ]
    if doing == "records":
        tshark = Program("tshark", [*TSHARK, "-T", "ek", "-J", "kafka", "-r"], REPOSITORY, named_records)
        found = [*ours("records", "--json", told=lines), Program("floor", floor, REPOSITORY, first_of(1))]
    else:
        fields = [word for field in FIELDS for word in ("-e", field)]
        tshark = Program("tshark", [*TSHARK, "-T", "fields", *fields, "-r"], REPOSITORY, requests)
        found = [*ours("read", told=lines)]
    return [tshark, *found] if shutil.which("tshark") else found


def environment(directory: Path) -> dict[str, str]:
    """As a user has it: output is buffered, and compiled modules are kept."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**found, "PYTHONPYCACHEPREFIX": str(directory / "modules")}


def run(program: Program, capture: Path, output: Path) -> Cost:
    """One run; its output goes to a file, so that it can be counted."""
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
    """Medians of each program; they take turns, so that whatever else the machine does falls on all alike."""
    costs: dict[str, list[Cost]] = {program.name: [] for program in racing}
    output = capture.with_suffix(".out")
    for number in range(rounds + 1):  # the first round fills the caches
        for program in racing:
            cost = run(program, capture, output)
            if number:
                costs[program.name].append(cost)
            told = program.told(output)
            if told != expected:
                raise SystemExit(f"{program.name} told {told} of {expected} in {capture.name}")
    output.unlink()
    return {name: Cost(*map(median, zip(*each, strict=True))) for name, each in costs.items()}


def report(label: str, size: int, made: Made, medians: dict[str, Cost]) -> None:
    """A line for each program."""
    yardstick = next(iter(medians.values()))
    floor = medians.get("floor")
    for name, cost in medians.items():
        each_us = cost.cpu_s / made.exchanges * 1e6
        ratios = f"{yardstick.cpu_s / cost.cpu_s:6.2f}x"
        if floor is not None:
            ratios += f" {cost.cpu_s / floor.cpu_s:6.2f}x"
        print(
            f"{label:34} {name:15} {cost.cpu_s:7.2f} {cost.wall_s:7.2f} {size / 1e6 / cost.cpu_s:7.0f}"
            f" {each_us:11.1f} {cost.peak_mib:5.0f} {ratios}",
            flush=True,
        )


def machine() -> str:
    """What ran where."""
    found = [platform.platform(), f"{os.cpu_count()} processors", f"Python {platform.python_version()}"]
    if shutil.which("tshark"):
        told = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=True)
        found.append(told.stdout.partition(" (Git")[0])
    return ", ".join(found)


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
    asked = parser.parse_args(arguments)
    racing = programs(asked.doing, asked.before, asked.jobs)
    print(machine())
    print(
        f"{asked.doing:34} {'':15} {'cpu s':>7} {'wall s':>7} {'MB/s':>7} {'us/exchange':>11} {'MiB':>5}"
        f"  faster{'  of floor' if racing[-1].name == 'floor' else ''}"
    )
    with tempfile.TemporaryDirectory() as directory:
        for work in asked.works or WORKS:
            capture = Path(directory) / f"{work}.pcap"
            megabytes = FULL_MEGABYTES.get(work, 1000) if asked.full else asked.megabytes
            size = int(megabytes * 1e6)
            made = make_apart(work, capture, size, codec=asked.codec, connections=asked.connections)
            size = capture.stat().st_size
            label = f"{work} {asked.codec} {size / 1e6:.0f} MB, {made.packets:,} packets"
            expected = made.records if asked.doing == "records" else made.exchanges
            report(label, size, made, compare(racing, capture, expected, asked.rounds))
            capture.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
