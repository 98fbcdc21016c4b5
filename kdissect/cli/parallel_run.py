"""A capture -> its rows, computed by several worker processes. How many is decided in jobs.py.

    with open_parallel_run(query, bar=...) as run:
        run.gather(jobs, make_work, consume, count)
    run.report(run.shown)

The parent opens the captures first, to check that they can be read. Each worker opens them again.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kdissect import native
from kdissect.capture.reader import Readable, open_capture
from kdissect.cli.run import Run, Selection, Totals, faults_named
from kdissect.cli.terminal import ctrl_c, output, progress
from kdissect.exchanges.learned import LearnedFacts
from kdissect.net.tcp import Shard
from kdissect.options import WHOLE
from kdissect.parallel.assembling import Assembly, LateRows, WorkerBatch, WorkerEnd
from kdissect.parallel.tables import Progress, ShardReader, StoppableDissection
from kdissect.parallel.worker import Stopped, Texts, Worker, remove_large_texts
from kdissect.parallel.worker_pool import Inbox, Outbox, WorkerPool
from kdissect.pipeline import Dissection, learned_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import FrameType
    from typing import TextIO

    from kdissect.capture.ongoing import LiveSources
    from kdissect.capture.reader import Capture
    from kdissect.cli.output_options import ExchangeOutput
    from kdissect.cli.run import Query
    from kdissect.model import Exchange, IdleTick, Packet, PacketBlock
    from kdissect.parallel.worker import Page, Sums, Text, Work
    from kdissect.stats.connection_log import ConnectionLog
    from kdissect.tables.export import ExportJob, PartResult


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
        self._shows_bar = shows_bar
        self._interrupt = _Interrupt()
        self._totals = Totals(Counter(), Counter(), [], [], capture.sources, None)
        self._notices: list[tuple[int, str]] = []

    @property
    def totals(self) -> Totals:
        """The totals of all workers that have ended."""
        notices = [text for _, text in sorted(self._notices)[: self._query.limits.notices]]
        return replace(self._totals, notices=notices)

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
        if _reads_twice(self._query):
            self._bytes_total = self._bytes_total and 2 * self._bytes_total

        def job(index: int, outbox: Outbox, inbox: Inbox) -> None:
            work(self._query, Shard(index, jobs), make_work(index), outbox, inbox)

        self._run(
            jobs,
            job,
            lambda pool: self._assemble(self._messages(pool, jobs), pool, assembly),
            lambda rows: self._consume(rows, consume, max_rows),
        )
        self._totals.counts["produced_evicted"] += assembly.produced_evicted

    def export(self, jobs: int, job: ExportJob, log: ConnectionLog) -> list[PartResult]:
        """Write the tables of an export in workers.

        Args:
            jobs: number of workers.
            job: what to write.
            log: observes the connections of each worker, and gets the packet census of the capture.
        """

        def write(index: int, outbox: Outbox, inbox: Inbox) -> None:
            write_shard(self._query, job, Shard(index, jobs), outbox, inbox, log)

        self._bytes_total = self._bytes_total and 2 * self._bytes_total
        self._run(jobs, write, lambda pool: self._messages(pool, jobs), self._run_to_end)
        parts = []
        for result, census in self.results:
            parts.append(result)
            self.shown += result.selected
            log.census = census or log.census
        return sorted(parts, key=attrgetter("part"))

    def count(self, jobs: int, sums: Sums, *, is_native: bool) -> None:
        """Count the exchanges in workers, and add the counts up.

        Args:
            jobs: number of workers.
            sums: counts them.
            is_native: whether the native core can.
        """

        def count(index: int, outbox: Outbox, inbox: Inbox) -> None:
            count_shard(self._query, sums, Shard(index, jobs), outbox, inbox, is_native=is_native)

        self._bytes_total = self._bytes_total and 2 * self._bytes_total
        self._run(jobs, count, lambda pool: self._messages(pool, jobs), self._run_to_end)
        for shown, counted in self.results:
            self.shown += shown
            sums.merge(counted)

    def _run(
        self,
        jobs: int,
        job: Callable[[int, Outbox, Inbox], None],
        rows: Callable[[WorkerPool], Iterator[Any]],
        consume: Callable[[Iterator[Any]], object],
    ) -> None:
        """Run a job in each worker and consume the rows that result from their messages."""
        with WorkerPool(jobs, job) as pool, self._interrupt.installed():
            try:
                with progress(
                    rows(pool), self._bytes_total, lambda: self._bytes_read, enabled=self._shows_bar
                ) as watched:
                    consume(iter(watched))
            except KeyboardInterrupt:
                self.interrupted = True
            if not self.complete:
                pool.stop()
                for _, message in pool.messages(WorkerEnd, self._interrupt.raise_pending):
                    if isinstance(message, WorkerEnd):
                        self._handle_end(message)

    def write(self, jobs: int, page: Page, sink: Any, work: Text, max_rows: int | None) -> None:
        """Format rows in workers and write the text.

        Args:
            jobs: number of workers.
            page: the buffer that the sink writes to, in each worker.
            sink: formats rows; it has already written its heading, if any.
            work: feeds the sink.
            max_rows: when to stop; None: at the end.
        """
        from kdissect.text.tree import Tree

        page.before_take = sink.close
        write = self.out.buffer.write
        write(page.take())
        skip = 0
        if isinstance(sink, Tree):  # the parent removes the empty line before the first tree
            sink.is_first, skip = False, 1
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
        from kdissect.cli.output_options import LineSink
        from kdissect.parallel.worker import Page, Text

        page = Page(self.out)
        times = output.time_formatter(self.out, self.first_ns)
        sink = output.sink(page, times, self._query, flush=False)

        def feed(exchange: Exchange) -> None:
            if check is not None:
                check(exchange)
            sink.feed(exchange)

        is_escaped = self.out.isatty()  # which the core does not do
        is_plain = self._query.shows_all and not (check or max_rows or is_escaped) and native.core is not None
        form = sink.form if is_plain and isinstance(sink, LineSink) and sink.are_plain else None
        work = Text(Selection(self._query), page, feed, form=form)
        self.write(jobs, page, sink, work, max_rows)

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

    def _run_to_end(self, steps: Iterator[Any]) -> None:
        for _ in steps:
            pass
        self.complete = True

    def _messages(self, pool: WorkerPool, jobs: int) -> Iterator[tuple[int, Any]]:
        """The messages of workers, each with the worker's index. Those that are the same for every job are
        also handled here: learned facts are merged and sent to all workers, and ends are added up.
        """
        facts, pending = LearnedFacts(self._query.limits, self._query.options.names), jobs
        for index, message in pool.messages(WorkerEnd, self._interrupt.raise_pending):
            if isinstance(message, LearnedFacts):
                facts.merge(message)
                pending -= 1
                if not pending:
                    self._totals.counts["produced_evicted"] += facts.dropped_batches
                for each in range(0 if pending else jobs):
                    pool.send(each, facts)
            elif isinstance(message, WorkerEnd):
                self._handle_end(message)
            elif isinstance(message, Progress | WorkerBatch):
                self._bytes_read = max(self._bytes_read, message.bytes_read)
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
        totals.warnings, totals.sources, totals.fault = message.warnings, message.sources, message.fault
        self._notices += message.noticed
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


def _reads_twice(query: Query) -> bool:
    """Whether workers first learn what the connections of others show: names, resumed TLS sessions."""
    return query.options.names == WHOLE or bool(query.options.key_logs)


def work(query: Query, shard: Shard, task: Work, outbox: Outbox, inbox: Inbox) -> None:
    """Compute the rows of a shard: the main function of a worker."""
    reader = ShardReader(outbox.send, inbox)
    names_only = replace(query, options=replace(query.options, end_to_end=False))  # the parent joins batches
    learned = _learned(names_only, shard, reader) if _reads_twice(query) else None
    with open_capture(*query.paths, limits=query.limits) as capture:
        readable = Readable(capture.packet_blocks())

        def bytes_read() -> int:
            return reader.bytes_before + capture.bytes_read

        worker = Worker(
            task,
            query.limits,
            outbox.send,
            inbox.receive,
            inbox.has_message,
            bytes_read,
            learned,
            end_to_end=query.options.end_to_end,
            memory=outbox.memory,
        )
        dissection = Dissection(
            worker.watch(readable),
            query.options,
            shard=shard,
            learned=learned,
            split_latency=query.split_latency,
        )
        with faults_named(query, readable), suppress(Stopped):
            if not reader.is_stopped:
                worker.run(dissection)
        dissection.counts["exchanges"] += worker.exchanges
        outbox.send(_end(query, capture, readable, dissection, task.end()))


def write_shard(
    query: Query,
    job: ExportJob,
    shard: Shard,
    outbox: Outbox,
    inbox: Inbox,
    log: ConnectionLog,
) -> None:
    """Write the tables of a shard: the main function of a worker of ``export``."""
    from kdissect.tables.export import write_part  # imports every codec

    reader, options = ShardReader(outbox.send, inbox), query.options
    learned = _learned(query, shard, reader)
    with open_capture(*query.paths, limits=query.limits) as capture:
        readable = Readable(capture.packet_blocks())
        packets = reader.watch(readable, capture)
        dissection = StoppableDissection(
            packets if shard.number else log.watch(packets),
            options,
            observer=log,
            learned=learned,
            shard=shard,
        )
        with faults_named(query, readable):
            result = write_part(
                job, shard.number, dissection, log, Selection(query), shard.number + 1, shard.of
            )
        census = None if shard.number else log.census
        outbox.send(_end(query, capture, readable, dissection, (result, census)))


def count_shard(
    query: Query,
    sums: Sums,
    shard: Shard,
    outbox: Outbox,
    inbox: Inbox,
    *,
    is_native: bool,
) -> None:
    """Count the exchanges of a shard: the main function of a worker of ``summary``."""
    reader = ShardReader(outbox.send, inbox)
    learned = _learned(query, shard, reader)
    with open_capture(*query.paths, limits=query.limits) as capture:
        readable = Readable(capture.packet_blocks())
        packets = reader.watch(readable, capture)
        dissection = StoppableDissection(
            packets if shard.number else sums.observer.watch(packets),  # every worker reads all of them
            query.options,
            observer=sums.observer,
            learned=learned,
            shard=shard,
            split_latency=query.split_latency,
        )
        if is_native:
            dissection.write_lines(sums.form, lambda _lines, _exchanges: None)
        with faults_named(query, readable):
            shown = sum(map(sums.feed, dissection))
            dissection.settle()
        if is_native:
            shown = dissection.counts["exchanges"]  # all are selected
        outbox.send(_end(query, capture, readable, dissection, (shown, sums.end())))


def _learned(query: Query, shard: Shard, reader: ShardReader) -> LearnedFacts:
    """The facts learned by all workers; those of this shard if the parent has sent ``Stop``."""
    facts = LearnedFacts(query.limits, query.options.names)
    with faults_named(query), suppress(Stopped):
        facts = learned_from(query.paths, query.options, shard, reader.watch)
    return reader.exchange_facts(facts)


def _end(
    query: Query, capture: Capture, readable: Readable, dissection: Dissection, result: Any
) -> WorkerEnd:
    return WorkerEnd(
        dissection.counts,
        dissection.skipped,
        dissection.noticed,
        capture.warnings,
        capture.sources,
        readable.fault,
        query.filter.notes,
        result,
    )


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
