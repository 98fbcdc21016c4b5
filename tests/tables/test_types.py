from __future__ import annotations

import pytest

from kdissect.tables.columns import BOOLEAN, INT32, STRING, TIMESTAMP, Array, Struct, Type

PLACE = Struct((("topic", STRING), ("partition", INT32)))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (STRING, "string"),
        (TIMESTAMP, "timestamp"),
        (Array(STRING), "array<string>"),
        (PLACE, "struct<topic:string,partition:int32>"),
        (Array(Struct((("where", PLACE), ("odd", BOOLEAN)))), f"array<struct<where:{PLACE},odd:boolean>>"),
        (Array(Array(INT32)), "array<array<int32>>"),
        (Struct(()), "struct<>"),
    ],
    ids=str,
)
def test_types_are_written_as_spark_writes_its_own(kind: Type, text: str) -> None:
    assert str(kind) == text


def test_types_are_values() -> None:
    assert Array(STRING) == Array(STRING) != Array(INT32)
    assert len({Array(PLACE), Array(Struct(PLACE.fields)), PLACE}) == 2
