"""``Summary`` -> charts of it, as Vega-Lite with their numbers beside them. Holds one chart.

Numbers are columns of equal length. ``t`` and ``e`` are the start and the end of a row, in milliseconds since
1970, if the chart has a time axis; in a time series, each other column is a series. Colors of text and lines
are those of the page.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from itertools import zip_longest
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.anomalies import ERROR, NOTE, WARNING
from kdissect.errors import UsageError
from kdissect.extras import install
from kdissect.net.analysis import ONE_WAY, REFUSED, UNANSWERED, UNOPENED
from kdissect.phrases import many, printable, topic_label, truncate
from kdissect.stats.rows import BOUNDS_US
from kdissect.text.transactions_page import outcome_text

try:
    import altair as alt
    import vl_convert
except ImportError as error:
    raise UsageError(f"charts need Altair and vl-convert: {install('report')}") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from kdissect.stats.document import GroupHistory, IntervalRow, LagRow, LifetimeRow, Summary

    Columns = dict[str, list[Any]]
    Form = Any  # an altair.Chart, most of whose methods have no types

_SERIES = 8  # of a chart; the last one is of all others
_SPANS = 400  # bars of a chart with a line for each name
_LINES = 30  # of such a chart
_LABEL = 60  # characters of a name
_OTHERS = "others"

FROM, UNTIL, BRUSH = "from", "until", "brush"
"""Parameters of each chart: the ends of its time axis. And of the first chart: what is selected in it."""


def _whole(us: int) -> str:
    """Without a decimal point, which in the name of a column would mean a column inside another."""
    return f"{us // 10**6} s" if us >= 10**6 else f"{us // 1000} ms" if us >= 1000 else f"{us} us"


_BELOW = [*(f"< {_whole(bound)}" for bound in BOUNDS_US), f">= {_whole(BOUNDS_US[-1])}"]


class Chart(NamedTuple):
    """A chart.

    Attributes:
        name: as for ``kdissect plot``.
        caption: what it shows, for those who cannot see it, too.
        columns: its numbers.
        form: of its marks, without numbers.
    """

    name: str
    title: str
    caption: str
    columns: Columns
    form: Form

    def spec(self) -> dict[str, Any]:
        """It in Vega-Lite; its data are ``rows``, which the caller adds."""
        chart = self.form
        if "t" in self.columns:
            ends = {FROM: self.columns["t"][0], UNTIL: max(self.columns["e"])}
            chart = chart.add_params(*(alt.param(name=name, value=value) for name, value in ends.items()))
        chart = chart.properties(description=f"{self.title}. {self.caption}")
        spec: dict[str, Any] = chart.to_dict()
        return spec | {"config": _CONFIG, "autosize": {"type": "fit-x", "contains": "padding"}}


class _Kind(NamedTuple):
    """A kind of chart; ``columns``: its numbers, None if there are none."""

    title: str
    caption: str
    columns: Callable[[Summary], Columns | None]
    form: Callable[[Columns], Form]


_TEXT = ("labelColor", "titleColor")
_MARGIN = 60  # pixels left of each chart, so that equal times are below each other
_HEAT: dict[str, Any] = {"type": "log", "interpolate": "rgb", "range": ["#7fb3d5", "#e0a030", "#c0392b"]}
"""All of them readable on white and on black."""
_DECADES = alt.Axis(values=[10.0**power for power in range(-3, 7)], format="~g")
_SEVERITIES = {ERROR: "#d0402b", WARNING: "#e0902b", NOTE: "#5b8fc9"}
_EXCHANGES = {"exchanges": "#4c78a8", "with errors": "#d0402b"}
_RECORDS = {"bytes written": "#4c78a8", "bytes read": "#59a89c"}
_LANE_TITLE = 0.4  # of the height of a small chart
_PALETTE = (
    *("#4c78a8", "#f58518", "#54a24b", "#b79a20", "#b279a2", "#9d755d", "#72b7b2", "#ff9da6"),
    *("#7f6fc0", "#439894", "#d6a5c9", "#8cbf56"),
)
_GRAY = "#8a8a8a"
_USUAL_APIS = dict(
    zip(
        (
            "Fetch",
            "Produce",
            "Metadata",
            "ApiVersions",
            "Heartbeat",
            "OffsetCommit",
            "ListOffsets",
            "JoinGroup",
        ),
        _PALETTE,
        strict=False,
    )
)
"""Their colors are the same in all charts and reports."""
_STABLE = {"stable": "#b8c4ce", "empty": "#8a8a8a"}
_UNSERVED = ", requests outstanding"
_ENDINGS = {
    "client FIN": "#4c78a8",
    "broker FIN": "#59a89c",
    "open": "#8a8a8a",
    f"client FIN{_UNSERVED}": "#c9a227",
    f"broker FIN{_UNSERVED}": "#e0902b",
    f"open{_UNSERVED}": "#a0764a",
    REFUSED: "#b07aa1",
    UNANSWERED: "#8c5aa8",
    ONE_WAY: "#d67ab1",
    "client RST": "#e36b5c",
    "broker RST": "#d0402b",
    f"client RST{_UNSERVED}": "#b3261e",
    f"broker RST{_UNSERVED}": "#8b1a1a",
}
_OPENED = {"opened": "#b79a20"}
_CONFIG: dict[str, Any] = {
    "background": None,
    "font": "system-ui, sans-serif",
    "axis": dict.fromkeys((*_TEXT, "domainColor", "tickColor", "gridColor"), "currentColor")
    | {"gridOpacity": 0.15, "titleFontWeight": "normal"},
    "axisY": {"minExtent": _MARGIN, "maxExtent": _MARGIN, "labelLimit": _MARGIN - 10},
    "legend": dict.fromkeys(_TEXT, "currentColor")
    | {"orient": "top", "titleFontWeight": "normal", "labelLimit": 240}
    | {"columns": {"expr": "max(1, floor(width / 190))"}},
    "view": {"stroke": None},
    "aria": False,  # of each mark: the chart has a description, and a table of its numbers
}


# ------------------------------------------------------------------------------------------------------------
# The forms.
# ------------------------------------------------------------------------------------------------------------


def _time() -> alt.X:
    first, last = alt.ExprRef(FROM), alt.ExprRef(UNTIL)
    span_ms = f"({UNTIL} - {FROM})"
    label = (
        f"utcFormat(datum.value, {span_ms} < 10e3 ? '%H:%M:%S.%L' : {span_ms} < 600e3 ? '%H:%M:%S' : "
        f"{span_ms} < 172800e3 ? '%H:%M' : '%m-%d %H:%M')"
    )
    axis = alt.Axis(labelExpr=label, labelOverlap=True, tickCount=alt.ExprRef("ceil(width / 90)"))
    scale = alt.Scale(type="utc", domainMin=first, domainMax=last, nice=False)
    return alt.X("t:T", title="UTC", scale=scale, axis=axis)


def _series_of(columns: Columns) -> list[str]:
    return [name for name in columns if name not in ("t", "e")]


def _rows() -> Form:
    time = "utcFormat(datum.t, '%Y-%m-%d %H:%M:%S.%L')"
    return alt.Chart(alt.NamedData("rows")).transform_calculate(at=time)


def _folded(columns: Columns) -> Form:
    fields = [re.sub(r"[\\.\[\]'\"]", r"\\\g<0>", name) for name in _series_of(columns)]
    return _rows().transform_fold(fields, as_=["k", "v"])


def _tips(*shown: alt.Tooltip) -> list[alt.Tooltip]:
    return [alt.Tooltip("at:N", title="from"), *shown]


def _colors(names: Iterable[str], colors: Mapping[str, str]) -> alt.Scale:
    """A scale with these colors, gray for the sum of the rest, and for further names colors that are free."""
    used = {colors.get(name) for name in names}
    free = iter(
        sorted({*_PALETTE} - used, key=lambda color: (color in colors.values(), _PALETTE.index(color)))
    )
    known = {name: colors.get(name) or (_GRAY if name == _OTHERS else next(free, _GRAY)) for name in names}
    return alt.Scale(domain=[*known], range=[*known.values()])


def _stacked(unit: str, colors: Mapping[str, str], height: int = 160) -> Callable[[Columns], Form]:
    """Bars of several series on top of each other."""

    def form(columns: Columns) -> Form:
        series = _series_of(columns)
        return (
            _folded(columns)
            .transform_stack(stack="v", groupby=["t"], as_=["low", "high"])
            .transform_filter("datum.v > 0")
            .mark_rect(clip=True, stroke=None)
            .encode(
                x=_time(),
                x2="e:T",
                y=alt.Y("low:Q", title=unit, axis=alt.Axis(format="~s", tickCount=5)),
                y2="high:Q",
                color=alt.Color("k:N", title=None, scale=_colors(series, colors)),
                tooltip=_tips(alt.Tooltip("k:N", title=unit), alt.Tooltip("v:Q", title="value")),
            )
            .properties(width="container", height=height)
        )

    return form


def _overview(columns: Columns) -> Form:
    """A small chart of all of the time, in which a part of it can be selected."""
    brush = alt.selection_interval(name=BRUSH, encodings=["x"])
    return _stacked("per second", _EXCHANGES, 60)(columns).add_params(brush)


def _levels(columns: Columns) -> Form:
    """A short line for each interval and series, on a logarithmic axis."""
    return (
        _folded(columns)
        .transform_filter("datum.v > 0")
        .mark_rule(clip=True, strokeWidth=2.5)
        .encode(
            x=_time(),
            x2="e:T",
            y=alt.Y("v:Q", title="ms", scale=alt.Scale(type="log"), axis=_DECADES),
            color=alt.Color("k:N", title=None, sort=_series_of(columns)),
            tooltip=_tips(alt.Tooltip("k:N", title="quantile"), alt.Tooltip("v:Q", title="ms")),
        )
        .properties(width="container", height=200)
    )


def _heat_map(columns: Columns) -> Form:
    """A rectangle for each interval and range, colored by its count."""
    return (
        _folded(columns)
        .transform_filter("datum.v > 0")
        .mark_rect(clip=True, stroke=None)
        .encode(
            x=_time(),
            x2="e:T",
            y=alt.Y("k:N", title="service time", sort=_BELOW[::-1]),
            color=alt.Color("v:Q", title="exchanges", scale=alt.Scale(**_HEAT)),
            tooltip=_tips(alt.Tooltip("k:N", title="took"), alt.Tooltip("v:Q", title="exchanges")),
        )
        .properties(width="container", height=230)
    )


def _spans(what: str, kind: str, colors: Mapping[str, str] | None = None) -> Callable[[Columns], Form]:
    """A line of bars for each name, which is ``what``; ``kind``: what their colors mean."""

    def form(columns: Columns) -> Form:
        kinds = dict.fromkeys(columns["kind"])
        known = [name for name in colors or () if name in kinds]
        scale = _colors(dict.fromkeys([*known, *kinds]), colors or {})
        y = alt.Y("name:N", title=what, sort=None, axis=alt.Axis(labels=False, ticks=False))
        bars = (
            _rows()
            .mark_bar(clip=True, fillOpacity=0.5, strokeWidth=1)
            .encode(
                x=_time(),
                x2="e:T",
                y=y,
                color=alt.Color("kind:N", title=kind, scale=scale),
                stroke=alt.Stroke("kind:N", title=kind, scale=scale),  # so that short ones have a color
                tooltip=_tips(
                    alt.Tooltip("name:N", title=what),
                    alt.Tooltip("kind:N", title=kind),
                    *([alt.Tooltip("detail:N")] if "detail" in columns else []),
                ),
            )
        )
        text = (
            alt.Chart(alt.NamedData("rows"))
            .transform_aggregate(bars="count()", groupby=["name"])
            .mark_text(align="left", fill="currentColor")
            .encode(x=alt.value(3), y=y, text="name:N")
        )
        return (bars + text).properties(width="container", height=20 * len(set(columns["name"])))

    return form


def _lanes(kinds: Mapping[str, str]) -> Callable[[Columns], Form]:
    """A small chart for each name, below each other: two numbers on top of each other, up to a line at their
    maximum. ``kinds``: what the numbers are, and their colors.
    """

    def form(columns: Columns) -> Form:
        keys = _series_of(columns)
        count = len(keys) // len(kinds)
        names = [key.removesuffix(f": {next(iter(kinds))}") for key in keys[:: len(kinds)]]
        tops = [
            max(
                map(
                    sum, zip(*(columns[key] for key in keys[len(kinds) * place :][: len(kinds)]), strict=True)
                )
            )
            for place in range(count)
        ]
        y = alt.Y(
            "high:Q",
            title="per second",
            scale=alt.Scale(domain=[count, 0], nice=False, zero=False),
            axis=alt.Axis(
                values=[place + _LANE_TITLE for place in range(count)],
                labelExpr=f"format({json.dumps(tops)}[floor(datum.value)], '.3~s')",
                domain=False,
                ticks=False,
            ),
        )
        number = f"indexof({json.dumps(keys)}, datum.k)"
        height = f"{1 - _LANE_TITLE} / {json.dumps(tops)}[datum.lane]"
        bars = (
            _folded(columns)
            .transform_calculate(
                lane=f"floor({number} / {len(kinds)})",
                kind=f"{json.dumps([*kinds])}[{number} % {len(kinds)}]",
            )
            .transform_stack(stack="v", groupby=["t", "lane"], as_=["from_", "to_"])
            .transform_filter("datum.v > 0")
            .transform_calculate(
                low=f"datum.lane + 1 - datum.from_ * {height}",
                high=f"datum.lane + 1 - datum.to_ * {height}",
                name=f"{json.dumps(names)}[datum.lane]",
            )
            .mark_rect(clip=True, stroke=None)
            .encode(
                x=_time(),
                x2="e:T",
                y=y,
                y2="low:Q",
                color=alt.Color(
                    "kind:N", title=None, scale=alt.Scale(domain=[*kinds], range=[*kinds.values()])
                ),
                tooltip=_tips(
                    alt.Tooltip("name:N"), alt.Tooltip("kind:N"), alt.Tooltip("v:Q", title="per second")
                ),
            )
        )
        titles = alt.InlineData(
            [{"y": place + _LANE_TITLE, "name": name} for place, name in enumerate(names)]
        )
        text = (
            alt.Chart(titles)
            .mark_text(align="left", baseline="bottom", fill="currentColor", dy=-2)
            .encode(x=alt.value(2), y="y:Q", text="name:N")
        )
        return (bars + text).properties(width="container", height=48 * count)

    return form


def _points(columns: Columns) -> Form:  # noqa: ARG001  (all forms take them)
    """A line between a few points for each name."""
    return (
        _rows()
        .mark_line(clip=True, point=True)
        .encode(
            x=_time(),
            y=alt.Y("records:Q", axis=alt.Axis(format="~s")),
            color=alt.Color("name:N", title=None, sort=None),
            tooltip=_tips(alt.Tooltip("name:N"), alt.Tooltip("records:Q")),
        )
        .properties(width="container", height=200)
    )


def _matrix(columns: Columns) -> Form:
    """A square for each client host and broker, with a count, and colored by it."""
    squares = alt.Chart(alt.NamedData("rows")).encode(
        x=alt.X("broker:N", sort=None, axis=alt.Axis(labelAngle=-30)),
        y=alt.Y(
            "host:N",
            title="client host",
            sort=None,
            axis=alt.Axis(minExtent=_MARGIN, maxExtent=4 * _MARGIN, labelLimit=4 * _MARGIN),
        ),
        tooltip=["host:N", "broker:N", "connections:Q", "failed:Q", alt.Tooltip("bytes:Q", format="~s")],
    )
    color = alt.Color("connections:Q", scale=alt.Scale(**_HEAT))
    colored = squares.mark_rect(stroke="currentColor", strokeOpacity=0.3).encode(color=color)
    counts = squares.mark_text(fill="black").encode(text=alt.Text("connections:Q", format=","))
    return (colored + counts).properties(width="container", height=20 * len(set(columns["host"])))


# ------------------------------------------------------------------------------------------------------------
# The numbers.
# ------------------------------------------------------------------------------------------------------------


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _label(name: str) -> str:
    return truncate(printable(name), _LABEL)


def _over_time(summary: Summary, values: Callable[[IntervalRow], Mapping[str, float]]) -> Columns | None:
    """A column for each of the largest series; ``values``: of each interval, by series."""
    rows = [row for row in summary.intervals or () if row.key is None]
    counted = [values(row) for row in rows]
    sums: Counter[str] = Counter()
    for each in counted:
        for name, value in each.items():
            sums[name] += value  # type: ignore[assignment]
    names = [name for name, value in sorted(sums.items(), key=lambda item: (-item[1], item[0])) if value]
    shown = names if len(names) <= _SERIES else names[: _SERIES - 1]
    series = {name: [_short(each.get(name, 0)) for each in counted] for name in shown}
    if rest := names[len(shown) :]:
        series[_OTHERS] = [_short(sum(each.get(name, 0) for name in rest)) for each in counted]
    return _times(rows) | series if series else None


def _times(rows: list[IntervalRow]) -> Columns:
    starts = [_ms(row.start) for row in rows]
    return {"t": starts, "e": [t + round(row.seconds * 1000) for t, row in zip(starts, rows, strict=True)]}


def _short(value: float) -> float:
    """With four digits, which is all that a chart shows."""
    return int(value) if value == int(value) else float(f"{value:.4g}")


def _rate(name: str) -> Callable[[Summary], Columns | None]:
    """An attribute of intervals that counts by name, per second."""
    counts = attrgetter(name)
    return lambda summary: _over_time(
        summary, lambda row: {key: count / row.seconds for key, count in counts(row).items()}
    )


def _counts(name: str) -> Callable[[Summary], Columns | None]:
    """An attribute of intervals that is a count, per second."""
    count, title = attrgetter(name), name.replace("_", " ")
    return lambda summary: _over_time(summary, lambda row: {title: count(row) / row.seconds})


def _states(row: IntervalRow) -> dict[str, float]:
    """Seconds that the requests of an interval spent in each state, in it and after it."""
    sums = {
        "service": (row.service_us.mean or 0) * row.service_us.count,
        "held by the broker": (row.wait_us.mean or 0) * row.wait_us.count,
        "queued": row.queued_us,
        "throttled": row.throttled_us,
        "until retransmitted": row.network_us,
        "transfer": row.transfer_us,
    }
    return {state: total_us / 1e6 for state, total_us in sums.items()}


def _connections(row: IntervalRow) -> dict[str, float]:
    ended = {f"ended by {how}": count / row.seconds for how, count in row.ended.items()}
    return {"opened": row.opened / row.seconds} | ended


def _latency(summary: Summary) -> Columns | None:
    names = ("p50", "p95", "p99")
    rows = [row for row in summary.intervals or () if row.key is None and row.service_us.count]
    if not rows:
        return None
    return _times(rows) | {name: [getattr(row.service_us, name) / 1000 for row in rows] for name in names}


def _ranges(summary: Summary) -> Columns | None:
    rows = [row for row in summary.intervals or () if row.key is None and row.service_us.count]
    columns = {name: [row.service_counts[place] for row in rows] for place, name in enumerate(_BELOW)}
    columns = {name: counts for name, counts in columns.items() if any(counts)}
    return _times(rows) | columns if columns else None


class _Span(NamedTuple):
    """A bar."""

    start: datetime
    end: datetime
    name: str
    kind: str
    detail: str = ""


def _bars(spans: list[_Span]) -> Columns | None:
    """The first spans of the first names, in order of time."""
    names = list(dict.fromkeys(span.name for span in spans))[:_LINES]
    shown = sorted([span for span in spans if span.name in names][:_SPANS])
    if not shown:
        return None
    columns: Columns = {
        "t": [_ms(span.start) for span in shown],
        "e": [max(_ms(span.end), _ms(span.start) + 1) for span in shown],
        "name": [_label(span.name) for span in shown],
        "kind": [span.kind for span in shown],
        "detail": [span.detail for span in shown],
    }
    if not any(columns["detail"]):
        del columns["detail"]
    return columns


def _findings(summary: Summary) -> Columns | None:
    spans = [
        _Span(row.first, row.last, f"{row.rule}: {row.subject}", row.severity)
        for row in summary.findings or ()
    ]
    return _bars(spans)


def _groups(summary: Summary) -> Columns | None:
    busiest = sorted(summary.group_history or (), key=lambda group: -len(group.rebalances))
    return _bars([span for group in busiest for span in _generations(group)])


def _generations(group: GroupHistory) -> Iterator[_Span]:
    """The rebalances of a group, and what it was between them."""

    def members(count: int | None) -> str:
        return "members unknown" if count is None else many(count, "member")

    for row, following in zip_longest(group.rebalances, group.rebalances[1:]):
        until = group.last if following is None else following.start
        cause = row.causes[0].cause if row.causes else "unknown"
        before = "" if row.generation_before is None else f"{row.generation_before} -> "
        detail = f"generation {before}{row.generation_after}, {members(row.members_after)}"
        yield _Span(row.start, row.end or until, group.group, cause, detail)
        if row.end is not None and until > row.end:
            detail = f"generation {row.generation_after}, {members(row.members_after)}"
            yield _Span(row.end, until, group.group, "empty" if row.members_after == 0 else "stable", detail)


def _transactions(summary: Summary) -> Columns | None:
    rows = [] if summary.transactions is None else summary.transactions.transactions
    last = summary.capture.last
    spans = [
        _Span(row.start, row.end or last or row.start, row.transactional_id, outcome_text(row.outcome))
        for row in rows
    ]
    return _bars(spans)


def _lifetimes(summary: Summary) -> Columns | None:
    """Attempts of a host to connect to a broker are one line, and each other connection has its own."""

    def span(row: LifetimeRow) -> _Span:
        pair = f"{row.client} to {row.broker}"
        if row.ending in UNOPENED:
            return _Span(row.start, row.end, pair, row.ending)
        kind = f"{row.ending}{_UNSERVED}" if row.outstanding else row.ending
        return _Span(row.start, row.end, f"{pair}: {row.connection}", kind)

    return _bars([span(row) for row in summary.connections_over_time or ()])


def _lag(summary: Summary) -> Columns | None:
    """The lag of groups over time, those with the largest; then the first, the largest and the last of
    clients by partition, as far as there is room.
    """

    def known(row: LagRow) -> list[tuple[datetime, int]]:
        times = ((row.first, row.lag_first), (row.worst, row.lag_worst), (row.last, row.lag))
        return [(time, lag) for time, lag in times if time is not None and lag is not None]

    groups = [row for row in summary.lag_over_time or () if row.lag_worst]
    clients = [row for row in summary.lag or () if row.lag_worst and row.kind == "client"]
    clients.sort(key=lambda row: -(row.lag_worst or 0))
    series = [(f"group {row.group}", [(each.time, each.lag) for each in row.points]) for row in groups]
    series += [
        (f"client {row.name}: {topic_label(row.topic)}-{row.partition}", known(row)) for row in clients
    ]
    points = sorted((time, name, lag) for name, each in series[:_SERIES] for time, lag in each)
    if not points:
        return None
    times = [_ms(time) for time, _, _ in points]
    return {
        "t": times,
        "e": [*times[:-1], times[-1] + 1],
        "name": [_label(name) for _, name, _ in points],
        "records": [lag for _, _, lag in points],
    }


def _pairs(summary: Summary) -> Columns | None:
    """The connections of the first hosts to the first brokers, also those that never opened."""
    rows = summary.host_connections or []
    hosts = list(dict.fromkeys(row.host for row in rows))[:_LINES]
    brokers = list(dict.fromkeys(row.broker for row in rows))[:_LINES]
    shown = [row for row in rows if row.host in hosts and row.broker in brokers]
    if not shown:
        return None
    return {
        "host": [_label(row.host) for row in shown],
        "broker": [row.broker for row in shown],
        "connections": [row.connections + row.failed for row in shown],
        "failed": [row.failed for row in shown],
        "bytes": [row.bytes for row in shown],
    }


def _busiest(table: str) -> Callable[[Summary], Columns | None]:
    """Two columns for each name of a table of ``Summary.busiest``."""

    def columns(summary: Summary) -> Columns | None:
        series: Columns = {}
        intervals = [row for row in summary.intervals or () if row.key is None]
        for row in summary.busiest or ():
            if row.table != table:
                continue
            label = _OTHERS if row.name is None else _label(row.name)
            if row.exchanges is not None and row.errors is not None:
                served = [all_ - failed for all_, failed in zip(row.exchanges, row.errors, strict=True)]
                numbers = dict(zip(_EXCHANGES, (served, row.errors), strict=True))
            else:
                numbers = dict(
                    zip(_RECORDS, (row.produced_bytes or [], row.fetched_bytes or []), strict=True)
                )
            if f"{label}: {next(iter(numbers))}" in series:
                label = f"{label} ({len(series) // len(numbers)})"
            for kind, counts in numbers.items():
                rates = [_short(count / each.seconds) for count, each in zip(counts, intervals, strict=True)]
                series[f"{label}: {kind}"] = rates
        return _times(intervals) | series if series else None

    return columns


def _requests(summary: Summary) -> Columns | None:
    def rates(row: IntervalRow) -> dict[str, float]:
        failed = row.errors / row.seconds
        return {"exchanges": row.exchanges / row.seconds - failed, "with errors": failed}

    return _over_time(summary, rates)


# ------------------------------------------------------------------------------------------------------------

_OWN_SCALE = "Each has its own scale, whose number is the maximum."
KINDS = {
    "overview": _Kind(
        "All exchanges",
        "Exchanges per second, and how many of them had an error that is not expected.",
        _requests,
        _overview,
    ),
    "findings": _Kind(
        "Findings",
        "From when to when each likely problem was seen.",
        _findings,
        _spans("finding", "severity", _SEVERITIES),
    ),
    "throughput": _Kind(
        "Exchanges", "Exchanges per second, by API.", _rate("apis"), _stacked("per second", _USUAL_APIS)
    ),
    "bytes": _Kind(
        "Bytes",
        "Bytes of requests and responses per second, by API.",
        _rate("api_bytes"),
        _stacked("bytes per second", _USUAL_APIS),
    ),
    "latency": _Kind(
        "Service times",
        "Median, 95th and 99th percentile of service times in each interval, in milliseconds.",
        _latency,
        _levels,
    ),
    "distribution": _Kind(
        "Distribution of service times",
        "Number of exchanges in each interval by their service time.",
        _ranges,
        _heat_map,
    ),
    "waits": _Kind(
        "Waits and transfer",
        "Seconds that the requests sent in each interval took in sum, by what took them: service, long polls "
        "and waits for group members (held by the broker), requests before them, quotas, retransmission, "
        "transfer.",
        lambda summary: _over_time(summary, _states),
        _stacked("seconds", {}),
    ),
    "errors": _Kind(
        "Errors",
        "Exchanges per second with an error that is not expected, by error.",
        _rate("error_names"),
        _stacked("per second", {}),
    ),
    "by-broker": _Kind(
        "Brokers",
        f"Exchanges per second with each broker. {_OWN_SCALE}",
        _busiest("broker"),
        _lanes(_EXCHANGES),
    ),
    "by-client": _Kind(
        "Clients",
        f"Exchanges per second of the busiest clients. {_OWN_SCALE}",
        _busiest("client"),
        _lanes(_EXCHANGES),
    ),
    "by-topic": _Kind(
        "Topics",
        f"Bytes of records per second, written to and read from the busiest topics. {_OWN_SCALE}",
        _busiest("topic"),
        _lanes(_RECORDS),
    ),
    "by-group": _Kind(
        "Groups",
        f"Exchanges per second that name a group, such as heartbeats and commits. {_OWN_SCALE}",
        _busiest("group"),
        _lanes(_EXCHANGES),
    ),
    "anomalies": _Kind(
        "Anomalies",
        "Anomalies per second by kind, such as bytes that are missing from the capture (gap).",
        _rate("anomalies"),
        _stacked("per second", {}),
    ),
    "retransmissions": _Kind(
        "Retransmissions",
        "Segments of Kafka connections that were retransmitted, per second.",
        _counts("retransmissions"),
        _stacked("per second", {}),
    ),
    "lost": _Kind(
        "Lost bytes",
        "Bytes of Kafka connections that are missing from the capture, per second.",
        _counts("lost_bytes"),
        _stacked("bytes per second", {}),
    ),
    "connections": _Kind(
        "Connections",
        "Kafka connections opened and ended per second, by who ended them.",
        lambda summary: _over_time(summary, _connections),
        _stacked("per second", _OPENED | {f"ended by {name}": color for name, color in _ENDINGS.items()}),
    ),
    "matrix": _Kind(
        "Hosts and brokers",
        "Connections of each client host to each broker, of the hosts that have the most. Failed ones never "
        "opened.",
        _pairs,
        _matrix,
    ),
    "lifetimes": _Kind(
        "Connections from opening to end",
        "Connections by how they ended. First come those that were reset, that never opened, or that ended "
        "with requests outstanding, then the longest: at most 25 of each kind to each broker.",
        _lifetimes,
        _spans("connection", "ending", _ENDINGS),
    ),
    "lag": _Kind(
        "Consumer lag",
        "Records by which the groups with the largest lag are behind, in all their partitions. Then clients, "
        "by partition: when the lag was first known, when it was largest, and the last.",
        _lag,
        _points,
    ),
    "groups": _Kind(
        "Groups over time",
        "Rebalances of each group, by what started them, and its generations between them. The groups with "
        "the most rebalances come first.",
        _groups,
        _spans("group", "state", _STABLE),
    ),
    "transactions": _Kind(
        "Transactions",
        "Each transaction, by how it ended.",
        _transactions,
        _spans("transactional ID", "outcome"),
    ),
}
"""In the order of the page."""


def chart(name: str, summary: Summary) -> Chart | None:
    """A chart of a summary with all parts; None if there is nothing to draw."""
    kind = KINDS[name]
    columns = kind.columns(summary)
    return None if columns is None else Chart(name, kind.title, kind.caption, columns, kind.form(columns))


def charts(summary: Summary) -> Iterator[Chart]:
    """All charts that have something to show."""
    return filter(None, (chart(name, summary) for name in KINDS))


def drawn(chart: Chart, form: str, width: int) -> bytes:
    """A chart as an image.

    Args:
        chart: the chart.
        form: ``svg``, ``png`` or ``pdf``.
        width: in pixels, without axes and legend.
    """
    rows = [dict(zip(chart.columns, row, strict=True)) for row in zip(*chart.columns.values(), strict=True)]
    spec = chart.spec()
    spec |= {"datasets": spec.get("datasets", {}) | {"rows": rows}, "width": width, "title": chart.title}
    spec["config"] = _CONFIG | {"background": "white", "font": "sans-serif"}
    draw: Callable[..., str | bytes] = getattr(vl_convert, f"vegalite_to_{form}")
    image = draw(spec, **({"scale": 2} if form == "png" else {}))
    return image.encode() if isinstance(image, str) else image


@cache
def bundle() -> str:
    """A script that defines ``vegaEmbed``, with all that it needs."""
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script
