"""Current statistics and the state of the UI -> the lines of a terminal. Stateless.

title       the source, the time, PAUSED
headline    all exchanges together: rate, errors, latencies, bytes
panes       one at 80x24, more if there is room, all from 160 columns on
news        the latest errors and rebalances, whichever pane is shown
counters    packets, drops, memory
keys
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from kdissect.phrases import columns_of, many, printable, size, truncate, wrapped
from kdissect.stats.pulse_groups import REBALANCING
from kdissect.text.dashboard_panes import ALARM, EVENTS, FAINT, PANES, WARNING, amount, clock, latency, rate
from kdissect.text.style import PLAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from kdissect.stats.pulse import PulseSnapshot
    from kdissect.text.dashboard_panes import Pane, PaneView
    from kdissect.text.style import Style


if TYPE_CHECKING:
    Line = list[tuple[str, str]]
    """Pieces of text, each with words of rich's styles or names of ``Style.looks``."""

TWO_COLUMNS = 160  # terminal columns from which panes are side by side
MIN_NAME = 22  # terminal columns kept for names: other columns are dropped first
_MIN_ROWS = 9  # of a pane, including title and headings
_EVENT_ROWS, _MORE_EVENT_ROWS = 6, 11
_TALL = 40
_FIXED = 5  # title, headline, tabs, counters, keys
_GAP = "  "
_NO_PACKET_S, _NO_EXCHANGE_S = 2.0, 5.0
_LOST, _LOST_SHARE = 10, 0.01  # segments: as for the finding network-loss
_HEADING, _SORTED, _TAB, _SELECTED = FAINT, "bold", "", "reverse"


class StatusBar(NamedTuple):
    """What is shown besides the statistics.

    Attributes:
        name: of the source.
        by_kernel, by_us: packets dropped by the kernel and by kdissect.
        memory_bytes: of this process; None if unknown.
        message: the latest line for stderr.
        has_ended: whether no more packets will come.
        has_keys: whether there is a keyboard.
    """

    name: str
    by_kernel: int = 0
    by_us: int = 0
    memory_bytes: int | None = None
    message: str = ""
    has_ended: bool = False
    has_keys: bool = True


def draw(
    now: PulseSnapshot, state: UiState, status: StatusBar, width: int, height: int, style: Style = PLAIN
) -> list[Text]:
    """The screen, line by line, each as wide as the terminal. ``style``: colors, and names of hosts."""
    lines = [_title(now, state, status, width), _headline(now, width), _tabs(state)]
    room = max(0, height - _FIXED - bool(status.message))
    lines += _help(width, room) if state.is_help else _body(now, state, width, room, style)
    lines += [[(style.named(status.message), WARNING)]] if status.message else []
    lines += [_counters(now, status, width), _keys(status)]
    return [_text(line, width, style) for line in lines[:height]]


def _title(now: PulseSnapshot, state: UiState, status: StatusBar, width: int) -> Line:
    time = "" if now.now_ns is None else f"  {clock(now.now_ns)} UTC"
    left = [(f"kdissect live {status.name}", "heading"), (f"{time}  rates over {ceil(now.seconds)} s", "")]
    states: Line = []
    if state.is_paused:
        states.append((" PAUSED ", f"{_SELECTED} {WARNING}"))
    if status.has_ended:
        states.append((" ENDED ", f"{_SELECTED} {WARNING}"))
    gap = width - sum(columns_of(text) for text, _ in (*left, *states))
    return [*left, (" " * gap, ""), *states]


def _headline(now: PulseSnapshot, width: int) -> Line:
    if now.now_ns is None:
        return [("waiting for packets", WARNING)]
    if not now.exchanges:
        hint = (
            f"{many(now.packets, 'packet')}, but no Kafka exchanges yet; -d tcp.port==PORT,kafka decodes a "
            "port as Kafka"
        )
        return [(hint, WARNING)]
    every = now.all
    failed = f"{100 * every.failed_per_second / (every.per_second or 1):.1f}% errors"
    inactivity = f"no packets for {now.silent_s:.0f} s" if now.silent_s > _NO_PACKET_S else ""
    inactivity = inactivity or (f"no exchange for {now.idle_s:.0f} s" if now.idle_s > _NO_EXCHANGE_S else "")
    rebalancing = sum(group.state == REBALANCING for group in now.groups)
    percentiles = (("p50", every.p50_us), ("p95", every.p95_us), ("p99", every.p99_us))
    latencies = " ".join(f"{name} {latency(us)}" for name, us in percentiles) + f" n {every.measured:,}"
    return _fitting(
        width,
        (inactivity, ALARM) if inactivity else None,
        (f"{rate(every.per_second)} exchanges/s", "bold"),
        (failed, ALARM) if every.failed_per_second else ("no errors", "green"),
        (f"{now.not_opened:,} not opened", ALARM) if now.not_opened else None,
        (f"{now.cut_off:,} cut off", ALARM) if now.cut_off else None,
        (f"{100 * now.lost / now.segments:.1f}% of segments lost", WARNING) if _is_dropping(now) else None,
        (f"{rebalancing:,} rebalancing", WARNING) if rebalancing else None,
        (latencies, "bold"),
        (f"{rate(every.throttled)} throttled/s", WARNING) if every.throttled else None,
        (f"in {amount(every.request_bytes)}/s  out {amount(every.response_bytes)}/s", ""),
    )


