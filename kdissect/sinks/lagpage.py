"""``LagRow`` -> the part of a summary's page that tells who is behind. Holds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.sinks.page import Heading, Section, narrowed
from kdissect.sinks.phrases import ABSENT, absent, duration, many

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.analysis.summary.lagdocument import LagRow

_HEADINGS = (
    Heading("READER", gives=True),
    Heading("PARTITION", gives=True),
    Heading("LAG", right=True),
    Heading("FIRST", right=True),
    Heading("WORST", right=True),
    Heading("AT"),
    Heading("BEHIND", right=True),
    Heading("AT WORST", right=True),
    Heading("POSITION", right=True),
    Heading("COMMITTED", right=True),
    Heading("HIGH WATERMARK", right=True),
    Heading("STABLE", right=True),
    Heading("LOG START", right=True),
)
_KEPT = {"READER", "PARTITION", "LAG", "FIRST", "WORST", "BEHIND"}


def sections(rows: Sequence[LagRow], *, limit: int | None, narrow: bool = False) -> Iterator[Section]:
    """Yield one table, those that are furthest behind first."""
    shown = rows[:limit]
    behind = sum(1 for row in rows if row.lag)
    notes = (f"{many(len(rows), 'reader')} of partitions, {behind:,} behind at the end",)
    cells = [
        [
            f"{row.kind} {row.name}",
            f"{row.topic}:{row.partition}",
            _count(row.lag),
            _count(row.lag_first),
            _count(row.lag_worst),
            ABSENT if row.worst is None else f"{row.worst:%H:%M:%S}",
            _seconds(row.seconds),
            _seconds(row.seconds_worst),
            absent(row.position),
            absent(row.committed_offset),
            absent(row.high_watermark),
            absent(row.last_stable_offset),
            absent(row.log_start_offset),
        ]
        for row in shown
    ]
    yield narrowed(Section("Lag", _HEADINGS, cells, notes, len(rows) - len(shown)), narrow, _KEPT)


def _count(records: int | None) -> str:
    return ABSENT if records is None else f"{records:,}"


def _seconds(seconds: float | None) -> str:
    return ABSENT if seconds is None else duration(round(seconds * 1e9))
