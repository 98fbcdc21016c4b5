"""Records -> one JSON object a line, as jsonlines.py writes them; holds what that holds, one template, and
the lines of 64 records.

Most columns of a record are the same in its whole batch. So what stands between those that differ is written
once for a batch, and kept as bytes; what differs is written for many records at once, column by column, and
all of it joined. Where headers and schemas tell nothing, as of most batches, neither is that asked of each.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain, repeat
from typing import TYPE_CHECKING

from orjson import Fragment, dumps

from kdissect.sinks.jsonlines import JsonLines
from kdissect.sinks.recordcolumns import NO_TIMESTAMP, RECORD
from kdissect.sinks.values import json_bytes, spelled, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kdissect.analysis.carried import CarriedRecord, OpenBatch
    from kdissect.kafka.recordbatch import Record

OWN = ("offset", "timestamp", "key", "key_encoding", "value", "value_encoding")
"""The columns in which all records of a batch differ."""

MORE = (
    "key_schema_id",
    "key_schema_guid",
    "schema_id",
    "schema_guid",
    "headers",
    "trace_id",
    "span_id",
    "trace_format",
)
"""Those behind them, which say something of a record that has headers or begins with a zero byte only."""

_WORTH_A_TEMPLATE = 3
"""Records; a template takes nearly as long as two of them, written column by column."""

_TOGETHER = 64
"""Records whose lines are made together: with twice as many they do not stay in a processor's cache."""

_SEAM = b"\n"
"""Stands in no line, for in strings it is escaped."""


class RecordLines(JsonLines):
    """Writes records, by themselves or by the batch.

    Args:
        write: takes bytes; what it raises (a closed pipe) is the caller's.
        flush_each: write every line at once, for somebody who watches.
    """

    def __init__(self, write: Callable[[bytes], object], *, flush_each: bool = False) -> None:
        super().__init__(write, columns=RECORD, flush_each=flush_each)
        self._getters_of_more = [(name, get) for name, get in self.getters if name in MORE]

    def feed_batch(self, records: OpenBatch) -> None:
        """Write all records of a batch."""
        if not records.are_plain or len(records) < _WORTH_A_TEMPLATE:
            for record in records:
                self.feed(record)
            return
        plainest = records.plain(0)._replace(key=None, value=None, headers=())
        between = self._template(plainest)
        nothing = self._more(plainest)
        for start in range(0, len(records), _TOGETHER):
            self.add(self._lines(records, start, between, nothing))

    def _template(self, record: CarriedRecord) -> list[bytes]:
        """What stands before, between and behind ``OWN``."""
        seam = Fragment(_SEAM)
        line = {name: seam if name in OWN else get(record) for name, get in self.getters}
        return (json_bytes(line) + b"\n").split(_SEAM, len(OWN))

    def _more(self, record: CarriedRecord) -> bytes:
        return b"," + json_bytes({name: get(record) for name, get in self._getters_of_more})[1:-1]

    def _lines(self, records: OpenBatch, start: int, between: Sequence[bytes], nothing: bytes) -> bytes:
        """Those of the records from ``start`` on; ``nothing``: what most say of ``MORE``."""
        rows = records.batch.records[start : start + _TOGETHER]
        offsets, times_ms, keys, values, _ = zip(*rows, strict=True)
        append_ms = records.carried.log_append_time_ms
        says_more = say_more(rows)
        behind: Iterable[bytes] = repeat(between[6])
        if any(says_more):
            rest = between[6].removeprefix(nothing)
            behind = [
                (self._more(records.plain(place)) if more else nothing) + rest
                for place, more in enumerate(says_more, start)
            ]
        pieces = zip(
            repeat(between[0]),
            dumps(offsets)[1:-1].split(b",") if records.carried.tells_offsets else repeat(b"null"),
            repeat(between[1]),
            map(_time, times_ms) if append_ms is None else repeat(_time(append_ms)),
            repeat(between[2]),
            *_spelled(keys, between[3]),
            repeat(between[4]),
            *_spelled(values, between[5]),
            behind,
        )  # fmt: skip
        return b"".join(chain.from_iterable(pieces))


def say_more(records: Sequence[Record]) -> list[bool]:
    """Of each whether ``MORE`` can say something of it."""
    return [
        bool(headers or (key and not key[0]) or (value and not value[0]))
        for _, _, key, value, headers in records
    ]


def _spelled(payloads: Sequence[bytes | None], between: bytes) -> tuple[Iterable[bytes], Iterable[bytes]]:
    """The text of each, and what follows: the encoding, as ``values.spelled`` tells it."""
    try:
        return list(map(dumps, map(bytes.decode, payloads))), repeat(between + b'"utf-8"')  # type: ignore[arg-type]
    except (TypeError, UnicodeDecodeError):  # one is null, or no text
        texts, encodings = zip(*map(spelled, payloads), strict=True)
        return map(dumps, texts), [between + dumps(encoding) for encoding in encodings]


@lru_cache(1000)  # those of a second
def _time(time_ms: int | None) -> bytes:
    if time_ms is None or time_ms == NO_TIMESTAMP:
        return b"null"
    return b'"%b"' % timestamp(time_ms * 1_000_000).encode()
