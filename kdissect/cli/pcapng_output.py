"""``read -w``: selected exchanges -> a pcapng file with all packets of their connections.

Whether a connection is selected is known only after its first packets. So a capture is read twice: to find
the connections, then to copy their packets. Input that can be read only once is buffered in a temporary file.
Connections that carry credentials are omitted unless --show-secrets is set, those inside TLS only if the file
shows what is inside: --with-keys writes the secrets of their sessions, --decrypted the plaintext.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdissect import __version__
from kdissect.capture import stores
from kdissect.capture.connection_index import ConnectionIndex
from kdissect.capture.reader import open_capture
from kdissect.capture.source import one_by_one
from kdissect.capture.write import PcapngWriter
from kdissect.cli.run import check_target, end, open_run, replaced, report
from kdissect.cli.terminal import progress, warn
from kdissect.errors import WriteError
from kdissect.model import Decrypted, Prefaced
from kdissect.net.packets import PacketBuilder
from kdissect.phrases import many
from kdissect.pipeline import Dissection
from kdissect.sinks.sink import Each
from kdissect.stats.credentials import may_carry_credentials, may_hide_credentials
from kdissect.stats.survey import Survey
from kdissect.text.wireshark import comment, finding_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from typing import Any, BinaryIO

    from kdissect.exchanges.kafka_connection import KafkaConnection
    from kdissect.model import Closed, Exchange, Interface, Packet
    from kdissect.net.connection import Connection
    from kdissect.runs.run import Query, Run
    from kdissect.stats.document import FindingRow
    from kdissect.stats.survey import Packets

STDIN = STDOUT = "-"
_COMPRESSED = frozenset({".gz", ".zst", ".lz4"})


AS_CAPTURED, WITH_KEYS, DECRYPTED = "as captured", "with keys", "decrypted"
"""What is written of TLS connections."""


class CredentialObserver(Survey):
    """Excludes connections with bytes that were not dissected and may hide credentials.

    Args:
        query: what to read.
        index: of connections.
        of_tls: what is written of TLS connections.

    Attributes:
        client_randoms: of the TLS sessions of each connection, if these are not written as captured.
    """

    def __init__(self, query: Query, index: ConnectionIndex, of_tls: str) -> None:
        super().__init__(query.limits)
        self._index = index
        self._of_tls = of_tls
        self._with_secrets = query.options.show_secrets
        self.client_randoms: dict[int, tuple[bytes, ...]] = {}

    def watch(self, packets: Iterable[Packets]) -> Iterator[Packets]:
        """Return the packets unchanged."""
        return iter(packets)

    def connection(self, connection: Connection, kafka: KafkaConnection, end: Closed) -> None:
        """Check a connection that has ended."""
        sessions = end.tls.client_randoms if end.tls is not None else ()
        if sessions and self._of_tls == AS_CAPTURED:
            return
        if sessions:
            self.client_randoms[connection.ordinal] = sessions
        if not self._with_secrets and may_hide_credentials(kafka.unattached):
            self._index.exclude(connection.ordinal)

    def unopened_connection(self, connection: Connection, end: Closed, *, is_listener: bool) -> None:
        """Nothing: it has no bytes."""


class Comments:
    """What each exchange is, and the findings that name it, for the packet that completes it. Held in a
    temporary database, which vanishes with the process.

    Args:
        is_copy: whether packets come from a copy of the only capture, which has another name.
    """

    def __init__(self, *, is_copy: bool) -> None:
        self._database = sqlite3.connect("")
        self._database.execute("create table comments (capture text, packet int, exchange text, text text)")
        self._is_copy = is_copy

    def close(self) -> None:
        """Delete them."""
        self._database.close()

    def add(self, exchange: Exchange) -> None:
        """Describe an exchange as its line does."""
        frame = exchange.response_frame or exchange.first_frame
        row = (
            self._capture(frame.interface),
            frame.packet,
            exchange.id,
            comment(exchange),
        )
        self._database.execute("insert into comments values (?, ?, ?, ?)", row)

    def index(self) -> None:
        """All have been added."""
        self._database.execute("create index by_packet on comments (capture, packet)")
        self._database.execute("create index by_exchange on comments (exchange)")

    def explain(self, findings: Iterable[FindingRow]) -> None:
        """Add findings to the exchanges that they name; to the last one of a connection that they name."""
        for row in findings:
            for each in row.evidence:
                first, after = (
                    (each, f"{each}\0") if "/" in each else (f"{each}/", f"{each}0")
                )  # "0" follows "/"
                self._database.execute(
                    "insert into comments select capture, packet, exchange, ? || exchange || ? from comments "
                    "where exchange >= ? and exchange < ? order by rowid desc limit 1",
                    ("kdissect ", f"  {finding_text(row)}", first, after),
                )

    def of(self, packet: Packet) -> str:
        """Those of the exchanges that a packet completes, one on each line; empty: none."""
        place = (self._capture(packet.interface), packet.number)
        rows = self._database.execute(
            "select text from comments where capture = ? and packet = ? order by rowid", place
        )
        return "\n".join(text for (text,) in rows)

    def _capture(self, interface: Interface) -> bytes:
        return b"" if self._is_copy else os.fsencode(interface.capture)


def write(
    query: Query,
    target: str,
    mode: int,
    max_exchanges: int | None,
    of_tls: str = AS_CAPTURED,
    *,
    with_comments: bool = False,
) -> None:
    """Find the connections, copy their packets, and report on stderr what was written.

    Args:
        query: what to read, and which exchanges.
        target: path of the file, ``-`` for stdout.
        mode: its permissions.
        max_exchanges: copy only the connections of the first ones; None: of all.
        of_tls: what to write of TLS connections.
        with_comments: whether packets that complete an exchange say what it is, and which findings name it.

    Raises:
        UsageError: the target is one of the inputs, or a terminal; comments for several captures that cannot
            be read twice.
        ClickException: it cannot be written.
    """
    _check(target, query.paths)
    with ExitStack() as stack:
        rereadable = all(path != STDIN and stores.size(path) is not None for path in query.paths)
        if with_comments and not rereadable and len(query.paths) > 1:
            raise click.UsageError("--comments with several captures needs files")
        index = stack.enter_context(ConnectionIndex(keeps_packets=not rereadable, limits=query.limits))
        observer = CredentialObserver(query, index, of_tls)
        with open_run(query, index=index, observer=observer) as run:
            file = stack.enter_context(_open_target(target, mode, run))
            comments = (
                stack.enter_context(closing(Comments(is_copy=not rereadable))) if with_comments else None
            )
            shows = query.options.show_secrets
            run.into(_Matches(index, max_exchanges, of_tls, comments, show_secrets=shows))
            # After an interruption, an unfinished message may have been a credential.
            is_known = query.options.show_secrets or not run.interrupted
            if comments is not None:
                comments.index()
                if rereadable and not run.interrupted:
                    _explain(comments, query, run)
            sealed = {
                connection: sessions
                for connection, sessions in observer.client_randoms.items()
                if index.is_selected(connection)
            }
            secrets = b""
            if of_tls == WITH_KEYS:
                secrets = run.dissection.key_log(chain.from_iterable(sealed.values()))
            copied = (query, index, file, target, of_tls, secrets, sealed, comments)
            written = _copy(*copied) if is_known else None
    report(run, run.shown)
    _report(index, written, target)
    end(run, "exchange")


def _explain(comments: Comments, query: Query, of: Run) -> None:
    """Add the findings about the whole input; none if Ctrl-C is pressed, which interrupts the run as well."""
    from kdissect.query.filters import build
    from kdissect.stats.summarizer import HealthCounts

    counts = HealthCounts(query.limits)
    whole = replace(query, filter=build(where=None), options=replace(query.options, exchanges=frozenset()))
    sink = counts.sink(whole.options, whole.filter)
    with open_run(whole, observer=sink.connections) as run:
        run.into(sink)
    if run.interrupted:
        of.interrupted = True
        return
    comments.explain(counts.findings.rows())


def _report(index: ConnectionIndex, written: int | None, target: str) -> None:
    if written is None:
        warn(
            "nothing written: cannot tell yet which connections carry credentials; use "
            "--show-secrets to write what was matched"
        )
        return
    destination = "stdout" if target == STDOUT else target
    warn(f"{many(written, 'packet')} of {many(index.selected, 'connection')} written to {destination}")
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
    check_target("-w", target, inputs)


@contextmanager
def _open_target(target: str, mode: int, run: Run) -> Iterator[BinaryIO]:
    if target == STDOUT:
        yield run.out.buffer
        return
    with replaced(target, mode) as file:
        yield file


class _Matches(Each):
    """Selects the connections of the first selected exchanges, at most ``max_exchanges``, and excludes those
    that may carry credentials. It is fed to the end.
    """

    def __init__(
        self,
        index: ConnectionIndex,
        max_exchanges: int | None,
        of_tls: str,
        comments: Comments | None,
        *,
        show_secrets: bool,
    ) -> None:
        super().__init__(self._select, skip=self._exclude)
        self._index = index
        self._comments = comments
        self._left = max_exchanges
        self._of_tls = of_tls
        self._show_secrets = show_secrets

    def feed(self, exchange: Exchange) -> None:
        """See ``Sink``."""
        self._exclude(exchange)
        if self._left is None or self.rows < self._left:
            super().feed(exchange)

    def _select(self, exchange: Exchange) -> None:
        self._index.select(exchange.connection.ordinal)
        if self._comments is not None and not self._stays_encrypted(exchange):
            self._comments.add(exchange)

    def _exclude(self, exchange: Exchange) -> None:
        if not (self._show_secrets or self._stays_encrypted(exchange)) and may_carry_credentials(exchange):
            self._index.exclude(exchange.connection.ordinal)

    def _stays_encrypted(self, exchange: Exchange) -> bool:
        """Whether the packets do not show what was decrypted to read them."""
        return self._of_tls == AS_CAPTURED and exchange.connection.is_decrypted


def _copy(
    query: Query,
    index: ConnectionIndex,
    file: BinaryIO,
    target: str,
    of_tls: str,
    secrets: bytes,
    sealed: Collection[int],
    comments: Comments | None,
) -> int:
    try:
        return _copy_packets(query, index, file, of_tls, secrets, sealed, comments)
    except OSError as error:
        if target == STDOUT:
            raise  # a closed pipe ends every command the same way
        raise WriteError.of(target, error) from None


def _copy_packets(
    query: Query,
    index: ConnectionIndex,
    file: BinaryIO,
    of_tls: str,
    secrets: bytes,
    sealed: Collection[int],
    comments: Comments | None,
) -> int:
    written = 0
    writer = PcapngWriter(file, f"kdissect {__version__}", interfaces=query.limits.interfaces)
    if secrets:
        writer.add_key_log(secrets)
    capture = index.kept_packets() or open_capture(*query.paths, limits=query.limits)
    with capture, progress(capture.bytes_total, enabled=not query.no_progress) as watch:
        packets = watch(capture.packet_blocks(), lambda: capture.bytes_read)
        selected = _decrypted(query, index, packets, sealed) if of_tls == DECRYPTED else None
        for packet in selected or index.select_packets(one_by_one(packets)):
            writer.write(packet, "" if comments is None else comments.of(packet))
            written += 1
    file.flush()
    return written


def _decrypted(
    query: Query, index: ConnectionIndex, packets: Iterable[Any], sealed: Collection[int]
) -> Iterator[Packet]:
    """New packets with the bytes of the selected connections, of those that are ``sealed`` the plaintext.
    Another dissection finds the same ones.
    """
    maker, waiting = PacketBuilder(), set(sealed)
    for events in Dissection(packets, query.options).streams():
        for connection, side, item in events:
            if isinstance(item, Decrypted):
                waiting.discard(connection.ordinal)
            elif index.is_selected(connection.ordinal) and (
                isinstance(item, Prefaced) or connection.ordinal not in waiting
            ):
                yield from maker.feed(connection, side, item)
