from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdissect.cli.spark import decode as module
from kdissect.cli.terminal import OK, USAGE
from kdissect.tables.rows import TABLES
from tests.cli.commands import Run, run, talk, write
from tests.exports import json_rows, parquet_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    Decoding = Callable[..., Run]

SAMPLES = Path(__file__).parents[3] / "samples"


@pytest.fixture
def decode(capsys: pytest.CaptureFixture[str]) -> Decoding:
    return lambda *options: run(capsys, "spark", "decode", *map(str, options))


@pytest.fixture
def capture(tmp_path: Path) -> str:
    return write(tmp_path / "talk.pcap", talk())


def test_rows_are_those_of_export(
    decode: Decoding,
    capsys: pytest.CaptureFixture[str],
    spark: object,
    capture: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "tables"
    assert run(capsys, "export", capture, "-o", str(tmp_path / "here"), "--format", "parquet").status == OK
    done = decode(capture, "-o", out, "--tasks", "3")
    assert (done.status, done.out) == (OK, "")
    assert f"written to {out} by " in done.err
    assert "rows: exchanges 4, partitions 0, connections 1" in done.err
    for name in ("exchanges", "connections", "topic_ids"):
        assert parquet_rows(out / name, TABLES[name]) == parquet_rows(tmp_path / "here" / name, TABLES[name])
    monkeypatch.setattr(module, "session", None)  # Spark takes many seconds to start
    assert decode(capture, "-o", out, "--tasks", "3").err == (
        f"kdissect: {out} already has this export; use --overwrite to redo it\n"
    )
    next((out / "exchanges").glob("part-*")).unlink()
    lost = decode(capture, "-o", out)
    assert lost.status == USAGE
    assert "exchanges lacks part-00000.parquet, which its manifest lists; --overwrite exports it" in lost.err


def test_filters_and_forms(decode: Decoding, spark: object, capture: str, tmp_path: Path) -> None:
    options = ("--api", "Heartbeat", "--where", "number > 2", "--tables", "exchanges", "--format", "jsonl")
    done = decode(
        tmp_path, "-o", tmp_path / "tables", *options, "--bodies", "request", "--partition-by", "date"
    )
    assert done.status == OK, done.err
    rows = json_rows(tmp_path / "tables" / "exchanges")
    assert [(row["api"], row["number"], row["response"]) for row in rows] == [
        ("Heartbeat", 3, None), ("Heartbeat", 4, None),
    ]  # fmt: skip
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["exchanges"]
    assert list((tmp_path / "tables" / "exchanges").glob("date=2023-11-14/part-*.jsonl"))


def test_unresolved_topic_ids_are_counted(decode: Decoding, spark: object, tmp_path: Path) -> None:
    done = decode(SAMPLES / "midstream.pcap", "-o", tmp_path / "tables", "--tables", "topic_ids")
    assert done.status == OK
    assert "kdissect: no capture has the name of 1 topic ID\n" in done.err


def test_a_file_that_is_not_a_capture(decode: Decoding, spark: object, tmp_path: Path) -> None:
    (tmp_path / "x.pcap").write_text("no capture")
    done = decode(tmp_path / "x.pcap", "-o", tmp_path / "tables")
    assert (done.status, done.out) == (USAGE, "")
    assert done.err.startswith(f"kdissect: {tmp_path}/x.pcap: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no FILE given; use - for stdin"),
        (["nix-*.pcap"], "no file matches nix-*.pcap"),
        (["x.pcap", "--rotate", "5min"], "--rotate takes a size here, not a time"),
        (["x.pcap", "--tasks", "0"], "0 is not in the range 1<=x<=20000"),
        (["x.pcap", "--api", "Fetsch"], 'did you mean "Fetch"?'),
    ],
)
def test_invalid_options(decode: Decoding, tmp_path: Path, options: list[str], message: str) -> None:
    done = decode(*options, "-o", tmp_path)
    assert done.status == USAGE
    assert message in done.err


def test_stdin(decode: Decoding, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kdissect.cli.run.check_stdin", lambda: None)
    done = decode("-", "-o", tmp_path)
    assert done.status == USAGE
    assert "workers cannot read stdin; use kdissect export - -o DIR" in done.err
