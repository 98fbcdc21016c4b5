"""A capture that is worth it -> its rows, made by several processes. Holds what parallel/ does.

    with sharing(query, bar=...) as run:
        run.gather(jobs, maker, take, count)
    run.tell(run.shown)

Between the first two lines the captures are opened once, to see that they can be read; each worker opens them
for itself.
"""

from __future__ import annotations

import math
import os
import signal
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from kdissect.capture.inputs import STDIN
from kdissect.capture.reader import Readable, open_capture
from kdissect.cli.running import Run, Selection, faults_named
from kdissect.cli.terminal import ctrl_c, output, progress
from kdissect.errors import KdissectError
from kdissect.exchanges.learned import LearnedFacts
from kdissect.net.tcp import Shard, cores
from kdissect.parallel.assembling import Assembly, LateRows, WorkerBatch, WorkerEnd
from kdissect.parallel.tables import Progress, ShardReader, StoppableDissection
from kdissect.parallel.worker import Stopped, Texts, Worker
from kdissect.parallel.worker_pool import Inbox, WorkerPool
from kdissect.pipeline import Dissection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import FrameType
    from typing import TextIO

    from kdissect.capture.reader import Capture
    from kdissect.cli.running import Query
    from kdissect.parallel.worker import Page, Text, Work
    from kdissect.stats.connection_log import ConnectionLog
    from kdissect.tables.export import ExportJob, PartResult


class _Interrupt:
    """Ctrl-C -> known, and told at a moment when it does no harm; a second one ends it all."""

    def __init__(self) -> None:
        self._was_pressed = False

    def awaited(self) -> AbstractContextManager[None]:
        """Take it over meanwhile."""
        return ctrl_c(self._press)

    def look(self) -> None:
        """Raise it now."""
        if self._was_pressed:
            self._was_pressed = False
            raise KeyboardInterrupt

    def _press(self, number: int, frame: FrameType | None) -> None:
        if self._was_pressed:
            signal.default_int_handler(number, frame)
        self._was_pressed = True


