"""The promise that memory does not grow with the length of a capture: ten times the input, the same peak."""

from __future__ import annotations

import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.captures import pcap
from tests.frames import FETCH, PRODUCE, request, response
from tests.segments import Talk

if TYPE_CHECKING:
    from pathlib import Path

# Peak resident memory is the process's own, read when it is done, so that nothing else on the machine counts.
MEASURED = """
import resource, sys
from kdissect.cli.main import main
sys.argv[0] = "kdissect"
try:
    main()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""
TOLERANCE_KIB = 6 * 1024  # allocator and code that the longer run reached; the longer file is 27 MB longer


def conversation(seed: int) -> list[bytes]:
    """Link-layer bytes of one connection: produce and fetch, 100 kB each way, an id without a name, one
    request unanswered."""
    random = Random(seed)
    talk = Talk(client=("10.0.0.1", 20_000 + seed % 40_000))
    talk.handshake()
    for number in range(4):
        records = random.randbytes(25_000)
        body = {
            "acks": -1,
            "topic_data": [{"name": f"topic-{seed}", "partition_data": [{"records": records}]}],
        }
        talk.client_sends(request(PRODUCE, 9, body, correlation_id=2 * number))
        talk.broker_sends(
            response(PRODUCE, 9, {"responses": [{"name": f"topic-{seed}"}]}, correlation_id=2 * number)
        )
        topic_id = f"{seed:021d}A"
        talk.client_sends(
            request(FETCH, 13, {"topics": [{"topic_id": topic_id}]}, correlation_id=2 * number + 1)
        )
        body = {"responses": [{"topic_id": topic_id, "partitions": [{"records": records}]}]}
        talk.broker_sends(response(FETCH, 13, body, correlation_id=2 * number + 1))
    talk.client_sends(request(FETCH, 13, {}, correlation_id=99))
    return [packet.data for packet in talk.packets]


def write(path: Path, conversations: int) -> Path:
    timed = []
    for number in range(conversations):
        start = 1_700_000_000_000_000_000 + number * 1_000_000_000
        timed += [(start + place * 1000, data) for place, data in enumerate(conversation(number))]
    path.write_bytes(pcap(timed))
    return path


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("growth")
    return write(folder / "short.pcap", 15), write(folder / "long.pcap", 150)


def peak_kib(path: Path, *options: str) -> tuple[int, int]:
    """Peak resident memory, and lines printed."""
    command = [sys.executable, "-c", MEASURED, "read", *options, str(path)]
    run = subprocess.run(command, capture_output=True, check=True)
    return int(run.stderr.splitlines()[-1]), run.stdout.count(b"\n")


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["lines", "json"])
def test_ten_times_the_capture_takes_the_same_memory(
    captures: tuple[Path, Path], options: tuple[str, ...]
) -> None:
    short, long = captures
    assert long.stat().st_size > 9.9 * short.stat().st_size
    few_kib, few = peak_kib(short, *options)
    many_kib, many = peak_kib(long, *options)
    assert many == 10 * few == 150 * 9
    assert many_kib <= few_kib + TOLERANCE_KIB, (
        f"{few_kib} KiB for {few} exchanges, {many_kib} KiB for {many}"
    )
