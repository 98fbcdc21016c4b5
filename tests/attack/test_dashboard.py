"""What strangers send reaches the terminal of ``live --top`` only as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.captures import pcap
from tests.terminal import Terminal
from tests.test_hostile import MARKS, conversation

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*forkpty:DeprecationWarning")

FOREIGN = [b"\x1b]", b"\x07", b"\x08", b"\x7f", *(chr(code).encode() for code in range(0x80, 0xA0))]


def test_the_dashboard_writes_no_escape_sequence_of_a_client(tmp_path: Path) -> None:
    path = tmp_path / "hostile.pcap"
    path.write_bytes(pcap((each.time_ns, each.data) for each in conversation(every_version=False).packets))
    arguments = ("live", "-", "--top", "-d", "tcp.port==9092,kafka")
    with Terminal(*arguments, size=(200, 50), stdin=str(path)) as screen:
        screen.shows("PWNED")
        seen = ""
        for key in "123456789":
            screen.press(key)
            screen.shows("quit")
            seen += screen.text
        screen.press("q")
        screen.ends()
        assert r"\x1b]0;PWNED" in seen
        assert [each for each in FOREIGN if each in screen.output] == []
        assert [mark for mark in MARKS if mark.encode() in screen.output] == []
        assert b"\nFORGED" not in screen.output
