"""A source of packets -> a sink, in this process or in several: START HERE for how commands read captures.

    source   files, a pipe, a live capture
    place    Here: one dissection in this process; Workers (workers.py): one for each shard of the connections
    sink     what is made of the exchanges (sinks/)

    run.into(sink)     every combination

The first packet is read ahead, for filters whose times are relative to it.
"""

from __future__ import annotations

import signal
from collections import deque
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from kdissect.capture.reader import Readable
from kdissect.capture.source import one_by_one
from kdissect.errors import KdissectError, UnexpectedError
from kdissect.options import WHOLE
from kdissect.pipeline import Dissection
from kdissect.sinks.sink import Demand

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import FrameType
    from typing import TextIO

    from kdissect.capture.connection_index import ConnectionIndex
    from kdissect.capture.ongoing import LiveSources
    from kdissect.capture.reader import Capture
    from kdissect.capture.source import Source
    from kdissect.exchanges.learned import LearnedFacts
    from kdissect.limits import Limits
    from kdissect.model import Exchange, IdleTick, Packet, PacketBlock
    from kdissect.options import Options
    from kdissect.query.filters import Filter
    from kdissect.sinks.sink import Each, Sink
    from kdissect.stats.document import Verdict
    from kdissect.stats.quality import Check
    from kdissect.stats.survey import Survey
    from kdissect.tls.keylog import KeyLog

    Packets = PacketBlock | Packet | IdleTick


@dataclass(frozen=True, slots=True)
class Query:
    """What to read, and which exchanges to select.

    Attributes:
        paths: the captures; empty for live traffic.
        filter: the criteria of ``options``, and which of them have matched.
        are_files: whether the input can be read twice.
        split_latency: whether the command shows the parts of latencies, or the filter may need them.
        key_log: that of live traffic, opened while there may still be privileges; None: ``options.key_logs``.
    """

    paths: tuple[str, ...]
    options: Options
    filter: Filter
    no_progress: bool
    are_files: bool = False
    split_latency: bool = True
    key_log: KeyLog | None = None

    def with_fields(self, names: Iterable[str]) -> Query:
        """The same for a command that shows these fields."""
        uses_streams = TCP_STREAM in names or TCP_STREAM in (self.options.where or "")
        return replace(self, options=replace(self.options, numbers_streams=uses_streams))

    def without_latency_parts(self) -> Query:
        """The same for a command that does not show them."""
        return replace(self, split_latency=self.options.where is not None)

    @property
    def limits(self) -> Limits:
        """The limits of every stage."""
        return self.options.limits

    @property
    def learns_first(self) -> bool:
        """Whether workers first learn what the connections of others show: names, resumed TLS sessions."""
        return self.are_files and (self.options.names == WHOLE or bool(self.options.key_logs))

    def demand(self, *, one_by_one: bool = False) -> Demand:
        """Which exchanges a sink gets. ``one_by_one``: see ``Demand``."""
        return Demand.of(
            self.options, self.filter, has_latency_parts=self.split_latency, one_by_one=one_by_one
        )


TCP_STREAM = "tcp_stream"
"""A field that costs time, and is counted only if it is used."""


class Selection:
    """Decides whether an exchange matches the filters.

    Args:
        query: its filters and exchange IDs.
    """

    def __init__(self, query: Query) -> None:
        self._filter = query.filter
        self._ids = query.options.exchanges
        self._no_match_yet = True

    @classmethod
    def of(cls, query: Query) -> Selection | None:
        """The selection of a query; None: it selects all exchanges."""
        return None if query.filter.is_empty and not query.options.exchanges else cls(query)

    def __call__(self, exchange: Exchange) -> bool:
        """Whether this exchange matches."""
        ids = self._ids
        if (not ids or (exchange.connection.id, exchange.number) in ids) and self._filter.matches(exchange):
            self._no_match_yet = False
            return True
        if self._no_match_yet:  # so that a message can say why nothing matched
            self._filter.note_unmatched(exchange)
        return False


@dataclass(slots=True)
class Totals:
    """What is known about a run's input at its end.

    Attributes:
        counts, skipped, notices: as in ``Dissection``.
        warnings, sources: of the captures.
        fault: the error that ended the reading early; None: there was none.
        unreadable: whether a capture is missing or cannot be read.
    """

    counts: Counter[str]
    skipped: Counter[str]
    notices: Sequence[str]
    warnings: Sequence[str]
    sources: Sequence[Source]
    fault: str | None
    unreadable: bool

    @property
    def failed(self) -> bool:
        """Whether a bug in kdissect kept part of the input from being read."""
        return any(source.failed for source in self.sources)

    @property
    def problems(self) -> list[str]:
        """The warnings, and the fault if there is one."""
        return [*self.warnings, *([] if self.fault is None else [self.fault])]

    def check_document(
        self, observer: Survey, health: Verdict | None = None, selected: int | None = None
    ) -> Check:
        """What ``kdissect check`` reports; ``observer`` has seen all packets, connections and exchanges."""
        from kdissect.stats.check import build_check

        return build_check(
            self.sources, observer, self.counts, self.skipped, self.problems, self.notices, health, selected
        )


class RunPlace(Protocol):
    """Where exchanges are dissected."""

    def totals(self, run: Run) -> Totals:
        """What is known so far."""

    def into(self, run: Run, sink: Any, max_rows: int | None, *, flush: bool) -> None:
        """See ``Run``. Sets ``shown``, ``interrupted`` and ``complete``."""


