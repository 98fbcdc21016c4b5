"""How fast is `kdissect read` beside tshark, on the same captures in the same minutes?

    python benchmarks/against_tshark.py [WORK ...]             60 MB of each, or of those that are named
    python benchmarks/against_tshark.py --full                 a gigabyte of each, 400,000 chatty exchanges
    python benchmarks/against_tshark.py --before DIRECTORY     another checkout of kdissect runs, too

Makes each capture (traffic.py says of what), then runs the programs by turns, and prints medians: processor
time (user + system, of the whole process), time on the clock, megabytes a second of processor time, processor
time an exchange, peak of resident memory, and how many times less processor time than tshark's that is. Every
run's output is counted: one that does not tell all exchanges ends the benchmark. A start of kdissect takes
about 0.12 s, one of tshark 0.3 s, which small captures show and large ones do not.

tshark is told its port (``-d``), resolves no names (``-n``), and writes the time and header fields of Kafka
messages (``-T fields``). kdissect decodes the bodies as well, and writes a line for each exchange.
"""

from __future__ import annotations

import argparse
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

from traffic import WORKS, make

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).resolve().parent.parent
FULL_MEGABYTES = {"chatty": 233}  # 400,000 exchanges; of the others a gigabyte
FIELDS = ("frame.time_epoch", "kafka.api_key", "kafka.api_version", "kafka.correlation_id", "kafka.client_id")

_CORRELATION_ID = FIELDS.index("kafka.correlation_id")


class Program(NamedTuple):
    """What is run on a capture, and how exchanges are counted in its output."""

    name: str
    command: list[str]
    directory: Path
    exchanges: Callable[[Path], int]


class Cost(NamedTuple):
    """What a run took."""

    cpu_s: float
    wall_s: float
    peak_mib: float


def lines(output: Path) -> int:
    """Exchanges in what kdissect wrote: a line each."""
    with output.open("rb") as file:
        return sum(1 for _ in file)


def requests(output: Path) -> int:
    """Exchanges in what tshark wrote: a line for each packet, in which the correlation ids of its messages
    stand with commas between them.
    """
    with output.open("rb") as file:
        ids = (line.split(b"\t")[_CORRELATION_ID] for line in file)
        return sum(field.count(b",") + 1 for field in ids if field) // 2


def programs(before: Path | None) -> list[Program]:
    """What runs; tshark first, it is the yardstick."""
    fields = [word for field in FIELDS for word in ("-e", field)]
    tshark = ["tshark", "-n", "-d", "tcp.port==9092,kafka", "-T", "fields", *fields, "-r"]
    ours = [sys.executable, "-m", "kdissect", "read"]
    found = [Program("tshark", tshark, REPOSITORY, requests)] if shutil.which("tshark") else []
    if before is not None:
        found.append(Program("before", ours, before.resolve(), lines))
    return [*found, Program("kdissect", ours, REPOSITORY, lines)]


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


def compare(racing: list[Program], capture: Path, exchanges: int, rounds: int) -> dict[str, Cost]:
    """Medians of each program; they take turns, so that whatever else the machine does falls on all alike."""
    costs: dict[str, list[Cost]] = {program.name: [] for program in racing}
    output = capture.with_suffix(".out")
    for number in range(rounds + 1):  # the first round fills the caches
        for program in racing:
            cost = run(program, capture, output)
            if number:
                costs[program.name].append(cost)
            told = program.exchanges(output)
            if told != exchanges:
                raise SystemExit(f"{program.name} told {told} of {exchanges} exchanges in {capture.name}")
    output.unlink()
    return {name: Cost(*map(median, zip(*each, strict=True))) for name, each in costs.items()}


def report(label: str, size: int, exchanges: int, medians: dict[str, Cost]) -> None:
    """A line for each program."""
    yardstick = medians.get("tshark")
    for name, cost in medians.items():
        ratio = f"{yardstick.cpu_s / cost.cpu_s:6.2f}x" if yardstick is not None else ""
        print(
            f"{label:34} {name:9} {cost.cpu_s:7.2f} {cost.wall_s:7.2f} {size / 1e6 / cost.cpu_s:7.0f}"
            f" {cost.cpu_s / exchanges * 1e6:10.1f} {cost.peak_mib:6.0f} {ratio}",
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
    parser.add_argument("--megabytes", type=float, default=60)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--before", type=Path)
    asked = parser.parse_args(arguments)
    racing = programs(asked.before)
    print(machine())
    print(f"{'':34} {'':9} {'cpu s':>7} {'wall s':>7} {'MB/s':>7} {'us/exchange':>10} {'MiB':>5}  faster")
    with tempfile.TemporaryDirectory() as directory:
        for work in asked.works or WORKS:
            capture = Path(directory) / f"{work}.pcap"
            megabytes = FULL_MEGABYTES.get(work, 1000) if asked.full else asked.megabytes
            packets, exchanges = make(
                work, capture, int(megabytes * 1e6), codec=asked.codec, connections=asked.connections
            )
            size = capture.stat().st_size
            label = f"{work} {asked.codec} {size / 1e6:.0f} MB, {packets:,} packets"
            report(label, size, exchanges, compare(racing, capture, exchanges, asked.rounds))
            capture.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
