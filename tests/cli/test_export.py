from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.cli.terminal import FAILED, INTERRUPTED, OK, USAGE
from kdissect.extras import install
from kdissect.tables.manifest import DIRECTORY, MANIFEST
from kdissect.tables.rows import TABLES
from tests.captures import counters, interface, section
from tests.cli.commands import Run, capture_bytes, long_capture, run, spawn, talk, write
from tests.exports import json_rows, parquet_rows, part

if TYPE_CHECKING:
    from collections.abc import Callable

    Exporting = Callable[..., Run]

MAX_WAIT_S = 60
KILLED = """
import os, signal
from kdissect.cli.main import main
from kdissect.tables.export import Export

feed, fed = Export.feed, []

def killed(export, exchange):
    feed(export, exchange)
    fed.append(exchange)
    if len(fed) == 190:
        os.kill(os.getpid(), signal.SIGKILL)

Export.feed = killed
main()
"""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "tables"


@pytest.fixture
def capture(tmp_path: Path) -> str:
    return write(tmp_path / "talk.pcap", talk())


@pytest.fixture
def export(capsys: pytest.CaptureFixture[str]) -> Exporting:
    return lambda *options: run(capsys, "export", *map(str, options))


@pytest.mark.parametrize("options", [[], ["--format", "parquet"], ["-j", "2"]], ids=" ".join)
def test_drop_counters_beyond_64_bits(
    options: list[str], export: Exporting, capture: str, out: Path, tmp_path: Path
) -> None:
    """Each counter, and their sum."""
    path = tmp_path / "dropped.pcapng"
    path.write_bytes(section() + interface() + counters(dropped=1 << 63, dropped_by_system=(1 << 64) - 1))
    assert export(capture, path, "-o", out, *options).status == OK
    is_parquet = "parquet" in options
    rows = parquet_rows(out / "captures", TABLES["captures"]) if is_parquet else json_rows(out / "captures")
    assert [row["packets_dropped"] for row in rows] == [None, (1 << 63) - 1]


def names(directory: Path) -> list[str]:
    """All files with rows in a directory and its subdirectories."""
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*part-*"))


def manifest(directory: Path) -> Any:
    return json.loads((directory / DIRECTORY / MANIFEST).read_text())


def test_what_is_written(export: Exporting, capture: str, out: Path) -> None:
    done = export(capture, "-o", out)
    assert (done.status, done.out) == (OK, "")
    tables = [name for name in TABLES if name != "records"]
    assert sorted(path.name for path in out.iterdir()) == sorted(tables)
    assert names(out) == sorted(f"{name}/part-00000.jsonl" for name in tables)
    assert len(json_rows(out / "exchanges")) == 4
    assert f"written to {out}; rows: exchanges 4, partitions 0, connections 1" in done.err
    assert sorted(path.name for path in (out / "exchanges" / DIRECTORY).iterdir()) == [
        "create_table.sql", "manifest.json", "schema.ddl", "schema.json",
    ]  # fmt: skip


def test_an_empty_file_in_a_directory_is_reported(export: Exporting, capture: str, out: Path) -> None:
    empty = Path(capture).with_name("lost.pcap")
    empty.touch()
    done = export(empty.parent, "-o", out)
    assert done.status == USAGE
    assert f"{empty}: neither pcap nor pcapng; it is empty" in done.err
    assert {row["capture"]: row["packets"] for row in json_rows(out / "captures")}[str(empty)] == 0


def test_rows_are_those_of_read(
    export: Exporting, capsys: pytest.CaptureFixture[str], capture: str, out: Path
) -> None:
    shown = [json.loads(line) for line in run(capsys, "read", "--json", capture).lines]
    assert export(capture, "-o", out, "--compress", "zst").status == OK
    rows = json_rows(out / "exchanges")
    assert [{key: row[key] for key in shown[0]} for row in rows] == shown


@pytest.mark.parametrize("compression", [[], ["--compress", "none"], ["--compress", "gz"]])
def test_parquet(export: Exporting, capture: str, out: Path, compression: list[str]) -> None:
    assert export(capture, "-o", out, "--format", "parquet", *compression).status == OK
    assert part(out / "exchanges").name == "part-00000.parquet"
    assert len(parquet_rows(out / "exchanges", TABLES["exchanges"])) == 4


def test_without_pyarrow_it_says_what_to_install(
    export: Exporting, capture: str, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "kdissect.tables.parquet", raising=False)
    done = export(capture, "-o", out, "--format", "parquet")
    assert done == Run(USAGE, "", f"kdissect: Parquet needs pyarrow: {install('parquet')}\n")
    assert not out.exists()


def test_selected_tables(export: Exporting, capture: str, out: Path) -> None:
    assert export(capture, "-o", out, "--tables", "groups, topic_ids").status == OK
    assert sorted(path.name for path in out.iterdir()) == ["groups", "topic_ids"]
    assert export(capture, "-o", out, "--tables", "groups", "--records").status == OK
    assert sorted(path.name for path in out.iterdir()) == ["groups", "records", "topic_ids"]


