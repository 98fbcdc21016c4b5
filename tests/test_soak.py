"""Live for weeks: an hour of traffic, and memory is what it was after the first minutes. Minutes of traffic
by default, an hour with ``KDISSECT_HYPOTHESIS=deep``."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest

from kdissect.cli.terminal import INTERRUPTED
from samples.golden import ROOT
from tests.cli.live_process import live
from tests.depth import IS_DEEP
from tests.loopback import Pair, makes_interfaces
from tests.soak import Rounds, children, drain, resident_kib

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES = ["kafka-4-basics.pcap", "kafka-4-transactions.pcap", "kafka-4-storm.pcap.gz"]
MINUTES = 60 if IS_DEEP else 8
FIRST_MINUTES = 5  # connections that are over are remembered for two, ports are used again after two
TOLERANCE_KIB = (4 if IS_DEEP else 8) * 1024  # allocator, and code that was reached later
HUNG_S = 1800 if IS_DEEP else 120
SCREEN_BYTES = 4000  # of two pictures at least

# A summary holds rows until it has enough of them: let that be soon.
SMALL = (
    "summary_rows=50,summary_buckets=50,summary_group_events=20,summary_total_group_events=100,summary_group_members=50,"
    "summary_group_partitions=50,summary_transaction_events=20"
)
WAYS: dict[str, list[str]] = {
    "lines": [],
    "json": ["--json"],
    "summary": ["-q", "--summary", "--limits", SMALL],
    "export": ["-o", "{directory}", "--rotate", "1min", "--bodies", "none"],
    "prometheus": ["-q", "--prometheus", "127.0.0.1:0"],
    "top": ["--top"],
}


@pytest.fixture(scope="module")
def rounds() -> Rounds:
    return Rounds([ROOT / "samples" / name for name in SAMPLES])


class Memory:
    """Resident memory of processes, in the first minutes and behind them."""

    def __init__(self, *processes: int) -> None:
        self._samples: dict[int, list[int]] = {process: [] for process in processes}
        self._first: dict[int, int] = {}

    def sample(self, minutes: float) -> None:
        """So many minutes of traffic have passed."""
        for process, samples in self._samples.items():
            samples.append(resident_kib(process))
            if minutes <= FIRST_MINUTES:
                self._first[process] = samples[-1]

    def check(self) -> None:
        """It is what it was."""
        for process, samples in self._samples.items():
            assert max(samples[-3:]) <= self._first[process] + TOLERANCE_KIB, " ".join(map(str, samples))


WAYS_BY_DEFAULT = ("json", "top")


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[] if way in WAYS_BY_DEFAULT else [pytest.mark.deep]) for way in WAYS]
)
def test_an_hour_takes_the_memory_of_its_first_minutes(way: str, rounds: Rounds, tmp_path: Path) -> None:
    options = [option.replace("{directory}", str(tmp_path / "tables")) for option in WAYS[way]]
    own_end, child_end = pty.openpty() if way == "top" else os.pipe()
    sizes: list[int] = []
    reader = threading.Thread(target=drain, args=(own_end, sizes))
    reader.start()
    with live("-", *options, stdin=subprocess.PIPE, stdout=child_end, timeout_s=HUNG_S) as running:
        os.close(child_end)
        pipe = running.process.stdin
        assert pipe is not None
        memory = Memory(running.process.pid)
        number = 0
        while (minutes := number * rounds.length_ns / 60e9) < MINUTES:
            try:
                pipe.write(rounds.round(number))
            except BrokenPipeError:
                assert running.process.stderr is not None
                pytest.fail(f"it ended: {running.process.wait()}, {running.process.stderr.read().decode()}")
            pipe.flush()
            number += 1
            while way == "top" and sum(sizes) < SCREEN_BYTES:  # what draws it was not loaded yet
                assert running.process.poll() is None
                time.sleep(0.05)
            memory.sample(minutes)
        running.process.send_signal(signal.SIGTERM)
        pipe.close()
        assert running.process.stderr is not None
        output = running.process.stderr.read().decode()
        running.process.wait()
    reader.join()
    os.close(own_end)
    assert re.search(r"[\d,]+ packets, 0 dropped by the kernel, 0 by kdissect; [\d,]+ exchanges", output), (
        output
    )
    memory.check()


@makes_interfaces
def test_so_does_the_relay_that_listens_to_an_interface(rounds: Rounds) -> None:
    options = ("-q", "--limits", "live_bytes=1MiB")  # what it holds for a busy machine is memory too
    with Pair() as pair, live("-i", pair.name, *options, timeout_s=HUNG_S) as running:
        assert "listening" in running.error_line()
        memory = Memory(running.process.pid, *children(running.process.pid))
        number = 0
        while (minutes := number * rounds.length_ns / 60e9) < MINUTES:
            pair.send(rounds.frames(number))
            number += 1
            time.sleep(0.2)
            memory.sample(minutes)
        status, _, output = running.end()
    assert status == INTERRUPTED
    counted = re.search(r"([\d,]+) packets, ([\d,]+) dropped by the kernel, ([\d,]+) by kdissect; ", output)
    assert counted, output
    assert sum(int(each.replace(",", "")) for each in counted.groups()) >= number * len(rounds.packets)
    memory.check()
