"""How long does kdissect take to start, compared with a Python that only imports click?

    python benchmarks/startup.py [ROUNDS]

Measures processes from fork to exit, one of each kind per round, so that other load on the machine affects
all of them equally. The ratio is that of the medians.
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

YARDSTICK = "import click"

# What the installed command runs.
COMMAND = "import sys; from kdissect.cli.main import main; sys.exit(main([{!r}]))"
STARTS = {
    "empty program": "",
    YARDSTICK: YARDSTICK,
    "import kdissect": "import kdissect",
    "kdissect --version": COMMAND.format("--version"),
    "kdissect --help": COMMAND.format("--help"),
}
ROUNDS = 20


def seconds(code: str) -> float:
    """How long a new interpreter takes to run ``code``."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def measure(rounds: int) -> dict[str, float]:
    """Median of each start; the first round, which fills the file cache, is discarded."""
    times: dict[str, list[float]] = {name: [] for name in STARTS}
    for number in range(rounds + 1):
        for name, code in STARTS.items():
            took = seconds(code)
            if number:
                times[name].append(took)
    return {name: median(values) for name, values in times.items()}


def main(arguments: list[str]) -> int:
    medians = measure(int(arguments[0]) if arguments else ROUNDS)
    yardstick = medians[YARDSTICK]
    print(f"{'':20} {'median':>8}   of {YARDSTICK!r}")
    for name, value in medians.items():
        print(f"{name:20} {value * 1000:5.0f} ms   {value / yardstick:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
