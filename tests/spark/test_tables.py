from __future__ import annotations

import json
from contextlib import nullcontext
from shutil import copytree
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.errors import OutputError, UsageError
from kdissect.spark.tables import manifests, rows, tables, views
from kdissect.tables import duck
from kdissect.tables.rows import TABLES
from samples.golden import captures, name_of
from tests.exports import export_capture, json_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

(SAMPLE,) = (path for path in captures() if name_of(path) == "quickstart")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sample as JSON lines, compressed or not, and as Parquet."""
    directory = tmp_path_factory.mktemp("exported")
    export_capture(SAMPLE, directory, ["none", "zst", "parquet"])
    return directory


@pytest.mark.parametrize("form", ["none", "zst", "parquet"])
def test_all_tables_with_all_rows(spark: SparkSession, exported: Path, form: str) -> None:
    result = tables(spark, str(exported / form))
    assert list(result) == list(TABLES)
    expected = {name: len(json_rows(exported / "none" / name)) for name in TABLES}
    assert {name: frame.count() for name, frame in result.items()} == expected
    assert expected["exchanges"] == 75


def test_formats_say_the_same(spark: SparkSession, exported: Path) -> None:
    left, right = (
        tables(spark, str(exported / form), ["partitions"])["partitions"] for form in ("zst", "parquet")
    )
    assert left.exceptAll(right).count() == right.exceptAll(left).count() == 0
    assert left.schema == right.schema


def test_a_column_that_an_export_lacks_is_null(spark: SparkSession, exported: Path, tmp_path: Path) -> None:
    name = "exchanges"
    frame = tables(spark, str(exported / "parquet"), [name])[name]
    frame.drop("long_poll").write.parquet(str(tmp_path / name))
    (tmp_path / name / "_kdissect").mkdir()
    manifest = json.loads((exported / "parquet" / name / "_kdissect/manifest.json").read_text())
    (path,) = (tmp_path / name).glob("part-*")
    manifest["files"] = [{"path": path.name, "rows": 75, "bytes": path.stat().st_size}]
    (tmp_path / name / "_kdissect/manifest.json").write_text(json.dumps(manifest))
    (row,) = (
        tables(spark, str(tmp_path), [name])[name].selectExpr("count(*) n", "count(long_poll) m").collect()
    )
    assert (row.n, row.m) == (75, 0)


def test_views(spark: SparkSession, exported: Path) -> None:
    assert views(spark, str(exported / "parquet")) == list(TABLES)
    (row,) = spark.sql(
        "select count(*) n from exchanges join partitions using (connection, number)"
    ).collect()
    assert row.n == len(json_rows(exported / "none" / "partitions"))


def test_manifests_say_what_is_complete(spark: SparkSession, exported: Path) -> None:
    result = manifests(spark, f"{exported}/parquet/")
    assert result.keys() == TABLES.keys()
    assert {directory for table in result.values() for directory in table} == {f"{exported}/parquet"}
    assert all(each["complete"] for table in result.values() for each in table.values())


@pytest.mark.parametrize(("directory", "names", "message"), [
    ("nowhere", None, "no tables in .*nowhere; create them with kdissect export"),
    ("parquet", ["exchange"], 'unknown table "exchange"; did you mean "exchanges"'),
    ("one", ["exchanges", "groups"], "no table groups in .*one; it has exchanges"),
])  # fmt: skip
def test_missing_tables_are_reported(
    spark: SparkSession, exported: Path, directory: str, names: Any, message: str
) -> None:
    one = exported / "one"
    if not one.exists():
        one.mkdir()
        (one / "exchanges").symlink_to(exported / "parquet" / "exchanges")
    with pytest.raises(UsageError, match=message):
        tables(spark, str(exported / directory), names)


def damage(directory: Path, fault: str) -> None:
    """Do something to the files of ``partitions`` that copying a directory may do."""
    table = directory / "partitions"
    path = next(table.glob("part-*"))
    if fault == "lost":
        path.unlink()
    elif fault == "cut":
        path.write_bytes(path.read_bytes()[:-10])
    else:
        (table / "part-00007.parquet").write_bytes(path.read_bytes())


FAULTS = {
    "lost": "partitions lacks part-00000.parquet, which its manifest lists; --overwrite exports it again",
    "cut": "partitions has [0-9,]+ bytes of part-00000.parquet, not [0-9,]+ as its manifest says; --over",
    "foreign": "partitions has part-00007.parquet, which its manifest does not list; move that elsewhere",
}


@pytest.mark.parametrize("engine", ["spark", "duckdb"])
def test_files_that_differ_from_the_manifest_are_an_error(
    engine: str, exported: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    with duck.connection() if spark is None else nullcontext(spark) as session:
        for fault, message in FAULTS.items():
            copytree(exported / "parquet", tmp_path / fault)
            damage(tmp_path / fault, fault)
            with pytest.raises(OutputError, match=message):
                tables(session, str(tmp_path / fault))
            assert tables(session, str(tmp_path / fault), ["groups"])


def test_of_an_interrupted_export_only_finished_files_are_read(
    spark: SparkSession, exported: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "no[w]"  # no pattern
    copytree(exported / "parquet", directory)
    damage(directory, "foreign")
    path = directory / "partitions/_kdissect/manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "complete": False}))
    expected = len(json_rows(exported / "none" / "partitions"))
    assert tables(spark, str(tmp_path / "*"), ["partitions"])["partitions"].count() == expected


@pytest.mark.parametrize("engine", ["spark", "duckdb"])
def test_tables_of_several_directories(
    engine: str, exported: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    for day, form in (("monday", "parquet"), ("tues[d]{a}y", "none")):
        copytree(exported / form, tmp_path / day)
        for path in (tmp_path / day).glob("*/_kdissect/manifest.json"):
            path.write_text(path.read_text().replace('"path": "x"', f'"path": "{day}"'))
    with duck.connection() if spark is None else nullcontext(spark) as session:
        frames = tables(session, str(tmp_path / "*"), ["exchanges", "groups"])
        assert sum(1 for _ in rows(frames["exchanges"])) == 2 * 75
        assert len(frames["exchanges"].columns) == len(TABLES["exchanges"].columns)
        with pytest.raises(UsageError, match=r"^x is in .*/none and in .*/parquet$"):
            tables(session, [str(exported / "none"), str(exported / "parquet")])
