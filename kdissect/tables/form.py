"""Columns -> a table of an export; the columns that all tables have in common. Stateless.

Every table has ``date``, the UTC day of a row's time, and nearly all have ``time``. ``connection`` and
``number`` are the key that joins them. A time outside the range of timestamps (a damaged capture can claim
any) is null.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kdissect.tables.columns import BY_NAME, DATE, INT64, TIMESTAMP, Column
from kdissect.tables.values import date

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.tables.columns import Getter

FIRST_NS = -62_135_596_800_000_000_000  # 0001-01-01T00:00:00Z: readers do not support earlier times
END_NS = 253_402_300_800_000_000_000  # 10000-01-01T00:00:00Z: nor later ones
SEE_EXCHANGES = "See `exchanges`."
_MAX_INT64 = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Table:
    """A table of an export.

    Attributes:
        name: also the name of its directory.
        description: what a row is, for docs.
        columns: in order.
        packed: the columns for formats that have bytes and not only text, if they differ.
    """

    name: str
    description: str
    columns: tuple[Column, ...]
    packed: tuple[Column, ...] = ()

    @property
    def binary_columns(self) -> tuple[Column, ...]:
        """The columns for formats that have bytes."""
        return self.packed or self.columns


def valid_time(get: Getter) -> Getter:
    """``get`` for a time in nanoseconds, with None for times before the year 1 or after 9999."""

    def bounded(row: Any) -> int | None:
        time_ns = get(row)
        return time_ns if time_ns is not None and FIRST_NS <= time_ns < END_NS else None

    return bounded


def int64(number: int) -> int | None:
    """The number, or None if it does not fit in 64 bits."""
    return number if -_MAX_INT64 <= number <= _MAX_INT64 else None


def with_valid_time(column: Column) -> Column:
    """The column; if it is a timestamp, with None for times that files cannot hold."""
    return replace(column, get=valid_time(column.get)) if column.type == TIMESTAMP else column


def time_columns(get: Getter, description: str) -> tuple[Column, Column]:
    """The columns ``date`` and ``time``; ``get`` returns nanoseconds or None."""
    return (day(get), Column("time", TIMESTAMP, valid_time(get), description))


def day(get: Getter) -> Column:
    """The column ``date``."""
    known = valid_time(get)

    def read(row: Any) -> str | None:
        time_ns = known(row)
        return None if time_ns is None else date(time_ns)

    return Column("date", DATE, read, "UTC date of the row's time: the partition column.")


def nanoseconds(get: Callable[[Any], int]) -> Column:
    """The column ``time_ns``."""
    return Column(
        "time_ns",
        INT64,
        lambda row: int64(get(row)),
        "`time` in nanoseconds, for captures with that precision.",
        "ns since 1970",
    )


def of_exchange(*names: str) -> tuple[Column, ...]:
    """Columns of a row's ``exchange``."""
    return tuple(_of_row(with_valid_time(BY_NAME[name])) for name in names)


def _of_row(column: Column) -> Column:
    get = column.get
    return replace(column, get=lambda row: get(row.exchange), description=SEE_EXCHANGES)
