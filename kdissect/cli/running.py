"""Options of a command that reads captures -> its dissection, rows for its sink, and what is said at the end.

    query = Query.take(options)
    with running(query) as run:
        run.show(run.selected(), sink.feed)
        sink.close()
    run.tell(...)

Holds the one packet that was read ahead, for filters that count from a capture's first.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from kdissect.capture.reader import Readable, open_capture
from kdissect.capture.source import one_by_one
from kdissect.cli.options import take_options
from kdissect.cli.terminal import FAILED, INTERRUPTED, check_stdin, output, progress, warn
from kdissect.errors import KdissectError, UnexpectedError
from kdissect.phrases import many
from kdissect.pipeline import Dissection
from kdissect.query.filters import build
from kdissect.text.loss_report import shortcomings

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TextIO

    from kdissect.capture.connection_index import ConnectionIndex
    from kdissect.capture.ongoing import Ongoing
    from kdissect.capture.reader import Capture
    from kdissect.limits import Limits
    from kdissect.model import Exchange, IdleTick, Packet, PacketBlock
    from kdissect.options import Options
    from kdissect.query.filters import Filter
    from kdissect.stats.survey import Survey


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Query:
    """What ``input_options`` and ``filter_options`` say, as values.

    Attributes:
        paths: of captures: at least one, but where packets come live.
        filter: the criteria of ``options``, and what they have seen.
    """

    paths: tuple[str, ...]
    options: Options
    filter: Filter
    no_progress: bool

    @classmethod
    def take(cls, options: dict[str, Any]) -> Query:
        """Take its own out of a command's options, and leave those of the command.

        Raises:
            UsageError: no file was named, or a filter is invalid.
        """
        paths = (*options.pop("also_files"), *options.pop("files"))
        if not paths:
            raise click.UsageError("no FILE given; use - for stdin")
        if "-" in paths:
            check_stdin()
        return cls.live(options, paths, no_progress=options.pop("no_progress"))

    @classmethod
    def live(cls, options: dict[str, Any], paths: tuple[str, ...] = (), *, no_progress: bool = True) -> Query:
        """The same for packets that come live, and from no file.

        Raises:
            UsageError: a filter is invalid.
        """
        own = take_options(options)
        return cls(paths, own, _filter(own), no_progress)

    @property
    def limits(self) -> Limits:
        """Bounds of every stage."""
        return self.options.limits


def _filter(options: Options) -> Filter:
    if options.where is None:
        return build(**options.criteria, where=None)
    from kdissect.tables.columns import filter_of

    return filter_of(options)


class Selection:
    """Tells which exchanges are asked for.

    Args:
        query: has filters and names.
        passed_over: told of each of the others.
    """

    def __init__(self, query: Query, passed_over: Callable[[Exchange], object] | None = None) -> None:
        self._wanted = query.filter
        self._ids = query.options.exchanges
        self._passed_over = passed_over
        self._is_first = True

    def __call__(self, exchange: Exchange) -> bool:
        """Whether this one is."""
        ids = self._ids
        if (not ids or (exchange.connection.id, exchange.number) in ids) and self._wanted.matches(exchange):
            self._is_first = False
            return True
        if self._passed_over is not None:
            self._passed_over(exchange)
        if self._is_first:  # until one is what was asked for, it may be of use to know what there was instead
            self._wanted.note_unmatched(exchange)
        return False


class Run:
    """A capture that is being dissected.

    Attributes:
        out: for the command's data.
        capture, dissection: what is read, and what becomes of it.
        readable: its packets, as far as they can be read.
        first_ns: time of the first packet, None where there is none.
        shown: rows that the sink got.
        interrupted: whether Ctrl-C ended it.
        complete: whether the capture was read to its end.
    """

    def __init__(
        self,
        query: Query,
        capture: Capture | Ongoing,
        packets: Iterable[PacketBlock | Packet | IdleTick],
        out: TextIO,
        bar: ExitStack,
        index: ConnectionIndex | None = None,
        observer: Survey | None = None,
    ) -> None:
        self.out = out
        self.capture = capture
        self.shown = 0
        self.interrupted = False
        self.complete = False
        self._query = query
        self._bar = bar
        self.readable = Readable(packets)
        first = next(self.readable, None)
        self.first_ns = None if first is None else first.time_ns
        if first is not None:
            query.filter.begin(first.time_ns)
        watched: Iterable[Any] = chain(() if first is None else (first,), self.readable)
        if index is not None:
            watched = index.watch(one_by_one(watched))
        if observer is not None:
            watched = observer.watch(watched)
        self.dissection: Dissection = Dissection(
            watched,
            query.options,
            index=index,
            observer=observer,
        )

    def selected(self, passed_over: Callable[[Exchange], object] | None = None) -> Iterator[Exchange]:
        """The exchanges that are asked for; ``passed_over`` is told of each of the others."""
        if self._query.filter.is_empty and not self._query.options.exchanges:
            return iter(self.dissection)
        return filter(Selection(self._query, passed_over), self.dissection)

    def show(
        self,
        rows: Iterable[Row],
        feed: Callable[[Row], object],
        most: int | None = None,
        *,
        flush: bool = False,
        size: Callable[[Row], int] | None = None,
    ) -> None:
        """Feed a sink, and end the progress bar's line."""
        self.shown, self.interrupted = show(rows, feed, most, self.out.flush, flush_each=flush, size=size)
        self.complete = not self.interrupted and (most is None or self.shown < most)
        self._bar.close()

    @property
    def fault(self) -> str | None:
        """What was wrong at the place that it could not be read beyond."""
        return self.readable.fault

    @property
    def failed(self) -> bool:
        """Whether a bug of ours kept us from reading all of it."""
        return self.capture.failed

    def tell(self, exchanges: int) -> None:
        """Say on stderr what was not looked at, and why; ``exchanges`` are those that were asked for."""
        if self.readable.fault is not None:
            warn(f"warning: {self.readable.fault}; the rest was not read")
        close(
            self.capture,
            self.dissection,
            shown=exchanges,
            complete=self.complete,
            unmet=self._query.filter.missing_names,
        )

    def end(self, noun: str) -> None:
        """End the command as Ctrl-C wants it, if it was pressed, and say so if not all could be read.

        Raises:
            Exit: with a status other than 0.
        """
        if self.interrupted:
            packets = many(self.dissection.counts["packets"], "packet")
            warn(f"interrupted after {packets}, {many(self.shown, noun)} shown")
            raise click.exceptions.Exit(INTERRUPTED)
        if self.failed:
            raise click.exceptions.Exit(FAILED)


