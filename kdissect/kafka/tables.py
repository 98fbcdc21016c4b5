"""Package data beside this module (tables, lists, texts of messages) -> rows and text. Holds nothing: who
asks, keeps.
"""

from __future__ import annotations

import os
from typing import Any


def rows(name: str) -> list[dict[str, str]]:
    """Read a table: tab separated, the first line names the columns, an empty cell is an empty string."""
    head, *lines = (line.split("\t") for line in text(name).splitlines())
    return [dict(zip(head, line, strict=True)) for line in lines]


def lines(name: str) -> list[str]:
    """Read a list: one item a line, without comments and empty lines."""
    items = (line.partition("#")[0].strip() for line in text(name).splitlines())
    return [item for item in items if item]


def text(name: str) -> str:
    """Read a file, ``messages/headers.kmsg`` say."""
    # Who loaded this module reads from a zip too, the form in which Spark ships us. importlib.resources does
    # as well, but loading it takes a tenth of the time of a short run. The folder keeps its name: workers
    # have ./kdissect.zip, which Path would call kdissect.zip, and nothing is found under that.
    loader: Any = __spec__.loader
    folder, separator, _ = __file__.rpartition(os.sep)
    data: bytes = loader.get_data(f"{folder}{separator}{name}")
    return data.decode()
