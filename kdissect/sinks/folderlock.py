"""A folder -> one program at a time that writes tables into it. Holds an open file.

The kernel lets go of the lock when its holder ends, however it ends. The file itself is removed at an orderly
end; one that is left by a program that was killed is in nobody's way.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kdissect.errors import OutputError
from kdissect.files import PRIVATE, make_folder
from kdissect.sinks.tablefiles import cannot_write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK = ".kdissect.lock"


@contextmanager
def locked(folder: Path, mode: int = PRIVATE) -> Iterator[None]:
    """Have a folder for oneself; it is made where it does not exist, and removed again if it stays empty.

    Args:
        folder: that is written to.
        mode: permissions of the files that will be in it.

    Raises:
        OutputError: another program has it, or it cannot be written to.
    """
    path = folder / LOCK
    is_new = not folder.exists()
    try:
        make_folder(folder, mode)
        lock = _taken(path, mode)
    except OSError as error:
        raise cannot_write(folder, error) from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # before it is let go of: whoever opened it sees that it is gone
        os.close(lock)
        if is_new:
            with suppress(OSError):  # there is something in it
                folder.rmdir()


def _taken(path: Path, mode: int) -> int:
    """The lock file, open and locked."""
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
                f"{path.parent} is being written to by another kdissect{who}; name a new folder"
            ) from None
        except OSError:
            os.close(lock)
            raise
        os.close(lock)  # it was removed meanwhile
