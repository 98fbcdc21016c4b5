"""Lines of key logs -> the secrets of TLS sessions.

The format is NSS's, which OpenSSL, Java agents, Go and browsers write too (draft-ietf-tls-keylogfile):

    CLIENT_RANDOM <client random> <master secret>                        TLS 1.2 and before
    RSA Session-ID:<session ID> Master-Key:<master secret>               the same, as extract-tls-secrets writes
    RSA <first 8 bytes of the encrypted premaster> <premaster secret>    RSA key exchange
    PMS_CLIENT_RANDOM <client random> <premaster secret>
    CLIENT_HANDSHAKE_TRAFFIC_SECRET <client random> <secret>             TLS 1.3; also SERVER_...
    CLIENT_TRAFFIC_SECRET_0 <client random> <secret>                     TLS 1.3; also SERVER_..., and _1, _2, ...

Other lines are ignored. One session can have several secrets of a kind, of which one is right: the caller tries
them all. Holds all secrets, within ``_MOST_SESSIONS`` sessions. They are never in a ``repr``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_SESSIONS = 1_000_000
_MOST_SECRETS = 32  # of one session
_MOST_LABELS = 1000

_LINE = re.compile(
    rb"^(?:(CLIENT_RANDOM|PMS_CLIENT_RANDOM|(?:CLIENT|SERVER)_(?:HANDSHAKE_)?TRAFFIC_SECRET(?:_\d+)?)"
    rb" ([0-9a-fA-F]{64}) ([0-9a-fA-F]{64,512})"
    rb"|RSA (?:Session-ID:([0-9a-fA-F]{2,64}) Master-Key:([0-9a-fA-F]{96})|([0-9a-fA-F]{16}) ([0-9a-fA-F]{96})))"
    rb"[ \t]*\r?$",
    re.MULTILINE,
)

MASTER = b"CLIENT_RANDOM"
PREMASTER = b"PMS_CLIENT_RANDOM"
HANDSHAKE = b"CLIENT_HANDSHAKE_TRAFFIC_SECRET", b"SERVER_HANDSHAKE_TRAFFIC_SECRET"
"""Of the client's records, of the server's."""
TRAFFIC = b"CLIENT_TRAFFIC_SECRET_0", b"SERVER_TRAFFIC_SECRET_0"
"""Likewise."""


class KeyLog:
    """The secrets of sessions.

    Attributes:
        can_grow: whether more secrets may come.
        version: changes with each secret that is added.
        dropped: secrets that were not kept because of the limits.
    """

    __slots__ = ("_by_encrypted", "_by_random", "_by_session", "_labels", "can_grow", "dropped", "version")

    def __init__(self) -> None:
        self._by_random: dict[bytes, tuple[bytes, ...]] = {}  # label, secret, label, secret, ...
        self._by_session: dict[bytes, tuple[bytes, ...]] = {}
        self._by_encrypted: dict[bytes, tuple[bytes, ...]] = {}
        self._labels: dict[bytes, bytes] = {}  # each once: there are millions of lines
        self.can_grow = False
        self.version = self.dropped = 0

    def __len__(self) -> int:
        return len(self._by_random) + len(self._by_session) + len(self._by_encrypted)

    def add(self, text: bytes) -> None:
        """Add the secrets in these lines."""
        for match in _LINE.finditer(text):
            label, client_random, secret, session_id, master, encrypted, premaster = match.groups()
            if label is not None:
                if len(self._labels) < _MOST_LABELS:
                    label = self._labels.setdefault(label, label)
                self._add(self._by_random, _bytes(client_random), (label, _bytes(secret)))
            elif session_id is not None:
                self._add(self._by_session, _bytes(session_id), (_bytes(master),))
            else:
                self._add(self._by_encrypted, _bytes(encrypted), (_bytes(premaster),))

    def _add(self, known: dict[bytes, tuple[bytes, ...]], key: bytes, entry: tuple[bytes, ...]) -> None:
        before = known.get(key, ())
        if entry[-1] in before:
            return
        if len(before) >= 2 * _MOST_SECRETS or (not before and len(self) >= _MOST_SESSIONS):
            self.dropped += 1
            return
        known[key] = before + entry
        self.version += 1

    def labelled(self, client_random: bytes, label: bytes) -> list[bytes]:
        """The secrets of a session with this label, the latest first."""
        entry = self._by_random.get(client_random, ())
        return [secret for name, secret in zip(entry[::2], entry[1::2], strict=True) if name == label][::-1]

    def knows(self, client_random: bytes) -> bool:
        """Whether a key log has any secret of this session by its client random."""
        return client_random in self._by_random

    def learn(self, session_id: bytes, master: bytes) -> None:
        """Note the master secret of a session that was opened, by its session ID or its ticket: clients that
        resume a session do not always write a line for it.
        """
        self._add(self._by_session, session_id, (master,))

    def of_session(self, session_id: bytes) -> list[bytes]:
        """The master secrets of a session ID or of a ticket, the latest first."""
        return list(self._by_session.get(session_id, ()))[::-1]

    def of_encrypted(self, beginning: bytes) -> list[bytes]:
        """The premaster secrets whose encryption begins with these 8 bytes."""
        return list(self._by_encrypted.get(beginning, ()))[::-1]

    def traffic_secrets(self, side: int) -> Iterator[tuple[bytes, bytes]]:
        """Client random and secret of every TLS 1.3 session, of the client's records or of the server's."""
        label = TRAFFIC[side]
        for client_random, entry in self._by_random.items():
            for name, secret in zip(entry[::2], entry[1::2], strict=True):
                if name == label:
                    yield client_random, secret


def _bytes(digits: bytes) -> bytes:
    return bytes.fromhex(digits.decode())
