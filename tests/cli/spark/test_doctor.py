from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kdissect.cli.spark.doctor import MISSING
from kdissect.cli.terminal import OK
from tests.cli.commands import run

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession


def test_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = run(capsys, "spark", "doctor")
    assert (done.status, done.err) == (MISSING, "")
    (java,) = (line for line in done.lines if line.startswith("Java 17 or newer"))
    assert f"no java in JAVA_HOME, {tmp_path}" in java
    assert java.rstrip().endswith("install one, or set JAVA_HOME to it")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    needs = json.loads(run(capsys, "spark", "doctor", "--json").out)
    assert [need["name"] for need in needs[:4]] == ["Python", "pyspark", "pyarrow", "pandas"]
    assert [need["name"] for need in needs[4:]] == [
        "Java 17 or newer", "a writable directory",
    ]  # fmt: skip
    assert needs[0]["remedy"] is None


def test_no_server_at_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "spark", "doctor", "--remote", "sc://127.0.0.1:1", "--start")
    assert done.status == MISSING
    assert "a server at --remote sc://127.0.0.1:1" in done.out
    assert "Java" not in done.out


def test_nothing_is_missing(capsys: pytest.CaptureFixture[str], spark: SparkSession) -> None:
    done = run(capsys, "spark", "doctor", "--start")
    assert (done.status, done.err) == (OK, "")
    assert "workers" in done.lines[-1]
    assert "kdissect of" in done.lines[-1]
