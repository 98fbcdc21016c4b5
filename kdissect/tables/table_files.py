"""Rows of a table -> files in its directory. Holds at most ``limits.export_files`` open files and about
``limits.export_bytes`` of unwritten rows; records of one batch count together.

    exchanges/part-00000.jsonl.zst
    exchanges/date=2026-11-21/api=Fetch/part-00003.jsonl.zst     with partitions, named as in Hive
    exchanges/part-00000-1b9d6bcd.parquet                        in a store, with the name of the run

While a file is written its name begins with a dot and ends in ``.unfinished``, so Spark and other readers
ignore it. It gets its final name when all of it is on disk. Partition columns are not in the files. The names
of finished files are kept; of a live export only the latest (``limits.export_listed``).
"""

from __future__ import annotations

import fcntl
import gzip
import os
import re
import shutil
from collections import OrderedDict, deque
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

import zstandard

from kdissect import core
from kdissect.capture.stores import listing
from kdissect.errors import OutputError, WriteError
from kdissect.exchanges.partition_records import DecodedBatch
from kdissect.files import PRIVATE, create, is_stored, make_directory, publish
from kdissect.model import Exchange
from kdissect.tables.lines import JsonLines, RecordLines, RecordValues, joined_lines
from kdissect.tables.native_rows import NativeTable
from kdissect.tables.values import json_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.limits import Limits
    from kdissect.sinks.plan import PlanContext, RecordPlan
    from kdissect.tables.columns import Column
    from kdissect.tables.form import Table


UNFINISHED = ".unfinished"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

_TAG = "(?:-[0-9a-f]{8})?"
_ROW_FILE = re.compile(
    rf"part-(\d{{5,}}){_TAG}\.(jsonl(\.gz|\.zst)?|parquet)|\.part-(\d{{5,}}){_TAG}\.[a-z.]+\.unfinished"
)
_PARTITION = re.compile(r"(date|api)=[^/]+")
_PLAIN = re.compile(r"[^A-Za-z0-9._-]")

Key = tuple[str, ...]
"""Names of the partition directories below the table's."""


class FinishedFile(NamedTuple):
    """A file that is finished.

    Attributes:
        path: below the table's directory.
        rows: None if its writer was killed before it could list the file.
        bytes: size of the file.
    """

    path: str
    rows: int | None
    bytes: int


