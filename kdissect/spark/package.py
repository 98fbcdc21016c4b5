"""This package -> a zip for Spark's workers (``--py-files``). Holds the zip's directory.

Python imports modules from such a zip, and ``importlib.resources`` reads the ``.kmsg`` files from it. The
dependencies of kdissect are not in it: they have compiled code, and must be installed on the workers. The
native core is not either, because Python cannot import it from a zip. So where the same version is installed,
the package in the zip takes its modules from there.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from kdissect.errors import WriteError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

PACKAGE, SOURCE = "kdissect", "pyspark_kdissect"
_INSTALLED = b"""

def _use_installed() -> None:  # only in the zip
    from importlib.metadata import PackageNotFoundError, distribution

    from kdissect.version import __version__

    try:
        found = distribution("kdissect")
    except PackageNotFoundError:
        return
    place = found.locate_file("kdissect")
    if found.version == __version__ and place.is_dir():
        __path__[:] = [str(place)]


_use_installed()
"""
_ENDINGS = (".py", ".kmsg", ".tsv", ".txt", ".typed", ".html", ".css", ".js")


def write(path: Path) -> int:
    """Write the zip, the same bytes each time; return the number of files in it.

    Raises:
        OutputError: the zip cannot be written.
    """
    count = 0
    try:
        with ZipFile(path, "w", ZIP_DEFLATED) as archive:
            for name, content in _files():
                archive.writestr(ZipInfo(name), content, ZIP_DEFLATED)
                count += 1
    except OSError as error:
        raise WriteError.of(path, error) from None
    return count


@cache
def temporary() -> str:
    """The path of a zip that this process writes once, and removes when it ends."""
    directory = tempfile.mkdtemp(prefix="kdissect-spark-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    write(Path(directory, f"{PACKAGE}.zip"))
    return f"{directory}/{PACKAGE}.zip"


def _files() -> Iterator[tuple[str, bytes]]:
    spec = find_spec(SOURCE)
    source = spec.loader.get_source(SOURCE) if spec is not None and spec.loader is not None else None  # type: ignore[attr-defined]
    if source is not None:
        yield f"{SOURCE}.py", source.encode()
    yield from _below(files(PACKAGE), PACKAGE)


def _below(directory: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for each in sorted(directory.iterdir(), key=lambda each: each.name):
        path = f"{name}/{each.name}"
        if each.is_dir():
            yield from _below(each, path)
        elif each.name.endswith(_ENDINGS):
            content = each.read_bytes()
            is_package = path == f"{PACKAGE}/__init__.py" and not content.endswith(_INSTALLED)
            yield path, content + _INSTALLED if is_package else content
