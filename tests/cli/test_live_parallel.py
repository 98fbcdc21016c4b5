"""``live -j`` shows what one process shows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import open_capture
from kdissect.capture.write import PcapngWriter
from kdissect.cli.terminal import INTERRUPTED, OK, USAGE
from tests.captures import pcap
from tests.cli.commands import capture_bytes, spawn, talk
from tests.cli.live_process import COUNTED, live, on_loopback
from tests.cli.test_parallel_run import SAMPLES
from tests.damage import DAMAGES, from_the_start
from tests.depth import IS_DEEP
from tests.loopback import WAIT_S, Client, broker, listens
from tests.tunnels import scapy_layers

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = ("", "--json", "--csv", "-V --api Metadata", "--error *", "-t r", "-c 3", "--topic nosuch")


def shown(path: Path, *arguments: str) -> tuple[int, bytes, list[bytes]]:
    """What the command shows of a file on stdin: exit status, stdout, and stderr without its tally."""
    with path.open("rb") as file:
        process = spawn("live", "-", *arguments, stdin=file)
        out, errors = process.communicate(timeout=WAIT_S)
    lines = errors.splitlines()
    return process.returncode, out, [line for line in lines if b"packet" in line and b"-c" not in arguments]


def same(path: Path, command: str) -> bytes:
    """Check that several processes show the same as one, and return it."""
    status, out, errors = shown(path, *command.split())
    for jobs in ("2", "3"):
        other = shown(path, *command.split(), "-j", jobs)
        assert other[:2] == (status, out)
        if "-c" not in command:  # then it says how many were read ahead
            assert other[2] == errors
    return out


def uncompressed(path: Path, to: Path, packets: Any = None) -> Path:
    """A copy of a capture as pcapng, perhaps of other packets."""
    with open_capture(path) as capture, to.open("wb") as file:
        writer = PcapngWriter(file)
        for packet in capture if packets is None else packets:
            writer.write(packet)
    return to


@pytest.mark.parametrize("damage", DAMAGES if IS_DEEP else ("10 % lost, duplicated, shuffled",))
def test_the_same_is_shown_of_a_damaged_capture(damage: str, tmp_path: Path) -> None:
    for sample in SAMPLES if IS_DEEP else SAMPLES[:1]:
        with open_capture(sample) as capture:
            packets = list(capture)
        damaged = DAMAGES[damage](from_the_start(packets), Random(damage)).packets
        same(uncompressed(sample, tmp_path / "capture.pcapng", damaged), "--json")


def frames(kind: str) -> list[bytes]:
    """Conversations of five clients, which are in different shards, with other layers."""
    layers, out = scapy_layers(), []
    ether = layers.Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")  # or scapy would ask the network
    for number in range(5):
        for packet in talk(client=(f"10.0.0.{number + 1}", 40000 + number)).packets:
            frame = layers.Ether(packet.data)
            ip = frame.payload
            ip.id = len(out)  # fragments of different packets must not have the same
            if kind == "VLAN":
                changed = [ether / layers.Dot1Q(vlan=7) / ip]
            elif kind == "IPv6":
                ends = {"src": f"2001:db8::{ip.src}", "dst": f"2001:db8::{ip.dst}"}
                changed = [ether / layers.IPv6(**ends) / ip.payload]
            elif kind == "fragments":
                changed = [ether / each for each in layers.fragment(ip, 64)]
            elif kind == "VXLAN":
                outside = layers.IP(src="192.0.2.1", dst="192.0.2.2") / layers.UDP(sport=5, dport=4789)
                changed = [ether / outside / layers.VXLAN(vni=9) / ether / ip]
            else:
                changed = [frame]
            for each in changed:
                if layers.TCP in each:
                    del each[layers.TCP].chksum
                out.append(bytes(each))
    return out


@pytest.mark.parametrize("kind", ["plain", "VLAN", "IPv6", "fragments", "VXLAN"])
def test_both_directions_go_to_one_process(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "capture.pcap"
    path.write_bytes(pcap((number * 1_000_000, frame) for number, frame in enumerate(frames(kind), 1)))
    rows = [json.loads(line) for line in same(path, "--json").splitlines()]
    assert [row["kind"] for row in rows].count("answered") == 15


def test_rows_are_shown_while_nothing_comes() -> None:
    conversation = talk()
    del conversation.packets[:3]  # without a SYN, the first segment may be out of order
    with live("-", "--json", "-j", "2", stdin=subprocess.PIPE) as running:
        assert running.process.stdin is not None
        running.process.stdin.write(capture_bytes(conversation))
        running.process.stdin.flush()
        assert [json.loads(running.line())["api"] for _ in range(3)] == ["Metadata", "Heartbeat", "Heartbeat"]
        status, lines, stderr = running.end()
    assert status == INTERRUPTED
    assert [json.loads(line)["kind"] for line in lines] == ["unanswered"]
    assert COUNTED.search(stderr)


def test_a_reader_that_has_gone_ends_it_quietly() -> None:
    with live("-", "-j", "2", stdin=subprocess.PIPE) as running:
        assert running.process.stdout is not None
        assert running.process.stdin is not None
        running.process.stdout.close()
        running.process.stdin.write(capture_bytes(talk()))
        running.process.stdin.flush()
        assert running.process.wait(WAIT_S) == OK
        assert running.process.stderr is not None
        assert running.process.stderr.read() == b""


def test_a_worker_that_dies_ends_it_with_one_line() -> None:
    with live("-", "-j", "2", "--json", stdin=subprocess.PIPE) as running:
        assert running.process.stdin is not None
        running.process.stdin.write(capture_bytes(talk()))
        running.process.stdin.flush()
        running.line()  # the workers are there
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(running.process.pid)], capture_output=True, check=True
        )
        os.kill(int(children.stdout.split()[0]), signal.SIGKILL)
        status, _, stderr = running.rest()
    assert status not in (OK, INTERRUPTED)
    assert "was killed by SIGKILL" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    "option", ["-q", "-o DIR", "--prometheus :0", "--summary", "--tls-keylog /dev/null"], ids=str.split
)
def test_options_that_need_one_process_are_refused(option: str) -> None:
    with live("-", "-j", "2", *option.split(), stdin=subprocess.PIPE) as running:
        status, lines, stderr = running.rest()
    assert (status, lines) == (USAGE, [])
    assert "-j cannot be used with" in stderr


@listens
def test_an_interface_and_what_is_written_of_it(tmp_path: Path) -> None:
    path = tmp_path / "live.pcapng"
    with (
        broker() as port,
        on_loopback(port, "--json", "-j", "2", "-w", str(path)) as running,
        Client(port) as client,
        Client(port) as other,
    ):
        client.beat(1)
        assert json.loads(running.line())["api"] == "Heartbeat"  # which comes while nothing else does
        client.beat(99)
        other.beat(100)
        status, lines, stderr = running.end()
    assert status == INTERRUPTED
    assert len(lines) == 199
    counted = COUNTED.search(stderr)
    assert counted
    assert counted.groups()[1:] == ("0", "0", "200")
    with open_capture(path) as capture:
        assert len(list(capture)) == int(counted[1].replace(",", ""))
