from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdissect.errors import SparkError
from kdissect.extras import install
from kdissect.spark import session as module
from kdissect.spark.session import SETTINGS, SparkTarget, session
from tests.spark.installed import without

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
MAX_WAIT_S = 120
SLEEPING = """
import sys, time
from kdissect.cli import main as command_line
from kdissect.cli.spark import sql

def views(spark, directory):
    print("started", flush=True)
    spark.udf.register("sleep", lambda: time.sleep(600))

sql.views, sql.addresses = views, lambda directories, place: directories
sys.exit(command_line.main(["spark", "sql", "--master", "local[2]", "x", "select sleep()"]))
"""


def java_processes() -> set[int]:
    """PIDs of Spark's Java processes."""
    pids = set()
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"org.apache.spark.deploy.SparkSubmit" in each.read_bytes():
                pids.add(int(each.parent.name))
        except OSError:  # the process has ended
            continue
    return pids


@pytest.mark.parametrize(
    ("place", "is_here", "is_embedded"),
    [
        (SparkTarget(), True, True),
        (SparkTarget("local[4]"), True, True),
        (SparkTarget("local-cluster[2,1,1024]"), True, False),
        (SparkTarget("spark://host:7077"), False, False),
        (SparkTarget("yarn"), False, False),
        (SparkTarget(remote="sc://host"), False, False),
    ],
)
def test_targets(place: SparkTarget, is_here: bool, is_embedded: bool) -> None:
    assert (place.is_here, place.is_embedded) == (is_here, is_embedded)


def test_settings(spark: SparkSession) -> None:
    assert {name: spark.conf.get(name) for name in SETTINGS} == SETTINGS
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_a_session_that_runs_is_used_and_left_running(spark: SparkSession) -> None:
    with session(SparkTarget("local[7]")) as again:
        assert again is spark
    with pytest.raises(SparkError, match="TABLE_OR_VIEW_NOT_FOUND"), session(SparkTarget()) as again:
        again.sql("select * from nix")
    assert spark.range(3).count() == 3


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a separate process."""
    return subprocess.run(
        [sys.executable, "-m", "kdissect", "spark", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=MAX_WAIT_S,
    )


@pytest.fixture
def tables(tmp_path: Path) -> str:
    """A directory of tables with nothing but a manifest, which is read before Spark is started."""
    beside = tmp_path / "tables" / "groups" / "_kdissect"
    beside.mkdir(parents=True)
    (beside / "manifest.json").write_text(
        '{"table": "groups", "complete": true, "format": "parquet", "partition_by": [], '
        '"job": {"captures": []}, "rows": 0, "files": []}'
    )
    return str(tmp_path / "tables")


def test_without_java(tables: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")  # otherwise this error comes first
    done = command("sql", "--engine", "spark", tables, "select 1", PATH=str(tmp_path), JAVA_HOME="")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "kdissect: Spark needs Java 17 or newer: no java on the PATH; install one, or set JAVA_HOME to it\n"
    )


@pytest.mark.parametrize("package", ["pyspark", "pyarrow", "pandas"])
def test_without_a_package(package: str, tables: str, tmp_path: Path) -> None:
    if package != "pyspark":
        pytest.importorskip("pyspark")
    path = os.pathsep.join([str(ROOT), str(without(package, tmp_path / "site"))])
    done = subprocess.run(
        [sys.executable, "-S", "-m", "kdissect", "spark", "sql", "--engine", "spark", tables, "select 1"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=MAX_WAIT_S,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (f"kdissect: Spark needs {package}: not installed; {install('spark')}\n")


@pytest.mark.parametrize("where", [["--remote", "sc://127.0.0.1:1"], ["--master", "spark://127.0.0.1:1"]])
def test_a_dead_server(tables: str, where: list[str]) -> None:
    pytest.importorskip("pyspark")
    done = command("sql", tables, "select 1", *where)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"kdissect: Spark needs a server at {' '.join(where)}: Connection refused; "
        "check host and port, and that the server is running\n"
    )


@pytest.mark.spark
def test_stdout_is_data_and_stderr_silent(spark: SparkSession, tables: str, tmp_path: Path) -> None:
    """Also with another python3 first on the path, as in a virtual environment that was not activated; and
    the workers, which Spark starts by ``python -m``, import nothing from the current directory.
    """
    (tmp_path / "python3").symlink_to("/bin/false")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "json.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    code = "import sys; from kdissect.cli.main import main; sys.exit(main())"
    environment = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-c", code),
            *("spark", "doctor", "--start", "--json", "--master", "local[1]"),
        ],
        env={**os.environ, **environment},
        cwd=tmp_path / "here",
        capture_output=True,
        text=True,
        check=False,
        timeout=MAX_WAIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sys.executable in done.stdout
    assert not list(tmp_path.glob("kdissect-spark-*"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.spark
def test_the_log_of_what_failed_is_kept(spark: SparkSession, tables: str, tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    done = command(
        "sql",
        tables,
        "select 1",
        "--master",
        "local[1]",
        "--conf",
        "spark.driver.memory=1",
        "--log",
        str(log),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"(log: {log})\n")
    assert done.stderr.count("\n") == 1
    assert "too small" in log.read_text().lower()


@pytest.mark.spark
def test_ctrl_c_leaves_no_java_behind(spark: SparkSession) -> None:
    before = java_processes()
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    started = java_processes() - before  # one of an earlier test may be exiting
    assert started
    time.sleep(1)  # until the query runs
    process.send_signal(signal.SIGINT)
    _, stderr_text = process.communicate(timeout=MAX_WAIT_S)
    assert process.returncode == 130
    assert re.fullmatch(r"kdissect: engine: Spark [\d.]+", stderr_text.strip())
    deadline = time.monotonic() + MAX_WAIT_S
    while java_processes() & started and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not java_processes() & started


def test_registering_changes_no_setting(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for others, nor with a query that asks workers for their version."""
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nix/python")
    before = spark.conf.getAll
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        module.register(spark)
        assert spark.conf.getAll == {**before, "spark.sql.python.filterPushdown.enabled": "false"}
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    assert spark.sparkContext.pythonExec == "/nix/python"
    sample = str(ROOT / "samples" / "quickstart.pcap")
    assert spark.read.format("kdissect").schema("api string").load(sample).count() == 75
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
