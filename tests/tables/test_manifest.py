from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.errors import OutputError
from kdissect.limits import DEFAULT
from kdissect.tables import manifest
from kdissect.tables.manifest import CREATE_TABLE, DDL, DIRECTORY, MANIFEST, SCHEMA
from kdissect.tables.parquet import ParquetFormat
from kdissect.tables.rows import TABLES
from kdissect.tables.spark_schema import ddl, struct_type
from kdissect.tables.table_files import JsonFormat
from tests.exports import JOB, exports, table_files

if TYPE_CHECKING:
    from pathlib import Path

FORM = JsonFormat()
OTHER: dict[str, Any] = {**JOB, "options": {"bodies": "none"}}
FROM_STDIN: dict[str, Any] = {**JOB, "captures": [{"path": "-", "bytes": None, "modified": None}]}
BOTH = ["groups", "topic_ids"]


def export(directory: Path, name: str, *, complete: bool, job: Any = JOB) -> None:
    files = table_files(directory / name, TABLES[name], FORM)
    manifest.begin(directory / name, files, FORM, job)
    files.close()
    if complete:
        manifest.write(directory / name, files, FORM, job, {"complete": True})


def missing(directory: Path, tables: list[str], job: Any, **how: bool) -> list[str]:
    """The tables that lack something; what is written again is removed."""
    lacks = manifest.missing(directory, tables, job, **how)
    manifest.prepare(directory, lacks, overwrite=how.get("overwrite", False))
    return lacks.tables


def names(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def test_the_files_beside_the_tables(tmp_path: Path) -> None:
    export(tmp_path, "groups", complete=True)
    beside = tmp_path / "groups" / DIRECTORY
    columns = TABLES["groups"].columns
    assert sorted(path.name for path in beside.iterdir()) == sorted([SCHEMA, DDL, CREATE_TABLE, MANIFEST])
    assert json.loads((beside / SCHEMA).read_text()) == struct_type(columns)
    assert (beside / DDL).read_text() == ddl(columns) + "\n"
    assert f"LOCATION 'file://{tmp_path}/groups'" in (beside / CREATE_TABLE).read_text()
    document = json.loads((beside / MANIFEST).read_text())
    assert document["files"] == [{"path": "part-00000.jsonl", "rows": 0, "bytes": 0}]
    assert (document["complete"], document["rows"], document["format"]) == (True, 0, "jsonl")


def test_a_new_directory_misses_everything(tmp_path: Path) -> None:
    assert missing(tmp_path / "new", BOTH, JOB, overwrite=False) == BOTH
    assert not (tmp_path / "new").exists()


def test_complete_tables_are_left_alone(tmp_path: Path) -> None:
    export(tmp_path, "groups", complete=True)
    before = names(tmp_path)
    assert missing(tmp_path, BOTH, JOB, overwrite=False) == ["topic_ids"]
    assert missing(tmp_path, ["groups"], JOB, overwrite=False) == []
    assert names(tmp_path) == before


def test_unfinished_tables_are_removed_and_written_again(tmp_path: Path) -> None:
    export(tmp_path, "groups", complete=False)
    export(tmp_path, "topic_ids", complete=True)
    assert missing(tmp_path, BOTH, JOB, overwrite=False) == ["groups"]
    assert names(tmp_path / "groups") == []


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("job", [OTHER, FROM_STDIN])
def test_another_export_is_removed_only_with_overwrite(tmp_path: Path, job: Any, complete: bool) -> None:
    export(tmp_path, "groups", complete=complete, job=job)
    before = names(tmp_path)
    job_now = JOB if job is OTHER else job
    with pytest.raises(
        OutputError, match=r"an( unfinished)? export of .*made from other captures or with other opt"
    ):
        missing(tmp_path, BOTH, job_now, overwrite=False)
    assert names(tmp_path) == before
    assert missing(tmp_path, ["topic_ids"], job_now, overwrite=True) == ["topic_ids"]
    assert names(tmp_path) == []


def test_an_export_killed_before_its_manifest_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "groups" / DIRECTORY).mkdir(parents=True)
    (tmp_path / "groups" / DIRECTORY / f".{MANIFEST}.unfinished").write_text("{")
    assert missing(tmp_path, ["groups"], JOB, overwrite=False) == ["groups"]


@pytest.mark.parametrize("overwrite", [True, False])
def test_other_files_are_never_removed(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "groups").mkdir()
    (tmp_path / "groups" / "part-00000.jsonl").write_text("")
    with pytest.raises(OutputError, match="is not empty and has no export"):
        missing(tmp_path, BOTH, JOB, overwrite=overwrite)
    (tmp_path / "groups" / DIRECTORY).mkdir()
    (tmp_path / "groups" / DIRECTORY / MANIFEST).write_text('["something else"]')
    with pytest.raises(OutputError, match="is not the manifest of an export"):
        missing(tmp_path, BOTH, JOB, overwrite=overwrite)
    assert len(names(tmp_path)) == 2


