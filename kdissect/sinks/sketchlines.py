"""What a summary counted -> its sketches of latencies as JSON lines, to be merged with those of other
captures: by ``Quantiles.merge``, or by Spark, whose kll_merge_agg_double takes them. Holds a line.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from kdissect.sinks.values import json_bytes, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kdissect.analysis.summary.load import Load
    from kdissect.analysis.summary.summarizer import Summarizer

SCHEMA = "start timestamp, by string, key string, quantity string, count bigint, total bigint, sketch binary"
"""How Spark reads the lines. ``by``: api, client, broker ...; ``key``: which of them; null: all exchanges.
``start`` is null but in a time series. ``sketch`` is a KLL sketch of doubles, k = 400, of ``quantity``.
"""
QUANTITIES = ("latency_us", "long_poll_us")


def lines(summarizer: Summarizer, by: str | None) -> Iterator[bytes]:
    """The sketches of all exchanges, of each row of its tables, and of each piece of time.

    Make them when the summary is closed: a distribution that is sketched forgets its numbers.

    Args:
        summarizer: all of it.
        by: what the rows of its time series are, besides all exchanges.
    """
    traffic = summarizer.traffic
    tables: dict[str, Mapping[str, Load]] = {
        "api": traffic.tables.apis,
        "broker": traffic.tables.brokers,
        "client": traffic.tables.clients,
        "group": traffic.tables.groups,
        "connection": traffic.tables.connections,
    }
    yield from _lines(None, None, None, traffic.tables.all)
    for name, table in tables.items():
        for key in sorted(table):
            yield from _lines(None, name, key, table[key])
    if summarizer.intervals is not None:
        for start_ns, row, load in summarizer.intervals.loads():
            yield from _lines(timestamp(start_ns), None if row is None else by, row, load)


def _lines(start: str | None, by: str | None, key: str | None, load: Load) -> Iterator[bytes]:
    for quantity in QUANTITIES:
        quantiles = getattr(load, quantity)
        if quantiles.count:
            row = {
                "start": start,
                "by": by,
                "key": key,
                "quantity": quantity,
                "count": quantiles.count,
                "total": quantiles.total,
                "sketch": b64encode(quantiles.serialize()).decode("ascii"),
            }
            yield json_bytes(row) + b"\n"
