"""What files of rows have in common, whatever their format; and those of JSON lines. A file holds 64 KiB and
a line, or those of the records that it is fed together, and what its compressor does.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import zstandard

from kdissect.sinks.jsonlines import JsonLines
from kdissect.sinks.recordvalues import RecordValues
from kdissect.sinks.values import json_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.analysis.carried import OpenBatch
    from kdissect.sinks.columns import Column
    from kdissect.sinks.tables.form import Table

NONE, GZ, ZST = "none", "gz", "zst"
COMPRESSIONS = (NONE, GZ, ZST)

_GZIP_LEVEL = 6  # as gzip itself; a higher one takes twice the time for one percent
_ZSTD_LEVEL = 3


class RowFile(Protocol):
    """A file that rows are written to."""

    @property
    def held(self) -> int:
        """Bytes, about, that were not passed on yet."""

    def feed(self, row: Any) -> None:
        """Take a row."""

    def prepare(self, records: OpenBatch) -> Any:
        """Make all records of a batch ready for any file of the same columns; they are plain."""

    def feed_some(self, prepared: Any, start: int, room: int) -> int:
        """Take those from ``start`` on, one at least, and none behind the one with which something is written
        or more than ``room`` bytes of them are held.

        Returns:
            How far it came.
        """

    def flush(self) -> None:
        """Write what is held."""

    def close(self) -> None:
        """Write the rest; the file below stays open."""


class Format(Protocol):
    """A format of files.

    Attributes:
        name: as people call it.
        compression: one of ``COMPRESSIONS``.
        suffix: how names of files end. Readers tell the compression by it.
        using: what Spark SQL calls it.
    """

    name: str
    compression: str
    suffix: str
    using: str

    def columns(self, table: Table) -> tuple[Column, ...]:
        """The columns of a table in this format."""

    def open(self, file: BinaryIO, columns: Sequence[Column]) -> RowFile:
        """Begin a file."""


class JsonFormat:
    """JSON lines, bodies as objects."""

    name = "jsonl"
    using = "JSON"

    def __init__(self, compression: str = NONE) -> None:
        self.compression = compression
        self.suffix = ".jsonl" if compression == NONE else f".jsonl.{compression}"

    def columns(self, table: Table) -> tuple[Column, ...]:
        """The columns of a table: JSON has text alone."""
        return table.columns

    def open(self, file: BinaryIO, columns: Sequence[Column]) -> RowFile:
        """Begin a file."""
        return JsonFile(file, columns, self.compression)


class JsonFile:
    """The lines, and what compresses them; the same rows make the same bytes."""

    held = 0  # the lines' own bound is small

    def __init__(self, file: BinaryIO, columns: Sequence[Column], compression: str) -> None:
        self._packer: Any = None
        if compression == GZ:
            self._packer = gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0)
        elif compression == ZST:
            self._packer = zstandard.ZstdCompressor(_ZSTD_LEVEL).stream_writer(file, closefd=False)
        self.lines = JsonLines((self._packer or file).write, columns=columns)
        self._records = RecordValues(self.lines.getters)

    def feed(self, row: Any) -> None:
        """Write a line."""
        self.lines.feed(row)

    def prepare(self, records: OpenBatch) -> list[bytes]:
        """Make the lines of all records of a batch."""
        names = [name for name, _ in self.lines.getters]
        return [json_line(dict(zip(names, row, strict=True))) for row in self._records.rows(records)]

    def feed_some(self, prepared: list[bytes], start: int, room: int) -> int:  # noqa: ARG002  (holds next to nothing)
        """Take one of them, see ``RowFile``."""
        self.lines.add(prepared[start])
        return start + 1

    def flush(self) -> None:
        """Write the lines; a compressor keeps some of them."""
        self.lines.close()

    def close(self) -> None:
        """Write the rest, and how the compressed data ends."""
        self.lines.close()
        if self._packer is not None:
            self._packer.close()
