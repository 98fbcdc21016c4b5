"""Captures of the same time or of times after each other -> one sequence of packets in order of time.

Holds one packet of each capture that has begun and not ended: one that begins later has not been started, so
a ring buffer of a thousand files has one file open at a time.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kdissect.model import Packet


class Part(NamedTuple):
    """One capture to be merged: the time of its first packet, and all its packets, not yet asked for."""

    first_ns: int
    packets: Iterator[Packet]


def merged(parts: Iterable[Part]) -> Iterator[Packet]:
    """Packets of all parts by time.

    Those of one part stay in its order, also where its time goes backwards. Of packets with the same time,
    those of the part that began earlier come first; of parts that began together, those of the first given.
    """
    waiting = deque(sorted(parts, key=lambda part: part.first_ns))
    begun: list[tuple[int, int, Packet, Iterator[Packet]]] = []
    rank = 0
    while waiting or begun:
        while waiting and (not begun or waiting[0].first_ns <= begun[0][0]):
            packets = waiting.popleft().packets
            rank += 1
            for packet in packets:
                heappush(begun, (packet.time_ns, rank, packet, packets))
                break
        if not begun:
            return
        if len(begun) > 1:
            _, ranked, packet, packets = begun[0]
            yield packet
            following = next(packets, None)
            if following is None:
                heappop(begun)
            else:
                heapreplace(begun, (following.time_ns, ranked, following, packets))
            continue
        # Alone until the next part begins: the usual case, without a heap.
        _, ranked, packet, packets = begun.pop()
        yield packet
        if not waiting:
            yield from packets
            return
        until_ns = waiting[0].first_ns
        for packet in packets:
            if packet.time_ns >= until_ns:
                begun.append((packet.time_ns, ranked, packet, packets))
                break
            yield packet
