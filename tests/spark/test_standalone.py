"""``spark decode`` on a standalone cluster of two workers: what it writes when a worker or the driver is
killed, or when the workers do not see the same directory.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kdissect.cli.main import main
from kdissect.tables.rows import TABLES
from tests.exports import parquet_rows
from tests.spark.conftest import QUICK_JAVA, why_not
from tests.spark.standalone import MAX_WAIT_S, standalone

ROOT = Path(__file__).parents[2]
SAMPLES = [str(ROOT / "samples" / name) for name in ("quickstart.pcap", "kafka-4-basics.pcap")]

pytestmark = [pytest.mark.spark, pytest.mark.deep]


@pytest.fixture
def environment() -> dict[str, str]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": QUICK_JAVA,
    }


def decode(tables: Path, master: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    command = ["spark", "decode", *SAMPLES, "-o", str(tables), "--strategy", "shuffle", "--master", master]
    return subprocess.Popen(
        [sys.executable, "-m", "kdissect", *command], env=environment, stderr=subprocess.PIPE, text=True
    )


def test_a_worker_is_killed(tmp_path: Path, environment: dict[str, str]) -> None:
    """Its executor has tables open, or has written some of them."""
    tables = tmp_path / "tables"
    with standalone(tmp_path, environment) as cluster:
        process = decode(tables, cluster.url, environment)
        deadline = time.monotonic() + MAX_WAIT_S
        while not list(tables.glob("*/*part-*")) and not list(tables.glob("*/.*")):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        cluster.kill_worker()
        error = process.communicate(timeout=MAX_WAIT_S)[1]
        assert process.returncode == 0, error
    assert main(["export", *SAMPLES, "-o", str(tmp_path / "here"), "--format", "parquet"]) == 0
    for name in ("exchanges", "partitions", "connections", "groups", "topic_ids", "anomalies"):
        rows = [
            sorted(map(repr, parquet_rows(tmp_path / directory / name, TABLES[name])))
            for directory in ("tables", "here")
        ]
        assert rows[0] == rows[1], name
        assert json.loads((tables / name / "_kdissect" / "manifest.json").read_text())["complete"]
    assert not list(tables.rglob("*unfinished*"))


def test_the_output_is_another_mount_on_one_worker(tmp_path: Path, environment: dict[str, str]) -> None:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("a worker with its own mounts needs root and unshare")
    tables = tmp_path / "share" / "tables"
    tables.parent.mkdir()
    with standalone(tmp_path, environment, other_mount=tables.parent) as cluster:
        process = decode(tables, cluster.url, environment)
        error = process.communicate(timeout=MAX_WAIT_S)[1]
    assert process.returncode not in (0, None)
    assert "not shared with" in error
    for path in tables.glob("*/_kdissect/manifest.json"):
        assert not json.loads(path.read_text())["complete"]


def test_the_driver_is_killed(tmp_path: Path, environment: dict[str, str]) -> None:
    """The export is not complete, and a second run completes it."""
    tables = tmp_path / "tables"
    with standalone(tmp_path, environment) as cluster:
        process = decode(tables, cluster.url, environment)
        deadline = time.monotonic() + MAX_WAIT_S
        while not list(tables.glob("*/_kdissect/manifest.json")):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
        process.communicate()
        manifests = [json.loads(path.read_text()) for path in tables.glob("*/_kdissect/manifest.json")]
        assert not all(manifest["complete"] for manifest in manifests)
        again = decode(tables, cluster.url, environment)
        error = again.communicate(timeout=MAX_WAIT_S)[1]
        assert again.returncode == 0, error
    assert main(["export", *SAMPLES, "-o", str(tmp_path / "here"), "--format", "parquet"]) == 0
    rows = [
        sorted(map(repr, parquet_rows(tmp_path / directory / "exchanges", TABLES["exchanges"])))
        for directory in ("tables", "here")
    ]
    assert rows[0] == rows[1]
