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
Secrets are in no ``repr``. Holds them all, up to ``Limits.key_log_bytes``.
"""

from __future__ import annotations

import os
import re
import stat
from binascii import hexlify, unhexlify
from contextlib import suppress
from functools import lru_cache
from sys import getsizeof
from typing import TYPE_CHECKING, TypeVar

from kdissect.capture import stores
from kdissect.capture.reader import is_capture, secrets_in
from kdissect.errors import CaptureError
from kdissect.limits import DEFAULT
from kdissect.tls import can_decrypt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kdissect.capture.ongoing import LiveSources
    from kdissect.capture.reader import Capture
    from kdissect.limits import Limits

_Result = TypeVar("_Result")

_MAX_SECRETS = 32  # of one session
_MAX_LABELS = 1000
_SESSION_BYTES = 300  # of its first entry besides the secret: name, tuple, and place in a table
_ENTRY_BYTES = 16  # of any other
_LONGEST_LINE = 4096
_PIECE_BYTES = 1 << 20
_MAX_PIECES = 4096  # of a file: the end of a device like /dev/zero never comes

_LINE = re.compile(
    rb"\n(?:(CLIENT_RANDOM|PMS_CLIENT_RANDOM|(?:CLIENT|SERVER)_(?:HANDSHAKE_)?TRAFFIC_SECRET(?:_\d{1,9})?)"
    rb" ([0-9a-fA-F]{64}) ([0-9a-fA-F]{64,512})"
    rb"|RSA Session-ID:([0-9a-fA-F]{2,64}) Master-Key:([0-9a-fA-F]{96})"
    rb"|RSA ([0-9a-fA-F]{16}) ([0-9a-fA-F]{96}))"
    rb"[ \t]*\r?$",
    re.MULTILINE,
)
"""With the newline before the line, which is searched faster than ``^``."""

MASTER = b"CLIENT_RANDOM"
PREMASTER = b"PMS_CLIENT_RANDOM"
HANDSHAKE = b"CLIENT_HANDSHAKE_TRAFFIC_SECRET", b"SERVER_HANDSHAKE_TRAFFIC_SECRET"
"""Of the client's records, of the server's."""
TRAFFIC = b"CLIENT_TRAFFIC_SECRET_0", b"SERVER_TRAFFIC_SECRET_0"
"""Likewise."""


class KeyLog:
    """The secrets of sessions.

    Args:
        max_bytes: memory that they may take.

    Attributes:
        can_grow: whether more secrets may come.
        may_come_last: whether they may come at any time until the end of the capture.
        version: changes with each secret that is added.
        dropped: secrets that were not kept because of the limit.
    """

    __slots__ = (
        "_by_encrypted", "_by_random", "_by_session", "_bytes", "_growing", "_labels", "_max_bytes",
        "can_grow", "dropped", "may_come_last", "version",
    )  # fmt: skip

    def __init__(self, max_bytes: int = DEFAULT.key_log_bytes) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._growing: list[GrowingFile | SecretsInCapture] = []
        self._by_random: dict[bytes, tuple[bytes, ...]] = {}  # label, secret, label, secret, ...
        self._by_session: dict[bytes, tuple[bytes, ...]] = {}
        self._by_encrypted: dict[bytes, tuple[bytes, ...]] = {}
        self._labels: dict[bytes, bytes] = {}  # each once: there are millions of lines
        self.can_grow = self.may_come_last = False
        self.version = self.dropped = 0

    def __len__(self) -> int:
        return len(self._by_random) + len(self._by_session) + len(self._by_encrypted)

    def add(self, text: bytes) -> None:
        """Add the secrets in these lines."""
        labels, lines = self._labels, _LINE.findall(b"\n" + text)
        for label, client_random, secret, session_id, master, encrypted, premaster in lines:
            if label:
                if label not in labels and len(labels) < _MAX_LABELS:
                    labels[label] = label
                if not len(secret) % 2:
                    entry = labels.get(label, label), unhexlify(secret)
                    self._add(self._by_random, unhexlify(client_random), entry)
            elif encrypted:
                self._add(self._by_encrypted, unhexlify(encrypted), (unhexlify(premaster),))
            elif not len(session_id) % 2:
                self._add(self._by_session, unhexlify(session_id), (unhexlify(master),))

    def add_captures(self, paths: Iterable[str]) -> None:
        """Add the secrets inside pcapng files. A file that cannot be read has none."""
        for path in paths:
            with suppress(OSError):
                for text in secrets_in(path):
                    self.add(text)

    def _add(self, known: dict[bytes, tuple[bytes, ...]], key: bytes, entry: tuple[bytes, ...]) -> None:
        before = known.get(key, ())
        length = len(entry)
        if entry[-1] in before and entry in zip(*[iter(before)] * length, strict=True):
            return
        size = getsizeof(entry[-1]) + (_ENTRY_BYTES if before else _SESSION_BYTES)
        if len(before) >= 2 * _MAX_SECRETS or self._bytes + size > self._max_bytes:
            self.dropped += 1
            return
        known[key] = before + entry
        self._bytes += size
        self.version += 1

    def labelled(self, client_random: bytes, label: bytes) -> list[bytes]:
        """The secrets of a session with this label, the latest first."""
        entry = self._by_random.get(client_random, ())
        return [secret for name, secret in zip(entry[::2], entry[1::2], strict=True) if name == label][::-1]

    def learn(self, client_random: bytes, master: bytes) -> None:
        """Note the master secret of a session that was opened in another way than by its own line."""
        self._add(self._by_random, client_random, (MASTER, master))

    def poll(self) -> bool:
        """Read what was added to the key logs. Returns whether it has new secrets. Does not wait."""
        before = self.version
        for file in self._growing:
            self.add(file.read())
        return self.version != before

    def lines(self, client_random: bytes) -> bytes:
        """The lines of a session."""
        entry = self._by_random.get(client_random, ())
        name = client_random.hex().encode()
        pairs = zip(entry[::2], entry[1::2], strict=True)
        return b"".join(b"%b %b %b\n" % (label, name, hexlify(secret)) for label, secret in pairs)

    def follow(self, growing: GrowingFile | SecretsInCapture) -> None:
        """Read what it has now; ``poll`` reads what is added."""
        self._growing.append(growing)
        self.can_grow = True
        self.add(growing.read())

    def close(self) -> None:
        """Stop reading key logs that are still being written."""
        for each in self._growing:
            each.close()
        self._growing.clear()
        self.can_grow = False

    def has_secrets(self, client_random: bytes, names: Iterable[bytes] = ()) -> bool:
        """Whether there are secrets of a session, by its client random or by one of its session IDs."""
        return client_random in self._by_random or any(name in self._by_session for name in names)

    def of_session(self, session_id: bytes) -> list[bytes]:
        """The master secrets of a session ID, the latest first."""
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


class GrowingFile:
    """A file to which lines are still being added. Holds an incomplete line.

    Args:
        path: of a regular file or a pipe. It is opened now.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", buffering=0, opener=_without_waiting)  # noqa: SIM115
        self._pos = 0
        self._rest = b""

    def read(self) -> bytes:
        """Lines that were added, not necessarily all of them. Begins anew if the file was truncated."""
        try:
            status = os.fstat(self._file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size < self._pos:
                self._file.seek(0)
                self._pos, self._rest = 0, b""
            piece = self._file.read(_PIECE_BYTES)
        except OSError:  # the file system went away
            return b""
        if not piece:
            return b""
        self._pos += len(piece)
        lines, newline, self._rest = (self._rest[-_LONGEST_LINE:] + piece).rpartition(b"\n")
        return lines + newline

    def close(self) -> None:
        self._file.close()


class SecretsInCapture:
    """The Decryption Secrets Blocks of a capture that is still being read, and can be read only once."""

    def __init__(self, capture: Capture | LiveSources) -> None:
        self._capture = capture

    def read(self) -> bytes:
        """Lines of the blocks since the last call."""
        taken = [text for source in self._capture.sources for text in source.secrets]
        for source in self._capture.sources:
            source.secrets.clear()
        return b"\n".join(taken)

    def close(self) -> None:
        """Nothing is open."""


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def read_key_logs(paths: Sequence[str], captures: Iterable[str] = (), limits: Limits = DEFAULT) -> KeyLog:
    """Read key logs, and the secrets in pcapng files. The same files are read only once in a row: a first
    pass and the dissection share their secrets.

    Args:
        paths: key logs, or pcapng files.
        captures: of these only the secrets are read. One that cannot be read has none.
        limits: to respect.

    Raises:
        CaptureError: a key log cannot be read.
    """
    files = [path for path in captures if stores.size(path) is not None]
    return _read(_with_fingerprints(paths), _with_fingerprints(files), limits.key_log_bytes)


def searchable(captures: Iterable[str]) -> tuple[str, ...]:
    """The captures in which to search secrets: all, or without the library for decryption none."""
    return tuple(captures) if can_decrypt() else ()


def follow_key_logs(paths: Sequence[str], limits: Limits = DEFAULT) -> KeyLog:
    """Read key logs that are still being written, and go on with ``KeyLog.poll``.

    Raises:
        CaptureError: a file cannot be read.
    """
    log = KeyLog(limits.key_log_bytes)
    for path in paths:
        if _is_capture(path):
            _add_secrets(log, path)
        else:
            log.follow(_readable(path, GrowingFile))
    while log.poll():
        pass
    return log


_Files = tuple[tuple[str, tuple[int, ...]], ...]


@lru_cache(maxsize=1)
def _read(key_logs: _Files, captures: _Files, max_bytes: int) -> KeyLog:
    log = KeyLog(max_bytes)
    for path, _ in key_logs:
        _add_secrets(log, path)
    log.add_captures(path for path, _ in captures)
    return log


def _with_fingerprints(paths: Iterable[str]) -> _Files:
    return tuple((path, _fingerprint(path)) for path in paths)


def _fingerprint(path: str) -> tuple[int, ...]:
    if stores.normalized(path) is not None:
        return tuple(each or 0 for each in _readable(path, stores.status))
    status = _readable(path, os.stat)
    if not stat.S_ISREG(status.st_mode):
        return status.st_dev, status.st_ino  # a pipe, which can be read only once
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _add_secrets(log: KeyLog, path: str) -> None:
    def add(path: str) -> None:
        for text in secrets_in(path) if _is_capture(path) else _pieces(path):
            log.add(text)

    _readable(path, add)


def _is_capture(path: str) -> bool:
    """Whether a key log is a capture with secrets inside. A pipe is not read."""
    return stores.size(path) is not None and is_capture(path)


def _readable(path: str, read: Callable[[str], _Result]) -> _Result:
    try:
        return read(path)
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from error


def _pieces(path: str) -> Iterator[bytes]:
    """The lines of a file, many at a time; of a longer line only a part."""
    with open(path, "rb") as file:  # noqa: PTH123 - names of captures are strings
        rest = b""
        for _ in range(_MAX_PIECES):
            if not (piece := file.read(_PIECE_BYTES)):
                break
            lines, newline, rest = (rest[-_LONGEST_LINE:] + piece).rpartition(b"\n")
            yield lines + newline
        yield rest
