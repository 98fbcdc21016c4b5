"""A source -> a sink, in several worker processes, each with a shard of the connections.

Text is made row by row: workers send it with its place, and this process writes it in order. Counts and
tables are made to the end: workers send the parts of their sinks.

A separate process reads files. A live capture is read by this process, which also records it and
reports drops, and a thread writes the rows; every worker gets all idle ticks, so rows are those of one
process. Files were opened here first, to check that they can be read.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from kdissect.capture.reader import Capture, Readable
from kdissect.exchanges.learned import LearnedFacts
from kdissect.net.tcp import Shard
from kdissect.pipeline import Dissection, notices_of
from kdissect.runs.assembling import Assembly, LateRows, Progress, ReaderEnd, WorkerBatch, WorkerEnd
from kdissect.runs.broadcast import Broadcast, Stopped, read_captures
from kdissect.runs.run import Run, Selection, Totals, ctrl_c, faults_named
from kdissect.runs.worker import Page, Text, Texts, Worker, remove_large_texts
from kdissect.runs.worker_pool import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import FrameType

    from kdissect.model import Exchange
    from kdissect.pipeline import Step
    from kdissect.runs.broadcast import PacketInbox
    from kdissect.runs.run import Query
    from kdissect.runs.worker_pool import Inbox, Outbox
    from kdissect.sinks.sink import Each, Sink
    from kdissect.stats.survey import Census, Survey

    Job = Callable[[Shard, Outbox, PacketInbox], None]
    Watch = Callable[[Iterable[Any], Callable[[], int]], Iterable[Any]]
    Progresses = Callable[[int | None, int], AbstractContextManager[Watch]]


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


class Workers:
    """Several dissections, one in each worker.

    Args:
        run: the run; its ``page`` becomes one of the workers.
        jobs: number of workers.
        observer: sees the connections of each worker, and gets the packet census of the capture.
        progress: shows a progress bar for so many bytes and passes, and yields a function that passes
            messages on; it gets the bytes read so far from another. None: for a live capture.

    Attributes:
        parts: those of the workers' sinks.
    """

    def __init__(
        self, run: Run, jobs: int, observer: Survey | None = None, progress: Progresses | None = None
    ) -> None:
        run.page = self._page = Page(run.out)
        self._jobs = jobs
        self._observer = observer
        self._progress = progress
        self._query = run.query
        self._interrupt = _Interrupt()
        self._totals = Totals(Counter(), Counter(), [], [], run.source.sources, None, unreadable=False)
        self._noticed: list[tuple[int, str]] = []
        self._bytes_total = 0  # in all passes
        self._bytes_read = 0
        self._census: Census | None = None  # of all packets, at the end
        self.parts: list[Any] = []

    def totals(self, run: Run) -> Totals:
        """See ``RunPlace``: those of all workers that have ended."""
        totals = replace(self._totals, notices=notices_of(self._noticed, self._query.limits))
        if run.live is None:
            return totals
        source = run.source
        return replace(totals, warnings=source.warnings, sources=source.sources, fault=run.readable.fault)

    def into(
        self,
        run: Run,
        sink: Each,
        max_rows: int | None,
        *,
        flush: bool,  # noqa: ARG002  (rows come in batches; those of a live capture are flushed)
    ) -> None:
        """See ``RunPlace``."""
        if sink.is_text:
            self._write(run, sink, max_rows)
        else:
            self.parts_of(run, lambda dissection, _: _fed(dissection, sink, self._query))
        for rows, part in self.parts:
            run.shown += rows
            sink.merge(part)

    def _write(self, run: Run, sink: Each, max_rows: int | None) -> None:
        """Write text in order."""
        page, query = self._page, self._query
        text = Text(sink, page, Selection.of(query), per_row=max_rows is not None)
        skip = sink.divide()  # this process removes what would be before the first row
        page.before_take = sink.close
        run.out.buffer.write(page.take())  # the heading
        text.prefix = f"kdissect-{os.getpid()}-"
        texts, assembly = Texts(run.out, skip), Assembly(self._jobs, query.limits, query.options.topic_ids)
        patience_s = _PATIENCE_S if run.live is None else 0

        def job(shard: Shard, outbox: Outbox, packets: PacketInbox) -> None:
            work(query, shard, text, outbox, packets, patience_s)

        def consume(rows: Iterator[list[Any]]) -> None:
            self._consume(run, rows, texts.take, max_rows)

        try:
            if run.live is None:
                passes = 2 if query.learns_first else 1
                self._from_files(run, job, lambda pool: self._assemble(pool, assembly), consume, passes)
            else:
                self._from_live(run, job, lambda pool: self._assemble(pool, assembly), consume)
        finally:
            remove_large_texts(text.prefix)
        self._count_dropped(assembly.produced_evicted, assembly.names_forgotten)

    def _count_dropped(self, batches: int, names: int) -> None:
        """As one process does: only what there is has a count."""
        dropped = Counter(produced_evicted=batches, names_forgotten=names)
        self._totals.counts.update(+dropped)

    def parts_of(self, run: Run, make: Callable[[Dissection, Shard], Any]) -> list[Any]:
        """Dissect in workers that learn first. Returns what ``make`` made in each, the part of a sink."""
        observer = self._observer

        def job(shard: Shard, outbox: Outbox, packets: PacketInbox) -> None:
            work_to_end(self._query, shard, make, outbox, packets, observer)

        def end(messages: Iterator[Any]) -> None:
            for _ in messages:
                pass
            run.complete = True

        census = None if observer is None else observer.census
        self._from_files(run, job, self._messages, end, 2, census)
        if observer is not None and self._census is not None:
            observer.census = self._census
        return self.parts

    def _from_files(
        self,
        run: Run,
        job: Job,
        rows: Callable[[WorkerPool], Iterator[Any]],
        consume: Callable[[Iterator[Any]], object],
        passes: int,
        census: Census | None = None,
    ) -> None:
        """Run a job in each worker, on packets that another process reads, and consume the rows that result
        from their messages.
        """
        query, jobs = self._query, self._jobs
        assert self._progress is not None
        assert isinstance(run.source, Capture)
        self._bytes_total = passes * (run.source.bytes_total or 0)
        broadcast = Broadcast(jobs, divides=not query.options.numbers_streams)

        def own(index: int, outbox: Outbox, inbox: Inbox) -> None:
            job(Shard(index, jobs), outbox, broadcast.inbox(index, inbox))

        def read(outbox: Outbox, inbox: Inbox) -> None:
            read_captures(query.paths, query.limits, passes, census, broadcast, outbox, inbox)

        with WorkerPool(jobs, own, read) as pool, self._interrupt.installed():
            broadcast.leave()
            try:
                with self._progress(run.source.bytes_total, passes) as watch:
                    consume(iter(watch(rows(pool), lambda: self._bytes_read)))
            except KeyboardInterrupt:
                run.interrupted = True
            self._stop(run, pool)

    def _from_live(
        self,
        run: Run,
        job: Job,
        rows: Callable[[WorkerPool], Iterator[Any]],
        consume: Callable[[Iterator[Any]], object],
    ) -> None:
        """The same, on packets that this process reads; a thread consumes the rows."""
        ongoing: Any = run.source
        assert run.live is not None
        broadcast = Broadcast(self._jobs, divides=not self._query.options.numbers_streams)
        errors, is_over = list[BaseException](), Event()

        def own(index: int, outbox: Outbox, inbox: Inbox) -> None:
            ongoing.leave()
            job(Shard(index, self._jobs), outbox, broadcast.inbox(index, inbox))

        def flushed(assembled: Iterator[Any]) -> Iterator[Any]:
            for each in filter(None, assembled):
                yield each
                run.out.flush()

        def write() -> None:
            try:
                consume(flushed(rows(pool)))
                self._stop(run, pool)
            except BaseException as error:  # noqa: BLE001  # the main thread raises it
                errors.append(error)
            is_over.set()  # nothing waits for a worker any more
            ongoing.stop()  # or it would be read until the next packet comes

        with WorkerPool(self._jobs, own) as pool:
            broadcast.start()
            writer = Thread(target=write, daemon=True)
            writer.start()
            try:
                for packets in run.packets():
                    if not broadcast.send([packets], is_over.is_set):
                        break
                broadcast.send([None], is_over.is_set)
            except KeyboardInterrupt:
                run.interrupted = True
                pool.stop()
            run.live.close()
            writer.join()
        if errors:
            raise errors[0]

    def _stop(self, run: Run, pool: WorkerPool) -> None:
        """Stop the workers, if the run is not complete, and take their last messages."""
        if not run.complete:
            pool.stop()
            for _ in self._messages(pool):
                pass

    def _consume(
        self,
        run: Run,
        rows: Iterator[list[Any]],
        consume: Callable[[list[Any]], object],
        max_rows: int | None,
    ) -> None:
        for batch in rows:
            selected = list(filter(None, batch))
            count = sum([row[0] for row in selected])
            if max_rows is not None and run.shown + count >= max_rows:
                consume(_first(selected, max_rows - run.shown))
                run.shown = max_rows
                return
            run.shown += count
            consume(selected)
        run.complete = True

    def _messages(self, pool: WorkerPool) -> Iterator[tuple[int, Any]]:
        """The messages of all processes, each with its index. Those that are the same for every job are also
        handled here: learned facts are merged and sent to all workers, and ends are added up.
        """
        facts, pending = LearnedFacts(self._query.limits, self._query.options.names), self._jobs
        for index, message in pool.messages((WorkerEnd, ReaderEnd), self._interrupt.raise_pending):
            if isinstance(message, LearnedFacts):
                facts.merge(message)
                pending -= 1
                if not pending:
                    self._count_dropped(facts.dropped_batches, facts.dropped_names)
                for each in range(0 if pending else self._jobs):
                    pool.send(each, facts)
            elif isinstance(message, WorkerEnd):
                self._handle_end(message)
            elif isinstance(message, Progress):
                self._bytes_read = message.bytes_read
            elif isinstance(message, ReaderEnd):
                self._bytes_read = max(self._bytes_read, self._bytes_total)
                totals = self._totals
                totals.warnings, totals.sources, totals.fault = (
                    message.warnings,
                    message.sources,
                    message.fault,
                )
                totals.unreadable, self._census = message.unreadable, message.census
            yield index, message

    def _assemble(self, pool: WorkerPool, assembly: Assembly) -> Iterator[list[Any]]:
        for index, message in self._messages(pool):
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
        self.parts.append(message.result)
        self._query.filter.notes.merge(message.notes)


def _first(rows: Sequence[tuple[int, Any]], max_rows: int) -> list[tuple[int, Any]]:
    """Return the first ``max_rows`` rows."""
    first: list[tuple[int, Any]] = []
    for count, data in rows:
        if count > max_rows:
            return [*first, (max_rows, data[:max_rows])]
        first.append((count, data))
        max_rows -= count
        if not max_rows:
            break
    return first


def work(
    query: Query, shard: Shard, task: Text, outbox: Outbox, inbox: PacketInbox, patience_s: float
) -> None:
    """Compute the rows of a shard: the main function of a worker. ``patience_s``: as for
    ``PacketInbox.packets``.
    """
    names_only = replace(query, options=replace(query.options, end_to_end=False))  # the parent joins batches
    learned = _learned(names_only, shard, outbox, inbox) if query.learns_first else None
    worker = Worker(
        task,
        query.limits,
        outbox.send,
        inbox.receive,
        inbox.has_message,
        learned,
        topic_ids=query.options.topic_ids,
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
        max_rows: int | None = None,
    ) -> Generator[None]:
        with suppress(Stopped):
            yield from super().into(sink, selects, watch, max_rows)


def work_to_end(
    query: Query,
    shard: Shard,
    make: Callable[[Dissection, Shard], Any],
    outbox: Outbox,
    inbox: PacketInbox,
    observer: Any,
) -> None:
    """Make the part of a shard: the main function of a worker whose rows are not put in order.

    Args:
        query: what to select.
        shard: the connections.
        make: makes the part from their dissection.
        outbox: to the parent.
        inbox: from it, and from the reader.
        observer: sees the connections.
    """
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
        part = make(dissection, shard)
    outbox.send(_end(query, dissection, part))


def _fed(dissection: Dissection, sink: Sink, query: Query) -> tuple[int, Any]:
    """Number of rows of a sink that was fed, and its part."""
    for _ in dissection.into(sink, Selection.of(query)):
        pass
    sink.close()
    return sink.rows, sink.part()


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
    dissection.pass_on()
    return WorkerEnd(dissection.counts, dissection.skipped, dissection.noticed, query.filter.notes, result)
