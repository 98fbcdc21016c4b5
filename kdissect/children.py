"""How processes that this one starts find their modules. Holds nothing.

Python puts the current folder first on the module path of ``python -m``, and Spark starts its workers that
way too. Then a ``json.py`` in a folder of captures would run, as root where root listens to an interface.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def python_environment() -> dict[str, str]:
    """Environment variables for a child process that runs the same Python.

    It imports the modules that this process imports, this very kdissect included, and none from the current
    folder unless this process does so too. Not by ``-I``, which would lose what is installed with ``--user``.
    """
    home = str(Path(__file__).parent.parent)
    # A path with a colon cannot be passed on: its pieces would be taken for folders.
    path = [entry for entry in map(str, sys.path) if entry and os.pathsep not in entry]
    if home not in path:  # an editable install finds it by a hook, `python -c` by the current folder
        path.insert(0, home)
    variables = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(path)}
    if sys.flags.no_user_site:
        variables["PYTHONNOUSERSITE"] = "1"
    return variables
