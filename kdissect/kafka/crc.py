"""The checksum of record batches, CRC-32C (RFC 3720): the function of the ``crc32c`` package, without the
rest of it.

To tell its own version the package loads what reads the metadata of packages, and with that what reads mail
and zip files: a tenth of all that ``records`` does before it opens a file. Holds nothing.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    Checksum = Callable[[bytes | memoryview], int]


def _load() -> Checksum:
    package = PathFinder.find_spec("crc32c")
    extension = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if not extension or not extension.loader:  # it came in another form
        import crc32c as whole

        return cast("Checksum", whole.crc32c)
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    return cast("Checksum", module.crc32c)


crc32c = _load()
