from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.cli.terminal import INTERRUPTED, OK, USAGE
from kdissect.tables.manifest import DIRECTORY, MANIFEST
from kdissect.tables.rows import TABLES
from tests.captures import pcapng
from tests.cli.commands import capture_bytes, long_capture, run, talk
from tests.cli.live_process import live, on_loopback
from tests.exports import json_rows, parquet_rows
from tests.frames import PRODUCE, heartbeat_answers, heartbeats, request, response
from tests.loopback import WAIT_S, Client, broker, listens
from tests.record_batches import Item, batch
from tests.segments import Talk

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.live_process import Live

SECOND_NS = 1_000_000_000
TERMINATED = 128 + signal.SIGTERM


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "tables"


def manifest(directory: Path) -> Any:
    return json.loads((directory / DIRECTORY / MANIFEST).read_text())


def parts(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("part-*"))


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def write(running: Live, data: bytes) -> None:
    assert running.process.stdin is not None
    running.process.stdin.write(data)
    running.process.stdin.flush()


def beats(count: int, step_ns: int, first: int = 1) -> list[tuple[int, bytes]]:
    """Heartbeats with responses, ``step_ns`` apart."""
    conversation = Talk(client=("10.0.0.1", 40_000 + first)).handshake()
    for number in range(first, first + count):
        conversation.client_sends(heartbeats(1, first=number)[0])
        conversation.broker_sends(heartbeat_answers(1, first=number)[0])
    start = 1_700_000_000 * SECOND_NS
    return [(start + index * step_ns, packet.data) for index, packet in enumerate(conversation.packets)]


def test_tables_of_a_pipe_are_those_of_its_exchanges(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, out: Path
) -> None:
    path = tmp_path / "talk.pcap"
    path.write_bytes(capture_bytes(talk()))
    shown = [json.loads(line) for line in run(capsys, "read", "--json", str(path)).lines]
    with live("-", "-o", str(out), stdin=subprocess.PIPE) as running:
        write(running, path.read_bytes())
        status, lines, stderr = running.rest_of_pipe()
    assert (status, lines) == (OK, [])
    assert f"written to {out}; rows: exchanges 4, partitions 0, connections 1" in stderr
    rows = json_rows(out / "exchanges")
    assert [{key: row[key] for key in shown[0] if key != "capture"} for row in rows] == [
        {key: value for key, value in row.items() if key != "capture"} for row in shown
    ]
    assert {row["capture"] for row in rows} == {"-"}
    assert sorted(path.name for path in out.iterdir()) == sorted(TABLES.keys() - {"records"})
    assert manifest(out / "exchanges")["complete"] is True
    (captured,) = json_rows(out / "captures")
    assert (captured["capture"], captured["packets"]) == ("-", len(talk().packets))


@pytest.mark.parametrize(
    ("options", "count"), [(["-P"], 4), (["--json"], 4), (["-P", "-c", "2"], 2), (["-q"], 1)]
)
def test_exchanges_are_shown_too_if_requested(out: Path, options: list[str], count: int) -> None:
    with live("-", "-o", str(out), *options, stdin=subprocess.PIPE) as running:
        write(running, capture_bytes(talk()))
        assert len(running.rest_of_pipe()[1]) == count
    assert len(json_rows(out / "exchanges")) == (count if "-c" in options else 4)


def test_files_appear_by_time_in_all_tables_at_once(out: Path) -> None:
    """By packet time: the last packet is more than five seconds after the first."""
    options = ("-o", str(out), "--rotate", "2s", "--format", "parquet")
    with live("-", *options, stdin=subprocess.PIPE) as running:
        data = pcapng(beats(1000, 3_000_000))
        write(running, data[:-3000])
        wait_for(lambda: len(parts(out / "exchanges")) > 1)
        wait_for(lambda: len(manifest(out / "exchanges")["files"]) > 1)
        assert manifest(out / "exchanges")["complete"] is False
        write(running, data[-3000:])
        assert running.rest_of_pipe()[0] == OK
    rows = parquet_rows(out / "exchanges", TABLES["exchanges"])
    assert [row["number"] for row in rows] == list(range(1, 1001))
    files = manifest(out / "exchanges")["files"]
    assert [file["rows"] for file in files] == [334, 334, 332]  # six milliseconds each


