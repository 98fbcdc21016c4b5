"""What do several processes gain?

    python benchmarks/jobs.py [FILE] [--rounds 3] [--slices 16]

Runs `read`, `read --json` and `summary --json` on a capture (default: 600 MB of chatty traffic on 200
connections, see traffic.py) with one process, with two, and with one process twice at the same time, by
turns. The last shows how much of two cores the machine gives to two processes, which limits `-j 2`. Prints
medians of wall time in seconds, how many times as fast two are, and how many times they could be.

Then it runs each with 16 processes and prints the CPU time of the busiest worker, of the process that reads,
and of the parent. With 18 idle cores, a run would take at least as long as the slowest of them; "estimate" is
how many times as fast as one process that is. All of these times include the start. CPU times are read from
/proc every 20 ms, and are those of the best round.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.traffic import make_apart

COMMANDS = ("read", "read --json", "summary --json")
SIZE, CONNECTIONS = 600_000_000, 200
TICKS = os.sysconf("SC_CLK_TCK")


def command(words: str, jobs: int, capture: str) -> list[str]:
    return [sys.executable, "-m", "kdissect", *words.split(), "-j", str(jobs), capture]


def wall(*commands: list[str]) -> float:
    """Seconds until all of them have ended."""
    began = time.perf_counter()
    with Path(os.devnull).open("wb") as sink:
        running = [subprocess.Popen(each, stdout=sink, stderr=sink) for each in commands]
        for each in running:
            each.wait()
    return time.perf_counter() - began


def cpu(of: list[str]) -> tuple[float, float, float]:
    """Seconds of CPU time of the process, of the busiest of its workers, and of the one that reads: the last
    that it starts.
    """
    last: dict[int, float] = {}
    with Path(os.devnull).open("wb") as sink, subprocess.Popen(of, stdout=sink, stderr=sink) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while process.poll() is None:
            with suppress(OSError):
                for each in (process.pid, *map(int, children.read_text().split())):
                    state, *numbers = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
                    if state != "Z":
                        last[each] = (int(numbers[10]) + int(numbers[11])) / TICKS
            time.sleep(0.02)
    own = last.pop(process.pid, 0)
    reader = last.pop(max(last), 0) if last else 0
    return own, max(last.values(), default=0), reader


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slices", type=int, default=16)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        capture = options.file
        if capture is None:
            capture = Path(directory) / "capture.pcap"
            make_apart("chatty", capture, SIZE, connections=CONNECTIONS)
        many = f"-j {options.slices}"
        print(f"{'':16} {'-j 1':>6} {'twice':>6} {'-j 2':>6} {'gain':>6} {'of':>6}  ", end="")
        print(f"{many + ' worker':>13} {'reader':>6} {'parent':>6} {'estimate':>8}")
        for words in COMMANDS:
            one, two, sliced = (command(words, jobs, str(capture)) for jobs in (1, 2, options.slices))
            rounds = [
                (wall(one), wall(one, one), wall(two), *cpu(one), *cpu(sliced)) for _ in range(options.rounds)
            ]
            alone, twice, both, *_ = map(median, zip(*rounds, strict=True))
            _, _, _, alone_cpu, _, _, parent, worker, reader = map(min, zip(*rounds, strict=True))
            print(f"{words:16} {alone:6.2f} {twice:6.2f} {both:6.2f} {alone / both:6.2f} ", end="")
            print(f"{2 * alone / twice:6.2f}  {worker:13.2f} {reader:6.2f} {parent:6.2f} ", end="")
            print(f"{alone_cpu / max(parent, worker, reader):8.1f}", flush=True)
    print("load:", *os.getloadavg())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
