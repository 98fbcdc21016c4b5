"""No output depends on the seed of Python's hashes, or on which worker is first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from samples.golden import ROOT
from tests.captures import pcap
from tests.command_lines import COMMAND_LINES
from tests.depth import IS_DEEP
from tests.frames import API_VERSIONS, request, response
from tests.segments import Talk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SEEDS = ("0", "1", "2") if IS_DEEP else ("0", "1")
DEEP = ("http-on-9092.pcap", "kafka-0.9.pcap.gz", "kafka-4-cluster.pcap.gz", "kafka-4-transactions.pcap")
COMMANDS = (
    "read", "read -j 2 --json", "read --client abc", "read -j 2 --client abc", "read --topic=x -Y latency>1",
    "records", "records -j 2 --json", "check", "check --json", "story group:x", "summary --by client,api",
    "summary --json --groups --lag --versions --transactions --connections --findings",
    "summary -j 3 --json --groups --lag --versions --transactions --connections --findings",
    "export -o OUT", "live -", "live -q --summary -",
)  # fmt: skip
OTHERS = tuple(line for line in COMMAND_LINES if "--prometheus" not in line)  # which prints a free port
OF_THIS_RUN = (b'"started":', b'"written":', b'"writer":')  # in manifests
CHILD = """
import json, os, sys
from pathlib import Path
from shutil import rmtree
from kdissect.cli.main import main
from tests.captures import full_pipe
out = Path(sys.argv[1])
for line, capture in json.load(sys.stdin):
    words = line.replace("OUT", str(out)).split()
    if words[-1] == "-":
        pipe = full_pipe(Path(capture))
        os.dup2(pipe, 0)
        os.close(pipe)
        sys.stdin = open(0, closefd=False)
    status = main([*words, *([] if words[-1] == "-" else [capture])])
    sys.stdout.flush()
    for path in sorted([out, *out.rglob("*")]):
        if path.is_file():
            print(path.relative_to(out.parent), flush=True)
            sys.stdout.buffer.write(path.read_bytes())
            sys.stdout.flush()
    rmtree(out, ignore_errors=True)
    out.unlink(missing_ok=True)
    for file in (sys.stdout, sys.stderr):
        print(status, end=sys.argv[2], file=file, flush=True)
"""
END = "the end of what this command wrote\n"  # binary files contain every shorter mark


class Output(NamedTuple):
    """The lines of both streams and of what was written; the last of each is the exit status."""

    command: str
    capture: Path
    out: list[bytes]
    err: list[bytes]


def outputs(commands: Sequence[tuple[str, Path]], out: Path, seed: str) -> list[Output]:
    """What each command prints of its capture and writes to ``out``, one after the other in one process."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD, out, END],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        input=json.dumps(commands, default=str).encode(),
        capture_output=True,
        check=True,
    )
    streams = (
        [
            [line for line in each.splitlines() if not line.strip().startswith(OF_THIS_RUN)]
            for each in stream.split(END.encode())[:-1]
        ]
        for stream in (child.stdout, child.stderr)
    )
    return [Output(*command, *lines) for command, *lines in zip(commands, *streams, strict=True)]


def outputs_of_all_seeds(commands: Sequence[tuple[str, Path]], out: Path) -> list[Output]:
    """They are the same."""
    first, *others = [outputs(commands, out, seed) for seed in SEEDS]
    assert any(len(each.out) > 1 for each in first)
    for other in others:
        assert other == first
    return first


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
    ("sample", "commands"),
    [
        pytest.param("kafka-4-fenced.pcap.gz", COMMANDS, id="fenced"),
        pytest.param("alike", COMMANDS, id="alike"),
        *(
            pytest.param(each, (*COMMANDS, *OTHERS), marks=pytest.mark.deep, id=f"{each}-all")
            for each in ("alike", "kafka-4-fenced.pcap.gz", *DEEP)
        ),
    ],
)
def test_every_command(sample: str, commands: tuple[str, ...], tmp_path: Path) -> None:
    path = ROOT / "samples" / sample
    if sample == "alike":
        path = tmp_path / "alike.pcap"
        path.write_bytes(alike())
    shown = outputs_of_all_seeds([(line, path) for line in commands], tmp_path / "out")
    assert not [each for each in shown if each.command in OTHERS and each.err[-1] in (b"1", b"2", b"3")]


def test_no_kafka_with_several_processes(tmp_path: Path) -> None:
    """Equally frequent protocols, and hints, are those of one process."""
    path = tmp_path / "alike.pcap"
    path.write_bytes(pcap([]) + alike()[24:])
    for arguments in ("--client abc", "--port 22"):
        commands = [(f"read -j {jobs} {arguments}", path) for jobs in (1, 3)]
        one, several = outputs(commands, tmp_path / "out", "0")
        assert one.err[0] == several.err[0]
