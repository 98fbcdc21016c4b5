"""A shard of a capture's connections -> batches of rows for the parent.

Holds one batch, and the exchanges of open rows: at most ``limits.naming_rows`` and ``order_rows`` of them,
and those of the batches sent ahead.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter, deque
from contextlib import suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, cast

from kdissect import core
from kdissect.errors import OutputError
from kdissect.exchanges.end_to_end import produce_refs
from kdissect.exchanges.resolver import NO_REFS
from kdissect.exchanges.topic_names import RESERVED, TopicNameResolver, topic_refs
from kdissect.files import temporary_file_error
from kdissect.pipeline import ShardOutput
from kdissect.runs.assembling import (
    AHEAD,
    LateRows,
    OpenRow,
    WorkerBatch,
    WorkerRows,
)
from kdissect.runs.worker_pool import own_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TextIO

    from kdissect.exchanges.learned import LearnedFacts
    from kdissect.exchanges.topic_names import TopicRefs
    from kdissect.limits import Limits
    from kdissect.model import ConnectionKey, Exchange, IdleTick, Packet, PacketBlock
    from kdissect.pipeline import Dissection
    from kdissect.sinks.sink import Each

    Packets = PacketBlock | Packet | IdleTick

_ROWS = 400  # per batch; a few milliseconds of work
_LINE_BYTES = 1 << 19  # of lines that the native core has written, and their keys, per batch
_LINE_BYTES_AHEAD = 12 * _LINE_BYTES
_BYTES = 1 << 19  # of frames per batch
_DECODED = 1 << 25  # decoded bytes per batch; one with more is merged before the next one is filled
_PLACES = 100_000  # per batch: without rows too, or the other workers would wait


class _KnownNames:
    """Names of topics that the parent has sent; it must see the exchanges that reveal others."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def name(self, topic_id: str, completed_ns: int) -> str | None:  # noqa: ARG002
        """The name, if the parent has sent it."""
        return self._names.get(topic_id)

    def learn(self, topic_id: str, name: str) -> None:  # noqa: ARG002  (the first name of an ID is final)
        """Do nothing.

        Raises:
            KeyError: the ID is not known.
        """
        self._names[topic_id]


def number_of(connection: ConnectionKey) -> int:
    """A connection in a key of the core: ID and lowest bits of the ordinal (core/.../lending/link.rs)."""
    connection_id, ordinal = connection
    return int(connection_id, 16) << 15 | ordinal & 0x7FFF


def columns() -> WorkerRows:
    """Empty ``WorkerRows``."""
    return WorkerRows(array("q"), array("q"), array("q"), array("q"), array("q"))


