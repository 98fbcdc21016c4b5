from __future__ import annotations

from kdissect.kafka.codes import lines, rows


def test_rows_have_the_names_of_the_head() -> None:
    first = rows("errors.tsv")[0]
    assert first["code"] == "-1"
    assert list(first) == ["code", "name", "retriable", "introduced", "former_names", "meaning"]


def test_every_table_is_rectangular() -> None:
    # zip(strict=True) inside would raise.
    assert [len(rows(name)) for name in ("apis.tsv", "errors.tsv", "enums.tsv")] == [95, 138, 33]


def test_lines_leave_comments_out() -> None:
    assert "*password*" in lines("sensitive.txt")
    assert not any(line.startswith("#") or not line for line in lines("sensitive.txt"))
