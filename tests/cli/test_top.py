"""The dashboard in a pseudo-terminal, as users see it."""

from __future__ import annotations

import gzip
import os
import pty
import signal
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from kdissect.cli.terminal import INTERRUPTED, OK, USAGE
from kdissect.cli.top import StderrBuffer, Top, memory_bytes
from kdissect.text.style import COLORED
from tests.cli.commands import run
from tests.cli.live_process import STAYS_ROOT
from tests.loopback import Client, broker, listens
from tests.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kdissect.stats.pulse import PulseSnapshot
    from tests.terminal import Size

SMALL, LARGE = (80, 24), (200, 50)
STORM = gzip.decompress(Path("samples/kafka-4-storm.pcap.gz").read_bytes())
EXCHANGES = 233  # in it, as tests/test_samples.py counts them

pytestmark = pytest.mark.filterwarnings("ignore:.*forkpty:DeprecationWarning")


class PipeSource:
    """A dashboard of a capture that is written to a pipe."""

    def __init__(self, terminal: Terminal, pipe: int) -> None:
        self.terminal = terminal
        self.pipe = pipe
        self.is_open = True

    def write(self, some: bytes) -> None:
        """Write in a thread while the screen is read: a command that waits for its terminal reads no pipe."""
        writer = Thread(target=self._write, args=(some,))
        writer.start()
        self.terminal.until(lambda: not writer.is_alive())

    def _write(self, some: bytes) -> None:
        with suppress(BrokenPipeError):  # it has ended, which its screen says too
            while some:
                some = some[os.write(self.pipe, some) :]

    def end(self) -> None:
        if self.is_open:
            os.close(self.pipe)
        self.is_open = False


@contextmanager
def piped(directory: Path, *arguments: str, size: Size = SMALL) -> Iterator[PipeSource]:
    fifo = directory / "packets"
    os.mkfifo(fifo)
    with Terminal("live", "-", "--top", *arguments, size=size, stdin=str(fifo)) as terminal:
        dashboard = PipeSource(terminal, os.open(fifo, os.O_WRONLY))
        try:
            yield dashboard
        finally:
            dashboard.end()


def test_a_dashboard_at_80x24(tmp_path: Path) -> None:
    with piped(tmp_path) as dashboard:
        screen = dashboard.terminal
        screen.shows("kdissect live -", "waiting for packets", "q quit")
        dashboard.write(STORM)
        screen.shows("Heartbeat", "REBALANCE_IN_PROGRESS", "p99 ", "0 dropped", "memory ")
        assert " 1 APIs " in screen.lines[2]
        assert screen.lines[3].split()[:2] == ["API", "/s▼"]
        screen.press("\x1b[C")
        screen.shows("N▼")
        screen.press("\x1b[C")
        screen.shows("P50▼")
        screen.press("2")
        screen.until(lambda: screen.lines[3].startswith("TOPIC") and screen.lines[4].startswith("spread"))
        screen.press("\t")
        screen.until(lambda: screen.lines[3].startswith("CLIENT") and "confluent-kafka" in screen.text)
        screen.press("4")
        screen.until(lambda: screen.lines[3].startswith("GROUP") and "rebalancing" in screen.text)
        screen.press("5")
        screen.shows("rebalance gen 10 -> 11", "restless, 1 member, mortal timed out")
        screen.press("p?")
        screen.shows("PAUSED", "sort by another column")
        screen.press("h")
        screen.shows("rebalance gen 10 -> 11")
        screen.press("q")
        assert screen.ends() == OK
        assert screen.is_as_before()
        assert b" packets, 0 dropped by the kernel, 0 by kdissect; " in screen.output


def test_all_panes_at_200x50_and_a_terminal_that_changes(tmp_path: Path) -> None:
    with piped(tmp_path, size=LARGE) as dashboard:
        screen = dashboard.terminal
        dashboard.write(STORM)
        screen.shows(
            "1 APIs ", "2 Topics ──", "3 Clients ", "4 Groups ──", "Heartbeat", "rebalance gen 10 -> 11"
        )
        assert any(line.startswith("Heartbeat") and " spread " in line for line in screen.lines)
        screen.resize(SMALL)
        screen.until(lambda: screen.lines[3].startswith("API") and "q quit" in screen.lines[-1])
        assert "TOPIC" not in screen.text
        screen.resize((120, 45))
        screen.shows("1 APIs ", "2 Topics ", "──")
        dashboard.end()
        screen.shows("ENDED", f" {EXCHANGES} exchanges")
        screen.press("q")
        assert screen.ends() == OK
        assert screen.is_as_before()


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda screen: screen.press("\x03"), INTERRUPTED),
        (lambda screen: screen.child.kill(signal.SIGTERM), 128 + signal.SIGTERM),
        (lambda screen: screen.child.kill(signal.SIGHUP), OK),
    ],
    ids=["Ctrl-C", "SIGTERM", "SIGHUP"],
)
def test_signals_restore_the_terminal(tmp_path: Path, end: Callable[[Terminal], object], status: int) -> None:
    with piped(tmp_path) as dashboard:
        dashboard.write(STORM)
        dashboard.terminal.shows("Heartbeat")
        end(dashboard.terminal)
        assert dashboard.terminal.ends() == status
        assert dashboard.terminal.is_as_before()


