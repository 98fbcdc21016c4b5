"""``spark decode`` on a standalone cluster of two workers: what it writes when a worker or the driver is
killed, when a worker is stopped and continues after the end, or when the workers do not see the same
directory.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from benchmarks.traffic import make
from kdissect.capture import stores
from kdissect.cli.main import main
from kdissect.spark.parts import UNPUBLISHED
from kdissect.tables import manifest
from kdissect.tables.rows import TABLES
from tests.exports import parquet_rows
from tests.spark.conftest import QUICK_JAVA, why_not
from tests.spark.standalone import MAX_WAIT_S, standalone
from tests.stores import BUCKET, s3_server
from tests.stores import environment as stores_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
SAMPLES = [str(ROOT / "samples" / name) for name in ("quickstart.pcap", "kafka-4-basics.pcap")]

pytestmark = [pytest.mark.spark, pytest.mark.deep(short=False)]


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


def decode(
    tables: Path | str,
    master: str,
    environment: dict[str, str],
    captures: Sequence[str] = SAMPLES,
    options: Sequence[str] = ("--tasks", "3"),
) -> subprocess.Popen[str]:
    command = ["spark", "decode", *captures, "-o", str(tables), *options, "--master", master]
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


IMPATIENT = [
    word
    for setting in ("network.timeout=20s", "network.timeoutInterval=5s", "executor.heartbeatInterval=2s")
    for word in ("--conf", f"spark.{setting}")
]


def test_a_worker_is_stopped_and_continues_after_the_end(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a partition of the network: the driver gives up its executor, which then writes its files."""
    capture = tmp_path / "chatty.pcap"
    make("chatty", capture, 30_000_000)
    (tmp_path / "of_workers").mkdir()
    with s3_server() as (endpoint, _):
        store = stores_environment(endpoint)
        for name, value in store.items():
            monkeypatch.setenv(name, value)
        stores._client.cache_clear()
        url = f"s3://{BUCKET}/tables"
        of_workers = {**environment, **store, "TMPDIR": str(tmp_path / "of_workers")}
        with standalone(tmp_path, of_workers) as cluster:
            options = ("--tasks", "3", *IMPATIENT)
            process = decode(url, cluster.url, {**environment, **store}, [str(capture)], options)
            deadline = time.monotonic() + MAX_WAIT_S
            while not (writing := cluster.open_in(tmp_path / "of_workers")):
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < deadline
                time.sleep(0.01)
            cluster.signal_worker_of(writing[0], signal.SIGSTOP)
            error = process.communicate(timeout=MAX_WAIT_S)[1]
            assert process.returncode == 0, error
            os.kill(writing[0], signal.SIGCONT)
            while not stores.listing(f"{url}/{UNPUBLISHED}"):
                assert time.monotonic() < deadline
                time.sleep(0.2)
        assert main(["export", str(capture), "-o", str(tmp_path / "here"), "--format", "parquet"]) == 0
        for name in ("exchanges", "connections"):
            table = stores.StorePath(f"{url}/{name}")
            manifest.check(cast("Path", table))
            rows = [manifest.read(each)["rows"] for each in (cast("Path", table), tmp_path / "here" / name)]
            assert rows[0] == rows[1] > 0
    stores._client.cache_clear()


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
