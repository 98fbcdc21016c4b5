from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from kdissect.limits import DEFAULT
from kdissect.tables.arrow import schema
from kdissect.tables.columns import (
    BINARY,
    BOOLEAN,
    DATE,
    INT16,
    INT64,
    OBJECT,
    STRING,
    TIMESTAMP,
    Array,
    Column,
    Struct,
)
from kdissect.tables.parquet import ParquetFormat
from kdissect.tables.rows import TABLES
from tests.exchange_factory import exchange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.tables.columns import Type

NESTED = Array(Struct((("topic", STRING), ("partitions", Array(INT16)))))


def written(columns: Sequence[Column], rows: Sequence[Any], max_rows: int = 100, codec: str = "zst") -> Any:
    file = io.BytesIO()
    rows_file = ParquetFormat(codec, replace(DEFAULT, export_rows=max_rows)).open(file, columns)  # type: ignore[arg-type]
    for row in rows:
        rows_file.feed(row)
    rows_file.close()
    assert rows_file.held == 0
    return parquet.ParquetFile(io.BytesIO(file.getvalue()))


def column(name: str, kind: Type) -> Column:
    return Column(name, kind, lambda row: row.get(name), "A sentence.")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (STRING, "é\0", "é\0"),
        (BOOLEAN, False, False),
        (INT16, -1, -1),
        (INT64, 2**63 - 1, 2**63 - 1),
        (BINARY, b"\xff", b"\xff"),
        (DATE, "2026-11-21", date(2026, 11, 21)),
        (DATE, "0001-01-01", date(1, 1, 1)),
        (TIMESTAMP, 1_790_000_000_123_456_789, datetime(2026, 9, 21, 14, 13, 20, 123456, UTC)),
        (TIMESTAMP, -1, datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
        (OBJECT, {"a": b"x"}, '{"a":{"base64":"eA=="}}'),
        (Array(STRING), [], []),
        (NESTED, [{"topic": "t", "partitions": [1]}], [{"topic": "t", "partitions": [1]}]),
    ],
)
def test_values(kind: Type, value: Any, expected: Any) -> None:
    columns = [column("v", kind)]
    read = written(columns, [{"v": value}, {}]).read()
    assert read["v"].to_pylist() == [expected, None]
    assert read.schema.equals(schema(columns))


def test_a_column_of_nulls_keeps_its_type() -> None:
    columns = [column("a", NESTED), column("b", TIMESTAMP)]
    read = written(columns, [{}, {}]).read()
    assert read.schema == schema(columns)
    assert read.schema.field("b").type == pa.timestamp("us", tz="UTC")


def test_no_rows() -> None:
    read = written(TABLES["exchanges"].columns, [])
    assert read.metadata.num_rows == 0
    assert read.schema_arrow == schema(TABLES["exchanges"].columns)


def test_row_groups_are_limited() -> None:
    read = written(TABLES["exchanges"].columns, [exchange(number=n) for n in range(1, 11)], max_rows=4)
    assert [read.metadata.row_group(n).num_rows for n in range(3)] == [4, 4, 2]
    assert read.read()["number"].to_pylist() == list(range(1, 11))


def test_held_bytes_are_reported() -> None:
    file = ParquetFormat("none", DEFAULT).open(
        io.BytesIO(), [column("a", STRING), column("b", Array(STRING))]
    )
    file.feed({"a": "x" * 1000, "b": ["y" * 500, "z" * 500]})
    assert 2000 < file.held < 2100
    file.flush()
    assert file.held == 0


@pytest.mark.parametrize(("codec", "name"), [("none", "UNCOMPRESSED"), ("gz", "GZIP"), ("zst", "ZSTD")])
def test_compression(codec: str, name: str) -> None:
    read = written([column("a", STRING)], [{"a": "x"}], codec=codec)
    assert read.metadata.row_group(0).column(0).compression == name


def test_readers_find_the_least_and_the_greatest_of_all_but_bodies() -> None:
    columns = [column("text", STRING), column("nested", NESTED), column("body", OBJECT)]
    nested = [{"topic": "t", "partitions": [1]}]
    group = written(columns, [{"text": "a", "nested": nested, "body": {"a": 1}}]).metadata.row_group(0)
    leaves = [group.column(index) for index in range(group.num_columns)]
    assert [leaf.path_in_schema for leaf in leaves if not leaf.is_stats_set] == ["body"]
    assert len(leaves) == 4


@pytest.mark.parametrize("module", ["tables.parquet", "tables.arrow", "spark.shuffle"])
def test_pandas_is_loaded_only_for_a_data_frame(module: str) -> None:
    code = f"""
import sys
import kdissect.{module}
import pyarrow as pa
table = pa.table({{"a": pa.array([1, None])}})
assert "pandas" not in sys.modules
assert list(table.to_pandas()["a"].isna()) == [False, True]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
