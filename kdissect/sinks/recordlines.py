"""Records -> one JSON object a line, as jsonlines.py writes them; holds what that holds, and one template.

Most columns of a record are the same in its whole batch. So only the first of a batch is written column by
column; from the second on, what stands between the columns that differ is kept as bytes. A record that says
more than key, value and time (headers, a schema's id, a mark, what was decoded or withheld) is written column
by column again. That is five times as fast as doing so for all.
"""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from orjson import dumps

from kdissect.sinks.jsonlines import JsonLines
from kdissect.sinks.recordcolumns import NO_TIMESTAMP, RECORD
from kdissect.sinks.values import json_bytes, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.analysis.carried import CarriedRecord
    from kdissect.model import Exchange

OWN = ("offset", "timestamp", "key", "key_encoding", "value", "value_encoding")
"""The columns in which plain records of a batch differ."""


class RecordLines(JsonLines):
    """Writes records.

    Args:
        write: takes bytes; what it raises (a closed pipe) is the caller's.
        flush_each: write every line at once, for somebody who watches.
    """

    def __init__(self, write: Callable[[bytes], object], *, flush_each: bool = False) -> None:
        super().__init__(write, columns=RECORD, flush_each=flush_each)
        self._of: tuple[Any, Any] = None, None
        self._between: list[bytes] = []

    def feed(self, row: Exchange | CarriedRecord) -> None:
        """Write one."""
        found: Any = row
        carried, batch, record, offset, key, value, headers, control, _ = found
        if headers or control is not None or not (_is_plain(key) and _is_plain(value)):
            super().feed(row)
            return
        if self._of[0] is not batch or self._of[1] is not carried:
            self._of, self._between = (batch, carried), []
            super().feed(row)
            return
        between = self._between = self._between or self._template(found)
        time_ms = carried.log_append_time_ms
        self._add(
            b"".join((
                between[0], b"null" if offset is None else b"%d" % offset,
                between[1], _time(record[1] if time_ms is None else time_ms),
                between[2], *_spelled(key, between[3]),
                between[4], *_spelled(value, between[5]),
                between[6],
            ))
        )  # fmt: skip

    def _template(self, record: CarriedRecord) -> list[bytes]:
        """What stands before, between and behind ``OWN``."""
        pieces, piece = [], b"{"
        for name, get in self._getters:
            piece += b'"%b":' % name.encode()
            if name in OWN:
                pieces.append(piece)
                piece = b","
            else:
                piece += json_bytes(get(record)) + b","
        return [*pieces, piece[:-1] + b"}\n"]


def _is_plain(payload: object) -> bool:
    """Whether it is but bytes, that do not begin as those with the id of a schema do."""
    return payload is None or (type(payload) is bytes and payload[:1] != b"\0")


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
