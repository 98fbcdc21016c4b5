"""Spark's three notations against each other, pyarrow, and the generated page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from docs.generate import columns_page
from kdissect.tables.arrow import schema
from kdissect.tables.rows import TABLES
from kdissect.tables.spark_schema import create_table, ddl, in_directories, struct_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.tables.form import Table

EVERY = pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: str(table.name))

# The meaning of each of Spark's names, repeated.
OF_JSON = {"string": "STRING", "boolean": "BOOLEAN", "short": "SMALLINT", "integer": "INT", "long": "BIGINT",
           "binary": "BINARY", "date": "DATE", "timestamp": "TIMESTAMP"}  # fmt: skip
OF_ARROW = {pa.string(): "STRING", pa.bool_(): "BOOLEAN", pa.int16(): "SMALLINT", pa.int32(): "INT",
            pa.int64(): "BIGINT", pa.binary(): "BINARY", pa.date32(): "DATE",
            pa.timestamp("us", tz="UTC"): "TIMESTAMP"}  # fmt: skip
OF_PAGE = {"object": "STRING", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT"}


def struct(fields: Iterable[tuple[str, str]]) -> str:
    return f"STRUCT<{', '.join(f'`{name}`: {kind}' for name, kind in fields)}>"


def from_json(kind: Any) -> str:
    if isinstance(kind, str):
        return OF_JSON[kind]
    if kind["type"] == "array":
        assert kind["containsNull"] is True
        return f"ARRAY<{from_json(kind['elementType'])}>"
    assert all(field["nullable"] is True for field in kind["fields"])
    return struct((each["name"], from_json(each["type"])) for each in kind["fields"])


def from_arrow(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"ARRAY<{from_arrow(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return struct((each.name, from_arrow(each.type)) for each in kind)
    return OF_ARROW[kind]


def from_page(text: str) -> str:
    text = re.sub(r"(\w+):", r"`\1`: ", text.replace(",", ", "))
    return re.sub(r"(?<!`)\b[a-z]\w*\b(?!`)", lambda word: OF_PAGE.get(word[0], word[0].upper()), text)


@EVERY
def test_the_notations_agree(table: Table) -> None:
    for columns in (table.columns, table.binary_columns):
        types = dict(re.findall(r"`(\w+)` (.+?)(?=, `\w+` |$)", ddl(columns)))
        document = json.loads(json.dumps(struct_type(columns)))
        assert {each["name"]: from_json(each["type"]) for each in document["fields"]} == types
        assert {each.name: from_arrow(each.type) for each in schema(columns)} == types
        assert all(each.nullable for each in schema(columns))
        statement = create_table(table, columns, Path("/tables") / table.name, (), "JSON")
        assert dict(re.findall(r"^  `(\w+)` (.+) COMMENT '", statement, re.MULTILINE)) == types
        assert list(types) == [column.name for column in columns]


@EVERY
def test_the_page_agrees(table: Table) -> None:
    page = columns_page()
    for column in table.columns:
        types = {from_page(kind) for kind in re.findall(rf"\| `{column.name}` \| (\S+) \|", page)}
        assert ddl([column]).partition(" ")[2] in types


def test_ddl() -> None:
    assert ddl(TABLES["topic_ids"].columns) == (
        "`topic_id` STRING, `topic` STRING, `connection` STRING, `number` BIGINT, `cluster_id` STRING, "
        "`date` DATE, `time` TIMESTAMP"
    )
    (column,) = (column for column in TABLES["exchanges"].columns if column.name == "anomalies")
    assert ddl([column]) == "`anomalies` ARRAY<STRUCT<`kind`: STRING, `where`: STRING, `detail`: STRING>>"


def test_columns_that_directories_are_named_after_come_last() -> None:
    table = TABLES["topic_ids"]
    names = [column.name for column in in_directories(table.columns, ("date",))]
    assert names == ["topic_id", "topic", "connection", "number", "cluster_id", "time", "date"]


def test_create_table() -> None:
    table = TABLES["topic_ids"]
    statement = create_table(table, table.columns, Path("/data/o'clock"), ("date",), "PARQUET")
    assert statement.startswith(
        "CREATE TABLE IF NOT EXISTS `topic_ids` (\n"
        "  `topic_id` STRING COMMENT 'Topic ID, as Kafka prints it.',\n"
    )
    assert statement.endswith(
        "\n)\nUSING PARQUET\nPARTITIONED BY (`date`)\nLOCATION 'file:///data/o%27clock'\n"
        "COMMENT 'A topic\\'s ID and its name.';\nMSCK REPAIR TABLE `topic_ids`;\n"
    )