def test_bodies(export: Exporting, capture: str, out: Path) -> None:
    for bodies in ("none", "request", "response", "both"):
        assert export(capture, "-o", out / bodies, "--bodies", bodies, "--tables", "exchanges").status == OK
        row = json_rows(out / bodies / "exchanges")[0]
        assert (row["request"] is not None) == (bodies in ("request", "both"))
        assert (row["response"] is not None) == (bodies in ("response", "both"))
        assert row["topics"] == ["orders"]


def test_filters(export: Exporting, capture: str, out: Path) -> None:
    assert export(capture, "-o", out, "--api", "Heartbeat", "--kind", "answered").status == OK
    assert {row["api"] for row in json_rows(out / "exchanges")} == {"Heartbeat"}
    (row,) = json_rows(out / "connections")
    assert row["exchanges"] == 4


def test_filters_that_nothing_matches(export: Exporting, capture: str, out: Path) -> None:
    done = export(capture, "-o", out, "--topic", "order")
    assert done.status == OK
    assert 'did you mean "orders"?' in done.err
    assert json_rows(out / "exchanges") == json_rows(out / "connections") == []


def test_partitions(export: Exporting, capture: str, out: Path) -> None:
    tables = ("--tables", "exchanges,connections")
    assert export(capture, "-o", out, *tables, "--partition-by", "date,api").status == OK
    assert names(out) == [
        "connections/date=2023-11-14/part-00000.jsonl",
        "exchanges/date=2023-11-14/api=Heartbeat/part-00001.jsonl",
        "exchanges/date=2023-11-14/api=Metadata/part-00000.jsonl",
    ]
    assert not {"date", "api"} & json_rows(out / "exchanges")[0].keys()
    sql = (out / "exchanges" / DIRECTORY / "create_table.sql").read_text()
    assert "PARTITIONED BY (`date`, `api`)" in sql


def test_rotation(export: Exporting, tmp_path: Path, out: Path) -> None:
    (tmp_path / "long.pcap").write_bytes(long_capture(500))
    options = ("--tables", "exchanges", "--rotate", "100KB")
    assert export(tmp_path / "long.pcap", "-o", out, *options).status == OK
    parts = [path.stat().st_size for path in sorted((out / "exchanges").glob("part-*"))]
    assert len(parts) > 2
    assert all(100_000 <= size < 200_000 for size in parts[:-1])
    rows = json_rows(out / "exchanges")
    assert [row["number"] for row in rows] == list(range(1, 501))
    assert sum(file["rows"] for file in manifest(out / "exchanges")["files"]) == 500


def test_directories_and_patterns(export: Exporting, tmp_path: Path, out: Path) -> None:
    directory = tmp_path / "captures"
    (directory / "below").mkdir(parents=True)
    write(directory / "a.pcap", talk(client=("10.0.0.1", 41000)))
    write(directory / "below" / "b.pcap", talk(client=("10.0.0.1", 41001)))
    (directory / "notes.txt").write_text("no capture")
    assert export(directory, "-o", out).status == OK
    assert len(json_rows(out / "captures")) == 2
    assert len(json_rows(out / "exchanges")) == 8
    assert export(directory / "**" / "*.pcap", "-o", tmp_path / "again").status == OK
    assert json_rows(tmp_path / "again" / "exchanges") == json_rows(out / "exchanges")


def test_stdin(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kdissect", "export", "-", "-o", tmp_path / "out"],
        input=capture_bytes(talk()),
        capture_output=True,
        check=False,
    )
    assert done.returncode == OK
    assert len(json_rows(tmp_path / "out" / "exchanges")) == 4
    assert json_rows(tmp_path / "out" / "captures")[0]["capture"] == "-"


# Running it again


def test_a_complete_export_is_left_alone(export: Exporting, capture: str, out: Path) -> None:
    export(capture, "-o", out)
    before = part(out / "exchanges").stat()
    done = export(capture, "-o", out)
    assert (done.status, done.err) == (
        OK, f"kdissect: {out} already has this export; use --overwrite to redo it\n"
    )  # fmt: skip
    assert part(out / "exchanges").stat() == before


def test_an_interrupted_export_is_repeated(export: Exporting, capture: str, out: Path) -> None:
    export(capture, "-o", out)
    expected = json_rows(out / "exchanges")
    written_manifest = manifest(out / "exchanges")
    (out / "exchanges" / DIRECTORY / MANIFEST).write_text(json.dumps({**written_manifest, "complete": False}))
    (out / "exchanges" / "part-00007.jsonl").write_text("{}\n")
    (out / "exchanges" / ".part-00008.jsonl.unfinished").write_text("{")
    connections = part(out / "connections").stat()
    assert export(capture, "-o", out).status == OK
    assert json_rows(out / "exchanges") == expected
    assert names(out / "exchanges") == ["part-00000.jsonl"]
    assert manifest(out / "exchanges")["complete"] is True
    assert part(out / "connections").stat() == connections


