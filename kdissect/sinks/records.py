"""Exchanges -> the records in them, by a writer. Holds what the writer and the source of records do.

On the fast path, the core writes the records of exchanges, if all are shown: as text, or with all columns.
Of other exchanges, if every record of a batch is shown, the writer gets the batch, of which the core writes
the lines.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from kdissect.sinks.plan import Plan
from kdissect.sinks.sink import ALL, Each, ignore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kdissect.exchanges.partition_records import CarriedRecord, DecodedBatch
    from kdissect.exchanges.written import WrittenText
    from kdissect.model import Exchange
    from kdissect.sinks.plan import PlanContext, RecordPlan
    from kdissect.sinks.sink import Demand


class RecordSource(Protocol):
    """Opens exchanges.

    Attributes:
        exchanges: number of exchanges searched.
    """

    exchanges: int

    @property
    def directions(self) -> tuple[bool, bool]:
        """See ``RecordPlan``."""

    @property
    def is_partition(self) -> Callable[..., bool] | None:
        """See ``RecordPlan``."""

    @property
    def selects(self) -> Callable[..., bool] | None:
        """See ``RecordPlan``."""

    @property
    def is_first(self) -> Callable[[str], bool] | None:
        """Whether no record at a position was shown, each called once: topic, partition and offset as text,
        with tabs between them. None: all are shown.
        """

    def of(self, exchanges: Iterable[Exchange]) -> Iterable[CarriedRecord]:
        """Their records."""

    def batches(self, exchanges: Iterable[Exchange]) -> Iterable[DecodedBatch]:
        """Their batches, of which every record is shown."""

    def result(self) -> Any:
        """What was counted."""

    def add(self, other: Any) -> None:
        """Add what was counted elsewhere."""


class NativeWriter(Protocol):
    """Writes records of which the core may write the lines.

    Attributes:
        row_mark: occurs once in each row of the core: at its end if it is a line break, or else at its
            beginning.
    """

    @property
    def row_mark(self) -> bytes: ...

    @property
    def plan_of_core(self) -> Callable[[PlanContext], RecordPlan] | None:
        """From the context to what the core must know. None: a row depends on others."""

    def fill(self, lines: bytes, e2e_latency_us: int | None, also_in: str | None) -> bytes:
        """Rows of a batch with these values."""

    def add(self, lines: bytes) -> None:
        """Write lines."""


_AROUND = b"\xfc"
_POSITION = [
    ("", ("mark", _AROUND[0])),
    ("", ("position", 0)),
    ("\t", ("offset", 0)),
    ("", ("mark", _AROUND[0])),
]
"""What the core writes before each row for ``RecordSource.is_first``; the marks never occur in UTF-8."""


def _end_of_row(output: bytes, mark: bytes, rows: int) -> int:
    """Where the last of so many rows ends, if there are more."""
    end = 0
    for _ in range(rows):
        end = output.index(mark, end) + len(mark)
    return end if mark == b"\n" else output.index(mark, end)


class RecordRows(Each):
    """Records, one by one or in batches.

    Args:
        source: opens exchanges.
        write: writes a record; a batch if ``by_batch``.
        close: writes what is held.
        by_batch: whether every record of a batch is shown.
        max_rows: how many to write; None: all.
        native: the writer, if it can write rows of the core and ``source.selects`` those that are shown.
        demand: which exchanges come, and what else is done with them.
        skip, divide: see ``Each``.
    """

    def __init__(
        self,
        source: RecordSource,
        write: Callable[[Any], object],
        close: Callable[[], object],
        *,
        by_batch: bool,
        max_rows: int | None = None,
        native: NativeWriter | None = None,
        demand: Demand = ALL,
        skip: Callable[[Exchange], object] = ignore,
        divide: Callable[[], int] = int,
    ) -> None:
        super().__init__(write, close, skip=skip, divide=divide)
        self._source = source
        self._by_batch = by_batch
        self._max_rows = max_rows
        self._native = native
        plan = None if native is None else native.plan_of_core
        if native is not None and plan is not None and demand.allows_core and not demand.has_latency_parts:

            def selected(context: PlanContext) -> RecordPlan:
                of_writer = plan(context)
                columns = of_writer.columns if source.is_first is None else [*_POSITION, *of_writer.columns]
                return of_writer._replace(
                    columns=columns,
                    directions=source.directions,
                    is_partition=source.is_partition,
                    selects=source.selects,
                )

            self.plan = Plan(
                selected, conditions=demand.conditions, release=self._release, has_row_each=False
            )

    def take(self, output: bytes, exchanges: int) -> None:
        """Write rows of the core: one for each record, up to the last that is wanted."""
        self._source.exchanges += exchanges
        assert self._native is not None
        mark = self._native.row_mark
        room = None if self._max_rows is None else self._max_rows - self.rows
        if (is_first := self._source.is_first) is not None:
            _, *pieces = output.split(_AROUND)
            both = zip(pieces[::2], pieces[1::2], strict=True)
            firsts = (row for position, row in both if is_first(position.decode()))
            output = b"".join(islice(firsts, room))
        rows = output.count(mark)
        if room is not None and room < rows:
            rows = room
            output = output[: _end_of_row(output, mark, rows)]
        self.rows += rows
        self._native.add(output)

    def _release(self, written: WrittenText) -> None:
        assert self._native is not None
        if (changed := written.changed()) is not None:
            self._source.exchanges -= 1  # ``take`` has counted it
            self.feed(changed)
            return
        self.take(written.text(self._native.fill), 0)

    def feed(self, exchange: Exchange) -> None:
        """Write its records."""
        source, write = self._source, self._feed
        opened: Iterable[Any] = (source.batches if self._by_batch else source.of)((exchange,))
        for row in opened:
            self.rows += len(row) if self._by_batch else 1
            write(row)
            if self.after_row is not None:
                self.after_row()
            if self.rows == self._max_rows:
                break
            del row  # before the next one is decoded: either may take most of the memory

    def part(self) -> Any:
        """What was counted."""
        return self._source.result()

    def merge(self, part: Any) -> None:
        """Add what was counted."""
        self._source.add(part)
