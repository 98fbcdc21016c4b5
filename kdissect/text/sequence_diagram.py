"""Entries of a story -> a sequence diagram: text with a column for each participant, or Mermaid's language.

    TIME          writer          10.0.0.1:9092   reader
    12:00:00.001  |--- Produce -->|               |  orders-0, 1 record, 24 B -> offset 0, 1.20ms
    12:00:00.013  |               |... Fetch ....>|  fetched, 12.1ms end to end

The arrow of a response is dotted. A response has its own arrow only if something came before it, or if it
carried the record of the story. Names come from the network: both forms escape them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kdissect.phrases import columns_of, facts, printable, truncate, wrapped
from kdissect.text.story import Entry, Note, names_of
from kdissect.text.style import CYAN, FAINT, PLAIN, RED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kdissect.text.story import Participant
    from kdissect.text.style import Style, Times

_MAX_SPACING, _DEFAULT_SPACING, _MIN_SPACING = 26, 12, 8  # terminal columns from one participant to the next
_MIN_TEXT = len("123.4ms")  # shorter texts are omitted
_GAP = "  "
_UNBOUNDED = 1_000_000  # columns of a pipe or file, where nothing is truncated


class Arrow(NamedTuple):
    """A message.

    Attributes:
        start, end: who sent it, who received it.
        label: on the arrow; ``text``: beside it.
        is_error: whether the response has errors.
    """

    time_ns: int
    start: Participant
    end: Participant
    is_response: bool
    label: str
    text: str
    is_error: bool = False


def arrows_of(rows: Sequence[Entry | Note]) -> list[Arrow | Note]:
    """The verdict, if it is among the rows, then arrows and notes in order of time."""
    arrows: list[Arrow | Note] = []
    for row in rows:
        if isinstance(row, Note):
            arrows.append(row._replace(text=f"{row.text}; {row.why}") if row.why else row)
            continue
        label = row.name + (f" x{row.count:,}" if row.count > 1 else "")
        forth = row.time_ns, row.client, row.broker, False, label
        back = row.end_ns, row.broker, row.client, True, label
        result, failed = facts(*row.errors, row.latency), bool(row.errors)
        if row.carries:
            arrows.append(Arrow(*back, facts(*row.errors, row.text), failed))
        elif row.count == 1 and any(row.time_ns < other.time_ns < row.end_ns for other in rows):
            arrows += [Arrow(*forth, row.text), Arrow(*back, result, failed)]
        else:
            arrows.append(Arrow(*forth, facts(result, row.text), failed))
    return sorted(arrows, key=lambda arrow: (not (isinstance(arrow, Note) and arrow.why), arrow.time_ns))


def text_diagram(
    rows: Sequence[Entry | Note], times: Times, *, width: int | None, style: Style = PLAIN
) -> list[str] | None:
    """The lines of the diagram. None if its participants do not fit.

    Args:
        rows: of the story, in order.
        times: writes the first column.
        width: of the terminal; None: no limit.
        style: of headings, errors and notes, and names of hosts.
    """
    arrows = arrows_of(rows)
    names = {participant: style.named(printable(name)) for participant, name in names_of(rows).items()}
    stamps = [times.text(arrow.time_ns) for arrow in arrows]
    margin = max(map(len, stamps), default=0)
    room = (width or _UNBOUNDED) - margin - len(_GAP)
    spaces = max(1, len(names) - 1)
    preferred = max((len(arrow.label) + 5 for arrow in arrows if isinstance(arrow, Arrow)), default=0)
    spacing = min(_MAX_SPACING, max(_DEFAULT_SPACING, preferred))
    if room - spaces * spacing - 3 < _MIN_TEXT:
        spacing = (room - 3 - _MIN_TEXT) // spaces
    if spacing < _DEFAULT_SPACING:
        spacing = (room - _MIN_SPACING) // spaces
    if spacing < _MIN_SPACING:
        return None
    lanes = {participant: place * spacing for place, participant in enumerate(names)}
    heading = _heading(list(names.values()), spacing, room)
    lines = [
        style.paint(f"{'' if place else times.heading:{margin}}{_GAP}{line}".rstrip(), FAINT)
        for place, line in enumerate(heading)
    ]
    for stamp, arrow in zip(stamps, arrows, strict=True):
        if isinstance(arrow, Note):
            indent = " " * (margin + len(_GAP) + 2)
            note = wrapped(
                f"{stamp.ljust(margin)}{_GAP}* {style.named(printable(arrow.text))}", width, indent
            )
            lines += [style.paint(line, CYAN) for line in note]
            continue
        line = _drawn(arrow, lanes)
        left = room - len(line) - len(_GAP)
        text = truncate(style.named(printable(arrow.text)), left) if left >= _MIN_TEXT else ""
        text = style.paint(text, RED) if arrow.is_error else text
        lines.append(f"{stamp.ljust(margin)}{_GAP}{line}{_GAP}{text}".rstrip())
    return lines


def _heading(names: list[str], spacing: int, room: int) -> list[str]:
    """The names above their lanes; numbered, with a list below, if one has to be cut."""
    is_cut = any(columns_of(name) > spacing - 2 for name in names[:-1])
    listed = [f"{number} {name}" for number, name in enumerate(names, 1)] if is_cut else names
    cells = [truncate(name, spacing - 2) for name in listed[:-1]]
    cells = [cell + " " * (spacing - columns_of(cell)) for cell in cells]
    last = truncate(listed[-1], room - len(cells) * spacing) if listed else ""
    return ["".join((*cells, last)), *((truncate(line, room) for line in listed) if is_cut else ())]


def _drawn(arrow: Arrow, lanes: Mapping[Participant, int]) -> str:
    start, end = lanes[arrow.start], lanes[arrow.end]
    left, right = min(start, end), max(start, end)
    line = "".join("|" if place in lanes.values() else " " for place in range(max(lanes.values()) + 1))
    length = right - left - 2
    label = truncate(arrow.label, length)
    between = (f" {label} " if len(label) + 2 <= length else label).center(
        length, ".-"[not arrow.is_response]
    )
    drawn = f"{between}>" if start < end else f"<{between}"
    return line[: left + 1] + drawn + line[right:]


# ------------------------------------------------------------------------------------------------------------
# Mermaid (https://mermaid.js.org/syntax/sequenceDiagram.html).
#
# In a text, ``#`` and ``;`` end a statement, and ``#59;`` stands for a character. Everything else that
# Mermaid, HTML or Markdown could interpret is written that way too. The word ``end`` would close a block.
# ------------------------------------------------------------------------------------------------------------


_MERMAID_NAME, _MERMAID_TEXT = 60, 100  # characters: Mermaid draws at most 50,000 in total
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9 ,./=-]|(?<![A-Za-z0-9])-|-(?![A-Za-z0-9])|\b[Ee](?=[Nn][Dd]\b)")


def mermaid(rows: Sequence[Entry | Note], style: Style = PLAIN) -> Iterator[str]:
    """The lines of a ``sequenceDiagram``, with names of hosts."""
    names = {participant: style.named(name) for participant, name in names_of(rows).items()}
    ids = {participant: f"p{number}" for number, participant in enumerate(names, 1)}
    yield "sequenceDiagram"
    for participant, name in names.items():
        yield f"    participant {ids[participant]} as {_escaped(name, _MERMAID_NAME)}"
    around = ",".join(dict.fromkeys((*list(ids.values())[:1], *list(ids.values())[-1:])))
    for arrow in arrows_of(rows):
        if isinstance(arrow, Note):
            yield f"    Note over {around}: {_escaped(style.named(arrow.text))}"
        else:
            stroke = "-->>" if arrow.is_response else "->>"
            text = _escaped(style.named(f"{arrow.label}: {arrow.text}" if arrow.text else arrow.label))
            yield f"    {ids[arrow.start]}{stroke}{ids[arrow.end]}: {text}"


def _escaped(text: str, limit: int = _MERMAID_TEXT) -> str:
    return _NOT_PLAIN.sub(lambda match: f"#{ord(match[0])};", truncate(printable(text), limit))