class Worker:
    """Sends all rows of a shard to the parent.

    Args:
        work: makes the output of each exchange.
        limits: limits of the dissection.
        send: sends a message to the parent.
        receive: waits for the parent's next message.
        has_message: whether one has arrived.
        learned: facts of all connections, learned beforehand: no row is open because of a name. None: names
            are learned as the files are read, by the parent.
        topic_ids, end_to_end: see ``Options``. Rows with produced or fetched batches are then open.
        memory: returns memory of a size, for a part of the next message.

    Attributes:
        exchanges: number of exchanges so far.
    """

    def __init__(
        self,
        work: Text,
        limits: Limits,
        send: Callable[[Any], object],
        receive: Callable[[], Any],
        has_message: Callable[[], bool],
        learned: LearnedFacts | None = None,
        *,
        topic_ids: Mapping[str, str] | None = None,
        end_to_end: bool = False,
        memory: Callable[[int], memoryview] = own_memory,
    ) -> None:
        self._work = work
        self._memory = memory
        self._end_to_end = end_to_end
        self._resolver = (
            None if learned is None else TopicNameResolver(limits, topic_refs, learned, topic_ids)
        )
        self._limits = limits
        self._send = send
        self._receive = receive
        self._has_message = has_message
        self._dissection: Dissection
        self._rows = columns()
        self._bytes = self._decoded = 0
        self._until = 0
        self._ahead: deque[tuple[int, int, int]] = deque()  # place, decoded bytes, bytes of lines of each
        self._names: dict[str, str] = {**(topic_ids or {}), **RESERVED}
        self._lines: core.native.RowBatch | None = None  # if the core writes lines
        self._open: dict[int, Exchange] = {}
        self._open_on: Counter[ConnectionKey] = Counter()
        self._open_decoded = 0  # bytes of their bodies: as many as of a batch
        self._dropped: dict[int, Callable[[], None]] = {}  # what decodes the others again, by number
        self._numbers = 0
        self.exchanges = 0

    def run(self, dissection: Dissection) -> None:
        """Send all rows of a dissection whose packets come through ``watch``.

        Raises:
            Stopped: the parent has sent ``Stop``, see ``PacketInbox.receive``.
        """
        self._dissection = dissection
        output, plan = None, self._work.plan
        if plan is not None and plan.output is not None:
            assert core.is_used
            self._lines = core.native.RowBatch()
            names = _KnownNames(self._names) if self._resolver is None else self._resolver
            output = ShardOutput(plan, names, self._lines, self._count_lines)
        last_waiting_ns: int | None = None
        for step in dissection.steps(output):
            place, items = dissection.place, step.exchanges
            if step.waiting_since_ns != last_waiting_ns:
                last_waiting_ns = step.waiting_since_ns
                self._rows.waits.append((place, last_waiting_ns))
            items.reverse()
            while items:  # drop each once its row is complete: a decoded exchange may take most of the memory
                self._add(place, items.pop())
            if self._decoded >= _DECODED:
                self._flush(place)
        self._flush(dissection.place, is_last=True)
        while self._open:
            self.take_update()

    def watch(self, packets: Iterable[Packets]) -> Iterator[Packets]:
        """Pass packets on to the dissection; between them, send the batch if it is full."""
        for each in packets:
            yield each
            while self._has_message():
                self.take_update()
            place, rows = self._dissection.place, len(self._rows.places)
            is_full = rows >= _ROWS or self._bytes >= _BYTES or sum(self._line_bytes) >= _LINE_BYTES
            if is_full or place - self._until > _PLACES:
                self._flush(place)

    def send_rows(self) -> None:
        """Send the rows up to now: others may wait for them."""
        if self._dissection.place > self._until:
            self._flush(self._dissection.place)

    def _count_lines(self, _: bytes, exchanges: int, rows: int) -> None:  # noqa: ARG002  (they are in the batch)
        self.exchanges += exchanges

    @property
    def _line_bytes(self) -> tuple[int, int]:
        """Bytes of keys and texts that the core has written."""
        return (0, 0) if self._lines is None else self._lines.sizes

    def _add(self, place: int, item: Exchange) -> None:
        connection = item.connection_key
        if self._lines is not None:
            is_held_back = connection in self._open_on
            if self._dissection.finish(item, place, writes=not is_held_back):
                return
        self.exchanges += 1
        self._dissection.decode(item)
        completed_ns, packet = item.order
        held = item.held_bytes
        rows = self._rows
        refs: TopicRefs = NO_REFS
        if self._resolver is None:
            refs = topic_refs(item)
        else:
            self._resolver.feed(item)  # nothing waits
        produce = produce_refs(item) if self._end_to_end else NO_REFS
        is_open = produce is not NO_REFS or any(topic_id not in self._names for topic_id in refs.keys)
        if is_open or (self._open and connection in self._open_on):
            self._numbers += 1
            self._open[self._numbers] = item
            self._open_on[connection] += 1
            self._open_decoded += item.decoded_bytes
            rows.open[len(rows.outputs)] = OpenRow(self._numbers, refs, produce, item.topic_ids)
            rows.outputs.append(None)
            if item.decoded_bytes and self._open_decoded > _DECODED:
                self._open_decoded -= item.decoded_bytes
                self._dropped[self._numbers] = self._dissection.drop_bodies(item)
        else:
            for topic_id in refs.keys:
                item.topic_ids[topic_id] = self._names[topic_id]
            rows.outputs.append(self._work.feed(item))
        rows.places.append(place)
        rows.completed_ns.append(completed_ns)
        rows.packets.append(packet)
        rows.held.append(held)
        rows.decoded.append(item.decoded_bytes)
        rows.connections.append(connection)
        if self._lines is not None:
            self._lines.add(place, completed_ns, packet, held, number_of(connection))
        self._bytes += held
        self._decoded += item.decoded_bytes

    def _flush(self, until: int, *, is_last: bool = False) -> None:
        """Send the rows up to a place; wait until the other workers are not too far behind."""
        keys, texts = self._line_bytes
        lines = None
        if self._lines is not None:
            memory = self._memory(keys + texts)
            self._lines.move_to(memory[:keys], memory[keys:])
            lines = keys, PickleBuffer(memory)
        self._ahead.append((until, self._decoded, keys + texts))
        is_far = self._is_far_ahead()
        self._send(WorkerBatch(until, self._rows, is_last, lines, is_far))
        self._rows, self._bytes, self._decoded, self._until = columns(), 0, 0, until
        while self._has_message() or self._is_far_ahead():
            self.take_update()

    def _is_far_ahead(self) -> bool:
        decoded = sum(decoded for _, decoded, _ in self._ahead)
        lines = sum(lines for *_, lines in self._ahead)
        return len(self._ahead) > AHEAD or decoded > _DECODED or lines > _LINE_BYTES_AHEAD

    def take_update(self) -> None:
        update = self._receive()
        while self._ahead and self._ahead[0][0] <= update.until:
            self._ahead.popleft()
        self._names |= update.names
        while len(self._names) > self._limits.topic_names:
            del self._names[next(iter(self._names))]
        outputs = []
        for number, names, anomalies, produced_ns, copies in update.resolved:
            item = self._open.pop(number)
            if (decode := self._dropped.pop(number, None)) is not None:
                decode()
            else:
                self._open_decoded -= item.decoded_bytes
            self._open_on[item.connection_key] -= 1
            if not self._open_on[item.connection_key]:
                del self._open_on[item.connection_key]
            item.topic_ids |= names
            item.anomalies += anomalies
            item.produced_ns = produced_ns
            item.copies = copies
            outputs.append((number, self._work.feed(item)))
        if outputs:
            self._send(LateRows(outputs))


