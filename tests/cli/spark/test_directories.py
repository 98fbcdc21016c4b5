from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kdissect.cli.spark.report import address, addresses
from kdissect.errors import UsageError
from kdissect.spark.session import SparkTarget
from kdissect.tables.manifest import DIRECTORY, MANIFEST

if TYPE_CHECKING:
    from pathlib import Path


def manifest(directory: Path, name: str, *, complete: bool) -> None:
    (directory / name / DIRECTORY).mkdir(parents=True)
    written = {
        "table": name,
        "complete": complete,
        "job": {},
        "rows": 0,
        "format": "jsonl",
        "partition_by": [],
    }
    (directory / name / DIRECTORY / MANIFEST).write_text(json.dumps(written))


def test_the_address_of_a_directory_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    manifest(tmp_path / "tables", "groups", complete=True)
    assert addresses(["tables", "tables"], SparkTarget()) == [str(tmp_path / "tables")]
    assert addresses(["t*"], SparkTarget()) == [str(tmp_path / "tables")]
    assert address("reports") == str(tmp_path / "reports")
    for url in ("hdfs://host/tables", "file:/tables", "s3a://bucket/*/tables"):
        assert addresses([url], SparkTarget()) == [url]
    assert addresses(["s3://bucket/tables"], SparkTarget()) == ["s3a://bucket/tables"]


def test_no_tables(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no tables in"):
        addresses([str(tmp_path)], SparkTarget("local[2]"))
    for place in (SparkTarget(remote="sc://host"), SparkTarget("spark://host:7077")):
        assert addresses(["/elsewhere"], place) == ["/elsewhere"]


def test_incomplete_tables_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest(tmp_path, "groups", complete=True)
    manifest(tmp_path, "exchanges", complete=False)
    addresses([str(tmp_path)], SparkTarget())
    assert capsys.readouterr().err == (
        "kdissect: warning: incomplete, because the run that wrote it was interrupted: exchanges\n"
    )
