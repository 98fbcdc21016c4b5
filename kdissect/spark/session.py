"""Where Spark shall run -> a session there, with settings that tables of kdissect need, and a quiet terminal.

Embedded, Spark is a Java process that ends with this one. What it and its workers say goes to a log file:
they inherit this process's stdout and stderr, which point to that file while the process is started. The log
is kept when something fails. Holds a folder of temporary files until the session ends.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import warnings
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.children import python_environment
from kdissect.errors import SparkError
from kdissect.sinks.tablefiles import cannot_write
from kdissect.spark import package
from kdissect.spark.explain import explain
from kdissect.spark.needs import demand, needs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

EMBEDDED = "local[*]"
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Spark would write INT96
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.python.filterPushdown.enabled": "true",
}
CLASSIC = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
WORKERS_PYTHON = "spark.pyspark.python"


class Place(NamedTuple):
    """Where Spark shall run.

    Attributes:
        master: of a cluster, or ``local[...]``; None: embedded, on all cores.
        remote: a Spark Connect server: ``sc://host:port``.
        conf: settings of Spark that the user gave.
    """

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = {}

    @property
    def is_here(self) -> bool:
        """Whether all processes are on this machine."""
        return self.remote is None and (self.master or EMBEDDED).startswith("local")

    @property
    def is_embedded(self) -> bool:
        """Whether workers see the packages of this process."""
        return self.is_here and not (self.master or "").startswith("local-cluster")


@contextmanager
def session(place: Place, log: Path | None = None) -> Iterator[SparkSession]:
    """Start a session, and end it; one that runs in this process already is used, and left running.

    Args:
        place: where.
        log: what Java and the workers say; None: a temporary file, kept when something fails.

    Raises:
        SparkError: Spark cannot be started, or what it was asked to do failed.
        OutputError: the log cannot be written.
    """
    running = _running()
    if running is not None:
        with _told(None):
            yield running
        return
    demand(needs(place))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kdissect-spark-")))
        if log is None and place.remote is None:
            log = stack.enter_context(_kept_if_it_fails())
        stack.enter_context(_told(log))
        stack.enter_context(_logged(log))
        yield stack.enter_context(_started(place, folder, log))


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
    except BaseException:  # of which the log knows nothing
        Path(name).unlink(missing_ok=True)
        raise
    Path(name).unlink(missing_ok=True)


@contextmanager
def _told(log: Path | None) -> Iterator[None]:
    """Turn what Spark raises into one line.

    Raises:
        SparkError: it did.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    # Each failed query is logged once more, with the whole stack of Java.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True
    try:
        yield
    except (PySparkException, Py4JError) as error:
        where = "" if log is None else f" (log: {log})"
        raise SparkError(f"{explain(error, log)}{where}") from error


@contextmanager
def _logged(log: Path | None) -> Iterator[None]:
    """Have what is logged in this process, as py4j does when it is interrupted, stand in the same file."""
    handler = logging.NullHandler() if log is None else logging.FileHandler(log, delay=True)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


@contextmanager
def _started(place: Place, folder: Path, log: Path | None) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    for name, value in {**SETTINGS, **_classic(place, folder), **place.conf}.items():
        builder = builder.config(name, value)
    if place.remote is not None:
        spark: SparkSession = builder.remote(place.remote).getOrCreate()
    else:
        _choose_python(place)
        os.environ.pop("SPARK_REMOTE", None)  # a master was asked for
        with _streams_to(log), _own_interrupt(), _workers_environment(place):
            spark = builder.appName("kdissect").master(place.master or EMBEDDED).getOrCreate()
    try:
        if not place.is_embedded:
            _ship(spark, place, folder)
        yield spark
    finally:
        with suppress(Exception), warnings.catch_warnings():  # the connection to Java may be what broke
            warnings.simplefilter("ignore")
            spark.stop()


def _classic(place: Place, folder: Path) -> dict[str, str]:
    """Settings of a session whose driver is in this process."""
    if place.remote is not None:
        return {}
    made = {**CLASSIC, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    if place.is_here:
        made.update(LOOPBACK)
        made["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
    return made


def _choose_python(place: Place) -> None:
    """Have workers run the Python that the user named; on this machine otherwise this one, not the first on
    the path, which knows nothing of a virtual environment that was not activated.
    """
    if WORKERS_PYTHON in place.conf:
        os.environ["PYSPARK_PYTHON"] = place.conf[WORKERS_PYTHON]
    elif place.is_here:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


@contextmanager
def _workers_environment(place: Place) -> Iterator[None]:
    """Let the workers of this machine, whose Java inherits what is set now, import nothing from the current
    folder, and the same kdissect as this process if they run the same Python.
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


def _ship(spark: SparkSession, place: Place, folder: Path) -> None:
    """Give this package to the workers, so that they run the same as this process does."""
    path = folder / f"{package.PACKAGE}.zip"
    package.write(path)
    if place.remote is not None:
        spark.addArtifacts(str(path), pyfile=True)
    else:
        spark.sparkContext.addPyFile(str(path))
    from kdissect.spark.datasource import KdissectSource

    spark.dataSource.register(KdissectSource)  # Spark looks for it among installed packages only


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Leave Ctrl-C as it is: Spark's way with it asks Java in the middle of what Java was asked before."""
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
    """Let stdout and stderr, as processes that are started inherit them, be a file.

    Raises:
        OutputError: it cannot be written.
    """
    path = Path(log or os.devnull)
    try:
        target = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        raise cannot_write(path, error) from None
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
