"""A directory of tables takes several exports, and reports take several directories."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import __version__
from kdissect.cli.terminal import OK, USAGE
from kdissect.tables import manifest
from kdissect.tables.rows import DEFAULT_TABLES
from samples.golden import ROOT
from tests.cli.commands import Run, run
from tests.exports import json_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    Exporting = Callable[..., Run]

DAYS = {"monday": "quickstart.pcap", "tuesday": "kafka-4-basics.pcap"}


@pytest.fixture
def export(capsys: pytest.CaptureFixture[str]) -> Exporting:
    return lambda *options: run(capsys, "export", *map(str, options))


@pytest.fixture
def days(tmp_path: Path) -> dict[str, Path]:
    """A directory with a capture for each day."""
    captures = {}
    for day, sample in DAYS.items():
        captures[day] = tmp_path / day / f"{day}.pcap"
        captures[day].parent.mkdir()
        captures[day].write_bytes((ROOT / "samples" / sample).read_bytes())
    return captures


def rows(directory: Path) -> Counter[str]:
    return Counter(f"{name} {row}" for name in DEFAULT_TABLES for row in json_rows(directory / name))


def described(directory: Path) -> Any:
    return json.loads((directory / "exchanges" / "_kdissect" / "manifest.json").read_text())


@pytest.mark.parametrize("options", [(), ("-j", "2"), ("--partition-by", "date")], ids=" ".join)
def test_captures_of_the_next_day_are_added(
    export: Exporting, days: dict[str, Path], tmp_path: Path, options: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    assert export(days["monday"], "-o", out, *options).status == OK
    added = export(*days.values(), "-o", out, *options)
    assert added.status == OK
    assert f"kdissect: {out} already has 1 of 2 captures\n" in added.err
    apart = sum(
        (
            export(path, "-o", tmp_path / "apart" / day, *options) and rows(tmp_path / "apart" / day)
            for day, path in days.items()
        ),
        Counter[str](),
    )
    assert rows(out) == apart
    for name in DEFAULT_TABLES:
        manifest.check(out / name)
    (monday,), tuesday = described(out)["jobs"], described(out)
    for entry, day in ((monday, "monday"), (tuesday, "tuesday")):
        assert [Path(each["path"]).stem for each in entry["job"]["captures"]] == [day]
        assert entry["complete"]
    assert "already has this export" in export(days["monday"], "-o", out, *options).err
    assert "already has this export" in export(*days.values(), "-o", out, *options).err


def test_the_content_of_a_capture_counts_not_its_time(
    export: Exporting, days: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export(*days.values(), "-o", out)
    os.utime(days["monday"], (1, 1))
    assert "already has this export" in export(days["monday"], "-o", out).err
    days["monday"].write_bytes(days["monday"].read_bytes()[:-200])
    changed = export(*days.values(), "-o", out)
    assert changed.status == USAGE
    assert f"{days['monday']} has changed since it was exported; --redo exports it again" in changed.err
    other = export(days["monday"], "-o", out, "--redo")
    assert other.status == USAGE
    assert "monday.pcap together with" in other.err
    assert export(*days.values(), "-o", out, "--redo").status == OK
    assert described(out)["job"]["captures"][0]["bytes"] == days["monday"].stat().st_size
    assert "jobs" not in described(out)


def test_another_version_says_what_it_would_redo(
    export: Exporting, days: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export(days["monday"], "-o", out)
    for name in DEFAULT_TABLES:
        path = out / name / "_kdissect" / "manifest.json"
        path.write_text(path.read_text().replace(f'"kdissect": "{__version__}"', '"kdissect": "0.0.9"'))
    export(days["tuesday"], "-o", out)
    assert "already has this export, from kdissect 0.0.9; use --redo" in export(days["monday"], "-o", out).err
    before = rows(out)
    assert export(days["monday"], "-o", out, "--redo").status == OK
    assert rows(out) == before
    versions = [each["versions"]["kdissect"] for each in (*described(out)["jobs"], described(out))]
    assert versions == [__version__] * 2


def test_an_interrupted_job_leaves_the_others_alone(
    export: Exporting, days: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export(days["monday"], "-o", out)
    export(*days.values(), "-o", out)
    expected = rows(out)
    for name in DEFAULT_TABLES:  # as if it had been killed
        path = out / name / "_kdissect" / "manifest.json"
        document = json.loads(path.read_text())
        path.write_text(json.dumps({**document, "complete": False, "files": []}))
    done = export(*days.values(), "-o", out)
    assert (done.status, rows(out)) == (OK, expected)
    assert "already has 1 of 2 captures" in done.err


def test_other_options_are_not_mixed(export: Exporting, days: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(days["monday"], "-o", out)
    done = export(days["tuesday"], "-o", out, "--bodies", "none")
    assert done.status == USAGE
    assert "made from other captures or with other options" in done.err


def test_tables_that_lack_different_captures(
    export: Exporting, days: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export(days["monday"], "-o", out, "--tables", "exchanges")
    done = export(*days.values(), "-o", out, "--tables", "exchanges,groups")
    assert done.status == USAGE
    assert "exchanges and" in done.err
    assert export(days["monday"], "-o", out, "--tables", "exchanges,groups").status == OK
    assert export(*days.values(), "-o", out, "--tables", "exchanges,groups").status == OK
    manifest.check(out / "groups")


def test_reports_on_several_directories(
    export: Exporting, days: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("duckdb")
    for day, path in days.items():
        assert export(path, "-o", tmp_path / "out" / day, "--format", "parquet").status == OK

    def query(*directories: Path) -> Run:
        text = "select api, count(*) n from exchanges group by all order by all"
        return run(
            capsys, "spark", "sql", "--engine", "duckdb", "--csv", *map(str, directories), text
        )  # fmt: skip

    one, other = (query(tmp_path / "out" / day) for day in days)
    both = query(tmp_path / "out" / "*")
    assert both.status == OK, both.err
    counts = [Counter({api: int(n) for api, n in (line.split(",") for line in each.lines[1:])})
              for each in (one, other, both)]  # fmt: skip
    assert counts[0] + counts[1] == counts[2]
    assert query(*(tmp_path / "out" / day for day in days)).out == both.out
    report = ("spark", "report", "--engine", "duckdb", str(tmp_path / "out" / "*"), "--report", "latency,lag")
    assert run(capsys, *report).status == OK
    export(days["monday"], "-o", tmp_path / "out" / "again", "--format", "parquet")
    twice = query(tmp_path / "out" / "*")
    assert twice.status == USAGE
    assert f"{days['monday']} is in {tmp_path}/out/again and in {tmp_path}/out/monday" in twice.err
