"""The code blocks of docs/spark.md work: they are run in order, in a directory with captures."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from kdissect.spark.package import write
from tests.depth import IS_DEEP
from tests.spark.conftest import PLACE, QUICK_JAVA, why_not
from tests.spark.installed import without
from tests.spark.standalone import connect_server, standalone

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "spark.md"
SAMPLES = ("kafka-4-lag", "kafka-4-storm", "kafka-4-quota")
MASTER = "spark://host:7077"
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
IMPORTS = "from pyspark.sql import SparkSession\nimport kdissect.spark\n"

WALK = """
import shlex, sys, traceback
from pathlib import Path
from kdissect.cli.main import main
from kdissect.spark.session import SparkTarget, session

def commands(text):
    for command in text.splitlines():
        program, *arguments = shlex.split(command, comments=True)
        assert program == "kdissect", command
        matched = [path for each in arguments
                   for path in (sorted(map(str, Path().glob(each))) if each.endswith("/*") else [each])]
        assert main(matched) == 0, command

failed = 0
with session(SparkTarget(*%r), Path("spark.log")) as spark:
    names = {"spark": spark}
    for kind, text in %r:
        print("=====", text.splitlines()[0], flush=True)
        try:
            commands(text) if kind == "sh" else exec(compile(text, "docs/spark.md", "exec"), names)
        except Exception:
            failed += 1
            print("FAILED", text, traceback.format_exc(limit=-1), flush=True)
sys.exit(failed)
"""


class Block(NamedTuple):
    """A piece of code on the page.

    Attributes:
        where: of a comment before the block: ``cluster``, ``connect``, ``submit``, or why it is not run.
    """

    kind: str
    where: str
    text: str


def blocks(page: Path = PAGE) -> list[Block]:
    """The blocks of a page. Comments before them say where they are run; readers do not see these."""
    text = page.read_text(encoding="utf-8")
    pattern = r"^(?:<!-- (?:run: )?(.+) -->\n)?```(sh|python)\n([\s\S]+?)^```$"
    return [Block(kind, where, text) for where, kind, text in re.findall(pattern, text, re.MULTILINE)]


def capture_directory(directory: Path) -> Path:
    """A directory with captures named as on the page."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    captures = directory / "captures"
    captures.mkdir()
    for number, name in enumerate(SAMPLES):
        shutil.copy(ROOT / "samples" / f"{name}.pcap.gz", captures / f"kafka.pcap{number:02}.gz")
    return directory


def test_the_page_has_blocks_of_all_kinds() -> None:
    run = {(block.kind, block.where) for block in blocks() if not block.where.startswith("not run: ")}
    assert run == {
        *(("sh", ""), ("python", ""), ("sh", "cluster"), ("sh", "submit")),
        *(("sh", "connect"), ("python", "connect")),
    }
    assert [block.text.split()[0] for block in blocks() if block.where.startswith("not run: ")] == [
        *("pip", "tcpdump", "kdissect", "PYSPARK_PYTHON=./env/bin/python", "kdissect"),
    ]


def walk(directory: Path, blocks_to_run: list[tuple[str, str]], place: tuple[object, ...]) -> str:
    """Run blocks in one session; return their output."""
    done = subprocess.run(
        [sys.executable, "-c", WALK % (place, blocks_to_run)],
        cwd=capture_directory(directory),
        env={**os.environ, "PYTHONPATH": str(ROOT), "JDK_JAVA_OPTIONS": QUICK_JAVA},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[done.stdout.find("FAILED") :][:3000] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.spark
@pytest.mark.deep
def test_the_walk_on_a_laptop(tmp_path: Path) -> None:
    blocks_to_run = [(block.kind, block.text) for block in blocks() if not block.where]
    out = walk(tmp_path, blocks_to_run, (PLACE.master, None, dict(PLACE.conf)))
    for expected in ("Service times", "Throughput", "Rebalances", "p99_ms", '"job":"throughput"'):
        assert expected in out, expected
    assert (tmp_path / "stream" / "checkpoint").exists()


@pytest.mark.spark
@pytest.mark.deep(short=False)
def test_the_walk_on_a_cluster(tmp_path: Path) -> None:
    capture_directory(tmp_path)
    with standalone(tmp_path, elsewhere(tmp_path)) as cluster:
        for block in blocks():
            if block.where == "cluster":
                text = block.text.replace(MASTER, cluster.url).replace("/share/", f"{tmp_path}/")
                shown = [shown_by(tmp_path, *command) for command in map(shlex.split, text.splitlines())]
                assert "Service times" in shown[-1]


@pytest.mark.spark
@pytest.mark.deep(short=False)
def test_the_walk_over_spark_connect(tmp_path: Path) -> None:
    capture_directory(tmp_path)
    tables = [sys.executable, "-m", "kdissect", "export", "captures", "--format", "parquet", "-o", "tables"]
    shown_by(tmp_path, *tables)
    with connect_server(tmp_path, elsewhere(tmp_path)) as url:
        for block in blocks():
            if block.where == "connect":
                text = block.text.replace("sc://host:15002", url).replace("/share/", f"{tmp_path}/")
                if block.kind == "sh":
                    assert "Service times" in shown_by(tmp_path, *shlex.split(text))
                    continue
                (tmp_path / "job.py").write_text(IMPORTS + text)
                shown = shown_by(tmp_path, sys.executable, "job.py")
                assert "Fetch" in shown
                assert "Kafka" in shown


def elsewhere(directory: Path) -> dict[str, str]:
    """An environment whose first ``python3`` has no kdissect, but all that it depends on."""
    (directory / "bin").mkdir()
    python = directory / "bin" / "python3"
    packages = without("kdissect", directory / "site")
    python.write_text(f'#!/bin/sh\nPYTHONPATH=$PYTHONPATH:{packages} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    path = os.pathsep.join([str(directory / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK")}
    own = {"PYTHONPATH": "", "SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": QUICK_JAVA}
    return {**variables, **own, "PATH": path}


def shown_by(directory: Path, *command: str, environment: dict[str, str] | None = None) -> str:
    own = {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": QUICK_JAVA}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = environment or {**os.environ, **own, "PATH": path}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def first_block() -> str:
    return next(block.text for block in blocks() if block.kind == "python")


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize("master", ["local[1]", LOCAL_CLUSTER] if IS_DEEP else ["local[1]"])
def test_the_first_block_in_plain_python(master: str, tmp_path: Path) -> None:
    """The environment is not activated: the first ``python3`` is another one."""
    capture_directory(tmp_path)
    (tmp_path / "job.py").write_text(first_block().replace("builder.", f"builder.master({master!r})."))
    environment = elsewhere(tmp_path)
    assert "Fetch" in shown_by(tmp_path, sys.executable, "job.py", environment=environment)


@pytest.mark.spark
@pytest.mark.deep(short=False)
def test_jobs_are_submitted(tmp_path: Path) -> None:
    """No Python that Spark starts has kdissect."""
    capture_directory(tmp_path)
    (tmp_path / "job.py").write_text(first_block())
    assert write(tmp_path / "kdissect.zip")
    environment = elsewhere(tmp_path)
    submitted = [block.text for block in blocks() if block.where == "submit"]
    assert submitted
    with standalone(tmp_path, environment) as cluster:
        for text in submitted:
            command = text.replace(MASTER, cluster.url).split()
            assert "Fetch" in shown_by(tmp_path, *command, environment=environment)
