"""Packets that go on with one another and differ in nothing else -> their payloads. Holds nothing.

A large message fills packet after packet: of one connection, of one size, with one acknowledgment. Once the
first has been looked at, a single comparison tells of each of the others whether it is as good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.net.stream import SEQUENCE_MASK
from kdissect.net.tcp import USUAL

if TYPE_CHECKING:
    from collections.abc import Iterable

_unpack = USUAL.unpack_from


def payloads(
    data: bytes,
    places: Iterable[tuple[int, int, int, int]],
    spot: tuple[int, int, int],
    like: tuple[int, int, int, bytes, int, int, int],
    now_ns: int,
    until_ns: int,
) -> list[bytes]:
    """Of the packets behind the first of a run, the payloads of those that belong to it.

    Args:
        data: what the packets stand in.
        places: theirs, as in ``Stretch``; the first that is not of the run ends it.
        spot: where in each packet the fields of ``USUAL`` begin, and where its payload begins and ends.
        like: these fields, as the next packet of the run must have them.
        now_ns: time of the packet before; it must not go back.
        until_ns: time that none may reach.
    """
    at, start, end = spot
    kind, total, carries, ends, sequence, acknowledgment, control = like
    found: list[bytes] = []
    for time_ns, begin, stop, _ in places:
        expected = kind, total, carries, ends, sequence, acknowledgment, control
        if begin + end > stop or not now_ns <= time_ns < until_ns or _unpack(data, begin + at) != expected:
            break
        found.append(data[begin + start : begin + end])
        sequence = (sequence + end - start) & SEQUENCE_MASK
        now_ns = time_ns
    return found
