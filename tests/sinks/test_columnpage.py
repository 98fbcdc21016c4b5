from __future__ import annotations

from kdissect.sinks.columnpage import markdown
from kdissect.sinks.columns import EXCHANGE, EXPORT_ONLY
from kdissect.sinks.recordcolumns import RECORD


def test_markdown_has_a_row_for_each_column() -> None:
    text = markdown()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    names = [row.split("`")[1] for row in rows]
    assert names == [column.name for column in EXCHANGE + EXPORT_ONLY + RECORD]
    assert all(row.count(" | ") == 3 for row in rows)
    assert text.endswith("\n")


def test_sentences_end() -> None:
    for column in EXCHANGE + EXPORT_ONLY + RECORD:
        assert column.sentence.endswith("."), column.name
        assert "|" not in column.sentence