@pytest.mark.parametrize(("key", "status"), [("q", {OK}), ("\x03", {INTERRUPTED, USAGE})])
def test_it_ends_before_anything_came(tmp_path: Path, key: str, status: set[int]) -> None:
    with piped(tmp_path) as dashboard:
        dashboard.terminal.shows("waiting for packets")
        dashboard.terminal.press(key)
        assert dashboard.terminal.ends() in status
        assert dashboard.terminal.is_as_before()


def test_the_terminal_is_restored_after_a_fault(tmp_path: Path) -> None:
    with piped(tmp_path) as dashboard:
        dashboard.terminal.shows("waiting for packets")
        dashboard.write(b"this is no capture at all, and says so in more than sixty-four bytes of text\n" * 2)
        assert dashboard.terminal.ends() == USAGE
        assert dashboard.terminal.is_as_before()
        assert b"neither pcap nor pcapng" in dashboard.terminal.output.partition(b"\x1b[?1049l")[2]


def test_a_terminal_that_is_closed_ends_it(tmp_path: Path) -> None:
    with piped(tmp_path) as dashboard:
        dashboard.terminal.shows("waiting for packets")
        child = dashboard.terminal.child
        child.ptyproc.fileobj.close()  # which the kernel tells by SIGHUP
        child.wait()
        assert child.exitstatus == OK


def test_ctrl_z_leaves_the_terminal_to_the_shell(tmp_path: Path) -> None:
    with piped(tmp_path) as dashboard:
        screen = dashboard.terminal
        dashboard.write(STORM)
        screen.shows("Heartbeat")
        screen.press("\x1a")
        screen.until(lambda: screen.is_as_before() and screen.is_stopped())
        screen.child.kill(signal.SIGCONT)
        screen.until(lambda: not screen.has_cursor and "Heartbeat" in screen.text)
        screen.press("q")
        assert screen.ends() == OK
        assert screen.is_as_before()


def test_a_file_that_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "growing.pcap"
    path.write_bytes(STORM)
    with Terminal("live", "--follow", str(path), "--top", "--api", "Heartbeat", size=SMALL) as screen:
        screen.shows("Heartbeat", "no packets for")
        assert "JoinGroup" not in screen.lines[5]
        screen.press("q")
        assert screen.ends() == OK
        assert screen.is_as_before()


@listens
def test_an_interface() -> None:
    with (
        broker() as port,
        Terminal("live", "-i", "lo", "-f", f"tcp port {port}", "--top", *STAYS_ROOT, size=SMALL) as screen,
        Client(port) as client,
    ):
        screen.shows("listening on lo")
        client.beat(50)
        screen.shows("Heartbeat", "0 dropped", "1 connection")
        screen.press("q")
        assert screen.ends() == OK
        assert screen.is_as_before()
        assert b"kdissect: listening on lo" in screen.output.partition(b"\x1b[?1049l")[2]


def test_a_fault_of_the_drawing_thread_is_raised_after_the_terminal_is_restored() -> None:
    def now() -> PulseSnapshot:
        raise ZeroDivisionError

    person, terminal = pty.openpty()
    with os.fdopen(terminal, "w", encoding="utf-8") as out:
        before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTSTP)}
        with (
            pytest.raises(ZeroDivisionError),
            Top(now, lambda: (0, 0), "lo", out, COLORED) as top,
        ):
            top.linger(lambda: True)
        written = b""
        while not written.endswith(b"\x1b[?1049l"):
            written += os.read(person, 1 << 16)
        assert {number: signal.getsignal(number) for number in before} == before
    os.close(person)


def test_without_a_terminal_one_line_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "live", "-i", "lo", "--top")
    assert (done.status, done.out) == (USAGE, "")
    assert done.err == ("kdissect: --top needs a terminal; without one: --json, or -q --prometheus :9464\n")


def test_the_last_lines_of_stderr_are_kept() -> None:
    buffer = StderrBuffer()
    buffer.write("one\ntw")
    buffer.writelines(["o\n", *(f"{number}\n" for number in range(100))])
    assert buffer.lines[0] == "80"
    assert buffer.lines[-1] == "99"
    assert len(buffer.lines) == 20


def test_a_message_does_not_stay_on_the_dashboard(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("kdissect.cli.top.monotonic", lambda: clock[-1])
    buffer = StderrBuffer()
    assert buffer.message == ""
    buffer.write("kdissect: warning: still running as root\n")
    for now_s, message in ((114.9, "warning: still running as root"), (115.1, "")):
        clock.append(now_s)
        assert buffer.message == message
    assert buffer.lines[-1] == "kdissect: warning: still running as root"  # written at the end


def test_memory_is_reported_if_known() -> None:
    memory = memory_bytes()
    assert memory is None or memory > 1_000_000
