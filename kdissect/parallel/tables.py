"""A shard of a capture's connections -> learned facts; and table files of an export.

A worker that needs the facts of all connections reads the captures twice: once for the facts learned on its
own connections (``LearnedFacts``), which the parent merges and sends to all workers, and once for the rows.
Holds what dissecting and writing hold (pipeline.py, tables/export.py).
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
    """Bytes that a worker has read of the captures, in both passes together."""

    bytes_read: int


class ShardReader:
    """Reports a worker's progress, and stops reading when the parent sends ``Stop``.

    Attributes:
        is_stopped: whether the parent has sent ``Stop``.
        bytes_before: bytes read in earlier passes.
    """

    def __init__(self, send: Callable[[Any], object], inbox: Inbox) -> None:
        self.is_stopped = False
        self._send = send
        self._inbox = inbox
        self.bytes_before = self._reported = 0

    def watch(self, packets: Iterable[Any], capture: Capture) -> Iterator[Any]:
        """Pass packets on.

        Raises:
            Stopped: the parent has sent ``Stop``.
        """
        for packet in packets:
            if self.is_stopped or self._inbox.has_message():  # during a pass only Stop is sent
                self.is_stopped = True
                raise Stopped
            bytes_read = self.bytes_before + capture.bytes_read
            if bytes_read - self._reported >= _REPORTED_BYTES:
                self._reported = bytes_read
                self._send(Progress(bytes_read))
            yield packet
        self.bytes_before += capture.bytes_read

    def exchange_facts(self, facts: LearnedFacts) -> LearnedFacts:
        """Send the parent this shard's facts; return those of all shards, or these again after ``Stop``."""
        self._send(facts)
        reply = self._inbox.receive()
        self.is_stopped = isinstance(reply, Stop)
        return facts if self.is_stopped else reply


class StoppableDissection(Dissection):
    """A dissection that ends when the parent sends ``Stop``."""

    def __iter__(self) -> Iterator[Exchange]:
        """Exchanges in order of completion."""
        with suppress(Stopped):
            yield from super().__iter__()
