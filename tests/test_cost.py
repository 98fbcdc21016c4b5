"""Work that creeps into the loops of every packet, exchange and record: counted, not timed.

What is counted are the bytecode instructions that a command executes for each packet, exchange or record once
everything is imported and compiled. They are the same on every machine and in every run, and differ between
versions of Python. They are not time: a copy of a megabyte is one. So this guards; benchmarks/ measure.
The native core executes none of them, so it is turned off.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from benchmarks.traffic import make
from kdissect.cli.main import kdissect
from kdissect.kafka import bodies, compiler, headers
from tests.core import without_core

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.traffic import Contents

MOST = {  # command, traffic, for each: instructions; docs/decisions/answers-before-speed.md
    ("read", "bulk", "packets"): 255,
    ("read", "loopback", "exchanges"): 5310,
    ("read", "large", "packets"): 210,
    ("read", "chatty", "exchanges"): 3730,
    ("read --names whole", "chatty", "exchanges"): 4600,
    ("read --json", "chatty", "exchanges"): 5600,
    ("records --json", "loopback", "records"): 342,
    ("summary", "chatty", "exchanges"): 10_200,
}
HEADROOM = 0.7
"""Far below its bound a figure is no guard any more: then the bound is due to be lowered."""


@pytest.fixture(autouse=True)
def _pure() -> Iterator[None]:
    caches = compiler.decoder, bodies._plain, headers._request_decoders, headers._response_decoder
    for cache in caches:
        cache.cache_clear()
    with without_core():
        yield
    for cache in caches:
        cache.cache_clear()


def instructions(command: str, capture: Path) -> int:
    """How many a run executes."""
    count = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = CliRunner().invoke(kdissect, [*command.split(), "-j", "1", str(capture)])
    finally:
        sys.settrace(before)
    assert result.exit_code == 0, result.output
    return count


def built(traffic: str, capture: Path, size: int) -> Contents:
    return make(traffic, capture, size, connections=2)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the bounds are for the bytecode of Python 3.11")
@pytest.mark.skipif("COVERAGE_RUN" in os.environ, reason="coverage traces itself")
@pytest.mark.parametrize(("command", "traffic", "each"), MOST)
def test_no_more_work_for_each(tmp_path: Path, command: str, traffic: str, each: str) -> None:
    sizes = (60_000, 160_000) if traffic == "chatty" else (3_000_000, 6_000_000)
    captures = [tmp_path / "short.pcap", tmp_path / "long.pcap"]
    short, long = (built(traffic, *pair) for pair in zip(captures, sizes, strict=True))
    for capture in captures:
        CliRunner().invoke(
            kdissect, [*command.split(), "-j", "1", str(capture)]
        )  # compiles decoders, fills caches
    first, second = (instructions(command, capture) for capture in captures)
    cost = (second - first) / (getattr(long, each) - getattr(short, each))
    most = MOST[command, traffic, each]
    assert cost <= most, f"{cost:.0f} instructions for each of {each}, {most} are the bound"
    assert cost > most * HEADROOM, f"{cost:.0f} instructions for each of {each}: lower the bound of {most}"
