"""Events on connections -> the same events, with plaintext in place of TLS records that can be decrypted.

Holds a ``TlsConnection`` for each connection that is TLS, or not known not to be, and at most
``Limits.total_tls_bytes`` of bytes of those that are not decrypted yet. If secrets may come behind the last
packet, up to ``_MAX_CLOSED`` closed connections wait for them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.limits import DEFAULT
from kdissect.model import Closed, Data, Gap, Retransmitted
from kdissect.tls.connection import TlsConnection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kdissect.limits import Limits
    from kdissect.net.connection import Connection, Event
    from kdissect.tls.connection import RecordState
    from kdissect.tls.keylog import KeyLog

_BYTES = Data, Gap
_MAX_CLOSED = 1000

DECRYPTED, NOT_DECRYPTED = "TLS decrypted", "TLS not decrypted: "


class Decryption:
    """The TLS connections of a dissection.

    Args:
        log: the secrets.
        limits: to respect.
        sessions: see ``TlsConnection``; those learned beforehand.

    Attributes:
        sessions: those learned so far.
        counts: TLS connections that have ended, by whether they were decrypted, and why not.
    """

    def __init__(
        self,
        log: KeyLog,
        limits: Limits = DEFAULT,
        sessions: dict[bytes, tuple[bytes, str | None]] | None = None,
    ) -> None:
        self._log = log
        self._limits = limits
        self.sessions = {} if sessions is None else sessions
        self._connections: dict[Connection, TlsConnection] = {}
        self._holding: dict[Connection, int] = {}  # bytes held, in order of when they began to hold any
        self._held_in_all = 0
        self._waiting: dict[Connection, int] = {}  # since when; only while the key log can grow
        self._closed: dict[Connection, Closed] = {}  # that wait for secrets until the end of the capture
        self._now_ns = 0
        self._tried = log.version  # that of the secrets that all have tried
        self._incomplete: list[tuple[Connection, int, TlsConnection]] = []  # directions, of these packets
        self.counts: Counter[str] = Counter()

    @property
    def may_decrypt(self) -> bool:
        """Whether there are any secrets, or may be later."""
        return len(self._log) > 0 or self._log.can_grow

    def plaintext(self, packets: Iterable[list[Event]]) -> Iterator[list[Event]]:
        """Decrypt what these events carry. Events of other connections are passed on as they are.

        The reader calls ``Connection.expect`` with a number of bytes of content. The records with them are
        longer, and the first of them may have begun.
        """
        for events in packets:
            opened = self._decrypted(events)
            if self._waiting:
                opened += self._tried_again()
            yield opened
            for connection, side, _ in opened:
                if (tls := self._connections.get(connection)) is not None and tls.is_open:
                    tls.content_expected[side] = expected = connection.streams[side].expected
                    if expected:
                        connection.expect(side, tls.bytes_expected(side))
            for connection, side, tls in self._incomplete:
                connection.expect(side, tls.bytes_expected(side))
            self._incomplete.clear()
        if self._closed:  # all packets were read, and all secrets
            yield self._tried_again()
            while self._closed:
                connection, item = self._closed.popitem()
                yield self._close(connection, self._connections[connection], item)

    def close(self) -> None:
        """Nothing more will come."""
        self._log.close()

    def _decrypted(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            connection, side, item = event
            tls = self._connections.get(connection)
            if isinstance(item, _BYTES):
                if tls is None:
                    tls = self._open(connection)
                elif tls.is_bypassed:
                    out.append(event)
                    continue
                elif tls.is_open:
                    connection.expect(side, 0)
                    for opened_side, opened in tls.feed(side, item):
                        out.append((connection, opened_side, opened))
                    if tls.is_incomplete(side):
                        self._incomplete.append((connection, side, tls))
                    continue
                self._now_ns = max(self._now_ns, item.time_ns)
                out += [(connection, *opened) for opened in tls.feed(side, item)]
                out += self._account(connection, tls)
            elif isinstance(item, Closed):
                if tls is not None:
                    if tls.waits and self._log.can_grow:  # secrets may have come behind the last packet
                        self._log.poll()
                        out += [(connection, *opened) for opened in tls.try_again()]
                    if tls.waits and self._log.may_come_last and len(self._closed) < _MAX_CLOSED:
                        self._closed[connection] = item
                    else:
                        out += self._close(connection, tls, item)
                else:
                    out.append(event)
            elif tls is None or not tls.is_open or not isinstance(item, Retransmitted):
                out.append(event)
            elif (inside := tls.retransmitted(side, item)) is not None:
                out.append((connection, side, inside))
        return out

    def _close(self, connection: Connection, tls: TlsConnection, item: Closed) -> list[Event]:
        out: list[Event] = [(connection, *held) for held in tls.close()]
        self._account(connection, tls)
        if tls.is_open:
            self.counts[DECRYPTED] += 1
        elif tls.reason is not None:
            self.counts[NOT_DECRYPTED + tls.reason] += 1
        del self._connections[connection]
        out.append((connection, 0, item._replace(tls=tls.session)))
        return out

    def is_lendable(self, connection: Connection) -> bool:
        """Whether the native core can ever decrypt a connection."""
        return self._connections[connection].is_lendable

    def is_bypassed(self, connection: Connection) -> bool:
        """Whether the bytes of a connection pass as they are, from now on."""
        tls = self._connections.get(connection)
        return tls is not None and tls.is_bypassed

    def lend(self, connection: Connection) -> tuple[RecordState, RecordState] | None:
        """See ``TlsConnection``."""
        return self._connections[connection].lend()

    def restore(self, connection: Connection, side: int, state: RecordState) -> None:
        """See ``TlsConnection``."""
        self._connections[connection].restore(side, state)

    def key_log(self, client_randoms: Iterable[bytes]) -> bytes:
        """Lines of a key log for these sessions."""
        return b"".join(map(self._log.lines, client_randoms))

    def _open(self, connection: Connection) -> TlsConnection:
        tls = TlsConnection(
            self._log, connection.initiator, connection.from_start, self.sessions, self._limits
        )
        self._connections[connection] = tls
        return tls

    def _account(self, connection: Connection, tls: TlsConnection) -> list[Event]:
        """Update what a connection holds and whether it waits. Returns what others must release."""
        self._held_in_all += tls.held_bytes - self._holding.get(connection, 0)
        if tls.held_bytes:
            self._holding[connection] = tls.held_bytes
        else:
            self._holding.pop(connection, None)
        if not tls.waits:
            self._waiting.pop(connection, None)
        elif self._log.can_grow:
            self._waiting.setdefault(connection, self._now_ns)
        out: list[Event] = []
        while self._held_in_all > self._limits.total_tls_bytes:
            out += self._give_up(next(iter(self._holding)))
        return out

    def _give_up(self, connection: Connection) -> list[Event]:
        tls = self._connections[connection]
        out: list[Event] = [(connection, *held) for held in tls.give_up()]
        out += self._account(connection, tls)
        if (closed := self._closed.pop(connection, None)) is not None:
            out += self._close(connection, tls, closed)
        return out

    def _tried_again(self) -> list[Event]:
        """What can be decrypted since the key log has grown, or has been waited for too long."""
        out: list[Event] = []
        self._log.poll()
        if self._log.version != self._tried:
            self._tried = self._log.version
            for connection in list(self._waiting):
                tls = self._connections[connection]
                out += [(connection, *opened) for opened in tls.try_again()]
                out += self._account(connection, tls)
                if tls.is_open and connection in self._closed:
                    out += self._close(connection, tls, self._closed.pop(connection))
        while self._waiting and not self._log.may_come_last:
            connection, since_ns = next(iter(self._waiting.items()))
            if self._now_ns - since_ns <= self._limits.tls_keylog_window_ns:
                break
            out += self._give_up(connection)
        return out
