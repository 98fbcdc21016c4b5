from __future__ import annotations

from operator import itemgetter
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kdissect.tables.arrow import RowBatch, arrow_type, schema
from kdissect.tables.columns import (
    BINARY,
    BOOLEAN,
    DATE,
    INT16,
    INT32,
    INT64,
    OBJECT,
    STRING,
    TIMESTAMP,
    Array,
    Column,
    Scalar,
    Struct,
)
from tests.core import needs_core, without_core

if TYPE_CHECKING:
    from kdissect.tables.columns import Type

NESTED = Array(Struct((("topic", STRING), ("partitions", Array(INT16)))))
COLUMNS = (
    Column("text", STRING, lambda row: row[0], "A sentence."),
    Column("time", TIMESTAMP, lambda row: row[1], "A sentence."),
)


def test_types_are_those_that_readers_take_without_a_hint() -> None:
    assert arrow_type(NESTED) == pa.list_(
        pa.field(
            "element",
            pa.struct([("topic", pa.string()), ("partitions", pa.list_(pa.field("element", pa.int16())))]),
        )
    )


def test_rows_become_a_batch_and_another_begins() -> None:
    batch = RowBatch(COLUMNS)
    batch.feed(("x" * 1000, 1999))
    batch.feed((None, None))
    assert (batch.rows, 1000 < batch.held < 1100) == (2, True)
    result = batch.take()
    assert result.schema == schema(COLUMNS)
    assert result["text"].to_pylist() == ["x" * 1000, None]
    assert result["time"].cast(pa.int64()).to_pylist() == [1, None]
    assert (batch.rows, batch.held) == (0, 0)
    assert batch.take().num_rows == 0


def values(kind: Type, random: Random) -> Any:
    """A value as a column of this type has it, or None."""
    if not random.randrange(4):
        return None
    if isinstance(kind, Array):
        return [values(kind.element, random) for _ in range(random.randrange(4))]
    if isinstance(kind, Struct):
        return {name: values(inner, random) for name, inner in kind.fields}
    some: dict[Scalar, Any] = {
        BOOLEAN: random.random() < 0.5,
        STRING: "".join(random.choices("aäЖ\U0001f600\0 ", k=random.randrange(9))),
        BINARY: random.randbytes(random.randrange(9)),
        OBJECT: {"a": "Ж" * random.randrange(3)},
        DATE: f"{random.randrange(1, 9999):04}-02-03",
        TIMESTAMP: random.randrange(-62_135_596_800, 253_402_300_800) * 10**9,
    }
    bits = {INT16: 15, INT32: 31, INT64: 63}
    return some[kind] if kind in some else random.choice([-1, 1]) * (random.getrandbits(bits[kind]))


@needs_core
def test_the_core_makes_the_same_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(1)
    kinds: tuple[Type, ...] = (
        STRING,
        BOOLEAN,
        INT16,
        INT32,
        INT64,
        BINARY,
        OBJECT,
        DATE,
        TIMESTAMP,
        NESTED,
        Array(INT64),
    )
    columns = [Column(f"c{place}", kind, itemgetter(place), "") for place, kind in enumerate(kinds)]
    with without_core():
        plain = RowBatch(columns)
    batch = RowBatch(columns)
    assert type(batch.columns) is not type(plain.columns)
    for rows in (1, 7, 8, 9, 300):
        for _ in range(rows):
            row = [values(kind, random) for kind in kinds]
            batch.feed(row)
            plain.feed(row)
        assert (batch.rows, batch.held) == (plain.rows, plain.held)
        expected, result = plain.take(), batch.take()
        result.validate(full=True)
        assert result.equals(expected)
        assert result.schema == expected.schema


@needs_core
def test_a_value_that_does_not_fit_leaves_the_other_rows() -> None:
    batch = RowBatch([*COLUMNS, Column("n", INT16, lambda row: row[2], "")])
    batch.feed(("a", 1000, 1))
    for odd in (("\udc80", 1000, 1), ("b", 1000, 1 << 15), ("b", 1000, "1")):
        with pytest.raises((OverflowError, UnicodeError, TypeError)):
            batch.feed(odd)
    batch.feed(("c", None, None))
    assert batch.take().to_pydict()["n"] == [1, None]


@needs_core
def test_only_one_reader_gets_the_rows() -> None:
    batch = RowBatch(COLUMNS)
    batch.feed(("a", 1000))
    rows = batch.columns.take()
    assert rows.__arrow_c_array__()  # nobody takes what is in these capsules over
    with pytest.raises(ValueError, match="taken"):
        rows.__arrow_c_array__()
