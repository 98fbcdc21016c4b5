"""Where is the work done? Bytecode instructions per packet, exchange or record, by function.

    python benchmarks/instructions.py "read" chatty exchanges [--rows 20]
    python benchmarks/instructions.py "records --json" loopback records

Runs a command on two captures of generated traffic (traffic.py), and divides the difference in instructions
by the difference in size. So neither startup nor other load on the machine changes the result. Instructions
are not time: one that copies a megabyte counts as much as one that adds two numbers. For time use py-spy.

The native core executes no bytecode. With KDISSECT_PURE=1 Python does all the work, and the figures are those
that tests/test_cost.py limits.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from click.testing import CliRunner

from benchmarks.traffic import WORKS, Contents, make
from kdissect.cli.main import kdissect

SIZES = {"chatty": (60_000, 160_000), "short": (100_000, 300_000)}  # bytes; of small packets few will do
OTHER_SIZES = (6_000_000, 12_000_000)

Function = tuple[str, str]
"""Its name, and where it stands."""


def counted(command: list[str]) -> tuple[Counter[Function], Counter[Function]]:
    """Instructions and calls of each function in one run of kdissect."""
    instructions: Counter[Function] = Counter()
    calls: Counter[Function] = Counter()

    def trace(frame: Any, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        code = frame.f_code
        function = code.co_qualname, code.co_filename.rpartition("kdissect/")[2]
        if event == "opcode":
            instructions[function] += 1
        elif event == "call":
            calls[function] += 1
        return trace

    sys.settrace(trace)
    try:
        result = CliRunner().invoke(kdissect, command)
    finally:
        sys.settrace(None)
    if result.exit_code:
        raise SystemExit(result.output)
    return instructions, calls


def package_of(function: Function) -> str:
    """The package of a function."""
    _, file = function
    if file.startswith("<"):
        return "generated"  # decoders and collectors, from the schema; constructors
    return file.partition("/")[0] if file.count("/") < 3 else "libraries"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command")
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("each", choices=Contents._fields)
    parser.add_argument("--rows", type=int, default=20)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        captures = [Path(directory) / name for name in ("short.pcap", "long.pcap")]
        sizes = SIZES.get(options.work, OTHER_SIZES)
        contents = [make(options.work, *pair, connections=2) for pair in zip(captures, sizes, strict=True)]
        commands = [[*options.command.split(), "-j", "1", str(capture)] for capture in captures]
        for command in commands:  # compiles decoders, fills caches
            CliRunner().invoke(kdissect, command)
        (less, _), (more, calls) = (counted(command) for command in commands)
    one, other = (getattr(each, options.each) for each in contents)
    per_function = {function: (more[function] - less[function]) / (other - one) for function in more}
    per_package: Counter[str] = Counter()
    for function, number in per_function.items():
        per_package[package_of(function)] += number  # type: ignore[assignment]
    total = sum(per_function.values())
    print(f"{options.command} of {options.work}: {total:.0f} instructions per {options.each[:-1]}")
    print(", ".join(f"{name} {number:.0f}" for name, number in per_package.most_common() if number >= 1))
    for function in sorted(per_function, key=per_function.__getitem__, reverse=True)[: options.rows]:
        number = per_function[function]
        print(f"{number:8.1f} {calls[function] / other:6.2f} calls  {function[0]}  {function[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
