"""``VersionsPart`` -> the part of a summary's page to read before an upgrade. Holds nothing."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from kdissect.sinks.page import Heading, Section, narrowed
from kdissect.sinks.phrases import absent, listed, many

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.analysis.summary.versionsdocument import OfferRow, UsedRow, VersionsPart

_USED = (
    Heading("CLIENT", gives=True),
    Heading("SOFTWARE", gives=True),
    Heading("FROM", gives=True),
    Heading("API"),
    Heading("VERSION", right=True),
    Heading("SINCE", right=True),
    Heading("REFUSED FROM"),
    Heading("COUNT", right=True),
    Heading("LAST"),
    Heading("EXAMPLE"),
)
_KEPT = {"CLIENT", "API", "VERSION", "REFUSED FROM", "COUNT"}
_OFFERS = (
    Heading("BROKER"),
    Heading("RELEASE"),
    Heading("OFFERED", right=True),
    Heading("USED", right=True),
    Heading("NOBODY USES", gives=True),
)


def sections(part: VersionsPart, *, limit: int | None, narrow: bool = False) -> Iterator[Section]:
    """Yield what breaks, what else is used, and what is offered."""
    refused, taken = part.used[: part.refused], part.used[part.refused :]
    releases = sorted({row.removed for row in refused if row.removed})
    clients = len({(row.client, row.software) for row in refused})
    verdict = (
        f"{many(clients, 'client')} with versions that Kafka {' and '.join(releases)} refuse"
        if refused
        else "no client uses a version that a newer Kafka refuses"
    )
    yield _used("Refused by a newer Kafka", refused, limit, narrow)._replace(notes=(verdict,))
    if taken:
        yield _used("Other versions in use", taken, limit, narrow)
    if part.offered:
        yield _offers(part.offered, limit)


def _used(title: str, rows: Sequence[UsedRow], limit: int | None, narrow: bool) -> Section:
    shown = rows[:limit]
    cells = [
        [
            row.client,
            absent(row.software),
            listed(row.addresses),
            row.api,
            str(row.version),
            absent(row.since),
            absent(row.removed),
            f"{row.count:,}",
            f"{row.last:%H:%M:%S}",
            row.example,
        ]
        for row in shown
    ]
    return narrowed(Section(title, _USED, cells, left_out=len(rows) - len(shown)), narrow, _KEPT)


def _offers(rows: Sequence[OfferRow], limit: int | None) -> Section:
    cells: list[list[str]] = []
    for broker, group in groupby(rows, key=lambda row: row.broker):
        offered = list(group)
        idle = [row.api for row in offered if not row.used]
        used = len(offered) - len(idle)
        cells.append([broker, absent(offered[0].release), f"{len(offered)}", f"{used}", ", ".join(idle)])
    shown = cells[:limit]
    return Section("What brokers offer", _OFFERS, shown, left_out=len(cells) - len(shown))