def _is_dropping(now: PulseSnapshot) -> bool:
    """Whether more is lost than usual."""
    return now.lost >= _LOST and now.lost >= _LOST_SHARE * now.segments


def _tabs(state: UiState) -> Line:
    line: Line = []
    for number, pane in enumerate(PANES):
        line += [(f" {number + 1} {pane.title} ", _SELECTED if number == state.pane else _TAB), (" ", "")]
    return line


def _body(now: PulseSnapshot, state: UiState, width: int, room: int, style: Style) -> list[Line]:
    """The panes that fit, and the news below them."""
    columns = 2 if width >= TWO_COLUMNS else 1
    events = 0
    if room >= 2 * _EVENT_ROWS:
        events = _MORE_EVENT_ROWS if room >= _TALL - _FIXED else _EVENT_ROWS
    rows = min(max(1, (room - events) // _MIN_ROWS), EVENTS // columns)
    if state.pane == EVENTS and rows * columns < EVENTS:
        return _pane(EVENTS, now, state, width, room, style, is_titled=False)
    first = 0 if rows * columns == EVENTS else state.pane
    shown = [(first + place) % EVENTS for place in range(rows * columns)]
    lines: list[Line] = []
    each = (width - len(_GAP) * (columns - 1)) // columns
    for row in range(rows):
        high = (room - events) * (row + 1) // rows - (room - events) * row // rows
        is_titled = len(shown) > 1
        beside = [
            _pane(number, now, state, each, high, style, is_titled=is_titled)
            for number in shown[row * columns : (row + 1) * columns]
        ]
        lines += (
            beside[0]
            if columns == 1
            else [_joined(left, right, each) for left, right in zip(*beside, strict=True)]
        )
    return lines + (_pane(EVENTS, now, state, width, events, style, is_titled=True) if events else [])


def _pane(
    number: int, now: PulseSnapshot, state: UiState, width: int, height: int, style: Style, *, is_titled: bool
) -> list[Line]:
    """A table of exactly this size."""
    pane = PANES[number]
    sort, is_reversed = state.sorts[number], number in state.reversed
    columns = _columns(pane, width)
    widths = _widths(columns, width)
    rows = pane.ordered(now, sort, is_reversed=is_reversed)
    below = max(0, height - is_titled - 1)
    scroll = min(state.scroll, max(0, len(rows) - below)) if number == state.pane else 0
    shown = rows[scroll : scroll + below]
    lines: list[Line] = []
    if is_titled:
        more = f"  {scroll + 1}-{scroll + len(shown)} of {len(rows)}" if len(rows) > below else ""
        title = f"{number + 1} {pane.title}{more} "
        lines.append(
            [(title, "heading" if number == state.pane else ""), ("─" * max(0, width - len(title)), FAINT)]
        )
    lines.append(_headings(columns, widths, pane.columns[sort], is_reversed=is_reversed))
    for row in shown:
        is_idle = pane.is_idle(row, now)
        cells = [
            (style.named(column.cell(row)), FAINT if is_idle else column.style(row)) for column in columns
        ]
        lines.append(_cells(columns, widths, cells))
    if not rows:
        lines.append([(pane.empty, FAINT)])
    lines += [[] for _ in range(height - len(lines))]
    return lines[:height]


def _columns(pane: Pane, width: int) -> list[PaneView]:
    """The columns that fit: optional ones are dropped first, from the right."""
    columns = list(pane.columns)
    for column in reversed(pane.columns):
        if not column.keep and _left(columns, width) < MIN_NAME:
            columns.remove(column)
    return columns


def _left(columns: Sequence[PaneView], width: int) -> int:
    return width - sum(column.width for column in columns) - (len(columns) - 1)


def _widths(columns: Sequence[PaneView], width: int) -> list[int]:
    """The widths of the columns; those without a width share the remaining space."""
    left = _left(columns, width)
    return [column.width or max(1, left) for column in columns]


def _headings(columns: Sequence[PaneView], widths: Sequence[int], by: PaneView, *, is_reversed: bool) -> Line:
    arrow = "▲" if by.right == is_reversed else "▼"
    cells = [
        (f"{column.heading}{arrow}", _SORTED) if column is by else (column.heading, _HEADING)
        for column in columns
    ]
    return _cells(columns, widths, cells)


def _cells(columns: Sequence[PaneView], widths: Sequence[int], cells: Sequence[tuple[str, str]]) -> Line:
    line: Line = []
    for column, width, (cell, style) in zip(columns, widths, cells, strict=True):
        text = truncate(printable(cell), width)
        gap = " " * (width - columns_of(text))
        line.append((gap + text if column.right else text + gap, style))
        line.append((" ", ""))
    return line[:-1]


def _joined(left: Line, right: Line, width: int) -> Line:
    gap = " " * max(0, width - sum(columns_of(text) for text, _ in left))
    return [*left, (gap + _GAP, ""), *right]


def _counters(now: PulseSnapshot, status: StatusBar, width: int) -> Line:
    dropped = status.by_kernel + status.by_us
    drops = f"{dropped:,} DROPPED: {status.by_kernel:,} by the kernel, {status.by_us:,} by kdissect"
    memory, per_second = status.memory_bytes, now.packets_per_second
    return _fitting(
        width,
        (many(now.packets, "packet") + (f" ({rate(per_second)}/s)" if per_second else ""), ""),
        (drops, ALARM) if dropped else ("0 dropped", "green"),
        (f"memory {size(memory)}", "") if memory is not None else None,
        (many(now.connections, "connection"), ""),
        (many(now.exchanges, "exchange"), ""),
    )


def _fitting(width: int, *pieces: tuple[str, str] | None) -> Line:
    """Pieces side by side, as many as fit."""
    line: Line = []
    left = width
    for text, style in filter(None, pieces):
        left -= columns_of(text)
        if left < 0 and line:
            break
        line += [(text, style), (_GAP, "")]
        left -= len(_GAP)
    return line


def _keys(status: StatusBar) -> Line:
    if not status.has_keys:
        return [("no keyboard; Ctrl-C quits", FAINT)]
    return [("Tab pane  ←→ sort  r reverse  ↑↓ scroll  p pause  h help  q quit", FAINT)]


def _help(width: int, room: int) -> list[Line]:
    lines: list[Line] = [[], *([(f"  {keys:28}", "bold"), (meaning, "")] for keys, meaning in KEYS), []]
    lines += [[(line, "")] for line in wrapped(_EXPLANATION, min(width, TWO_COLUMNS // 2), "  ")]
    lines += [[] for _ in range(room - len(lines))]
    return lines[:room]


def _text(line: Line, width: int, style: Style) -> Text:
    from rich.text import Text

    text = Text(no_wrap=True, end="")
    for piece, words in line:
        text.append(printable(piece), " ".join(style.looks.get(word, word) for word in words.split()).strip())
    text.truncate(width, overflow="crop", pad=True)
    return text


# ------------------------------------------------------------------------------------------------------------
# Keys -> the state of the UI.
# ------------------------------------------------------------------------------------------------------------


PAGE = 10  # rows

KEYS = (
    ("1-5", "go to that pane"),
    ("Tab", "next pane"),
    ("left, right", "sort by another column"),
    ("r", "reverse the sort order"),
    ("up, down, PgUp, PgDn, Home", "scroll"),
    ("p, Space", "pause the display; counting continues"),
    ("h, ?", "show or hide this help"),
    ("q, Ctrl-C", "quit"),
)
"""Keys and what they do, for the help."""
_EXPLANATION = (
    "  Rates are per second, over the last ten seconds. IN: sent by clients; OUT: by brokers. P50, P95, P99: "
    "of N service times, excluding waits. WAITS/s: requests that the broker held by design: long polls, "
    "JoinGroup, SyncGroup. ERRORS: exchanges with an error that is not expected. CONN: connections "
    "active in the last minute. REPLICATED/s: fetched by other brokers. LAG: records from the committed "
    "offsets to the ends of the partitions; WORST: the partition with the most. REBAL: rebalances. Dimmed "
    "rows are idle; they disappear after a minute, unless all are idle."
)


@dataclass(slots=True)
class UiState:
    """What the user has selected.

    Attributes:
        pane: index in ``PANES``.
        sorts: index of the sort column of each pane.
        reversed: panes with reversed sort order.
        scroll: rows scrolled past in the pane.
    """

    pane: int = 0
    sorts: list[int] = field(default_factory=lambda: [pane.sort for pane in PANES])
    reversed: set[int] = field(default_factory=set)
    scroll: int = 0
    is_paused: bool = False
    is_help: bool = False
    is_quitting: bool = False

    def press(self, key: str) -> None:
        """Handle a key: a character, or the name of a key without one. Unknown keys are ignored."""
        if key == "q":
            self.is_quitting = True
        elif key in ("h", "?"):
            self.is_help = not self.is_help
        elif key == "escape":
            self.is_help = False
        elif key in ("p", " "):
            self.is_paused = not self.is_paused
        elif key in ("tab", "backtab"):
            self._switch_to((self.pane + (1 if key == "tab" else -1)) % len(PANES))
        elif key.isdecimal() and 1 <= int(key) <= len(PANES):
            self._switch_to(int(key) - 1)
        elif key in ("left", "right", "<", ">"):
            columns = len(PANES[self.pane].columns)
            step = 1 if key in ("right", ">") else -1
            self.sorts[self.pane] = (self.sorts[self.pane] + step) % columns
        elif key == "r":
            self.reversed ^= {self.pane}
        else:
            steps = {"down": 1, "j": 1, "up": -1, "k": -1, "pagedown": PAGE, "pageup": -PAGE}
            self.scroll = 0 if key == "home" else max(0, self.scroll + steps.get(key, 0))

    def _switch_to(self, pane: int) -> None:
        if pane != self.pane:
            self.pane, self.scroll = pane, 0
