"""A shard of a capture's connections -> files of all tables, and what the parent adds to those of all shards.

The captures are read twice: each worker gathers what its connections say about others, waits for what all of
them say, and writes. Holds what dissecting and writing hold (pipeline.py, tables/export.py).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.limits import MIB
from kdissect.parallel.assembling import Stop
from kdissect.parallel.worker import Stopped
from kdissect.pipeline import Dissection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kdissect.capture.reader import Capture
    from kdissect.exchanges.learned import LearnedFacts
    from kdissect.model import Exchange
    from kdissect.parallel.worker_pool import Inbox

_REPORTED_BYTES = MIB


class Progress(NamedTuple):
    """How far a worker has read the captures; they are read twice."""

    bytes_read: int


class ShardReader:
    """A worker's: reads the captures until the parent wants no more.

    Attributes:
        is_stopped: whether that is so.
    """

    def __init__(self, send: Callable[[Any], object], inbox: Inbox) -> None:
        self.is_stopped = False
        self._send = send
        self._inbox = inbox
        self._before = self._reported = 0

    def watch(self, packets: Iterable[Any], capture: Capture) -> Iterator[Any]:
        """Let packets pass.

        Raises:
            Stopped: the parent wants no more.
        """
        for packet in packets:
            if (
                self.is_stopped or self._inbox.has_message()
            ):  # while a worker reads, there is nothing else to hear
                self.is_stopped = True
                raise Stopped
            bytes_read = self._before + capture.bytes_read
            if bytes_read - self._reported >= _REPORTED_BYTES:
                self._reported = bytes_read
                self._send(Progress(bytes_read))
            yield packet
        self._before += capture.bytes_read

    def exchange_facts(self, facts: LearnedFacts) -> LearnedFacts:
        """Give the parent what this shard says about others, and wait for what all of them say."""
        self._send(facts)
        reply = self._inbox.receive()
        self.is_stopped = isinstance(reply, Stop)
        return facts if self.is_stopped else reply


class StoppableDissection(Dissection):
    """Ends where the parent wants no more."""

    def __iter__(self) -> Iterator[Exchange]:
        """Exchanges in order of completion."""
        with suppress(Stopped):
            yield from super().__iter__()
