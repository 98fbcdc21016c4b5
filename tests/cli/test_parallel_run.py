"""Several processes write the same as one, on stdout, on stderr and in files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdissect import open_capture
from kdissect.capture.write import PcapngWriter
from samples.golden import ROOT, captures, name_of
from tests.damage import DAMAGES, from_the_start, resegmented
from tests.depth import IS_DEEP
from tests.shared import say

if TYPE_CHECKING:
    from pathlib import Path

QUICK = ("kafka-4-basics", "kafka-4-cluster", "midstream", "tls")
SAMPLES = [ROOT / path for path in captures() if IS_DEEP or name_of(path) in QUICK]
BASICS = ROOT / "samples/kafka-4-basics.pcap"
READ = (
    "read", "read --json", "read --csv", "read -V --api Metadata", "read --topic nosuch", "read --check-crcs",
    "read --color always", "read -t r --error *",
)  # fmt: skip
RECORDS = ("records", "records --json", "records --csv --produced", "records -V --fetched")


@pytest.fixture(params=SAMPLES, ids=name_of)
def sample(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.mark.parametrize(
    "damage", DAMAGES if IS_DEEP else ("10 % lost, duplicated, shuffled", "mid-frame start")
)
@pytest.mark.parametrize("mss", [None, 300] if IS_DEEP else [300])
def test_the_same_is_shown_of_a_damaged_capture(
    sample: Path, damage: str, mss: int | None, tmp_path: Path
) -> None:
    with open_capture(sample) as capture:
        packets = list(capture)
    if name_of(sample) not in ("midstream", "tls"):
        packets = from_the_start(packets)
    packets = DAMAGES[damage](
        resegmented(packets, mss) if mss else packets, Random(f"{sample.name} {damage}")
    ).packets
    path = tmp_path / "damaged.pcapng"
    with path.open("wb") as file:
        writer = PcapngWriter(file)
        for packet in packets:
            writer.write(packet)
    alone = say("read", "--json", "-j", 1, path)
    assert say("read", "--json", "-j", 3, path) == alone


@settings(max_examples=8 if not IS_DEEP else 200)
@given(
    st.lists(
        st.sampled_from([path for path in SAMPLES if path.stat().st_size < 300_000]),
        min_size=2,
        max_size=3,
        unique=True,
    ),
    st.integers(2, 5),
)
def test_several_files_are_one_capture_for_each_worker(paths: list[Path], jobs: int) -> None:
    assert say("read", "-j", jobs, *paths) == say("read", "-j", 1, *paths)


def test_the_order_is_that_of_the_same_blocks(tmp_path: Path) -> None:
    """Deadlines are checked between blocks: which late packets are still waited for depends on these."""
    latecomer = ROOT / "samples/kafka-4-latecomer.pcap.gz"
    test_the_same_is_shown_of_a_damaged_capture(latecomer, "duplicated, shuffled", None, tmp_path)


def test_rows_that_depend_on_others_use_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdissect.runs.workers.Workers.into", None)
    for command in (
        "read -q",
        "read -t d",
        "read -t dd",
        "records --unique",
        "records -q",
    ):
        assert say(*command.split(), "-j", 2, BASICS).status == 0


@pytest.mark.parametrize("options", [[], ["--json"], ["-V"]], ids=" ".join)
def test_a_pipe_gets_the_same(options: list[str]) -> None:
    command = [sys.executable, "-m", "kdissect", "read", *options, str(BASICS), "-j"]
    alone, shared = (
        subprocess.run([*command, jobs], stdout=subprocess.PIPE, cwd=ROOT, check=True).stdout
        for jobs in ("1", "2")
    )
    assert shared == alone
    assert alone.count(b"\n") > 100


def start(tmp_path: Path, *arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
    """kdissect by two processes, on a capture that takes a while."""
    with open_capture(BASICS) as capture:
        packets = list(capture)
    path = tmp_path / "long.pcapng"
    with path.open("wb") as file:
        writer = PcapngWriter(file)
        span_ns = packets[-1].time_ns - packets[0].time_ns + 60_000_000_000
        for turn in range(60):
            for packet in packets:
                writer.write(packet._replace(time_ns=packet.time_ns + turn * span_ns))
    command = [sys.executable, "-m", "kdissect", *arguments, "-j", "2", str(path)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, cwd=ROOT, **settings
    )


def children(process: subprocess.Popen[bytes]) -> list[int]:
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:  # noqa: PTH123
        return [int(number) for number in file.read().split()]


def is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def running(tmp_path: Path) -> Any:
    """Started, with its first line read, and its workers."""
    process = start(tmp_path, "read", "--json")
    assert process.stdout is not None
    process.stdout.readline()
    yield process, children(process)
    process.kill()
    process.wait()
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()


def gone(numbers: list[int]) -> bool:
    deadline = time.monotonic() + 20
    while any(map(is_running, numbers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(is_running, numbers))


@pytest.mark.parametrize(("killed", "name"), [(1, "worker 2 of 2"), (2, "the process that reads the input")])
def test_a_killed_process_is_one_line_and_a_status(running: Any, killed: int, name: str) -> None:
    process, workers = running
    assert len(workers) == 3  # the last one reads
    os.kill(workers[killed], signal.SIGKILL)
    _, stderr = process.communicate(timeout=60)
    assert stderr.decode().splitlines()[-1] == f"kdissect: {name} was killed by SIGKILL"
    assert process.returncode == 2
    assert gone(workers)


def test_ctrl_c_counts_what_was_shown(running: Any) -> None:
    process, workers = running
    process.send_signal(signal.SIGINT)
    out, stderr = process.communicate(timeout=60)
    shown = len(out.splitlines()) + 1
    assert f" {shown:,} exchanges shown" in stderr.decode().splitlines()[-1]
    assert process.returncode == 130
    assert gone(workers)


def test_a_closed_pipe_ends_all_quietly(running: Any) -> None:
    process, workers = running
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == b""
    assert gone(workers)
