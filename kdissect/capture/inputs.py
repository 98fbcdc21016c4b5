"""Names of files, directories and globs -> names of captures.

A directory stands for all captures in it and in its subdirectories, recognized by their first bytes, and for
empty files, which are reported when they are opened. Hidden files and the output directory are skipped. Globs
that the shell did not expand (in quotes, or because there would be too many arguments) are expanded here,
including ``**``.
"""

from __future__ import annotations

import os
import re
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from kdissect.capture.reader import is_capture
from kdissect.errors import CaptureError, UsageError
from kdissect.phrases import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STDIN = "-"
_WILDCARDS = frozenset("*?[")
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<path>/.*)", re.DOTALL)


def local(name: str) -> str:
    """The path of a ``file:`` URL; a path is returned unchanged. Must be called before the name becomes a
    ``Path``, which would turn ``s3a://bucket`` into a directory ``s3a:``.

    Raises:
        UsageError: it is another kind of URL.
    """
    url = _URL.fullmatch(name)
    if url is None:
        return name
    if url["scheme"].lower() != "file":
        raise UsageError(f"{printable(name)} is a URL, which is not supported; use a local or mounted path")
    return re.sub("^/{2,}", "/", url["path"])


def captures(names: Iterable[str], *, exclude: Path | None = None) -> tuple[str, ...]:
    """The captures that the names stand for, each once. Those of a directory or glob are sorted by name.

    Args:
        names: as the user wrote them.
        exclude: a directory to skip.

    Raises:
        UsageError: a glob matches nothing, or a name is a URL.
        CaptureError: a directory has no captures, or cannot be read.
    """
    paths: dict[str, None] = {}
    for name in names:
        paths.update(dict.fromkeys(_expand(local(name), exclude)))
    return tuple(paths)


def _expand(name: str, exclude: Path | None) -> Iterator[str]:
    path = Path(name)
    if name == STDIN or path.is_file():
        yield name
    elif path.is_dir():
        yield from _in_folder(path, exclude)
    elif _WILDCARDS.isdisjoint(name) or path.exists():
        yield name  # a pipe, or missing: opening it will tell
    else:
        names = sorted(glob(name, recursive=True))  # noqa: PTH207  (Path.glob takes no absolute pattern)
        if not names:
            raise UsageError(f"no file matches {printable(name)}")
        for each in names:
            yield from _in_folder(Path(each), exclude) if Path(each).is_dir() else (each,)


def _in_folder(folder: Path, exclude: Path | None) -> list[str]:
    """The captures in a directory and its subdirectories.

    Raises:
        CaptureError: there are none.
    """
    paths = []
    excluded = None if exclude is None else exclude.resolve()

    def refuse(error: OSError) -> None:
        raise CaptureError(f"{error.filename}: {error.strerror}") from None

    for directory, folders, files in os.walk(folder, onerror=refuse):
        here = Path(directory)
        folders[:] = sorted(
            each
            for each in folders
            if not each.startswith((".", "_")) and (here / each).resolve() != excluded
        )
        paths += [
            str(here / each)
            for each in sorted(files)
            if not each.startswith(".") and _is_capture(here / each)
        ]
    if not paths:
        raise CaptureError(f"{folder}: no capture files in this directory or its subdirectories")
    return paths


def _is_capture(path: Path) -> bool:
    """Whether a file begins as a capture does, is empty (except markers such as ``_SUCCESS``), or cannot be
    read. The last two are reported when it is opened.
    """
    try:
        is_empty = path.stat().st_size == 0 and not path.name.startswith("_")
        return path.is_file() and (is_empty or is_capture(path))
    except OSError:
        return True
