"""This package -> a zip that Spark gives to its workers (``--py-files``). Holds the zip's table of contents.

Python imports modules from such a zip, and ``importlib.resources`` reads the texts of messages from it. What
kdissect needs of other packages is not in it: they are compiled, and installed where workers run.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from kdissect.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable
    from pathlib import Path

PACKAGE, SOURCE = "kdissect", "pyspark_kdissect"
_ENDINGS = (".py", ".kmsg", ".tsv", ".txt", ".typed")


def write(path: Path) -> int:
    """Write the zip, the same bytes each time; how many files are in it.

    Raises:
        OutputError: it cannot be written.
    """
    count = 0
    try:
        with ZipFile(path, "w", ZIP_DEFLATED) as made:
            for name, content in _files():
                made.writestr(ZipInfo(name), content, ZIP_DEFLATED)
                count += 1
    except OSError as error:
        raise OutputError(f"cannot write to {path}: {error.strerror or error}") from None
    return count


def _files() -> Iterator[tuple[str, bytes]]:
    spec = find_spec(SOURCE)
    source = spec.loader.get_source(SOURCE) if spec is not None and spec.loader is not None else None  # type: ignore[attr-defined]
    if source is not None:
        yield f"{SOURCE}.py", source.encode()
    yield from _below(files(PACKAGE), PACKAGE)


def _below(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        path = f"{name}/{each.name}"
        if each.is_dir():
            yield from _below(each, path)
        elif each.name.endswith(_ENDINGS):
            yield path, each.read_bytes()
