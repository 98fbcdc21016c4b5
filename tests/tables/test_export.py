"""Every sample, in every format: every reader reads the rows of ``read --json``."""

from __future__ import annotations

import json
import os
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb
import orjson
import pandas as pd
import polars as pl
import pytest

from kdissect.capture.reader import open_capture
from kdissect.limits import SECOND_NS
from kdissect.options import ExportOptions, Options
from kdissect.tables.columns import BINARY, DATE, EXCHANGE, OBJECT, TIMESTAMP, Array, Struct
from kdissect.tables.export import ExportJob
from kdissect.tables.manifest import DIRECTORY, MANIFEST
from kdissect.tables.rows import TABLES
from kdissect.tables.spark_schema import ddl
from samples.golden import ROOT, captures, name_of
from tests.attack.test_packets import DAMAGE as CHANGES
from tests.attack.test_packets import TALKS
from tests.damage import DAMAGES
from tests.exchange_factory import connection, exchange
from tests.exports import (
    FORMS,
    Row,
    export_capture,
    export_packets,
    exports,
    json_rows,
    parquet_rows,
    part,
    unpacked,
)

if TYPE_CHECKING:
    from pathlib import Path

SOME = ["kafka-4-transactions", "kafka-4-kraft", "mock-rebalance", "tls"]
READ = "kafka-4-basics"
DAMAGED = ["quickstart", "mock-acks0"]
EXCHANGE_NAMES = [column.name for column in EXCHANGE]

