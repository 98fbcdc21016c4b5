"""What workers and their parent say to one another. Holds nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from array import array
    from collections import Counter
    from collections.abc import Sequence

    from kdissect.analysis.naming import Mentions
    from kdissect.capture.source import Source
    from kdissect.errors import KdissectError
    from kdissect.model import Anomaly

AHEAD = 24
"""Batches that a worker may be ahead of what was put together: of 100 KB as a rule, half a megabyte of frames
at most, while the slowest catches up."""


@dataclass(slots=True)
class Columns:
    """Rows in the order in which a worker completed them.

    Attributes:
        places: ``Dissection.place`` at which each row was complete; never falls.
        completed_ns, packets: their ``Exchange.order``.
        held: bytes of their frames.
        decoded: what these decode to, see ``Exchange``.
        connections: ids of their connections.
        made: what the sink made of each; None: nothing.
        open: number and mentions of rows that are not made yet, by their index.
        waits: since when a connection waits, None: none does; and from which place on.
    """

    places: array[int]
    completed_ns: array[int]
    packets: array[int]
    held: array[int]
    decoded: array[int]
    connections: list[str] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)
    open: dict[int, tuple[int, Mentions]] = field(default_factory=dict)
    waits: list[tuple[int, int | None]] = field(default_factory=list)


class Batch(NamedTuple):
    """Rows up to and at a place, all of them.

    Attributes:
        form: what the sink held for agreed when it made them (aligning.py); None for most sinks.
        packets, bytes_read: of the files.
        is_last: whether none follows.
    """

    until: int
    rows: Columns
    form: Any
    packets: int
    bytes_read: int
    is_last: bool = False


class Verdict(NamedTuple):
    """What an open row waited for: its number, names of its ids, and what Naming said of its waiting."""

    number: int
    names: dict[str, str]
    anomalies: list[Anomaly]


class Told(NamedTuple):
    """The parent's word: ``until`` this place rows of all workers are together; ids with their names."""

    until: int
    names: dict[str, str]
    verdicts: list[Verdict]
    form: Any


class Late(NamedTuple):
    """What the sink made of open rows, by their number."""

    made: list[tuple[int, Any]]
    form: Any


class Stop(NamedTuple):
    """Read no further, and end."""


class End(NamedTuple):
    """A worker has come to the end of the capture, or was stopped.

    Attributes:
        counts, skipped, noticed: of its ``Dissection``.
        warnings, sources: of its capture.
        fault: what was wrong where it could not be read beyond.
        passed_over: names in exchanges that were not asked for (``Filter.passed_over``).
        made: what the sink knows.
    """

    counts: Counter[str]
    skipped: Counter[str]
    noticed: list[tuple[int, str]]
    warnings: list[str]
    sources: tuple[Source, ...]
    fault: str | None
    passed_over: Sequence[set[str]]
    made: Any


class Failed(NamedTuple):
    """A worker could not go on."""

    error: KdissectError
