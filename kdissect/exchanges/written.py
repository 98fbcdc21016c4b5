"""Text of records that the native core has written -> the same, with what other exchanges say of them.

The core writes an exchange without knowing when its batches were produced, or where else they are. So its
text waits among the exchanges that wait for that (end_to_end.py), and gets the values when it is through.
Holds at most ``_HELD_BYTES`` of text and a page of the core; with more, the core leaves exchanges with
records.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from kdissect.exchanges.learned import BatchCopy, NumberedBatch, ProducedBatch
from kdissect.exchanges.resolver import NO_REFS, Refs
from kdissect.names import kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kdissect.model import Anomaly, ConnectionInfo, Exchange

Fill: TypeAlias = "Callable[[bytes, int | None, str | None], bytes]"
"""From the text of a batch, its end-to-end latency in us, and the exchange that has a copy of it, to the text
with these.
"""

_HELD_BYTES = 64 << 20

_Origin: TypeAlias = tuple[str, int, int, int]  # a ProducedBatch: topic, partition, offset, timestamp


class WrittenText:
    """Text of an exchange, or of several without records: it waits as they would.

    Args:
        refs: the batches in it.
        text: of its records.
        fetched: the fetched batches in the text: when produced, when it failed, and where.
        time_ns: of its records.
        exchanges, completed_ns, size: how many it stands for, when they were complete, and bytes of their
            frames and bodies.
        topic_ids: names by ID.
        rows: how many rows it has instead of text: records, and those of each other table.
        rows_bytes: the size of these.
        whole: the exchange, not decoded, if what else is learned of it can change its text.

    Attributes:
        later: what is done when it is through, before it is written.
    """

    __slots__ = (
        "_fetched",
        "_rows_bytes",
        "_text",
        "_time_ns",
        "anomalies",
        "completed_ns",
        "copies",
        "decoded_bytes",
        "exchanges",
        "held_bytes",
        "later",
        "produced_ns",
        "refs",
        "rows",
        "topic_ids",
        "whole",
    )  # fmt: skip

    def __init__(
        self,
        refs: Refs[Any, Any],
        text: bytes,
        fetched: list[tuple[ProducedBatch, NumberedBatch, tuple[int, int]]],
        time_ns: int,
        exchanges: int,
        completed_ns: int,
        size: int,
        topic_ids: dict[str, str],
        rows: list[int],
        rows_bytes: int,
        whole: Exchange | None = None,
    ) -> None:
        self.refs = refs
        self._text = text
        self._fetched = fetched
        self._time_ns = time_ns
        self.exchanges = exchanges
        self.completed_ns = completed_ns
        self.held_bytes = size
        self.decoded_bytes = 0
        self.topic_ids = topic_ids
        self.rows = rows
        self._rows_bytes = rows_bytes
        self.whole = whole
        self.later: list[Callable[[], object]] = []
        self.anomalies: list[Anomaly] = []
        self.produced_ns: dict[ProducedBatch, int] | None = None
        self.copies: dict[NumberedBatch, BatchCopy] | None = None

    def __len__(self) -> int:
        return len(self._text) + self._rows_bytes + (0 if self.whole is None else self.whole.held_bytes)

    def changed(self) -> Exchange | None:
        """The exchange, if its text is no longer right: batches were fetched although they were rejected."""
        if self.whole is None or not self.copies:
            return None
        self.whole.copies = self.copies
        self.whole.topic_ids |= self.topic_ids
        return self.whole

    def text(self, fill: Fill) -> bytes:
        """The text, with what is known now."""
        text = self._text
        pieces: list[bytes] = []
        end_before = 0
        for start, end, latency_us, other in self.joined():
            pieces += (text[end_before:start], fill(text[start:end], latency_us, other))
            end_before = end
        return b"".join([*pieces, text[end_before:]]) if pieces else text

    def joined(self) -> Iterator[tuple[int, int, int | None, str | None]]:
        """Each fetched batch of which more is known now: where its text or rows begin and end, its end-to-end
        latency in us, and the exchange that has a copy of it.
        """
        produced, copies = self.produced_ns or {}, self.copies or {}
        if not (produced or copies):
            return
        for origin, numbered, (start, end) in self._fetched:
            sent_ns, copy = produced.get(origin), copies.get(numbered)
            is_known = sent_ns is not None and sent_ns <= self._time_ns  # see PartitionRecords.produced_ns
            latency_us = (self._time_ns - sent_ns) // 1000 if is_known else None  # type: ignore[operator]
            if is_known or copy is not None:
                yield start, end, latency_us, None if copy is None else copy.exchange


class WrittenTexts:
    """Texts of the core, and the exchanges between them, on their way through ``EndToEnd``.

    Args:
        feed: its method.
    """

    def __init__(self, feed: Callable[[Exchange | WrittenText], list[Exchange | WrittenText]]) -> None:
        self._feed = feed
        self._noted: list[tuple[Any, ...]] = []
        self._later: list[Callable[[], object]] = []
        self._through: deque[Exchange | WrittenText] = deque()
        self._held_bytes = 0

    def note(self, *carried: Any) -> None:
        """Take the batches in an exchange that the core has written; ``take`` gets the text. See
        ``CarriedBatches`` in core/src/sinks/handed.rs.
        """
        self._noted.append(carried)

    def later(self, take: Callable[..., object]) -> Callable[..., None]:
        """A function that calls ``take`` when the exchanges are through that were noted last."""
        return lambda *args: self._later.append(partial(take, *args))

    def has_room(self) -> bool:
        """Whether more text can wait."""
        return self._held_bytes < _HELD_BYTES

    def take(self, output: bytes) -> None:
        """Feed the text of the exchanges that were noted."""
        noted, self._noted = self._noted, []
        for number, carried in enumerate(noted, 1):
            written = _written(output, *carried)
            if number == len(noted):
                written.later, self._later = self._later, []
            self._held_bytes += len(written)
            self._through += self._feed(written)

    def through(self, more: Iterable[Exchange | WrittenText] = ()) -> Iterator[Exchange | WrittenText]:
        """What is through, and more that follows it."""
        self._through += more
        while self._through:
            item = self._through.popleft()
            if isinstance(item, WrittenText):
                self._held_bytes -= len(item)
                for call in item.later:
                    call()
            yield item


def _written(
    output: bytes,
    exchange: tuple[ConnectionInfo, int, int],
    place: tuple[int, int],
    sizes: tuple[int, int, int],
    topic_ids: list[tuple[str, str]],
    produced: list[tuple[_Origin, tuple[int, int, int] | None]],
    fetched: list[tuple[_Origin, tuple[int, int, int], tuple[int, int]]],
    rows: tuple[list[int], int],
    whole: Exchange | None,
) -> WrittenText:
    info, number, exchanges = exchange
    start, end = place
    completed_ns, time_ns, size = sizes
    refs: Refs[Any, Any] = NO_REFS
    batches = []
    keys: list[Any] = []
    learned: list[tuple[Any, Any]] = []
    if produced:
        for (topic, partition, base_offset, base_ms), numbers in produced:
            if numbers is None:
                learned.append((kept((topic, partition, base_offset, base_ms)), time_ns))
            else:
                failed = NumberedBatch(topic, partition, *numbers, base_ms, False)
                keys.append(failed)
                learned.append((failed, BatchCopy(f"{info.id}/{number}", None)))
        refs = Refs(keys, learned)
    elif fetched:
        optional = []
        for origin, (producer_id, epoch, sequence), (first, last) in fetched:
            topic, partition, base_offset, base_ms = origin
            numbered = NumberedBatch(topic, partition, producer_id, epoch, sequence, base_ms, True)
            keys.append(origin)
            if producer_id >= 0:
                optional.append(numbered)
                learned.append((numbered, BatchCopy(f"{info.id}/{number}", base_offset)))
            batches.append((origin, numbered, (first - start, last - start)))
        refs = Refs(keys, learned, optional)
    return WrittenText(
        refs,
        output[start:end],
        batches,
        time_ns,
        exchanges,
        completed_ns,
        size,
        dict(topic_ids),
        *rows,
        whole,
    )
