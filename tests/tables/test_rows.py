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
from tests.made_exchanges import connection, exchange

if TYPE_CHECKING:
    from collections.abc import Collection


def maker(tables: Collection[str], *, every_connection: bool = True) -> TableRows:
    records = Records(RecordFilter(RecordCriteria()))
    return TableRows(tables, ConnectionLog(DEFAULT), records, DEFAULT, every_connection=every_connection)


def test_rows_bear_the_name_of_their_table() -> None:
    made = maker(TABLES)
    first = exchange("Metadata", 9, {"topics": [{"name": "orders"}]})
    assert list(made.feed(first)) == [("exchanges", first)]
    assert [name for name, _ in made.close((), ())] == ["connections"]


def test_tables_that_nobody_wants_are_not_made() -> None:
    made = maker(("connections",))
    assert list(made.feed(exchange())) == []
    ((name, row),) = made.close((), ())
    assert (name, row.exchanges) == ("connections", 1)


def test_of_what_was_not_asked_for_only_its_connection_is_known() -> None:
    for every_connection in (False, True):
        made = maker(("exchanges", "connections"), every_connection=every_connection)
        wanted, other = connection("aaa"), connection("bbb")
        assert len(list(made.feed(exchange(connection=wanted)))) == 1
        assert list(made.skip(exchange(connection=wanted))) == []
        assert list(made.skip(exchange(connection=other))) == []
        found = [(row.id, row.exchanges) for _, row in made.close((), ())]
        assert found == [("aaa", 2), ("bbb", 1)][: 1 + every_connection]


def test_a_capture_that_others_follow_has_its_row_and_is_forgotten() -> None:
    made = maker(("captures",))
    one, two = Source("-", DEFAULT), Source(BytesIO(), DEFAULT)
    list(made.log.watch([Packet(1, 5, Interface("-", 0, 1), b"", 0)]))
    ((name, row),) = made.finish_capture(one)
    assert (name, row.source, row.packets.packets) == ("captures", one, 1)
    assert made.log.census.files == {}
    assert [row.source for _, row in made.close((two,), ())] == [two]
