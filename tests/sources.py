"""Captures -> the rows that tasks of the data source make of them, in this process."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kdissect.spark.batches import columns_of
from kdissect.spark.datasource import Reader
from kdissect.spark.options import parse
from kdissect.tables.rows import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kdissect.spark.options import SourceOptions

BY_FILE = [name for name in TABLES if name not in ("connections", "topic_ids", "brokers", "rebalances")]
"""Tables of which each row belongs to one file."""
OF_FILES = {"capture", "packet", "interfaces"}
"""Columns that tell of files, and so depend on how captures are divided into them."""
OF_STARTS = {
    "connection", "number", "client_software_name", "client_software_version", "principal", "sasl_mechanism",
}  # fmt: skip
"""What a look-back need not know of a connection that began before it."""
OF_EARLIER = {
    "throttled_us", "wait_us", "service_us", "think_us", "long_poll", "cluster_id", "topics", "topic",
    "e2e_latency_us",
}  # fmt: skip
"""What depends on earlier exchanges, which a look-back may not reach; the last four also on those of other
connections.
"""


def rows(directory: Path, table: str, but: set[str] = OF_FILES, **options: str) -> Counter[str]:
    """The rows of a table, of all tasks together."""
    requested = parse({"path": str(directory), "table": table, **options}).for_batch
    names = [column.name for column in columns_of(table) if column.name not in but]
    result: Counter[str] = Counter()
    for batch in batches(requested, names):
        result.update(map(repr, batch.to_pylist()))
    return result


def batches(options: SourceOptions, columns: Sequence[str]) -> Iterator[Any]:
    """The record batches of all tasks."""
    reader = Reader(options, columns)
    for part in reader.partitions():
        yield from reader.read(part)
