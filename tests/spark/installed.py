"""The packages installed here, except some."""

from __future__ import annotations

import site
from pathlib import Path


def without(name: str, directory: Path) -> Path:
    """Make a directory of links to all installed packages whose names do not begin so; for ``python -S``,
    which knows no others.
    """
    directory.mkdir()
    for place in site.getsitepackages():
        for each in Path(place).iterdir():
            if not each.name.startswith((name, "__editable__")) and not (directory / each.name).exists():
                (directory / each.name).symlink_to(each)
    return directory
