"""How long does it take from a packet to its output line, and up to which rate is nothing dropped?

python benchmarks/live.py [--seconds 3]      as root: creates a pair of virtual interfaces, and removes it

Delay: a client and a broker on loopback, a line of JSON per exchange; from the time at which the client has
the response to the time at which the line is read.

Rate: generated traffic (traffic.py), sent packet by packet at a given rate or as fast as possible, into one
end of a veth pair whose other end is captured, or into the loopback interface. One program after the other
gets the same packets, a kernel buffer of 16 MiB and the filter ``tcp``; its output is counted. Each round of
packets uses other client ports. Prints for each program how many packets were dropped, according to the
program that counts them, the fraction of exchanges reported (for tshark: half of the messages), and the time
from the last packet to the last output: a program that is too slow for a rate first falls behind, then drops.
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
# Kind of traffic, interface, title, packets per second.
SCENES = (
    ("bulk", "veth", "packets of 1,500 bytes, veth", (5_000, 20_000, FASTEST)),
    ("chatty", "veth", "small exchanges, veth", (5_000, 20_000, FASTEST)),
    ("loopback", "lo", "packets of 65,535 bytes, loopback", (500, 2_000, FASTEST)),
)
TRAFFIC_BYTES = 20_000_000
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
SETTLE_S = 3  # tshark starts later than it announces; a program that reads a pipe announces nothing
QUIET_S = 1.5  # without further output the program is done
MOST_S = 60


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        process.stderr.readline()  # announces that it captures
        yield process
    finally:
        process.kill()
        process.wait()


def lags_ms(count: int, pause: float) -> tuple[float, list[float]]:
    """Exchanges per second, and the delay of each line."""
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
    """Packets that are sent in rounds, each from other client ports."""

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
    """The result of a run."""

    rate: float  # packets a second
    dropped: int
    reported: float  # fraction of the exchanges
    behind_s: float  # from the last packet to the last output


def dropped(text: str) -> int:
    return sum(int(count.replace(",", "")) for match in DROPPED.findall(text) for count in match if count)


def measure(
    commands: tuple[tuple[str, ...], ...], traffic: Traffic, where: str, rate: int, seconds: float
) -> Measured:
    to = where if where == "lo" else PAIR[1]
    with tempfile.TemporaryDirectory() as directory:
        log, shown = Path(directory) / "said", Path(directory) / "shown"
        processes: list[subprocess.Popen[bytes]] = []
        with log.open("wb") as error_file, shown.open("wb") as out:
            for place, command in enumerate(commands):
                is_last = place == len(commands) - 1
                filled = [word.replace("{where}", where) for word in command]
                before = processes[-1].stdout if processes else None
                target = out if is_last else subprocess.PIPE
                processes.append(subprocess.Popen(filled, stdin=before, stdout=target, stderr=error_file))
            until = time.monotonic() + MOST_S
            while not LISTENS.search(log.read_text(errors="replace")) and time.monotonic() < until:
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
        text = log.read_text(errors="replace")
        if match := EXCHANGES.search(text):
            exchanges_seen = float(match[1].replace(",", ""))
        else:
            exchanges_seen = shown.read_bytes().count(b"\n") / 2
        return Measured(reached, dropped(text), exchanges_seen / traffic.exchanges(sent), grown - ended)


def rates(seconds: float) -> None:
    with pair(), tempfile.TemporaryDirectory() as directory:
        for work, where, about, rates_per_second in SCENES:
            path = Path(directory) / f"{work}.pcap"
            make(work, path, TRAFFIC_BYTES, connections=CONNECTIONS)
            traffic = Traffic(path)
            print(f"\n{about}: {traffic.mean:,.0f} bytes/packet; dropped, exchanges reported, seconds behind")
            print(
                f"{'':26}",
                *(f"{'fastest' if rate == FASTEST else f'{rate:,}/s':>26}" for rate in rates_per_second),
            )
            for name, commands in PROGRAMS.items():
                if any(shutil.which(command[0]) is None for command in commands):
                    continue
                cells = []
                for rate in rates_per_second:
                    measured = measure(commands, traffic, where if where == "lo" else PAIR[0], rate, seconds)
                    entry = f"{measured.dropped:,}  {measured.reported:.0%}  {measured.behind_s:.1f} s"
                    cells.append(f"{measured.rate:,.0f}: {entry}" if measured.rate < 0.95 * rate else entry)
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
