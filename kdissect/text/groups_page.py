"""``GroupHistory`` rows -> the page of ``summary --groups``: members, rebalances, committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.phrases import ABSENT, listed, many, nonzero, topic_label
from kdissect.stats.rebalances import counted
from kdissect.text.page import (
    IPV4,
    PageSection,
    View,
    are_of_several_clusters,
    cluster_label,
    number,
    seconds,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from kdissect.stats.document import CauseRow, GroupHistory, StormRow

_OFFSETS = 4  # partition numbers listed for a topic, at most
_CAUSES = {
    "first": "first member joined",
    "join": "member joined",
    "return": "member rejoined",
    "leave": "member left",
    "timeout": "member timed out",
    "subscription": "subscription changed",
    "revocation": "member revoked partitions",
    "protocol": "assignor changed",
    "metadata": "leader rejoined after topics changed",
    "rejoin": "member rejoined",
    "unknown": "not captured",
}
_CAUSED_BY = {
    "first": "{} joined as the first member",
    "subscription": "{} changed its subscription",
    "protocol": "assignor changed by {}",
    "metadata": "leader {} rejoined after topics changed",
}
"""Causes with a client, unless it replaces "member"."""


def sections(rows: Sequence[GroupHistory], *, limit: int | None) -> Iterator[PageSection]:
    """Yield the page.

    Args:
        rows: the groups.
        limit: of groups, and of rows in each of their tables; None: all.
    """
    if not rows:
        yield PageSection("Groups", notes=("no group joins, leaves or commits",))
        return
    yield table("Groups", _GROUPS, rows, limit=limit)
    named = are_of_several_clusters(rows)
    for row in rows[:limit]:
        group = f"{cluster_label(row)} {row.group}" if named else row.group
        if row.members:
            title = f"{group}: {many(len(row.members), 'member ID')} seen"
            yield table(title, _MEMBERS, row.members, limit=limit)
        if row.rebalances:
            notes = [_storm(storm) for storm in row.storms]
            if row.events_dropped:
                notes.append(f"{many(row.events_dropped, 'event')} dropped because of a limit (--limits)")
            title = f"{group}: {many(len(row.rebalances), 'rebalance')}"
            yield table(title, _REBALANCES, row.rebalances, limit=limit, notes=tuple(notes))
        if row.committed:
            title = f"{group}: committed offsets"
            yield table(title, _COMMITTED, row.committed, limit=limit)


def cause(row: CauseRow) -> str:
    """The cause of a rebalance: ``reader-2 left, "the consumer is being closed"``."""
    who = row.client or row.member_id
    text = _CAUSES.get(row.cause, row.cause)
    if who:
        text = _CAUSED_BY.get(row.cause, text.replace("member", "{}", 1)).format(who)
    return f'{text}, "{row.reason}"' if row.reason else text


def _storm(storm: StormRow) -> str:
    return (
        f"storm: {many(storm.rebalances, 'rebalance')} from {_clock(storm.start)} to {_clock(storm.end)} "
        f"({counted(storm.causes)})"
    )


def _assigned(assignment: dict[str, list[int]] | None) -> str:
    """``orders-0,1``; many partitions are counted: ``orders (24)``."""
    if assignment is None:
        return ABSENT
    topics = [
        f"{topic_label(topic)}-{','.join(map(str, numbers))}"
        if len(numbers) <= _OFFSETS
        else f"{topic_label(topic)} ({len(numbers):,})"
        for topic, numbers in assignment.items()
        if numbers
    ]
    return listed(topics) or "nothing"


def _change(before: int | None, after: int | None) -> str:
    return (
        f"{'?' if before is None else format(before, ',')} -> {'?' if after is None else format(after, ',')}"
    )


def _clock(moment: datetime | None) -> str:
    return ABSENT if moment is None else f"{moment:%H:%M:%S.%f}"[:-3]


def _longest(group: GroupHistory) -> str:
    return seconds(max((each.seconds for each in group.rebalances if each.seconds is not None), default=None))


def _counted(counts: Mapping[str, int]) -> str:
    return listed([f"{count:,} {name}" for name, count in counts.items()])


_GROUPS = (
    View("GROUP", lambda row: row.group, keep=True, shrinks=True),
    View("STATE", lambda row: row.state, keep=True),
    View("KIND", lambda row: row.kind or ABSENT),
    View(
        "PROTOCOL",
        lambda row: listed(list(filter(None, (row.protocol_type, *row.protocols)))) or ABSENT,
        shrinks=True,
    ),
    View("MEMBER IDS", lambda row: nonzero(len(row.members)), right=True, keep=True),
    View("REBALANCES", lambda row: nonzero(len(row.rebalances)), right=True, keep=True),
    View("LONGEST", _longest, right=True, keep=True),
    View("STORMS", lambda row: nonzero(len(row.storms)), right=True, keep=True),
    View("PARTITIONS", lambda row: nonzero(len(row.committed)), right=True),
    View("COMMITS", lambda row: nonzero(sum(each.commits for each in row.committed)), right=True, keep=True),
    View("ERRORS", lambda row: _counted(row.errors) or ABSENT, shrinks=True),
)
_MEMBERS = (
    View("CLIENT", lambda row: row.client, keep=True, shrinks=True),
    View("INSTANCE", lambda row: row.group_instance_id or ABSENT, shrinks=True),
    View("MEMBER", lambda row: row.member_id, shrinks=True),
    View("FROM", lambda row: row.address, shrinks=True, width=IPV4),
    View("JOINED", lambda row: _clock(row.joined), keep=True),
    View("LAST", lambda row: _clock(row.last)),
    View("LEFT", lambda row: _clock(row.left), keep=True),
    View("GENERATION", lambda row: number(row.generation), right=True),
    View("ASSIGNED", lambda row: _assigned(row.assignment), keep=True, shrinks=True, width=12),
)
_REBALANCES = (
    View("START", lambda row: _clock(row.start), keep=True),
    View("TOOK", lambda row: seconds(row.seconds), right=True, keep=True),
    View(
        "GENERATION", lambda row: _change(row.generation_before, row.generation_after), right=True, keep=True
    ),
    View("MEMBERS", lambda row: _change(row.members_before, row.members_after), right=True, keep=True),
    View("JOINS", lambda row: nonzero(row.joins), right=True),
    View("PROTOCOL", lambda row: row.protocol or ABSENT, shrinks=True),
    View("EXCHANGE", lambda row: row.exchange),
    View("CAUSE", lambda row: "; ".join(map(cause, row.causes)), keep=True, shrinks=True, width=20),
)
_COMMITTED = (
    View("PARTITION", lambda row: f"{topic_label(row.topic)}-{row.partition}", keep=True, shrinks=True),
    View("COMMITS", lambda row: f"{row.commits:,}", right=True, keep=True),
    View("FAILED", lambda row: nonzero(row.failed), right=True, keep=True),
    View("FIRST", lambda row: number(row.first_offset), right=True, keep=True),
    View("AT", lambda row: _clock(row.first)),
    View("LAST", lambda row: number(row.last_offset), right=True, keep=True),
    View("AT", lambda row: _clock(row.last)),
    View(
        "PER SECOND", lambda row: ABSENT if row.per_second is None else f"{row.per_second:,.1f}", right=True
    ),
)
