"""What does the native core gain? `read -j 1` with it, without it, and tshark, on the same files.

    python benchmarks/core.py [WORK:MEGABYTES ...] [--rounds 3] [--form json]

Generates each capture (traffic.py) and runs the three in turn. Prints medians of processor time, start
included; how many times as long Python alone and tshark take; the spread, and the load of the machine at the
end. Fails if the output differs with and without the core.

tshark gets the port (``-d``) and resolves no names (``-n``). For lines, it writes the fields of
against_tshark.py: its own lines need no protocol tree and show no Kafka fields.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import md5
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.against_tshark import FIELDS, TSHARK
from benchmarks.traffic import make_apart

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT = ["chatty:160", "mixed:40", "bulk:200", "loopback:400", "large:200"]
READ = [sys.executable, "-m", "kdissect", "read", "-j", "1"]
CSV_FIELDS = (*FIELDS, "ip.src", "ip.dst", "kafka.topic_name", "kafka.error")


def fields(names: Iterable[str]) -> list[str]:
    """Options of tshark for these fields."""
    return ["-T", "fields", *(f"-e{name}" for name in names)]


FORMS = {
    "lines": ([], fields(FIELDS)),
    "json": (["--json"], ["-T", "json"]),
    "csv": (["--csv"], fields(CSV_FIELDS)),
}
"""Options of both. kdissect also decodes the bodies for a line; and CSV has all columns."""


def run(command: list[str], output: Path, *, pure: bool = False) -> float:
    """Seconds of processor time."""
    before = getrusage(RUSAGE_CHILDREN)
    with output.open("wb") as file:
        variables = {**os.environ, "KDISSECT_PURE": "1" if pure else "0"}
        subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL, env=variables, check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("works", nargs="*", default=DEFAULT)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--form", choices=FORMS, default="lines")
    options = parser.parse_args(arguments)
    print(f"{'':14} {'core':>8} {'pure':>8} {'tshark':>8} {'vs pure':>8} {'vs tshark':>9}  spread, load")
    for each in options.works:
        work, _, megabytes = each.partition(":")
        with tempfile.TemporaryDirectory() as directory:
            capture, output = Path(directory) / "capture", Path(directory) / "output"
            make_apart(work, capture, int(float(megabytes) * 1e6))
            own, others = FORMS[options.form]
            ways = {"core": [*READ, *own], "pure": [*READ, *own]}
            if shutil.which("tshark"):
                ways["tshark"] = [*TSHARK, *others, "-r"]
            costs: dict[str, list[float]] = {way: [] for way in ways}
            lines = {}
            for _ in range(options.rounds):
                for way, command in ways.items():
                    costs[way].append(run([*command, str(capture)], output, pure=way == "pure"))
                    lines[way] = md5(output.read_bytes()).hexdigest()
            if lines["core"] != lines["pure"]:
                raise SystemExit(f"{each}: the output differs")
        medians = {way: median(seconds) for way, seconds in costs.items()}
        ratios = [medians[way] / medians["core"] for way in medians if way != "core"]
        spread = ", ".join(f"{min(seconds):.2f}-{max(seconds):.2f}" for seconds in costs.values())
        print(
            f"{each:14}",
            *(f"{seconds:6.2f} s" for seconds in medians.values()),
            *(f"{ratio:7.1f}x" for ratio in ratios),
            f" {spread} s, {os.getloadavg()[0]:.0f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
