"""A share of a capture's connections -> batches of rows for the parent. Holds one batch, and the exchanges
that wait for the parent's word: ``limits.naming_rows`` and ``order_rows`` of them at most, and those of the
batches that are ahead.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Protocol

from kdissect.analysis.naming import NONE, RESERVED, Mentions, mentions
from kdissect.analysis.over import Over
from kdissect.parallel.protocol import AHEAD, Batch, Columns, Late, Stop, Told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kdissect.limits import Limits
    from kdissect.model import Exchange, Lull, Packet, Stretch
    from kdissect.pipeline import Dissection, Item

    Packets = Stretch | Packet | Lull

_ROWS = 400  # of a batch; a few milliseconds of work
_BYTES = 1 << 19  # of their frames
_DECODED = 1 << 25  # of what they decode to; a batch with more is put together before the next one is made
_PLACES = 100_000  # without a row: others wait to hear that there is none


class Work(Protocol):
    """What a worker does with exchanges that are in order, each connection for itself, and named."""

    form: Any
    """What it holds for agreed with all other workers (aligning.py); None: there is nothing to agree on."""

    def feed(self, exchange: Exchange) -> Any:
        """What becomes of it in the output, to be sent; None: nothing."""

    def over(self, over: Over) -> Any:
        """The same of the end of a connection."""

    def end(self) -> Any:
        """The same at the end of it all."""


class Stopped(Exception):
    """The parent wants no more."""


def columns() -> Columns:
    """No rows."""
    return Columns(array("q"), array("q"), array("q"), array("q"), array("q"))


class Worker:
    """Sees to it that the parent gets all rows.

    Args:
        work: what is made of exchanges.
        limits: bounds.
        send: gives the parent a message.
        receive: waits for one of the parent's.
        heard: whether one is there.
        bytes_read: tells how far the files are read.

    Attributes:
        exchanges: how many there were.
    """

    def __init__(
        self,
        work: Work,
        limits: Limits,
        send: Callable[[Any], object],
        receive: Callable[[], Any],
        heard: Callable[[], bool],
        bytes_read: Callable[[], int],
    ) -> None:
        self._work = work
        self._limits = limits
        self._send = send
        self._receive = receive
        self._heard = heard
        self._bytes_read = bytes_read
        self._dissection: Dissection
        self._rows = columns()
        self._bytes = self._decoded = 0
        self._until = 0
        self._ahead: deque[tuple[int, int]] = deque()
        self._names: dict[str, str] = dict(RESERVED)
        self._open: dict[int, Item] = {}
        self._open_on: Counter[str] = Counter()
        self._numbers = 0
        self.exchanges = 0

    def run(self, dissection: Dissection) -> None:
        """Send all rows of a dissection whose packets this one watches.

        Raises:
            Stopped: the parent wants no more.
        """
        self._dissection = dissection
        waiting: int | None = None
        for items, waiting_since_ns in dissection.steps():
            place = dissection.place
            if waiting_since_ns != waiting:
                waiting = waiting_since_ns
                self._rows.waits.append((place, waiting))
            items.reverse()
            while items:  # none is kept once its row is made: decoded, each may take most of the memory
                self._add(place, items.pop())
            if self._decoded >= _DECODED:
                self._flush(place)
        self._flush(dissection.place, is_last=True)
        while self._open:
            self._listen()

    def watch(self, packets: Iterable[Packets]) -> Iterator[Packets]:
        """Let packets pass to the dissection; between them send the rows that there are."""
        for each in packets:
            yield each
            while self._heard():
                self._listen()
            place, rows = self._dissection.place, len(self._rows.places)
            if place - self._until > _PLACES or rows >= _ROWS or self._bytes >= _BYTES:
                self._flush(place)

    def _add(self, place: int, item: Item) -> None:
        connection, told = item.connection_id, NONE
        if isinstance(item, Over):
            make: Callable[[Any], Any] = self._work.over
            completed_ns, packet = item.order
            held = 0
        else:
            make = self._work.feed
            self.exchanges += 1
            self._dissection.decode(item)
            completed_ns, packet = item.order
            held = item.held_bytes
            told = mentions(item)
        rows = self._rows
        if (told.ids and not self._is_known(told)) or (self._open and connection in self._open_on):
            self._numbers += 1
            self._open[self._numbers] = item
            self._open_on[connection] += 1
            rows.open[len(rows.made)] = self._numbers, told
            rows.made.append(None)
        else:
            for topic_id in told.ids:
                item.topic_names[topic_id] = self._names[topic_id]
            rows.made.append(make(item))
        rows.places.append(place)
        rows.completed_ns.append(completed_ns)
        rows.packets.append(packet)
        rows.held.append(held)
        rows.decoded.append(item.decoded_bytes)
        rows.connections.append(connection)
        self._bytes += held
        self._decoded += item.decoded_bytes

    def _is_known(self, told: Mentions) -> bool:
        names = self._names
        return all(topic_id in names for topic_id in told.ids)

    def _make(self, item: Item) -> Any:
        return self._work.over(item) if isinstance(item, Over) else self._work.feed(item)

    def _flush(self, until: int, *, is_last: bool = False) -> None:
        """Send what there is up to a place; wait until the others are not too far behind."""
        packets = self._dissection.counts["packets"]
        self._send(Batch(until, self._rows, self._work.form, packets, self._bytes_read(), is_last))
        self._ahead.append((until, self._decoded))
        self._rows, self._bytes, self._decoded, self._until = columns(), 0, 0, until
        while self._heard() or self._is_far_ahead():
            self._listen()

    def _is_far_ahead(self) -> bool:
        return len(self._ahead) > AHEAD or sum(decoded for _, decoded in self._ahead) > _DECODED

    def _listen(self) -> None:
        told = self._receive()
        if isinstance(told, Stop):
            raise Stopped
        assert isinstance(told, Told)
        while self._ahead and self._ahead[0][0] <= told.until:
            self._ahead.popleft()
        self._names |= told.names
        while len(self._names) > self._limits.topic_names:
            del self._names[next(iter(self._names))]
        made = []
        for number, names, anomalies in told.verdicts:
            item = self._open.pop(number)
            self._open_on[item.connection_id] -= 1
            if not self._open_on[item.connection_id]:
                del self._open_on[item.connection_id]
            item.topic_names |= names
            item.anomalies += anomalies
            made.append((number, self._make(item)))
        if made:
            self._send(Late(made, self._work.form))
        self._work.form = told.form