class Listing:
    """The finished files of a table.

    Args:
        files: from earlier runs.
        max_names: how many names are kept; None: all.
        older: counts of earlier files whose names were dropped: files, rows, bytes.

    Attributes:
        older: counts of files whose names were dropped: files, rows, bytes.
    """

    def __init__(
        self,
        files: Iterable[FinishedFile] = (),
        max_names: int | None = None,
        older: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        self._files: deque[FinishedFile] = deque()
        self.older = older
        self._max_names = max_names
        for file in files:
            self.add(file)

    def add(self, file: FinishedFile) -> None:
        """Add a file."""
        self._files.append(file)
        if self._max_names is not None and len(self._files) > self._max_names:
            count, rows, size = self.older
            _, more, bytes_ = self._files.popleft()
            self.older = count + 1, rows + (more or 0), size + bytes_

    def __len__(self) -> int:
        return self.older[0] + len(self._files)

    def __iter__(self) -> Iterator[FinishedFile]:
        """The files whose names are kept."""
        return iter(self._files)

    @property
    def rows(self) -> int:
        """Rows in all files, as far as known."""
        return self.older[1] + sum(file.rows or 0 for file in self._files)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return self.older[2] + sum(file.bytes for file in self._files)


class _Counted:
    """A file that counts what is written to it; after it was abandoned it discards writes."""

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
        """Do nothing: the end of the rows is not the end of the file."""


class _Open:
    """A file that is being written."""

    __slots__ = ("counted", "name", "path", "rows", "writer")

    def __init__(self, path: Path, mode: int, columns: Sequence[Any], form: Format) -> None:
        self.name = path.name
        self.path = path.with_name(f".{path.name}{UNFINISHED}")
        self.rows = 0
        self.counted = _Counted(create(self.path, mode))
        self.writer: RowFile = form.open(self.counted, columns)  # type: ignore[arg-type]  # the methods it needs

    def finish(self) -> Path:
        """Write everything to disk, then give the file its final name."""
        self.writer.close()
        path = self.path.with_name(self.name)
        publish(self.counted.file, self.path, path)
        return path

    def abandon(self) -> None:
        """Remove it."""
        self.counted.is_abandoned = True
        with suppress(OSError):
            self.writer.close()  # otherwise it would close itself later
        with suppress(OSError):  # its buffer may not fit on the disk either
            self.counted.file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


class TableFiles:
    """Writes the files.

    Args:
        directory: of the table.
        table: what to write.
        form: of the files.
        partition_by: columns to partition by; those that the table lacks are ignored.
        rotate_bytes: size at which the next file is started.
        limits: see ``Limits``.
        mode: permissions of the files, see ``files.create``.
        tag: of the run, in the names of its files; empty: none.

    Attributes:
        table: what to write.
        mode: permissions of all files of the table.
        first: number of the first file.
        files: the finished ones.
        rows: written so far.
    """

    def __init__(
        self,
        directory: Path,
        table: Table,
        form: Format,
        *,
        partition_by: Sequence[str] = (),
        rotate_bytes: int,
        limits: Limits,
        mode: int = PRIVATE,
        tag: str = "",
    ) -> None:
        self.table = table
        self.mode = mode
        self._tag = tag
        self.first = 0
        self.files = Listing()
        self.rows = 0
        columns = form.columns(table)
        by_name = {column.name: column for column in columns}
        self.partition_by = tuple(name for name in partition_by if name in by_name)
        self._directory = directory
        self.form = form
        self._keys = [(name, by_name[name].get) for name in self.partition_by]
        self._columns = tuple(column for column in columns if column.name not in self.partition_by)
        self._rotate_bytes = rotate_bytes
        self._limits = limits
        self._open: OrderedDict[Key, _Open] = OrderedDict()  # least recently used first
        self._next_number = 0
        self._step = 1
        self._held = 0
        self._shared: SharedRows | None = None

    def continue_from(self, first: int, files: Listing, step: int = 1) -> None:
        """Start with this number: after the files of an earlier run, or between those of other processes."""
        self.first = self._next_number = first
        self.files = files
        self._step = step

    def name(self, number: int) -> str:
        """The name of a file."""
        return f"part-{number:05}{self._tag}{self.form.suffix}"

    def feed(self, row: Any) -> None:
        """Write a row, or a batch of records: files end as if the records had been fed one by one.

        Raises:
            OutputError: it cannot be written.
        """
        self.settle()
        try:
            if isinstance(row, DecodedBatch):
                self._feed_batch(row)
                return
            key = self._key(row)
            target = self._open.get(key) or self._begin(key)
            held = target.writer.held
            target.writer.feed(row)
            if isinstance(row, Exchange) and row.decoded_bytes > self._limits.export_bytes:
                row.request = row.response = None  # written as the last table: free the memory for the writer
            self._count(key, target, 1, held)
        except OSError as error:
            raise WriteError.of(self._directory, error) from None

    def shared(self, *, waits: bool) -> NativeTable:
        """Where the native core may add rows besides ``feed``, without partitions. ``settle`` has to be
        called if it is full. If it ``waits``, its rows are written by ``release``.
        """
        self._shared = shared = self.form.shared(self._columns)
        if waits:
            return NativeTable(self._columns, shared.wait(), (_UNLIMITED, _UNLIMITED))
        return NativeTable(self._columns, shared.columns, shared.capacity)

    def release(self, rows: int, joined: Iterable[tuple[int, int, int | None, str | None]] = ()) -> None:
        """Add the first rows of those that wait.

        Args:
            rows: how many.
            joined: which of them have an end-to-end latency or a copy, see ``WrittenText.joined``.

        Raises:
            OutputError: they cannot be written.
        """
        end_before = 0
        for start, end, latency_us, also_in in joined:
            self._move(start - end_before)
            self._move(end - start, latency_us, also_in)
            end_before = end
        self._move(rows - end_before)

    def _move(self, rows: int, latency_us: int | None = None, also_in: str | None = None) -> None:
        shared = self._shared
        assert shared is not None
        while rows:
            rows -= shared.move(rows, latency_us, also_in)
            if shared.is_full:
                self.settle()

    def settle(self) -> None:
        """Count, and if necessary write, rows that others have added to what is shared.

        Raises:
            OutputError: they cannot be written.
        """
        key = ()
        try:
            while self._shared is not None and self._shared.uncounted:
                target = self._open.get(key) or self._begin(key)
                self._count(key, target, target.writer.settle(), self._held)
        except OSError as error:
            raise WriteError.of(self._directory, error) from None

    def _feed_batch(self, records: DecodedBatch) -> None:
        key = self._key(records.plain(0))  # partitions depend on the exchange, which is the same for all
        prepared, start = None, 0
        while start < len(records):
            target = self._open.get(key) or self._begin(key)
            if prepared is None:
                prepared = target.writer.prepare(records)
            held = target.writer.held
            is_large = target.counted.bytes >= self._rotate_bytes  # other files caused a flush
            room = 0 if is_large else self._limits.export_bytes - self._held
            stop = target.writer.feed_some(prepared, start, room)
            self._count(key, target, stop - start, held)
            start = stop

    def _key(self, row: Any) -> Key:
        return tuple(f"{name}={_directory_name(get(row))}" for name, get in self._keys)

    def _count(self, key: Key, target: _Open, rows: int, held: int) -> None:
        """Count rows added to a file, which held ``held`` bytes before."""
        target.rows += rows
        self.rows += rows
        grown = target.writer.held - held
        self._held += grown
        if self._keys:
            self._open.move_to_end(key)
        if is_full := self._held > self._limits.export_bytes:
            self._flush()
        if target.counted.bytes >= self._rotate_bytes:
            self._finish(key)
        if is_full or grown < 0:  # a row group was written
            self._bound_footers()
        if self._shared is not None:
            self._shared.note_counted()

    def close(self) -> None:
        """Finish all files. A table without rows gets an empty file, unless it has partitions.

        Raises:
            OutputError: one cannot be written.
        """
        self.settle()
        try:
            if not (self._next_number or self._keys):
                self._begin(())
        except OSError as error:
            raise WriteError.of(self._directory, error) from None
        self.rotate()

    def rotate(self) -> None:
        """Finish the open files, whatever their size.

        Raises:
            OutputError: one cannot be written.
        """
        self.settle()
        try:
            while self._open:
                self._finish(next(iter(self._open)))
        except OSError as error:
            raise WriteError.of(self._directory, error) from None

    def abandon(self) -> None:
        """Remove unfinished files."""
        for target in self._open.values():
            target.abandon()
        self._open.clear()

    def _begin(self, key: Key) -> _Open:
        while len(self._open) >= self._limits.export_files:
            self._finish(next(iter(self._open)))
        name = self.name(self._next_number)
        self._next_number += self._step
        directory = self._directory.joinpath(*key)
        make_directory(directory, self.mode, below=self._directory.parent)
        target = _Open(directory / name, self.mode, self._columns, self.form)
        if self._shared is not None:
            target.writer.share(self._shared)
        self._open[key] = target
        return target

    def _flush(self) -> None:
        """Write until half of the limit is held. The fullest files are written first: all at once would make
        tiny row groups of rare partitions.
        """
        for target in sorted(self._open.values(), key=lambda each: each.writer.held, reverse=True):
            held = target.writer.held
            target.writer.flush()
            self._held -= held - target.writer.held
            if self._held <= self._limits.export_bytes // 2:
                return

    def _bound_footers(self) -> None:
        """Finish the files with the largest footers, which are held until then, if these are too large."""
        footers = {key: target.writer.footer for key, target in self._open.items()}
        while sum(footers.values()) > self._limits.export_bytes:
            largest = max(footers, key=footers.__getitem__)
            del footers[largest]
            self._finish(largest)

    def _finish(self, key: Key) -> None:
        target = self._open[key]
        self._held -= target.writer.held
        path = target.finish()
        del self._open[key]
        relative = path.relative_to(self._directory).as_posix()
        self.files.add(FinishedFile(relative, target.rows, path.stat().st_size))


def file_number(path: Path) -> int:
    """The number in the name of one of ``row_files``."""
    match = _ROW_FILE.fullmatch(path.name)
    assert match is not None
    return int(match[1] or match[4])


def row_files(directory: Path) -> Iterator[Path]:
    """The files of rows in a table's directory, finished or not, including those in partitions."""
    for path in sorted(directory.iterdir()):
        if _PARTITION.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            yield from row_files(path)
        elif _ROW_FILE.fullmatch(path.name):
            yield path


def visible_files(directory: Path) -> dict[str, int]:
    """The sizes of the files that readers of a table see, by path below its directory: all but those that
    have, or are in a directory that has, a name that begins with ``.`` or ``_``.
    """
    if is_stored(directory):
        known = {
            Path(url).relative_to(Path(str(directory))): each for url, each in listing(str(directory)).items()
        }
        sizes = {path: each.size for path, each in known.items() if each.size is not None}
    else:
        sizes = {
            Path(place, name).relative_to(directory): Path(place, name).stat().st_size
            for place, _, names in os.walk(directory)
            for name in names
        }
    return {
        path.as_posix(): size
        for path, size in sizes.items()
        if not any(each[0] in "._" for each in path.parts)
    }


def remove_unfinished(directory: Path) -> None:
    """Remove unfinished files of rows."""
    for path in list(row_files(directory)):
        if path.name.endswith(UNFINISHED):
            path.unlink()


def remove_row_files(directory: Path) -> None:
    """Remove all files of rows, and partition directories that become empty."""
    for path in list(row_files(directory)):
        path.unlink()
        parent = path.parent
        while parent != directory and next(parent.iterdir(), None) is None:
            parent.rmdir()
            parent = parent.parent


def _directory_name(value: Any) -> str:
    if value is None:
        return NO_VALUE
    return _PLAIN.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), str(value))


