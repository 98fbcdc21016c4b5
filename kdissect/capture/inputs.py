"""Names of files, folders and patterns -> the names of captures. Holds nothing.

A folder stands for all captures in it and in the folders below, told by their first bytes; hidden ones, and
the folder that is written to, are passed over. A pattern that the shell did not expand (in quotes, or because
arguments would be too many) is expanded here, ``**`` included.
"""

from __future__ import annotations

import os
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from kdissect.capture.reader import is_capture
from kdissect.errors import CaptureError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STDIN = "-"
_SIGNS = frozenset("*?[")


def captures(names: Iterable[str], *, but: Path | None = None) -> tuple[str, ...]:
    """The captures that are meant, each once, in the order of their names where they were not named one by
    one.

    Args:
        names: as the user gave them.
        but: a folder to pass over.

    Raises:
        UsageError: a pattern fits nothing.
        CaptureError: there is no capture in a folder, or it cannot be looked into.
    """
    found: dict[str, None] = {}
    for name in names:
        found.update(dict.fromkeys(_meant(name, but)))
    return tuple(found)


def _meant(name: str, but: Path | None) -> Iterator[str]:
    path = Path(name)
    if name == STDIN or path.is_file():
        yield name
    elif path.is_dir():
        yield from _in_folder(path, but)
    elif _SIGNS.isdisjoint(name) or path.exists():
        yield name  # a pipe, or nothing: opening it will tell
    else:
        names = sorted(glob(name, recursive=True))  # noqa: PTH207  (Path.glob takes no absolute pattern)
        if not names:
            raise UsageError(f"no file fits {name}")
        for each in names:
            yield from _in_folder(Path(each), but) if Path(each).is_dir() else (each,)


def _in_folder(folder: Path, but: Path | None) -> list[str]:
    """The captures in a folder and below it.

    Raises:
        CaptureError: there is none.
    """
    found = []
    passed_over = None if but is None else but.resolve()

    def refuse(error: OSError) -> None:
        raise CaptureError(f"{error.filename}: {error.strerror}") from None

    for place, folders, files in os.walk(folder, onerror=refuse):
        here = Path(place)
        folders[:] = sorted(
            each
            for each in folders
            if not each.startswith((".", "_")) and (here / each).resolve() != passed_over
        )
        found += [
            str(here / each)
            for each in sorted(files)
            if not each.startswith(".") and _is_capture(here / each)
        ]
    if not found:
        raise CaptureError(f"{folder}: no capture in this folder or below")
    return found


def _is_capture(path: Path) -> bool:
    """Whether it begins like one; what cannot be read is for the one who opens it to tell."""
    try:
        return path.is_file() and is_capture(path)
    except OSError:
        return True
