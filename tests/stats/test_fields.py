from __future__ import annotations

from dataclasses import dataclass, fields

from kdissect.stats.document import described


@dataclass
class Row:
    number: int = described("How many.")


def test_the_sentence_stands_with_the_field() -> None:
    assert [each.metadata["sentence"] for each in fields(Row)] == ["How many."]
