"""Entries of a story -> a sequence diagram as a picture: SVG, or a page of HTML around one.

Both are self-contained, without scripts, and follow the reader's light or dark theme. In the page, the
names of the participants stay in view while it scrolls. Text that has no room is cut; all of it appears under
the pointer.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, tostring

from kdissect.phrases import columns_of, printable, truncate
from kdissect.text.sequence_diagram import arrows_of
from kdissect.text.story import Note, names_of, verdict_lines
from kdissect.text.style import PLAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.text.sequence_diagram import Arrow
    from kdissect.text.story import Entry
    from kdissect.text.style import Style, Times

_CHARACTER, _ROW, _LEFT = 7.25, 22, 6  # pixels: width of a character at 12 px, height of a line, margin
_MIN_LANE, _MAX_LANE = 16, 30  # characters from one participant to the next
_TEXT = 120  # characters beside the lanes
_HEAD = 4  # corner of an arrow's head, pixels

_CSS = """
.story { --ink: #1f2328; --faint: #59636e; --lane: #d1d9e0; --call: #0550ae; --error: #b3202a;
  --note: #ddf4ff; --paper: #ffffff;
  background: var(--paper); font: 12px ui-monospace, Menlo, Consolas, monospace; }
@media (prefers-color-scheme: dark) {
  .story { --ink: #e6edf3; --faint: #9198a1; --lane: #3d444d; --call: #79c0ff; --error: #ff7b72;
    --note: #0f2d4a; --paper: #0d1117; } }
.story text { fill: var(--ink); stroke: var(--paper); stroke-width: 4px; paint-order: stroke;
  white-space: pre; }
.story .note { stroke: none; }
.story .time { fill: var(--faint); }
.story .name, .story .verdict { font-weight: bold; }
.story line { stroke: var(--lane); }
.story path { stroke: var(--call); fill: none; }
.story text.error { fill: var(--error); }
.story path.error { stroke: var(--error); }
.story .response { stroke-dasharray: 4 3; }
.story rect { fill: var(--note); }
"""
_PAGE_CSS = """
body { margin: 0; color-scheme: light dark; background: light-dark(#ffffff, #0d1117);
  color: light-dark(#1f2328, #e6edf3); font: 14px system-ui, sans-serif; }
h1, pre { margin: 12px 16px; font-size: 18px; }
pre { font: 13px/1.5 ui-monospace, Menlo, Consolas, monospace; white-space: pre-wrap; }
svg { display: block; }
.names { position: sticky; top: 0; border-bottom: 1px solid light-dark(#d1d9e0, #3d444d); }
@page { size: landscape; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class _Drawing:
    """Where things are. Heights are in rows, from the top.

    Args:
        rows: of the story, in order, without its verdict.
        times: writes the first column.
        style: names of hosts.
    """

    def __init__(self, rows: Sequence[Entry | Note], times: Times, style: Style) -> None:
        self._style, self._heading = style, times.heading
        self._arrows = [(times.text(arrow.time_ns), arrow) for arrow in arrows_of(rows)]
        names = {participant: style.named(printable(name)) for participant, name in names_of(rows).items()}
        labels = [arrow.label for _, arrow in self._arrows if not isinstance(arrow, Note)]
        widest = max(map(columns_of, [*labels, *names.values()]), default=0) + 6
        self._lane_characters = min(_MAX_LANE, max(_MIN_LANE, widest))
        lane = self._lane_characters * _CHARACTER
        self._left = _LEFT + (max((len(stamp) for stamp, _ in self._arrows), default=0) + 2) * _CHARACTER
        self._names = names
        self._lanes = {each: self._left + lane * (place + 0.5) for place, each in enumerate(names)}
        self.width = round(self._left + lane * len(names) + _TEXT * _CHARACTER)
        self.rows = len(self._arrows) + 1

    def picture(self, rows: int, **attributes: str) -> Element:
        """An empty picture of so many rows."""
        size = {"width": str(self.width), "height": str(rows * _ROW)}
        return Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, **attributes})

    def add_names(self, to: Element, row: int) -> None:
        """The heading: one row."""
        _text(to, _LEFT, row, self._heading, "time")
        for participant, name in self._names.items():
            lane, room = self._lanes[participant], self._lane_characters - 2
            self._add_text(to, lane, row, name, room, "name", "middle")

    def add_arrows(self, to: Element, row: int) -> None:
        """Arrows and notes: ``rows`` of them."""
        top, bottom = row * _ROW, (row + self.rows) * _ROW
        for x in self._lanes.values():
            SubElement(to, "line", {"x1": _px(x), "x2": _px(x), "y1": _px(top), "y2": _px(bottom)})
        for place, (stamp, arrow) in enumerate(self._arrows, row):
            if isinstance(arrow, Note):
                size = {"width": _px(self.width - self._left), "height": _px(_ROW - 4)}
                SubElement(to, "rect", {"x": _px(self._left), "y": _px(place * _ROW + 2), "rx": "3", **size})
                room = int((self.width - self._left) / _CHARACTER) - 1
                text = self._style.named(printable(arrow.text))
                self._add_text(to, self._left + _CHARACTER, place, text, room, "note")
            else:
                self._add_arrow(to, place, arrow)
            _text(to, _LEFT, place, stamp, "time")

    def _add_arrow(self, to: Element, row: int, arrow: Arrow) -> None:
        start, end = self._lanes[arrow.start], self._lanes[arrow.end]
        y, back = (row + 1) * _ROW - 4, -_HEAD if start < end else _HEAD
        name = "error" if arrow.is_error else ""
        line = f"{name} response" if arrow.is_response else name
        SubElement(to, "path", {"d": f"M{_px(start)} {y}H{_px(end)}", "class": line})
        head = f"M{_px(end + back)} {y - _HEAD}L{_px(end)} {y}l{back} {_HEAD}"
        SubElement(to, "path", {"d": head, "class": name})
        room = int(abs(end - start) / _CHARACTER) - 1
        self._add_text(to, (start + end) / 2, row, printable(arrow.label), room, "", "middle")
        beside = max(start, end) + 2 * _CHARACTER
        self._add_text(to, beside, row, self._style.named(printable(arrow.text)), _TEXT, name)

    def _add_text(
        self, to: Element, x: float, row: int, text: str, room: int, name: str = "", anchor: str = "start"
    ) -> None:
        shown = truncate(text, room)
        element = _text(to, x, row, shown, name, anchor)
        if shown != text:
            SubElement(element, "title").text = text


def svg(rows: Sequence[Entry | Note], verdict: Note, times: Times, title: str, style: Style = PLAIN) -> str:
    """A picture: the verdict, and the diagram below it.

    Args:
        rows: of the story, in order, without its verdict.
        verdict: of the story.
        times: writes the first column.
        title: what the story is about.
        style: names of hosts.
    """
    drawing, lines = _Drawing(rows, times, style), _verdict(verdict, times, style)
    root = drawing.picture(len(lines) + 1 + drawing.rows, role="img", **{"class": "story"})
    SubElement(root, "style").text = _CSS
    SubElement(root, "title").text = printable(title)
    for row, line in enumerate(lines):
        _text(root, _LEFT, row, line, "verdict")
    drawing.add_names(root, len(lines))
    drawing.add_arrows(root, len(lines) + 1)
    return tostring(root, encoding="unicode")


def html(rows: Sequence[Entry | Note], verdict: Note, times: Times, title: str, style: Style = PLAIN) -> str:
    """A page; see ``svg``."""
    drawing = _Drawing(rows, times, style)
    names = drawing.picture(1, **{"class": "story names"})
    drawing.add_names(names, 0)
    arrows = drawing.picture(drawing.rows, **{"class": "story"})
    drawing.add_arrows(arrows, 0)
    heading, lines = escape(printable(title)), escape("\n".join(_verdict(verdict, times, style)))
    pictures = "\n".join(tostring(each, encoding="unicode") for each in (names, arrows))
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{heading}</title>
<style>{_CSS}{_PAGE_CSS}</style>
<h1>{heading}</h1>
<pre>{lines}</pre>
{pictures}
</html>
"""


def _verdict(verdict: Note, times: Times, style: Style) -> list[str]:
    return [line.rstrip("\n") for line in verdict_lines(verdict, times, None, style)]


def _text(to: Element, x: float, row: int, text: str, name: str = "", anchor: str = "start") -> Element:
    """Text on a row."""
    place = {"x": _px(x), "y": _px((row + 1) * _ROW - 7), "class": name, "text-anchor": anchor}
    element = SubElement(to, "text", place)
    element.text = text
    return element


def _px(value: float) -> str:
    return f"{value:g}" if value < 1e5 else f"{value:.0f}"
