"""What does live cost per packet, up to which rate is nothing dropped, and how late are lines?

python benchmarks/live.py [--seconds 10] [--only TEXT]      as root, on Linux

All of it runs in a network namespace of its own, so other traffic does not matter.

Delay: a client and a broker on loopback, a line of JSON per exchange; from the time at which the client has
the response to the time at which the line is read.

Rate: generated traffic (traffic.py), sent at a given rate or as fast as possible into one end of a veth pair
whose other end is captured, or into the loopback interface. One program after the other gets the same
packets, a kernel buffer of 16 MiB and the filter ``tcp``; its output goes to a file. Each round of packets
uses other client ports. Prints for each program:

    dropped     packets, according to the program that counts them
    reported    fraction of the exchanges (for tshark: half of the messages; for tcpdump -w: packets)
    CPU         user and system time of all its processes per packet sent, from the first packet on
    behind      time from the last packet to the last output: a program that is too slow for a rate first
                falls behind, then drops
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import resource
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
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.traffic import make
from kdissect.capture.reader import open_capture
from kdissect.pipeline import dissect
from tests.loopback import Client, broker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LIVE = [sys.executable, "-m", "kdissect", "live", "-f", "tcp"]
PAIR = ("kdbench0", "kdbench1")
LAGS = ((2000, 0.0), (500, 0.01), (50, 0.1))  # exchanges, pause after each in seconds
FASTEST = 1 << 40
PIECE = 64  # packets sent with one system call
# Kind of traffic, interface, title, packets per second.
SCENES = (
    ("chatty", "veth", "small exchanges, veth", (20_000, 100_000, FASTEST)),
    ("bulk", "veth", "packets of 1,500 bytes, veth", (20_000, 80_000, FASTEST)),
    ("loopback", "lo", "packets of 65,535 bytes, loopback", (500, 2_000, FASTEST)),
)
TRAFFIC_BYTES = 20_000_000
CONNECTIONS = 20
BROKER_PORT = (9092).to_bytes(2, "big")
EXCHANGES = re.compile(r"by kdissect; ([\d,]+) exchange")
CAPTURED = re.compile(r"(\d+) packets captured")
CAPTURE = ("tcpdump", "-n", "-i", "{where}", "-U", "-B", "16384", "-w", "-", "tcp")
AS_KAFKA = ("-n", "-d", "tcp.port==9092,kafka", "-Y", "kafka")
KDISSECT = (sys.executable, "-m", "kdissect", "live")
PROGRAMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "kdissect live -i": ((*KDISSECT, "-i", "{where}"),),
    "kdissect live -i --json": ((*KDISSECT, "-i", "{where}", "--json"),),
    "kdissect live -i --error '*'": ((*KDISSECT, "-i", "{where}", "--error", "*"),),
    "kdissect live -i --error '*' -j 2": ((*KDISSECT, "-i", "{where}", "--error", "*", "-j", "2"),),
    "tcpdump | kdissect live -": (CAPTURE, (*KDISSECT, "-")),
    "tcpdump -w": (tuple(word for word in CAPTURE if word != "-U"),),
    "tshark -i": (("tshark", "-i", "{where}", "-f", "tcp", "-B", "16", *AS_KAFKA),),
}
DROPPED = re.compile(
    r"([\d,]+) dropped by the kernel, ([\d,]+) by kdissect|(\d+) packets? dropped (?:by kernel|from)"
)
LISTENS = re.compile(r"listening on|Capturing on", re.IGNORECASE)
SETTLE_S = 3  # tshark starts later than it announces; a program that reads a pipe announces nothing
QUIET_S = 1.5  # without further output the program is done
MAX_S = 60
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
NEW_NETWORK = 0x40000000  # CLONE_NEWNET, of linux/sched.h


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


def enter_namespace() -> None:
    """Move this process into a network namespace of its own, with a loopback interface."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "cannot create a network namespace; needs root")
    ip = shutil.which("ip") or sys.exit("needs iproute2")
    subprocess.run([ip, "link", "set", "lo", "up"], check=True)


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