# ------------------------------------------------------------------------------------------------------------
# Exchanges -> the text of their rows, by the sinks of ``read`` and ``records``. Holds what the sink does.
# ------------------------------------------------------------------------------------------------------------


class Page(TextIOWrapper):
    """A stream in memory that a sink writes text or bytes to, with the encoding of stdout.

    Attributes:
        before_take: called to make the sink write what it holds.
    """

    def __init__(self, out: TextIO) -> None:
        super().__init__(BytesIO(), out.encoding, out.errors, newline="")
        self.before_take: Callable[[], object] = int
        self.isatty = out.isatty  # type: ignore[method-assign]

    def take(self) -> bytes:
        """Return and remove what was written."""
        self.before_take()
        self.flush()
        buffer = cast("BytesIO", self.buffer)
        data = buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
        return data


_HELD_BYTES = 8 << 20  # text of one exchange that is kept in memory
_TAKEN_ROWS = 1000  # rows of one exchange whose text is taken from the sink at a time


class LargeText:
    """Text of one exchange's rows, in a temporary file: a batch can have gigabytes of it.

    Args:
        path: the file, readable by its owner only.
        ends: where each piece ends: a row if the output may end after any row.
    """

    __slots__ = ("_ends", "_path")

    def __init__(self, path: Path, ends: array[int]) -> None:
        self._path = path
        self._ends = ends

    @classmethod
    def create(cls, prefix: str) -> LargeText:
        """Create an empty one; the parent removes files with this ``prefix`` that it did not read.

        Raises:
            OutputError: there is no directory for temporary files.
        """
        from tempfile import mkstemp  # rarely needed

        try:
            handle, name = mkstemp(prefix=prefix)
        except OSError as error:
            raise OutputError(temporary_file_error(error)) from None
        os.close(handle)
        return cls(Path(name), array("q"))

    def append(self, pieces: Iterable[bytes]) -> None:
        """Write more pieces.

        Raises:
            OutputError: the disk is full.
        """
        try:
            with self._path.open("ab") as file:
                for piece in pieces:
                    file.write(piece)
                    self._ends.append(len(piece) + (self._ends[-1] if self._ends else 0))
        except OSError as error:
            raise OutputError(temporary_file_error(error)) from None

    def __getitem__(self, pieces: slice) -> LargeText:
        """The first pieces, in the same file."""
        return LargeText(self._path, self._ends[pieces])

    def chunks(self) -> Iterator[bytes]:
        """Read the text once, and remove the file."""
        with self._path.open("rb") as file:
            left = self._ends[-1] if self._ends else 0
            while left and (chunk := file.read(min(left, _HELD_BYTES))):
                yield chunk
                left -= len(chunk)
        self._path.unlink()


