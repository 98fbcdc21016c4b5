"""Help texts and pages -> samples/golden/pages/NAME.WIDTH.txt: what a terminal of that width shows.

python samples/pages.py          refreshes them all; read the difference like code
python samples/pages.py NAME...  only these: "read --help", "summary-lag"

Stdout and stderr are one terminal, without color. Commands run in this process, which takes a few seconds.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import click

from docs.screenshot import dashboard_of
from kdissect.cli.main import kdissect
from kdissect.cli.main import main as run
from kdissect.text.dashboard import StatusBar, UiState, draw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
DIRECTORY = ROOT / "samples" / "golden" / "pages"
WIDTHS = (80, 200)
REFRESH = "python samples/pages.py"

_CLUSTER, _REBALANCE = "samples/kafka-4-cluster.pcap.gz", "samples/mock-rebalance.pcapng"
_BASICS, _LAG = "samples/kafka-4-basics.pcap", "samples/kafka-4-lag.pcap.gz"
_STORM, _HABITS = "samples/kafka-4-storm.pcap.gz", "samples/kafka-4-habits.pcap.gz"
COMMANDS = {
    "read": f"read {_BASICS}",
    "read-d": f"read -t d -c 20 {_CLUSTER}",
    "read-ud": f"read -t ud -c 20 {_CLUSTER}",
    "read-V": "read -V -c 8 samples/quickstart.pcap",
    "read-V-records": f"read -V --records --api Produce -c 2 {_BASICS}",
    "read-x": "read -x -c 3 samples/quickstart.pcap",
    "read-q": f"read -q {_CLUSTER}",
    "read-nothing": f"read --client nobody {_BASICS}",
    "read-midstream": "read -c 20 samples/midstream.pcap",
    "read-unanswered": "read samples/unanswered.pcap",
    "read-tls": "read samples/tls.pcap",
    "read-old-versions": "read -c 20 samples/mock-old-versions.pcap",
    "records": f"records {_BASICS}",
    "records-transactions": "records -c 40 samples/kafka-4-transactions.pcap",
    "records-V": f"records -V -c 5 {_BASICS}",
    "records-q": f"records -q {_CLUSTER}",
    "records-midstream": "records -c 5 samples/midstream.pcap",
    "summary": f"summary {_BASICS}",
    "summary-unanswered": "summary samples/unanswered.pcap",
    "summary-by-api": f"summary --by api {_STORM}",
    "summary-by-topic": f"summary --by topic {_CLUSTER}",
    "summary-by-partition": f"summary --by partition --max-rows 5 {_CLUSTER}",
    "summary-by-client-topic": f"summary --by client,topic {_CLUSTER}",
    "summary-by-group": f"summary --by group {_STORM}",
    "summary-by-connection": f"summary --by connection --max-rows 5 {_CLUSTER}",
    "summary-interval": f"summary --by client --interval 5s --max-rows 12 {_LAG}",
    "summary-groups": f"summary --groups {_STORM}",
    "summary-groups-small": f"summary --groups {_REBALANCE}",
    "summary-lag": f"summary --lag {_LAG}",
    "summary-versions": "summary --versions --max-rows 5 samples/mock-old-versions.pcap",
    "summary-transactions": "summary --transactions samples/kafka-4-fenced.pcap.gz",
    "summary-findings": f"summary --findings {_HABITS}",
    "summary-findings-none": "summary --findings samples/quickstart.pcap",
    "summary-rules": "summary --findings --list",
    "story-group": f"story group:restless {_STORM}",
    "story-client": f"story client:slow {_LAG}",
    "story-txn-diagram": "story txn:pay-shared --diagram samples/kafka-4-fenced.pcap.gz",
    "story-record": f"story record:spread:1@0 {_CLUSTER}",
    "story-record-diagram": f"story record:spread:1@0 --diagram {_CLUSTER}",
    "story-record-mermaid": f"story record:spread:1@0 --mermaid {_CLUSTER}",
    "story-broker": f"story broker:2 --since 12:57:05 {_CLUSTER}",
    "story-nothing": f"story group:restles {_STORM}",
    "story-invalid": f"story restless {_STORM}",
    "check": f"check {_CLUSTER}",
    "check-midstream": "check samples/midstream.pcap",
    "check-tls": "check samples/tls.pcap samples/http-on-9092.pcap",
    "check-old": "check samples/kafka-0.9.pcap.gz",
    "fields": "fields *throttle*",
    "read-e": f"read -e time,client_id,api,latency_us,errors -c 10 {_CLUSTER}",
    "apis": "apis",
    "apis-Fetch": "apis Fetch",
    "apis-Fetch-13": "apis Fetch 13",
    "limits": "read --limits",
    "config": "config show --config docs/config.toml --profile prod",
    "live": "live -q --summary -",
    "error-option": "read --sort time x.pcap",
    "error-file": "read samples/nothing.pcap",
    "error-where": f'read -Y client_id="x" {_BASICS}',
}
"""Each page and its command line. ``live`` reads a capture from stdin.

