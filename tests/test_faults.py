"""A bug of ours costs the capture that it happens in, is one line, and ends with a status of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.capture.pcapng import Section
from kdissect.cli.terminal import FAILED, OK
from kdissect.errors import DEBUG
from kdissect.tables import others
from kdissect.tables.rows import TableRows
from tests.captures import counters, pcapng
from tests.cli.commands import run, talk, write
from tests.exports import json_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Capsys = pytest.CaptureFixture[str]
    Patch = pytest.MonkeyPatch

REPORT = "a bug in kdissect; please report it with the output of --debug"
SECRET = "hunter2"


def in_the_reader(patch: Patch) -> None:
    """Before any packet of the file."""

    def fail(*_: Any) -> None:
        raise ValueError(SECRET)

    patch.setattr(Section, "_add_statistics", fail)


def in_a_row(patch: Patch) -> None:
    feed = TableRows.feed

    def fail(rows: TableRows, exchange: Any) -> Any:
        if exchange.first_frame.interface.capture.endswith("bad.pcapng"):
            raise ValueError(SECRET)
        return feed(rows, exchange)

    patch.setattr(TableRows, "feed", fail)


def at_the_end(patch: Patch) -> None:
    """When other files were read last."""
    captures = others.captures

    def fail(sources: Any, *rest: Any) -> Any:
        if any(source.name.endswith("bad.pcapng") for source in sources):
            raise ValueError(SECRET)
        return captures(sources, *rest)

    patch.setattr(others, "captures", fail)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Captures, of which the second is the one."""
    paths = [tmp_path / name for name in ("a.pcap", "bad.pcapng", "c.pcap")]
    for port, path in enumerate(paths, 40001):
        built = talk(client=("10.0.0.1", port))
        if path.suffix == ".pcap":
            write(path, built)
        else:
            packets = [(packet.time_ns, packet.data) for packet in built.packets]
            data = pcapng(packets)
            path.write_bytes(data[:48] + counters() + data[48:])
    return [str(path) for path in paths]


def rows(directory: Path) -> list[str]:
    """Of each exchange where it is from."""
    return sorted(f"{row['capture']} {row['client_port']}" for row in json_rows(directory / "exchanges"))


@pytest.mark.parametrize("options", [[], ["-j", "2"]], ids=" ".join)
@pytest.mark.parametrize("where", [in_the_reader, in_a_row, at_the_end])
def test_an_export_loses_one_capture(
    where: Callable[[Patch], None],
    options: list[str],
    files: list[str],
    tmp_path: Path,
    capsys: Capsys,
    monkeypatch: Patch,
) -> None:
    good, result = [files[0], files[2]], tmp_path / "found"
    assert run(capsys, "export", *good, "-o", str(tmp_path / "good")).status == OK
    with monkeypatch.context() as patch:
        where(patch)
        done = run(capsys, "export", *files, "-o", str(result), *options)
    assert done.status == FAILED
    (line,) = [line for line in done.err.splitlines() if REPORT in line]
    assert f"{files[1]}: unexpected ValueError at test_faults.py:" in line
    assert SECRET not in done.err
    assert "the export is incomplete; run the same command again to redo it" in done.err
    assert rows(result) == rows(tmp_path / "good")
    manifest = json.loads((result / "exchanges" / "_kdissect" / "manifest.json").read_text())
    assert (manifest["complete"], any(REPORT in each for each in manifest["warnings"])) == (False, True)
    assert [path for path in result.iterdir() if path.name.startswith(".")] == []

    assert run(capsys, "export", *files, "-o", str(result), *options).status == OK  # mended
    assert len(rows(result)) == len(rows(tmp_path / "good")) * 3 // 2


def test_an_export_of_one_capture_writes_nothing(
    files: list[str], tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    in_a_row(monkeypatch)
    done = run(capsys, "export", files[1], "-o", str(tmp_path / "found"))
    assert (done.status, len(done.lines), len(done.err.splitlines())) == (FAILED, 0, 1)
    assert done.err.startswith(f"kdissect: {files[1]}: unexpected ValueError at ")
    assert list(tmp_path.rglob("part-*")) == []


@pytest.mark.parametrize("command", ["read", "records", "summary", "check"])
@pytest.mark.parametrize("options", [[], ["-j", "2"]], ids=" ".join)
def test_others_are_read(
    command: str, options: list[str], files: list[str], capsys: Capsys, monkeypatch: Patch
) -> None:
    if command == "check":
        options = []
    good = run(capsys, command, files[0], files[2], *options)
    in_the_reader(monkeypatch)
    done = run(capsys, command, *files, *options)
    assert done.status == FAILED
    text = done.out + done.err
    assert f"{files[1]}: unexpected ValueError at test_faults.py:" in text
    times = 2 if command == "summary" else 1  # its verdict on the captures names the reason, too
    assert (text.count(REPORT), SECRET in text) == (times, False)
    assert command not in ("read", "records") or done.out == good.out


@pytest.mark.parametrize("command", ["read", "summary", "check"])
def test_of_several_captures_the_line_names_the_one_that_was_read(
    command: str, files: list[str], capsys: Capsys, monkeypatch: Patch
) -> None:
    def fail(_dissection: Any, exchange: Any) -> None:
        raise ValueError(SECRET)

    monkeypatch.setattr("kdissect.core.is_used", False)  # it describes exchanges without decoding them
    monkeypatch.setattr("kdissect.pipeline.Dissection.decode", fail)
    done = run(capsys, command, files[1])
    assert (done.status, done.out) == (FAILED, "")
    assert done.err.startswith(f"kdissect: {files[1]}: unexpected ValueError at ")
    done = run(capsys, command, *files)
    assert (done.status, len(done.err.splitlines()), REPORT in done.err) == (FAILED, 1, True)
    assert any(path in done.err for path in files)


@pytest.mark.parametrize("where", ["--debug", DEBUG])
def test_a_traceback_is_there_on_request(
    where: str, files: list[str], capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setenv(DEBUG, "1" if where == DEBUG else "0")
    in_the_reader(monkeypatch)
    done = run(capsys, "read", *files, *([where] if where != DEBUG else []))
    assert (done.status, f"ValueError: {SECRET}" in done.err, "Traceback" in done.err) == (FAILED, True, True)


LIVE = """
import sys
from kdissect.capture.pcapng import Section
from kdissect.cli.main import main
from kdissect.tables.rows import TableRows
if sys.argv.pop(1) == "reader":
    Section._add_statistics = lambda *_: [][0]
else:
    TableRows.close = lambda *_: [][0]
sys.exit(main())
"""


@pytest.mark.parametrize("where", ["reader", "table"])
def test_what_comes_live_is_kept_as_far_as_it_came(where: str, tmp_path: Path) -> None:
    packets = [(packet.time_ns, packet.data) for packet in talk().packets]
    arguments = [where, "live", "-", "-P", "-o", str(tmp_path / "tables")]
    done = subprocess.run(
        [sys.executable, "-c", LIVE, *arguments],
        input=pcapng(packets) + counters(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == FAILED
    assert len(done.stdout.splitlines()) == 4
    (line,) = [line for line in done.stderr.decode().splitlines() if REPORT in line]
    assert "-: unexpected IndexError at " in line
    assert b"Traceback" not in done.stderr
    manifest = json.loads((tmp_path / "tables" / "exchanges" / "_kdissect" / "manifest.json").read_text())
    assert (manifest["complete"], manifest["rows"]) == (False, 4 if where == "reader" else 0)
