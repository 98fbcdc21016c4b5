from __future__ import annotations

from kdissect.tables.columns import TIMESTAMP
from kdissect.tables.rows import RECORDS, TABLES


def test_names() -> None:
    assert list(TABLES) == [
        "exchanges", "records", "partitions", "connections", "groups", "brokers", "rebalances", "topic_ids",
        "anomalies", "captures",
    ]  # fmt: skip
    assert RECORDS in TABLES


def test_every_table_has_a_date_and_a_time() -> None:
    for table in TABLES.values():
        assert "date" in {column.name for column in table.columns}
        assert any(column.type == TIMESTAMP for column in table.columns)
        assert table.description.endswith(".")


def test_names_differ_even_where_case_is_ignored() -> None:
    for table in TABLES.values():
        names = [column.name for column in table.columns]
        assert len({name.lower() for name in names}) == len(names), table.name
        assert [column.name for column in table.binary_columns] == names
        assert all(name == name.lower() for name in names)
