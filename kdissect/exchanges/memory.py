"""What a connection remembers of its exchanges -> the native core, and back.

It is as of the latest exchange that is through, not as of the latest packet: exchanges can wait for others
between the two. So it goes to the core when that finishes an exchange, after all earlier ones of the
connection, and comes back before Python takes the next one. Holds nothing: see latency.py and
fetch_sessions.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kdissect.exchanges.fetch_sessions import FetchSessions, Position
    from kdissect.exchanges.latency import PaceState, Splitters, Watermark
    from kdissect.model import ConnectionInfo


class MemoryState(NamedTuple):
    """The memory of a connection.

    Attributes:
        pace: what the parts of the next latency depend on. On the way back: None if no latency was split.
        watermarks: those that it has seen, the least recently reported first. None: they are left to Python;
            on the way back: they are as before.
        sessions: positions in its fetch sessions, by ID. On the way back: those that the core has continued;
            without positions, it is over.
    """

    pace: PaceState | None
    watermarks: Sequence[Watermark] | None
    sessions: Mapping[int, Sequence[Position]]


class MemoryPlan(NamedTuple):
    """How the core gets the memory of connections, to split latencies and continue fetch sessions itself.

    Usual exchanges have no anomaly, and nothing retransmitted.

    Attributes:
        lend: returns the memory of a connection before its next exchange.
        restore: continues with the memory after the last exchange that the core has finished.
        max_watermarks, max_total_watermarks: of a connection, and of all.
    """

    lend: Callable[[ConnectionInfo], MemoryState]
    restore: Callable[[ConnectionInfo, MemoryState], None]
    max_watermarks: int
    max_total_watermarks: int


def memory_plan(splitters: Splitters, sessions: FetchSessions | None = None) -> MemoryPlan:
    """A form for what these keep; without ``sessions``, there are none."""

    def lend(info: ConnectionInfo) -> MemoryState:
        open_sessions = {} if sessions is None else sessions.lend(info.key)
        return MemoryState(*splitters.lend(info), open_sessions)

    def restore(info: ConnectionInfo, state: MemoryState) -> None:
        if state.pace is not None:
            splitters.restore(info, state.pace, state.watermarks)
        if sessions is not None:
            for session_id, positions in state.sessions.items():
                sessions.restore(info.key, session_id, positions)

    limits = splitters.limits
    return MemoryPlan(lend, restore, limits.watermarks, limits.total_watermarks)
