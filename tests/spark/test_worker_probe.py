from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kdissect
from kdissect.kafka.apis import all_apis
from kdissect.kafka.schema import request
from kdissect.spark.session import SparkTarget, probe_workers
from tests.spark.installed import without

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_are_described(spark: SparkSession) -> None:
    first, *workers = probe_workers(SparkTarget("local[2]"))
    assert (first.name, first.found) == ("Spark", spark.version)
    known = sum(request(api.key) is not None for api in all_apis())
    (worker,) = workers
    assert worker.remedy is None
    assert sys.executable in worker.found
    assert worker.found.endswith(f"kdissect of {Path(kdissect.__path__[0])}, {known} APIs")


def test_a_failure_is_a_requirement(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr("kdissect.spark.session._running", lambda: None)
    (requirement,) = probe_workers(SparkTarget(remote="sc://127.0.0.1:1"))
    assert requirement.remedy == "fix that first"
    assert "a server at --remote sc://127.0.0.1:1: Connection refused" in requirement.found


def test_workers_without_a_python(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nix/python")
    _, workers = probe_workers(SparkTarget("local[2]"))
    assert 'Cannot run program "/nix/python"' in workers.found
    assert "; set PYSPARK_PYTHON to a Python 3" in workers.found


def test_workers_with_another_python(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.9")
    _, workers = probe_workers(SparkTarget("local[2]"))
    assert "[PYTHON_VERSION_MISMATCH] Python in worker has different version" in workers.found
    assert "; set PYSPARK_PYTHON to a Python 3" in workers.found


def test_workers_without_kdissect(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    packages = without("kdissect", tmp_path / "site")
    python.write_text(f'#!/bin/sh\ncd / && PYTHONPATH={packages} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    _, workers = probe_workers(SparkTarget("local[2]"))
    assert "No module named 'kdissect'; missing in the workers' Python: install kdissect" in workers.found
    assert "\n" not in workers.found
