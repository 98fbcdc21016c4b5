"""The code blocks of docs/spark.md work: they are run in order, in a directory with captures."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from kdissect.spark.session import write
from tests.spark.conftest import PLACE, QUICK_JAVA, why_not
from tests.spark.installed import without

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "spark.md"
SAMPLES = ("kafka-4-lag", "kafka-4-storm", "kafka-4-quota")
MASTER = "spark://host:7077"
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
IS_DEEP = os.environ.get("KDISSECT_HYPOTHESIS") == "deep"

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


def capture_folder(folder: Path) -> Path:
    """A directory with captures named as on the page."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    captures = folder / "captures"
    captures.mkdir()
    for number, name in enumerate(SAMPLES):
        shutil.copy(ROOT / "samples" / f"{name}.pcap.gz", captures / f"kafka.pcap{number:02}.gz")
    return folder


def test_the_page_has_blocks_of_all_kinds() -> None:
    run = {(block.kind, block.where) for block in blocks() if not block.where.startswith("not run: ")}
    assert run == {
        *(("sh", ""), ("python", ""), ("sh", "cluster"), ("sh", "submit")),
        *(("sh", "connect"), ("python", "connect")),
    }
    assert [block.text.split()[0] for block in blocks() if block.where.startswith("not run: ")] == [
        *("pip", "tcpdump", "kdissect"),
    ]


def walk(folder: Path, blocks_to_run: list[tuple[str, str]], place: tuple[object, ...]) -> str:
    """Run blocks in one session; return their output."""
    done = subprocess.run(
        [sys.executable, "-c", WALK % (place, blocks_to_run)],
        cwd=capture_folder(folder),
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
@pytest.mark.deep
def test_the_walk_on_a_cluster(tmp_path: Path) -> None:
    blocks_to_run = [
        (block.kind, block.text.replace(MASTER, f"'{LOCAL_CLUSTER}'").replace("/share/", f"{tmp_path}/"))
        for block in blocks()
        if block.where == "cluster"
    ]
    assert blocks_to_run
    assert "Service times" in walk(tmp_path, blocks_to_run, (LOCAL_CLUSTER,))


def elsewhere(folder: Path) -> dict[str, str]:
    """An environment whose first ``python3`` has no kdissect, but all that it depends on."""
    (folder / "bin").mkdir()
    python = folder / "bin" / "python3"
    packages = without("kdissect", folder / "site")
    python.write_text(f'#!/bin/sh\nPYTHONPATH=$PYTHONPATH:{packages} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK")}
    return {**variables, "PATH": path, "PYTHONPATH": "", "JDK_JAVA_OPTIONS": QUICK_JAVA}


def shown_by(folder: Path, *command: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
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
    capture_folder(tmp_path)
    (tmp_path / "job.py").write_text(first_block().replace("builder.", f"builder.master({master!r})."))
    environment = elsewhere(tmp_path)
    assert "Fetch" in shown_by(tmp_path, sys.executable, "job.py", environment=environment)


@pytest.mark.spark
@pytest.mark.deep
def test_jobs_are_submitted(tmp_path: Path) -> None:
    """No Python that Spark starts has kdissect."""
    capture_folder(tmp_path)
    (tmp_path / "job.py").write_text(first_block())
    assert write(tmp_path / "kdissect.zip")
    environment = elsewhere(tmp_path)
    submitted = [block.text for block in blocks() if block.where == "submit"]
    assert submitted
    for text in submitted:
        command = text.replace(MASTER, LOCAL_CLUSTER).split()
        assert "Fetch" in shown_by(tmp_path, *command, environment=environment)