@contextmanager
def faults_named(query: Query, readable: Readable | None = None) -> Iterator[None]:
    """Let what nobody was prepared for name the capture that was being read.

    Args:
        query: has the names of all captures.
        readable: knows which of several it was.

    Raises:
        UnexpectedError: it happened.
    """
    try:
        yield
    except (KdissectError, OSError, click.ClickException, click.exceptions.Exit, click.Abort):
        raise  # which everybody is prepared for
    except Exception as error:
        capture = readable.capture if readable is not None else None
        raise UnexpectedError.of(error, query.paths[0] if len(query.paths) == 1 else capture) from error


@contextmanager
def running(
    query: Query,
    *,
    bar: Callable[[TextIO], bool],
    index: ConnectionIndex | None = None,
    observer: Survey | None = None,
) -> Iterator[Run]:
    """Open what was asked for; ``bar`` decides from stdout whether a progress bar can stand on stderr. A
    ``index`` is told which connection each packet belongs to, a ``observer`` what there was.
    """
    with open_capture(*query.paths, limits=query.limits) as capture, output() as out, ExitStack() as stack:
        packets = stack.enter_context(progress(capture, wanted=not query.no_progress and bar(out)))
        run = Run(query, capture, packets, out, stack, index, observer)
        with faults_named(query, run.readable):
            yield run


# ------------------------------------------------------------------------------------------------------------
# Rows -> a sink, until there are enough of them or the person presses Ctrl-C. Holds nothing.
# ------------------------------------------------------------------------------------------------------------


