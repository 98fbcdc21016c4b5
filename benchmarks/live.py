"""How long does it take from a packet to its line, and up to which rate is nothing dropped?

python benchmarks/live.py        as root: makes a pair of virtual interfaces, and removes it again

Lag: a client and a broker on loopback, a line of JSON for each exchange; from when the client has its answer
to when the line was read. Rate: conversations of heartbeats, sent packet by packet through a veth pair as
fast as is asked for; beside what kdissect says, what ``tshark -i`` found of the same in the same minute.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.frames import heartbeat_answers, heartbeats
from tests.loopback import Client, broker
from tests.segments import Talk

if TYPE_CHECKING:
    from collections.abc import Iterator

LIVE = [sys.executable, "-m", "kdissect", "live", "-f", "tcp"]
PAIR = ("kdissect0", "kdissect1")
LAGS = ((2000, 0.0), (500, 0.01), (50, 0.1))  # exchanges, pause after each in seconds
RATES = (10_000, 20_000, 40_000, 80_000)  # packets a second
CONNECTIONS, BEATS = 40, 500


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
def pair() -> Iterator[socket.socket]:
    """A socket that sends into one end of a pair of interfaces."""
    ip = shutil.which("ip") or sys.exit("needs iproute2")
    subprocess.run([ip, "link", "add", PAIR[0], "type", "veth", "peer", "name", PAIR[1]], check=True)
    try:
        for name in PAIR:
            subprocess.run([ip, "link", "set", name, "up"], check=True)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind((PAIR[1], 0))
            yield sender
    finally:
        subprocess.run([ip, "link", "del", PAIR[0]], check=True)


def traffic() -> list[bytes]:
    packets = []
    for port in range(40_000, 40_000 + CONNECTIONS):
        talk = Talk(client=("10.0.0.1", port)).handshake()
        for number in range(1, BEATS + 1):
            talk.client_sends(b"".join(heartbeats(1, first=number)))
            talk.broker_sends(b"".join(heartbeat_answers(1, first=number)))
        packets += [packet.data for packet in talk.packets]
    return packets


def send(sender: socket.socket, packets: list[bytes], rate: int) -> float:
    """Send them; how many a second that were."""
    began = time.monotonic()
    for first in range(0, len(packets), 100):
        for packet in packets[first : first + 100]:
            sender.send(packet)
        time.sleep(max(0.0, first / rate - (time.monotonic() - began)))
    return len(packets) / (time.monotonic() - began)


def by_kdissect(sender: socket.socket, packets: list[bytes], rate: int) -> str:
    with started(*LIVE, "-i", PAIR[0], "-q") as live:
        reached = send(sender, packets, rate)
        live.send_signal(signal.SIGINT)
        _, said = live.communicate()
    found = re.search(
        r"([\d,]+) packets, ([\d,]+) dropped by the kernel, ([\d,]+) by kdissect", said.decode()
    )
    assert found, said
    return f"{reached:>10,.0f}/s {found[1]:>9} captured {found[2]:>9} {found[3]:>9}"


def by_tshark(sender: socket.socket, packets: list[bytes], rate: int) -> str:
    if shutil.which("tshark") is None:
        return "no tshark here"
    with started("tshark", "-i", PAIR[0], "-f", "tcp", "-Y", "kafka", "-d", "tcp.port==9092,kafka") as tshark:
        time.sleep(2)  # it says that it listens before it does
        lines: list[int] = []
        assert tshark.stdout is not None
        stream = tshark.stdout
        reader = threading.Thread(target=lambda: lines.append(sum(1 for _ in stream)))
        reader.start()
        send(sender, packets, rate)
        time.sleep(3)
        tshark.send_signal(signal.SIGINT)
        reader.join()
    return f"{lines[0]:,} of {2 * CONNECTIONS * BEATS:,} messages"


def main() -> None:
    print("lag from the client's answer to the line, ms      median      p99      max")
    for count, pause in LAGS:
        rate, lags = lags_ms(count, pause)
        shown = (statistics.median(lags), lags[int(len(lags) * 0.99)], lags[-1])
        print(f"{count:>6} exchanges, {rate:>6,.0f}/s", " " * 20, *(f"{lag:>8.1f}" for lag in shown))
    packets = traffic()
    print(f"\nrate, {len(packets):,} packets        dropped by: the kernel  kdissect     tshark -i")
    with pair() as sender:
        for rate in RATES:
            print(by_kdissect(sender, packets, rate), "  ", by_tshark(sender, packets, rate))


if __name__ == "__main__":
    main()
