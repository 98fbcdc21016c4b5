"""How long does a packet take, from captured bytes to bytes of a stream?

    python benchmarks/net.py

Prints microseconds per packet, the best of five runs, for the usual case and for cases off the fast path.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent))

from kdissect.model import Packet  # noqa: TC001  (its neighbours are needed at run time)
from kdissect.net.connection import Connections
from kdissect.net.tcp import Segments
from tests.segments import COOKED, Talk, ipv4, link

EXCHANGES = 10_000

# UDP ports, length and checksum, and a network's number; an ethertype; a label and the bottom of the stack.
VXLAN = bytes.fromhex("c93b12b5 00000000 08000000 00000700")
GRE = bytes.fromhex("00000800")
MPLS = bytes.fromhex("00010140")


def chatty(**options: object) -> list[Packet]:
    talk = Talk(mss=1448, **options).handshake()  # type: ignore[arg-type]
    for _ in range(EXCHANGES):
        talk.client_sends(b"q" * 120).broker_sends(b"a" * 300).client_acks()
    return talk.finish().packets


def bulk() -> list[Packet]:
    talk = Talk(mss=1448).handshake()
    for _ in range(EXCHANGES // 10):
        talk.client_sends(b"q" * 28_000).broker_acks()
    return talk.finish().packets


def short_connections() -> list[Packet]:
    packets: list[Packet] = []
    for port in range(EXCHANGES // 10):
        talk = Talk(("10.0.0.1", 10_000 + port), start_ns=port * 1_000_000_000)
        packets += talk.handshake().client_sends(b"q" * 120).broker_sends(b"a" * 300).finish().packets
    return packets


def reordered(packets: list[Packet]) -> list[Packet]:
    random = Random(1)
    order = sorted(range(len(packets)), key=lambda place: place + random.randrange(8))
    return [packets[place] for place in order]


def tunnelled(packets: list[Packet], protocol: int, header: bytes, *, ethernet: bool) -> list[Packet]:
    """The packets, encapsulated in a tunnel."""
    result = []
    for packet in packets:
        inside = header + (packet.data if ethernet else packet.data[14:])
        data = link(ipv4("192.0.2.1", "192.0.2.2", inside, protocol=protocol))
        result.append(packet._replace(data=data, length=len(data)))
    return result


def measure(packets: list[Packet]) -> tuple[float, float]:
    """Seconds to extract the segments, and to put their bytes in order."""
    extracting = ordering = float("inf")
    for _ in range(5):
        segments, connections = Segments(), Connections()
        begin = time.perf_counter()
        matched_segments = [segment for packet in packets if (segment := segments.feed(packet))]
        middle = time.perf_counter()
        for segment in matched_segments:
            connections.feed(segment)
        connections.close()
        end = time.perf_counter()
        extracting, ordering = min(extracting, middle - begin), min(ordering, end - middle)
    return extracting, ordering


def main() -> None:
    usual = chatty()
    cases = {
        "chatty: requests, responses, acknowledgments": usual,
        "bulk: 1448 bytes a packet": bulk(),
        "connections of nine packets": short_connections(),
        "chatty, IPv6": chatty(client=("fe80::1", 40000), broker=("fe80::2", 9092)),
        "chatty, cooked": chatty(link_type=COOKED),
        "chatty, snaplen 96": chatty(snaplen=96),
        "chatty, reordered": reordered(usual),
        "chatty, 1 % lost": [packet for packet in usual if packet.number % 100],
        "chatty, in VXLAN": tunnelled(usual, 17, VXLAN, ethernet=True),
        "chatty, in GRE": tunnelled(usual, 47, GRE, ethernet=False),
        "chatty, in MPLS, which scapy reads": tunnelled(usual[:3000], 137, MPLS, ethernet=False),
        "chatty, one direction": [
            packet for packet in usual if packet.data[36:38] == (9092).to_bytes(2, "big")
        ],
    }
    print(f"{'':46}{'packets':>8}{'segment':>9}{'in order':>9}   us a packet")
    for name, packets in cases.items():
        finding, ordering = measure(packets)
        count = len(packets)
        print(f"{name:46}{count:8}{finding / count * 1e6:9.2f}{ordering / count * 1e6:9.2f}")


if __name__ == "__main__":
    main()
