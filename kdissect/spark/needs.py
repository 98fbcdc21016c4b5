"""This machine, and where Spark shall run -> what stands in the way of it, with what to install or to set.

Looks without starting Spark: at Java, at the Python packages, at whether somebody listens at the address of a
cluster, at folders and ports. Holds nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from kdissect.errors import SparkError
from kdissect.sinks.phrases import size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kdissect.spark.session import Place

LEAST_JAVA = 17
PACKAGES = {"pyspark": ((4, 2), (5,)), "pyarrow": ((18,), None), "pandas": ((2, 2), (3,))}
"""Which versions do: from, and up to but without. Newer pandas than this works, and warns each time."""
CONNECT_PACKAGES = ("grpc", "grpc_status", "google.rpc")
DEFAULT_PORTS = {"sc": 15002, "spark": 7077}
LEAST_FREE_BYTES = 1_000_000_000  # shuffled packets go to disk

_INSTALL = "pip install 'kdissect[spark]'"
_JAVA_VERSION = re.compile(r'version "(?P<first>\d+)(?:\.(?P<second>\d+))?[^"]*"')
_MOST_JAVA_S = 30
_MOST_CONNECT_S = 5


class Need(NamedTuple):
    """Something that Spark needs.

    Attributes:
        name: in a word.
        found: what there is of it.
        remedy: what to do about it, None where nothing has to be done.
    """

    name: str
    found: str
    remedy: str | None = None


def needs(place: Place) -> Iterator[Need]:
    """Look at each, the cheap ones first."""
    yield python()
    yield from packages()
    if place.remote is not None:
        yield connect()
    else:
        yield java()
        yield folder()
        yield port()
    yield from address(place)


def demand(found: Iterable[Need]) -> None:
    """Let nothing be started that must fail.

    Raises:
        SparkError: the first thing that stands in the way, and what to do about it.
    """
    for need in found:
        if need.remedy is not None:
            raise SparkError(f"Spark needs {need.name}: {need.found}; {need.remedy}")


def python() -> Need:
    """The interpreter, which workers on other machines must have in the same version."""
    version = ".".join(map(str, sys.version_info[:3]))
    workers = os.environ.get("PYSPARK_PYTHON")
    return Need("Python", f"{version} ({sys.executable})" + (f", for workers {workers}" if workers else ""))


def packages() -> Iterator[Need]:
    """The packages of the extra ``spark``."""
    for name, (least, beyond) in PACKAGES.items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Need(name, "not installed", _INSTALL)
            continue
        numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
        fits = least <= numbers and (beyond is None or numbers < beyond)
        wanted = f"{_dotted(least)} or newer" + (f", older than {_dotted(beyond)}" if beyond else "")
        yield Need(name, version if fits else f"{version}, not {wanted}", None if fits else _INSTALL)


def java() -> Need:
    """The Java that Spark's launcher takes: that of JAVA_HOME, else the first on the path."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    name, get_one = f"Java {LEAST_JAVA} or newer", "install one, or set JAVA_HOME to it"
    if path is None:
        return Need(name, f"no java in JAVA_HOME, {home}" if home else "there is no java", get_one)
    try:
        done = subprocess.run(  # all releases write it to stderr
            [path, "-version"], capture_output=True, text=True, check=False, timeout=_MOST_JAVA_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Need(name, f"{path} does not run ({error})", get_one)
    match = _JAVA_VERSION.search(done.stderr)
    if match is None:
        return Need(name, f"{path} does not tell its version", get_one)
    # Java 8 called itself 1.8
    number = int(match["second"] or 0) if match["first"] == "1" else int(match["first"])
    found = f"{match[0].split()[1].strip(chr(34))} ({path})"
    return Need(name, found, None if number >= LEAST_JAVA else get_one)


def connect() -> Need:
    """What talks to a Spark Connect server."""
    from importlib.util import find_spec

    try:
        missing = [name for name in CONNECT_PACKAGES if find_spec(name) is None]
    except ModuleNotFoundError as error:  # of google.rpc, google
        missing = [error.name or "google"]
    name = "the packages of Spark Connect"
    return Need(name, f"no {missing[0]}", _INSTALL) if missing else Need(name, "installed")


def folder() -> Need:
    """Where shuffled packets and Spark's own files go meanwhile."""
    path = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]
    name, remedy = "a folder to write to", "set SPARK_LOCAL_DIRS, and TMPDIR, to another folder"
    try:
        with tempfile.TemporaryFile(dir=path):
            free = shutil.disk_usage(path).free
    except OSError as error:
        return Need(name, f"{path}: {error.strerror or error}", remedy)
    found = f"{path}, {size(free)} free"
    return Need(name, found, None if free >= LEAST_FREE_BYTES else remedy)


def port() -> Need:
    """Whether Python and Java can talk to each other on this machine."""
    name = "ports on 127.0.0.1"
    try:
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            return Need(name, f"free: {server.getsockname()[1]}")
    except OSError as error:
        return Need(name, str(error.strerror or error), "allow it in the firewall or sandbox")


def address(place: Place) -> Iterator[Need]:
    """Whether somebody listens where a server is said to be: Spark itself would try for minutes."""
    for option, url in (("--remote", place.remote), ("--master", place.master)):
        parts = urlsplit((url or "").split(",")[0])  # a standalone cluster may have several masters
        default = DEFAULT_PORTS.get(parts.scheme)
        if default is None:
            continue
        name = f"somebody at {option} {url}"
        try:
            with socket.create_connection((parts.hostname or "", parts.port or default), _MOST_CONNECT_S):
                yield Need(name, "listens")
        except (OSError, ValueError) as error:
            told = getattr(error, "strerror", None) or str(error)
            yield Need(name, told, "check host and port, and that the server runs")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
