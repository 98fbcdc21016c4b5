"""Live packets -> rows, computed by several worker processes.

This process reads the packets, records them and reports drops. It shares all of them with the workers, and a
thread puts the workers' rows in order and writes them. Every worker takes the packets of its shard, counts
the others and gets all idle ticks, so the rows are those of one process.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from kdissect.cli.live_run import open_live_input
from kdissect.cli.parallel_run import ParallelRun, work
from kdissect.cli.run import faults_named
from kdissect.net.tcp import Shard
from kdissect.parallel.assembling import Assembly
from kdissect.parallel.broadcast import Broadcast
from kdissect.parallel.worker_pool import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from kdissect.capture.ongoing import LiveSources
    from kdissect.cli.live_run import LiveInput, LiveOptions, StopSignals
    from kdissect.cli.run import Query, Totals
    from kdissect.parallel.worker import Work
    from kdissect.parallel.worker_pool import Inbox, Outbox


class ParallelLiveRun(ParallelRun):
    """A run over live packets in several processes."""

    def __init__(self, query: Query, live_input: LiveInput, stop_signals: StopSignals, out: TextIO) -> None:
        self._input = live_input
        self._stop_signals = stop_signals
        super().__init__(query, live_input.ongoing, live_input.packets, out, shows_bar=False)

    def gather(
        self,
        jobs: int,
        make_work: Callable[[int], Work],
        consume: Callable[[list[Any]], object],
        max_rows: int | None = None,
    ) -> None:
        """See ``ParallelRun``."""

        def job(index: int, outbox: Outbox, inbox: Inbox) -> None:
            self._input.ongoing.leave()
            packets = broadcast.inbox(index, inbox)
            work(self._query, Shard(index, jobs), make_work(index), outbox, packets, patience_s=0)

        def consume_now(rows: list[Any]) -> None:
            consume(rows)
            self.out.flush()

        def write() -> None:
            try:
                rows = self._assemble(self._messages(pool, jobs), pool, assembly)
                self._consume(filter(None, rows), consume_now, max_rows)
                if not self.complete:
                    pool.stop()
                    for _ in self._messages(pool, jobs):
                        pass
            except BaseException as error:  # noqa: BLE001  # the main thread raises it
                errors.append(error)
            is_over.set()  # nothing waits for a worker any more
            self._input.ongoing.stop()  # or it would be read until the next packet comes

        assembly, errors = Assembly(jobs, self._query.limits), list[BaseException]()
        broadcast, is_over = Broadcast(jobs, divides=not self._query.options.numbers_streams), Event()
        with WorkerPool(jobs, job) as pool:
            broadcast.start()
            writer = Thread(target=write, daemon=True)
            writer.start()
            try:
                for packets in chain(() if self._first is None else (self._first,), self.readable):
                    if not broadcast.send([packets], is_over.is_set):
                        break
                broadcast.send([None], is_over.is_set)
            except KeyboardInterrupt:
                self.interrupted = True
                pool.stop()
            self._input.close()
            writer.join()
        if errors:
            raise errors[0]

    @property
    def totals(self) -> Totals:
        """See ``ParallelRun``."""
        ongoing = self._input.ongoing
        return replace(
            super().totals, warnings=ongoing.warnings, sources=ongoing.sources, fault=self.readable.fault
        )

    def report(self, exchanges: int) -> None:
        """Report on stderr what was skipped and why, then the number of packets."""
        super().report(exchanges)
        self._input.report(self.totals.counts["exchanges"], exchanges)

    def end(self, noun: str) -> None:
        """See ``LiveRun``."""
        self._stop_signals.end()
        super().end(noun)


@contextmanager
def open_parallel_live_run(
    query: Query, options: LiveOptions, ongoing: LiveSources
) -> Iterator[ParallelLiveRun]:
    """Wait for the first packet of a capture; see ``open_live_run``."""
    with open_live_input(options, ongoing) as (live_input, stop_signals, out):
        run = ParallelLiveRun(query, live_input, stop_signals, out)
        with faults_named(query, run.readable):
            yield run
