"""No output depends on the seed of Python's hashes, or on which worker is first."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from samples.golden import ROOT
from tests.captures import pcap
from tests.frames import API_VERSIONS, request, response
from tests.segments import Talk

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = ("0", "1", "2")
DEEP = ("http-on-9092.pcap", "kafka-0.9.pcap.gz", "kafka-4-cluster.pcap.gz", "kafka-4-transactions.pcap.gz")
COMMANDS = (
    "read", "read -j 2 --json", "read --client abc", "read -j 2 --client abc", "read --topic=x -Y latency>1",
    "records", "records -j 2 --json", "check", "check --json", "story group:x", "summary --by client,api",
    "summary --json --groups --lag --versions --transactions --connections --findings",
    "summary -j 3 --json --groups --lag --versions --transactions --connections --findings",
)  # fmt: skip
CHILD = """
import sys
from kdissect.cli.main import main
for line in sys.stdin:
    status = main(line.split())
    sys.stdout.flush()
    print(line, status, flush=True)
    print(line, status, file=sys.stderr)
"""


def outputs(commands: list[str], seed: str) -> list[list[bytes]]:
    """What these commands print to stdout and stderr, one after the other in one process."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        env={**os.environ, "PYTHONHASHSEED": seed},
        input="\n".join(commands).encode(),
        capture_output=True,
        check=True,
    )
    return [out.splitlines() for out in (child.stdout, child.stderr)]


def alike() -> bytes:
    """Clients whose names are equally close to another, and whose exchanges are equally slow, and connections
    of other protocols, one of each.
    """
    packets = []
    for number in range(12):
        talk = Talk(("10.0.0.1", 41_000 + number), start_ns=1_700_000_000_000_000_000 + number).handshake()
        talk.client_sends(request(API_VERSIONS, 0, client_id=f"abc-{number}"))
        talk.broker_sends(response(API_VERSIONS, 0))
        packets += talk.packets
    for number, first in enumerate((b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\3\1\0\5\1\0\0\1\0")):
        packets += (
            Talk(("10.0.0.9", 42_000 + number), ("10.0.0.8", 22 + number))
            .handshake()
            .client_sends(first)
            .packets
        )
    packets.sort(key=lambda packet: packet.time_ns)
    return pcap((packet.time_ns, packet.data) for packet in packets)


@pytest.mark.parametrize(
    "sample",
    ["kafka-4-fenced.pcap.gz", "alike", *(pytest.param(each, marks=pytest.mark.deep) for each in DEEP)],
)
def test_every_command(sample: str, tmp_path: Path) -> None:
    path = ROOT / "samples" / sample
    if sample == "alike":
        path = tmp_path / "alike.pcap"
        path.write_bytes(alike())
    commands = [f"{command} {path}" for command in COMMANDS]
    first, *others = [outputs(commands, seed) for seed in SEEDS]
    assert first[0]
    for other in others:
        assert other == first


def test_no_kafka_with_several_processes(tmp_path: Path) -> None:
    """Equally frequent protocols, and hints, are those of one process."""
    path = tmp_path / "alike.pcap"
    path.write_bytes(pcap([]) + alike()[24:])
    for arguments in ("--client abc", "--port 22"):
        one, several = (outputs([f"read -j {jobs} {arguments} {path}"], "0")[1][0] for jobs in (1, 3))
        assert one == several