FETCHED = {"responses": [{"topic": "orders", "partitions": [{"partition_index": 3, "high_watermark": 57}]}]}
REQUESTED = {"topics": [{"topic": "orders", "partitions": [{"partition": 3, "fetch_offset": 41}]}]}


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def basics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One sample in every format."""
    directory = tmp_path_factory.mktemp("basics")
    (sample,) = (path for path in captures() if name_of(path) == READ)
    export_capture(ROOT / sample, directory, list(FORMS))
    return directory


def same_rows(directory: Path, shown: list[Row]) -> dict[str, list[Row]]:
    """The tables in JSON lines; Parquet must have the same, and exchanges must match ``read --json``."""
    tables = {name: json_rows(directory / "none" / name) for name in TABLES}
    for name, table in TABLES.items():
        assert parquet_rows(directory / "parquet" / name, table) == tables[name], name
    assert [{name: row[name] for name in EXCHANGE_NAMES} for row in tables["exchanges"]] == shown
    return tables


@pytest.mark.parametrize("sample", captures(), ids=name_of)
def test_json_lines_and_parquet_have_the_same_rows(sample: Path, tmp_path: Path) -> None:
    shown = export_capture(ROOT / sample, tmp_path, ["none", "parquet"])
    tables = same_rows(tmp_path, shown)
    _tables_agree(tables)
    assert len(tables["captures"]) == 1


@pytest.mark.parametrize(("name", "damage"), list(zip(cycle(DAMAGED), DAMAGES, strict=False)))
def test_of_damaged_captures_too(name: str, damage: str, tmp_path: Path) -> None:
    (sample,) = (path for path in captures() if name_of(path) == name)
    with open_capture(ROOT / sample) as capture:
        left = DAMAGES[damage](list(capture), Random(1))
    shown = export_packets(left.packets, tmp_path, ["none", "parquet"])
    _tables_agree(same_rows(tmp_path, shown))


def test_of_any_packets(tmp_path: Path) -> None:
    """Bytes, times and lengths that Kafka never sends, as in tests/attack/test_packets.py."""
    for seed in range(8):
        random = Random(seed)
        packets = list(random.choice(TALKS))
        for _ in range(10):
            random.choice(CHANGES)(packets, random.randrange(len(packets)), random)
        shown = export_packets(packets, tmp_path / str(seed), ["none", "parquet"])
        tables = {name: json_rows(tmp_path / str(seed) / "none" / name) for name in TABLES}
        for name, table in TABLES.items():
            assert parquet_rows(tmp_path / str(seed) / "parquet" / name, table) == tables[name], name
        assert len(tables["exchanges"]) == len(shown)


def _tables_agree(tables: dict[str, list[Row]]) -> None:
    """Numbers in one table agree with the rows of another."""
    keys = {(row["connection"], row["number"]) for row in tables["exchanges"]}
    for name in ("partitions", "groups", "topic_ids", "records"):
        assert {(row["connection"], row["number"]) for row in tables[name]} <= keys
    connections = {row["connection"]: row for row in tables["connections"]}
    assert len(connections) == len(tables["connections"])
    assert {connection for connection, _ in keys} <= connections.keys()
    assert sum(row["exchanges"] for row in connections.values()) == len(keys)
    assert len(tables["exchanges"]) == len(keys)
    expected = sum(len(row["anomalies"]) for row in tables["exchanges"])
    assert sum(row["number"] is not None for row in tables["anomalies"]) == expected
    assert sum(row["anomalies"] for row in connections.values()) == len(tables["anomalies"])
    for row in connections.values():
        kinds = ("answered", "unanswered", "unacknowledged", "orphans")
        assert sum(row[kind] for kind in kinds) == row["exchanges"]
    assert all(row["close_reason"] for row in connections.values())
    ids = {row["topic_id"]: row["topic"] for row in tables["topic_ids"]}
    for row in tables["partitions"]:
        assert row["topic"] is not None or row["topic_id"] not in ids


@pytest.mark.parametrize("sample", [path for path in captures() if name_of(path) in SOME], ids=name_of)
def test_compression_changes_no_byte(sample: Path, tmp_path: Path) -> None:
    export_capture(ROOT / sample, tmp_path, ["none", "gz", "zst"])
    for name in TABLES:
        plain = unpacked(part(tmp_path / "none" / name))
        assert unpacked(part(tmp_path / "gz" / name)) == plain
        assert unpacked(part(tmp_path / "zst" / name)) == plain


DUCK = {"SMALLINT": "SMALLINT", "INT": "INTEGER", "BIGINT": "BIGINT", "TIMESTAMP": "TIMESTAMPTZ"}


def duck_type(text: str) -> str:
    """DuckDB's name of a type in Spark's DDL."""
    if text.startswith("ARRAY<"):
        return f"{duck_type(text.removeprefix('ARRAY<').removesuffix('>'))}[]"
    if text.startswith("STRUCT<"):
        inner = text.removeprefix("STRUCT<").removesuffix(">")
        parts, depth, start = [], 0, 0
        for place, sign in enumerate(f"{inner},"):
            depth += (sign == "<") - (sign == ">")
            if sign == "," and not depth:
                name, _, kind = inner[start:place].strip().partition(": ")
                parts.append(f"{name.strip('`')} {duck_type(kind)}")
                start = place + 1
        return f"STRUCT({', '.join(_duck_field(each) for each in parts)})"
    return {"STRING": "VARCHAR", **DUCK}.get(text, text)


def _duck_field(text: str) -> str:
    name, _, kind = text.partition(" ")
    return f'"{name}" {kind}'


@pytest.mark.parametrize("name", TABLES)
def test_duckdb_reads_json_lines_and_parquet_alike(basics: Path, name: str) -> None:
    columns = TABLES[name].columns
    types = {column.name: duck_type(ddl([column]).partition(" ")[2]) for column in columns}
    types |= {column.name: "JSON" for column in columns if column.type == OBJECT}
    listed = ", ".join(f"'{key}': '{kind}'" for key, kind in types.items())
    lines = f"read_json('{basics}/zst/{name}/part-*', format='newline_delimited', columns={{{listed}}})"
    packed = f"'{basics}/parquet/{name}/*.parquet'"
    texts = {column.name: f'"{column.name}"' for column in columns}
    texts |= {key: f'"{key}"::VARCHAR' for key, kind in types.items() if kind == "JSON"}
    plain = ", ".join(f'{text} AS "{key}"' for key, text in texts.items())
    if name == "records":
        is_text = "WHEN 'base64' THEN to_base64({0}) ELSE decode({0}) END"
        texts |= {key: f"CASE {key}_encoding {is_text.format(key)}" for key in ("key", "value")}
    decoded = ", ".join(f'{text} AS "{key}"' for key, text in texts.items())
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        one, two = f"SELECT {plain} FROM {lines}", f"SELECT {decoded} FROM {packed}"
        assert duck.execute(f"SELECT count(*) FROM ({one})").fetchone() == (
            len(json_rows(basics / "none" / name)),
        )
        assert duck.execute(f"({one}) EXCEPT ALL ({two})").fetchall() == []
        assert duck.execute(f"({two}) EXCEPT ALL ({one})").fetchall() == []
        result = {row[0]: row[1] for row in duck.execute(f"DESCRIBE {two}").fetchall()}
        expected = {row[0]: row[1] for row in duck.execute(f"DESCRIBE {one}").fetchall()}
        assert result == expected


@pytest.mark.parametrize("name", TABLES)
def test_polars_reads_parquet_with_the_types_it_should(basics: Path, name: str) -> None:
    frame = pl.read_parquet(f"{basics}/parquet/{name}/*.parquet")
    expected = json_rows(basics / "none" / name)
    assert frame.height == len(expected)
    if "time" in frame.columns:
        assert frame.schema["time"] == pl.Datetime("us", "UTC")
        texts = frame["time"].dt.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_list()
        assert texts == [row["time"] for row in expected]
    assert frame.schema["date"] == pl.Date
    for key in ("connection", "number"):
        if key in frame.columns:
            assert frame[key].to_list() == [row[key] for row in expected]


@pytest.mark.parametrize("form", ["none", "gz", "zst"])
def test_polars_reads_json_lines(basics: Path, form: str) -> None:
    """Bodies differ from row to row, so they must be declared as strings, as the schema does for Spark."""
    texts = {"request": pl.String, "response": pl.String}
    source = unpacked(part(basics / form / "exchanges"))
    frame = pl.read_ndjson(source, infer_schema_length=None, schema_overrides=texts)
    expected = json_rows(basics / "none" / "exchanges")
    assert frame["correlation_id"].to_list() == [row["correlation_id"] for row in expected]
    assert [orjson.loads(text) for text in frame["request"]] == [row["request"] for row in expected]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("form", ["none", "gz", "zst"])
def test_pandas_reads_json_lines_and_parquet_alike(basics: Path, name: str, form: str) -> None:
    """Parquet has the types. For JSON lines they must be set: pandas guesses, and takes any column
    whose name ends in ``_time`` or begins with ``timestamp`` for a time otherwise.
    """
    packed = pd.read_parquet(basics / "parquet" / name, dtype_backend="pyarrow")
    path = part(basics / form / name)
    lines = pd.read_json(path, lines=True, convert_dates=False, dtype_backend="pyarrow")
    columns = {column.name: column.type for column in TABLES[name].binary_columns}
    expected = json_rows(basics / "none" / name)
    assert list(packed) == list(columns)
    assert set(lines) == set(columns)
    assert len(packed) == len(lines) == len(expected)
    for key, kind in columns.items():
        if isinstance(kind, Array | Struct) or kind in (OBJECT, BINARY):
            as_text = [orjson.dumps(row[key]) for row in expected]
            assert [orjson.dumps(None if pd.api.types.is_scalar(value) and pd.isna(value) else value)
                    for value in lines[key]] == as_text  # fmt: skip
            continue
        read = pd.to_datetime(lines[key]) if kind in (TIMESTAMP, DATE) else lines[key]
        typed = read.astype(packed[key].dtype)
        assert typed.equals(packed[key]), key
        assert typed.isna().tolist() == [row[key] is None for row in expected]


def test_names_differ_even_where_case_is_ignored() -> None:
    for table in TABLES.values():
        names = [column.name.lower() for column in table.columns]
        assert len(names) == len(set(names)), table.name
        assert [column.name for column in table.binary_columns] == [column.name for column in table.columns]


def tables_of(directory: Path, *exchanges: Any, **options: Any) -> dict[str, list[Row]]:
    """The tables of these exchanges."""
    log, by_format = exports(directory, ["none"])
    for each in exchanges:
        by_format["none"].feed(each)
    by_format["none"].close([], [], complete=True, packets=0, **options)
    assert log.finished() == []
    return {name: json_rows(directory / "none" / name) for name in TABLES}


def test_a_table_without_rows_has_a_file_without_rows(tmp_path: Path) -> None:
    assert not any(tables_of(tmp_path).values())
    assert all(part(tmp_path / "none" / name).stat().st_size == 0 for name in TABLES)


def test_an_exchange_adds_to_several_tables(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, exchange("Fetch", 4, REQUESTED, FETCHED))
    assert {name: len(rows) for name, rows in tables.items() if rows} == {
        "exchanges": 1,
        "partitions": 1,
        "connections": 1,
    }
    assert tables["partitions"][0]["fetch_lag"] == 57 - 41


def test_a_connection_open_at_the_end_has_no_close_reason(tmp_path: Path) -> None:
    (row,) = tables_of(tmp_path, exchange(), exchange(number=2))["connections"]
    assert (row["exchanges"], row["close_reason"], row["from_start"]) == (2, None, None)


def test_a_time_that_no_calendar_has_is_null(tmp_path: Path) -> None:
    far = exchange(time_ns=10**21)
    for name, rows in {**tables_of(tmp_path, far)}.items():
        if name == "exchanges":
            assert (rows[0]["time"], rows[0]["date"], rows[0]["time_ns"]) == (None, None, None)
    _, by_format = exports(tmp_path / "packed", ["parquet"])
    by_format["parquet"].feed(far)
    by_format["parquet"].close([], [], complete=True, packets=0)
    (row,) = parquet_rows(tmp_path / "packed" / "parquet" / "exchanges", TABLES["exchanges"])
    assert (row["time"], row["date"], row["time_ns"]) == (None, None, None)


def test_with_filters_only_their_connections_are_written(tmp_path: Path) -> None:
    log, by_format = exports(tmp_path, ["none"])
    export = by_format["none"]
    export.tables.every_connection = False
    export.feed(exchange(connection=connection("aaa")))
    export.skip(exchange(connection=connection("aaa"), number=2))
    export.skip(exchange(connection=connection("bbb")))
    export.close([], [], complete=True, packets=0)
    assert [
        (row["connection"], row["exchanges"]) for row in json_rows(tmp_path / "none" / "connections")
    ] == [("aaa", 2)]
    assert len(json_rows(tmp_path / "none" / "exchanges")) == 1
    assert log.finished() == []


def test_manifests_say_whether_an_export_is_complete(tmp_path: Path) -> None:
    def manifest() -> Any:
        return json.loads((tmp_path / "none" / "exchanges" / DIRECTORY / MANIFEST).read_text())

    _, by_format = exports(tmp_path, ["none"])
    by_format["none"].feed(exchange())
    assert manifest()["complete"] is False
    assert manifest()["files"] == []
    by_format["none"].close([], ["odd"], complete=True, packets=0)
    assert manifest()["complete"] is True
    assert manifest()["warnings"] == ["odd"]
    assert [file["rows"] for file in manifest()["files"]] == [1]
    assert by_format["none"].rows["exchanges"] == 1
    assert by_format["none"].bytes >= manifest()["bytes"] > 0
    assert by_format["none"].files == len(TABLES)


def test_time_ends_the_files_of_all_tables(tmp_path: Path) -> None:
    """By packet time; a clock that is set back starts over."""
    _, by_format = exports(tmp_path, ["none"])
    export = by_format["none"]
    export._rotate_ns = 10 * SECOND_NS
    for number, seconds in enumerate((100, 105, 111, 40, 49, 51), 1):
        export.feed(exchange(number=number, completed_ns=seconds * SECOND_NS))
    export.close([], [], complete=True, packets=0)
    files = sorted((tmp_path / "none" / "exchanges").glob("part-*"))
    result = [[orjson.loads(line)["number"] for line in path.read_bytes().splitlines()] for path in files]
    assert result == [[1, 2], [3, 4, 5], [6]]


def test_an_abandoned_export_leaves_no_file(tmp_path: Path) -> None:
    _, by_format = exports(tmp_path, ["none", "gz", "zst", "parquet"])
    for export in by_format.values():
        export.feed(exchange())
        export.abandon()
    assert list(tmp_path.rglob("*part-*")) == []


def test_all_times_fit_a_calendar() -> None:
    far = exchange(time_ns=10**21)
    for column in TABLES["exchanges"].columns:
        if column.type == TIMESTAMP:
            assert column.get(far) is None


def test_options_of_an_export(tmp_path: Path) -> None:
    form = ExportJob(Options(), ExportOptions(tmp_path, "parquet")).format
    assert (form.name, form.compression) == ("parquet", "zst")
    assert ExportJob(Options(), ExportOptions(tmp_path, compression="gz")).format.suffix == ".jsonl.gz"
    nothing = ExportJob(Options(), ExportOptions(tmp_path, bodies="none")).table("exchanges")
    assert {column.get(None) for column in nothing.columns if column.name in ("request", "response")} == {
        None
    }