def show(
    rows: Iterable[Row],
    feed: Callable[[Row], object],
    most: int | None,
    flush: Callable[[], object],
    *,
    flush_each: bool = False,
    size: Callable[[Row], int] | None = None,
) -> tuple[int, bool]:
    """Feed the sink.

    Args:
        rows: exchanges, records or batches of records.
        feed: the sink's.
        most: after how many to stop, None: never.
        flush: called after the first row, for somebody who waits for it.
        flush_each: call it after every row.
        size: how many a row counts for; None: each is one.

    Returns:
        How many rows the sink got, and whether Ctrl-C ended it.
    """
    shown = 0
    is_first, is_interrupted = True, False
    try:
        for row in rows:
            shown += 1 if size is None else size(row)
            feed(row)
            if flush_each or is_first:
                is_first = False
                flush()
            if shown == most:
                break
            del row  # before the next one is decoded: either may take most of the memory
    except KeyboardInterrupt:
        is_interrupted = True
    return shown, is_interrupted


# ------------------------------------------------------------------------------------------------------------
# A finished dissection -> the lines for stderr that tell what was not looked at, and why.
# ------------------------------------------------------------------------------------------------------------


MOST_NOTICES = 20
_CONNECTIONS = "connections: "
_KAFKA = "Kafka"
_UNRECOGNIZED = "not recognized"


class ReadCapture(Protocol):
    """Captures that were read."""

    @property
    def warnings(self) -> Sequence[str]:
        """What was odd about them."""


class DissectionCounts(Protocol):
    """What became of their packets, see ``pipeline.Dissection``."""

    @property
    def notices(self) -> Sequence[str]:
        """Sentences about connections."""

    @property
    def counts(self) -> Counter[str]:
        """What there is to count."""

    @property
    def skipped(self) -> Counter[str]:
        """Packets that were not looked at."""


def close(
    capture: ReadCapture,
    dissection: DissectionCounts,
    *,
    shown: int,
    complete: bool,
    unmet: Callable[[], str] = str,
) -> None:
    """Write them.

    Args:
        capture: what was read.
        dissection: what became of it.
        shown: exchanges that passed the filters.
        complete: whether it was read to its end: only then is it known what a capture does not have.
        unmet: tells which names that were asked for it does not have.
    """
    for warning in capture.warnings:
        warn(f"warning: {warning}")
    for notice in dissection.notices[:MOST_NOTICES]:
        warn(notice)
    more = max(dissection.counts["notices"], len(dissection.notices)) - MOST_NOTICES
    if more > 0:
        warn(f"{more:,} more notices like these")
    for line in shortcomings(dissection.counts):
        warn(line)
    if skipped := dissection.skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in skipped.most_common())
        warn(f"{many(skipped.total(), 'packet')} skipped: {reasons}")
    unrecognized = dissection.counts[_CONNECTIONS + _UNRECOGNIZED]
    if complete and shown and unrecognized:
        said = many(unrecognized, "connection")
        warn(f"{said} not recognized; -d tcp.port==PORT,kafka decodes a port as Kafka")
    if complete and not shown:
        found = dissection.counts["exchanges"]
        warn(_none_of(found, unmet()) if found else _nothing_found(dissection))


def _none_of(found: int, unmet: str) -> str:
    text = f"no match in {many(found, 'exchange')}"
    return f"{text}: {unmet}" if unmet else text


def _nothing_found(dissection: DissectionCounts) -> str:
    counts = dissection.counts
    if not counts["packets"]:
        return "no packets"
    protocols = [name for name in counts if name.startswith(_CONNECTIONS)]
    found = {name.removeprefix(_CONNECTIONS): counts[name] for name in protocols}
    if _KAFKA in found:
        return f"no complete request or response in {many(found[_KAFKA], 'Kafka connection')}"
    others = [f"{count:,} {name}" for name, count in found.items()]
    if count := counts["connections on other ports"]:
        others.append(f"{count:,} on other ports")
    said = f"connections: {', '.join(others)}" if others else "no TCP connection"
    text = f"no Kafka traffic ({many(counts['packets'], 'packet')}, {said})"
    could_be_kafka = found.keys() - {"TLS"}
    return f"{text}; -d tcp.port==PORT,kafka decodes a port as Kafka" if could_be_kafka else text
