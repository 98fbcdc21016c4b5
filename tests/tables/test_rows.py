from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from kdissect.capture.source import Source
from kdissect.limits import DEFAULT
from kdissect.model import Interface, Packet
from kdissect.query.record_filters import RecordCriteria, RecordFilter
from kdissect.query.records import Records
from kdissect.stats.connection_log import ConnectionLog
from kdissect.tables.rows import TABLES, TableRows
from tests.exchange_factory import connection, exchange

if TYPE_CHECKING:
    from collections.abc import Collection


def table_rows(tables: Collection[str], *, every_connection: bool = True) -> TableRows:
    records = Records(RecordFilter(RecordCriteria()))
    return TableRows(tables, ConnectionLog(DEFAULT), records, DEFAULT, every_connection=every_connection)


def test_rows_bear_the_name_of_their_table() -> None:
    rows = table_rows(TABLES)
    first = exchange("Metadata", 9, {"topics": [{"name": "orders"}]})
    assert list(rows.feed(first)) == [("exchanges", first)]
    assert [name for name, _ in rows.close((), ())] == ["connections"]


def test_tables_that_are_not_requested_are_not_written() -> None:
    rows = table_rows(("connections",))
    assert list(rows.feed(exchange())) == []
    ((name, row),) = rows.close((), ())
    assert (name, row.exchanges) == ("connections", 1)


def test_excluded_exchanges_count_for_their_connection_only() -> None:
    for every_connection in (False, True):
        rows = table_rows(("exchanges", "connections"), every_connection=every_connection)
        matching, other = connection("aaa"), connection("bbb")
        assert len(list(rows.feed(exchange(connection=matching)))) == 1
        assert list(rows.skip(exchange(connection=matching))) == []
        assert list(rows.skip(exchange(connection=other))) == []
        connections = [(row.id, row.exchanges) for _, row in rows.close((), ())]
        assert connections == [("aaa", 2), ("bbb", 1)][: 1 + every_connection]


def test_a_capture_that_others_follow_has_its_row_and_is_forgotten() -> None:
    rows = table_rows(("captures",))
    one, two = Source("-", DEFAULT), Source(BytesIO(), DEFAULT)
    list(rows.log.watch([Packet(1, 5, Interface("-", 0, 1), b"", 0)]))
    ((name, row),) = rows.finish_capture(one)
    assert (name, row.source, row.packets.packets) == ("captures", one, 1)
    assert rows.log.census.files == {}
    assert [row.source for _, row in rows.close((two,), ())] == [two]
