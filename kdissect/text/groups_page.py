"""``GroupStory`` rows -> the page of ``summary --groups``: groups, their members, rebalances and commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.phrases import ABSENT, duration, listed, many, some
from kdissect.text.page import Heading, Section, narrowed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from kdissect.stats.document import (
        CauseRow,
        CommittedRow,
        GroupStory,
        MemberRow,
        RebalanceRow,
        StormRow,
    )

_OFFSETS = 4  # partition numbers of a topic that are listed one by one
_SAID = {
    "first": "first member",
    "join": "joined",
    "return": "rejoined",
    "leave": "left",
    "timeout": "timed out",
    "subscription": "subscription changed",
    "revocation": "partitions revoked",
    "protocol": "assignor changed",
    "metadata": "leader rejoined: topics changed",
    "rejoin": "rejoined",
    "unknown": "not captured",
}


def sections(rows: Sequence[GroupStory], *, limit: int | None, narrow: bool = False) -> Iterator[Section]:
    """Yield the page.

    Args:
        rows: the groups.
        limit: groups, and rows of each of their tables; None: all.
        narrow: leave out columns that a terminal of 80 has no room for.
    """
    if not rows:
        yield Section("Groups", notes=("no joins, leaves or commits of a group",))
        return
    shown = rows[:limit]
    yield _overview(shown, narrow)._replace(left_out=len(rows) - len(shown))
    for row in shown:
        if row.members:
            members = row.members[:limit]
            yield _members(row, members, narrow)._replace(left_out=len(row.members) - len(members))
        if row.rebalances:
            rebalances = row.rebalances[:limit]
            left_out = len(row.rebalances) - len(rebalances)
            yield _rebalances(row, rebalances, narrow)._replace(left_out=left_out)
        if row.committed:
            committed = row.committed[:limit]
            yield _committed(row, committed, narrow)._replace(left_out=len(row.committed) - len(committed))


def _overview(rows: Sequence[GroupStory], narrow: bool) -> Section:
    headings = [
        Heading("GROUP", gives=True),
        Heading("KIND"),
        Heading("PROTOCOL", gives=True),
        Heading("MEMBERS", right=True),
        Heading("REBALANCES", right=True),
        Heading("LONGEST", right=True),
        Heading("STORMS", right=True),
        Heading("PARTITIONS", right=True),
        Heading("COMMITS", right=True),
        Heading("ERRORS", gives=True),
    ]
    cells = [
        [
            row.group,
            row.kind or ABSENT,
            listed([*([row.protocol_type] if row.protocol_type else []), *row.protocols]) or ABSENT,
            some(len(row.members)),
            some(len(row.rebalances)),
            _seconds(
                max((each.seconds for each in row.rebalances if each.seconds is not None), default=None)
            ),
            some(len(row.storms)),
            some(len(row.committed)),
            some(sum(each.commits for each in row.committed)),
            listed([f"{count:,} {error}" for error, count in row.errors.items()]) or ABSENT,
        ]
        for row in rows
    ]
    kept = {"GROUP", "KIND", "MEMBERS", "REBALANCES", "LONGEST", "STORMS", "COMMITS"}
    return narrowed(Section("Groups", headings, cells), narrow, kept)


def _members(story: GroupStory, rows: Sequence[MemberRow], narrow: bool) -> Section:
    headings = [
        Heading("CLIENT", gives=True),
        Heading("INSTANCE", gives=True),
        Heading("MEMBER", gives=True),
        Heading("FROM", gives=True),
        Heading("JOINED"),
        Heading("LAST"),
        Heading("LEFT"),
        Heading("GENERATION", right=True),
        Heading("ASSIGNED", gives=True, least=12),
    ]
    cells = [
        [
            row.client,
            row.group_instance_id or ABSENT,
            row.member_id,
            row.address,
            _clock(row.joined),
            _clock(row.last),
            _clock(row.left),
            ABSENT if row.generation is None else f"{row.generation:,}",
            _assigned(row.assignment),
        ]
        for row in rows
    ]
    section = Section(f"{story.group}: {many(len(story.members), 'member')}", headings, cells)
    return narrowed(section, narrow, {"CLIENT", "JOINED", "LEFT", "ASSIGNED"})


def _rebalances(story: GroupStory, rows: Sequence[RebalanceRow], narrow: bool) -> Section:
    headings = [
        Heading("START"),
        Heading("TOOK", right=True),
        Heading("GENERATION", right=True),
        Heading("MEMBERS", right=True),
        Heading("JOINS", right=True),
        Heading("PROTOCOL", gives=True),
        Heading("EXCHANGE"),
        Heading("STARTED BY", gives=True, least=20),
    ]
    cells = [
        [
            _clock(row.start),
            _seconds(row.seconds),
            _change(row.generation_before, row.generation_after),
            _change(row.members_before, row.members_after),
            some(row.joins),
            row.protocol or ABSENT,
            row.exchange,
            "; ".join(cause(each) for each in row.causes),
        ]
        for row in rows
    ]
    lines = [_storm(storm) for storm in story.storms]
    if story.events_left_out:
        lines.append(f"{many(story.events_left_out, 'event')} dropped because of a limit (--limits)")
    title = f"{story.group}: {many(len(story.rebalances), 'rebalance')}"
    section = Section(title, headings, cells, tuple(lines))
    return narrowed(section, narrow, {"START", "TOOK", "GENERATION", "MEMBERS", "STARTED BY"})


def _committed(story: GroupStory, rows: Sequence[CommittedRow], narrow: bool) -> Section:
    headings = [
        Heading("PARTITION", gives=True),
        Heading("COMMITS", right=True),
        Heading("FAILED", right=True),
        Heading("FIRST", right=True),
        Heading("AT"),
        Heading("LAST", right=True),
        Heading("AT"),
        Heading("PER SECOND", right=True),
    ]
    cells = [
        [
            f"{row.topic}:{row.partition}",
            f"{row.commits:,}",
            some(row.failed),
            ABSENT if row.first_offset is None else f"{row.first_offset:,}",
            _clock(row.first),
            ABSENT if row.last_offset is None else f"{row.last_offset:,}",
            _clock(row.last),
            ABSENT if row.per_second is None else f"{row.per_second:,.1f}",
        ]
        for row in rows
    ]
    section = Section(f"{story.group}: committed offsets", headings, cells)
    return narrowed(section, narrow, {"PARTITION", "COMMITS", "FAILED", "FIRST", "LAST"})


def cause(row: CauseRow) -> str:
    """What started a rebalance, in some words: ``reader-2 left (the consumer is being closed)``."""
    who = row.client or row.member_id
    said = _SAID.get(row.cause, row.cause)
    if who and row.cause in ("first", "protocol", "metadata"):
        said = f"{said} ({who})"
    elif who:
        said = f"{who} {said}"
    return f'{said}, "{row.reason}"' if row.reason else said


def _storm(storm: StormRow) -> str:
    causes = listed([f"{count:,} {name}" for name, count in storm.causes.items()])
    return (
        f"storm: {many(storm.rebalances, 'rebalance')} from {_clock(storm.start)} to {_clock(storm.end)}, "
        f"started by {causes}"
    )


def _assigned(assignment: dict[str, list[int]] | None) -> str:
    """``orders-0,1``; of many partitions the number: ``orders (24)``."""
    if assignment is None:
        return ABSENT
    told = [
        f"{topic}-{','.join(map(str, numbers))}"
        if len(numbers) <= _OFFSETS
        else f"{topic} ({len(numbers):,})"
        for topic, numbers in assignment.items()
        if numbers
    ]
    return listed(told) or "nothing"


def _change(before: int | None, after: int | None) -> str:
    return (
        f"{'?' if before is None else format(before, ',')} -> {'?' if after is None else format(after, ',')}"
    )


def _clock(moment: datetime | None) -> str:
    return ABSENT if moment is None else f"{moment:%H:%M:%S.%f}"[:-3]


def _seconds(seconds: float | None) -> str:
    return ABSENT if seconds is None else duration(round(seconds * 1e9))