# ------------------------------------------------------------------------------------------------------------
# The interface of files of rows, and the format JSON lines. A file holds 64 KiB and a line, or the lines of
# one batch of records, and what its compressor holds.
# ------------------------------------------------------------------------------------------------------------


NONE, GZ, ZST = "none", "gz", "zst"
COMPRESSIONS = (NONE, GZ, ZST)

_COPIED_BYTES = 1024 * 1024
_UNLIMITED = 1 << 62
_MAX_SHARED_ROWS, _SHARED_BYTES = 10_000, 256 * 1024
_GZIP_LEVEL = 6  # the default of gzip; a higher level takes twice the time for one percent
_ZSTD_LEVEL = 3


class RowFile(Protocol):
    """A file of rows that is being written."""

    @property
    def held(self) -> int:
        """About how many bytes of rows are not written yet."""

    @property
    def footer(self) -> int:
        """About how many bytes are held for the end of the file; they grow with each row group."""

    def feed(self, row: Any) -> None:
        """Add a row."""

    def share(self, rows: Any) -> None:
        """Write these rows of ``Format.shared``, too."""

    def settle(self) -> int:
        """Add shared rows that are not counted, up to one that causes a write. Returns their number."""

    def prepare(self, records: DecodedBatch) -> Any:
        """Convert all records of a batch, which must be plain, for any file with the same columns."""

    def feed_some(self, prepared: Any, start: int, room: int) -> int:
        """Add records from ``start`` on: at least one, and none after the one that causes a write or makes
        this file hold more than ``room`` bytes of them.

        Returns:
            The index of the next record.
        """

    def flush(self) -> None:
        """Write the rows that are held."""

    def close(self) -> None:
        """Write the rest; the underlying file stays open."""


