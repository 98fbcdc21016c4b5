"""The SQL in docs and help texts: every query runs, and its numbers are those of other commands."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from kdissect.cli.spark.sql import EXAMPLES
from kdissect.spark.report import report
from kdissect.spark.tables import views
from kdissect.tables import duck
from kdissect.tables.rows import TABLES
from samples.golden import ROOT, captures, name_of
from tests.shared import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SAMPLES = {name_of(path): path for path in captures()}
USED = "kafka-4-cluster", "kafka-4-lag", "kafka-4-storm", "kafka-4-habits", "kafka-4-transactions"
OF_SPARK = {
    "select parse_json(response):cluster_id from exchanges",
    "show tables",
}
"""Those in Spark's own dialect."""


def queries() -> dict[str, str]:
    """The statements of ``spark sql`` in docs and help texts, and where they are."""
    found = {}
    for where, text in [("help", EXAMPLES), *((page.name, page.read_text("utf-8")) for page in PAGES)]:
        for line in re.findall(r"^ *kdissect spark sql .*$", text, re.MULTILINE):
            words = shlex.split(line.partition(" | ")[0])
            found[words[-1]] = where
    return found


QUERIES = queries()


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("questions") / "tables"
    names = ",".join(TABLES)
    paths = [SAMPLES[name] for name in USED]
    assert say("export", "--format", "parquet", "--tables", names, "-o", out, *paths).status == 0
    return out


@pytest.fixture(scope="module")
def database(tables: Path) -> Iterator[Any]:
    with duck.connection() as connection:
        views(connection, str(tables))
        yield connection


def answer(database: Any, text: str) -> list[list[Any]]:
    return list(duck.sql(database, text).rows(None))


def question(beginning: str) -> str:
    (found,) = (text for text in QUERIES if text.startswith(beginning))
    return found


def test_there_are_queries() -> None:
    assert {"kdissect-spark-sql.md", "spark.md"} <= {*QUERIES.values()}  # help texts are on pages, too
    assert {*QUERIES} >= OF_SPARK


@pytest.mark.parametrize("text", sorted({*QUERIES} - OF_SPARK))
def test_a_query_has_rows(database: Any, text: str) -> None:
    rows = answer(database, text)
    if "count(*) > 1" not in text:  # no sample has a batch that was sent twice
        assert rows


@pytest.mark.spark
@pytest.mark.parametrize("text", sorted(OF_SPARK))
def test_a_query_of_spark_has_rows(spark: Any, tables: Path, text: str) -> None:
    views(spark, str(tables))
    assert spark.sql(text).count()


def test_the_slowest_produce_requests(database: Any, tables: Path) -> None:
    """The same as in the report, which reads ``exchanges``."""
    shown = {
        (str(minute), topic): p99_ms
        for minute, topic, p99_ms in answer(database, question("select minute, topic"))
    }
    ((_, frame),) = report(database, str(tables), ["latency"], by=("api", "topic"), window="1m")
    expected = {}
    for row in frame.rows(None):
        values = dict(zip(frame.columns, row, strict=True))
        if values["api"] == "Produce":
            expected[str(values["start"]), values["topic"]] = values["p99_us"] / 1000
    assert shown == expected
    assert len(shown) > 3


def test_rebalances(database: Any) -> None:
    paths = [SAMPLES[name] for name in USED]
    document = orjson.loads(say("summary", "--groups", "--json", *paths).out)
    counted = sum(len(group["rebalances"]) for group in document["group_history"])
    rows = answer(database, question("select cluster_id, group_id, cause"))
    assert sum(row[3] for row in rows) == counted > 10


def test_racks(database: Any) -> None:
    text = question("select p.client_id, p.client_ip, b.rack")
    with_racks = "(select * replace ('rack-' || node_id as rack) from brokers)"  # no sample has any
    rows = answer(database, text.replace("from brokers", f"from {with_racks}"))
    assert {row[2] for row in rows} > {"rack-1", "rack-2"}
    total = answer(database, "select sum(bytes) from partitions where api = 'Fetch'")
    assert sum(row[3] or 0 for row in rows) == total[0][0]
