"""The folder of tables that a command was given -> its address for Spark. Holds the manifests that are there.

What this machine can see is looked at before Spark is started, which takes seconds.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from kdissect.cli.terminal import warn
from kdissect.errors import UsageError
from kdissect.sinks.manifest import FOLDER, MANIFEST

if TYPE_CHECKING:
    from kdissect.spark.session import Place

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def address(folder: str, place: Place | None = None) -> str:
    """The folder as Spark finds it, wherever it runs: a server has another working directory.

    Args:
        folder: a path, or a URL that Spark knows.
        place: where Spark runs; None: nothing needs to be in the folder.

    Raises:
        UsageError: there are no tables.
    """
    path = Path(folder)
    if _URL.match(folder):
        return folder
    if place is not None:
        found = [json.loads(each.read_text("utf-8")) for each in sorted(path.glob(f"*/{FOLDER}/{MANIFEST}"))]
        if place.is_here and not found:
            raise UsageError(f"no tables in {folder}; kdissect export or kdissect spark decode writes some")
        unfinished = ", ".join(each["table"] for each in found if not each["complete"])
        if unfinished:
            warn(f"warning: not complete, because what wrote it was interrupted: {unfinished}")
    return str(path.absolute())
