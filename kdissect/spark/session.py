"""A ``SparkTarget`` -> a session there, with the settings that kdissect's tables need, and a quiet terminal.

Embedded Spark is a Java process that ends with this one. It and its workers write to a log file: they inherit
stdout and stderr, which point to that file while Java is started. The log is kept if something fails. Holds a
directory of temporary files until the session ends.
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

import kdissect
from kdissect.children import python_environment
from kdissect.errors import SparkError, WriteError
from kdissect.limits import MIB
from kdissect.spark import requirements
from kdissect.spark.explain import explain
from kdissect.spark.package import temporary
from kdissect.spark.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

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
MAX_TASKS = 20_000
"""Most tasks of a stage: Spark's driver keeps what each writes for each task of the next one."""
_PROBES = 4
_COLUMNS = ("python", "kdissect", "apis")


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


def check_requirements(place: SparkTarget) -> Iterator[Requirement]:
    """Check all requirements, the cheap ones first."""
    yield requirements.python()
    yield from requirements.packages()
    if place.remote is not None:
        yield requirements.connect()
        yield from requirements.address("--remote", place.remote)
    else:
        yield requirements.java()
        yield requirements.directory(place.conf)
        yield from requirements.address("--master", place.master or EMBEDDED)


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
    requirements.require(check_requirements(place))
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
        spark.addArtifacts(temporary(), pyfile=True)
    elif not (
        SparkTarget(spark.sparkContext.master).is_embedded or Path(kdissect.__file__).parents[1].is_file()
    ):
        # on workers elsewhere, and not from the zip of spark-submit
        spark.sparkContext.addPyFile(temporary())
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


def probe_workers(place: SparkTarget, log: Path | None = None) -> Iterator[Requirement]:
    """Start Spark, and yield its version, and the Python and kdissect of its workers."""
    try:
        with session(place, log) as spark:
            yield Requirement("Spark", spark.version)
            tasks = spark.range(0, _PROBES, 1, _PROBES)
            infos = tasks.mapInArrow(_worker_info, ", ".join(f"{name} string" for name in _COLUMNS))
            for row in infos.distinct().collect():
                yield Requirement(
                    "workers", f"Python {row.python}, kdissect of {row.kdissect}, {row.apis} APIs"
                )
    except SparkError as error:
        yield Requirement("workers", str(error), "fix that first")


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
