"""The promise that memory does not grow with the length of a capture: ten times the input, the same peak; a
hundred times, and a million connections, with ``KDISSECT_HYPOTHESIS=deep``."""

from __future__ import annotations

import json
import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.captures import pcap
from tests.depth import IS_DEEP
from tests.frames import FETCH, PRODUCE, request, response
from tests.growing import KINDS
from tests.segments import Talk

if TYPE_CHECKING:
    from pathlib import Path

# Peak resident memory is the process's own, read when it is done, so that nothing else on the machine counts.
MEASURED = """
import sys
from kdissect.cli.main import main
from tests.peak import peak_kib
sys.argv[0] = "kdissect"
try:
    main()
finally:
    print(peak_kib(), file=sys.stderr)
"""
TOLERANCE_KIB = 7 * 1024  # allocator and code that the longer run reached; the longer file is 27 MB longer


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
    directory = tmp_path_factory.mktemp("growth")
    return write(directory / "short.pcap", 15), write(directory / "long.pcap", 150)


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


MAX_KIB = 200_000_000 // 1024
# Small bounds, so that a short capture reaches them too.
SMALL = (
    "connections=150,ended_connections=150,connection_ids=150,total_held_bytes=1MiB,total_stream_bytes=1MiB,frame_bytes=1MiB,"
    "resync_bytes=64KiB,pending_requests=300,pending_bytes=256KiB,naming_rows=200,naming_bytes=256KiB,topic_names=500,"
    "order_rows=200,order_bytes=256KiB,notices=100"
)
COUNTS = {
    "finished": 500, "left_open": 500, "unanswered": 400, "pipelined": 600, "bottomless": 160,
    "one_bottomless": 1500, "garbage": 800, "much_garbage": 160, "requests_only": 1000,
    "responses_only": 1000, "gaps": 800, "topics": 400,
}  # fmt: skip
MANY = ("finished", "left_open", "unanswered", "bottomless", "much_garbage")
SAYS = {
    "left_open": "connections evicted before their end",
    "unanswered": "outstanding requests dropped because of a limit",
    "pipelined": "outstanding requests dropped because of a limit",
    "bottomless": "buffered data was dropped",
    "much_garbage": "connections evicted before their end",
    "requests_only": "outstanding requests dropped because of a limit",
    "gaps": "exchanges lost",
}


def endless(kind: str, count: int, limits: str = "") -> dict[str, Any]:
    """Dissect an endless capture in a process of its own."""
    command = [sys.executable, "-m", "tests.growing", kind, str(count), limits]
    run = subprocess.run(command, capture_output=True, check=True)
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def check_growth(kind: str, times: int) -> None:
    few, many = endless(kind, COUNTS[kind], SMALL), endless(kind, times * COUNTS[kind], SMALL)
    assert many["counts"]["packets"] > 0.9 * times * few["counts"]["packets"]
    assert many["peak_kib"] <= few["peak_kib"] + TOLERANCE_KIB, (few, many)
    assert SAYS.get(kind, "") in "\n".join(many["says"])


@pytest.mark.parametrize("kind", KINDS)
def test_ten_times_of_anything_takes_the_same_memory(kind: str) -> None:
    check_growth(kind, 10)


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS if IS_DEEP else list(KINDS)[::4])
def test_a_hundred_times_of_anything_takes_the_same_memory(kind: str) -> None:
    check_growth(kind, 100 if IS_DEEP else 20)


@pytest.mark.deep
@pytest.mark.parametrize("kind", MANY if IS_DEEP else MANY[:2])
def test_a_million_connections_stay_within_200_megabytes(kind: str) -> None:
    """With the default bounds; of those that send much, a tenth of a million."""
    million = 1_000_000 if IS_DEEP else 30_000
    count = million // 10 if kind in ("bottomless", "much_garbage") else million
    result = endless(kind, count)
    assert result["counts"]["connections"] == count
    assert result["peak_kib"] < MAX_KIB, result
