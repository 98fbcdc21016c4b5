"""The columns -> docs/columns.md, the page that people read about them. Holds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.tables.columns import EXCHANGE, RECORD
from kdissect.tables.exchanges import EXCHANGE_OWN, RECORD_OWN
from kdissect.tables.rows import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.tables.columns import Column


def markdown() -> str:
    """Write the tables of docs/columns.md."""
    parts = [_HEAD, _table(EXCHANGE), _BODIES, _RECORDS, _table(RECORD), _EXPORTS]
    parts += ["Table `exchanges` has besides:\n", _table(EXCHANGE_OWN)]
    parts += ["Table `records` has besides:\n", _table(RECORD_OWN)]
    for table in TABLES.values():
        if table.name not in ("exchanges", "records"):
            parts += [f"## Table {table.name}\n", f"{table.sentence}\n", _table(table.columns)]
    return "\n".join(parts)


def _table(columns: Sequence[Column]) -> str:
    rows = [f"| `{c.name}` | {c.type} | {c.unit} | {c.sentence} |" for c in columns]
    return "\n".join(["| column | type | unit | meaning |", "|---|---|---|---|", *rows, ""])


_HEAD = """\
# Columns of an exchange

One row, or one JSON object a line, for each request, and for each response whose request was never seen.
Names and types never change; more may join them.

An absent value is null (CSV: nothing between two commas), never "" or -1 of our own making; an array can be
empty but is never null. Times are UTC with microseconds, ISO 8601 ending in Z. Wire values are shown as they
are: in `request` and `response` error codes and enumerations are numbers, in the other columns they are
names.
"""

_BODIES = """\
Inside `request` and `response`, names are those of the protocol guide, in wire order. Bytes are
`{"base64": "..."}`, with `"decoded": {...}` beside it where the payload is known; a uuid is text as Kafka
prints it; record data is an array of batch headers; a credential is `{"withheld": 16}`: its length in bytes.
Unknown tags stand under `_tags` by number, bytes behind a complete body under `_left_over`, bytes that could
not be decoded under `_undecoded`. A float64 that is not a number is null. Where columns are fixed (CSV,
Parquet, Spark), `object` is a string of JSON.
"""

_RECORDS = """\
# Columns of a record

One JSON object a line by `kdissect records --json`, or one line of CSV by `--csv`, for each record that was
produced or fetched: one that was produced and fetched twice comes three times, `--unique` shows the first.
Records of Kafka's own topics are decoded, credentials in them withheld. What was wrong with batches is
counted on stderr, and told there of each without a readable record.

`read --json --records` shows the same inside `request` and `response`: each batch there has `records`, an
array of objects with `offset`, `timestamp`, `timestamp_type`, `key`, `key_encoding`, `value`,
`value_encoding`, `headers`, `control_type` and `aborted` as below, and `anomalies` where there are any.
"""

_EXPORTS = """\
# Tables of an export

What `kdissect export` writes. All tables have `date`, and join on `connection` and `number`. Every column can
be null; names differ even where case is ignored. Files have types, which `_kdissect/schema.json` tells in
Spark's words: a time before the year 1 or after 9999, which a damaged capture can claim, is null there (the
numbers `time_ns` and `timestamp_ms` tell it as far as 64 bits reach). In JSON lines `request` and `response`
are objects, which Spark reads as strings; in Parquet they are strings of JSON, and `key` and `value` of
records are bytes: of what `*_encoding` calls `utf-8` and `base64` those on the wire, of `json` the text.
With `--partition-by` the columns `date` and `api` are in the names of folders and not in the files.
"""