class _Vector(ctypes.Structure):
    """``iovec``."""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Message(ctypes.Structure):
    """``mmsghdr``."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_size", ctypes.c_uint),
        ("vectors", ctypes.POINTER(_Vector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_size", ctypes.c_size_t),
        ("flags", ctypes.c_size_t),  # an int, and padding
        ("sent", ctypes.c_uint),
    )


class Traffic:
    """Packets that are sent in rounds, each from other client ports, ``PIECE`` with one system call."""

    def __init__(self, path: Path) -> None:
        with open_capture(path) as capture:
            frames = [packet.data for packet in capture]
        with open_capture(path) as capture:
            self._complete = sorted(exchange.order[1] for exchange in dissect(capture))
        ends = list(accumulate(map(len, frames), initial=0))
        self._bytes = bytearray().join(frames)
        self._ports = [
            self._client_port(frame, begin) for frame, begin in zip(frames, ends[:-1], strict=True)
        ]
        self.count, self.mean = len(frames), ends[-1] / len(frames)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._bytes))
        sizes = map(len, frames)
        self._vectors = [_Vector(base + begin, size) for begin, size in zip(ends[:-1], sizes, strict=True)]
        self._messages = (_Message * self.count)()
        for message, vector in zip(self._messages, self._vectors, strict=True):
            message.vectors, message.vector_count = ctypes.pointer(vector), 1

    @staticmethod
    def _client_port(frame: bytes, begin: int) -> tuple[int, int]:
        at = 36 if frame[34:36] == BROKER_PORT else 34
        return begin + at, int.from_bytes(frame[at : at + 2], "big")

    def exchanges(self, sent: int) -> int:
        """How many are complete after so many packets."""
        rounds, rest = divmod(sent, self.count)
        return rounds * len(self._complete) + bisect_right(self._complete, rest)

    def send(self, to: str, rate: int, seconds: float) -> tuple[int, float]:
        """Send: how many packets that were, and how many a second."""
        content, ports, count = self._bytes, self._ports, self.count
        send = ctypes.CDLL(None, use_errno=True).sendmmsg
        message_bytes = ctypes.sizeof(_Message)
        first = ctypes.addressof(self._messages)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind((to, 0))
            began, sent = time.monotonic(), 0
            most = max(1, min(PIECE, rate // 200))
            while (passed := time.monotonic() - began) < seconds:
                if sent > rate * passed:
                    time.sleep(0.0005)
                    continue
                rounds, place = divmod(sent, count)
                piece = min(most, count - place)
                for at, port in ports[place : place + piece]:
                    content[at : at + 2] = (port + CONNECTIONS * rounds & 0xFFFF).to_bytes(2, "big")
                done = send(sender.fileno(), ctypes.c_void_p(first + message_bytes * place), piece, 0)
                if done < 0:
                    raise OSError(ctypes.get_errno(), "sendmmsg")
                sent += done
        return sent, sent / passed


class Measured(NamedTuple):
    """The result of a run."""

    sent: int
    rate: float  # packets a second
    dropped: int
    reported: float  # fraction of the exchanges
    cpu_us: float  # per packet
    behind_s: float  # from the last packet to the last output


def dropped(text: str) -> int:
    return sum(int(count.replace(",", "")) for match in DROPPED.findall(text) for count in match if count)


def cpu_s(pids: Iterable[int]) -> float:
    """CPU time so far of processes and their descendants."""
    parents: dict[int, int] = {}
    times: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(path.parent.name)
        parents[pid], times[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    roots = set(pids)

    def is_ours(pid: int) -> bool:
        return pid in roots or (pid in parents and is_ours(parents[pid]))

    return sum(time for pid, time in times.items() if is_ours(pid)) / TICKS_PER_S


def ended_cpu_s() -> float:
    """CPU time of all processes that have ended, and that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(
    commands: tuple[tuple[str, ...], ...], traffic: Traffic, where: str, rate: int, seconds: float
) -> Measured:
    to = where if where == "lo" else PAIR[1]
    ended_before_s = ended_cpu_s()
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
            until = time.monotonic() + MAX_S
            while not LISTENS.search(log.read_text(errors="replace")) and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(SETTLE_S * len(commands))
            startup_s = cpu_s(process.pid for process in processes)
            sent, reached = traffic.send(to, rate, seconds)
            ended = time.monotonic()
            grown, size = ended, -1
            if (
                commands[0][0] != sys.executable
            ):  # these lose what they have not taken yet when they are ended
                while time.monotonic() - grown < QUIET_S and time.monotonic() - ended < MAX_S:
                    time.sleep(0.05)
                    if shown.stat().st_size != size:
                        size, grown = shown.stat().st_size, time.monotonic()
            processes[0].send_signal(signal.SIGINT)
            for process in processes:
                process.wait()
            if commands[0][0] == sys.executable:
                grown = time.monotonic()
        text = log.read_text(errors="replace")
        exchanges = traffic.exchanges(sent)
        if match := EXCHANGES.search(text):
            reported = float(match[1].replace(",", "")) / exchanges
        elif len(commands) == 1 and commands[0][0] == CAPTURE[0] and (match := CAPTURED.search(text)):
            reported = int(match[1]) / sent
        else:
            reported = shown.read_bytes().count(b"\n") / 2 / exchanges
        cpu_us = 1e6 * (ended_cpu_s() - ended_before_s - startup_s) / sent
        return Measured(sent, reached, dropped(text), reported, cpu_us, grown - ended)


def rates(seconds: float, only: str) -> None:
    with pair(), tempfile.TemporaryDirectory() as directory:
        for work, where, about, rates_per_second in SCENES:
            path = Path(directory) / f"{work}.pcap"
            make(work, path, TRAFFIC_BYTES, connections=CONNECTIONS)
            traffic = Traffic(path)
            print(f"\n{about}: {traffic.mean:,.0f} bytes/packet, {seconds:g} s")
            print(f"{'':30}{'sent':>11} {'a second':>9} {'dropped':>9} reported {'CPU':>8}  behind   load")
            for rate in rates_per_second:
                for name, commands in PROGRAMS.items():
                    if only not in name or any(shutil.which(command[0]) is None for command in commands):
                        continue
                    each = measure(commands, traffic, where if where == "lo" else PAIR[0], rate, seconds)
                    numbers = f"{each.sent:>11,} {each.rate:>9,.0f} {each.dropped:>9,} {each.reported:>8.1%}"
                    costs = f"{each.cpu_us:>5.1f} us {each.behind_s:>5.1f} s  {os.getloadavg()[0]:>5.1f}"
                    print(f"{name:30}{numbers} {costs}", flush=True)


def delays() -> None:
    print("delay from response to output line, ms            median      p99      max")
    for count, pause in LAGS:
        rate, lags = lags_ms(count, pause)
        shown = (statistics.median(lags), lags[int(len(lags) * 0.99)], lags[-1])
        print(f"{count:>6} exchanges, {rate:>6,.0f}/s", " " * 20, *(f"{lag:>8.1f}" for lag in shown))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only", default="", help="only programs whose name contains this text; no delays")
    options = parser.parse_args()
    enter_namespace()
    if not options.only:
        delays()
    rates(options.seconds, options.only)


if __name__ == "__main__":
    main()
