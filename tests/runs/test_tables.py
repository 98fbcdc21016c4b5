"""Several processes export the same rows as one, each in its own files."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.tables.manifest import DIRECTORY, MANIFEST
from kdissect.tables.rows import TABLES
from samples.golden import ROOT, captures, name_of
from tests.depth import IS_DEEP
from tests.exports import json_rows, parquet_rows
from tests.shared import say

if TYPE_CHECKING:
    from pathlib import Path

QUICK = ("kafka-4-basics", "midstream", "tansu-kafka-python")
SAMPLES = [ROOT / path for path in captures() if IS_DEEP or name_of(path) in QUICK]
EXPORTS = ("", "--records --partition-by date,api --compress zst", "--format parquet --records --api Produce")


def exported(directory: Path, *arguments: object) -> Any:
    """The rows, manifests and messages of an export, independent of its division into files."""
    output = say("export", *arguments, "-o", directory)
    rows, manifests = {}, {}
    for table in sorted(path.name for path in directory.iterdir()):
        parts = {
            path.relative_to(directory / table).as_posix() for path in (directory / table).rglob("part-*")
        }
        manifest = json.loads((directory / table / DIRECTORY / MANIFEST).read_text())
        assert {file["path"] for file in manifest["files"]} == parts
        manifest["clock"].pop("started")
        manifest.pop("writer")
        for name in ("files", "bytes", "first_part", "written"):
            manifest.pop(name)
        manifests[table] = manifest
        is_parquet = manifest["format"] == "parquet"
        rows_read = (
            parquet_rows(directory / table, TABLES[table]) if is_parquet else json_rows(directory / table)
        )
        rows[table] = Counter(json.dumps(row) for row in rows_read)
    err = re.sub(rb"\d+ files? \([^)]*\) written", b"written", output.err)
    return rows, manifests, output._replace(err=err)


@pytest.mark.parametrize("options", EXPORTS)
@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_the_same_is_exported(sample: Path, options: str, tmp_path: Path) -> None:
    results = []
    for jobs in (1, 3):
        directory = tmp_path / "tables"
        results.append(exported(directory, *options.split(), "-j", jobs, sample))
        directory.rename(tmp_path / f"by {jobs}")
    assert results[0] == results[1]


def test_workers_write_their_own_files_and_the_parent_those_of_the_capture(tmp_path: Path) -> None:
    assert say("export", SAMPLES[0], "-j", 2, "-o", tmp_path).status == 0
    names = {path.name: {part.name for part in path.glob("part-*")} for path in tmp_path.iterdir()}
    assert names["exchanges"] == names["connections"] == {"part-00001.jsonl", "part-00002.jsonl"}
    assert names["topic_ids"] == names["captures"] == {"part-00000.jsonl"}
    (again,) = say("export", SAMPLES[0], "-j", 1, "-o", tmp_path).err.splitlines()
    assert b"already has this export" in again
