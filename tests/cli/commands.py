"""Captures for tests, and functions that run commands in this process or in a child process."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.cli.main import main
from tests.captures import pcap
from tests.frames import METADATA, heartbeat_answers, heartbeats, request, response
from tests.segments import Talk

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ORDERS = "5RzwtLHbTWqVAuyWxeBeRQ"


class Run(NamedTuple):
    """The result of a command."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Run:
    """Run a command in this process."""
    status = main(arguments)
    captured = capsys.readouterr()
    return Run(status, captured.out, captured.err)


def spawn(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start a command in a child process."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([sys.executable, "-m", "kdissect", *arguments], **pipes)


def talk(**options: Any) -> Talk:
    """A client that sends a Metadata request and three Heartbeats, of which the last has no response."""
    conversation = Talk(**options)
    conversation.handshake()
    conversation.client_sends(request(METADATA, 12, {"topics": [{"name": "orders"}]}, correlation_id=1))
    body = {"topics": [{"name": "orders", "topic_id": ORDERS, "error_code": 5}]}
    conversation.broker_sends(response(METADATA, 12, body, correlation_id=1))
    conversation.client_sends(b"".join(heartbeats(3, first=2)))
    conversation.broker_sends(b"".join(heartbeat_answers(2, first=2)))
    return conversation


def capture_bytes(*talks: Talk) -> bytes:
    """A pcap file of these conversations in sequence."""
    packets = [packet for each in talks for packet in each.packets]
    return pcap((number * 1_000_000, packet.data) for number, packet in enumerate(packets, 1_700_000_000_000))


def write(path: Path, *talks: Talk) -> str:
    """Write them to a file and return its name."""
    path.write_bytes(capture_bytes(*talks))
    return str(path)


def long_capture(beats: int) -> bytes:
    """A capture of some thousand Heartbeats with responses."""
    conversation = Talk()
    conversation.handshake()
    for first in range(1, beats, 50):
        conversation.client_sends(b"".join(heartbeats(50, first=first)))
        conversation.broker_sends(b"".join(heartbeat_answers(50, first=first)))
    return capture_bytes(conversation)
