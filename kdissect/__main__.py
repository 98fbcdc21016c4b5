"""``python -m kdissect`` is ``kdissect``.

``-m`` puts the current directory first on the module path. It is removed before anything is imported from
there, unless kdissect itself is there. ``typing`` is imported earlier: with ``python -P`` that is safe, too.
"""

from __future__ import annotations

import sys

if not sys.flags.safe_path and __file__.rpartition("/kdissect/")[0] != sys.path[0]:
    del sys.path[0]

from kdissect.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
