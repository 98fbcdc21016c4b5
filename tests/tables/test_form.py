from __future__ import annotations

from types import SimpleNamespace

from kdissect.tables.columns import BINARY, STRING, Column
from kdissect.tables.form import (
    END_NS,
    FIRST_NS,
    Table,
    day,
    nanoseconds,
    of_exchange,
    time_columns,
    valid_time,
)
from kdissect.tables.values import timestamp
from tests.exchange_factory import exchange


def test_times_within_the_calendar() -> None:
    same = valid_time(lambda time_ns: time_ns)
    assert timestamp(FIRST_NS) == "0001-01-01T00:00:00.000000Z"
    assert timestamp(END_NS - 1) == "9999-12-31T23:59:59.999999Z"
    assert [same(time_ns) for time_ns in (FIRST_NS, 0, END_NS - 1)] == [FIRST_NS, 0, END_NS - 1]
    assert [same(time_ns) for time_ns in (FIRST_NS - 1, END_NS, None)] == [None] * 3


def test_date_and_time() -> None:
    date, time = time_columns(lambda row: row, "A sentence.")
    assert (date.name, time.name) == ("date", "time")
    assert date.get(1_790_000_000_000_000_000) == "2026-09-21"
    assert day(lambda row: row).get(None) is None
    assert time.get(END_NS) is None


def test_nanoseconds_that_64_bits_hold() -> None:
    column = nanoseconds(lambda row: row)
    assert column.get(2**63 - 1) == 2**63 - 1
    assert column.get(2**63) is None


def test_columns_of_the_exchange() -> None:
    row = SimpleNamespace(exchange=exchange(number=7))
    number, time = of_exchange("number", "time")
    assert number.get(row) == 7
    assert time.get(row) == row.exchange.time_ns
    assert time.get(SimpleNamespace(exchange=exchange(time_ns=END_NS))) is None


def test_columns_for_formats_that_have_bytes() -> None:
    plain = (Column("a", STRING, str, "A sentence."),)
    packed = (Column("a", BINARY, bytes, "A sentence."),)
    assert Table("t", "A row.", plain).binary_columns == plain
    assert Table("t", "A row.", plain, packed).binary_columns == packed
