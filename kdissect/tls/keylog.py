"""Lines of key logs -> the secrets of TLS sessions.

The format is that of NSS (draft-ietf-tls-keylogfile), which OpenSSL, Java agents, Go and browsers write too.
Each line has a label, what identifies the session, and a secret, both in hexadecimal:

    CLIENT_RANDOM random master-secret                       TLS 1.2 and before
    PMS_CLIENT_RANDOM random premaster-secret
    RSA Session-ID:id Master-Key:master-secret               of extract-tls-secrets, a Java agent
    RSA encrypted-premaster premaster-secret                 RSA key exchange; the first 8 bytes
    CLIENT_HANDSHAKE_TRAFFIC_SECRET random secret            TLS 1.3; also SERVER_...
    CLIENT_TRAFFIC_SECRET_0 random secret                    TLS 1.3; also SERVER_..., and 1, 2, ...

Other lines are ignored. A session can have several secrets of a kind, of which one is right: try them all.
Secrets are in no ``repr``. Holds them all, of at most ``_MOST_SESSIONS`` sessions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kdissect.capture.pcapng import is_pcapng, secrets_in
from kdissect.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MOST_SESSIONS = 1_000_000
_MOST_SECRETS = 32  # of one session
_MOST_LABELS = 1000
_LONGEST_LINE = 4096
_PIECE_BYTES = 1 << 20

_LINE = re.compile(
    rb"^(?:(CLIENT_RANDOM|PMS_CLIENT_RANDOM|(?:CLIENT|SERVER)_(?:HANDSHAKE_)?TRAFFIC_SECRET(?:_\d+)?)"
    rb" ([0-9a-fA-F]{64}) ([0-9a-fA-F]{64,512})"
    rb"|RSA Session-ID:([0-9a-fA-F]{2,64}) Master-Key:([0-9a-fA-F]{96})"
    rb"|RSA ([0-9a-fA-F]{16}) ([0-9a-fA-F]{96}))"
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
        length = len(entry)
        if any(before[at : at + length] == entry for at in range(0, len(before), length)):
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


def read_key_logs(paths: Iterable[str]) -> KeyLog:
    """Read key logs, and the secrets in pcapng files.

    Raises:
        CaptureError: a file cannot be read.
    """
    log = KeyLog()
    for path in paths:
        try:
            for text in secrets_in(path) if is_pcapng(path) else _pieces(path):
                log.add(text)
        except OSError as error:
            raise CaptureError(f"{path}: {error.strerror or error}") from error
    return log


def _pieces(path: str) -> Iterator[bytes]:
    """The lines of a file, many at a time; of a longer line only a part."""
    with open(path, "rb") as file:  # noqa: PTH123 - names of captures are strings
        rest = b""
        while piece := file.read(_PIECE_BYTES):
            lines, newline, rest = (rest[-_LONGEST_LINE:] + piece).rpartition(b"\n")
            yield lines + newline
        yield rest