class SharedRows(Protocol):
    """Rows that the core adds, besides ``RowFile.feed``.

    Attributes:
        capacity: rows and bytes with which it is full.
        columns: where the core adds them.
    """

    capacity: tuple[int, int]
    columns: Any

    @property
    def is_full(self) -> bool:
        """Whether it has as many."""

    @property
    def uncounted(self) -> int:
        """Number of rows that are not counted."""

    def wait(self) -> Any:
        """Where the core adds rows that wait."""

    def move(self, rows: int, latency_us: int | None, also_in: str | None) -> int:
        """Add the first of these, at most so many, and none after one with which it is full. Returns how
        many.

        Args:
            rows: how many.
            latency_us: end-to-end latency of all of them, if they are records.
            also_in: the exchange with their copies.
        """

    def note_counted(self) -> None:
        """Note that all are counted."""


class Format(Protocol):
    """A format of files.

    Attributes:
        name: for people.
        compression: one of ``COMPRESSIONS``.
        suffix: of file names; readers recognize the compression by it.
        using: its name in Spark SQL.
    """

    name: str
    compression: str
    suffix: str
    using: str

    def columns(self, table: Table) -> tuple[Column, ...]:
        """The columns of a table in this format."""

    def open(self, file: BinaryIO, columns: Sequence[Column]) -> RowFile:
        """Start a file."""

    def shared(self, columns: Sequence[Column]) -> SharedRows:
        """Rows for one file after the other, to which the core adds some."""

    def record_plan(self, context: PlanContext, columns: Sequence[Column]) -> RecordPlan:
        """What the core must know to add records."""

    def concatenate(self, file: BinaryIO, parts: Iterable[BinaryIO]) -> None:
        """Write the rows of other files of a table, one after the other."""


