from __future__ import annotations

import pytest

from kdissect.kafka import schema
from kdissect.kafka.emitter import emit
from kdissect.kafka.schema import parse


@pytest.mark.parametrize("name", schema.file_names())
def test_every_file_is_in_the_one_form(name: str) -> None:
    text = schema.file_text(name)
    assert emit(parse(text, name)) == text


def test_alignment_is_free_and_becomes_uniform() -> None:
    loose = "A 0-3 =>\n  a: int16 1+ # x\n  [b]: int8 2 tag 1\n  c: string?2-3 topic\n  d: int8   # y\n"
    assert emit(parse(loose)) == (
        "A 0-3 =>\n"
        "  a: int16                                  1+         # x\n"
        "  [b]: int8                                 2 tag 1\n"
        "  c: string?2+ topic\n"
        "  d: int8                                   # y\n"
    )


def test_long_left_side_pushes_the_columns_away() -> None:
    text = "A 0-3 =>\n  a_name_that_is_longer_than_the_column_is_wide: int16  1+  # x\n"
    assert emit(parse(text)) == text


def test_drafts_and_record_types_stand_in_the_head() -> None:
    text = "ARecord 1-2, type 0, flexible 2+ =>\n  id: int32\n\ndraft 2.8 ARecord 1 =>\n  id: int16\n"
    assert emit(parse(text)) == text
