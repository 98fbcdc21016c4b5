"""Connections -> which of several processes that read the same packets takes them. Holds what the last
``_REMEMBERED`` answers were.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

from kdissect.net.tcp import reversed_ends

_REMEMBERED = 65_536


@dataclass(frozen=True, slots=True)
class Share:
    """One of ``of`` shares of the connections, by its number from 0."""

    number: int
    of: int

    def owns(self, ends: bytes) -> bool:
        """Whether a connection is in it, by ``Segment.ends`` of either direction."""
        return share_of(ends, self.of) == self.number


def cores() -> int:
    """How many shares can be worked on at once: the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(_REMEMBERED)
def share_of(ends: bytes, shares: int) -> int:
    """The number of the share that a connection is in."""
    return crc32(min(ends, reversed_ends(ends))) % shares
