"""``Summary`` and ``Check`` -> one page of HTML, which needs no network and, but for its charts, no script.

The tables are those of the text page, so a name looks the same in both. Holds the page, which has a limited
size whatever the capture is: a table ends where the room for all tables is used up, and charts have a limited
number of points.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect import __version__
from kdissect.capture.inputs import STDIN
from kdissect.errors import UsageError
from kdissect.extras import install
from kdissect.phrases import between, duration, listed, many, printable, size, truncate
from kdissect.stats.views import ranked, viewed
from kdissect.text import charts, check_page, summary_page

try:
    from jinja2 import Environment, PackageLoader
    from markupsafe import Markup
except ImportError as error:
    raise UsageError(f"reports need Jinja2: {install('report')}") from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.stats.document import EvidenceRow, FindingRow, SlowRow, Summary
    from kdissect.stats.quality import Check
    from kdissect.text.charts import Chart
    from kdissect.text.page import PageSection
    from kdissect.text.style import Style

ROWS = 100
"""Of a table, at most."""
_GROUPS = 20  # of each kind of table about one group, and of rows in each of them
_FINDINGS = 50
_LINE, _CELL = 600, 160  # columns of text
_TABLE_BYTES = 500_000  # of all tables together; with the charts and their script, less than 3 MB
_LINK = Markup('<a href="#x-{0}">{0}</a>')  # to the latency of an exchange
_POLICY = "default-src 'none'; script-src {scripts}; style-src {styles}; base-uri 'none'; form-action 'none'"


class HtmlTable(NamedTuple):
    """A table, or lines of text.

    Attributes:
        columns: headings, and whether each is of numbers.
        left_out: what is not in it.
    """

    id: str
    title: str
    notes: Sequence[str]
    columns: Sequence[tuple[str, bool]]
    rows: Sequence[Sequence[str]]
    left_out: str


class Stretch(NamedTuple):
    """A part of a latency; where it starts and how long it is, in thousandths of the longest latency."""

    name: str
    start: float
    length: float
    text: str


class Waterfall(NamedTuple):
    """The times of an exchange, in order; ``result``: its outcome and errors."""

    row: EvidenceRow | SlowRow
    result: str
    text: str
    stretches: list[Stretch]


def page(summary: Summary, check: Check, evidence: Sequence[EvidenceRow], style: Style) -> str:
    """The page.

    Args:
        summary: with all parts.
        check: of the same captures.
        evidence: exchanges that findings name.
        style: has names of hosts.
    """

    def text(value: object, limit: int = _LINE) -> str:
        return truncate(style.named(printable(str(value))), limit)

    names = [text("stdin" if name == STDIN else Path(name).name) for name in summary.capture.captures]
    shown = {row.exchange for row in evidence}
    slowest = [row for row in summary.slowest or () if row.exchange not in shown]
    falls = _waterfalls(evidence), _waterfalls(slowest)
    anchors = shown | {row.exchange for row in slowest}

    def cell(value: str) -> str:
        known = text(value, _CELL)
        return _LINK.format(known) if known in anchors else known

    tables = list(_tables(summary, text, cell))
    quality = list(_html(check_page.sections(check, limit=_GROUPS), text, cell, "quality", _TABLE_BYTES // 4))
    drawn = list(charts.charts(summary))
    environment = Environment(
        loader=PackageLoader("kdissect.text", "report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "text": text,
        "moment": "{:%Y-%m-%d %H:%M:%S.%f}".format,
    }
    scripts = [charts.bundle(), _file("report.js")] if drawn else [_file("report.js")]
    style_sheet = _file("report.css")
    policy = _POLICY.format(scripts=" ".join(map(_hash, scripts)), styles=_hash(style_sheet))
    rows = summary.findings or []
    return environment.get_template("report.html").render(
        policy=policy,
        style=Markup(style_sheet),
        scripts=list(map(Markup, scripts)),
        version=__version__,
        title=f"Kafka traffic in {listed(names)}",
        capture=summary_page.capture(summary.capture).notes,
        verdicts=[("Capture", summary.quality), ("Traffic", summary.health)],
        findings=rows[:_FINDINGS],
        more_findings=max(0, len(rows) - _FINDINGS),
        when=_when,
        facts_of=lambda row: (
            ("Whom", _scope(row)),
            ("Cost", _cost(row)),
            ("Explained by", row.explained_by),
        ),
        anchors=anchors,
        charts=drawn,
        data=Markup(
            _json(
                [{"name": each.name, "spec": each.spec(), "columns": _new(each, drawn[0])} for each in drawn]
            )
        ),
        tables=tables,
        evidence=falls[0],
        slowest=falls[1],
        parts=_PARTS,
        quality=quality,
    )


def _file(name: str) -> str:
    return files("kdissect.text").joinpath("report", name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    """What a Content-Security-Policy calls a script or style sheet."""
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"


def _new(chart: Chart, first: Chart) -> dict[str, list[Any] | None]:
    """The columns of a chart; None: its times are those of the first one."""
    same = {
        name for name in ("t", "e") if chart is not first and chart.columns.get(name) == first.columns[name]
    }
    return {name: None if name in same else values for name, values in chart.columns.items()}


def _json(value: Any) -> str:
    """JSON that cannot end the element it is in."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _scope(row: FindingRow) -> str:
    """Whom it is about: some names, and the number of connections, whose IDs only evidence needs."""
    return "; ".join(
        number
        if names is row.scope.connections
        else f"{number}: {', '.join(names.names)}{', ...' if (names.count or 0) > len(names.names) else ''}"
        for number, names in summary_page.hit(row.scope)
    )


