"""An extra of this package -> the command that installs it, as kdissect itself was installed. Stateless.

Never by the name ``kdissect``: an index of packages may have something else under it.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

_REQUIREMENT = re.compile(r'(?P<package>[^;]+);.*\bextra == "(?P<extra>[^"]+)"')


def install(extra: str) -> str:
    """The command: in the clone that kdissect was installed from, if that is still there (PEP 610); otherwise
    with the packages of the extra.
    """
    from importlib import metadata  # which loads modules for mail and zip files

    try:
        own = metadata.distribution("kdissect")
    except metadata.PackageNotFoundError:  # loaded from a zip, or a directory on the path
        return f"pip install '.[{extra}]' in a clone of kdissect"
    origin = json.loads(own.read_text("direct_url.json") or "{}")
    directory = Path(unquote(urlsplit(origin.get("url", "")).path))
    if "dir_info" in origin and (directory / "pyproject.toml").is_file():
        editable = "-e " * origin["dir_info"].get("editable", False)
        return f"pip install {editable}'.[{extra}]' in {directory}"
    optional = filter(None, map(_REQUIREMENT.fullmatch, own.requires or ()))
    packages = (each["package"].strip() for each in optional if each["extra"] == extra)
    return f"pip install {' '.join(map(shlex.quote, packages))}"
