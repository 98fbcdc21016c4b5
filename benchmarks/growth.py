"""Does the cost per megabyte, or per connection, grow with their number?

    python benchmarks/growth.py [WORK ...] [--megabytes 100] [--times 10] [--rounds 3]

Writes each kind of traffic (traffic.py) in two sizes, the larger ten times the smaller, runs `kdissect read`
on both in turn, and prints medians: CPU time per megabyte, without the start of the program (measured on a
capture of one exchange), the ratio of the two, and peak resident memory. 1300 megabytes of `short` are a
million connections, with one exchange each.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))

from against_tshark import Cost, machine, programs, run
from traffic import WORKS, make_apart


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"{', '.join(WORKS)}; all of them")
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    program = programs("read", None, None)[-1]
    print(machine())
    print(f"{'':24} {'cpu s':>7} {'ms/MB':>7} {'MiB':>5}  ratio")
    for work in options.works or WORKS:
        with tempfile.TemporaryDirectory() as directory:
            sizes = (0, options.megabytes, options.megabytes * options.times)
            captures = [Path(directory) / f"{place}.pcap" for place in range(len(sizes))]
            contents = [
                make_apart(work, path, max(1, int(size * 1e6)))
                for path, size in zip(captures, sizes, strict=True)
            ]
            costs: list[list[Cost]] = [[] for _ in captures]
            for number in range(options.rounds + 1):  # the first round fills the caches
                for place, path in enumerate(captures):
                    output = path.with_suffix(".out")
                    cost = run(program, path, output)
                    if number:
                        costs[place].append(cost)
                    if program.count_rows(output) != contents[place].exchanges:
                        raise SystemExit(
                            f"not all of {contents[place].exchanges} exchanges of {work} were reported"
                        )
            start, *both = (Cost(*map(median, zip(*each, strict=True))) for each in costs)
            each_ms = [
                (cost.cpu_s - start.cpu_s) / path.stat().st_size * 1e9
                for cost, path in zip(both, captures[1:], strict=True)
            ]
            for cost, ms, path in zip(both, each_ms, captures[1:], strict=True):
                label = f"{work} {path.stat().st_size / 1e6:.0f} MB"
                print(
                    f"{label:24} {cost.cpu_s:7.2f} {ms:7.3f} {cost.peak_mib:5.0f} {ms / each_ms[0]:6.2f}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
