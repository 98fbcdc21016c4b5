"""Rows -> a sink, until there are enough of them or the person presses Ctrl-C. Holds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Row = TypeVar("Row")


def show(
    rows: Iterable[Row],
    feed: Callable[[Row], object],
    most: int | None,
    flush: Callable[[], object],
    *,
    flush_each: bool = False,
    size: Callable[[Row], int] | None = None,
) -> tuple[int, bool]:
    """Feed the sink.

    Args:
        rows: exchanges, records or batches of records.
        feed: the sink's.
        most: after how many to stop, None: never.
        flush: called after the first row, for somebody who waits for it.
        flush_each: call it after every row.
        size: how many a row counts for; None: each is one.

    Returns:
        How many rows the sink got, and whether Ctrl-C ended it.
    """
    shown = 0
    is_first, is_interrupted = True, False
    try:
        for row in rows:
            shown += 1 if size is None else size(row)
            feed(row)
            if flush_each or is_first:
                is_first = False
                flush()
            if shown == most:
                break
            del row  # before the next one is decoded: either may take most of the memory
    except KeyboardInterrupt:
        is_interrupted = True
    return shown, is_interrupted
