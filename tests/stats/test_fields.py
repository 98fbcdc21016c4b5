from __future__ import annotations

from dataclasses import dataclass, fields

from kdissect.stats.document import described


@dataclass
class Row:
    number: int = described("How many.")


def test_the_description_is_in_the_metadata() -> None:
    assert [each.metadata["description"] for each in fields(Row)] == ["How many."]
