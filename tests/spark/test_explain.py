from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from kdissect.spark.explain import explain

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

# Messages of Spark 4.3.
PLAN = """[TABLE_OR_VIEW_NOT_FOUND] The table or view `nix` cannot be found. Verify the spelling.
Search path: [`system`.`builtin`, `spark_catalog`.`default`].
To tolerate the error on drop use DROP VIEW IF EXISTS or DROP TABLE IF EXISTS. SQLSTATE: 42P01; line 1 pos 14;
'Project [*]
+- 'UnresolvedRelation [nix], [], false
"""
SYNTAX = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'selct'. SQLSTATE: 42601 (line 1, pos 0)

== SQL ==
selct 1
^^^
"""
WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/kdissect.zip/kdissect/spark/reading.py", line 12, in read
    raise CaptureError(text)
kdissect.errors.CaptureError: /share/a.pcap: no capture
"""
SOURCE = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source: Traceback (most recent call last):
  File "/worker.py", line 1, in main
ValueError: boo
. SQLSTATE: 38000
"""
READING = """An error occurred while calling o131.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error. SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:920)
Caused by: java.lang.RuntimeException: file:/tmp/b.parquet is not a Parquet file
\tat org.apache.parquet.hadoop.ParquetFileReader.readFooter(ParquetFileReader.java:794)
\t... 1 more
"""
TASK = """An error occurred while calling o169.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 4.0 failed 1 times, \
most recent failure: Lost task 1.0 in stage 4.0 (TID 8) (host driver): java.io.IOException: Mkdirs failed
\tat org.apache.hadoop.fs.ChecksumFileSystem.create(ChecksumFileSystem.java:774)
"""
PROGRAM = """An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 3.0 failed 1 times, \
most recent failure: Lost task 1.0 in stage 3.0 (TID 6) (host driver): java.io.IOException: \
Cannot run program "/nix/python": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
Caused by: java.io.IOException: error=2, No such file or directory
\t... 25 more
"""
CRASH = """An error occurred while calling o160.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 3.0 failed 1 times, \
most recent failure: Lost task 1.0 in stage 3.0 (TID 6) (host driver): org.apache.spark.SparkException: \
Python worker exited unexpectedly (crashed). Consider setting 'spark.python.worker.faulthandler.enabled'.
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.read(PythonRunner.scala:1136)
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PLAN, "[TABLE_OR_VIEW_NOT_FOUND] The table or view `nix` cannot be found. Verify the spelling."),
        (SYNTAX, "[PARSE_SYNTAX_ERROR] Syntax error at or near 'selct'. (line 1, pos 0)"),
        (WORKER, "/share/a.pcap: no capture"),
        (SOURCE, "ValueError: boo"),
        (READING, "file:/tmp/b.parquet is not a Parquet file"),
        (TASK, "Mkdirs failed"),
        (PROGRAM, 'Cannot run program "/nix/python": error=2, No such file or directory; set PYSPARK_PYTHON'),
        (CRASH, "Python worker exited unexpectedly (crashed). Consider setting"),
        ("", "RuntimeError"),
    ],
)
def test_errors_of_spark(text: str, expected: str) -> None:
    message = explain(RuntimeError(text))
    assert message.startswith(expected)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker: 3.10, driver: 3.11.",
            "; set PYSPARK_PYTHON to a Python 3",
        ),
        ('java.io.IOException: Cannot run program "./env/bin/python": error=2', "; set PYSPARK_PYTHON to a"),
        (
            WORKER.replace("kdissect.errors.CaptureError: ", "ModuleNotFoundError: No module named 'x'"),
            "install",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "--conf spark.driver.memory=4g"),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited.", "run kdissect spark doctor"),
        (
            "org.apache.spark.SparkException: Could not parse Master URL: 'nix'",
            "a master is local[*], spark://",
        ),
    ],
)
def test_what_to_do_about_it(text: str, remedy: str) -> None:
    assert remedy in explain(RuntimeError(text))


def test_last_words_of_a_worker(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("INFO nothing\nModuleNotFoundError: No module named 'pyarrow'\n\nERROR Executor: lost\n")
    assert explain(RuntimeError(CRASH), log).startswith(
        "ModuleNotFoundError: No module named 'pyarrow'; missing in the workers' Python: install kdissect"
    )
    log.write_text("nothing")
    assert explain(RuntimeError(CRASH), log).startswith("Python worker exited unexpectedly")
    assert explain(RuntimeError(CRASH), tmp_path / "nix").startswith("Python worker exited unexpectedly")


def test_spark_says_so_now(spark: SparkSession, tmp_path: Path) -> None:
    """The messages above, from the installed Spark."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    def message_of(question: object) -> str:
        with pytest.raises((PySparkException, Py4JError)) as caught:
            question()  # type: ignore[operator]
        return explain(caught.value)

    (tmp_path / "b.parquet").write_text("none")
    read = spark.read.schema("a int").parquet(str(tmp_path / "b.parquet"))
    assert "is not a Parquet file" in message_of(read.collect)
    assert message_of(lambda: spark.sql("select * from nix").collect()).startswith(
        "[TABLE_OR_VIEW_NOT_FOUND] The table"
    )
    assert message_of(lambda: spark.sql("selct 1")) == SYNTAX.splitlines()[1].replace(" SQLSTATE: 42601", "")
    assert message_of(lambda: spark.range(1).mapInArrow(_fails, "id long").collect()) == "no capture here"


def _fails(batches: object) -> object:
    from kdissect.errors import CaptureError

    raise CaptureError("no capture here")


def test_a_store_that_spark_cannot_read() -> None:
    pytest.importorskip("pyspark")  # the version is that of its Hadoop
    text = "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
    remedy = r"; --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:\d+\.\d+\.\d+ adds it$"
    assert re.search(remedy, explain(RuntimeError(text)))


def test_an_error_of_the_source_without_a_traceback() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to create X: kdissect.errors.UsageError: no path\nSQLSTATE: 38000"
    )
    assert explain(RuntimeError(text)) == "no path"
