"""``python -m kdissect`` is ``kdissect``."""

from __future__ import annotations

import sys

from kdissect.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
