"""Rows of a table -> files in its folder. Holds ``limits.export_files`` open files, and
``limits.export_bytes`` of rows that they did not write yet.

    exchanges/part-00000.jsonl.zst
    exchanges/date=2026-11-21/api=Fetch/part-00003.jsonl.zst     with partitions, as Hive names them

While a file is written its name begins with a dot and ends in ``.unfinished``, which Spark and all others
pass over. It gets its own name when all of it is on disk. The columns that folders are named after are not in
the files.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from kdissect.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kdissect.limits import Limits
    from kdissect.sinks.rowfiles import Format, RowFile
    from kdissect.sinks.tables.form import Table

UNFINISHED = ".unfinished"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

_OWN = re.compile(r"part-\d{5,}\.(jsonl(\.gz|\.zst)?|parquet)|\.part-\d{5,}\.[a-z.]+\.unfinished")
_PARTITION = re.compile(r"(date|api)=[^/]+")
_PLAIN = re.compile(r"[^A-Za-z0-9._-]")

Key = tuple[str, ...]
"""Names of the folders below the table's."""


class Written(NamedTuple):
    """A file that is finished; ``path`` is below the table's folder."""

    path: str
    rows: int
    bytes: int


class _Counted:
    """A file that counts what is written to it, or once it is abandoned lets it go."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.bytes = 0
        self.is_abandoned = False
        self.flush = file.flush

    def write(self, data: Any) -> int:
        if self.is_abandoned:
            return len(data)
        written = self.file.write(data)
        self.bytes += written
        return written

    @property
    def closed(self) -> bool:
        return self.file.closed

    def tell(self) -> int:
        return self.bytes

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Not ours to do: the rows' end is not yet the file's."""


class _Open:
    """A file that is being written."""

    __slots__ = ("counted", "name", "path", "rows", "writer")

    def __init__(self, folder: Path, name: str, columns: Sequence[Any], form: Format) -> None:
        self.name = name
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f".{name}{UNFINISHED}"
        self.rows = 0
        self.counted = _Counted(self.path.open("wb"))
        self.writer: RowFile = form.open(self.counted, columns)  # type: ignore[arg-type]  # as much as is needed

    def finish(self) -> Path:
        """Have all of it on disk, then give it its name."""
        self.writer.close()
        file = self.counted.file
        file.flush()
        os.fsync(file.fileno())
        file.close()
        return self.path.rename(self.path.with_name(self.name))

    def abandon(self) -> None:
        """Remove it."""
        self.counted.is_abandoned = True
        with suppress(OSError):
            self.writer.close()  # or it would do so itself, some time later
        with suppress(OSError):  # what the file still holds may not fit either
            self.counted.file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


class TableFiles:
    """Writes the files.

    Attributes:
        table: what is written.
        files: those that are finished.
        rows: written so far.
    """

    def __init__(
        self,
        folder: Path,
        table: Table,
        form: Format,
        *,
        partition_by: Sequence[str] = (),
        rotate_bytes: int,
        limits: Limits,
    ) -> None:
        self.table = table
        self.files: list[Written] = []
        self.rows = 0
        columns = form.columns(table)
        by_name = {column.name: column for column in columns}
        self.partition_by = tuple(name for name in partition_by if name in by_name)
        self._folder = folder
        self._form = form
        self._keys = [(name, by_name[name].get) for name in self.partition_by]
        self._columns = tuple(column for column in columns if column.name not in self.partition_by)
        self._rotate_bytes = rotate_bytes
        self._limits = limits
        self._open: OrderedDict[Key, _Open] = OrderedDict()  # least recently used first
        self._begun = 0
        self._held = 0

    def feed(self, row: Any) -> None:
        """Write a row.

        Raises:
            OutputError: it cannot be written.
        """
        key = tuple(f"{name}={_folder_name(get(row))}" for name, get in self._keys)
        try:
            target = self._open.get(key) or self._begin(key)
            writer = target.writer
            held = writer.held
            writer.feed(row)
            target.rows += 1
            self.rows += 1
            self._held += writer.held - held
            if self._keys:
                self._open.move_to_end(key)
            if self._held > self._limits.export_bytes:
                self._flush()
            if target.counted.bytes >= self._rotate_bytes:
                self._finish(key)
        except OSError as error:
            raise cannot_write(self._folder, error) from None

    def close(self) -> None:
        """Finish all files. A table without rows gets one without rows, unless it has partitions.

        Raises:
            OutputError: one cannot be written.
        """
        try:
            if not (self._begun or self._keys):
                self._begin(())
            while self._open:
                self._finish(next(iter(self._open)))
        except OSError as error:
            raise cannot_write(self._folder, error) from None

    def abandon(self) -> None:
        """Remove what is not finished."""
        for target in self._open.values():
            target.abandon()
        self._open.clear()

    def _begin(self, key: Key) -> _Open:
        while len(self._open) >= self._limits.export_files:
            self._finish(next(iter(self._open)))
        name = f"part-{self._begun:05}{self._form.suffix}"
        self._begun += 1
        target = _Open(self._folder.joinpath(*key), name, self._columns, self._form)
        self._open[key] = target
        return target

    def _flush(self) -> None:
        for target in self._open.values():
            target.writer.flush()
        self._held = sum(target.writer.held for target in self._open.values())

    def _finish(self, key: Key) -> None:
        target = self._open[key]
        self._held -= target.writer.held
        path = target.finish()
        del self._open[key]
        relative = path.relative_to(self._folder).as_posix()
        self.files.append(Written(relative, target.rows, path.stat().st_size))


def own_files(folder: Path) -> Iterator[Path]:
    """The files of rows in a table's folder, finished or not, those in folders of partitions too."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and _PARTITION.fullmatch(path.name):
            yield from own_files(path)
        elif _OWN.fullmatch(path.name):
            yield path


def remove_own(folder: Path) -> None:
    """Remove them, and the folders of partitions that are empty then."""
    for path in list(own_files(folder)):
        path.unlink()
        parent = path.parent
        while parent != folder and next(parent.iterdir(), None) is None:
            parent.rmdir()
            parent = parent.parent


def cannot_write(path: Path, error: OSError) -> OutputError:
    """What a person is told about it."""
    return OutputError(f"cannot write to {path}: {error.strerror or error}")


def _folder_name(value: Any) -> str:
    if value is None:
        return NO_VALUE
    return _PLAIN.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), str(value))
