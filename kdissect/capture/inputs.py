"""Names of files, directories and globs -> names of captures. Each can be a path or the URL of a store.

A directory stands for all captures in it and in its subdirectories, recognized by their first bytes, and for
empty files, which are reported when they are opened. Hidden files and the output directory are skipped. Globs
that the shell did not expand (in quotes, or because there would be too many arguments) are expanded here,
including ``**`` and ``{a,b}``.
"""

from __future__ import annotations

import os
import re
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kdissect.capture import stores
from kdissect.capture.reader import is_capture
from kdissect.errors import CaptureError, UsageError
from kdissect.phrases import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

STDIN = "-"
NOTHING = "no capture files in this directory or its subdirectories"
_BRACES = re.compile(r"\{([^{}]*)\}")
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


def output_folder(name: str | Path) -> Path:
    """The directory to write tables to, for a path or a URL.

    Raises:
        UsageError: it is a URL of another kind.
    """
    url = stores.normalized(str(stores.StorePath(name)))
    return Path(local(str(name))) if url is None else cast("Path", stores.StorePath(url))


def captures(
    names: Iterable[str], *, exclude: Path | None = None, fits: Callable[[str], bool] | None = None
) -> tuple[str, ...]:
    """The captures that the names stand for, each once. Those of a directory or glob are sorted by name.

    Args:
        names: as the user wrote them.
        exclude: a directory to skip.
        fits: whether a file of a directory is one of them; None: ``begins_as_capture``.

    Raises:
        UsageError: a glob matches nothing, or a name is a URL.
        CaptureError: a directory has no captures, or cannot be read.
    """
    paths: dict[str, None] = {}
    for name in names:
        url = stores.normalized(name)
        test = fits or begins_as_capture
        expanded = _expand(local(name), exclude, test) if url is None else _expand_url(url, test)
        paths.update(dict.fromkeys(expanded))
    return tuple(paths)


def _expand(name: str, exclude: Path | None, fits: Callable[[str], bool]) -> Iterator[str]:
    path = Path(name)
    if name == STDIN or path.is_file():
        yield name
    elif path.is_dir():
        yield from _in_folder(path, exclude, fits)
    elif stores.WILDCARDS.isdisjoint(name) or path.exists():
        yield name  # a pipe, or missing: reported when it is opened
    else:
        names = {each for one in without_braces(name) for each in glob(one, recursive=True)}  # noqa: PTH207
        if not names:  # Path.glob takes no absolute pattern
            raise UsageError(f"no file matches {printable(name)}")
        for each in sorted(names):
            yield from _in_folder(Path(each), exclude, fits) if Path(each).is_dir() else (each,)


def _expand_url(url: str, fits: Callable[[str], bool]) -> Iterator[str]:
    try:
        if stores.size(url) is not None:
            yield url
            return
        if stores.WILDCARDS.isdisjoint(url):
            listed = {url: stores.Status(None, 0)}
        else:
            listed = {}
            for each in without_braces(url):
                listed.update(stores.matching(each))
            if not listed:
                raise UsageError(f"no file matches {printable(url)}")
        for name, status in sorted(listed.items()):
            yield from (name,) if status.size is not None else _in_store(name, fits)
    except OSError as error:
        raise CaptureError(f"{url}: {error.strerror}") from None


def _in_store(url: str, fits: Callable[[str], bool]) -> list[str]:
    """As ``_in_folder``.

    Raises:
        OSError: the store cannot be reached.
    """
    listed = stores.listing(url)
    if not listed:
        return [url]  # missing: reported when it is opened
    files = []
    for name, status in listed.items():
        *folders, last = name.removeprefix(url).strip("/").split("/")
        is_hidden = last.startswith(".") or any(each.startswith((".", "_")) for each in folders)
        if status.size is not None and not is_hidden and fits(name):
            files.append(([*((1, each) for each in folders), (0, last)], name))
    if not files:
        raise CaptureError(f"{url}: {NOTHING}")
    return [name for _, name in sorted(files)]  # as os.walk: files before subdirectories


def without_braces(pattern: str) -> Iterator[str]:
    """``{a,b}*`` -> ``a*``, ``b*``."""
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern
        return
    for each in braces[1].split(","):
        yield from without_braces(pattern[: braces.start()] + each + pattern[braces.end() :])


def _in_folder(folder: Path, exclude: Path | None, fits: Callable[[str], bool]) -> list[str]:
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
            str(here / each) for each in sorted(files) if not each.startswith(".") and fits(str(here / each))
        ]
    if not paths:
        raise CaptureError(f"{folder}: {NOTHING}")
    return paths


def begins_as_capture(name: str) -> bool:
    """Whether a file begins as a capture does, is empty (except markers such as ``_SUCCESS``), or cannot be
    read. The last two are reported when it is opened.
    """
    try:
        size = stores.status(name).size
        is_empty = size == 0 and not name.rpartition("/")[2].startswith("_")
        return size is not None and (is_empty or is_capture(name))
    except OSError:
        return True
