"""Rows of a job and of a summary, put beside each other."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson

from kdissect.spark.report import write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

Row = dict[str, Any]

_MICROSECOND = timedelta(microseconds=1)


def as_json(frame: DataFrame) -> list[Row]:
    """The rows of a frame, as ``report --json`` writes them."""
    written: list[bytes] = []
    write_json(written.append, [("", frame)])
    return [orjson.loads(line) for line in b"".join(written).splitlines()]


def by_key(rows: Iterable[Mapping[str, Any]], *names: str) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    """The rows by what they are about; each only once."""
    result = {tuple(row[name] for name in names): row for row in rows}
    assert result
    return result


def same(row: Mapping[str, Any], other: Mapping[str, Any], names: Sequence[str]) -> None:
    """The two have equal values of these names; times, which tables have in microseconds, are as near."""
    pairs = {name: (row[name], other[name]) for name in names}
    different = {name: pair for name, pair in pairs.items() if not _alike(*pair)}
    assert different == {}, (different, row)


def _alike(value: Any, other: Any) -> bool:
    if isinstance(value, str) and isinstance(other, str) and value[10:11] == "T" and value.endswith("Z"):
        return abs(datetime.fromisoformat(value) - datetime.fromisoformat(other)) <= _MICROSECOND
    if isinstance(value, float) and other is not None:
        return bool(abs(value - other) <= _MICROSECOND.total_seconds())
    return bool(value == other)
