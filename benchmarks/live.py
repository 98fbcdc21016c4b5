"""How long does it take from a packet to its line, and up to which rate is nothing dropped?

python benchmarks/live.py [--seconds 3]      as root: makes a pair of virtual interfaces, and removes it again

Lag: a client and a broker on loopback, a line of JSON for each exchange; from when the client has its answer
to when the line was read.

Rate: made-up traffic (traffic.py), sent packet by packet as fast as is asked for, or as the sender can; into
one end of a veth pair while the other is listened to, or into the loopback interface. Every program gets the
same packets, a kernel buffer of 16 MiB and the filter ``tcp``, one after the other, and writes to nowhere.
Each round of them comes from other client ports. For each program it is told how many packets were dropped
by whoever counts them, how many of the exchanges it told (of tshark: half of the messages), and how long
after the last packet it was done: a program that is too slow for a rate first falls behind, then drops.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.traffic import make
from kdissect.capture.reader import open_capture
from kdissect.pipeline import dissect
from tests.loopback import Client, broker

if TYPE_CHECKING:
    from collections.abc import Iterator

LIVE = [sys.executable, "-m", "kdissect", "live", "-f", "tcp"]
PAIR = ("kdbench0", "kdbench1")
LAGS = ((2000, 0.0), (500, 0.01), (50, 0.1))  # exchanges, pause after each in seconds
FASTEST = 1 << 40
# What, where, megabytes that are made of it and sent again and again, packets a second.
SCENES = (
    ("bulk", "veth", "packets of 1,500 bytes, veth", (5_000, 20_000, FASTEST)),
    ("chatty", "veth", "small exchanges, veth", (5_000, 20_000, FASTEST)),
    ("loopback", "lo", "packets of 65,535 bytes, loopback", (500, 2_000, FASTEST)),
)
MADE_BYTES = 20_000_000
CONNECTIONS = 20
BROKER_PORT = (9092).to_bytes(2, "big")
EXCHANGES = re.compile(r"by kdissect; ([\d,]+) exchange")
CAPTURE = ("tcpdump", "-n", "-i", "{where}", "-U", "-B", "16384", "-w", "-", "tcp")
AS_KAFKA = ("-n", "-d", "tcp.port==9092,kafka", "-Y", "kafka")
KDISSECT = (sys.executable, "-m", "kdissect", "live")
PROGRAMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "kdissect live -i": ((*KDISSECT, "-i", "{where}"),),
    "kdissect live -i -q": ((*KDISSECT, "-i", "{where}", "-q"),),
    "tcpdump | kdissect live -": (CAPTURE, (*KDISSECT, "-")),
    "tshark -i": (("tshark", "-i", "{where}", "-f", "tcp", "-B", "16", *AS_KAFKA),),
    "tcpdump | tshark -r -": (CAPTURE, ("tshark", "-r", "-", *AS_KAFKA)),
}
DROPPED = re.compile(
    r"([\d,]+) dropped by the kernel, ([\d,]+) by kdissect|(\d+) packets? dropped (?:by kernel|from)"
)
LISTENS = re.compile(r"listening on|Capturing on", re.IGNORECASE)
SETTLE_S = 3  # tshark says that it listens before it does, and who reads a pipe says nothing
QUIET_S = 1.5  # without a line more: it is done
MOST_S = 60


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        process.stderr.readline()  # that it listens
        yield process
    finally:
        process.kill()
        process.wait()


def lags_ms(count: int, pause: float) -> tuple[float, list[float]]:
    """Exchanges a second, and how late each line was."""
    read: dict[int, float] = {}
    sent: dict[int, float] = {}
    with broker() as port, started(*LIVE[:-1], f"tcp port {port}", "-i", "lo", "--json") as live:

        def lines() -> None:
            assert live.stdout is not None
            for line in live.stdout:
                read[json.loads(line)["correlation_id"]] = time.monotonic()

        reader = threading.Thread(target=lines)
        reader.start()
        began = time.monotonic()
        with Client(port) as client:
            for number in range(1, count + 1):
                client.beat(1)
                sent[number] = time.monotonic()
                time.sleep(pause)
        took = time.monotonic() - began
        live.send_signal(signal.SIGINT)
        reader.join()
    assert read.keys() == sent.keys(), "an exchange is missing"
    return count / took, sorted(1000 * (read[number] - sent[number]) for number in sent)


@contextmanager
def pair() -> Iterator[None]:
    ip = shutil.which("ip") or sys.exit("needs iproute2")
    subprocess.run([ip, "link", "add", PAIR[0], "type", "veth", "peer", "name", PAIR[1]], check=True)
    try:
        for name in PAIR:
            subprocess.run([ip, "link", "set", name, "up"], check=True)
        yield
    finally:
        subprocess.run([ip, "link", "del", PAIR[0]], check=True)


class Traffic:
    """Packets that are sent round and round, each round from other client ports."""

    def __init__(self, path: Path) -> None:
        with open_capture(path) as capture:
            self.frames = [bytearray(packet.data) for packet in capture]
        with open_capture(path) as capture:
            self._complete = sorted(exchange.order[1] for exchange in dissect(capture))
        self._ports = [self._client_port(frame) for frame in self.frames]
        self.mean = sum(map(len, self.frames)) / len(self.frames)

    @staticmethod
    def _client_port(frame: bytearray) -> tuple[int, int]:
        at = 36 if frame[34:36] == BROKER_PORT else 34
        return at, int.from_bytes(frame[at : at + 2], "big")

    def exchanges(self, sent: int) -> int:
        """How many are complete after so many packets."""
        rounds, rest = divmod(sent, len(self.frames))
        return rounds * len(self._complete) + bisect_right(self._complete, rest)

    def send(self, to: str, rate: int, seconds: float) -> tuple[int, float]:
        """Send: how many packets that were, and how many a second."""
        frames, ports, count = self.frames, self._ports, len(self.frames)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind((to, 0))
            began, sent = time.monotonic(), 0
            piece = max(1, min(100, rate // 200))
            while (passed := time.monotonic() - began) < seconds:
                if sent > rate * passed:
                    time.sleep(0.001)
                    continue
                for number in range(sent, sent + piece):
                    rounds, place = divmod(number, count)
                    frame, (at, port) = frames[place], ports[place]
                    frame[at : at + 2] = (port + CONNECTIONS * rounds).to_bytes(2, "big")
                    sender.send(frame)
                sent += piece
        return sent, sent / passed


class Measured(NamedTuple):
    """What became of what was sent."""

    rate: float  # packets a second
    dropped: int
    told: float  # part of the exchanges
    behind_s: float  # until all was told


def dropped(said: str) -> int:
    return sum(int(count.replace(",", "")) for found in DROPPED.findall(said) for count in found if count)


def measure(
    commands: tuple[tuple[str, ...], ...], traffic: Traffic, where: str, rate: int, seconds: float
) -> Measured:
    to = where if where == "lo" else PAIR[1]
    with tempfile.TemporaryDirectory() as folder:
        said, shown = Path(folder) / "said", Path(folder) / "shown"
        processes: list[subprocess.Popen[bytes]] = []
        with said.open("wb") as error, shown.open("wb") as out:
            for place, command in enumerate(commands):
                is_last = place == len(commands) - 1
                filled = [word.replace("{where}", where) for word in command]
                before = processes[-1].stdout if processes else None
                target = out if is_last else subprocess.PIPE
                processes.append(subprocess.Popen(filled, stdin=before, stdout=target, stderr=error))
            until = time.monotonic() + MOST_S
            while not LISTENS.search(said.read_text(errors="replace")) and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(SETTLE_S * len(commands))
            sent, reached = traffic.send(to, rate, seconds)
            ended = time.monotonic()
            grown, size = ended, -1
            if (
                commands[0][0] != sys.executable
            ):  # these lose what they have not taken yet when they are ended
                while time.monotonic() - grown < QUIET_S and time.monotonic() - ended < MOST_S:
                    time.sleep(0.05)
                    if shown.stat().st_size != size:
                        size, grown = shown.stat().st_size, time.monotonic()
            processes[0].send_signal(signal.SIGINT)
            for process in processes:
                process.wait()
            if commands[0][0] == sys.executable:
                grown = time.monotonic()
        text = said.read_text(errors="replace")
        if found := EXCHANGES.search(text):
            told = float(found[1].replace(",", ""))
        else:
            told = shown.read_bytes().count(b"\n") / 2
        return Measured(reached, dropped(text), told / traffic.exchanges(sent), grown - ended)


def rates(seconds: float) -> None:
    with pair(), tempfile.TemporaryDirectory() as folder:
        for work, where, about, asked in SCENES:
            path = Path(folder) / f"{work}.pcap"
            make(work, path, MADE_BYTES, connections=CONNECTIONS)
            traffic = Traffic(path)
            print(f"\n{about}: {traffic.mean:,.0f} bytes/packet; dropped, exchanges reported, seconds behind")
            print(f"{'':26}", *(f"{'fastest' if rate == FASTEST else f'{rate:,}/s':>26}" for rate in asked))
            for name, commands in PROGRAMS.items():
                if any(shutil.which(command[0]) is None for command in commands):
                    continue
                cells = []
                for rate in asked:
                    made = measure(commands, traffic, where if where == "lo" else PAIR[0], rate, seconds)
                    said = f"{made.dropped:,}  {made.told:.0%}  {made.behind_s:.1f} s"
                    cells.append(f"{made.rate:,.0f}: {said}" if made.rate < 0.95 * rate else said)
                print(f"{name:26}", *(f"{cell:>26}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3)
    seconds = parser.parse_args().seconds
    print("delay from response to output line, ms            median      p99      max")
    for count, pause in LAGS:
        rate, lags = lags_ms(count, pause)
        shown = (statistics.median(lags), lags[int(len(lags) * 0.99)], lags[-1])
        print(f"{count:>6} exchanges, {rate:>6,.0f}/s", " " * 20, *(f"{lag:>8.1f}" for lag in shown))
    rates(seconds)


if __name__ == "__main__":
    main()
