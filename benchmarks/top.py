"""What do the dashboard and the metrics of ``live`` cost, at 1,000 exchanges per second?

python benchmarks/top.py [EXCHANGES_PER_SECOND]

Chatty traffic (traffic.py: Produce and Fetch of one record, Heartbeat, OffsetCommit, 20 connections) comes
through a pipe in real time, for 15 seconds per row. The baseline is the same command with -q, which only
counts. CPU time is that of the process, without its start.
"""

from __future__ import annotations

import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from kdissect.capture.reader import open_capture

SECONDS = 15
LIVE = [sys.executable, "-m", "kdissect", "live", "-", "--no-summary"]
METRICS = "127.0.0.1:19464"
SIZES = {"80x24": (24, 80), "200x50": (50, 200)}
_HEADER = struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1)


class Used(NamedTuple):
    """Resources that a run used."""

    cpu_s: float
    drawn_kb: float
    memory_mb: float


def traffic(exchanges: int) -> list[bytes]:
    """The packets of a number of exchanges, two per exchange."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "chatty.pcap"
        script = Path(__file__).with_name("traffic.py")
        megabytes = str(exchanges // 2500 + 1)
        command = [sys.executable, str(script), "chatty", megabytes, str(path), "--connections", "20"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open_capture(path) as capture:
            return [packet.data for packet in capture][: 2 * exchanges]


def send(pipe: int, packets: list[bytes], rate: int, seconds: float) -> None:
    """Write ``rate`` exchanges per second, with the current time as packet time."""
    os.write(pipe, _HEADER)
    began, place = time.monotonic(), 0
    while (since := time.monotonic() - began) < seconds:
        due = min(len(packets), int(2 * rate * since))
        now_ns = time.time_ns()
        head = [
            struct.pack("<4I", now_ns // 10**9, now_ns % 10**9, len(one), len(one))
            for one in packets[place:due]
        ]
        block = b"".join(piece for pair in zip(head, packets[place:due], strict=True) for piece in pair)
        while block:
            block = block[os.write(pipe, block) :]
        place = due
        time.sleep(0.01)


def run(
    options: list[str], packets: list[bytes], rate: int, size: tuple[int, int], *, seconds: float
) -> Used:
    drawn: list[int] = []
    done = threading.Event()
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, size)
    reader, writer = os.pipe()

    def drain() -> None:
        while block := os.read(controller, 1 << 16):
            drawn.append(len(block))

    def scrape() -> None:
        while not done.wait(1):
            with suppress(OSError), urlopen(f"http://{METRICS}/metrics") as page:  # it may not be there yet
                page.read()

    process = subprocess.Popen(
        [*LIVE, *options],
        stdin=reader,
        stdout=terminal,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(reader)
    threading.Thread(target=drain, daemon=True).start()
    if "--prometheus" in options:
        threading.Thread(target=scrape, daemon=True).start()
    send(writer, packets, rate, seconds)
    pages = int(Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii").split()[1])
    done.set()
    process.send_signal(signal.SIGINT)
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    os.close(writer)
    return Used(used.ru_utime + used.ru_stime, sum(drawn) / 1000, pages * os.sysconf("SC_PAGE_SIZE") / 1e6)


def main(rate: int = 1000) -> None:
    packets = traffic(rate * SECONDS)
    ways = {
        "-q": ["-q"],
        "-q --prometheus, scraped every second": ["-q", "--prometheus", METRICS],
        "--top at 80x24": ["--top"],
        "--top at 200x50": ["--top"],
        "--json": ["--json"],
    }
    print(f"{rate:,} exchanges a second{'':24} processor      drawn     memory")
    for name, options in ways.items():
        size = SIZES.get(name.rpartition(" ")[2], SIZES["80x24"])
        idle = run(options, packets, rate, size, seconds=1.0)
        busy = run(options, packets, rate, size, seconds=SECONDS)
        cpu_s = 100 * (busy.cpu_s - idle.cpu_s) / (SECONDS - 1)
        per_second = (busy.drawn_kb - idle.drawn_kb) / (SECONDS - 1)
        print(f"{name:45} {cpu_s:>6.1f} % {per_second:>6.1f} KB/s {busy.memory_mb:>7.0f} MB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
