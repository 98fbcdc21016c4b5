"""Current statistics -> the panes of the dashboard: the columns of each, and their sort keys. Stateless.

1 APIs    2 Topics    3 Clients    4 Groups    5 News: errors and rebalances
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.phrases import ABSENT, absent, duration, facts, many, named, nonzero, size, truncate
from kdissect.stats.groups import cause_row
from kdissect.stats.pulse import FailureSnapshot
from kdissect.stats.pulse_groups import EMPTY, REBALANCING, SILENT
from kdissect.text.groups_page import cause
from kdissect.text.page import View
from kdissect.text.style import Times

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdissect.stats.pulse import LoadSnapshot, PulseSnapshot, TopicSnapshot
    from kdissect.stats.pulse_groups import GroupSnapshot, RebalanceSnapshot

ALARM, WARNING, FAINT = "bold error", "warning", "faint"
_CLOCK = Times("u")
_SOFTWARE = 23  # columns
_NEW_NS = 60_000_000_000
_STYLES = {REBALANCING: WARNING, EMPTY: WARNING, SILENT: ALARM}


@dataclass(frozen=True, slots=True, kw_only=True)
class PaneView(View):
    """A column of a pane; width 0 means the remaining space.

    Attributes:
        value: the sort key; None sorts last.
        style: of a row's cell.
    """

    value: Callable[[Any], Any]
    style: Callable[[Any], str] = lambda _: ""


class Pane(NamedTuple):
    """A table of the dashboard.

    Attributes:
        rows: its rows in the current statistics.
        is_idle: whether a row is no longer active, and dimmed.
        sort: index of the initial sort column.
        empty: text shown without rows.
    """

    title: str
    columns: tuple[PaneView, ...]
    rows: Callable[[PulseSnapshot], Sequence[Any]]
    is_idle: Callable[[Any, PulseSnapshot], bool]
    sort: int
    empty: str

    def ordered(self, now: PulseSnapshot, sort: int, *, is_reversed: bool) -> list[Any]:
        """The rows in sort order: numbers descending, names ascending."""
        column = self.columns[sort]
        known: list[Any] = []
        unknown: list[Any] = []
        for row in self.rows(now):
            (unknown if column.value(row) is None else known).append(row)
        known.sort(key=self.columns[0].value)
        known.sort(key=column.value, reverse=column.right != is_reversed)
        return known + unknown


def rate(per_second: float) -> str:
    """A rate: ``1,234``, ``12``, ``0.4``; a dash for none."""
    if per_second <= 0:
        return ABSENT
    if per_second >= 9.95:
        return f"{per_second:,.0f}"
    return f"{max(per_second, 0.1):.1f}"


def amount(per_second: float) -> str:
    """Bytes per second: ``3.4 MB``; a dash for none."""
    return size(round(per_second)) if per_second >= 0.5 else ABSENT


def clock(time_ns: int) -> str:
    """``14:03:22``, UTC."""
    return _CLOCK.text(time_ns).partition(".")[0]


def latency(us: int | None) -> str:
    """A latency; a dash for none."""
    return ABSENT if us is None else duration(us * 1000)


def _software(text: str) -> str:
    """Name and version; the name is cut first: ``confluent-kafk… 2.15.0``."""
    name, _, version = text.rpartition(" ")
    if len(text) <= _SOFTWARE or not name:
        return absent(text)
    version = version.partition("-")[0]  # confluent-kafka-python adds librdkafka's
    return f"{truncate(name, max(1, _SOFTWARE - len(version) - 1))} {version}"


def _field(
    heading: str,
    name: str,
    shown: Callable[[Any], str],
    width: int,
    *,
    right: bool = True,
    keep: bool = True,
    style: Callable[[Any], str] = lambda _: "",
) -> PaneView:
    value = attrgetter(name)
    return PaneView(
        heading, lambda row: shown(value(row)), value=value, width=width, right=right, keep=keep, style=style
    )


def _name(heading: str) -> PaneView:
    return _field(heading, "name", str, 0, right=False)


_FAILED = _field(
    "ERRORS/s", "failed_per_second", rate, 8, style=lambda row: ALARM if row.failed_per_second else ""
)


_NO_ANSWER = _field("UNANSWERED", "no_answer", nonzero, 10, style=lambda row: ALARM if row.no_answer else "")


def _worst(row: Any) -> str:
    if not row.lag:
        return ABSENT
    topic, partition, lag = row.worst_partition
    return f"{topic}-{partition} {lag:,}"


_APIS = (
    _name("API"),
    _field("/s", "per_second", rate, 7),
    _field("N", "measured", nonzero, 5),
    _field("P50", "p50_us", latency, 7),
    _field("P95", "p95_us", latency, 7, keep=False),
    _field("P99", "p99_us", latency, 7),
    _FAILED,
    _field("ERRORS", "failed", nonzero, 6),
    _NO_ANSWER,
    _field("WAITS/s", "waits", rate, 7),
    _field("IN/s", "request_bytes", amount, 8, keep=False),
    _field("OUT/s", "response_bytes", amount, 8, keep=False),
    _field("THROTTLED/s", "throttled", rate, 11, keep=False),
)
_TOPICS = (
    _name("TOPIC"),
    _field("REC IN/s", "records_in", rate, 9),
    _field("IN/s", "bytes_in", amount, 8),
    _field("REC OUT/s", "records_out", rate, 9),
    _field("OUT/s", "bytes_out", amount, 8),
    _FAILED,
    _field("ERRORS", "failed", nonzero, 7, keep=False),
    _field("REPLICATED/s", "replicated_bytes", amount, 12, keep=False),
)
_CLIENTS = (
    _name("CLIENT"),
    _field("CONN", "connections", nonzero, 5),
    _field("/s", "per_second", rate, 7),
    _field("N", "measured", nonzero, 5),
    _field("P99", "p99_us", latency, 7),
    _FAILED,
    _field("LIBRARY", "software", _software, _SOFTWARE, right=False),
    _field("ADDRESS", "address", absent, 15, right=False, keep=False),
    _field("ERRORS", "failed", nonzero, 7, keep=False),
    replace(_NO_ANSWER, keep=False),
    _field("IN/s", "request_bytes", amount, 8, keep=False),
    _field("OUT/s", "response_bytes", amount, 8, keep=False),
)
_GROUPS = (
    _name("GROUP"),
    _field("STATE", "state", absent, 11, right=False, style=lambda row: _STYLES.get(row.state, "")),
    _field("MEMBERS", "members", nonzero, 7),
    _field(
        "LAG",
        "lag",
        lambda lag: ABSENT if lag is None else f"{lag:,}",
        11,
        style=lambda row: WARNING if row.lag else "",
    ),
    PaneView(
        "WORST", _worst, value=lambda row: row.worst_partition and row.worst_partition[2], width=20, keep=True
    ),
    _field("REBAL", "rebalances", nonzero, 5),
    _field("KIND", "kind", absent, 8, right=False, keep=False),
    _field("GENERATION", "generation", absent, 10, keep=False),
)


def _time_ns(row: FailureSnapshot | RebalanceSnapshot) -> int:
    return row.time_ns if isinstance(row, FailureSnapshot) else row.rebalance.start_ns


def _what(row: FailureSnapshot | RebalanceSnapshot) -> str:
    if isinstance(row, FailureSnapshot):
        return row.failure.error
    before, after = row.rebalance.generation_before, row.rebalance.generation_after
    return f"rebalance gen {'?' if before is None else before} -> {after}"


def _times(row: FailureSnapshot | RebalanceSnapshot) -> int | None:
    return row.times if isinstance(row, FailureSnapshot) else None


def _where(row: FailureSnapshot | RebalanceSnapshot) -> str:
    if isinstance(row, FailureSnapshot):
        failure, note = row.failure, "expected: " if row.is_expected else ""
        return facts(f"{note}{failure.api} from {failure.client}", named("topic", failure.topic))
    rebalance = row.rebalance
    return facts(
        row.group,
        many(rebalance.members_after, "member") if rebalance.members_after is not None else None,
        "; ".join(cause(cause_row(each)) for each in rebalance.causes),
    )


def _alarm(row: FailureSnapshot | RebalanceSnapshot) -> str:
    if isinstance(row, FailureSnapshot):
        return FAINT if row.is_expected else ALARM
    return WARNING


def _events(now: PulseSnapshot) -> list[FailureSnapshot | RebalanceSnapshot]:
    return [*now.failures, *now.rebalances]


_EVENTS = (
    PaneView("TIME", lambda row: clock(_time_ns(row)), value=_time_ns, width=8, right=True, keep=True),
    PaneView("EVENT", _what, value=_what, width=27, keep=True, style=_alarm),
    PaneView("COUNT", lambda row: absent(_times(row)), value=_times, width=6, right=True, keep=True),
    PaneView("DETAILS", _where, value=_where, width=0, keep=True),
)


def _is_idle(row: LoadSnapshot, _: PulseSnapshot) -> bool:
    return not (row.per_second or row.overdue)


def _is_still(row: TopicSnapshot, _: PulseSnapshot) -> bool:
    return not (row.bytes_in or row.bytes_out or row.replicated_bytes or row.failed_per_second)


def _is_done(row: GroupSnapshot, _: PulseSnapshot) -> bool:
    return row.state == EMPTY and not row.lag


def _is_past(row: FailureSnapshot | RebalanceSnapshot, now: PulseSnapshot) -> bool:
    return now.now_ns is not None and now.now_ns - _time_ns(row) > _NEW_NS


PANES = (
    Pane("APIs", _APIS, lambda now: now.apis, _is_idle, 1, "no exchanges yet"),
    Pane("Topics", _TOPICS, lambda now: now.topics, _is_still, 2, "no records yet"),
    Pane("Clients", _CLIENTS, lambda now: now.clients, _is_idle, 2, "no clients yet"),
    Pane("Groups", _GROUPS, lambda now: now.groups, _is_done, 3, "no groups yet"),
    Pane("Errors and rebalances", _EVENTS, _events, _is_past, 0, "no errors or rebalances yet"),
)
"""All panes, in order of their keys."""

EVENTS = len(PANES) - 1
