"""A ``SparkTarget`` -> a session there, with the settings that kdissect's tables need, and a quiet terminal.

Embedded Spark is a Java process that ends with this one. It and its workers write to a log file: they inherit
stdout and stderr, which point to that file while Java is started. The log is kept if something fails. Holds a
directory of temporary files until the session ends.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import metadata
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import kdissect
from kdissect.children import python_environment
from kdissect.errors import SparkError, WriteError
from kdissect.extras import install
from kdissect.limits import MIB
from kdissect.phrases import size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from importlib.resources.abc import Traversable

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.conf import RuntimeConfig


EMBEDDED = "local[*]"
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Spark would write INT96
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 * MIB),  # a packed row can have 400 KiB
}
CLASSIC = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
WORKERS_PYTHON = "spark.pyspark.python"


class SparkTarget(NamedTuple):
    """Where Spark runs.

    Attributes:
        master: master URL of a cluster, or ``local[...]``; None: embedded, on all cores.
        remote: URL of a Spark Connect server: ``sc://host:port``.
        conf: Spark settings from the user.
    """

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = {}

    @property
    def is_here(self) -> bool:
        """Whether all processes run on this machine."""
        return self.remote is None and (self.master or EMBEDDED).startswith("local")

    @property
    def is_embedded(self) -> bool:
        """Whether workers can import the packages of this process."""
        return self.is_here and not (self.master or "").startswith("local-cluster")


@contextmanager
def session(place: SparkTarget, log: Path | None = None) -> Iterator[SparkSession]:
    """Start a session, and stop it afterwards. A session that is already active is used, and left running.

    Args:
        place: where Spark runs.
        log: file for the output of Java and the workers; None: a temporary file, kept if something fails.

    Raises:
        SparkError: Spark cannot be started, or a query failed.
        OutputError: the log cannot be written.
    """
    running = _running()
    if running is not None:
        with _one_line_errors(None):
            yield running
        return
    require(check_requirements(place))
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kdissect-spark-")))
        if log is None and place.remote is None:
            log = stack.enter_context(_kept_if_it_fails())
        stack.enter_context(_one_line_errors(log))
        stack.enter_context(_logged(log))
        yield stack.enter_context(_started(place, directory, log))


def _running() -> SparkSession | None:
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


@contextmanager
def _kept_if_it_fails() -> Iterator[Path]:
    handle, name = tempfile.mkstemp(prefix="kdissect-spark-", suffix=".log")
    os.close(handle)
    try:
        yield Path(name)
    except SparkError:
        raise
    except BaseException:  # not Spark's, so the log does not mention it
        Path(name).unlink(missing_ok=True)
        raise
    Path(name).unlink(missing_ok=True)


@contextmanager
def _one_line_errors(log: Path | None) -> Iterator[None]:
    """Turn an exception of Spark into an error of one line.

    Raises:
        SparkError: Spark raised an exception.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    # These log every failed query once more, with the complete Java stack trace.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True
    try:
        yield
    except (PySparkException, Py4JError) as error:
        where = "" if log is None else f" (log: {log})"
        raise SparkError(f"{explain(error, log)}{where}") from error


@contextmanager
def _logged(log: Path | None) -> Iterator[None]:
    """Log to the same file in this process, too; py4j logs when it is interrupted."""
    handler = logging.NullHandler() if log is None else logging.FileHandler(log, delay=True)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


@contextmanager
def _started(place: SparkTarget, directory: Path, log: Path | None) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    for name, value in {**SETTINGS, **_classic(place, directory), **place.conf}.items():
        builder = builder.config(name, value)
    if place.remote is not None:
        spark: SparkSession = builder.remote(place.remote).getOrCreate()
    else:
        _choose_python(place)
        os.environ.pop("SPARK_REMOTE", None)  # it would override the master
        with _streams_to(log), _own_interrupt(), _workers_environment(place):
            spark = builder.appName("kdissect").master(place.master or EMBEDDED).getOrCreate()
    try:
        if not place.is_embedded:
            register(spark)
        yield spark
    finally:
        with suppress(Exception), warnings.catch_warnings():  # the connection to Java may be broken
            warnings.simplefilter("ignore")
            spark.stop()


