"""Events on connections -> the same events, with plaintext in place of TLS records that can be decrypted.

Holds a ``TlsConnection`` for each connection that is TLS, or not known not to be.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.model import Closed, Data, Gap
from kdissect.tls.connection import TlsConnection

if TYPE_CHECKING:
    from kdissect.net.connection import Connection, Event
    from kdissect.tls.keylog import KeyLog

DECRYPTED, NOT_DECRYPTED = "TLS decrypted", "TLS not decrypted: "


class Decryption:
    """The TLS connections of a dissection.

    Args:
        log: the secrets.

    Attributes:
        counts: TLS connections that have ended, by whether they were decrypted, and why not.
    """

    def __init__(self, log: KeyLog) -> None:
        self._log = log
        self._connections: dict[Connection, TlsConnection] = {}
        self.counts: Counter[str] = Counter()

    def feed(self, events: list[Event]) -> list[Event]:
        """Decrypt what these events carry. Events of other connections are passed on as they are."""
        out: list[Event] = []
        for event in events:
            connection, side, item = event
            tls = self._connections.get(connection)
            if isinstance(item, Data | Gap):
                if tls is None:
                    tls = TlsConnection(self._log, connection.initiator, connection.from_start)
                    self._connections[connection] = tls
                elif tls.is_passing:
                    out.append(event)
                    continue
                out += [(connection, *opened) for opened in tls.feed(side, item)]
            elif isinstance(item, Closed):
                if tls is not None:
                    out += [(connection, *held) for held in tls.close()]
                    if tls.is_open:
                        self.counts[DECRYPTED] += 1
                    elif tls.reason is not None:
                        self.counts[NOT_DECRYPTED + tls.reason] += 1
                    del self._connections[connection]
                out.append(event)
            elif tls is None or not tls.is_open:
                out.append(event)  # positions of retransmitted bytes mean nothing in plaintext
        return out
