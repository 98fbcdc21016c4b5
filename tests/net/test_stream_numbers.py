"""``packet``, ``tcp_stream`` and ``community_id`` are tshark's ``frame.number``, ``tcp.stream`` and
``communityid``.
"""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.cli.terminal import OK
from kdissect.errors import UsageError
from kdissect.limits import Limits
from kdissect.net.tcp import ACK, SYN, StreamNumbers
from kdissect.spark.options import check_where
from tests.cli.commands import run, talk, write
from tests.segments import Talk

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES = ["quickstart.pcap", "mock-rebalance.pcapng", "midstream.pcap", "kafka-4-cluster.pcap.gz"]
SAMPLES += ["../tests/field/proxy-v2-long.pcap"]


def numbered(capture: str, capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    done = run(capsys, "read", "-e", "packet,tcp_stream,community_id", *options, capture)
    assert done.status == OK
    return done.lines


def tshark(capture: str) -> set[str]:
    command = ["tshark", "-r", capture, "--enable-protocol", "communityid", "-T", "fields"]
    command += ["-e", "frame.number", "-e", "tcp.stream", "-e", "communityid"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines())


@pytest.mark.tshark
@pytest.mark.parametrize("sample", SAMPLES)
def test_samples(sample: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = numbered(f"samples/{sample}", capsys)
    assert lines
    assert set(lines) <= tshark(f"samples/{sample}")
    assert numbered(f"samples/{sample}", capsys, "-j", "2") == lines


@pytest.mark.tshark
def test_ipv6(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    talks = (
        talk(client=("2001:db8::2", 9092), broker=("2001:db8::1", 9093)),
        talk(client=("::1", 5), broker=("::1", 9092)),
    )
    capture = write(tmp_path / "x.pcap", *talks)
    lines = numbered(capture, capsys)
    assert len({line.split("\t")[2] for line in lines}) == 2
    assert set(lines) <= tshark(capture)


@pytest.mark.tshark
def test_reused_ports_and_connections_that_are_never_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = Talk(("10.0.0.9", 1234)).put(0, SYN, acknowledgment=0).reset(1)
    idle = Talk(("10.0.0.8", 1234)).client_acks().broker_acks().reset()
    repeated = (
        Talk(("10.0.0.7", 1234)).put(0, SYN, sequence=7).put(0, SYN, sequence=7).put(0, SYN, sequence=8)
    )
    again = talk(client_start=70_000, broker_start=90_000)
    capture = write(
        tmp_path / "x.pcap", refused, talk(), idle, again.finish(), repeated, talk(client_start=5)
    )
    lines = numbered(capture, capsys)
    assert {line.split("\t")[1] for line in lines} == {"1", "3", "6"}
    assert set(lines) <= tshark(capture)
    assert numbered(capture, capsys, "-Y", "tcp_stream == 3") == [
        line for line in lines if line.split("\t")[1] == "3"
    ]


def test_what_is_remembered_is_limited() -> None:
    def ends(number: int) -> bytes:
        return bytes([10, 0, 0, number, 10, 0, 1, 1, 4, 0, 9, 9])

    numbers = StreamNumbers(Limits(tcp_streams=1))
    segments: list[Any] = [SimpleNamespace(ends=ends(at), sequence=1, flags=ACK) for at in (1, 2, 1, 3, 1)]
    assert [numbers.feed(segment) for segment in segments] == [0, 1, 0, 2, 3]


def test_spark_has_none() -> None:
    check_where("packet == 1")
    with pytest.raises(UsageError, match="tcp_stream is not available on Spark"):
        check_where("tcp_stream == 1")
