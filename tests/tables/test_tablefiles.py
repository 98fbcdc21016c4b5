from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet

from kdissect.errors import OutputError
from kdissect.limits import DEFAULT
from kdissect.tables.columns import DATE, INT64, STRING, Column
from kdissect.tables.form import Table
from kdissect.tables.parquet import ParquetFormat
from kdissect.tables.rows import RECORDS, TABLES
from kdissect.tables.table_files import (
    NO_VALUE,
    FinishedFile,
    JsonFormat,
    Listing,
    remove_row_files,
    row_files,
)
from tests.exports import BIG, json_rows, table_files
from tests.record_exchanges import batches_of, fetch, long_batch, produce

if TYPE_CHECKING:
    from kdissect.tables.table_files import TableFiles


def _column(name: str, kind: Any) -> Column:
    return Column(name, kind, lambda row: row.get(name), "A sentence.")


TABLE = Table(
    "things",
    "A thing.",
    (_column("n", INT64), _column("date", DATE), _column("api", STRING), _column("x", STRING)),
)


def files(directory: Path, **options: Any) -> TableFiles:
    return table_files(directory, TABLE, JsonFormat(), **options)


def names(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def test_a_file_has_its_name_once_it_is_complete(tmp_path: Path) -> None:
    output = files(tmp_path)
    output.feed({"n": 1})
    assert names(tmp_path) == [".part-00000.jsonl.unfinished"]
    output.close()
    assert names(tmp_path) == ["part-00000.jsonl"]
    assert json_rows(tmp_path) == [{"n": 1, "date": None, "api": None, "x": None}]
    assert list(output.files) == [("part-00000.jsonl", 1, (tmp_path / "part-00000.jsonl").stat().st_size)]


def test_partitions(tmp_path: Path) -> None:
    output = files(tmp_path, partition_by=("date", "api"))
    rows = [("2026-11-21", "Fetch"), ("2026-11-21", None), ("2026-11-22", "a/b=é"), ("2026-11-21", "Fetch")]
    for number, (day, api) in enumerate(rows):
        output.feed({"n": number, "date": day, "api": api})
    output.close()
    assert names(tmp_path) == [
        "date=2026-11-21/api=Fetch/part-00000.jsonl",
        f"date=2026-11-21/api={NO_VALUE}/part-00001.jsonl",
        "date=2026-11-22/api=a%2Fb%3D%C3%A9/part-00002.jsonl",
    ]
    assert json_rows(tmp_path / "date=2026-11-21" / "api=Fetch") == [{"n": 0, "x": None}, {"n": 3, "x": None}]


def test_a_table_without_the_column_is_not_divided_by_it(tmp_path: Path) -> None:
    assert files(tmp_path, partition_by=("date", "city")).partition_by == ("date",)


def test_few_files_are_open_at_once(tmp_path: Path) -> None:
    output = files(tmp_path, partition_by=("api",), limits=replace(DEFAULT, export_files=2))
    for number, api in enumerate("abcabcaa"):
        output.feed({"n": number, "api": api})
        assert len([name for name in names(tmp_path) if name.endswith("unfinished")]) <= 2
    output.close()
    assert sorted(row["n"] for row in json_rows(tmp_path)) == list(range(8))
    assert [row["n"] for row in json_rows(tmp_path / "api=a")] == [0, 3, 6, 7]


def test_rotation(tmp_path: Path) -> None:
    output = files(tmp_path, rotate_bytes=200_000)
    for number in range(100):
        output.feed({"n": number, "x": "x" * 10_000})
    output.close()
    assert len(output.files) == 5
    assert output.files.rows == output.rows == 100
    assert [row["n"] for row in json_rows(tmp_path)] == list(range(100))


def test_files_end_on_rotate(tmp_path: Path) -> None:
    output = files(tmp_path, partition_by=("api",))
    output.rotate()
    for number, api in enumerate("aba"):
        output.feed({"n": number, "api": api})
    output.rotate()
    assert len(output.files) == 2
    assert not [name for name in names(tmp_path) if name.endswith("unfinished")]
    output.feed({"n": 3, "api": "a"})
    output.close()
    assert [file.path for file in output.files][2] == "api=a/part-00002.jsonl"


def test_a_listing_keeps_the_latest_names() -> None:
    listing = Listing([FinishedFile(name, rows, 10) for name, rows in (("a", 1), ("b", None), ("c", 3))], 2)
    assert [file.path for file in listing] == ["b", "c"]
    listing.add(FinishedFile("d", 4, 10))
    assert (len(listing), listing.rows, listing.bytes, listing.older) == (4, 8, 40, (2, 1, 20))


def test_a_file_and_its_directory_are_on_disk_before_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def sync(number: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{number}").readlink()).removeprefix(f"{tmp_path}/"))

    monkeypatch.setattr("kdissect.files.os.fsync", sync)
    output = files(tmp_path / "new", partition_by=("api",))
    output.feed({"n": 1, "api": "a"})
    assert sorted(synced) == sorted([str(tmp_path), "new"])  # the parents of the two new directories
    output.close()
    assert synced[2:] == ["new/api=a/.part-00000.jsonl.unfinished", "new/api=a"]


def test_rotation_of_parquet(tmp_path: Path) -> None:
    limits = replace(DEFAULT, export_bytes=100_000)
    form = ParquetFormat("none", limits)
    output = table_files(tmp_path, TABLE, form, rotate_bytes=200_000, limits=limits)
    for number in range(200):
        output.feed({"n": number, "x": f"{number:10000}"})
    output.close()
    assert len(output.files) > 1
    assert sum(parquet.read_metadata(tmp_path / file.path).num_rows for file in output.files) == 200


def test_held_bytes_are_limited_for_all_files_together(tmp_path: Path) -> None:
    limits = replace(DEFAULT, export_bytes=100_000)
    output = table_files(tmp_path, TABLE, ParquetFormat("none", limits), partition_by=("api",), limits=limits)
    for number in range(60):
        output.feed({"n": number, "api": "ab"[number % 2], "x": "x" * 10_000})
        assert output._held <= 100_000
        assert output._held == sum(each.writer.held for each in output._open.values())
    output.close()
    read = parquet.ParquetFile(tmp_path / "api=a" / "part-00000.parquet")
    assert read.metadata.num_rows == 30
    assert read.metadata.num_row_groups > 3


def test_a_flush_leaves_small_partitions_until_they_are_large(tmp_path: Path) -> None:
    limits = replace(DEFAULT, export_bytes=100_000)
    output = table_files(tmp_path, TABLE, ParquetFormat("none", limits), partition_by=("api",), limits=limits)
    for number in range(400):
        output.feed({"n": number, "api": "rare" if number % 100 == 0 else "usual", "x": "x" * 1000})
    output.close()
    rare, usual = (parquet.read_metadata(next(tmp_path.glob(f"api={api}/*"))) for api in ("rare", "usual"))
    assert (rare.num_row_groups, usual.num_row_groups) == (1, 5)  # the fifth at the end


def test_footers_are_limited_for_all_files_together(tmp_path: Path) -> None:
    """Each row group adds a description of its columns to what is written at the end of the file."""
    limits = replace(DEFAULT, export_bytes=20_000, export_rows=2)
    output = table_files(tmp_path, TABLE, ParquetFormat("none", limits), partition_by=("api",), limits=limits)
    for number in range(400):
        output.feed({"n": number, "api": "abc"[number % 3], "x": "x"})
        assert sum(each.writer.footer for each in output._open.values()) <= 20_000
    output.close()
    groups = [parquet.read_metadata(tmp_path / file.path).num_row_groups for file in output.files]
    assert len(groups) > 3
    assert sum(groups) >= 200
    assert max(groups) <= 10


@pytest.mark.parametrize(
    ("rows", "held_bytes", "rotate_bytes"),
    [
        (20_000, 1 << 24, BIG),  # row groups and files end with the export
        (40, 1 << 24, BIG),
        (64, 1 << 24, 9_000),
        (20_000, 10_000, 20_000),
        (100, 40_000, 30_000),  # limits that take turns
    ],
)
@pytest.mark.parametrize("partition_by", [(), ("date", "api")])
@pytest.mark.parametrize("form", ["none", "zst", "parquet"])
def test_records_that_come_by_the_batch_end_up_as_those_that_come_one_by_one(
    tmp_path: Path, form: str, partition_by: Any, rows: int, held_bytes: int, rotate_bytes: int
) -> None:
    limits = replace(DEFAULT, export_rows=rows, export_bytes=held_bytes)
    format_ = ParquetFormat("zst", limits) if form == "parquet" else JsonFormat(form)
    unusual = long_batch((0, 70, 149))
    batches = batches_of(fetch(unusual), produce(long_batch(range(100))), fetch(long_batch((), 7) + unusual))
    output: list[dict[str, bytes]] = []
    for by_batch in (False, True):
        directory = tmp_path / str(by_batch)
        options: dict[str, Any] = {"rotate_bytes": rotate_bytes, "partition_by": partition_by}
        files = table_files(directory, TABLES[RECORDS], format_, limits=limits, **options)
        for records in batches:
            for row in (records,) if by_batch else records:
                files.feed(row)
        files.close()
        assert (files.rows, files.files.rows) == (457, 457)
        output.append({name: (directory / name).read_bytes() for name in names(directory)})
    assert output[0] == output[1]


def test_an_empty_table(tmp_path: Path) -> None:
    files(tmp_path / "plain").close()
    files(tmp_path / "divided", partition_by=("date",)).close()
    assert names(tmp_path) == ["plain/part-00000.jsonl"]


@pytest.mark.parametrize(
    "form", [JsonFormat("none"), JsonFormat("gz"), JsonFormat("zst"), ParquetFormat("zst", DEFAULT)]
)
def test_abandoned_files_are_removed(tmp_path: Path, form: Any) -> None:
    output = table_files(tmp_path, TABLE, form, partition_by=("api",), rotate_bytes=1)
    output.feed({"n": 1, "api": "a"})
    output.feed({"n": 2, "api": "b"})
    output.abandon()
    assert [name for name in names(tmp_path) if name.endswith("unfinished")] == []


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write .*/file/things: Not a directory"):
        files(tmp_path / "file" / "things").feed({"n": 1})
    with pytest.raises(OutputError, match="cannot write"):
        files(tmp_path / "file" / "things").close()


def test_own_files_alone_are_removed(tmp_path: Path) -> None:
    output = files(tmp_path, partition_by=("date",))
    output.feed({"n": 1, "date": "2026-11-21"})
    output.close()
    others = ["part-1.jsonl", "part-00000.csv", "date=x.txt", "mine/part-00000.jsonl"]
    (tmp_path / "mine").mkdir()
    for name in others:
        (tmp_path / name).write_text("")
    (tmp_path / ".part-00009.jsonl.zst.unfinished").write_text("")
    assert len(list(row_files(tmp_path))) == 2
    remove_row_files(tmp_path)
    assert names(tmp_path) == sorted(others)
    assert not (tmp_path / "date=2026-11-21").exists()