def remove_large_texts(prefix: str) -> None:
    """Remove the files of texts that were not read, because the run ended early."""
    from tempfile import gettempdir

    with suppress(OSError):
        for path in Path(gettempdir()).glob(f"{prefix}*"):
            path.unlink(missing_ok=True)


RowOutput = tuple[int, "bytes | list[bytes] | LargeText | Any"]
"""The number of rows, and their text: joined; separate if the output may end after any row; or the core's
``MergedText``.
"""


class Texts:
    """Writes the text of all workers' rows, in the parent.

    Args:
        out: a stream with a buffer.
        skip: number of leading bytes to leave out of the first text: a separator between rows.
    """

    def __init__(self, out: TextIO, skip: int = 0) -> None:
        self._out = out
        self._skip = skip
        self._is_stdout = False
        with suppress(OSError):  # raised if it is no file
            self._is_stdout = out.fileno() == 1

    def take(self, outputs: Sequence[RowOutput]) -> None:
        """Write rows."""
        texts: list[bytes] = []
        for _, data in outputs:
            if isinstance(data, LargeText):
                self._put(b"".join(texts))
                texts.clear()
                for chunk in data.chunks():
                    self._put(chunk)
            elif isinstance(data, bytes):
                texts.append(data)
            elif isinstance(data, list):
                texts += data
            else:
                self._put(b"".join(texts))
                texts.clear()
                self._put_merged(data)
        self._put(b"".join(texts))

    def _put_merged(self, text: Any) -> None:
        if self._is_stdout and not self._skip:
            self._out.flush()
            text.write_to_stdout()
        else:
            self._put(bytes(text))

    def _put(self, text: bytes) -> None:
        if self._skip and text:
            text, self._skip = text[self._skip :], 0
        self._out.buffer.write(text)


class Text:
    """Rows of a sink as text.

    Args:
        sink: writes them to ``page``.
        page: a buffer in memory.
        selects: whether an exchange is selected; None: all are.
        per_row: whether to keep the text of each row apart, because the output may end after any row.

    Attributes:
        plan: of the sink.
        prefix: of the names of temporary files, see ``LargeText``.
    """

    def __init__(
        self,
        sink: Each,
        page: Page,
        selects: Callable[[Exchange], bool] | None = None,
        *,
        per_row: bool = False,
    ) -> None:
        self.plan = sink.plan
        self._sink = sink
        self._page = page
        self._selects = selects
        self._per_row = per_row
        self._cut_at = self._held = 0
        self._pieces: list[bytes] = []
        self._large: LargeText | None = None
        self.prefix = "kdissect-"
        sink.after_row = self._cut

    def feed(self, exchange: Exchange) -> RowOutput | None:
        """The text of the exchange's rows; None if it has none."""
        sink = self._sink
        if self._selects is not None and not self._selects(exchange):
            sink.skip(exchange)
            return None
        before = self._cut_at = sink.rows
        sink.feed(exchange)
        if sink.rows == before:
            return None
        pieces, large = self._pieces, self._large
        if rest := self._page.take():
            pieces.append(rest)
        self._pieces, self._large, self._held = [], None, 0
        if large is not None:
            large.append(pieces)
        return sink.rows - before, large or (pieces if self._per_row else b"".join(pieces))

    def _cut(self) -> None:
        """A row was written."""
        rows = self._sink.rows
        if self._per_row or rows - self._cut_at >= _TAKEN_ROWS:
            self._cut_at = rows
            self._pieces.append(self._page.take())
            self._held += len(self._pieces[-1])
        if self._held > _HELD_BYTES:
            self._large = self._large or LargeText.create(self.prefix)
            self._large.append(self._pieces)
            self._pieces, self._held = [], 0

    def end(self) -> tuple[int, Any]:
        """Number of rows that have not been sent, and the part of the sink."""
        return 0, self._sink.part()
