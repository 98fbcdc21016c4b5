"""Creates output files and directories safely.

A file in an object store (``capture/stores.py``) is a temporary file on this machine until it is published.

Files may contain payloads and credentials, so only their owner can read them unless the user says otherwise.
Symbolic links are not followed: in a directory that others can write to, a link could point to any file of
the user.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile, gettempdir, mkstemp
from typing import TYPE_CHECKING, Any, BinaryIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

PRIVATE = 0o600
"""Permissions of a file unless the user says otherwise."""

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC


def is_stored(path: Path) -> bool:
    """Whether a path is the URL of a file or directory in an object store, see ``capture/stores.py``."""
    return not isinstance(path, Path)


def create(path: Path, mode: int = PRIVATE) -> BinaryIO:
    """Create a file for writing. An existing file is deleted first, so that processes that may read it or
    have it open do not see the new content. A path that is not a file, such as a named pipe, is opened.

    Args:
        path: of the file.
        mode: its permissions, regardless of the umask.

    Raises:
        OSError: it cannot be created, or the path is a symbolic link.
    """
    if is_stored(path):
        return TemporaryFile()
    if (special := _special(path)) is not None:
        return special
    path.unlink(missing_ok=True)
    file = os.fdopen(os.open(path, _WRITE | os.O_EXCL | os.O_NOFOLLOW, mode), "wb")
    _permit(file, mode)
    return file


@contextmanager
def replacing(path: Path, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """A new file that gets its name only when it is completely on disk. An existing file is kept if nothing
    is written or an exception is raised. Other paths are opened as by ``create``.

    Raises:
        OSError: it cannot be created, or the path is a symbolic link.
    """
    if is_stored(path):
        with TemporaryFile() as file:
            yield file
            publish(file, path, path)
        return
    if (special := _special(path)) is not None:
        with special:
            yield special
        return
    number, name = mkstemp(prefix=f".{path.name}.", suffix=".unfinished", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            _permit(file, mode)
            yield file
            if file.tell():
                publish(file, Path(name), path)
    finally:
        Path(name).unlink(missing_ok=True)


def publish(file: BinaryIO, unfinished: Path, path: Path) -> None:
    """Flush an open file to disk, close it, and rename it. When this returns, the name is on disk too.

    Raises:
        OSError: one of these failed.
    """
    file.flush()
    if is_stored(path):
        cast("Any", path).send(file)
        file.close()
        return
    os.fsync(file.fileno())
    file.close()
    unfinished.replace(path)
    sync(path.parent)


def move(path: Path, target: Path) -> None:
    """Rename a finished file, in the same file system or store. The caller makes the new name durable.

    Raises:
        OSError: it cannot be renamed.
    """
    if is_stored(path):
        cast("Any", path).move(target)
    else:
        path.replace(target)


def remove_all(directory: Path) -> None:
    """Remove a directory with all that is in it, as far as possible."""
    if is_stored(directory):
        cast("Any", directory).rmtree()
    else:
        shutil.rmtree(directory, ignore_errors=True)


def make_directory(directory: Path, mode: int = PRIVATE, *, below: Path | None = None) -> None:
    """Create a directory and its missing parents, durably.

    Args:
        directory: to create.
        mode: permissions of the files in it; those who can read the files can also list the new directories.
        below: a parent of it: symbolic links in its own path are followed, but none below it.

    Raises:
        OSError: it cannot be created, or there is a symbolic link below ``below``.
    """
    if is_stored(directory):
        return
    above = (directory, *directory.parents)
    for each in above[: 0 if below is None else above.index(below)]:
        if each.is_symlink():
            raise _is_link(each)
    for each in reversed([each for each in above if not each.exists()]):
        with suppress(FileExistsError):  # another process was faster
            each.mkdir(0o700)
            each.chmod(0o700 | mode | (mode & 0o444) >> 2)
        sync(each.parent)


def _special(path: Path) -> BinaryIO | None:
    """Open a path that exists and is not a regular file; None if it is one, or does not exist.

    Raises:
        OSError: it is a symbolic link, or cannot be written to.
    """
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISREG(kind):
        return None
    if not stat.S_ISLNK(kind):
        return os.fdopen(os.open(path, _WRITE | os.O_NOFOLLOW, PRIVATE), "wb")
    # The system's own links are followed: /dev/stdout, and /dev/fd/63, a shell's >(command).
    directory = path.parent.resolve()
    if directory != Path("/dev") and not directory.is_relative_to("/proc"):
        raise _is_link(path)
    return path.open("wb")


def _is_link(path: Path) -> OSError:
    return OSError(errno.ELOOP, f"{path.name} is a symbolic link, which is not followed")


def _permit(file: BinaryIO, mode: int) -> None:
    with suppress(OSError):  # file systems without permissions
        os.fchmod(file.fileno(), mode)


def sync(directory: Path) -> None:
    """Flush a directory's entries to disk."""
    if is_stored(directory):
        return
    number = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def temporary_file_error(error: OSError) -> str:
    """Why a temporary file could not be written, and where to make room."""
    return f"temporary file in {gettempdir()}: {error.strerror or error}"
