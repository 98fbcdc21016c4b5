"""Options of a command that reads captures -> a run, and a report on stderr.

query = take_query(options)
with open_run(query) as run:
    run.into(sink)
report(run, run.shown)
end(run, "exchange")
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from kdissect.capture.inputs import STDIN, captures
from kdissect.capture.reader import Capture, open_capture
from kdissect.cli.help import NoFileError
from kdissect.cli.options import take_options, warn_of_secrets, warn_of_secrets_in
from kdissect.cli.terminal import (
    FAILED,
    INTERRUPTED,
    USAGE,
    check_stdin,
    output,
    progress,
    style_of,
    warn,
)
from kdissect.errors import CORE, DEBUG, WriteError
from kdissect.files import replacing
from kdissect.options import WHOLE, WINDOW
from kdissect.phrases import listed, many, most_frequent
from kdissect.pipeline import NO_SERVER_HELLO, learned_from
from kdissect.query.filters import build
from kdissect.runs.run import Here, Query, Run, faults_named
from kdissect.text.loss_report import DETAILS, loss_lines
from kdissect.tls import can_decrypt

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import BinaryIO

    from kdissect.capture.connection_index import ConnectionIndex
    from kdissect.capture.ongoing import LiveSources
    from kdissect.cli.terminal import Watch
    from kdissect.exchanges.learned import LearnedFacts
    from kdissect.options import Options
    from kdissect.query.filters import Filter
    from kdissect.stats.survey import Survey
    from kdissect.tls.keylog import KeyLog


TCP_STREAM = "tcp_stream"
"""A field that costs time, and is counted only if it is used."""


def take_query(options: dict[str, Any], names: str = WHOLE, exclude: Path | None = None) -> Query:
    """Remove ``input_options`` and ``filter_options`` from a command's options and return their values.

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
    query = live_query(options, paths, names, no_progress=options.pop("no_progress"))
    from kdissect.tls.keylog import read_key_logs, searchable

    files = [path for path in paths if path != STDIN]
    warn_of_secrets(files)
    own = replace(query.options, pcapng_files=searchable(files))
    if own.key_logs and query.are_files:
        read_key_logs(own.key_logs, own.pcapng_files, own.limits)  # once, before worker processes are forked
    return replace(query, options=own)


