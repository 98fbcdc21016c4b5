from __future__ import annotations

import pyarrow as pa

from kdissect.tables.arrow import RowBatch, arrow_type, schema
from kdissect.tables.columns import INT16, STRING, TIMESTAMP, Array, Column, Struct

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
