"""A capture -> its rows, computed by several worker processes. How many is decided in jobs.py.

    with open_parallel_run(query, bar=...) as run:
        run.gather(jobs, make_work, consume, count)
    run.report(run.shown)

The parent opens the captures first, to check that they can be read. The process that reads them opens them
again.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kdissect.capture.reader import Readable, open_capture
from kdissect.cli.run import Run, Selection, Totals, faults_named
from kdissect.cli.terminal import ctrl_c, output, progress
from kdissect.exchanges.learned import LearnedFacts
from kdissect.net.tcp import Shard
from kdissect.options import WHOLE
from kdissect.parallel.assembling import Assembly, LateRows, Progress, ReaderEnd, WorkerBatch, WorkerEnd
from kdissect.parallel.broadcast import Broadcast, Stopped, read_captures
from kdissect.parallel.worker import Page, Text, Texts, Worker, remove_large_texts
from kdissect.parallel.worker_pool import Inbox, Outbox, WorkerPool
from kdissect.pipeline import Dissection, notices_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import FrameType
    from typing import TextIO

    from kdissect.capture.ongoing import LiveSources
    from kdissect.capture.reader import Capture
    from kdissect.cli.output_options import ExchangeOutput
    from kdissect.cli.run import Query
    from kdissect.model import Exchange, IdleTick, Packet, PacketBlock
    from kdissect.parallel.broadcast import PacketInbox
    from kdissect.parallel.worker import Work
    from kdissect.pipeline import Step
    from kdissect.sinks.sink import Each, Sink
    from kdissect.stats.connection_log import ConnectionFeed, ConnectionLog
    from kdissect.stats.survey import Census
    from kdissect.tables.export import ExportJob, PartResult


_PATIENCE_S = 0.02
"""A worker that has waited this long for packets sends what it has, for which others may wait."""


class _Interrupt:
    """Defers Ctrl-C until ``raise_pending``. A second Ctrl-C interrupts immediately."""

    def __init__(self) -> None:
        self._was_pressed = False

    def installed(self) -> AbstractContextManager[None]:
        """Handle Ctrl-C inside the block."""
        return ctrl_c(self._press)

    def raise_pending(self) -> None:
        """Raise a deferred KeyboardInterrupt."""
        if self._was_pressed:
            self._was_pressed = False
            raise KeyboardInterrupt

    def _press(self, number: int, frame: FrameType | None) -> None:
        if self._was_pressed:
            signal.default_int_handler(number, frame)
        self._was_pressed = True


class ParallelRun(Run):
    """A run in several processes.

    Attributes:
        results: what the sink of each worker returned at the end.
    """

    def __init__(
        self,
        query: Query,
        capture: Capture | LiveSources,
        packets: Iterable[PacketBlock | Packet | IdleTick],
        out: TextIO,
        *,
        shows_bar: bool,
    ) -> None:
        super().__init__(query, packets, out)
        self.results: list[Any] = []
        self._bytes_total = capture.bytes_total
        self._bytes_read = 0
        self._census: Census | None = None  # of all packets, at the end
        self._shows_bar = shows_bar
        self._interrupt = _Interrupt()
        self._totals = Totals(Counter(), Counter(), [], [], capture.sources, None, unreadable=False)
        self._noticed: list[tuple[int, str]] = []

    @property
    def totals(self) -> Totals:
        """The totals of all workers that have ended."""
        return replace(self._totals, notices=notices_of(self._noticed, self._query.limits))

    def gather(
        self,
        jobs: int,
        make_work: Callable[[int], Work],
        consume: Callable[[list[Any]], object],
        max_rows: int | None = None,
    ) -> None:
        """Compute rows in workers and consume them in order.

        Args:
            jobs: number of workers.
            make_work: returns what a worker computes, from its index. Called in the worker.
            consume: gets the next selected rows as computed by a worker.
            max_rows: when to stop; None: at the end.
        """
        assembly = Assembly(jobs, self._query.limits)

        def job(index: int, outbox: Outbox, packets: PacketInbox) -> None:
            work(self._query, Shard(index, jobs), make_work(index), outbox, packets, _PATIENCE_S)

        self._run(
            jobs,
            job,
            lambda pool: self._assemble(self._messages(pool, jobs), pool, assembly),
            lambda rows: self._consume(rows, consume, max_rows),
            passes=2 if _learns_first(self._query) else 1,
        )
        self._totals.counts["produced_evicted"] += assembly.produced_evicted

    def export(self, jobs: int, job: ExportJob, log: ConnectionLog) -> list[PartResult]:
        """Write the tables of an export in workers.

        Args:
            jobs: number of workers.
            job: what to write.
            log: observes the connections of each worker, and gets the packet census of the capture.
        """

        def write(index: int, outbox: Outbox, packets: PacketInbox) -> None:
            write_shard(self._query, job, Shard(index, jobs), outbox, packets, log)

        log.census = self._run_to_end(jobs, write, log.census)
        parts: list[PartResult] = sorted(self.results, key=attrgetter("part"))
        self.shown += sum(part.selected for part in parts)
        return parts

    def count(self, jobs: int, sink: Sink, observer: ConnectionFeed) -> None:
        """Count the exchanges in workers, and add the counts up.

        Args:
            jobs: number of workers.
            sink: counts them.
            observer: sees the connections of each worker, and gets the packet census of the capture.
        """

        def count(index: int, outbox: Outbox, packets: PacketInbox) -> None:
            count_shard(self._query, sink, Shard(index, jobs), outbox, packets, observer)

        observer.census = self._run_to_end(jobs, count, observer.census)
        for part in self.results:
            sink.merge(part)
        self.shown = sink.rows

    def _run_to_end(
        self, jobs: int, job: Callable[[int, Outbox, PacketInbox], None], census: Census
    ) -> Census:
        """Run a job that learns first, and has results only at the end. Returns the census of the packets."""

        def end(messages: Iterator[Any]) -> None:
            for _ in messages:
                pass
            self.complete = True

        self._run(jobs, job, lambda pool: self._messages(pool, jobs), end, passes=2, census=census)
        return self._census or census

    def _run(
        self,
        jobs: int,
        job: Callable[[int, Outbox, PacketInbox], None],
        rows: Callable[[WorkerPool], Iterator[Any]],
        consume: Callable[[Iterator[Any]], object],
        *,
        passes: int,
        census: Census | None = None,
    ) -> None:
        """Run a job in each worker, on packets that another process reads, and consume the rows that result
        from their messages.
        """
        query = self._query
        broadcast = Broadcast(jobs, divides=not query.options.numbers_streams)
        bytes_total = self._bytes_total and passes * self._bytes_total

        def own(index: int, outbox: Outbox, inbox: Inbox) -> None:
            job(index, outbox, broadcast.inbox(index, inbox))

        def read(outbox: Outbox, inbox: Inbox) -> None:
            read_captures(query.paths, query.limits, passes, census, broadcast, outbox, inbox)

        with WorkerPool(jobs, own, read) as pool, self._interrupt.installed():
            broadcast.leave()
            try:
                with progress(
                    rows(pool), bytes_total, lambda: self._bytes_read, enabled=self._shows_bar
                ) as watched:
                    consume(iter(watched))
            except KeyboardInterrupt:
                self.interrupted = True
            if not self.complete:
                pool.stop()
                for _ in self._messages(pool, jobs):
                    pass

    def write(
        self, jobs: int, page: Page, sink: Each, max_rows: int | None, *, per_row: bool = False
    ) -> None:
        """Format rows in workers and write the text.

        Args:
            jobs: number of workers.
            page: the buffer that the sink writes to, in each worker.
            sink: formats rows; it has already written its heading, if any.
            max_rows: when to stop; None: at the end.
            per_row: see ``Text``.
        """
        work = Text(sink, page, Selection.of(self._query), per_row=per_row)
        skip = sink.divide()  # the parent removes what would be before the first row
        page.before_take = sink.close
        write = self.out.buffer.write
        write(page.take())
        work.prefix = f"kdissect-{os.getpid()}-"
        try:
            self.gather(jobs, lambda _: work, Texts(self.out, skip).take, max_rows)
        finally:
            remove_large_texts(work.prefix)

    def show(
        self,
        jobs: int,
        output: ExchangeOutput,
        max_rows: int | None = None,
        check: Callable[[Exchange], object] | None = None,
    ) -> None:
        """Show exchanges.

        Args:
            jobs: number of workers.
            output: how to show them.
            max_rows: when to stop; None: at the end.
            check: called for each exchange before it is formatted.
        """
        page = Page(self.out)
        times = output.time_formatter(self.out, self.first_ns)
        # A terminal needs escapes, and what the core writes here is not seen by the writer.
        demand = self._query.demand(one_by_one=bool(max_rows or self.out.isatty()))
        sink = output.sink(page, times, self._query, demand, flush=False, check=check)
        self.write(jobs, page, sink, max_rows)

    def _consume(
        self, rows: Iterator[list[Any]], consume: Callable[[list[Any]], object], max_rows: int | None
    ) -> None:
        for batch in rows:
            selected = list(filter(None, batch))
            count = sum([row[0] for row in selected])
            if max_rows is not None and self.shown + count >= max_rows:
                consume(_first(selected, max_rows - self.shown))
                self.shown = max_rows
                return
            self.shown += count
            consume(selected)
        self.complete = True

    def _messages(self, pool: WorkerPool, jobs: int) -> Iterator[tuple[int, Any]]:
        """The messages of all processes, each with its index. Those that are the same for every job are also
        handled here: learned facts are merged and sent to all workers, and ends are added up.
        """
        facts, pending = LearnedFacts(self._query.limits, self._query.options.names), jobs
        for index, message in pool.messages((WorkerEnd, ReaderEnd), self._interrupt.raise_pending):
            if isinstance(message, LearnedFacts):
                facts.merge(message)
                pending -= 1
                if not pending:
                    self._totals.counts["produced_evicted"] += facts.dropped_batches
                for each in range(0 if pending else jobs):
                    pool.send(each, facts)
            elif isinstance(message, WorkerEnd):
                self._handle_end(message)
            elif isinstance(message, Progress):
                self._bytes_read = message.bytes_read
            elif isinstance(message, ReaderEnd):
                totals = self._totals
                totals.warnings, totals.sources, totals.fault = (
                    message.warnings,
                    message.sources,
                    message.fault,
                )
                totals.unreadable, self._census = message.unreadable, message.census
            yield index, message

    def _assemble(
        self, messages: Iterator[tuple[int, Any]], pool: WorkerPool, assembly: Assembly
    ) -> Iterator[list[Any]]:
        for index, message in messages:
            rows = []
            if isinstance(message, WorkerBatch):
                rows = assembly.batch(index, message)
            elif isinstance(message, LateRows):
                rows = assembly.late(index, message)
            yield rows
            for worker, reply in assembly.updates():  # after the rows were written: their memory can be freed
                pool.send(worker, reply)

    def _handle_end(self, message: WorkerEnd) -> None:
        totals = self._totals
        packets = min(message.counts["packets"], totals.counts["packets"] or message.counts["packets"])
        totals.counts.update(message.counts)
        totals.counts["packets"] = packets  # every worker counts all of them
        totals.skipped = totals.skipped or message.skipped
        self._noticed += message.noticed
        self.results.append(message.result)
        self._query.filter.notes.merge(message.notes)


def _first(rows: Sequence[tuple[int, Any]], max_rows: int) -> list[tuple[int, Any]]:
    """Return the first ``max_rows`` rows; bytes are a single row."""
    first: list[tuple[int, Any]] = []
    for count, data in rows:
        if count >= max_rows and not isinstance(data, bytes):
            return [*first, (max_rows, data[:max_rows])]
        first.append((count, data))
        max_rows -= count
        if not max_rows:
            break
    return first


def _learns_first(query: Query) -> bool:
    """Whether workers first learn what the connections of others show: names, resumed TLS sessions."""
    return query.are_files and (query.options.names == WHOLE or bool(query.options.key_logs))


def work(
    query: Query, shard: Shard, task: Work, outbox: Outbox, inbox: PacketInbox, patience_s: float
) -> None:
    """Compute the rows of a shard: the main function of a worker. ``patience_s``: as for
    ``PacketInbox.packets``.
    """
    names_only = replace(query, options=replace(query.options, end_to_end=False))  # the parent joins batches
    learned = _learned(names_only, shard, outbox, inbox) if _learns_first(query) else None
    worker = Worker(
        task,
        query.limits,
        outbox.send,
        inbox.receive,
        inbox.has_message,
        learned,
        end_to_end=query.options.end_to_end,
        memory=outbox.memory,
    )
    readable = Readable(inbox.packets(worker.take_update, worker.send_rows, patience_s))
    dissection = Dissection(
        worker.watch(readable),
        query.options,
        shard=shard,
        learned=learned,
        split_latency=query.split_latency,
    )
    with faults_named(query, readable), suppress(Stopped):
        worker.run(dissection)
    dissection.counts["exchanges"] += worker.exchanges
    outbox.send(_end(query, dissection, task.end()))


class _StoppableDissection(Dissection):
    """A dissection that ends when the parent sends ``Stop``."""

    def into(
        self,
        sink: Sink,
        selects: Callable[[Exchange], bool] | None = None,
        watch: Callable[[Iterable[Step]], Iterable[Step]] = iter,
    ) -> Generator[None]:
        with suppress(Stopped):
            yield from super().into(sink, selects, watch)


def write_shard(
    query: Query, job: ExportJob, shard: Shard, outbox: Outbox, inbox: PacketInbox, log: ConnectionLog
) -> None:
    """Write the tables of a shard: the main function of a worker of ``export``."""
    from kdissect.tables.export import write_part  # imports every codec

    learned = _learned(query, shard, outbox, inbox)
    readable = Readable(inbox.packets(inbox.receive))
    dissection = _StoppableDissection(readable, query.options, observer=log, learned=learned, shard=shard)
    with faults_named(query, readable):
        result = write_part(job, shard.number, dissection, log, Selection(query), shard.number + 1, shard.of)
    outbox.send(_end(query, dissection, result))


def count_shard(
    query: Query, sink: Sink, shard: Shard, outbox: Outbox, inbox: PacketInbox, observer: ConnectionFeed
) -> None:
    """Count the exchanges of a shard: the main function of a worker of ``summary``."""
    learned = _learned(query, shard, outbox, inbox)
    readable = Readable(inbox.packets(inbox.receive))
    dissection = _StoppableDissection(
        readable,
        query.options,
        observer=observer,
        learned=learned,
        shard=shard,
        split_latency=query.split_latency,
    )
    with faults_named(query, readable):
        for _ in dissection.into(sink, Selection.of(query)):
            pass
        sink.close()
    outbox.send(_end(query, dissection, sink.part()))


def _learned(query: Query, shard: Shard, outbox: Outbox, inbox: PacketInbox) -> LearnedFacts:
    """The facts learned by all workers; those of this shard if the parent has sent ``Stop``."""
    facts = LearnedFacts(query.limits, query.options.names)
    readable = Readable(inbox.packets(inbox.receive))
    with faults_named(query, readable), suppress(Stopped):
        Dissection(readable, query.options, shard=shard).learn(facts)
    outbox.send(facts)
    with suppress(Stopped):
        facts = inbox.receive()
    return facts


def _end(query: Query, dissection: Dissection, result: Any) -> WorkerEnd:
    return WorkerEnd(dissection.counts, dissection.skipped, dissection.noticed, query.filter.notes, result)


@contextmanager
def open_parallel_run(query: Query, *, bar: Callable[[TextIO], bool]) -> Iterator[ParallelRun]:
    """Open the captures of a query, to check that they can be read. ``bar`` decides from stdout whether
    stderr may show a progress bar.
    """
    with (
        open_capture(*query.paths, limits=query.limits) as capture,
        output() as out,
        faults_named(query),
    ):
        yield ParallelRun(
            query, capture, capture.packet_blocks(), out, shows_bar=not query.no_progress and bar(out)
        )