class Gathered:
    """What became of the capture's packets, added up: see ``pipeline.Dissection``."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.noticed: list[tuple[int, str]] = []
        self.most_notices = 0

    @property
    def notices(self) -> list[str]:
        """Sentences about connections."""
        return [text for _, text in sorted(self.noticed)[: self.most_notices]]

    def add(self, end: WorkerEnd) -> None:
        """What one more worker counted; what all of them count counts once."""
        packets = min(end.counts["packets"], self.counts["packets"] or end.counts["packets"])
        self.counts.update(end.counts)
        self.counts["packets"] = packets
        self.noticed += end.noticed
        if not self.skipped:
            self.skipped.update(end.skipped)


class SharedRun(Run):
    """A capture that several processes dissect.

    Attributes:
        out, capture, first_ns, shown, interrupted, complete: as of any run.
        dissection: counts, once all is shown.
        made: what the sinks of the workers knew at the end.
    """

    def __init__(
        self, query: Query, capture: Capture, out: TextIO, bar: ExitStack, *, shows_bar: bool
    ) -> None:
        super().__init__(query, capture, capture.packet_blocks(), out, bar)
        self.dissection: Any = Gathered()
        self.dissection.most_notices = query.limits.notices
        self.capture: Any = self
        self.warnings: list[str] = []
        self.sources = capture.sources
        self.made: list[Any] = []
        self.bytes_total = capture.bytes_total
        self.bytes_read = 0
        self._shows_bar = shows_bar
        self._fault: str | None = None
        self._interrupt = _Interrupt()

    @property
    def fault(self) -> str | None:
        """What was wrong at the place that it could not be read beyond."""
        return self._fault

    @property
    def failed(self) -> bool:
        """Whether a bug of ours kept a worker from reading all of it."""
        return any(source.failed for source in self.sources)

    def gather(
        self,
        jobs: int,
        maker: Callable[[int], Work],
        take: Callable[[list[Any]], object],
        most: int | None = None,
    ) -> None:
        """Have rows made, and take them.

        Args:
            jobs: how many processes make them.
            maker: makes in a worker, given its index, what makes them.
            take: takes what was made of the next rows; of those that were asked for, in order.
            most: after how many rows to stop, None: never.
        """
        assembly = Assembly(jobs, self._query.limits)

        def job(index: int, send: Callable[[Any], object], inbox: Inbox) -> None:
            work(self._query, Shard(index, jobs), maker(index), send, inbox)

        self._run(
            jobs,
            job,
            lambda pool: self._put_together(pool, assembly),
            lambda rows: self._take(rows, take, most),
        )

    def export(self, jobs: int, job: ExportJob, log: ConnectionLog) -> list[PartResult]:
        """Have the tables of an export written.

        Args:
            jobs: how many processes write them.
            job: what they write.
            log: surveys the connections of each; it is told what packets there were.
        """

        def write(index: int, send: Callable[[Any], object], inbox: Inbox) -> None:
            write_shard(self._query, job, Shard(index, jobs), send, inbox, log)

        self.bytes_total = self.bytes_total and 2 * self.bytes_total
        self._run(jobs, write, lambda pool: self._facts_exchanged(pool, jobs), self._wait)
        results = []
        for result, census in self.made:
            results.append(result)
            self.shown += result.selected
            log.census = census or log.census
        return sorted(results, key=attrgetter("part"))

    def _run(
        self,
        jobs: int,
        job: Callable[[int, Callable[[Any], object], Inbox], None],
        rows: Callable[[WorkerPool], Iterator[Any]],
        take: Callable[[Iterator[Any]], object],
    ) -> None:
        """Have workers do a job, and take the rows that come of their messages."""
        with WorkerPool(jobs, job) as pool, self._interrupt.awaited():
            self._rows = rows(pool)
            try:
                with progress(self, wanted=self._shows_bar) as watched:  # type: ignore[arg-type]  # all it needs
                    take(cast("Iterator[Any]", watched))
            except KeyboardInterrupt:
                self.interrupted = True
            if not self.complete:
                pool.stop()
                for _, message in pool.messages(WorkerEnd, self._interrupt.look):
                    self._note(message)

    def write(self, jobs: int, page: Page, sink: Any, work: Text, most: int | None) -> None:
        """Have the text of a sink's rows made, and write it.

        Args:
            jobs: how many processes make it.
            page: what the sink writes to, in each of them.
            sink: has written its heading already, if it has any.
            work: feeds the sink.
            most: after how many rows to stop, None: never.
        """
        from kdissect.text.tree import Tree

        page.flush = sink.close
        write = self.out.buffer.write
        write(page.take())
        skip = 0
        if isinstance(sink, Tree):  # the empty line before the very first is the parent's to leave out
            sink.is_first, skip = False, 1
        self.gather(jobs, lambda _: work, Texts(write, skip).take, most)

    def packet_blocks(self) -> Iterator[Any]:
        """What a progress bar watches."""
        return self._rows

    def _take(self, rows: Iterator[list[Any]], take: Callable[[list[Any]], object], most: int | None) -> None:
        for made in rows:
            asked_for = list(filter(None, made))
            count = sum([row[0] for row in asked_for])
            if most is not None and self.shown + count >= most:
                take(_first(asked_for, most - self.shown))
                self.shown = most
                return
            self.shown += count
            take(asked_for)
        self.complete = True

    def _wait(self, steps: Iterator[Any]) -> None:
        for _ in steps:
            pass
        self.complete = True

    def _facts_exchanged(self, pool: WorkerPool, jobs: int) -> Iterator[None]:
        """Merge what workers say, and give it to all of them; a step for each time that they have read on."""
        facts, silent = LearnedFacts(self._query.limits), jobs
        for _, message in pool.messages(WorkerEnd, self._interrupt.look):
            if isinstance(message, LearnedFacts):
                facts.merge(message)
                silent -= 1
                for index in range(0 if silent else jobs):
                    pool.send(index, facts)
            elif isinstance(message, Progress):
                self.bytes_read = max(self.bytes_read, message.bytes_read)
                yield
            else:
                self._note(message)

    def _put_together(self, pool: WorkerPool, assembly: Assembly) -> Iterator[list[Any]]:
        for index, message in pool.messages(WorkerEnd, self._interrupt.look):
            if isinstance(message, WorkerBatch):
                self.bytes_read = max(self.bytes_read, message.bytes_read)
                made = assembly.batch(index, message)
            elif isinstance(message, LateRows):
                made = assembly.late(index, message)
            else:
                self._note(message)
                continue
            for worker, told in assembly.updates():
                pool.send(worker, told)
            if made:
                yield made

    def _note(self, message: Any) -> None:
        if not isinstance(message, WorkerEnd):
            return
        self.dissection.add(message)
        self.warnings, self.sources = message.warnings, message.sources
        self._fault = message.fault
        self.made.append(message.result)
        for seen, more in zip(self._query.filter.passed_over, message.passed_over, strict=True):
            seen |= more


def _first(made: Sequence[tuple[int, Any]], most: int) -> list[tuple[int, Any]]:
    """The first rows, so many; each piece is one."""
    out: list[tuple[int, Any]] = []
    for count, data in made:
        if count >= most and not isinstance(data, bytes):
            return [*out, (most, data[:most])]
        out.append((count, data))
        most -= count
        if not most:
            break
    return out


def work(query: Query, shard: Shard, made: Work, send: Callable[[Any], object], inbox: Inbox) -> None:
    """What a worker does."""
    with open_capture(*query.paths, limits=query.limits) as capture:
        readable = Readable(capture.packet_blocks())
        worker = Worker(
            made, query.limits, send, inbox.receive, inbox.has_message, lambda: capture.bytes_read
        )
        dissection = Dissection(worker.watch(readable), query.options, shard=shard)
        with faults_named(query, readable), suppress(Stopped):
            worker.run(dissection)
        dissection.counts["exchanges"] += worker.exchanges
        send(_end(query, capture, readable, dissection, made.end()))


def write_shard(
    query: Query,
    job: ExportJob,
    shard: Shard,
    send: Callable[[Any], object],
    inbox: Inbox,
    log: ConnectionLog,
) -> None:
    """What a worker does that writes tables."""
    from kdissect.tables.export import write_part  # and with it every codec

    facts, reader, options = LearnedFacts(query.limits), ShardReader(send, inbox), query.options
    with open_capture(*query.paths, limits=query.limits) as capture:
        readable = Readable(capture.packet_blocks())
        with faults_named(query, readable), suppress(Stopped):
            Dissection(reader.watch(readable, capture), options, shard=shard).learn(facts)
    facts = reader.exchange_facts(facts)
    with open_capture(*query.paths, limits=query.limits) as capture:
        readable = Readable(capture.packet_blocks())
        packets = reader.watch(readable, capture)
        dissection = StoppableDissection(
            packets if shard.number else log.watch(packets), options, observer=log, learned=facts, shard=shard
        )
        with faults_named(query, readable):
            result = write_part(
                job, shard.number, [dissection], log, Selection(query), shard.number + 1, shard.of
            )
        census = None if shard.number else log.census
        send(_end(query, capture, readable, dissection, (result, census)))


def _end(query: Query, capture: Capture, readable: Readable, dissection: Dissection, made: Any) -> WorkerEnd:
    return WorkerEnd(
        dissection.counts,
        dissection.skipped,
        dissection.noticed,
        capture.warnings,
        capture.sources,
        readable.fault,
        query.filter.passed_over,
        made,
    )


@contextmanager
def sharing(query: Query, *, bar: Callable[[TextIO], bool]) -> Iterator[SharedRun]:
    """Open what was asked for, to see that it can be read; ``bar`` decides from stdout whether a progress bar
    can stand on stderr.
    """
    with (
        open_capture(*query.paths, limits=query.limits) as capture,
        output() as out,
        ExitStack() as stack,
        faults_named(query),
    ):
        yield SharedRun(query, capture, out, stack, shows_bar=not query.no_progress and bar(out))


# ------------------------------------------------------------------------------------------------------------
# ``-j N`` and the size of what is read -> how many processes read it. Holds nothing.
# ------------------------------------------------------------------------------------------------------------


WORTH_PACKETS = 100_000
"""That one process reads in a second or more; below, starting others costs more than it saves."""

SMALL_BYTES = 600
"""Mean size of packets up to which there is more to be said of each than to be read: measured, two processes
take 0.65 of the time of one at 90 bytes a packet, and more than one at 1,400 (docs/performance.md).
"""

_LOOKED_AT = 8_000  # packets: more than the handshakes with which a thousand clients begin
_LEAST_BYTES = 54  # of a packet with a TCP header

_MOST = 16
"""Workers by default: each steps over all packets, and one parent puts together what they make."""


def jobs_option(why_not: str, same: str = "The output is the same.") -> Callable[[Any], Any]:
    """The option; ``why_not`` says where a command stays at one process, ``same`` what is the same with any
    number of them.
    """
    return click.option(
        "-j",
        "--jobs",
        "jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help=f"Worker processes; each takes a share of the connections. {same} "
        f"[default: all cores for small files with {WORTH_PACKETS:,} packets or more] {why_not}",
    )


def processes(query: Query, jobs: int | None, *, by_default: bool = True, ever: bool = True) -> int:
    """How many processes to use: 1 where the input cannot be read more than once, or is not worth more.

    Args:
        query: names the files.
        jobs: that the user wants; None: says nothing of it.
        by_default: whether more than one makes sense for what is done, if the user says nothing.
        ever: whether it can be done at all.
    """
    paths = [Path(path) for path in query.paths if path != STDIN]
    are_files = len(paths) == len(query.paths) and all(path.is_file() for path in paths)
    if not (ever and are_files and hasattr(os, "fork")):
        return 1
    if jobs is not None:
        return jobs
    if not (by_default and _are_worth_it(paths)):
        return 1
    return min(cores(), _MOST)


def _are_worth_it(paths: Sequence[Path]) -> bool:
    """Whether the files hold many small packets, going by their size and by the first packets of one."""
    total = sum(path.stat().st_size for path in paths)
    if total < WORTH_PACKETS * _LEAST_BYTES:
        return False
    try:
        with open_capture(paths[0]) as capture:
            sizes = [len(packet.data) for packet in islice(capture, _LOOKED_AT)]
    except KdissectError:
        return False  # the reader will say why
    mean = sum(sizes) / len(sizes) if sizes else math.inf
    return mean <= SMALL_BYTES and total / mean >= WORTH_PACKETS
