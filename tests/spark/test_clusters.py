"""Commands on workers that do not have kdissect: those of a cluster, and of a Spark Connect server. Both are
on this machine, and their Python sees all packages that are installed here but kdissect.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from kdissect.cli.main import main
from kdissect.tables.rows import TABLES
from tests.exports import parquet_rows
from tests.spark.conftest import QUICK_JAVA, why_not
from tests.spark.installed import without
from tests.spark.standalone import MAX_WAIT_S, connect_server, standalone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[2]
SAMPLES = [str(ROOT / "samples" / name) for name in ("quickstart.pcap", "kafka-4-basics.pcap")]
COMMANDS = """
import json, sys
from kdissect.cli.main import main
from kdissect.spark.session import SparkTarget, session

place, commands = (json.loads(each) for each in sys.argv[1:])
with session(SparkTarget(**place)):
    for command in commands:
        print(main(["spark", *command]), flush=True)
"""

pytestmark = [pytest.mark.spark, pytest.mark.deep]


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """The environment of workers whose Python has no kdissect."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    python = tmp_path / "python"
    packages = without("kdissect", tmp_path / "site")
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    nothing = subprocess.run(
        [python, "-c", "import kdissect"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "No module named 'kdissect'" in nothing.stderr
    return {
        **os.environ,
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": QUICK_JAVA,
    }


@pytest.fixture
def server(elsewhere: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """The address of a Spark Connect server."""
    with connect_server(tmp_path, elsewhere) as url:
        yield url


def run(directory: Path, place: dict[str, Any], environment: dict[str, str]) -> list[str]:
    """Run the commands in one session there; return their output lines, each followed by its status."""
    option, url = next((f"--{name}", url) for name, url in place.items())
    tables = str(directory / "tables")
    commands = [
        ["doctor", "--start", "--json", option, url],
        ["decode", *SAMPLES, "-o", tables, "--tasks", "3", option, url],
        ["report", tables, "--report", "latency,errors", "--json", option, url],
        ["report", tables, "--report", "latency", "-o", str(directory / "reports"), option, url],
        ["sql", tables, "--json", "select count(*) n from exchanges", option, url],
    ]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(place), json.dumps(commands)],
        env={**environment, "PYTHONPATH": str(ROOT)},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=MAX_WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("kdissect: ")] == []
    return done.stdout.splitlines()


def check(lines: list[str], directory: Path) -> None:
    """Check that workers imported the zip, and that tables and reports are those of ``export``."""
    end = lines.index("]")
    workers = [
        requirement["found"]
        for requirement in json.loads("\n".join(lines[: end + 1]))
        if requirement["name"] == "workers"
    ]
    assert workers
    assert all("/kdissect.zip/kdissect, " in result for result in workers), workers
    assert main(["export", *SAMPLES, "-o", str(directory / "here"), "--format", "parquet"]) == 0
    for name in ("exchanges", "partitions", "connections", "groups", "topic_ids", "anomalies"):
        assert _rows(directory / "tables", name) == _rows(directory / "here", name), name
    rows = len(_rows(directory / "here", "exchanges"))
    assert list((directory / "reports" / "latency").glob("*.parquet"))
    assert lines[end + 1 : end + 3] == ["0", "0"]
    assert [json.loads(line)["job"] for line in lines[end + 3 : -4]].count("latency") > 5
    assert lines[-4:] == ["0", "0", f'{{"n":{rows}}}', "0"]


def _rows(directory: Path, name: str) -> list[str]:
    return sorted(repr(row) for row in parquet_rows(directory / name, TABLES[name]))


def test_a_cluster(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    import pyspark

    work = Path(pyspark.__path__[0], "work")  # where Spark keeps the files of these workers
    before = set(work.glob("*"))
    try:
        check(run(tmp_path, {"master": "local-cluster[2,1,1024]"}, elsewhere), tmp_path)
    finally:
        for directory in set(work.glob("*")) - before:
            shutil.rmtree(directory)


def test_a_spark_connect_server(tmp_path: Path, elsewhere: dict[str, str], server: str) -> None:
    check(run(tmp_path, {"remote": server}, elsewhere), tmp_path)


SUBMITTED = """
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import kdissect.spark
from kdissect.options import PARQUET, ExportOptions
from kdissect.spark.decode import decode

spark = SparkSession.builder.getOrCreate()
kdissect.spark.register(spark)
decode(spark, sys.argv[2:], ExportOptions(Path(sys.argv[1]), PARQUET), tasks=3)
"""


@pytest.mark.parametrize("way", ["spark-submit", "kdissect"])
def test_workers_run_the_python_of_an_archive(tmp_path: Path, way: str) -> None:
    """The path of their Python is relative to where Spark unpacks the archive."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    packed = tmp_path / "packed"
    (packed / "bin").mkdir(parents=True)
    without("pyspark_kdissect", packed / "site")  # links: all is on this machine
    (packed / "site" / "kdissect").symlink_to(ROOT / "kdissect")
    python = packed / "bin" / "python"
    python.write_text(
        f'#!/bin/sh\nhere=$(cd "$(dirname "$0")/.." && pwd)\n'
        f'PYTHONPATH=$here/site:$PYTHONPATH exec {sys.executable} -S "$@"\n'
    )
    python.chmod(0o755)
    archive = tmp_path / "env.tgz"
    subprocess.run(["tar", "-czf", archive, "-C", packed, "."], check=True)
    decode_there(tmp_path, way, "./env/bin/python", ["--conf", f"spark.archives={archive}#env"])


def test_workers_run_a_virtual_environment(tmp_path: Path) -> None:
    """Its path is the same on all machines, and kdissect is installed in it."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    decode_there(tmp_path, "spark-submit", sys.executable)


def decode_there(tmp_path: Path, way: str, python: str, options: Sequence[str] = ()) -> None:
    """Decode on a cluster whose workers run a Python, by a command or by a job that is submitted."""
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": QUICK_JAVA}
    for name in ("PYTHONPATH", "PYSPARK_PYTHON"):
        environment.pop(name, None)
    tables = tmp_path / "tables"
    with standalone(tmp_path, environment) as cluster:
        where = ["--master", cluster.url, *options]
        command = [sys.executable, "-m", "kdissect", "spark", "decode", *where, "--tasks", "3", *SAMPLES]
        command += ["-o", str(tables)]
        if way == "spark-submit":
            (tmp_path / "job.py").write_text(SUBMITTED)
            submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
            command = [str(submit), *where, "job.py", str(tables), *SAMPLES]
        done = subprocess.run(
            command,
            env={**environment, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert len(parquet_rows(tables / "exchanges", TABLES["exchanges"])) > 300
