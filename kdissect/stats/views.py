"""Summary -> a summary with selected tables, another order or fewer rows. Holds no state."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kdissect.stats.document import ExchangesByRow, LoadRow, RecordsByRow, Spread, Summary, TopicRow
from kdissect.stats.summarizer import OF_PARTS, PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

TABLES = {
    "api": "apis",
    "client": "clients",
    "broker": "brokers",
    "topic": "topics",
    "partition": "partitions",
    "group": "groups",
    "connection": "connections",
}
"""The table of a summary by each column."""
_GROUPED = frozenset({"exchanges_by", "records_by"})


_ALWAYS = frozenset({"schema_version", "quality", "health", "capture", "intervals", "other"})


def viewed(summary: Summary, by: Sequence[str] = (), parts: Collection[str] = ()) -> Summary:
    """Keep only the table by one column or several, or some parts, with capture and time series; all tables
    if none is selected.
    """
    kept = {*_ALWAYS, *parts, *(name for name, part in OF_PARTS.items() if part in parts)}
    if by:
        kept.update({TABLES[by[0]]} if len(by) == 1 else _GROUPED)
    elif not parts:
        kept.update(each.name for each in fields(summary) if each.name not in {*PARTS, *OF_PARTS})
    left_out: dict[str, Any] = {each.name: None for each in fields(summary) if each.name not in kept}
    return replace(summary, **left_out)


def ordered(summary: Summary, order: str | None) -> Summary:
    """Sort the tables by ``count``, ``bytes``, ``latency`` ..."""
    if order is None:
        return summary
    change: dict[str, Any] = {}
    for each in fields(summary):
        rows = getattr(summary, each.name)
        if isinstance(rows, list) and each.name in {*TABLES.values(), *_GROUPED}:
            by_number = partial(ranked, order=order)
            change[each.name] = (
                sorted(rows, key=_name) if order == "name" else sorted(rows, key=by_number, reverse=True)
            )
    return replace(summary, **change)


def limited(summary: Summary, limit: int | None) -> Summary:
    """Keep the first rows of each table."""
    if limit is None:
        return summary
    tables = {each.name: getattr(summary, each.name) for each in fields(summary)}
    change: dict[str, Any] = {name: rows[:limit] for name, rows in tables.items() if isinstance(rows, list)}
    return replace(summary, **change)


def ranked(row: Any, order: str | None) -> float:
    """The number by which a row is ranked: by default exchanges, or bytes of records."""
    if order not in _NUMBERS:
        return _count(row) if isinstance(row, LoadRow) else _bytes(row)
    return _NUMBERS[order](row)


def share_amount(row: Any, order: str | None) -> float:
    """The same where numbers add up; if percentiles rank the row, the sum of its service times."""
    if order == "service" and (spread := _service(row)) is not None:
        return (spread.mean or 0) * spread.count
    return ranked(row, None if order == "service" else order)


def _count(row: Any) -> float:
    if isinstance(row, LoadRow):
        return row.exchanges
    return (row.produced_records or 0) + (row.fetched_records or 0)


def _bytes(row: Any) -> float:
    if isinstance(row, LoadRow):
        return row.request_bytes + row.response_bytes
    moved: int = row.produced_bytes + row.fetched_bytes + row.replicated_bytes
    return moved


def _service(row: Any) -> Spread | None:
    if isinstance(row, LoadRow):
        return row.service_us
    return row.produce_service_us if isinstance(row, TopicRow | RecordsByRow) else None


def _service_p95(row: Any) -> float:
    spread = _service(row)
    return 0 if spread is None else spread.p95 or 0  # the 99th of fewer than 100 is the slowest one


def _errors(row: Any) -> float:
    return row.errors if isinstance(row, LoadRow) else sum(row.errors.values())


def _throttle(row: Any) -> float:
    return row.throttle_time_ms if isinstance(row, LoadRow) else 0


def _name(row: Any) -> str:
    """The identifying field of a row, or several."""
    if isinstance(row, ExchangesByRow | RecordsByRow):
        return " ".join(map(str, row.by.values()))
    for name in ("api", "broker", "connection", "client", "topic", "group"):
        if hasattr(row, name):
            return str(getattr(row, name))
    return ""


_NUMBERS: dict[str | None, Callable[[Any], float]] = {
    "count": _count,
    "bytes": _bytes,
    "service": _service_p95,
    "errors": _errors,
    "throttle": _throttle,
}
