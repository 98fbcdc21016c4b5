"""The columns ``request`` and ``response`` -> the same with the records inside record data. Holds nothing.

Each batch is its header as ever, with ``records`` and where there are any ``anomalies`` behind it; records
have the names and the spelling of columns.py. What is no batch has no header.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.exchanges.partition_records import carried, open_carried
from kdissect.kafka.records import RecordData
from kdissect.limits import DEFAULT
from kdissect.tables.columns import EXCHANGE, RECORD, Column, text_getter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kdissect.exchanges.partition_records import Carried, OpenBatch
    from kdissect.kafka.batches import Batch
    from kdissect.limits import Limits
    from kdissect.model import Body, Exchange


_LOG_OVERHEAD = 12

_SHOWN = (
    *("offset", "timestamp", "timestamp_type"),
    *("key", "key_encoding", "value", "value_encoding", "headers", "control_type", "aborted"),
)
_GETTERS = [(column.name, text_getter(column)) for column in RECORD if column.name in _SHOWN]


def with_records(opener: Opener) -> tuple[Column, ...]:
    """The columns of an exchange, for somebody who asked for records."""

    def request(exchange: Exchange) -> Body | None:
        return _body(exchange, exchange.request, opener, produced=True)

    def response(exchange: Exchange) -> Body | None:
        return _body(exchange, exchange.response, opener, produced=False)

    getters = {"request": request, "response": response}
    return tuple(
        replace(column, get=getters[column.name]) if column.name in getters else column for column in EXCHANGE
    )


def _body(exchange: Exchange, body: Body | None, opener: Opener, *, produced: bool) -> Body | None:
    opened = opener.of(exchange, produced=produced)
    if body is None or not opened.carried:
        return body
    return {name: _value(value, opened) for name, value in body.items()}


def _value(value: Any, opened: Opened) -> Any:
    if isinstance(value, RecordData):
        return _batches(value, opened)
    if isinstance(value, dict):
        return {name: _value(inner, opened) for name, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [_value(inner, opened) for inner in value]
    return value


def _batches(data: RecordData, opened: Opened) -> list[Body]:
    carried = opened.carried.get(data.end)
    if carried is None:
        return data.batches()
    headers = deque(_with_ends(data.batches()))
    found: list[Body] = []
    for records in opened.open(carried):
        batch = records.batch
        rows = [{name: get(record) for name, get in _GETTERS} for record in records]
        inside = []
        while headers and headers[0][0] <= batch.pos + batch.size:
            inside.append(headers.popleft()[1])
        found += _entries(batch, inside, rows)
    return found + [header for _, header in headers]


def _with_ends(headers: list[Body]) -> Iterator[tuple[int, Body]]:
    end = 0
    for header in headers:
        end += _LOG_OVERHEAD + header["batch_length" if header["magic"] == 2 else "message_size"]
        yield end, header


def _entries(batch: Batch, headers: list[Body], rows: list[Body]) -> list[Body]:
    """One entry for each header: messages of magic 0 and 1 that stand together are opened together."""
    anomalies = [anomaly._asdict() for anomaly in batch.anomalies]
    odd = {"anomalies": anomalies} if anomalies else {}
    if len(headers) > 1 and len(headers) == len(rows):
        each = [{**header, "records": [row]} for header, row in zip(headers, rows, strict=True)]
        return [{**each[0], **odd}, *each[1:]]
    header = headers[0] if headers else {}
    return [{**header, "records": rows, **odd}, *headers[1:]]


# ------------------------------------------------------------------------------------------------------------
# Record data in a body -> its batches, opened, for sinks that show whole bodies. Holds which partition each
# ``records`` field of one message is about.
# ------------------------------------------------------------------------------------------------------------


class Opened(NamedTuple):
    """The record data of one message.

    Attributes:
        carried: by where it ends in the frame, which compiled code and walker agree about.
        opener: how it is opened.
    """

    carried: Mapping[int, Carried]
    opener: Opener

    def open(self, found: Carried) -> Iterator[OpenBatch]:
        """Open one of them, batch by batch."""
        return open_carried(found, self.opener.limits, show_secrets=self.opener.show_secrets)


class Opener(NamedTuple):
    """How record data is opened."""

    show_secrets: bool = False
    limits: Limits = DEFAULT

    def of(self, exchange: Exchange, *, produced: bool) -> Opened:
        """What the request carries, if clients produced it, else what the response does."""
        found = {each.records.end: each for each in carried(exchange) if each.produced == produced}
        return Opened(found, self)
