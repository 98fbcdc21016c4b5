"""``CarriedRecord`` -> all of it as a small tree: where it comes from, its batch, key, headers and value.
Holds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.sinks.colours import BOLD, of_anomaly, paint
from kdissect.sinks.meanings import offset_text, opened_text
from kdissect.sinks.outline import INDENT, View, record_details
from kdissect.sinks.phrases import facts
from kdissect.sinks.printable import printable, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from kdissect.analysis.carried import CarriedRecord
    from kdissect.sinks.times import Times


class RecordTree:
    """Writes the trees, an empty line between them.

    Attributes:
        is_first: whether the next one has none before it.

    Args:
        out: where to; the caller owns and flushes it.
        times: writes the time of the exchange.
        colour: whether to colour.
        whole: show all of long texts, bytes and lists of headers.
    """

    def __init__(self, out: TextIO, times: Times, *, colour: bool = False, whole: bool = False) -> None:
        self._write = out.write
        self._times = times
        self._colour = colour
        self._whole = whole
        self.is_first = True

    def feed(self, record: CarriedRecord) -> None:
        """Write one tree."""
        if not self.is_first:
            self._write("\n")
        self.is_first = False
        for line in self._lines(record):
            self._write(line + "\n")

    def close(self) -> None:
        """Nothing is left to write: every tree was complete."""

    def _lines(self, record: CarriedRecord) -> Iterator[str]:
        carried, exchange = record.carried, record.carried.exchange
        topic = next(iter(carried.names), None)
        title = facts(
            "topic not told" if topic is None else f"topic {printable(topic)}",
            None if carried.partition is None else f"partition {carried.partition}",
            offset_text(record),
        )
        yield self._paint(title, BOLD)
        way = "sent in" if carried.produced else "fetched by"
        client = None if exchange.client_id is None else f"client id {quoted(exchange.client_id)}"
        where = f"{exchange.api} {exchange.connection.id}/{exchange.number}"
        yield f"{INDENT}{way}: {facts(where, self._times.text(exchange.time_ns), client)}"
        if carried.topic is not None and carried.topic_id is not None:
            yield f"{INDENT}topic id: {printable(carried.topic_id)}"
        yield f"{INDENT}batch: {opened_text(carried, record.batch)}"
        for anomaly in record.batch.anomalies:
            text = f"! {anomaly.kind}: {printable(anomaly.detail)}"
            yield INDENT + self._paint(text, of_anomaly(anomaly.kind))
        yield from record_details(View(None, 0, exchange.topic_names, self._whole), record, 1)

    def _paint(self, text: str, colour: str) -> str:
        return paint(text, colour) if self._colour else text
