"""What this machine has -> which requirements of Spark are met, and remedies for the others.

Checks, without starting Spark: Java, the Python packages, directories, ports, and whether a server listens at
the address of a cluster.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from kdissect.errors import SparkError
from kdissect.extras import install
from kdissect.phrases import size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql.conf import RuntimeConfig

MIN_JAVA = 17
PACKAGES = {"pyspark": ((4, 2), (5,)), "pyarrow": ((18,), None), "pandas": ((2, 2), (3,))}
"""Supported versions: the first, and the first that is not. Newer pandas works, but warns on every query."""
CONNECT_PACKAGES = ("grpc", "grpc_status", "google.rpc")
DEFAULT_PORTS = {"sc": 15002, "spark": 7077}
MIN_FREE_BYTES = 1_000_000_000  # shuffled packets go to disk

_JAVA_VERSION = re.compile(r'version "(?P<first>\d+)(?:\.(?P<second>\d+))?[^"]*"')
_MAX_JAVA_S = 30
_MAX_CONNECT_S = 5


class Requirement(NamedTuple):
    """A requirement of Spark.

    Attributes:
        name: what is required.
        found: what this machine has.
        remedy: how to meet the requirement; None if it is met.
    """

    name: str
    found: str
    remedy: str | None = None


def require(requirements: Iterable[Requirement]) -> None:
    """Fail before Spark is started if it cannot work.

    Raises:
        SparkError: the first requirement that is not met, and how to meet it.
    """
    for requirement in requirements:
        if requirement.remedy is not None:
            raise SparkError(f"Spark needs {requirement.name}: {requirement.found}; {requirement.remedy}")


def python() -> Requirement:
    """The Python interpreter; workers on other machines need the same version."""
    version = ".".join(map(str, sys.version_info[:3]))
    workers = os.environ.get("PYSPARK_PYTHON")
    return Requirement(
        "Python", f"{version} ({sys.executable})" + (f", for workers {workers}" if workers else "")
    )


def packages() -> Iterator[Requirement]:
    """The packages of the extra ``spark``."""
    for name, (oldest, beyond) in PACKAGES.items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Requirement(name, "not installed", install("spark"))
            continue
        numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
        fits = oldest <= numbers and (beyond is None or numbers < beyond)
        required = f"{_dotted(oldest)} or newer" + (f", older than {_dotted(beyond)}" if beyond else "")
        yield Requirement(
            name, version if fits else f"{version}, not {required}", None if fits else install("spark")
        )


def java() -> Requirement:
    """The Java that Spark's launcher uses: that of JAVA_HOME, otherwise the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    name, install = f"Java {MIN_JAVA} or newer", "install one, or set JAVA_HOME to it"
    if path is None:
        return Requirement(name, f"no java in JAVA_HOME, {home}" if home else "no java on the PATH", install)
    try:
        done = subprocess.run(  # all releases write it to stderr
            [path, "-version"], capture_output=True, text=True, check=False, timeout=_MAX_JAVA_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Requirement(name, f"{path} does not run ({error})", install)
    match = _JAVA_VERSION.search(done.stderr)
    if match is None:
        return Requirement(name, f"{path} does not report its version", install)
    # Java 8 called itself 1.8
    number = int(match["second"] or 0) if match["first"] == "1" else int(match["first"])
    release = f"{match[0].split()[1].strip(chr(34))} ({path})"
    return Requirement(name, release, None if number >= MIN_JAVA else install)


def connect() -> Requirement:
    """The packages of a Spark Connect client."""
    try:
        missing = [name for name in CONNECT_PACKAGES if find_spec(name) is None]
    except ModuleNotFoundError as error:  # the parent package, google
        missing = [error.name or "google"]
    name = "Spark Connect packages"
    return (
        Requirement(name, f"no {missing[0]}", install("spark")) if missing else Requirement(name, "installed")
    )


def local_directory(conf: Mapping[str, str] | RuntimeConfig) -> str:
    """The directory on this machine for Spark's temporary files, packets and frames."""
    listed = os.environ.get("SPARK_LOCAL_DIRS") or conf.get("spark.local.dir", None)
    return listed.split(",")[0] if listed else tempfile.gettempdir()


def directory(conf: Mapping[str, str]) -> Requirement:
    """That directory."""
    path = local_directory(conf)
    name, remedy = "a writable directory", "set SPARK_LOCAL_DIRS to another directory"
    try:
        with tempfile.TemporaryFile(dir=path):
            free = shutil.disk_usage(path).free
    except OSError as error:
        return Requirement(name, f"{path}: {error.strerror or error}", remedy)
    space = f"{path}, {size(free)} free"
    return Requirement(name, space, None if free >= MIN_FREE_BYTES else remedy)


def address(option: str, url: str) -> Iterator[Requirement]:
    """Whether a server listens at a URL that an option names: Spark itself would retry for minutes."""
    parts = urlsplit(url.split(",")[0])  # a standalone cluster may have several masters
    default = DEFAULT_PORTS.get(parts.scheme)
    if default is None:
        return
    name = f"a server at {option} {url.partition(';')[0]}"  # not its parameters: one may be a token
    try:
        with socket.create_connection((parts.hostname or "", parts.port or default), _MAX_CONNECT_S):
            yield Requirement(name, "listens")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        yield Requirement(name, reason, "check host and port, and that the server is running")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
