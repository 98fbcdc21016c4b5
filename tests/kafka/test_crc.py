from __future__ import annotations

import subprocess
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

import crc32c as whole
import pytest

from kdissect.kafka import primitives

if TYPE_CHECKING:
    from kdissect.kafka.primitives import Checksum


def agrees(checksum: Checksum) -> bool:
    """With the check value of RFC 3720's polynomial, and with the package."""
    data = bytes(range(256)) * 5
    return checksum(b"123456789") == 0xE3069283 and checksum(memoryview(data)[3:]) == whole.crc32c(data[3:])


def test_is_the_checksum_of_batches() -> None:
    assert agrees(primitives.crc32c)


@pytest.mark.parametrize("missing", ["crc32c", "crc32c._crc32c"])
def test_where_the_package_is_built_otherwise_it_is_loaded_whole(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    result = PathFinder.find_spec

    def find(name: str, path: list[str] | None = None) -> object:
        return None if name == missing else result(name, path)

    monkeypatch.setattr(PathFinder, "find_spec", find)
    assert agrees(primitives._load())


def test_loads_nothing_of_the_package_but_it() -> None:
    program = "import sys, kdissect.kafka.batches; print('crc32c' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