def test_write_errors_are_reported(tmp_path: Path) -> None:
    (tmp_path / "groups").write_text("")
    with pytest.raises(OutputError, match=r"cannot write .*/groups"):
        export(tmp_path, "groups", complete=False)
    with pytest.raises(OutputError, match="cannot write"):
        missing(tmp_path, BOTH, JOB, overwrite=False)


# Live exports continue


def live(directory: Path, rows: int, form: Any = FORM, **options: Any) -> manifest.Earlier:
    """A run that is killed after its last row, unless it is complete."""
    complete = options.pop("complete", True)
    files = table_files(directory / "topic_ids", TABLES["topic_ids"], form, rotate_bytes=1, **options)
    files._columns = ()  # type: ignore[assignment]
    limits = options.get("limits", DEFAULT)
    earlier = manifest.resume(directory, {"topic_ids": files}, form, limits)
    document = {"runs": earlier.runs["topic_ids"]}
    manifest.begin(directory / "topic_ids", files, form, FROM_STDIN, document)
    for _ in range(rows):
        files.feed(None)
        files.rotate()
    if complete:
        files.close()
        manifest.write(directory / "topic_ids", files, form, FROM_STDIN, {"complete": True, **document})
    return earlier


def test_a_live_export_continues_earlier_runs(tmp_path: Path) -> None:
    assert live(tmp_path, 2) == ({"topic_ids": []}, 0, 0)
    earlier = live(tmp_path, 3, complete=False)
    assert (earlier.files, earlier.removed) == (2, 0)
    assert [run["first_part"] for run in earlier.runs["topic_ids"]] == [0]
    (tmp_path / "topic_ids" / ".part-00009.jsonl.unfinished").write_text("{")
    earlier = live(tmp_path, 1)
    assert (earlier.files, earlier.removed) == (5, 1)  # three were finished, and not listed
    assert [(run["first_part"], run["complete"]) for run in earlier.runs["topic_ids"]] == [
        (0, True),
        (2, False),
    ]
    document = json.loads((tmp_path / "topic_ids" / DIRECTORY / MANIFEST).read_text())
    assert [file["path"] for file in document["files"]] == [f"part-{n:05}.jsonl" for n in (0, 1, 2, 3, 4, 10)]
    assert [file["rows"] for file in document["files"]] == [1, 1, None, None, None, 1]
    assert (document["rows"], document["first_part"]) == (3, 10)


def test_a_manifest_names_the_latest_files_and_counts_the_others(tmp_path: Path) -> None:
    few = replace(DEFAULT, export_listed=2)
    live(tmp_path, 5, limits=few)
    document = json.loads((tmp_path / "topic_ids" / DIRECTORY / MANIFEST).read_text())
    assert [file["path"] for file in document["files"]] == ["part-00003.jsonl", "part-00004.jsonl"]
    assert (document["older"]["files"], document["older"]["rows"], document["rows"]) == (3, 3, 5)
    earlier = live(tmp_path, 1)
    assert earlier.files == 5


@pytest.mark.parametrize(
    ("form", "options"), [(ParquetFormat("zst", DEFAULT), {}), (FORM, {"partition_by": ("date",)})]
)
def test_incompatible_files_cannot_be_added(tmp_path: Path, form: Any, options: Any) -> None:
    live(tmp_path, 1)
    with pytest.raises(
        OutputError, match="topic_ids has jsonl; use a new directory, or use the same options"
    ):
        live(tmp_path, 1, form, **options)


def test_other_columns_cannot_either(tmp_path: Path) -> None:
    live(tmp_path, 1)
    (tmp_path / "topic_ids" / DIRECTORY / DDL).write_text("x STRING\n")
    with pytest.raises(OutputError, match=r"has different columns \(written by kdissect [\d.]+\)"):
        live(tmp_path, 1)


def test_files_without_a_manifest_are_foreign(tmp_path: Path) -> None:
    (tmp_path / "topic_ids").mkdir()
    (tmp_path / "topic_ids" / "part-00000.jsonl").write_text("")
    with pytest.raises(OutputError, match="is not empty and has no export"):
        live(tmp_path, 1)
    export(tmp_path, "groups", complete=True)
    with pytest.raises(OutputError, match="which is not from a live run"):
        live(tmp_path, 1)


def test_of_two_programs_that_write_at_the_same_time_the_first_fails(tmp_path: Path) -> None:
    """As in a store, where nothing is locked."""
    (_, first), (_, second) = (exports(tmp_path, ["none"], ["exchanges"]) for _ in range(2))
    second["none"].close([], [], complete=True, packets=0)
    with pytest.raises(OutputError, match="exchanges: another program has started to write to it"):
        first["none"].close([], [], complete=True, packets=0)
    first["none"].abandon()
    assert manifest.read(tmp_path / "none" / "exchanges")["complete"]