def _classic(place: SparkTarget, directory: Path) -> dict[str, str]:
    """Settings of a classic session, whose driver runs in this process."""
    if place.remote is not None:
        return {}
    settings = {**CLASSIC, "spark.sql.warehouse.dir": str(directory / "warehouse")}
    if place.is_here:
        settings.update(LOOPBACK)
        settings["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
    return settings


def _choose_python(place: SparkTarget) -> None:
    """Have workers run the user's choice of Python. By default workers on this machine run the same Python as
    this process, not the first on the PATH: a virtual environment may not be activated.
    """
    if WORKERS_PYTHON in place.conf:
        os.environ["PYSPARK_PYTHON"] = place.conf[WORKERS_PYTHON]
    elif place.is_here:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


@contextmanager
def _workers_environment(place: SparkTarget) -> Iterator[None]:
    """Set the environment that Java, and thus the workers on this machine, inherit: they import nothing from
    the current directory, and the same kdissect as this process if they run the same Python.
    """
    if not place.is_here:
        yield
        return
    variables = python_environment()
    if os.environ["PYSPARK_PYTHON"] != sys.executable:
        del variables["PYTHONPATH"]
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
            if name in before:
                os.environ[name] = before[name]


def register(spark: Any) -> None:
    """Make ``spark.read.format("kdissect")`` work in a session of any kind: of ``python job.py``,
    ``spark-submit``, a notebook or Spark Connect. No setting of the session changes.

    Workers on this machine run this Python, unless ``PYSPARK_PYTHON`` is set. Those on other machines get
    this kdissect, and use their own if it has the same version; what it depends on must be installed there.
    """
    from pyspark.sql import SparkSession

    from kdissect.spark.datasource import KdissectSource

    if not isinstance(spark, SparkSession):  # but the one of Spark Connect
        spark.addArtifacts(_zip(), pyfile=True)
    elif not (
        SparkTarget(spark.sparkContext.master).is_embedded or Path(kdissect.__file__).parents[1].is_file()
    ):
        # on workers elsewhere, and not from the zip of spark-submit
        spark.sparkContext.addPyFile(_zip())
    with own_python(spark):
        spark.dataSource.register(KdissectSource)  # Spark finds it by itself only if it is installed


@contextmanager
def own_python(spark: Any) -> Iterator[None]:
    """Have workers on this machine run this Python for what is handed to them in the block, unless the user
    has chosen another: Spark would run the first ``python3`` on the PATH.
    """
    from pyspark.sql import SparkSession

    is_classic = isinstance(spark, SparkSession)
    if "PYSPARK_PYTHON" in os.environ or not (
        is_classic and SparkTarget(spark.sparkContext.master).is_embedded
    ):
        yield
        return
    before, spark.sparkContext.pythonExec = spark.sparkContext.pythonExec, sys.executable
    try:
        yield
    finally:
        spark.sparkContext.pythonExec = before


@cache
def _zip() -> str:
    """This package as a zip, which workers fetch while this process runs."""
    directory = tempfile.mkdtemp(prefix="kdissect-spark-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    write(Path(directory, f"{PACKAGE}.zip"))
    return f"{directory}/{PACKAGE}.zip"


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep the handler of Ctrl-C: Spark's own calls Java, possibly in the middle of another call."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _streams_to(log: Path | None) -> Iterator[None]:
    """Redirect the stdout and stderr that child processes inherit to the log.

    Raises:
        OutputError: the log cannot be written.
    """
    path = Path(log or os.devnull)
    try:
        target = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        raise WriteError.of(path, error) from None
    kept = [os.dup(each) for each in (1, 2)]
    try:
        for each in (1, 2):
            os.dup2(target, each)
        yield
    finally:
        for each, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, each)
            os.close(copy)
        os.close(target)


# ------------------------------------------------------------------------------------------------------------
# This machine and a ``SparkTarget`` -> the requirements of Spark, and remedies for those that are not met.
#
# Checks, without starting Spark: Java, the Python packages, directories, ports, and whether a server listens
# at the address of a cluster.
# ------------------------------------------------------------------------------------------------------------


MIN_JAVA = 17
PACKAGES = {"pyspark": ((4, 2), (5,)), "pyarrow": ((18,), None), "pandas": ((2, 2), (3,))}
"""Supported versions: the first, and the first that is not. Newer pandas works, but warns on every query."""
CONNECT_PACKAGES = ("grpc", "grpc_status", "google.rpc")
DEFAULT_PORTS = {"sc": 15002, "spark": 7077}
MAX_TASKS = 20_000
"""Most tasks of a stage: Spark's driver keeps what each writes for each task of the next one."""
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


def check_requirements(place: SparkTarget) -> Iterator[Requirement]:
    """Check all requirements, the cheap ones first."""
    yield python()
    yield from packages()
    if place.remote is not None:
        yield connect()
    else:
        yield java()
        yield directory(place)
    yield from address(place)


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


def directory(place: SparkTarget) -> Requirement:
    """That directory."""
    path = local_directory(place.conf)
    name, remedy = "a writable directory", "set SPARK_LOCAL_DIRS to another directory"
    try:
        with tempfile.TemporaryFile(dir=path):
            free = shutil.disk_usage(path).free
    except OSError as error:
        return Requirement(name, f"{path}: {error.strerror or error}", remedy)
    space = f"{path}, {size(free)} free"
    return Requirement(name, space, None if free >= MIN_FREE_BYTES else remedy)


def address(place: SparkTarget) -> Iterator[Requirement]:
    """Whether a server listens at the address of the target: Spark itself would retry for minutes."""
    for option, url in (("--remote", place.remote), ("--master", place.master)):
        parts = urlsplit((url or "").split(",")[0])  # a standalone cluster may have several masters
        default = DEFAULT_PORTS.get(parts.scheme)
        if default is None:
            continue
        name = f"a server at {option} {url}"
        try:
            with socket.create_connection((parts.hostname or "", parts.port or default), _MAX_CONNECT_S):
                yield Requirement(name, "listens")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            yield Requirement(name, reason, "check host and port, and that the server is running")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


# ------------------------------------------------------------------------------------------------------------
# An exception of Spark -> one line for people: what is wrong, and a remedy if one is known.
#
# Spark reports errors in several forms: a Python exception with an error condition and a query plan, a Java
# exception with its stack trace and those of its causes, the traceback of a worker inside either. The reason
# why a worker died is only in the log.
# ------------------------------------------------------------------------------------------------------------


_TRACEBACK = "Traceback (most recent call last):"
_CAUSE = "Caused by: "
_JAVA_CALL = re.compile(r"^An error occurred while calling .*?\n:? ?", re.DOTALL)
_CLASS = re.compile(r"^(?:[A-Za-z_]\w*[.$])+[A-Z]\w*(?:: |$)")
_OWN_CLASS = re.compile(r"^(?:kdissect\.errors\.)?(?:Usage|Output|Write|Capture|Spark)Error: ")
_OWN_ERROR = re.compile(r"kdissect\.errors\.(?:Usage|Output|Write|Capture|Spark)Error: (.+)")
_LOST_TASK = re.compile(r"^Job aborted due to stage failure: .*? \(TID \d+\) \(.*?\): ")
_STATE = re.compile(r"\s*SQLSTATE: \w{5};?")
_PYTHON_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*\w+(?:Error|Exception): .+")
_LOG_BYTES = 64 * 1024

_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
_SET_PYTHON = f"set PYSPARK_PYTHON to a Python {_PYTHON} with kdissect and its extra spark, on every machine"


def _hadoop() -> str:
    """The version of Hadoop in this Spark, which its connectors must have, too."""
    spec = find_spec("pyspark")
    places = spec.submodule_search_locations if spec is not None else None
    jars = (each for place in places or () for each in Path(place, "jars").glob("hadoop-client-api-*.jar"))
    return next((each.stem.removeprefix("hadoop-client-api-") for each in jars), "VERSION")


REMEDIES = {
    "PYTHON_VERSION_MISMATCH": _SET_PYTHON,
    "Cannot run program": _SET_PYTHON,
    "No module named": "missing in the workers' Python: install kdissect with its extra spark there, or "
    + _SET_PYTHON,
    "OutOfMemoryError": "increase memory: --conf spark.driver.memory=4g, on a cluster spark.executor.memory",
    "S3AFileSystem not found": f"--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:{_hadoop()} adds it",
    "JAVA_GATEWAY_EXITED": "Java exited before Spark started; run kdissect spark doctor to find the reason",
    "Could not parse Master URL": "a master is local[*], spark://HOST:PORT, yarn or k8s://https://HOST:PORT",
}
"""Words of an error -> remedy."""


def explain(error: BaseException, log: Path | None = None) -> str:
    """Describe an error in one line.

    Args:
        error: the exception that Spark raised.
        log: stderr of Spark's processes, in case a worker died.
    """
    raised = str(error)
    text = _line(_JAVA_CALL.sub("", raised))
    if "Python worker" in text and log is not None:
        text = _last_words(log) or text
    for words, remedy in REMEDIES.items():
        if words in text or words in raised:
            return f"{text.rstrip('.')}; {remedy}"
    return text or type(error).__name__


def _line(text: str) -> str:
    """The most informative line of a message."""
    if _TRACEBACK not in text and (own := _OWN_ERROR.search(text)) is not None:
        return own[1]
    if _TRACEBACK in text:
        return _OWN_CLASS.sub("", _raised(text.rpartition(_TRACEBACK)[2]))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    causes = [_bare(line.removeprefix(_CAUSE)) for line in lines if line.startswith(_CAUSE)]
    messages = [_bare(lines[0]), *causes]
    # The root cause, or one that includes it: Cannot run program "x": error=2, No such file or directory.
    return next(each for each in messages if each.endswith(messages[-1]))


def _bare(line: str) -> str:
    """The message alone, without Java class, task and SQLSTATE."""
    line = _CLASS.sub("", line) or line
    return _STATE.sub("", _CLASS.sub("", _LOST_TASK.sub("", line))).strip()


def _raised(traceback: str) -> str:
    """The exception at the end of a worker's traceback: the first line that is not indented."""
    for line in traceback.splitlines():
        if line and not line.startswith((" ", "\t")):
            return line
    return traceback.strip()


def _last_words(log: Path) -> str | None:
    """The last Python exception in a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    return next((line for line in reversed(lines) if _PYTHON_ERROR.match(line)), None)


# ------------------------------------------------------------------------------------------------------------
# This package -> a zip for Spark's workers (``--py-files``). Holds the zip's directory.
#
# Python imports modules from such a zip, and ``importlib.resources`` reads the ``.kmsg`` files from it. The
# dependencies of kdissect are not in it: they have compiled code, and must be installed on the workers. The
# native core is not either, because Python cannot import it from a zip. So where the same version is
# installed, the package in the zip takes its modules from there.
# ------------------------------------------------------------------------------------------------------------


PACKAGE, SOURCE = "kdissect", "pyspark_kdissect"
_INSTALLED = b"""

def _use_installed() -> None:  # only in the zip
    from importlib.metadata import PackageNotFoundError, distribution

    from kdissect.version import __version__

    try:
        found = distribution("kdissect")
    except PackageNotFoundError:
        return
    place = found.locate_file("kdissect")
    if found.version == __version__ and place.is_dir():
        __path__[:] = [str(place)]


_use_installed()
"""
_ENDINGS = (".py", ".kmsg", ".tsv", ".txt", ".typed", ".html", ".css", ".js")


def write(path: Path) -> int:
    """Write the zip, the same bytes each time; return the number of files in it.

    Raises:
        OutputError: the zip cannot be written.
    """
    count = 0
    try:
        with ZipFile(path, "w", ZIP_DEFLATED) as archive:
            for name, content in _files():
                archive.writestr(ZipInfo(name), content, ZIP_DEFLATED)
                count += 1
    except OSError as error:
        raise WriteError.of(path, error) from None
    return count


def _files() -> Iterator[tuple[str, bytes]]:
    spec = find_spec(SOURCE)
    source = spec.loader.get_source(SOURCE) if spec is not None and spec.loader is not None else None  # type: ignore[attr-defined]
    if source is not None:
        yield f"{SOURCE}.py", source.encode()
    yield from _below(files(PACKAGE), PACKAGE)


def _below(directory: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for each in sorted(directory.iterdir(), key=lambda each: each.name):
        path = f"{name}/{each.name}"
        if each.is_dir():
            yield from _below(each, path)
        elif each.name.endswith(_ENDINGS):
            content = each.read_bytes()
            is_package = path == f"{PACKAGE}/__init__.py" and not content.endswith(_INSTALLED)
            yield path, content + _INSTALLED if is_package else content


# ------------------------------------------------------------------------------------------------------------
# A ``SparkTarget`` -> what its workers run: their Python, and the kdissect that they import.
# ------------------------------------------------------------------------------------------------------------


TASKS = 4
_COLUMNS = ("python", "kdissect", "apis")
_FAULT = "fix that first"


def probe_workers(place: SparkTarget, log: Path | None = None) -> Iterator[Requirement]:
    """Start Spark, and yield its version, and the Python and kdissect of its workers."""
    try:
        with session(place, log) as spark:
            yield Requirement("Spark", spark.version)
            tasks = spark.range(0, TASKS, 1, TASKS)
            infos = tasks.mapInArrow(_worker_info, ", ".join(f"{name} string" for name in _COLUMNS))
            for row in infos.distinct().collect():
                yield Requirement(
                    "workers", f"Python {row.python}, kdissect of {row.kdissect}, {row.apis} APIs"
                )
    except SparkError as error:
        yield Requirement("workers", str(error), _FAULT)


def _worker_info(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    import kdissect
    from kdissect.kafka.apis import all_apis
    from kdissect.kafka.schema import request

    known = [api for api in all_apis() if request(api.key) is not None]
    version = ".".join(map(str, sys.version_info[:3]))
    values = (f"{version} ({sys.executable})", kdissect.__path__[0], str(len(known)))
    for _ in batches:
        yield pa.RecordBatch.from_pydict({name: [text] for name, text in zip(_COLUMNS, values, strict=True)})
