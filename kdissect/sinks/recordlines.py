"""Records -> one JSON object a line, as jsonlines.py writes them; holds what that holds, and one template.

Most columns of a record are the same in its whole batch. So what stands between those that differ is written
once for a batch, and kept as bytes. A record that says more than key, value and time (headers, a schema's id,
a mark, what was decoded or withheld) is written column by column. That is five times as fast as doing so for
all.
"""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from typing import TYPE_CHECKING

from orjson import dumps

from kdissect.sinks.jsonlines import JsonLines
from kdissect.sinks.recordcolumns import NO_TIMESTAMP, RECORD
from kdissect.sinks.values import json_bytes, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.analysis.carried import CarriedRecord, OpenBatch

OWN = ("offset", "timestamp", "key", "key_encoding", "value", "value_encoding")
"""The columns in which plain records of a batch differ."""

_WORTH_A_TEMPLATE = 4
"""Records; a template takes as long as one of them, written column by column."""


class RecordLines(JsonLines):
    """Writes records, by themselves or by the batch.

    Args:
        write: takes bytes; what it raises (a closed pipe) is the caller's.
        flush_each: write every line at once, for somebody who watches.
    """

    def __init__(self, write: Callable[[bytes], object], *, flush_each: bool = False) -> None:
        super().__init__(write, columns=RECORD, flush_each=flush_each)

    def feed_batch(self, records: OpenBatch) -> None:
        """Write all records of a batch."""
        if not records.are_plain or len(records) < _WORTH_A_TEMPLATE:
            for record in records:
                self.feed(record)
            return
        is_told, append_ms = records.carried.tells_offsets, records.carried.log_append_time_ms
        between = None
        for place, (offset, time_ms, key, value, headers) in enumerate(records.batch.records):
            if headers or (key and not key[0]) or (value and not value[0]):
                self.feed(records.plain(place))
                continue
            if between is None:
                between = self._template(records.plain(place))
            self.add(
                b"".join((
                    between[0], b"%d" % offset if is_told else b"null",
                    between[1], _time(time_ms if append_ms is None else append_ms),
                    between[2], *_spelled(key, between[3]),
                    between[4], *_spelled(value, between[5]),
                    between[6],
                ))
            )  # fmt: skip

    def _template(self, record: CarriedRecord) -> list[bytes]:
        """What stands before, between and behind ``OWN``; ``record``: a plain one of the batch."""
        pieces, piece = [], b"{"
        for name, get in self._getters:
            piece += b'"%b":' % name.encode()
            if name in OWN:
                pieces.append(piece)
                piece = b","
            else:
                piece += json_bytes(get(record)) + b","
        return [*pieces, piece[:-1] + b"}\n"]


def _spelled(payload: bytes | None, between: bytes) -> tuple[bytes, bytes, bytes]:
    """Text and encoding, as ``values.spelled`` tells them."""
    if payload is None:
        return b"null", between, b"null"
    try:
        return dumps(payload.decode()), between, b'"utf-8"'
    except UnicodeDecodeError:
        return b'"%b"' % b64encode(payload), between, b'"base64"'


@lru_cache(256)
def _time(time_ms: int | None) -> bytes:
    if time_ms is None or time_ms == NO_TIMESTAMP:
        return b"null"
    return b'"%b"' % timestamp(time_ms * 1_000_000).encode()