class JsonFormat:
    """JSON lines, bodies as objects."""

    name = "jsonl"
    using = "JSON"

    def __init__(self, compression: str = NONE) -> None:
        self.compression = compression
        self.suffix = ".jsonl" if compression == NONE else f".jsonl.{compression}"

    def columns(self, table: Table) -> tuple[Column, ...]:
        """The columns of a table in this format, which has no bytes."""
        return table.columns

    def open(self, file: BinaryIO, columns: Sequence[Column]) -> RowFile:
        """Start a file."""
        return JsonFile(file, columns, self.compression)

    def shared(self, columns: Sequence[Column]) -> SharedRows:
        """Lines for one file after the other, to which the core adds some."""
        return _SharedLines(columns)

    def record_plan(self, context: PlanContext, columns: Sequence[Column]) -> RecordPlan:
        """What the core must know to add records."""
        return RecordLines(len, columns=columns).plan_of_core(context)

    def concatenate(self, file: BinaryIO, parts: Iterable[BinaryIO]) -> None:
        """Write the rows of other files, which may be compressed."""
        for part in parts:
            shutil.copyfileobj(part, file, _COPIED_BYTES)


class _SharedLines:
    """Lines of the core that no file has yet."""

    capacity = _MAX_SHARED_ROWS, _SHARED_BYTES

    def __init__(self, columns: Sequence[Column]) -> None:
        self._heads = JsonLines(len, columns=columns).heads
        self.columns = core.native.TableLines(self._heads)
        self._waiting = self.columns

    @property
    def is_full(self) -> bool:
        """Whether they have as many bytes."""
        return self.columns.held >= _SHARED_BYTES

    def wait(self) -> core.native.TableLines:
        """Where the core adds lines that wait."""
        self._waiting = core.native.TableLines(self._heads)
        return self._waiting

    def move(self, rows: int, latency_us: int | None, also_in: str | None) -> int:
        """Add the first of these, see ``SharedRows``."""
        lines = self._waiting.take_first(rows)
        if latency_us is not None or also_in is not None:
            lines = joined_lines(lines, latency_us, also_in)
        self.columns.add(lines)
        return rows

    @property
    def uncounted(self) -> int:
        """Number of all lines: files take those that they count."""
        return self.columns.rows

    def note_counted(self) -> None:
        """Do nothing: those that are counted are not here."""