def live_query(
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
    query = Query(paths, own, filter_, no_progress, are_files=bool(paths) and not any(map(_is_pipe, paths)))
    if not query.are_files:
        if chosen == WHOLE:
            raise click.UsageError("--names whole reads the input twice, so it needs files")
        if own.clusters:
            raise click.UsageError("--cluster PATTERN=NAME reads the input twice, so it needs files")
        names = WINDOW
    elif own.clusters and chosen == WINDOW:
        raise click.UsageError("--cluster PATTERN=NAME needs --names whole")
    elif filter_.is_about_topics or own.clusters:
        names = WHOLE
    if own.key_logs and not query.are_files:
        from kdissect.tls.keylog import follow_key_logs

        query = replace(query, key_log=follow_key_logs(own.key_logs, own.limits))
    return replace(query, options=replace(own, names=chosen or names)).with_fields(())


def _is_pipe(path: str) -> bool:
    return path == STDIN or (Path(path).exists() and not Path(path).is_file())


def _filter(options: Options) -> Filter:
    if options.where is None:
        return build(**options.criteria, where=None)
    from kdissect.tables.columns import filter_of

    return filter_of(options)


def report(run: Run, exchanges: int) -> None:
    """Report on stderr what was skipped and why; of a live capture also how many packets there were.
    ``exchanges``: how many matched the filters.
    """
    totals = run.totals
    if totals.fault is not None:
        warn(f"warning: {totals.fault}; the rest was not read")
    report_totals(totals, shown=exchanges, complete=run.complete, unmet=run.query.filter.unmet)
    if run.complete or run.interrupted:  # after --count, some that are not shown were checked, and some not
        report_unnamed(run.query)
    if run.live is not None:
        run.live.report(totals.counts["exchanges"], exchanges)


def report_selection(run: Run) -> None:
    """Report on stderr what concerns the filters only, for commands that show the rest themselves."""
    exchanges = run.totals.counts["exchanges"]
    if run.complete and exchanges and not run.shown:
        warn(_no_match_line(exchanges, run.query.filter.unmet()))
    report_unnamed(run.query)


def end(run: Run, noun: str) -> None:
    """End the command with the exit status of a run that was interrupted, failed, or lacks a capture.

    Raises:
        Exit: with a status other than 0.
    """
    totals = run.totals
    if run.live is not None:
        run.live.end()
    elif run.interrupted:
        packets = many(totals.counts["packets"], "packet")
        warn(f"interrupted after {packets}, {many(run.shown, noun)} shown")
        raise click.exceptions.Exit(INTERRUPTED)
    if totals.failed:
        raise click.exceptions.Exit(FAILED)
    if totals.unreadable and run.live is None:
        raise click.exceptions.Exit(USAGE)


def key_log(query: Query, capture: Capture | LiveSources) -> KeyLog | None:
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

    keys = KeyLog(query.limits.key_log_bytes) if query.key_log is None else query.key_log
    keys.may_come_last = may_come_last
    keys.follow(SecretsInCapture(capture))
    return keys


EXPECTED = click.ClickException, click.exceptions.Exit, click.Abort


# ------------------------------------------------------------------------------------------------------------
# A file that a command writes besides its output.
# ------------------------------------------------------------------------------------------------------------


_OF_CAPTURES = re.compile(r"\.(pcap|pcapng|cap)(\.(gz|zst|lz4))?$")


def check_target(flag: str, target: str, inputs: Iterable[str], *, is_capture: bool = True) -> None:
    """Check that a file to write is none of the inputs.

    Args:
        flag: the option that names it.
        target: its path.
        inputs: paths, or ``-``.
        is_capture: whether a capture is written. Otherwise the name of one is a mistake, as in ``-o *.pcap``.

    Raises:
        UsageError: it is.
    """
    if not is_capture and (target == STDIN or _OF_CAPTURES.search(target)):
        kind = "not stdout" if target == STDIN else "which is the name of a capture"
        raise click.UsageError(f"{flag} is the file to write, {kind}: {flag} {target}")
    try:
        target_status = Path(target).stat()
    except OSError:
        return  # the target does not exist yet, or opening it will fail
    for path in inputs:
        try:
            status = os.fstat(sys.stdin.fileno()) if path == STDIN else Path(path).stat()
        except (OSError, ValueError):  # stdin is not a file, as in tests; or reading will fail
            continue
        if os.path.samestat(target_status, status):
            raise click.UsageError(f"{flag} {target} would overwrite an input file")


@contextmanager
def replaced(target: str, mode: int) -> Iterator[BinaryIO]:
    """A file that replaces another when it is complete.

    Raises:
        WriteError: it cannot be written.
    """
    try:
        with replacing(Path(target), mode) as file:
            yield file
    except OSError as error:
        raise WriteError.of(target, error) from None


# ------------------------------------------------------------------------------------------------------------


@contextmanager
def open_run(
    query: Query,
    *,
    bar: bool = True,
    jobs: int = 1,
    index: ConnectionIndex | None = None,
    observer: Survey | None = None,
    analyzes: bool = True,
) -> Iterator[Run]:
    """Open the captures of a query.

    Args:
        query: what to read.
        bar: whether a terminal may show a progress bar, because nothing else is written meanwhile.
        jobs: number of processes that dissect.
        index: records the connection of each packet.
        observer: sees packets and connections.
        analyzes: whether it needs the connections.
    """
    with open_capture(*query.paths, limits=query.limits) as capture, output() as out, ExitStack() as stack:
        progress_bar = partial(progress, enabled=bar and not query.no_progress)
        if jobs > 1:
            from kdissect.runs.workers import Workers

            run = Run(query, capture, capture.packet_blocks(), out)
            run.place = Workers(run, jobs, observer, progress_bar)
        else:
            learns, total = query.options.names == WHOLE, capture.bytes_total
            watch = stack.enter_context(progress_bar(total, 2 if learns else 1))
            learned = _learned(query, watch) if learns else None
            before = total if learns and total is not None else 0
            packets = watch(capture.packet_blocks(), lambda: before + capture.bytes_read)
            run = Run(query, capture, packets, out)
            run.place = Here(
                run,
                stack.close,
                index=index,
                observer=observer,
                analyzes=analyzes,
                learned=learned,
                key_log=key_log(query, capture),
            )
        with faults_named(query, run.readable, EXPECTED):
            yield run
        if os.environ.get(DEBUG) == CORE:
            _report_reasons(run)


def _learned(query: Query, watch: Watch) -> LearnedFacts:
    """Read the captures of a query for names of topics."""
    with faults_named(query, expected=EXPECTED):
        options = replace(query.options, numbers_streams=False)
        options = replace(options, end_to_end=False)  # batches are joined while the records are read

        def watch_capture(packets: Iterable[Any], capture: Capture) -> Iterable[Any]:
            return watch(packets, lambda: capture.bytes_read)

        return learned_from(query.paths, options, watch=watch_capture)
    raise AssertionError  # faults_named raises what it catches


def _report_reasons(run: Run) -> None:
    """Report why the core left packets, exchanges and connections to Python."""
    if not isinstance(run.place, Here):
        warn(f"{DEBUG}={CORE} counts in one process: -j 1")
        return
    for reason, number in most_frequent(run.dissection.reasons()):
        warn(f"{number:9,}  {reason}")


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
            remedy = "no message in the input has the name; filter by topic ID, or add names with --topic-ids"
        elif query.are_files:
            remedy = "--names whole searches the whole input for the name"
        else:
            remedy = "--topic-ids adds names; in a file, --names whole searches all of it"
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
        if connections[_TLS] == counts[NO_SERVER_HELLO]:
            return f"{text}; no server answered a ClientHello: kdissect summary --findings FILE"
        return f"{text}; decrypt with a key log (--tls-keylog), or capture behind a TLS-terminating proxy"
    return text