Percentiles of more than 256 values can differ between runs. There are none on these pages.
"""
_STDIN = ROOT / "samples" / "kafka-4-habits.pcap.gz"
_DASHBOARD = ("kafka-4-storm",)
_SIZES = {80: 24, 200: 50}
"""Lines of a terminal, by its columns, for the dashboard."""


class Terminal(io.TextIOWrapper):
    """A stream that says that it is a terminal, and keeps what is written."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")

    def isatty(self) -> bool:
        """Make it look like a terminal."""
        return True

    def shown(self) -> str:
        """All that was written."""
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


def names() -> list[str]:
    """All pages: ``read --help``, ``summary-lag``."""
    return [*_helps(kdissect, "kdissect"), *COMMANDS, "top", "top-help"]


def _helps(command: click.Command, path: str) -> Iterator[str]:
    yield f"{path} --help"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if (inner := command.get_command(context, name)) is not None:
                yield from _helps(inner, f"{path} {name}")


def golden(name: str, width: int) -> Path:
    """The file of a page."""
    return DIRECTORY / f"{name.replace(' --', '-').replace(' ', '-')}.{width}.txt"


def page(name: str, width: int) -> str:
    """What a terminal of this width shows."""
    if name.startswith("top"):
        state = UiState(is_help=name == "top-help")
        lines = draw(
            dashboard_of(_DASHBOARD), state, StatusBar("eth0", memory_bytes=61_400_000), width, _SIZES[width]
        )
        return "".join(f"{line.plain.rstrip()}\n" for line in lines)
    return shown(COMMANDS[name].split() if name in COMMANDS else name.split()[1:], width)


def shown(arguments: Sequence[str], width: int, stdin: Path = _STDIN) -> str:
    """What a terminal of this width shows of a command that may read a capture from stdin."""
    terminal = Terminal()
    environment = {
        "COLUMNS": str(width),
        "LINES": "50",
        "NO_COLOR": "1",
        "TZ": "UTC",
        "KDISSECT_CONFIG": os.devnull,
    }
    with (
        io.TextIOWrapper(stdin.open("rb")) as capture,
        patch.dict(os.environ, environment),
        patch.object(sys, "stdout", terminal),
        patch.object(sys, "stderr", terminal),
        patch.object(sys, "stdin", capture),
    ):
        run(arguments)
        return terminal.shown()


def write(name: str, width: int) -> bool:
    """Write a page; whether it has changed."""
    path, text = golden(name, width), page(name, width)
    if path.exists() and path.read_text() == text:
        return False
    path.write_text(text)
    return True


def main() -> None:
    """Write all pages, or those that the arguments name."""
    os.chdir(ROOT)
    DIRECTORY.mkdir(exist_ok=True)
    chosen = sys.argv[1:] or names()
    for name in chosen:
        for width in WIDTHS:
            if write(name, width):
                print(f"changed {golden(name, width).relative_to(ROOT)}")
    if not sys.argv[1:]:
        known = {golden(name, width) for name in chosen for width in WIDTHS}
        for path in set(DIRECTORY.iterdir()) - known:
            path.unlink()
            print(f"removed {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
