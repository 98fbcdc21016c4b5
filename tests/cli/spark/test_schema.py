from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdissect.cli.terminal import OK, USAGE
from kdissect.tables import spark_schema
from kdissect.tables.rows import TABLES
from tests.cli.commands import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", TABLES)
def test_every_table_in_every_notation(capsys: pytest.CaptureFixture[str], name: str) -> None:
    columns = TABLES[name].binary_columns
    for options in ((), ("--ddl",)):
        done = run(capsys, "spark", "schema", name, *options)
        assert (done.status, done.out) == (OK, f"{spark_schema.ddl(columns)}\n")
    printed = json.loads(run(capsys, "spark", "schema", "--json", name).out)
    assert printed == spark_schema.struct_type(columns)
    sql = run(capsys, "spark", "schema", "--sql", "--location", "/share/my tables", name).out
    assert f"LOCATION 'file:///share/my%20tables/{name}'" in sql
    assert sql.count(" COMMENT '") == len(columns)
    compile(run(capsys, "spark", "schema", "--pyspark", name).out, name, "exec")


def test_all_notations_say_the_same(capsys: pytest.CaptureFixture[str], spark: SparkSession) -> None:
    from pyspark.sql.types import StructField, StructType

    def replaced(field: StructField) -> StructField:
        return StructField(field.name, field.dataType)

    for name in TABLES:
        text = {
            each: run(capsys, "spark", "schema", each, name).out for each in ("--ddl", "--json", "--pyspark")
        }
        names: dict[str, StructType] = {}
        exec(text["--pyspark"], names)
        assert names["schema"] == StructType.fromJson(json.loads(text["--json"]))
        plain = [
            replaced(field) for field in names["schema"]
        ]  # create_table.sql has the comments, not the DDL
        assert StructType(plain) == StructType.fromDDL(text["--ddl"])
        assert [field.metadata["comment"] for field in names["schema"]] == [
            column.description for column in TABLES[name].binary_columns
        ]


def test_it_needs_no_spark(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert run(capsys, "spark", "schema", "topic_ids").status == OK


def test_an_unknown_table(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "spark", "schema", "exchange")
    assert done.status == USAGE
    assert 'unknown table "exchange"; did you mean "exchanges"?' in done.err


def test_the_default_location(capsys: pytest.CaptureFixture[str]) -> None:
    sql = run(capsys, "spark", "schema", "--sql", "captures").out
    assert (Path.cwd() / "tables" / "captures").as_uri() in sql
