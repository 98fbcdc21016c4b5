"""``CarriedRecord`` -> files: the value as on the wire, and the key if there is one. Holds counts.

    DIR/orders/3/1000.value       topic orders, partition 3, offset 1000
    DIR/orders/3/1000.key         only if it has a key
    DIR/orders/3/1001.null        instead of .value, and empty: its value is null
    DIR/orders/3/441bec302e4e-2-0.value
                                     its offset is unknown: connection and number of the exchange, and the
                                     record's index in it

A record that was written before is skipped. A different one with the same name (from another cluster) is
written under the second form of name. Possible credentials are not written at all. In topic names, characters
other than letters, digits and ``._-`` are written as ``%2F``, so that no name leads out of the directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.errors import OutputError, WriteError
from kdissect.files import PRIVATE, create, make_directory
from kdissect.model import Embedded, Redacted
from kdissect.phrases import facts, many

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kdissect.exchanges.partition_records import CarriedRecord

VALUE, KEY, NULL = ".value", ".key", ".null"
UNKNOWN = "%unknown"  # cannot be the directory of a topic

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_MAX_NAME = 200  # file systems allow 255 bytes
_DIGEST_BYTES = 8
_MAX_DIRECTORIES = 10_000  # that are known to exist, and not checked again


class RecordFiles:
    """Writes the files.

    Args:
        directory: created with its parents if it does not exist.
        mode: permissions of the files, see ``files.create``.

    Raises:
        OutputError: it is not empty, or cannot be created.
    """

    def __init__(self, directory: Path, mode: int = PRIVATE) -> None:
        self._directory, self._mode = directory, mode
        self._known: set[Path] = set()
        self._written = dict.fromkeys((VALUE, KEY, NULL), 0)
        self._duplicates = self._redacted = 0
        try:
            make_directory(directory, mode)
            is_empty = next(directory.iterdir(), None) is None
        except OSError as error:
            raise WriteError.of(directory, error) from None
        if not is_empty:
            raise OutputError(f"{directory} is not empty; use a new directory")

    def feed(self, record: CarriedRecord) -> None:
        """Write one record.

        Raises:
            OutputError: it cannot be written; a partial file is removed.
        """
        contents = self._contents(record)
        if not contents:
            return
        directory = self._directory / _directory_of(record)
        exchange = record.source.exchange
        stems = [f"{exchange.connection.id}-{exchange.number}-{record.ordinal}"]
        if record.offset is not None:
            stems.insert(0, str(record.offset))
        try:
            self._make_directory(directory)
            for stem in stems:
                existing = _read(directory, stem)
                if existing == contents:
                    self._duplicates += 1
                    return
                if not existing:
                    self._write(directory, stem, contents)
                    return
        except OSError as error:
            raise WriteError.of(directory, error) from None

    def close(self) -> None:
        """Do nothing: every file is complete."""

    def summary_line(self) -> str:
        """What was written, for people."""
        files = facts(
            many(self._written[VALUE], "value"),
            many(self._written[KEY], "key"),
            many(self._written[NULL], "null") if self._written[NULL] else None,
        )
        duplicates = f"{many(self._duplicates, 'duplicate record')} skipped" if self._duplicates else ""
        redacted = f"{many(self._redacted, 'credential')} not written" if self._redacted else ""
        return "; ".join(filter(None, (f"{files} written to {self._directory}", duplicates, redacted)))

    def _contents(self, record: CarriedRecord) -> dict[str, bytes]:
        """The contents of the files, by suffix."""
        contents: dict[str, bytes] = {}
        for suffix, payload in ((KEY, record.key), (VALUE, record.value)):
            data = payload.data if isinstance(payload, Embedded) else payload
            if isinstance(data, Redacted):
                self._redacted += 1
            elif data is not None:
                contents[suffix] = data
            elif suffix == VALUE:
                contents[NULL] = b""
        return contents

    def _make_directory(self, directory: Path) -> None:
        if directory not in self._known:
            make_directory(directory, self._mode, below=self._directory)
            if len(self._known) >= _MAX_DIRECTORIES:
                self._known.clear()
            self._known.add(directory)

    def _write(self, directory: Path, stem: str, contents: Mapping[str, bytes]) -> None:
        for suffix, data in contents.items():
            path = directory / (stem + suffix)
            with create(path, self._mode) as file:
                try:
                    file.write(data)
                    file.flush()
                except OSError:
                    path.unlink(missing_ok=True)
                    raise
            self._written[suffix] += 1


def _read(directory: Path, stem: str) -> dict[str, bytes]:
    paths = {suffix: directory / (stem + suffix) for suffix in (KEY, VALUE, NULL)}
    return {suffix: path.read_bytes() for suffix, path in paths.items() if path.exists()}


def _directory_of(record: CarriedRecord) -> str:
    source = record.source
    topic = name_of_topic(source.names[0]) if source.names else UNKNOWN
    return f"{topic}/{UNKNOWN if source.partition is None else source.partition}"


def name_of_topic(topic: str) -> str:
    """The name of a topic's directory: characters that Kafka does not allow are escaped."""
    raw = topic.encode(errors="backslashreplace")
    plain = b"" if not raw.strip(b".") else _PLAIN  # "." and ".." are special directories
    name = "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in raw)
    if len(name) <= _MAX_NAME:
        return name
    from hashlib import blake2b  # loads OpenSSL, and few names need it

    return f"{name[:_MAX_NAME]}%{blake2b(raw, digest_size=_DIGEST_BYTES).hexdigest()}"