@pytest.mark.parametrize("other", [["--api", "Metadata"], ["--bodies", "none"], ["--format", "parquet"]])
def test_another_export_in_the_same_directory(
    export: Exporting, capture: str, out: Path, other: list[str]
) -> None:
    export(capture, "-o", out)
    before = json_rows(out / "exchanges")
    done = export(capture, "-o", out, *other)
    assert done.status == USAGE
    assert "made from other captures or with other options; use a new directory" in done.err
    assert json_rows(out / "exchanges") == before
    (out / "exchanges" / "mine.txt").write_text("kept")
    assert export(capture, "-o", out, *other, "--overwrite").status == OK
    assert (out / "exchanges" / "mine.txt").read_text() == "kept"
    assert len(names(out / "exchanges")) == 1


def test_files_of_another_program(export: Exporting, capture: str, out: Path) -> None:
    (out / "exchanges").mkdir(parents=True)
    (out / "exchanges" / "part-00000.jsonl").write_text("mine\n")
    for options in ([], ["--overwrite"]):
        done = export(capture, "-o", out, *options)
        assert done.status == USAGE
        assert f"{out}/exchanges is not empty and has no export; use a new directory" in done.err
    assert (out / "exchanges" / "part-00000.jsonl").read_text() == "mine\n"


def test_a_directory_that_cannot_be_created(export: Exporting, capture: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = export(capture, "-o", tmp_path / "file" / "out")
    assert done.status == FAILED
    assert "cannot write" in done.err
    assert "directory" in done.err.lower()


def test_a_full_disk(export: Exporting, capture: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("kdissect.tables.table_files.publish", full)  # which manifests have by themselves
        done = export(capture, "-o", out)
    assert done.status == FAILED
    assert "cannot write" in done.err
    assert "No space left on device" in done.err
    assert names(out) == []
    assert manifest(out / "exchanges")["complete"] is False
    assert export(capture, "-o", out).status == OK
    assert len(json_rows(out / "exchanges")) == 4


def test_a_damaged_capture_is_exported_up_to_there(
    export: Exporting, capture: str, tmp_path: Path, out: Path
) -> None:
    damaged = tmp_path / "damaged.pcap"
    damaged.write_bytes(Path(capture).read_bytes()[:-7] + bytes(3))
    done = export(damaged, "-o", out)
    assert done.status == OK
    assert json_rows(out / "exchanges")
    assert manifest(out / "exchanges")["warnings"]
    assert json_rows(out / "captures")[0]["warnings"]


def test_ctrl_c_completes_the_files(tmp_path: Path, out: Path) -> None:
    """The rows read so far are complete lines, and the manifest says that the export is incomplete."""
    process = spawn("export", "-", "-o", str(out), stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(long_capture(300))
    process.stdin.flush()
    deadline = time.monotonic() + MAX_WAIT_S
    while not list(out.glob("exchanges/.part-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=MAX_WAIT_S)
    assert process.returncode == INTERRUPTED, err
    assert b"the export is incomplete; use --overwrite to redo it" in err
    written_manifest = manifest(out / "exchanges")
    rows = json_rows(out / "exchanges")
    assert written_manifest["complete"] is False
    assert 0 < len(rows) == written_manifest["rows"]
    assert not list(out.rglob("*.unfinished"))


def test_killed_in_the_middle_and_run_again(export: Exporting, tmp_path: Path, out: Path) -> None:
    long = tmp_path / "long.pcap"
    long.write_bytes(long_capture(300))
    options = [str(long), "--rotate", "20KB"]
    assert export(*options, "-o", tmp_path / "expected").status == OK
    command = [sys.executable, "-c", KILLED, "export", *options, "-o", str(out)]
    pure = os.environ | {"KDISSECT_PURE": "1"}  # the core would finish most of them
    assert subprocess.run(command, check=False, env=pure).returncode == -signal.SIGKILL
    assert list(out.rglob("*.unfinished"))
    assert manifest(out / "exchanges")["complete"] is False
    assert export(*options, "-o", out).status == OK
    assert not list(out.rglob("*.unfinished"))
    assert json_rows(out / "exchanges") == json_rows(tmp_path / "expected" / "exchanges")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "-o"),
        (["-o", "x", "--tables", "exchange"], 'unknown table "exchange"; did you mean "exchanges"?'),
        (["-o", "x", "--partition-by", "topic"], 'invalid partitioning "topic": use date, api or date,api'),
        (["-o", "x", "--rotate", "5"], '"5" is too small; use 256MB, 1GiB'),
        (["-o", "x", "--format", "csv"], "csv"),
    ],
)
def test_invalid_options(export: Exporting, capture: str, options: list[str], message: str) -> None:
    done = export(capture, *options)
    assert done.status == USAGE
    assert message in done.err