class JsonFile:
    """Lines, and their compressor; the same rows make the same bytes."""

    held = footer = 0  # the lines hold little

    def __init__(self, file: BinaryIO, columns: Sequence[Column], compression: str) -> None:
        self._packer: Any = None
        if compression == GZ:
            self._packer = gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0)
        elif compression == ZST:
            self._packer = zstandard.ZstdCompressor(_ZSTD_LEVEL).stream_writer(file, closefd=False)
        self.lines = JsonLines((self._packer or file).write, columns=columns)
        self._records = RecordValues(self.lines.getters)
        self._shared: _SharedLines | None = None

    def feed(self, row: Any) -> None:
        """Write a line."""
        self.lines.feed(row)

    def share(self, rows: _SharedLines) -> None:
        """Write these lines, too."""
        self._shared = rows

    def settle(self) -> int:
        """Add shared lines up to one that causes a write, see ``RowFile``."""
        assert self._shared is not None
        before = self._shared.uncounted
        self.lines.add(self._shared.columns.take(self.lines.room))
        return before - self._shared.uncounted

    def prepare(self, records: DecodedBatch) -> list[bytes]:
        """The lines of all records of a batch."""
        names = [name for name, _ in self.lines.getters]
        return [json_line(dict(zip(names, row, strict=True))) for row in self._records.rows(records)]

    def feed_some(self, prepared: list[bytes], start: int, room: int) -> int:  # noqa: ARG002  (holds hardly anything)
        """Write one of them, see ``RowFile``."""
        self.lines.add(prepared[start])
        return start + 1

    def flush(self) -> None:
        """Write the lines that are held; the compressor may keep some."""
        self.lines.close()

    def close(self) -> None:
        """Write the rest, and the end of the compressed data."""
        self.lines.close()
        if self._packer is not None:
            self._packer.close()


# ------------------------------------------------------------------------------------------------------------
# A directory -> a lock, so that only one program at a time writes tables into it. Holds an open file.
#
# The kernel releases the lock when its holder ends, in whatever way. The lock file is removed at an orderly
# end; one left by a killed program does no harm.
# ------------------------------------------------------------------------------------------------------------


LOCK = ".kdissect.lock"


@contextmanager
def locked(directory: Path, mode: int = PRIVATE) -> Iterator[None]:
    """Lock a directory, unless it is in a store; it is created if it does not exist, and removed again if it
    stays empty.

    Args:
        directory: to write to.
        mode: permissions of the files in it.

    Raises:
        OutputError: another program has locked it, or it cannot be written to.
    """
    if is_stored(directory):  # a store has no locks
        yield
        return
    path = directory / LOCK
    is_new = not directory.exists()
    try:
        make_directory(directory, mode)
        lock = _take_lock(path, mode)
    except OSError as error:
        raise WriteError.of(directory, error) from None
    try:
        yield
    finally:
        path.unlink(
            missing_ok=True
        )  # before the lock is released: a program that has opened it notices the removal
        os.close(lock)
        if is_new:
            with suppress(OSError):  # it is not empty
                directory.rmdir()


def _take_lock(path: Path, mode: int) -> int:
    """Open and lock the lock file."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, mode)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:
                os.truncate(lock, 0)
                os.write(lock, b"%d\n" % os.getpid())
                return lock
        except BlockingIOError:
            holder = os.read(lock, 20).decode(errors="replace").strip()
            os.close(lock)
            who = f" (process {holder})" if holder else ""
            raise OutputError(
                f"{path.parent} is in use by another kdissect{who}; use a new directory"
            ) from None
        except OSError:
            os.close(lock)
            raise
        os.close(lock)  # it was removed in the meantime
