"""The environment of child processes: where Python looks for modules.

``python -m`` puts the current directory first on the module path, and Spark starts its workers that way. Then
a ``json.py`` in a directory of captures would be executed, as root if root captures on an interface.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def python_environment() -> dict[str, str]:
    """Environment variables for a child process that runs the same Python.

    The child imports the same modules as this process, including this kdissect, and none from the current
    directory unless this process does so too. ``-I`` would not work: it ignores packages installed with
    ``--user``.
    """
    home = str(Path(__file__).parent.parent)
    # A path with a colon cannot be passed on: PYTHONPATH would split it.
    path = [entry for entry in map(str, sys.path) if entry and os.pathsep not in entry]
    if home not in path:  # an editable install uses an import hook, `python -c` the current directory
        path.insert(0, home)
    variables = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(path)}
    if sys.flags.no_user_site:
        variables["PYTHONNOUSERSITE"] = "1"
    return variables