def test_each_file_that_is_followed_has_its_row(tmp_path: Path, out: Path) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()
    packets = beats(4, 1_000_000)
    (captures / "1.pcapng").write_bytes(pcapng(packets[:6]))
    with live("--follow", str(captures), "--json", "-o", str(out)) as running:
        running.line()
        (captures / "2.pcapng").write_bytes(pcapng(packets[6:]))
        for _ in range(3):
            running.line()
        assert running.end()[0] == INTERRUPTED
    rows = json_rows(out / "captures")
    assert [(Path(row["capture"]).name, row["packets"]) for row in rows] == [
        ("1.pcapng", 6),
        ("2.pcapng", len(packets) - 6),
    ]
    clock = manifest(out / "captures")["clock"]
    assert clock["first_packet"] == "2023-11-14T22:13:20.000000Z"
    assert clock["last_packet"] == "2023-11-14T22:13:20.010000Z"


def test_records_are_a_table_if_requested(out: Path) -> None:
    body = {
        "acks": 1,
        "topic_data": [{"name": "orders", "partition_data": [{"records": batch([Item(b"k", b"v")])}]}],
    }
    conversation = Talk().handshake()
    conversation.client_sends(request(PRODUCE, 9, body)).broker_sends(response(PRODUCE, 9, {}))
    with live("-", "-o", str(out), "--records", stdin=subprocess.PIPE) as running:
        write(running, capture_bytes(conversation))
        assert running.rest_of_pipe()[0] == OK
    assert [row["value"] for row in json_rows(out / "records")] == ["v"]


# Interfaces, signals, restarts


@listens
def test_an_interface_until_sigterm_and_again(out: Path) -> None:
    """Rows are in files after a second although there are no more packets; the next run adds files."""
    options = ("-o", str(out), "--rotate", "1s")
    with broker() as port, Client(port) as client:
        with on_loopback(port, *options) as running:
            client.beat(20)
            wait_for(lambda: bool(parts(out / "exchanges")))
            wait_for(lambda: bool(manifest(out / "exchanges")["files"]))
            status, lines, stderr = running.end(signal.SIGTERM)
        assert (status, lines) == (TERMINATED, [])
        assert "rows: exchanges 20, " in stderr
        assert manifest(out / "exchanges")["complete"] is True
        before = parts(out / "exchanges")
        files = sum(len(parts(out / name)) for name in TABLES)
        with live("-i", "lo", "-f", f"tcp port {port}", *options) as running:
            assert (
                running.error_line() == f"kdissect: {out} has {files} files from earlier runs; adding more\n"
            )
            running.error_line()
            client.beat(10)
            status, _, stderr = running.end()
        assert status == INTERRUPTED
    assert "rows: exchanges 10, " in stderr
    rows = json_rows(out / "exchanges")
    assert [row["correlation_id"] for row in rows] == list(range(1, 31))
    after = manifest(out / "exchanges")
    assert after["complete"] is True
    assert (after["rows"], len(after["files"])) == (30, len(before) + 1)
    (earlier,) = after["runs"]
    assert (earlier["complete"], earlier["first_part"]) == (True, 0)
    assert earlier["packets"] >= 40
    assert after["first_part"] == len(before)
    captures = json_rows(out / "captures")
    assert [(row["capture"], row["packets_dropped"]) for row in captures] == [("lo", 0), ("lo", 0)]


