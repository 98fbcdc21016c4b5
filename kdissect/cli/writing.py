"""``read -w``: exchanges that are asked for -> a pcapng file with all packets of their connections.

That a connection is wanted is known after its first packets have passed. So a capture is read twice: to find
the connections, then to copy their packets. What can be read only once is kept in a temporary file meanwhile.
Connections on which credentials passed are left out unless they may be shown.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdissect import __version__
from kdissect.capture.connection_index import ConnectionIndex
from kdissect.capture.reader import open_capture
from kdissect.capture.source import one_by_one
from kdissect.capture.write import PcapngWriter
from kdissect.cli.running import running
from kdissect.cli.terminal import progress, warn
from kdissect.files import replacing
from kdissect.phrases import many
from kdissect.stats.credentials import may_carry_credentials, may_hide_credentials
from kdissect.stats.survey import Survey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from kdissect.cli.running import Query, Run
    from kdissect.exchanges.kafka_connection import KafkaConnection
    from kdissect.model import Closed, Exchange
    from kdissect.net.connection import Connection
    from kdissect.stats.survey import Packets

STDIN = STDOUT = "-"
_COMPRESSED = frozenset({".gz", ".zst", ".lz4"})


class Ends(Survey):
    """Bars the connections behind whose last exchange something was passed over."""

    def __init__(self, query: Query, index: ConnectionIndex) -> None:
        super().__init__(query.limits)
        self._index = index
        self._with_secrets = query.options.show_secrets

    def watch(self, packets: Iterable[Packets]) -> Iterator[Packets]:
        """Let packets pass, without a look at them."""
        return iter(packets)

    def connection(self, connection: Connection, kafka: KafkaConnection, end: Closed) -> None:  # noqa: ARG002
        """Take a connection that is over."""
        if not self._with_secrets and may_hide_credentials(kafka.unattached):
            self._index.exclude(connection.ordinal)


def write(query: Query, target: str, mode: int, most: int | None) -> None:
    """Find the connections and copy their packets; what was written is told on stderr.

    Args:
        query: what to read, and which exchanges.
        target: path of the file, ``-`` for stdout.
        mode: its permissions.
        most: the connections of so many exchanges, None: of all.

    Raises:
        UsageError: the target is one of the inputs, or a terminal.
        ClickException: it cannot be written.
    """
    _check(target, query.paths)
    with ExitStack() as stack:
        rereadable = all(path != STDIN and Path(path).is_file() for path in query.paths)
        index = stack.enter_context(ConnectionIndex(keeps_packets=not rereadable, limits=query.limits))
        ends = Ends(query, index)
        with running(query, bar=lambda _: True, index=index, observer=ends) as run:
            file = stack.enter_context(_opened(target, mode, run))
            run.show(_found(run, index, most, with_secrets=query.options.show_secrets), lambda _: None)
            # What was waiting for its end may have been a credential.
            is_known = query.options.show_secrets or not run.interrupted
            written = _copy(query, index, file, target) if is_known else None
    run.tell(run.shown)
    _tell(index, written, target)
    run.end("exchange")


def _tell(index: ConnectionIndex, written: int | None, target: str) -> None:
    if written is None:
        warn(
            "nothing was written: which connections carry credentials is not known yet; use "
            "--show-secrets to write what was matched"
        )
        return
    place = "stdout" if target == STDOUT else target
    warn(f"{many(written, 'packet')} of {many(index.selected, 'connection')} written to {place}")
    if index.excluded:
        warn(
            f"{many(index.excluded, 'connection')} omitted because they carry, or may carry, credentials; "
            "use --show-secrets to include them"
        )


def _check(target: str, inputs: tuple[str, ...]) -> None:
    if target == STDOUT:
        if sys.stdout is not None and sys.stdout.isatty():
            raise click.UsageError("-w - would write to the terminal; redirect stdout, or give a file name")
        return
    if Path(target).suffix in _COMPRESSED:
        raise click.UsageError(
            f"-w writes uncompressed pcapng: use {Path(target).stem} and compress it afterwards"
        )
    try:
        there = Path(target).stat()
    except OSError:
        return  # it is not there yet; or opening it will say what is wrong
    for path in inputs:
        try:
            status = os.fstat(sys.stdin.fileno()) if path == STDIN else Path(path).stat()
        except (OSError, ValueError):  # a stdin that is no file, as in tests; reading will tell of the others
            continue
        if os.path.samestat(there, status):
            raise click.UsageError(f"-w {target} would overwrite an input file")


@contextmanager
def _opened(target: str, mode: int, run: Run) -> Iterator[BinaryIO]:
    if target == STDOUT:
        yield run.out.buffer
        return
    try:
        with replacing(Path(target), mode) as file:
            yield file
    except OSError as error:
        raise _unwritable(target, error) from None


def _unwritable(target: str, error: OSError) -> click.ClickException:
    return click.ClickException(f"cannot write {target}: {error.strerror or error}")


def _found(run: Run, index: ConnectionIndex, most: int | None, *, with_secrets: bool) -> Iterator[Exchange]:
    """Mark the connections of the exchanges that are asked for, to the end of the capture."""

    def look(exchange: Exchange) -> None:
        if not with_secrets and may_carry_credentials(exchange):
            index.exclude(exchange.connection.ordinal)

    for number, exchange in enumerate(run.selected(look)):
        look(exchange)
        if most is None or number < most:
            index.select(exchange.connection.ordinal)
            yield exchange


def _copy(query: Query, index: ConnectionIndex, file: BinaryIO, target: str) -> int:
    try:
        return _copied(query, index, file, bar=target != STDOUT)
    except OSError as error:
        if target == STDOUT:
            raise  # a closed pipe ends every command in the same way
        raise _unwritable(target, error) from None


def _copied(query: Query, index: ConnectionIndex, file: BinaryIO, *, bar: bool) -> int:
    written = 0
    writer = PcapngWriter(file, f"kdissect {__version__}", interfaces=query.limits.interfaces)
    capture = index.kept_packets() or open_capture(*query.paths, limits=query.limits)
    with capture, progress(capture, wanted=bar and not query.no_progress) as packets:
        for packet in index.select_packets(one_by_one(packets)):
            writer.write(packet)
            written += 1
    file.flush()
    return written
