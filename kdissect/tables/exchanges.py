"""Exchanges and records -> the tables ``exchanges`` and ``records``: the columns that every command shows,
and those that only exports have. Stateless.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from kdissect.exchanges.latency import FETCHES, waiter
from kdissect.model import Embedded
from kdissect.tables.columns import BINARY, BOOLEAN, EXCHANGE, INT64, RECORD, STRING, Column
from kdissect.tables.form import Table, day, nanoseconds, with_valid_time
from kdissect.tables.values import json_bytes

if TYPE_CHECKING:
    from kdissect.exchanges.partition_records import CarriedRecord
    from kdissect.kafka.internal.topics import Payload
    from kdissect.model import Exchange
    from kdissect.tables.columns import Getter

BODIES = ("request", "response")

_TIME_NS = attrgetter("time_ns")
_RECORD_TIME_NS = attrgetter("source.time_ns")


def _is_long_poll(exchange: Exchange) -> bool:
    return exchange.api_key in FETCHES and exchange.parts is not None and exchange.parts.waited


EXCHANGE_EXPORT_ONLY = (
    day(_TIME_NS),
    nanoseconds(_TIME_NS),
    Column(
        "long_poll",
        BOOLEAN,
        _is_long_poll,
        "Whether it is a Fetch or ShareFetch that waited for records, see `wait_us`.",
    ),
    Column(
        "wait_kind",
        STRING,
        waiter,
        "Kind of request, for requests that brokers may hold (long polls, or waiting for group members): the "
        "API, and who fetches if that is not a consumer: `Fetch (replica)`, `Fetch (KRaft)`. Null for all "
        "others.",
    ),
)
RECORD_EXPORT_ONLY = (
    day(_RECORD_TIME_NS),
    nanoseconds(_RECORD_TIME_NS),
    Column(
        "timestamp_ms",
        INT64,
        attrgetter("timestamp_ms"),
        "`timestamp` as on the wire, -1 for none: any 64-bit number, even if it is not a valid time.",
        "ms since 1970",
    ),
)
"""Columns that only exports have."""


def payload(value: Payload) -> bytes | None:
    """A record's key or value as bytes: JSON if it was decoded, None for a credential."""
    if isinstance(value, Embedded):
        return json_bytes(value.decoded)
    return value if isinstance(value, bytes) else None


def exchanges(bodies: frozenset[str] = frozenset(BODIES)) -> Table:
    """The table ``exchanges``; bodies that are not in ``bodies`` are null."""
    columns = [
        _null(column) if column.name in BODIES and column.name not in bodies else with_valid_time(column)
        for column in EXCHANGE
    ]
    return Table(
        "exchanges",
        "A request with its response, or only one of the two.",
        (*columns, *EXCHANGE_EXPORT_ONLY),
    )


def records() -> Table:
    """The table ``records``."""
    columns = (*map(with_valid_time, RECORD), *RECORD_EXPORT_ONLY)
    packed = {"key": _key, "value": _value}
    return Table(
        "records",
        "A record that was produced or fetched.",
        columns,
        tuple(_packed(column, packed.get(column.name)) for column in columns),
    )


def _key(record: CarriedRecord) -> bytes | None:
    return payload(record.key)


def _value(record: CarriedRecord) -> bytes | None:
    return payload(record.value)


def _packed(column: Column, get: Getter | None) -> Column:
    return column if get is None else replace(column, type=BINARY, get=get)


def _null(column: Column) -> Column:
    return replace(column, get=lambda _: None)