def test_killed_and_run_again(out: Path) -> None:
    options = ("-o", str(out), "--rotate", "20KB")
    data = long_capture(1000)
    with live("-", *options, stdin=subprocess.PIPE) as running:
        write(running, data)
        wait_for(lambda: len(list((out / "exchanges").glob("*part-*"))) > 2)
        running.process.kill()
        running.process.wait()
    assert manifest(out / "exchanges")["complete"] is False
    left = json_rows(out / "exchanges")  # whole lines, all of them
    before = parts(out / "exchanges")
    assert len(left) >= 1
    (out / "exchanges" / ".part-00090.jsonl.unfinished").write_text('{"half')
    with live("-", *options, stdin=subprocess.PIPE) as running:
        write(running, data)
        status, _, stderr = running.rest_of_pipe()
    assert status == OK
    assert f"kdissect: {out} has {len(before)} file" in stderr
    assert f"in {out}, left by a killed run" in stderr
    assert not list(out.rglob("*.unfinished"))
    assert len(json_rows(out / "exchanges")) == len(left) + 1000
    after = manifest(out / "exchanges")
    assert after["complete"] is True
    assert after["runs"][0]["complete"] is False
    assert {file["path"] for file in after["files"]} == set(parts(out / "exchanges"))
    assert parts(out / "exchanges")[: len(before)] == before


def test_the_second_ctrl_c_ends_it_at_once_and_leaves_no_half_file(out: Path) -> None:
    with live("-", "-o", str(out), stdin=subprocess.PIPE) as running:
        write(running, long_capture(300))
        wait_for(lambda: bool(list((out / "exchanges").glob(".part-*"))))
        running.process.send_signal(signal.SIGINT)
        running.process.send_signal(signal.SIGINT)
        status, _, _ = running.rest()
    assert status == INTERRUPTED
    assert not list(out.rglob("*.unfinished"))
    for line in (line for path in out.rglob("part-*") for line in path.read_text().splitlines()):
        json.loads(line)


def test_two_processes_cannot_export_to_one_directory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, out: Path
) -> None:
    path = tmp_path / "talk.pcap"
    path.write_bytes(capture_bytes(talk()))
    with live("-", "-o", str(out), stdin=subprocess.PIPE) as running:
        write(running, path.read_bytes())
        wait_for(lambda: (out / "captures" / DIRECTORY / MANIFEST).exists())
        for command in (["live", "--follow", str(tmp_path), "-o"], ["export", str(path), "-o"]):
            done = run(capsys, *command, str(out))
            assert done.status == USAGE
            message = f"{out} is in use by another kdissect (process {running.process.pid})"
            assert done.err == f"kdissect: {message}; use a new directory\n"
        running.process.kill()
        running.process.wait()
    done = run(capsys, "export", str(path), "-o", str(out))
    assert "has an unfinished export of - (0 rows) made from other captures" in done.err
    assert run(capsys, "export", str(path), "-o", str(out), "--overwrite").status == OK


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "parquet"], "exchanges has jsonl; use a new directory, or use the same options"),
        (["--partition-by", "date"], "exchanges has jsonl; use a new directory, or use the same options"),
    ],
)
def test_options_that_do_not_match_the_earlier_runs(out: Path, options: list[str], message: str) -> None:
    for more, status in (([], OK), (options, USAGE)):
        with live("-", "-o", str(out), *more, stdin=subprocess.PIPE) as running:
            running.process.stdin.write(capture_bytes(talk()))  # type: ignore[union-attr]
            done = running.rest_of_pipe()
        assert done[0] == status
    assert message in done[2]
    assert len(json_rows(out / "exchanges")) == 4


def test_an_export_of_files_cannot_be_continued(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, out: Path
) -> None:
    path = tmp_path / "talk.pcap"
    path.write_bytes(capture_bytes(talk()))
    assert run(capsys, "export", str(path), "-o", str(out)).status == OK
    done = run(capsys, "live", "--follow", str(path), "-o", str(out))
    assert done.status == USAGE
    assert "anomalies has an export of" in done.err
    assert "(0 rows), which is not from a live run; use a new directory" in done.err


@pytest.mark.parametrize("option", [["--format", "parquet"], ["--rotate", "5min"], ["--tables", "groups"]])
def test_options_that_go_with_export(capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    done = run(capsys, "live", "-i", "lo", *option)
    assert done.status == USAGE
    assert f"{option[0]} needs -o DIR" in done.err
