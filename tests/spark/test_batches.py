from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from kdissect.capture.reader import open_capture
from kdissect.errors import UsageError
from kdissect.pipeline import Dissection
from kdissect.spark.batches import TableBatches, columns_of
from kdissect.tables.rows import TABLES
from tests.exchange_factory import exchange
from tests.record_exchanges import fetch, long_batch, produce

if TYPE_CHECKING:
    from kdissect.exchanges.partition_records import DecodedBatch
    from kdissect.model import Exchange

EXCHANGES = {"exchanges": columns_of("exchanges")}
SAMPLE = Path(__file__).parents[2] / "samples" / "quickstart.pcap"


def fed(batches: TableBatches, exchange: Exchange) -> list[tuple[str, Any]]:
    """The batches that are full after an exchange."""
    batches.feed(exchange)
    return list(batches.filled())


def fed_one_by_one(batches: TableBatches, exchange: Exchange) -> list[tuple[str, Any]]:
    """The same, of its records."""
    by_table = batches.tables.feed(exchange)
    return list(
        batches.feed_rows((name, row) for name, each in by_table for row in cast("DecodedBatch", each))
    )


def tables_of(batches: TableBatches) -> dict[str, Any]:
    """All rows of a sample, by table."""
    batches_created = []
    with open_capture(SAMPLE) as capture:
        for each in Dissection(batches.log.watch(capture), observer=batches.log):
            batches_created += fed(batches, each)
        batches_created += batches.close(capture.sources, capture.warnings)
    return {
        name: pa.Table.from_batches([batch for own, batch in batches_created if own == name])
        for name in {name for name, _ in batches_created}
    }


def test_every_table_comes_with_the_columns_of_the_catalogue() -> None:
    for name, table in tables_of(TableBatches({name: columns_of(name) for name in TABLES})).items():
        assert table.column_names == [column.name for column in TABLES[name].columns]
        assert table.num_rows > 0


def test_only_requested_columns_are_computed() -> None:
    requested = {"exchanges": columns_of("exchanges", ["api", "connection"])}
    (table,) = tables_of(TableBatches(requested)).values()
    assert table.column_names == ["api", "connection"]
    assert table.num_rows == tables_of(TableBatches(EXCHANGES))["exchanges"].num_rows


def test_batches_are_bounded_in_rows_and_in_bytes() -> None:
    batches = TableBatches(EXCHANGES, rows=3)
    assert [len(fed(batches, exchange(number=n))) for n in range(7)] == [0, 0, 1, 0, 0, 1, 0]
    assert [batch.num_rows for _, batch in batches.close()] == [1]
    batches = TableBatches(EXCHANGES, bytes=1)
    assert [len(fed(batches, exchange(number=n))) for n in range(3)] == [1, 1, 1]
    assert list(batches.close()) == []


@pytest.mark.parametrize(
    ("rows", "bytes_"), [(5000, 1 << 24), (40, 1 << 24), (5000, 9000), (60, 30_000), (1, 0)]
)
@pytest.mark.parametrize("columns", [None, ["offset", "trace_id"], ["topic"]])
def test_records_by_the_batch_are_bounded_as_those_that_come_one_by_one(
    rows: int, bytes_: int, columns: list[str] | None
) -> None:
    exchanges = [fetch(long_batch((0, 70, 149))), produce(long_batch(range(100))), fetch(long_batch((), 7))]
    outputs = []
    for feed in (fed, fed_one_by_one):
        batches = TableBatches({"records": columns_of("records", columns)}, rows=rows, bytes=bytes_)
        outputs.append([batch for each in exchanges for _, batch in feed(batches, each)])
        outputs[-1] += [batch for _, batch in batches.close()]
    assert outputs[0] == outputs[1]
    assert sum(batch.num_rows for batch in outputs[0]) == 307


@pytest.mark.parametrize("bodies", ["none", "request", "response", "both"])
def test_bodies(bodies: str) -> None:
    table = tables_of(TableBatches({"exchanges": columns_of("exchanges", bodies=bodies)}))["exchanges"]
    for name in ("request", "response"):
        assert (table[name].null_count < table.num_rows) == (bodies in (name, "both"))


def test_unknown_names_are_reported_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match='unknown table "exchange"; did you mean "exchanges"'):
        columns_of("exchange")
    with pytest.raises(UsageError, match='unknown table "x"; known: exchanges, records'):
        columns_of("x")
    with pytest.raises(UsageError, match='no column "latency" in exchanges; did you mean "latency_us"'):
        columns_of("exchanges", ["latency"])
