from __future__ import annotations

from docs.generate import columns_page
from kdissect.tables.columns import EXCHANGE, RECORD
from kdissect.tables.exchanges import EXCHANGE_EXPORT_ONLY, RECORD_EXPORT_ONLY
from kdissect.tables.rows import TABLES

OTHERS = [table for table in TABLES.values() if table.name not in ("exchanges", "records")]
COLUMNS = [
    *EXCHANGE,
    *RECORD,
    *EXCHANGE_EXPORT_ONLY,
    *RECORD_EXPORT_ONLY,
    *(column for table in OTHERS for column in table.columns),
]


def test_markdown_has_a_row_for_each_column() -> None:
    text = columns_page()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    names = [row.split("`")[1] for row in rows]
    assert names == [column.name for column in COLUMNS]
    assert all(row.count(" | ") == 3 for row in rows)
    assert text.endswith("\n")


def test_markdown_has_a_section_for_each_table() -> None:
    text = columns_page()
    assert [table.name for table in OTHERS if f"## The {table.name} table\n" not in text] == []


def test_sentences_end() -> None:
    for column in COLUMNS:
        assert column.description.endswith("."), column.name
        assert "|" not in column.description
