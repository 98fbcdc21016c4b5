"""Names of files, directories and globs -> names of captures. Each can be a path or the URL of a store.

A directory stands for all captures in it and in its subdirectories, recognized by their first bytes, and for
empty files, which are reported when they are opened. Hidden files and the output directory are skipped. Globs
that the shell did not expand (in quotes, or because there would be too many arguments) are expanded here,
including ``**`` and ``{a,b}``.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from kdissect.capture import stores
from kdissect.capture.reader import is_capture
from kdissect.errors import CaptureError, UsageError
from kdissect.phrases import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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


def absolute(name: str) -> str:
    """The name of a capture in any working directory."""
    return name if name == STDIN else stores.normalized(name) or os.path.abspath(local(name))  # noqa: PTH100


def output_directory(name: str | Path) -> Path:
    """The directory to write tables to, for a path or a URL.

    Raises:
        UsageError: it is a URL of another kind.
    """
    url = stores.normalized(str(stores.StorePath(name)))
    return Path(local(str(name))) if url is None else cast("Path", stores.StorePath(url))


class Candidate(NamedTuple):
    """A file that may be a capture.

    Attributes:
        is_named: whether the user, or a glob, named the file itself, so that it is reported if it is none.
        status: its status, if that is known from a listing.
    """

    is_named: bool
    status: stores.Status | None = None

    def begins_as_capture(self, name: str) -> bool:
        """Whether to read it, by its first bytes; files of other kinds in directories are skipped."""
        return self.is_named or begins_as_capture(name)


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
        listed = candidates((name,), exclude=exclude)
        matched = [path for path, candidate in listed.items() if candidate.begins_as_capture(path)]
        if not matched:
            raise CaptureError(f"{printable(name)}: {NOTHING}")
        paths.update(dict.fromkeys(matched))
    return tuple(paths)


def candidates(
    names: Iterable[str],
    *,
    exclude: Path | None = None,
    is_recursive: bool = True,
    must_match: bool = True,
) -> dict[str, Candidate]:
    """The files that the names stand for, as ``captures``, but no file is opened, and directories may be
    empty.

    Args:
        names: as the user wrote them.
        exclude: a directory to skip.
        is_recursive: whether to include subdirectories of directories.
        must_match: whether a glob that matches nothing is an error.
    """
    files: dict[str, Candidate] = {}
    for name in names:
        url = stores.normalized(name)
        expand = _expand_url(url, is_recursive) if url else _expand(local(name), exclude, is_recursive)
        matched = dict(expand)
        if must_match and not matched and not stores.WILDCARDS.isdisjoint(name) and not Path(name).is_dir():
            raise UsageError(f"no file matches {printable(name)}")
        for path, candidate in matched.items():
            files.setdefault(path, candidate)
    return files


def _expand(name: str, exclude: Path | None, is_recursive: bool) -> Iterator[tuple[str, Candidate]]:
    path = Path(name)
    if name == STDIN or path.is_file():
        yield name, Candidate(is_named=True)
    elif path.is_dir():
        yield from _in_directory(path, exclude, is_recursive)
    elif stores.WILDCARDS.isdisjoint(name) or path.exists():
        yield name, Candidate(is_named=True)  # a pipe, or missing: reported when it is opened
    else:
        # Path.glob takes no absolute pattern
        names = {each for one in without_braces(name) for each in glob(one, recursive=True)}  # noqa: PTH207
        for each in sorted(names):
            if Path(each).is_dir():
                yield from _in_directory(Path(each), exclude, is_recursive)
            else:
                yield each, Candidate(is_named=True)


def _expand_url(url: str, is_recursive: bool) -> Iterator[tuple[str, Candidate]]:
    try:
        with suppress(OSError):  # a directory, or reported when it is listed
            status = stores.status(url)
            if status.size is not None:
                yield url, Candidate(True, status)
                return
        if stores.WILDCARDS.isdisjoint(url):
            listed = {url: stores.Status(None, 0)}
        else:
            listed = {}
            for each in without_braces(url):
                listed.update(stores.matching(each))
        for name, status in sorted(listed.items()):
            is_directory = status.size is None
            yield from _in_store(name, is_recursive) if is_directory else ((name, Candidate(True, status)),)
    except OSError as error:
        raise CaptureError(f"{url}: {error.strerror}") from None


def _in_store(url: str, is_recursive: bool) -> list[tuple[str, Candidate]]:
    """As ``_in_directory``.

    Raises:
        OSError: the store cannot be reached.
    """
    listed = stores.listing(url, is_recursive=is_recursive)
    if not listed:
        return [(url, Candidate(is_named=True))]  # missing: reported when it is opened
    files = []
    for name, status in listed.items():
        *directories, last = name.removeprefix(url).strip("/").split("/")
        is_hidden = last.startswith(".") or any(each.startswith((".", "_")) for each in directories)
        if status.size is not None and not is_hidden:
            files.append(([*((1, each) for each in directories), (0, last)], name, Candidate(False, status)))
    return [entry[1:] for entry in sorted(files)]  # as os.walk: files before subdirectories


def without_braces(pattern: str) -> Iterator[str]:
    """``{a,b}*`` -> ``a*``, ``b*``; and ``[^a]``, which Python's globs do not have, -> ``[!a]``."""
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern.replace("[^", "[!")
        return
    for each in braces[1].split(","):
        yield from without_braces(pattern[: braces.start()] + each + pattern[braces.end() :])


def _in_directory(
    directory: Path, exclude: Path | None, is_recursive: bool
) -> Iterator[tuple[str, Candidate]]:
    """The files in a directory, and in its subdirectories if ``is_recursive``."""
    excluded = None if exclude is None else exclude.resolve()

    def refuse(error: OSError) -> None:
        raise CaptureError(f"{error.filename}: {error.strerror}") from None

    for path, directories, files in os.walk(directory, onerror=refuse):
        here = Path(path)
        shown = (
            sorted(each for each in directories if not each.startswith((".", "_"))) if is_recursive else []
        )
        directories[:] = [each for each in shown if excluded is None or (here / each).resolve() != excluded]
        for each in sorted(files):
            if not each.startswith("."):
                yield str(here / each), Candidate(is_named=False)


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
