"""Reading a batch column by column yields the same values as reading its records one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.capture.reader import open_capture
from kdissect.exchanges.partition_records import MAX_ALIKE
from kdissect.pipeline import dissect
from kdissect.tables.lines import RecordValues
from kdissect.tables.rows import RECORDS, TABLES
from samples.golden import captures, name_of
from tests.record_batches import LOG_APPEND, Item, batch
from tests.record_exchanges import batches_of, fetch, long_batch, produce

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kdissect.exchanges.partition_records import DecodedBatch
    from kdissect.model import Exchange

TABLE = TABLES[RECORDS]
COLUMNS = {f"{column.name} {column.type}": column for column in (*TABLE.columns, *TABLE.packed)}
GETTERS = [(column.name, column.get) for column in COLUMNS.values()]


def check(records: DecodedBatch) -> None:
    """All columns of a batch, as text and as bytes."""
    values = RecordValues(GETTERS)
    one_by_one = [tuple(get(record) for _, get in GETTERS) for record in records]
    assert list(values.rows(records)) == one_by_one
    pieces = [row for piece in records.pieces() for row in values.rows(piece)]
    assert pieces == one_by_one


@pytest.mark.parametrize("unusual", [(), (0,), (1, 2, 3, 4), (149,), range(150)])
def test_records_that_say_more_among_others(unusual: Iterable[int]) -> None:
    raw = long_batch(unusual)
    answers = ({"base_offset": 41}, {"base_offset": 41, "log_append_time_ms": 1_700_000_000_002}, {}, None)
    for each in batches_of(fetch(raw), *(produce(raw, answer) for answer in answers)):
        check(each)


def test_times_that_are_none_and_those_that_no_calendar_has() -> None:
    items = [Item(timestamp_ms=time_ms) for time_ms in (-1, 1 << 60, 0, 1_700_000_000_000)]
    for each in batches_of(fetch(batch(items)), fetch(batch(items, flags=LOG_APPEND))):
        check(each)


@pytest.mark.parametrize("count", [1, 2, MAX_ALIKE, MAX_ALIKE + 1])
def test_any_number_of_records(count: int) -> None:
    (records,) = batches_of(fetch(long_batch((count - 1,), count)))
    check(records)
    pieces = list(records.pieces())
    assert [len(piece) for piece in pieces] == [min(count, MAX_ALIKE)] + [1] * (count > MAX_ALIKE)
    assert [record for piece in pieces for record in piece][-1].ordinal == count - 1


def test_common_columns_are_read_once() -> None:
    read = 0

    def get(_: object) -> int:
        nonlocal read
        read += 1
        return read

    (records,) = batches_of(fetch(long_batch(())))
    assert RecordValues([("topic", get)]).of(records) == [[1]]


@pytest.mark.parametrize("path", captures(), ids=name_of)
def test_samples(path: Path) -> None:
    with open_capture(str(path)) as capture:
        exchanges: list[Exchange] = list(dissect(capture))
    for each in batches_of(*exchanges):
        if each.are_plain and len(each):
            check(each)
