"""What does each option cost, beside the command without it?

    python benchmarks/cliffs.py                              all inputs, commands and options
    python benchmarks/cliffs.py --inputs chatty --only summary --rounds 5

An option that needs nothing but facts about exchanges should cost no more than 1.5 times the command without
it. The inputs are generated traffic (traffic.py), and 60 interleaved copies of a recording (recordings.py),
whole and without its first third, as a capture begins while clients run.

Prints a table for docs/performance.md: of each command, microseconds of processor time per exchange, less
those of starting; of each option, how many times that. Medians of rounds in which all take turns.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from against_tshark import REPOSITORY, Program, exchanges_in_summary, lines, machine, run
from recordings import copies
from traffic import make_apart

from tests.rings import packets_of, write

if TYPE_CHECKING:
    from collections.abc import Sequence

GENERATED = "chatty", "bulk", "mixed"
RECORDED = {
    "recording": ("kafka-4-cluster.pcap.gz", 0),
    "cut": ("kafka-4-cluster.pcap.gz", 3),
    "transactions": ("kafka-4-transactions.pcap", 0),
}
"""Recordings, and which part of them is left out: none, or the first third."""
INPUTS = *GENERATED, *RECORDED
FILTERS = (
    "--api Fetch", "--client '*'", "--topic '*'", "--topic '!x'", "--partition 0", "--group '*'",
    "--error '*'", "--slower-than 1h", "--since 2000-01-01", "-Y 'api_version > 3'",
    "-Y 'time startswith \"2026\"'", "-Y 'request.group_id == \"g\"'", "-Y 'len(topics) > 0'",
    "-Y 'service_us > 5'",
)  # fmt: skip
COMMANDS = {
    "read": (*FILTERS, "-c 1000000000", "--fields time,api", "--names whole", "-t r", "-t d"),
    "read --json": (*FILTERS, "-c 1000000000", "--fields time,api,latency_us", "--names whole"),
    "read --csv": (*FILTERS, "--fields api", "--names whole"),
    "summary": (*FILTERS, "--by api,client", "--by topic", "--interval 10s"),
    "check": FILTERS,
    "records": (
        *FILTERS[:7],
        "--since 2000-01-01",
        "--offset 5..",
        "--key '*a*'",
        "--grep x",
        "--unique",
        "-Y 'partition == 3'",
        "-Y 'value contains \"x\"'",
        "--fields time,topic,offset,key,value",
        "-c 1000000000",
        "--names whole",
        "-t r",
    ),
    "export --format parquet --overwrite -o OUT": FILTERS,
}
"""Options beside each command."""


class Measured(NamedTuple):
    """A command on an input: its options, and processor times in seconds."""

    command: str
    option: str
    times_s: list[float]

    def less(self, start_s: float) -> float:
        """Processor time without that of starting."""
        return max(median(self.times_s) - start_s, 1e-9)


def make_inputs(names: Sequence[str], megabytes: float, directory: Path) -> dict[str, Path]:
    """The captures."""
    captures = {}
    for name in names:
        path = directory / f"{name}.pcap"
        if name in RECORDED:
            recording, part = RECORDED[name]
            packets = packets_of(REPOSITORY / "samples" / recording)
            path = write(path.with_suffix(".pcapng"), copies(packets[len(packets) // part if part else 0 :]))
        else:
            make_apart(name, path, int(megabytes * 1e6))
        captures[name] = path
    return captures


def program(words: str, directory: Path) -> Program:
    """A command in one process. That nothing matched is no failure."""
    arguments = [word.replace("OUT", str(directory / "tables")) for word in shlex.split(words)]
    starts = "import sys; from kdissect.cli.main import main; sys.exit(main(sys.argv[1:]) > 1)"
    return Program(words, [sys.executable, "-c", starts, *arguments, "-j", "1"], REPOSITORY, lines)


def exchanges_of(capture: Path, directory: Path) -> int:
    """How many exchanges a capture has."""
    output = directory / "count"
    run(program("summary --json", directory), capture, output)
    return exchanges_in_summary(output)


def measure(capture: Path, only: str, rounds: int, directory: Path) -> tuple[float, list[Measured]]:
    """Processor time of starting, and that of all commands with each of their options and with none."""
    all_measured = [
        Measured(command, option, [])
        for command, options in COMMANDS.items()
        if only in command
        for option in ("", *options)
    ]
    empty = write(directory / "empty.pcapng", [])
    starts: list[float] = []
    output = directory / "output"
    for _ in range(rounds):
        starts.append(run(program("read", directory), empty, output).cpu_s)
        for each in all_measured:
            words = f"{each.command} {each.option}"
            each.times_s.append(run(program(words, directory), capture, output).cpu_s)
    return median(starts), all_measured


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--inputs", nargs="+", choices=INPUTS, default=INPUTS)
    parser.add_argument("--only", default="", help="commands that contain this")
    parser.add_argument("--megabytes", type=float, default=10, help="of each generated capture")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    print(f"{machine()}\n")
    columns: dict[str, dict[tuple[str, str], str]] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for label, capture in make_inputs(options.inputs, options.megabytes, directory).items():
            exchanges = exchanges_of(capture, directory)
            start_s, measured = measure(capture, options.only, options.rounds, directory)
            plain = {each.command: each.less(start_s) for each in measured if not each.option}
            columns[label] = {
                (each.command, each.option): f"{each.less(start_s) / plain[each.command]:.1f}"
                if each.option
                else f"**{each.less(start_s) / exchanges * 1e6:.1f} us**"
                for each in measured
            }
    print(f"| | {' | '.join(columns)} |\n|---|{'--:|' * len(columns)}")
    for command, option in next(iter(columns.values())):
        words = option or command.removesuffix(" --overwrite -o OUT")
        cells = (cells[command, option] for cells in columns.values())
        print(f"| `{words}` | {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