class Live(Protocol):
    """The end of a live capture."""

    def close(self) -> None:
        """Finish the capture, and count what was dropped."""

    def report(self, total: int, shown: int) -> None:
        """Report what was captured."""

    def end(self) -> None:
        """End the command as a signal demands, if there was one."""


class Run:
    """A source that is read.

    Args:
        query: what to select.
        source: the capture; what is known of it so far, if only other processes read it.
        packets: of the source.
        out: stdout.
        live: the end of a live capture; None: the source is not one.

    Attributes:
        query, source, out, live: see above.
        page: where a sink's writer writes: ``out``, or a page of a worker.
        readable: the packets up to the first that cannot be read.
        first_ns: time of the first packet; None: there is no packet.
        shown: number of rows so far.
        interrupted: whether Ctrl-C stopped the run.
        complete: whether the capture was read to its end.
        place: where it is dissected. To be set before ``into``.
    """

    place: RunPlace

    def __init__(
        self,
        query: Query,
        source: Capture | LiveSources | Totals,
        packets: Iterable[Packets],
        out: TextIO,
        live: Live | None = None,
    ) -> None:
        self.query = query
        self.source = source
        self.out = self.page = out
        self.live = live
        self.shown = 0
        self.interrupted = self.complete = False
        self.readable = Readable(packets)
        self._first = next(self.readable, None)
        self.first_ns = None if self._first is None else self._first.time_ns
        if self.first_ns is not None:
            query.filter.begin(self.first_ns)

    def packets(self) -> Iterator[Any]:
        """All packets, once."""
        return chain(() if self._first is None else (self._first,), self.readable)

    @property
    def totals(self) -> Totals:
        """What is known so far."""
        return self.place.totals(self)

    def demand(self, *, one_by_one: bool = False) -> Demand:
        """Which exchanges a sink gets. ``one_by_one``: see ``Demand``."""
        # A terminal needs escapes, and what the core of a worker writes is not seen by the writer.
        is_escaped = self.page is not self.out and self.out.isatty()
        return self.query.demand(one_by_one=one_by_one or is_escaped)

    @property
    def dissection(self) -> Dissection:
        """That of this process."""
        assert isinstance(self.place, Here)
        return self.place.dissection

    def into(self, sink: Each, max_rows: int | None = None, *, flush: bool = False) -> None:
        """Feed a sink, close it, and remove the progress bar. Ctrl-C ends it early.

        Args:
            sink: takes the exchanges.
            max_rows: when to stop; None: at the end.
            flush: whether to flush after each exchange; otherwise only once, so that the first row appears
                immediately.
        """
        self.place.into(self, sink, max_rows, flush=flush)


class Here:
    """One dissection in this process.

    Args:
        run: the run.
        bar: removes the progress bar.
        index: records the connection of each packet.
        observer: sees packets.
        analyzes: whether it also sees connections.
        learned, key_log: see ``Dissection``.
    """

    def __init__(
        self,
        run: Run,
        bar: Callable[[], object] = int,
        *,
        index: ConnectionIndex | None = None,
        observer: Survey | None = None,
        analyzes: bool = True,
        learned: LearnedFacts | None = None,
        key_log: KeyLog | None = None,
    ) -> None:
        watched: Iterable[Any] = run.packets()
        if index is not None:
            watched = index.watch(one_by_one(watched))
        if observer is not None:
            watched = observer.watch(watched)
        self._bar = bar
        self.dissection = Dissection(
            watched,
            run.query.options,
            index=index,
            observer=observer if analyzes else None,
            learned=learned,
            split_latency=run.query.split_latency,
            key_log=key_log,
        )

    def totals(self, run: Run) -> Totals:
        """See ``RunPlace``."""
        source, dissection = run.source, self.dissection
        return Totals(
            dissection.counts,
            dissection.skipped,
            dissection.notices,
            source.warnings,
            source.sources,
            run.readable.fault,
            source.unreadable,
        )

    def into(self, run: Run, sink: Sink, max_rows: int | None, *, flush: bool) -> None:
        """See ``RunPlace``."""
        shown, finish = 0, run.out.flush
        try:
            selects = Selection.of(run.query)
            with closing(self.dissection.into(sink, selects, max_rows=max_rows)) as turns:
                for _ in turns:
                    if sink.rows != shown:
                        if flush or not shown:
                            finish()
                        shown = sink.rows
                        if shown == max_rows:
                            break
                        if max_rows is None and not flush:
                            deque(turns, maxlen=0)
        except KeyboardInterrupt:
            run.interrupted = True
        run.shown = sink.rows
        run.complete = not run.interrupted and (max_rows is None or run.shown < max_rows)
        if not (run.complete or run.interrupted):
            self.dissection.stop()
        self._bar()
        sink.close()


@contextmanager
def faults_named(
    query: Query, readable: Readable | None = None, expected: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Add the name of the capture that was being read to an unexpected exception.

    Args:
        query: the paths of all captures.
        readable: the packets being read, which name the current one of several captures.
        expected: exceptions that pass unchanged, besides our own and those of files.

    Raises:
        UnexpectedError: instead of the exception.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (KdissectError, OSError, *expected)):
            raise
        capture = readable.capture if readable is not None else None
        raise UnexpectedError.of(error, query.paths[0] if len(query.paths) == 1 else capture) from error


@contextmanager
def ctrl_c(press: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call ``press`` for Ctrl-C inside the block, unless Ctrl-C does not raise KeyboardInterrupt anyway."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