def _cost(row: FindingRow) -> str:
    return ", ".join(summary_page.cost(row.impact))


def _when(row: FindingRow) -> str:
    return between(row.first, row.last, digits=3)


# ------------------------------------------------------------------------------------------------------------
# Tables.
# ------------------------------------------------------------------------------------------------------------


def _tables(summary: Summary, text: Any, cell: Any) -> Iterator[HtmlTable]:
    """The tables of the text page, without what the page shows otherwise."""
    rest = _rest(summary)
    tables = replace(summary, intervals=None, slowest=None, findings=None, group_history=None)
    groups = replace(viewed(summary, parts=("group_history",)), intervals=None, other={})
    pages = summary_page.sections(tables, limit=ROWS), summary_page.sections(groups, limit=_GROUPS)
    sections = (section for each in pages for section in each if section.title != "Capture")
    for table in _html(sections, text, cell, "table", _TABLE_BYTES):
        more = rest.get(table.title)
        yield table._replace(left_out=more) if more and table.left_out else table


def _rest(summary: Summary) -> dict[str, str]:
    """What the rows have in sum that are not in a table, by its title."""
    sums = {}
    for title, rows in (
        ("APIs", summary.apis),
        ("Brokers", summary.brokers),
        ("Clients", summary.clients),
        ("Topics", summary.topics),
    ):
        if others := (rows or [])[ROWS:]:
            count, moved = (round(sum(ranked(row, order) for row in others)) for order in ("count", "bytes"))
            noun = "record" if title == "Topics" else "exchange"
            sums[title] = f"{len(others):,} others with {many(count, noun)} and {size(moved)}"
    return sums


def _html(
    sections: Iterable[PageSection], text: Any, cell: Any, prefix: str, room: int
) -> Iterator[HtmlTable]:
    """Sections, as long as there is room for their text."""
    for number, section in enumerate(sections, 1):
        columns = [(view.heading, view.right) for view in section.views]
        title = text(section.title, _CELL)
        room -= 3 * _bytes(title)
        rows: list[list[str]] = []
        for row in section.rows:
            cells = [*map(cell, row)]
            room -= sum(map(_bytes, cells))
            if room < 0:
                break
            rows.append(cells)
        left_out = section.left_out + len(section.rows) - len(rows)
        notes = []
        for note in map(text, section.notes):
            room -= _bytes(note)
            notes += [note] if room > 0 else []
        more = f"{many(left_out, 'more row')}, not shown" if left_out else ""
        yield HtmlTable(f"{prefix}-{number}", title, notes, columns, rows, more)


def _bytes(cell: str) -> int:
    """How long a cell is in HTML, at most."""
    return len(cell.encode(errors="replace")) + 4 * sum(map(cell.count, "<>&\"'")) + len("<td class=n></td>")


# ------------------------------------------------------------------------------------------------------------
# Latencies.
# ------------------------------------------------------------------------------------------------------------


_PARTS = {
    "request_transfer": "request",
    "queued": "queued behind other requests of the connection",
    "throttled": "throttled",
    "network": "until the request was retransmitted",
    "wait": "held by the broker",
    "service": "service time",
    "unknown": "not known which",
    "response_transfer": "response",
}
"""Parts of the time that an exchange took, in order, and what they mean."""


def _waterfalls(rows: Sequence[EvidenceRow | SlowRow]) -> list[Waterfall]:
    times = [_times(row) for row in rows]
    longest = max((sum(each.values()) for each in times), default=0) or 1
    return [_waterfall(row, each, longest) for row, each in zip(rows, times, strict=True)]


def _times(row: EvidenceRow | SlowRow) -> dict[str, int]:
    """Microseconds of each part that is known and took any."""
    times = {name: getattr(row, f"{name}_us", None) or 0 for name in _PARTS}
    known = sum(times[name] for name in ("queued", "throttled", "network", "wait", "service"))
    times["unknown"] = max(0, (row.latency_us or 0) - known)
    return {name: length for name, length in times.items() if length}


def _waterfall(row: EvidenceRow | SlowRow, times: dict[str, int], longest: int) -> Waterfall:
    stretches, start = [], 0
    for name, length in times.items():
        text = f"{name.replace('_', ' ')} {duration(length * 1000)}"
        stretches.append(Stretch(name, 1000 * start / longest, 1000 * length / longest, text))
        start += length
    result = ", ".join([getattr(row, "outcome", ""), *getattr(row, "errors", ())])
    return Waterfall(row, result, ", ".join(each.text for each in stretches), stretches)
