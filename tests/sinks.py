"""Sinks for tests: what goes into others is noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.sinks.sink import Demand

if TYPE_CHECKING:
    from kdissect.model import Exchange
    from kdissect.pipeline import Dissection
    from kdissect.sinks.sink import Sink

FED = Demand(one_by_one=True)
"""Every exchange is fed."""


class Noted:
    """Passes everything on to a sink.

    Attributes:
        fed: number of exchanges that were fed.
        taken: number of exchanges that the core finished.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.plan = sink.plan
        self.fed = self.taken = 0

    @property
    def rows(self) -> int:
        return self._sink.rows

    def feed(self, exchange: Exchange) -> None:
        self.fed += 1
        self._sink.feed(exchange)

    def skip(self, exchange: Exchange) -> None:
        self._sink.skip(exchange)

    def take(self, output: bytes, exchanges: int) -> None:
        self.taken += exchanges
        assert not output or output.count(b"\n") >= exchanges
        self._sink.take(output, exchanges)

    def close(self) -> None:
        self._sink.close()

    def part(self) -> Any:
        return self._sink.part()

    def merge(self, part: Any) -> None:
        self._sink.merge(part)


def taken(dissection: Dissection, sink: Sink) -> int:
    """Dissect into a sink. Returns how many exchanges the core finished."""
    noted = Noted(sink)
    for _ in dissection.into(noted):
        pass
    sink.close()
    assert noted.fed + noted.taken == sink.rows
    return noted.taken
