"""Options of a command that reads captures -> a run: the selected exchanges, and a report on stderr.

    query = Query.take(options)
    with open_run(query) as run:
        run.into(sink)
    run.report(run.shown)

The first packet is read ahead, for filters whose times are relative to it.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from kdissect.capture.inputs import STDIN, captures
from kdissect.capture.reader import Capture, Readable, open_capture
from kdissect.capture.source import one_by_one
from kdissect.cli.help import NoFileError
from kdissect.cli.options import take_options, warn_of_secrets, warn_of_secrets_in
from kdissect.cli.terminal import (
    FAILED,
    INTERRUPTED,
    USAGE,
    check_stdin,
    output,
    progress,
    reading,
    style_of,
    warn,
)
from kdissect.errors import KdissectError, UnexpectedError
from kdissect.options import WHOLE, WINDOW
from kdissect.phrases import listed, many, most_frequent
from kdissect.pipeline import Dissection, learned_from
from kdissect.query.filters import build
from kdissect.sinks.sink import Demand
from kdissect.text.loss_report import DETAILS, loss_lines
from kdissect.tls import can_decrypt

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TextIO

    from kdissect.capture.connection_index import ConnectionIndex
    from kdissect.capture.ongoing import LiveSources
    from kdissect.capture.source import Source
    from kdissect.exchanges.learned import LearnedFacts
    from kdissect.exchanges.ordering import ByRequest
    from kdissect.limits import Limits
    from kdissect.model import Exchange, IdleTick, Packet, PacketBlock
    from kdissect.options import Options
    from kdissect.query.filters import Filter
    from kdissect.sinks.sink import Sink
    from kdissect.stats.document import Verdict
    from kdissect.stats.quality import Check
    from kdissect.stats.survey import Survey
    from kdissect.tls.keylog import KeyLog


TCP_STREAM = "tcp_stream"
"""A field that costs time, and is counted only if it is used."""


@dataclass(frozen=True, slots=True)
class Query:
    """The values of ``input_options`` and ``filter_options``.

    Attributes:
        paths: the captures; empty for live traffic.
        filter: the criteria of ``options``, and which of them have matched.
        split_latency: whether the command shows the parts of latencies, or the filter may need them.
        key_log: that of live traffic, opened while there may still be privileges; None: ``options.key_logs``.
    """

    paths: tuple[str, ...]
    options: Options
    filter: Filter
    no_progress: bool
    split_latency: bool = True
    key_log: KeyLog | None = None

    @classmethod
    def take(cls, options: dict[str, Any], names: str = WHOLE, exclude: Path | None = None) -> Query:
        """Remove these options from a command's options and return their values.

        Args:
            options: of the command.
            names: default of ``--names`` for files, unless a filter is about names of topics.
            exclude: an output directory, which is skipped in directories of captures.

        Raises:
            UsageError: there is no input file, a filter is invalid, or a pipe would have to be read twice.
            CaptureError: a directory has no captures, or cannot be read.
        """
        paths = captures((*options.pop("also_files"), *options.pop("files")), exclude=exclude)
        if not paths:
            raise NoFileError
        if STDIN in paths:
            check_stdin()
        query = cls.live(options, paths, names, no_progress=options.pop("no_progress"))
        from kdissect.tls.keylog import read_key_logs, searchable

        files = [path for path in paths if path != STDIN]
        warn_of_secrets(files)
        own = replace(query.options, pcapng_files=searchable(files))
        if own.key_logs and query.are_files:
            read_key_logs(
                own.key_logs, own.pcapng_files, own.limits
            )  # once, before worker processes are forked
        return replace(query, options=own)

    @classmethod
    def live(
        cls,
        options: dict[str, Any],
        paths: tuple[str, ...] = (),
        names: str = WINDOW,
        *,
        no_progress: bool = True,
    ) -> Query:
        """The same for live traffic, which needs no input file.

        Raises:
            UsageError: a filter is invalid, or live traffic would have to be read twice.
        """
        own, chosen = take_options(options), options.pop("names", None)
        filter_ = _filter(own)
        query = cls(paths, own, filter_, no_progress)
        if not query.are_files:
            if chosen == WHOLE:
                raise click.UsageError("--names whole reads the input twice, so it needs files")
            names = WINDOW
        elif filter_.is_about_topics:
            names = WHOLE
        if own.key_logs and not query.are_files:
            from kdissect.tls.keylog import follow_key_logs

            query = replace(query, key_log=follow_key_logs(own.key_logs, own.limits))
        return replace(query, options=replace(own, names=chosen or names)).with_fields(())

    @property
    def are_files(self) -> bool:
        """Whether the input can be read twice."""
        return bool(self.paths) and not any(map(_is_pipe, self.paths))

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

    def demand(self, *, one_by_one: bool = False) -> Demand:
        """What a sink is asked for. ``one_by_one``: see there."""
        options = self.options
        selects_all = self.filter.is_empty and not (options.exchanges or options.end_to_end)
        return Demand(selects_all, self.split_latency, one_by_one)


def _is_pipe(path: str) -> bool:
    return path == STDIN or (Path(path).exists() and not Path(path).is_file())


def _filter(options: Options) -> Filter:
    if options.where is None:
        return build(**options.criteria, where=None)
    from kdissect.tables.columns import filter_of

    return filter_of(options)


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

    def check_document(self, observer: Survey, health: Verdict | None = None) -> Check:
        """What ``kdissect check`` reports; ``observer`` has seen all packets, connections and exchanges."""
        from kdissect.stats.check import build_check

        return build_check(
            self.sources, observer, self.counts, self.skipped, self.problems, self.notices, health
        )


class Run:
    """Captures that are read, in one process or several.

    Attributes:
        out: stdout.
        readable: the packets up to the first that cannot be read.
        first_ns: time of the first packet; None: there is no packet.
        shown: number of rows fed to the sink.
        interrupted: whether Ctrl-C stopped the run.
        complete: whether the capture was read to its end.
    """

    def __init__(self, query: Query, packets: Iterable[PacketBlock | Packet | IdleTick], out: TextIO) -> None:
        self.out = out
        self.shown = 0
        self.interrupted = False
        self.complete = False
        self._query = query
        self.readable = Readable(packets)
        self._first = next(self.readable, None)
        self.first_ns = None if self._first is None else self._first.time_ns
        if self.first_ns is not None:
            query.filter.begin(self.first_ns)

    @property
    def totals(self) -> Totals:
        """What is known so far."""
        raise NotImplementedError

    def report(self, exchanges: int) -> None:
        """Report on stderr what was skipped and why. ``exchanges``: how many matched the filters."""
        totals = self.totals
        if totals.fault is not None:
            warn(f"warning: {totals.fault}; the rest was not read")
        report_totals(totals, shown=exchanges, complete=self.complete, unmet=self._query.filter.missing_names)
        report_unnamed(self._query)

    def end(self, noun: str) -> None:
        """End the command with the exit status of a run that was interrupted, failed, or lacks a capture.

        Raises:
            Exit: with a status other than 0.
        """
        totals = self.totals
        if self.interrupted:
            packets = many(totals.counts["packets"], "packet")
            warn(f"interrupted after {packets}, {many(self.shown, noun)} shown")
            raise click.exceptions.Exit(INTERRUPTED)
        if totals.failed:
            raise click.exceptions.Exit(FAILED)
        if totals.unreadable:
            raise click.exceptions.Exit(USAGE)


class SingleRun(Run):
    """A run in this process.

    Attributes:
        capture, dissection: the input and its dissection.
    """

    def __init__(
        self,
        query: Query,
        capture: Capture | LiveSources,
        packets: Iterable[PacketBlock | Packet | IdleTick],
        out: TextIO,
        bar: ExitStack,
        index: ConnectionIndex | None = None,
        observer: Survey | None = None,
        learned: LearnedFacts | None = None,
        *,
        analyzes: bool = True,
    ) -> None:
        super().__init__(query, packets, out)
        self.capture = capture
        self._bar = bar
        watched: Iterable[Any] = chain(() if self._first is None else (self._first,), self.readable)
        if index is not None:
            watched = index.watch(one_by_one(watched))
        if observer is not None:
            watched = observer.watch(watched)
        self.dissection: Dissection = Dissection(
            watched,
            query.options,
            index=index,
            observer=observer if analyzes else None,
            learned=learned,
            split_latency=query.split_latency,
            key_log=_key_log(query, capture),
        )

    @property
    def totals(self) -> Totals:
        """What is known so far."""
        capture, dissection = self.capture, self.dissection
        return Totals(
            dissection.counts,
            dissection.skipped,
            dissection.notices,
            capture.warnings,
            capture.sources,
            self.readable.fault,
            capture.unreadable,
        )

    def into(
        self,
        sink: Sink,
        max_rows: int | None = None,
        *,
        by_request: ByRequest | None = None,
        flush: bool = False,
    ) -> None:
        """Feed a sink, then close it and remove the progress bar. Ctrl-C ends it early.

        Args:
            sink: takes the exchanges.
            max_rows: when to stop; None: at the end.
            by_request: puts them in order of request.
            flush: whether to flush after each exchange; otherwise only once, so that the first row appears
                immediately.
        """
        dissection, shown = self.dissection, 0
        if by_request is not None:
            dissection.watch_requests(by_request)
        try:
            with closing(dissection.into(sink, Selection.of(self._query))) as turns:
                for _ in turns:
                    if sink.rows != shown:
                        if flush or not shown:
                            self.out.flush()
                        shown = sink.rows
                        if shown == max_rows:
                            break
        except KeyboardInterrupt:
            self.interrupted = True
        self.shown = sink.rows
        self.complete = not self.interrupted and (max_rows is None or self.shown < max_rows)
        self._bar.close()
        sink.close()


def _key_log(query: Query, capture: Capture | LiveSources) -> KeyLog | None:
    """Secrets that may still come: in growing key logs, and in a capture that can be read only once."""
    inside = [source.name for source in capture.sources if source.secrets]
    pipes = [source for source in capture.sources if source.size is None and isinstance(capture, Capture)]
    may_come_last = any(source.form is not None and source.form.name == "pcapng" for source in pipes)
    if query.key_log is None:
        if not (inside or may_come_last):
            return None
        if not can_decrypt():
            if inside:
                warn_of_secrets_in(inside[0])
            return None
    from kdissect.tls.keylog import KeyLog, SecretsInCapture

    key_log = KeyLog(query.limits.key_log_bytes) if query.key_log is None else query.key_log
    key_log.may_come_last = may_come_last
    key_log.follow(SecretsInCapture(capture))
    return key_log


@contextmanager
def faults_named(query: Query, readable: Readable | None = None) -> Iterator[None]:
    """Add the name of the capture that was being read to an unexpected exception.

    Args:
        query: the paths of all captures.
        readable: the packets being read, which name the current one of several captures.

    Raises:
        UnexpectedError: instead of the exception.
    """
    try:
        yield
    except (KdissectError, OSError, click.ClickException, click.exceptions.Exit, click.Abort):
        raise  # expected
    except Exception as error:
        capture = readable.capture if readable is not None else None
        raise UnexpectedError.of(error, query.paths[0] if len(query.paths) == 1 else capture) from error


@contextmanager
def open_run(
    query: Query,
    *,
    bar: Callable[[TextIO], bool],
    index: ConnectionIndex | None = None,
    observer: Survey | None = None,
    analyzes: bool = True,
) -> Iterator[SingleRun]:
    """Open the captures of a query.

    Args:
        query: what to read.
        bar: decides from stdout whether stderr may show a progress bar.
        index: records the connection of each packet.
        observer: sees packets and connections.
        analyzes: whether it needs the connections.
    """
    with open_capture(*query.paths, limits=query.limits) as capture, output() as out, ExitStack() as stack:
        shows_bar = not query.no_progress and bar(out)
        learned = _learned(query, shows_bar=shows_bar) if query.options.names == WHOLE else None
        packets = stack.enter_context(reading(capture, enabled=shows_bar))
        run = SingleRun(query, capture, packets, out, stack, index, observer, learned, analyzes=analyzes)
        with faults_named(query, run.readable):
            yield run


def _learned(query: Query, *, shows_bar: bool) -> LearnedFacts:
    """Read the captures of a query for names of topics."""
    with ExitStack() as stack, faults_named(query):

        def watch(packets: Iterable[Any], capture: Capture) -> Iterable[Any]:
            bar = progress(
                packets, capture.bytes_total, lambda: capture.bytes_read, enabled=shows_bar, label="names"
            )
            return stack.enter_context(bar)

        options = replace(query.options, numbers_streams=False)
        options = replace(options, end_to_end=False)  # batches are joined while the records are read
        return learned_from(query.paths, options, watch=watch)
    raise AssertionError  # faults_named raises what it catches


# ------------------------------------------------------------------------------------------------------------
# A finished dissection -> lines on stderr: warnings, what is missing from the output, why nothing matched.
# Each is something the user can act on. The rest, such as packets that are not TCP, is for ``check``.
# ------------------------------------------------------------------------------------------------------------


_CONNECTIONS = "connections: "
_KAFKA = "Kafka"
_TLS = "TLS"
_NOT_DECRYPTED = "TLS not decrypted: "  # as in tls/decryption.py, which is not loaded without a key log
_UNRECOGNIZED = "not recognized"
_UNRECOGNIZED_PORT = "not recognized on port "
_REASONS = 5


class Reported(Protocol):
    """The ``Totals`` that are reported."""

    @property
    def warnings(self) -> Sequence[str]:
        """Of the captures, one line each."""

    @property
    def notices(self) -> Sequence[str]:
        """Anomalies outside exchanges."""

    @property
    def counts(self) -> Counter[str]:
        """Packets, connections, exchanges ..., by name."""

    @property
    def skipped(self) -> Counter[str]:
        """Packets that were not dissected, by reason."""


def report_totals(totals: Reported, *, shown: int, complete: bool, unmet: Callable[[], str] = str) -> None:
    """Write the lines.

    Args:
        totals: of the run.
        shown: exchanges that matched the filters.
        complete: whether the capture was read to its end, so that what is missing is known.
        unmet: returns which criteria nothing matched, as text.
    """
    for warning in totals.warnings:
        warn(f"warning: {warning}")
    if totals.notices:
        count = max(totals.counts["notices"], len(totals.notices))
        first = style_of(sys.stderr, "never").named(totals.notices[0])
        warn(f"{many(count, 'anomaly', 'anomalies')} outside exchanges ({first}); {DETAILS}")
    for line in loss_lines(totals.counts):
        warn(line)
    for name, count in totals.counts.items():
        if complete and name.startswith(_NOT_DECRYPTED):
            warn(f"{many(count, 'TLS connection')} not decrypted: {name.removeprefix(_NOT_DECRYPTED)}")
    unrecognized = totals.counts[_CONNECTIONS + _UNRECOGNIZED]
    if complete and shown and unrecognized:
        connections = many(unrecognized, "connection")
        ports = listed(_unrecognized_ports(totals.counts), "port")
        warn(f"{connections} not recognized{f' ({ports})' * bool(ports)}{_how_to_decode(totals.counts)}")
    if complete and not shown:
        exchanges = totals.counts["exchanges"]
        warn(_no_match_line(exchanges, unmet()) if exchanges else _no_exchange_line(totals))


def report_unnamed(query: Query) -> None:
    """Write how many exchanges the filters of a run could not check, because topics have no name."""
    if unnamed := query.filter.unnamed_topics():
        if query.options.names == WHOLE:
            remedy = "no message in the input has the name; filter by topic ID"
        elif query.are_files:
            remedy = "--names whole searches the whole input for the name"
        else:
            remedy = "read a file, with --names whole, to search all of it for the name"
        warn(f"{unnamed}; {remedy}")


def _no_match_line(exchanges: int, unmet: str) -> str:
    text = f"no match in {many(exchanges, 'exchange')}"
    return f"{text}: {unmet}" if unmet else text


def _how_to_decode(counts: Counter[str]) -> str:
    """The option, with the port that was not recognized most often."""
    ports = _unrecognized_ports(counts)
    return f"; to decode a port as Kafka: -d tcp.port=={ports[0] if ports else 'PORT'},kafka"


def _unrecognized_ports(counts: Counter[str]) -> list[str]:
    names = [name for name, _ in most_frequent(counts) if name.startswith(_UNRECOGNIZED_PORT)]
    return [name.removeprefix(_UNRECOGNIZED_PORT) for name in names]


def _no_exchange_line(totals: Reported) -> str:
    counts = totals.counts
    if not counts["packets"]:
        return "no packets"
    protocols = [name for name in counts if name.startswith(_CONNECTIONS)]
    connections = {name.removeprefix(_CONNECTIONS): counts[name] for name in protocols}
    if _KAFKA in connections:
        return f"no complete request or response in {many(connections[_KAFKA], 'Kafka connection')}"
    others = [f"{count:,} {name}" for name, count in most_frequent(connections)]
    skipped = [f"{count:,} {reason}" for reason, count in most_frequent(totals.skipped, _REASONS)]
    if count := counts["connections on other ports"]:
        others.append(f"{count:,} on other ports")
    summary = f"connections: {', '.join(others)}" if others else "no TCP connection"
    summary += f", skipped: {', '.join(skipped)}" if skipped else ""
    text = f"no Kafka traffic ({many(counts['packets'], 'packet')}, {summary})"
    if connections.keys() - {_TLS}:
        return text + _how_to_decode(counts)
    if _TLS in connections:
        return f"{text}; decrypt with a key log (--tls-keylog), or capture behind a TLS-terminating proxy"
    return text
