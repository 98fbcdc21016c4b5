"""Files and folders for what was captured. They are for their owner alone unless the user says otherwise,
since payloads and credentials may be in them, and no symbolic link is followed to them: in a folder that
others may write to, one could lead to any file of the user. Holds nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

PRIVATE = 0o600
"""Permissions of a file unless the user says otherwise."""

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC


def create(path: Path, mode: int = PRIVATE) -> BinaryIO:
    """Open a new file to write to, in place of one that stands there: whoever may read that one, or has it
    open, gets nothing of the new one. What is no file, such as a named pipe, is written to as it is.

    Args:
        path: of the file.
        mode: its permissions, whatever the umask.

    Raises:
        OSError: it cannot be made, or a symbolic link stands there.
    """
    if (special := _special(path)) is not None:
        return special
    path.unlink(missing_ok=True)
    file = os.fdopen(os.open(path, _WRITE | os.O_EXCL | os.O_NOFOLLOW, mode), "wb")
    _permit(file, mode)
    return file


@contextmanager
def replacing(path: Path, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """A new file as ``create`` opens it, which gets its name when all of it is on disk. What stands there
    stays if nothing is written or something is raised.

    Raises:
        OSError: it cannot be made, or a symbolic link stands there.
    """
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
    """Have all of an open file on disk, close it, and give it its name: on disk too, when this returns.

    Raises:
        OSError: it is not.
    """
    file.flush()
    os.fsync(file.fileno())
    file.close()
    unfinished.replace(path)
    _sync(path.parent)


def make_folder(folder: Path, mode: int = PRIVATE, *, below: Path | None = None) -> None:
    """Make a folder and those above it where they do not exist, such that they stay.

    Args:
        folder: to be made.
        mode: permissions of the files in it; who may read these may open the folders that are made.
        below: a folder above it; symbolic links are followed down to there, and none from there on.

    Raises:
        OSError: it cannot be made, or is reached by a symbolic link.
    """
    above = (folder, *folder.parents)
    for each in above[: 0 if below is None else above.index(below)]:
        if each.is_symlink():
            raise _is_link(each)
    for each in reversed([each for each in above if not each.exists()]):
        with suppress(FileExistsError):  # another process was faster
            each.mkdir(0o700)
            each.chmod(0o700 | mode | (mode & 0o444) >> 2)
        _sync(each.parent)


def _special(path: Path) -> BinaryIO | None:
    """Open what stands there to be written to and is no file; None: it is a file, or nothing.

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
    folder = path.parent.resolve()
    if folder != Path("/dev") and not folder.is_relative_to("/proc"):
        raise _is_link(path)
    return path.open("wb")


def _is_link(path: Path) -> OSError:
    return OSError(errno.ELOOP, f"{path.name} is a symbolic link, which is not followed")


def _permit(file: BinaryIO, mode: int) -> None:
    with suppress(OSError):  # file systems without permissions
        os.fchmod(file.fileno(), mode)


def _sync(folder: Path) -> None:
    """Have the names in a folder on disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
