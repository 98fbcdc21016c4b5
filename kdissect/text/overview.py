"""``Summary`` -> its first screen: what an on-call engineer checks first, on at most 20 lines of a terminal.

    capture     good: all 233 exchanges fully captured; packets span 11.18s
    traffic     degraded: 233 requests, 0 unanswered, 0 with errors
    findings    warning rebalance-storm: 10 rebalances within 8 s (5 join, ... (group restless)
    groups      restless: empty, 1 storm, 10 rebalances (5x member joined, 5x member left)
    more        1 finding, 2 groups, 8 consumer-partition pairs
                kdissect summary --findings --groups --lag FILE

The worst of each kind come first, and the rest is counted. An item takes up to three lines, a finding five,
as long as all items fit: what does not fit is cut, from the last item on; the verdict on the traffic and the
options that show more are not. A finding has at least two lines, so that its endpoint can be read; if there
is no room, only one group, error and unanswered request are shown, with the number of the others. What there
is none of has no line.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from kdissect.anomalies import ERROR, NOTE, WARNING
from kdissect.phrases import (
    client_label,
    columns_of,
    duration,
    facts,
    listed,
    many,
    most_frequent,
    printable,
    quoted,
    times,
    topic_label,
    truncate,
    wrapped,
)
from kdissect.stats.health import DEGRADED, FAILING, headline
from kdissect.stats.quality import EMPTY, GOOD, INCOMPLETE, NO_KAFKA
from kdissect.stats.rebalances import counted
from kdissect.text.groups_page import cause
from kdissect.text.page import PageSection, are_of_several_clusters, cluster_label, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.stats.document import GroupHistory, LagRow, Summary

LINES = 20
"""So that a terminal without options, of 80 columns and 24 lines, shows all of them and the prompt."""

_LABEL = 12  # columns
_MAX_LINES = 3  # of an item
_REASON = 60  # characters of the reason that a member gives
_RED, _YELLOW, _FAINT = "error", "warning", "faint"
_STYLES = {ERROR: _RED, WARNING: _YELLOW, FAILING: _RED, DEGRADED: _YELLOW, INCOMPLETE: _YELLOW}


class _ScreenBlock(NamedTuple):
    """Items of one kind, the worst first, each with its style.

    Attributes:
        left_out: number of those not here.
        is_brief: whether the last item ends with that number; if not, a further line has it.
    """

    label: str
    items: Sequence[tuple[str, str]]
    left_out: int = 0
    is_brief: bool = False

    @property
    def first(self) -> _ScreenBlock:
        """The first item only."""
        left_out = self.left_out + len(self.items) - 1
        return self._replace(items=self.items[:1], left_out=left_out, is_brief=True)

    @property
    def rows(self) -> Sequence[_Row]:
        """Its items, each as a row, and what is left out."""
        rows = [_Row(self.label, printable(text), style) for text, style in self.items]
        if self.left_out and self.is_brief:
            rows[-1] = rows[-1]._replace(end=f" (+{self.left_out:,} more)")
        elif self.left_out:
            rows.append(_Row(self.label, f"{self.left_out:,} more", _FAINT))
        return rows


class _Row(NamedTuple):
    """An item. Of its text, what does not fit is cut; its end is not."""

    label: str
    text: str
    style: str
    end: str = ""


def overview(summary: Summary, width: int | None, *, is_recorded: bool = True) -> PageSection:
    """The first screen.

    Args:
        summary: with all parts.
        width: of the terminal; None: lines are not cut.
        is_recorded: whether there is a file that other commands can read.
    """
    above = [*_verdicts(summary), *filter(None, (_timeline(summary),))]
    below = [*filter(None, (_groups(summary), _errors(summary), _unanswered(summary)))]
    more = [*filter(None, (_more(summary, is_recorded=is_recorded),))]
    columns = None if width is None else width - _LABEL
    findings = _Findings(summary, columns)
    if findings.rows > _room_beside([*above, *below, *more], columns):
        below = [block.first for block in below]
    block = findings.block(_room_beside([*above, *below, *more], columns))
    return _section([*above, *filter(None, (block,)), *below, *more], width)


def _room_beside(blocks: Sequence[_ScreenBlock], columns: int | None) -> int:
    """The lines that are left for findings, if all items of the others have one, and what is not cut all."""
    lines = [
        len(_pieces(row, columns, _MAX_LINES)) if row.label == _TRAFFIC else 1
        for block in blocks
        for row in block.rows
    ]
    return LINES - _DETAIL_LINES - sum(lines)


def verdicts(summary: Summary, width: int | None, *, shows_reason: bool) -> PageSection:
    """The verdicts on capture and traffic only. ``shows_reason``: with the worst finding."""
    return _section([*_verdicts(summary, shows_reason=shows_reason)], width)


def _section(blocks: Sequence[_ScreenBlock], width: int | None) -> PageSection:
    room = None if width is None else width - _LABEL
    rows = [row for block in blocks for row in block.rows]
    max_lines = [1] * len(rows)
    spare = max(0, LINES - len(rows))
    for first, limit in _SHARES:
        for number, row in enumerate(rows):
            if first in (None, row.label):
                extra = min(max(0, len(_pieces(row, room, limit)) - max_lines[number]), spare)
                max_lines[number] += extra
                spare -= extra
    lines: list[tuple[str, str]] = []
    heading = ""
    for row, pieces in zip(rows, max_lines, strict=True):
        for piece in _pieces(row, room, pieces):
            lines.append((f"{'' if row.label == heading else row.label:<{_LABEL}}{piece}", row.style))
            heading = row.label
    return PageSection("", notes=tuple(text for text, _ in lines), styles=tuple(style for _, style in lines))


def _pieces(row: _Row, room: int | None, max_lines: int) -> list[str]:
    """The text of a row on at most ``max_lines`` lines of ``room`` columns; the rest is truncated."""
    text = row.text + row.end
    if room is None or columns_of(text) <= room:
        return [text]
    left = room - columns_of(row.end)
    if max_lines == 1:
        return [truncate(row.text, left) + row.end]
    lines = wrapped(text, room, "  ")
    if len(lines) <= max_lines:
        return [truncate(line, room) for line in lines]
    rest = " ".join(line.lstrip() for line in wrapped(row.text, room, "  ")[max_lines - 1 :])
    whole = [truncate(line, room) for line in lines[: max_lines - 1]]
    return [*whole, truncate(f"  {rest}", left) + row.end]


# ------------------------------------------------------------------------------------------------------------
# The blocks: None if there is nothing to show.
# ------------------------------------------------------------------------------------------------------------


_DETAIL_LINES = 3  # that the last block may take in addition
_DETAILS, _TRAFFIC, _CAUSES, _COMMAND = "details", "traffic", "findings", "kdissect "
_FINDING_LINES, _MAX_FINDING_LINES = 2, 5
_SHARES = (
    *((_DETAILS, _MAX_LINES), (_TRAFFIC, _MAX_LINES), (_CAUSES, _FINDING_LINES)),
    *((None, _MAX_LINES), (_CAUSES, _MAX_FINDING_LINES)),
)
"""Who gets lines while there are any, and up to how many each; None: all."""
_FINDINGS, _GROUPS, _ERRORS, _UNANSWERED = 5, 2, 2, 1  # items at most; one line each, they fit with the rest


def _verdicts(summary: Summary, *, shows_reason: bool = False) -> Iterator[_ScreenBlock]:
    """``shows_reason``: see ``verdicts``."""
    quality, health = summary.quality, summary.health
    if quality is not None:
        style = "" if quality.verdict == GOOD else _STYLES.get(quality.verdict, _RED)
        texts = [f"{quality.verdict}: {quality.message}", *filter(None, (quality.reason,))]
        is_void = quality.verdict in (EMPTY, NO_KAFKA)  # there are no figures
        yield _ScreenBlock("capture", [(text, style) for text in texts[is_void:]])
    if health is not None:
        style = _STYLES.get(health.verdict, "")
        texts = [f"{health.verdict}: {health.message}"]
        if health.reason and shows_reason:
            texts += health.reason, f"details: {_COMMAND}summary --findings FILE"
        yield _ScreenBlock(_TRAFFIC, [(text, style) for text in texts])


class _Findings:
    """The causes, each with the rules that it explains.

    Attributes:
        rows: how many lines those take that are shown if there is room.
    """

    def __init__(self, summary: Summary, columns: int | None) -> None:
        self._causes: list[str] = []
        self._items: list[list[tuple[str, str]]] = []
        for row in summary.findings or ():
            if row.explained_by is None:
                self._causes.append(row.rule)
                self._items.append([(f"{row.severity} {headline(row)}", _STYLES.get(row.severity, ""))])
            elif len(self._items[-1]) == 1:
                self._items[-1].append((f"  explains {row.rule}", _FAINT))
            else:
                text, style = self._items[-1][-1]
                self._items[-1][-1] = f"{text}, {row.rule}", style
        self._lines = [
            len(_pieces(_Row(_CAUSES, *items[0]), columns, _FINDING_LINES)) + len(items) - 1
            for items in self._items
        ]
        self.rows = sum(self._lines[:_FINDINGS]) + (len(self._items) > _FINDINGS)

    def block(self, room: int) -> _ScreenBlock | None:
        """As many as fit in this many lines, one at least; the others are counted."""
        shown, room = 1, room - sum(self._lines[:1])
        for lines in self._lines[1:_FINDINGS]:
            if lines + (shown + 1 < len(self._items)) > room:
                break
            shown, room = shown + 1, room - lines
        items = [*chain(*self._items[:shown])]
        if others := self._causes[shown:]:
            items.append((f"{len(others):,} more: {', '.join(dict.fromkeys(others))}", _FAINT))
        return _ScreenBlock(_CAUSES, items) if items else None


def _timeline(summary: Summary) -> _ScreenBlock | None:
    """What began when, if several causes follow each other."""
    rows = [row for row in summary.findings or () if row.explained_by is None and row.severity != NOTE]
    rows = sorted(rows[:_FINDINGS], key=attrgetter("first"))
    if len(rows) < 2 or len({f"{row.first:%H:%M:%S}" for row in rows}) < 2:
        return None
    times = Counter(row.rule for row in rows)
    steps = (
        f"{row.first:%H:%M:%S} {row.rule}{f' ({row.subject})' if times[row.rule] > 1 else ''}" for row in rows
    )
    return _ScreenBlock("timeline", [(" -> ".join(steps), "")])


def _groups(summary: Summary) -> _ScreenBlock | None:
    lags: dict[tuple[str | None, str], list[LagRow]] = {}
    for row in summary.lag or ():
        if row.kind == "group":
            lags.setdefault((row.cluster_id, row.name), []).append(row)

    def lags_of(group: GroupHistory) -> list[LagRow]:
        return lags.get((group.cluster_id, group.group), [])

    def worst_last(group: GroupHistory) -> tuple[int, ...]:
        return (
            -len(group.storms),
            -(group.state == "rebalancing"),
            -sum(row.lag or 0 for row in lags_of(group)),
            -len(group.rebalances),
        )

    rows = sorted(summary.group_history or (), key=worst_last)
    named = are_of_several_clusters(rows)
    items = [
        (
            f"{cluster_label(row)} {_group(row, lags_of(row))}" if named else _group(row, lags_of(row)),
            _YELLOW if row.storms else "",
        )
        for row in rows[:_GROUPS]
    ]
    return _ScreenBlock("groups", items, len(rows) - len(items)) if items else None


_STATES = {"unknown": "no members seen"}


def _empty(group: GroupHistory) -> str:
    """With the reason that its last member gave when it left."""
    left = [(row.left, row.left_reason) for row in group.members if row.left is not None]
    reason = max(left, key=itemgetter(0))[1] if left else None
    return f"empty (left: {quoted(reason, _REASON)})" if reason else "empty"


def _group(group: GroupHistory, lags: Sequence[LagRow]) -> str:
    known = [row.lag for row in lags if row.lag is not None]
    behind = max((row.seconds for row in lags if row.seconds is not None), default=None)
    rebalances = group.rebalances
    text = facts(
        f"{group.state}, {many(group.present, 'member')}"
        if group.present
        else _empty(group)
        if group.state == "empty"
        else _STATES.get(group.state, group.state),
        f"committed lag {sum(known):,}{f' ({seconds(behind)})' if behind else ''}" if known else "",
        many(len(group.storms), "storm") if group.storms else "",
        many(len(rebalances), "rebalance") if rebalances else "",
    )
    if len(rebalances) == 1:
        causes = cause(rebalances[0].causes[0]) if rebalances[0].causes else ""
    else:
        first = [row.causes[0] for row in rebalances if row.causes]
        causes = counted(Counter(each.cause for each in first))
        for reason, count in most_frequent(Counter(each.reason for each in first if each.reason), 1):
            causes += f"; {quoted(reason, _REASON)} {times(count)}"
    return f"{group.group}: {text}{f' ({causes})' if causes else ''}"


def _errors(summary: Summary) -> _ScreenBlock | None:
    rows = [row for row in summary.errors or () if row.expected < row.count]
    items = [
        (
            f"{row.count - row.expected:,} {row.error}: "
            + facts(
                row.api,
                f"topic {topic_label(row.topic)}" if row.topic else "",
                f"client {client_label(row.client)}",
                f'"{row.message}"' if row.message else "",
            ),
            "",
        )
        for row in rows[:_ERRORS]
    ]
    return _ScreenBlock("errors", items, len(rows) - len(items)) if items else None


def _unanswered(summary: Summary) -> _ScreenBlock | None:
    rows = summary.unanswered or ()
    count = sum(row.no_answer for row in summary.apis or ())
    items = []
    for row in rows[:_UNANSWERED]:
        topics = f" ({listed([topic_label(topic) for topic in row.topics], 'topic')})" if row.topics else ""
        age = f"outstanding for {duration(row.age_us * 1000)}"
        ends = f"{client_label(row.client)} to {row.broker}"
        items.append((f"{row.api}{topics} from {ends}, {age} ({row.exchange})", ""))
    return _ScreenBlock("unanswered", items, max(0, count - len(items))) if items else None


def _more(summary: Summary, *, is_recorded: bool) -> _ScreenBlock | None:
    """What else there is, and the command that shows it."""
    groups, lag, versions = summary.group_history or (), summary.lag or (), summary.versions
    producers = summary.transactions.producers if summary.transactions else ()
    is_open = sum(row.open for row in producers)
    timed_out = sum(row.timed_out for row in producers)
    ended = facts(f"{is_open:,} open" if is_open else "", f"{timed_out:,} timed out" if timed_out else "")
    rejected = versions.rejected if versions else 0
    counts = (
        ("--findings", len(summary.findings or ()), "finding", ""),
        ("--groups", len(groups), "group", ""),
        ("--lag", len(lag), "consumer-partition pair", ""),
        ("--transactions", len(producers), "producer", f" ({ended})" if ended else ""),
        ("--connections", len(summary.client_connections or ()), "client-broker pair", ""),
        (
            "--versions",
            len(versions.used) if versions else 0,
            "client-API-version combination",
            f" ({rejected:,} rejected)" if rejected else "",
        ),
    )
    shown = [each for each in counts if each[1]]
    commands, items = [], []
    if shown:
        items.append((", ".join(f"{many(count, noun)}{note}" for _, count, noun, note in shown), _FAINT))
        commands.append(f"{_COMMAND}summary {' '.join(option for option, *_ in shown)} FILE")
    if summary.quality is not None and summary.quality.verdict != GOOD:
        commands.append(f"{_COMMAND}check FILE")
    if not commands:
        return None
    before = "" if is_recorded else "save the packets with -w FILE, then: "
    return _ScreenBlock(_DETAILS, [*items, (before + "; ".join(commands), _FAINT)])
