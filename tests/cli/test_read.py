from __future__ import annotations

import csv
import io
import json
import re
import signal
import subprocess
import sys
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest

from kdissect.cli.terminal import FAILED, INTERRUPTED, OK, USAGE
from kdissect.text.style import FORMATS, Times
from tests.captures import gzipped
from tests.cli.commands import ORDERS, Run, capture_bytes, long_capture, run, spawn, talk, write
from tests.frames import FETCH, SASL_AUTHENTICATE, request, response
from tests.record_batches import Item, batch
from tests.segments import Talk

if TYPE_CHECKING:
    from pathlib import Path

ENDS = f"{'10.0.0.1:40000':21}  {'10.0.0.2:9092':21}  {'test-client':20}"
LINES = f"""\
22:13:20.003000  {ENDS}  Metadata v12        1.00ms       \
orders -> 0 brokers, 1 topic, 0 partitions  LEADER_NOT_AVAILABLE
22:13:20.005000  {ENDS}  Heartbeat v4        1.00ms       \
group group, generation 7, member member-1
22:13:20.005000  {ENDS}  Heartbeat v4        1.00ms       \
group group, generation 7, member member-1
22:13:20.005000  {ENDS}  Heartbeat v4        pending      \
group group, generation 7, member member-1
"""


class Reader:
    """Runs ``read`` on a capture of ``talk()``."""

    def __init__(self, path: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self.capsys = capsys

    def __call__(self, *options: str) -> Run:
        return run(self.capsys, "read", *options, self.path)


@pytest.fixture
def read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Reader:
    return Reader(write(tmp_path / "capture.pcap", talk()), capsys)


# What is shown, and how


def test_a_line_for_each_exchange(read: Reader) -> None:
    assert read("-t", "u") == Run(OK, LINES, "")


def test_times(read: Reader) -> None:
    assert read().lines[0].startswith("22:13:20.003000  ")
    relative = [line.split()[0] for line in read("-t", "r").lines]
    assert relative == ["0.003000", "0.005000", "0.005000", "0.005000"]
    assert read("-t", "d", "--kind", "unanswered").lines[0].startswith("    0.000000  ")
    assert read("-t", "dd", "--api", "heartbeat").lines[1].startswith("    0.000000  ")


def test_a_tree(read: Reader) -> None:
    shown = read("-V", "--api", "metadata").lines
    assert re.fullmatch(r"[0-9a-f]+/1  Metadata v12  response after 1\.00ms", shown[0])
    assert f'    topics: [1]\n      [0] topic_id: {"A" * 22}, name: "orders"' in "\n".join(shown)
    assert f'topic_id: {ORDERS} ("orders")' in read("-V", "--api", "metadata").out
    assert "000000  00 03                    request_api_key: 3 (Metadata)" in read("-x").lines
    assert read("-V", "-x").out == read("-x").out


def test_json_and_csv(read: Reader) -> None:
    rows = [json.loads(line) for line in read("--json").lines]
    assert [row["api"] for row in rows] == ["Metadata", "Heartbeat", "Heartbeat", "Heartbeat"]
    assert rows[0]["errors"] == rows[0]["expected_errors"] == ["LEADER_NOT_AVAILABLE"]
    table = list(csv.DictReader(io.StringIO(read("--csv").out)))
    assert [row["number"] for row in table] == ["1", "2", "3", "4"]


def test_only_a_count(read: Reader) -> None:
    assert read("-q") == Run(OK, "4 exchanges, 3 answered, 1 pending, 1 expected error\n", "")


def test_stop_after_some(read: Reader) -> None:
    assert read("-t", "u", "-c", "2").lines == LINES.splitlines()[:2]
    assert read("-t", "u", "-c", "1", "--api", "heartbeat").lines == LINES.splitlines()[1:2]


def test_color_on_request(read: Reader) -> None:
    assert "\x1b[2mLEADER_NOT_AVAILABLE\x1b[0m" in read("--color", "always").out
    assert "\x1b" not in read().out + read("-V", "--color", "never").out


@pytest.mark.parametrize(
    "options",
    [("-V", "--json"), ("-x", "--csv"), ("--json", "--csv"), ("-q", "--json"), ("-q", "-V")],
    ids=" ".join,
)
def test_options_that_exclude_each_other(read: Reader, options: tuple[str, ...]) -> None:
    done = read(*options)
    assert (done.status, done.out) == (USAGE, "")
    assert "are mutually exclusive" in done.err


# Which exchanges


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["--api", "METADATA"], [1]),
        (["--api", "3", "--api", "heartbeat"], [1, 2, 3, 4]),
        (["--topic", "ord*"], [1]),
        (["--group", "group"], [2, 3, 4]),
        (["--client", "10.0.0.1"], [1, 2, 3, 4]),
        (["--client", "other"], []),
        (["--error", "leader_not_available"], [1]),
        (["--kind", "unanswered"], [4]),
        (["--slower-than", "500us"], [1, 2, 3]),
        (["--bigger-than", "1KB"], []),
        (["--since", "22:13:20.005"], [2, 3, 4]),
        (["--until", "2023-11-14T22:13:20.005Z"], [1]),
        (["--where", 'api == "Heartbeat" and latency_us >= 1000'], [2, 3]),
        (["-Y", 'request.topics.name == "orders"'], [1]),
        (["--port", "9092"], [1, 2, 3, 4]),
        (["--port", "1-9091,9093-65535", "--port", "9092"], [1, 2, 3, 4]),
        (["-d", "tcp.port==9092,kafka"], [1, 2, 3, 4]),
        (["--api", "heartbeat", "--kind", "answered", "-c", "1"], [2]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_filters(read: Reader, options: list[str], numbers: list[int]) -> None:
    done = read("--json", *options)
    assert done.status == OK
    assert [json.loads(line)["number"] for line in done.lines] == numbers
    assert ("no match in 4 exchanges" in done.err) is (not numbers)


def test_one_exchange_by_its_key(read: Reader) -> None:
    rows = [json.loads(line) for line in read("--json").lines]
    key = f"{rows[2]['connection']}/3"
    assert [json.loads(line)["number"] for line in read("--json", "--exchange", key).lines] == [3]
    assert read("--exchange", "0000/3").out == ""
    assert len(read("--connection", rows[0]["connection"][:4]).lines) == 4


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--api", "Fetsch"], 'did you mean "Fetch"?'),
        (["--error", "NOT_LEADER"], "did you mean"),
        (["--slower-than", "5"], 'invalid duration "5": use '),
        (["--where", "api = 3"], "  api = 3\n      ^\n"),
        (["--where", "latencys > 3"], 'did you mean "latency"?'),
        (["--exchange", "x"], 'invalid exchange "x": use '),
        (["-t", "x"], "'x' is not one of"),
        (["-c", "0"], '--count: invalid number "0": use 1 or more'),
        (["-c", "x"], '--count: invalid number "x": use '),
        (["-d", "tcp.port==9093,mqtt"], 'unsupported protocol "mqtt"'),
        (["--port", "http"], 'invalid port "http": use '),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes(read: Reader, options: list[str], text: str) -> None:
    done = read(*options)
    assert (done.status, done.out) == (USAGE, "")
    assert text in done.err


# Input, good and bad


def test_files_are_named_as_tshark_users_do(read: Reader) -> None:
    assert run(read.capsys, "read", "-t", "u", "-r", read.path).out == LINES
    done = run(read.capsys, "read")
    assert (done.status, done.out) == (USAGE, "")
    assert "no FILE given; use - for stdin" in done.err


def test_several_files_are_one_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = talk(), talk(client=("10.0.0.9", 5))
    both = [write(tmp_path / "b.pcap", second), write(tmp_path / "a.pcap", first)]
    assert len(run(capsys, "read", *both).lines) == 8


def test_a_capture_that_ends_in_the_middle_of_a_packet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(capture_bytes(talk())[:-10])
    done = run(capsys, "read", str(path))
    assert (done.status, len(done.lines)) == (OK, 4)
    assert re.fullmatch(r"kdissect: warning: .*cut\.pcap: ends in the middle of packet \d+.*\n", done.err)


def test_a_capture_that_is_damaged_in_the_middle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "damaged.pcap"
    path.write_bytes(capture_bytes(talk()) + b"\x7f" * 40)
    done = run(capsys, "read", str(path))
    assert (done.status, len(done.lines)) == (OK, 4)
    assert done.err.startswith(f"kdissect: warning: {path}: packet ")
    assert done.err.endswith("the rest was not read\n")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    "data", [b"", b"not a capture", b"\xff" * 5000, gzipped(b"text"), b"PK\3\4" + bytes(99)]
)
def test_what_is_not_a_capture(data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd.pcap"
    path.write_bytes(data)
    done = run(capsys, "read", str(path))
    assert (done.status, done.out) == (USAGE, "")
    assert done.err.startswith(f"kdissect: {path}: ")
    assert done.err.count("\n") == 1


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "read", str(tmp_path / "none.pcap"))
    assert (done.status, done.out) == (USAGE, "")
    assert "none.pcap: no such file" in done.err


def test_what_is_not_kafka_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    web = Talk(broker=("10.0.0.2", 9092)).handshake()
    web.client_sends(b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n").broker_sends(
        b"HTTP/1.1 200 OK\r\n\r\n"
    ).finish()
    done = run(capsys, "read", write(tmp_path / "web.pcap", web))
    assert (done.status, done.out) == (OK, "")
    assert re.search(
        r"no Kafka traffic \(\d+ packets, connections: 1 HTTP\); to decode a port as Kafka: -d tcp",
        done.err,
    )


def test_odd_bodies_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = talk()
    good = request(FETCH, 13, {}, correlation_id=9)
    odd.client_sends((len(good) - 4 + 3).to_bytes(4, "big") + good[4:] + b"\1\2\3")
    odd.broker_sends(response(FETCH, 13, {}, correlation_id=9))
    path = write(tmp_path / "odd.pcap", odd)
    assert run(capsys, "read", "--api", "fetch", path).out.endswith("! trailing_bytes\n")
    assert (
        "! trailing_bytes (note) in request, 3 bytes" in run(capsys, "read", "-V", "--api", "fetch", path).out
    )


def test_credentials_are_redacted_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    login = Talk().handshake()
    login.client_sends(request(SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0hunter2"}, correlation_id=1))
    login.broker_sends(response(SASL_AUTHENTICATE, 2, {}, correlation_id=1))
    path = write(tmp_path / "login.pcap", login)
    assert "auth_bytes: redacted (14 bytes)" in run(capsys, "read", "-V", path).out
    assert b"hunter2".hex(" ") in run(capsys, "read", "-V", "--show-secrets", path).out


# Pipes and signals: how a process ends


def test_stdin_is_a_capture() -> None:
    process = spawn("read", "-t", "u", "-", stdin=-1)
    out, err = process.communicate(capture_bytes(talk()), timeout=60)
    assert (process.returncode, out.decode(), err) == (OK, LINES, b"")


@pytest.mark.parametrize("options", [(), ("--json",), ("-V",)], ids=["lines", "json", "tree"])
def test_a_reader_that_goes_away_is_no_error(options: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "long.pcap"
    path.write_bytes(long_capture(3000))
    process = spawn("read", *options, str(path))
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == OK
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/full is Linux")
@pytest.mark.parametrize(
    "options", [(), ("--json",), ("--csv",), ("-q",)], ids=["lines", "json", "csv", "count"]
)
def test_a_full_disk_is_an_error_of_one_line(options: tuple[str, ...], read: Reader) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123  (a device)
        process = spawn("read", *options, read.path, stdout=full)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (FAILED, b"kdissect: cannot write stdout: No space left on device\n")


def test_ctrl_c_reports_the_counts() -> None:
    process = spawn("read", "-l", "-t", "u", "-", stdin=-1)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(capture_bytes(talk()) + bytes(8))
    process.stdin.flush()
    shown = [process.stdout.readline() for _ in range(3)]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED
    assert (b"".join(shown).decode(), out) == (LINES[: LINES.index("\n", LINES.rindex("1.00ms")) + 1], b"")
    assert re.fullmatch(rb"kdissect: interrupted after \d+ packets, 3 exchanges shown\n", err)


# Records


QUICKSTART = "samples/quickstart.pcap"
FIRST = ("--api", "Produce", "-c", "1", QUICKSTART)


def test_records_in_the_tree(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "read", "-V", "--records", *FIRST)
    at = done.lines.index("            records: 1 batch, 2 records, 186 bytes")
    assert done.lines[at + 1 : at + 7] == [
        "              [0] offsets 0 to 1, 2 records, 186 bytes, lz4, CreateTime, leader epoch 0",
        "                [0] offset 0, 2026-11-21T09:25:31.742Z",
        '                  key: "customer-0"',
        "                  headers: [1]",
        '                    trace: "00000000"',
        '                  value: "{"order": 0, "item": "apple", "count": 1}"',
    ]
    with_bytes = run(capsys, "read", "-x", "--records", *FIRST)
    assert [line.strip() for line in with_bytes.lines if " key: " in line] == ['key: "customer-0"'] * 2
    assert "customer-0" not in run(capsys, "read", "-V", *FIRST).out


def test_records_in_machine_formats(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = map(json.loads, run(capsys, "read", "--json", "--records", *FIRST).lines)
    (batch,) = row["request"]["topic_data"][0]["partition_data"][0]["records"]
    assert [record["key"] for record in batch["records"]] == ["customer-0"] * 2
    assert "customer-0" in run(capsys, "read", "--csv", "--records", *FIRST).out
    assert "customer-0" not in run(capsys, "read", "--json", *FIRST).out


def test_records_of_the_metadata_log_hide_their_credentials(capsys: pytest.CaptureFixture[str]) -> None:
    kraft = ("--records", "--api", "Fetch", "--where", "records > 0", "samples/kafka-4-kraft.pcap.gz")
    salts = [line for line in run(capsys, "read", "-V", "--full", *kraft).lines if " salt: " in line]
    assert salts
    assert all(re.search(r"salt: redacted \(\d+ bytes\)$", line) for line in salts)
    with_bytes = run(capsys, "read", "-x", *kraft).out
    assert re.search(r"not shown +records: redacted \([\d,]+ bytes\)\n +\[0\] offsets 0 to ", with_bytes)


def test_records_need_a_way_that_has_room_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "read", "--records", QUICKSTART)
    assert done.status == USAGE
    assert done.err == (
        "kdissect: --records needs -V, -x, --json or --csv; for one line per record: kdissect records "
        "(see kdissect read --help)\n"
    )


def test_checksums_are_verified_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conversation = Talk()
    conversation.handshake()
    records = batch([Item(b"k", b"v")], crc=1) + batch([Item()])
    answer = {"responses": [{"topic": "orders", "partitions": [{"records": records}]}]}
    conversation.client_sends(request(FETCH, 4, {}, correlation_id=1))
    conversation.broker_sends(response(FETCH, 4, answer, correlation_id=1))
    path = tmp_path / "x.pcap"
    path.write_bytes(capture_bytes(conversation))
    assert "crc_mismatch" not in run(capsys, "read", str(path)).out
    (line,) = run(capsys, "read", "--check-crcs", str(path)).lines
    assert line.endswith("! crc_mismatch")


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(
    ("options", "says_when"),
    [
        (("--since", "10:00"), True),
        (("--until", "09:00", "--client", "web-shop"), True),
        (("--since", "2026-11-22"), True),
        (("--since", "09:25:30", "--until", "09:25:31"), True),
        (("--since", "09:25:38", "--client", "web-shop"), False),
        (("--client", "nobody"), False),
    ],
)
@pytest.mark.usefixtures("with_core_and_without")
def test_a_time_range_outside_the_capture(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], jobs: str, says_when: bool
) -> None:
    for command in ("read", "records", "summary"):
        done = run(capsys, command, "-j", jobs, *options, "samples/quickstart.pcap")
        assert done.status == OK
        assert done.err.startswith("kdissect: no match in 75 exchanges")
        first, last = ("31.737", "39.623") if command == "records" else ("31.735", "39.325")
        when = f"the capture has exchanges from 2026-11-21 09:25:{first} to 09:25:{last} UTC"
        assert (when in done.err) is says_when


# Order and headings


CLUSTER = "samples/kafka-4-cluster.pcap.gz"


def test_the_order_of_request(capsys: pytest.CaptureFixture[str]) -> None:
    fields = ("-e", "time,connection,number", CLUSTER)
    by_completion = run(capsys, "read", *fields).lines
    assert run(capsys, "read", "--order", "completion", *fields).lines == by_completion
    by_request = run(capsys, "read", "--order", "time", *fields).lines
    assert sorted(by_request) == sorted(by_completion)
    late = [
        line
        for line in run(capsys, "read", "--order", "time", "-t", "ud", CLUSTER).lines
        if line.endswith("  late")
    ]
    times = [line.partition("\t")[0] for line in by_request]
    latest = list(accumulate(times, max))
    assert (
        [time for time, before in zip(times[1:], latest[:-1], strict=True) if time < before]
        == [f"{line.split()[0]}Z" for line in late]
        != []
    )


def test_live_traffic_has_no_order_of_request() -> None:
    done = spawn("read", "--order", "time", "-", stdin=subprocess.DEVNULL)
    assert b"--order time needs files" in done.communicate(timeout=60)[1]


def test_headings_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    for jobs in ("1", "2"):
        heading, *lines = run(capsys, "read", "--heading", "-j", jobs, CLUSTER).lines
        assert heading.split() == [
            "TIME",
            "(UTC)",
            "CLIENT",
            "BROKER",
            "CLIENT",
            "ID",
            "API",
            "LATENCY",
            "ABOUT",
        ]
        assert heading.index("CLIENT") == lines[0].index(lines[0].split()[1])
        assert lines == run(capsys, "read", CLUSTER).lines
        heading, *lines = run(capsys, "read", "--heading", "-j", jobs, "-e", "api,latency_us", CLUSTER).lines
        assert (heading, len(lines[0].split("\t"))) == ("api\tlatency_us", 2)
    done = run(capsys, "read", "--heading", "--json", CLUSTER)
    assert (done.status, done.err) == (
        USAGE,
        "kdissect: --heading and --no-heading are for lines and --fields (see kdissect read --help)\n",
    )
    heading, first, *_ = run(capsys, "records", "--heading", CLUSTER).lines
    assert heading.index("PARTITION") == first.index(first.split()[2])


def test_headings_of_all_formats_of_time() -> None:
    for name in FORMATS:
        times = Times(name, first_ns=0)
        assert (
            len(times.text(1_790_000_000_123_456_789 if name not in "ddr" else 1_000_000_000)) == times.width
        )


@pytest.mark.usefixtures("with_core_and_without")
def test_what_a_fetch_forgets_is_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    *_, line = run(capsys, "read", "tests/field/forgotten-zero-uuid.pcap").lines
    text = f"replica 2 session 620866590, forget <id {'A' * 22}>-0 -> no records  UNKNOWN_TOPIC_ID"
    assert line.endswith(text)


def test_what_the_broker_says_is_one_short_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer = {"topics": [{"name": "t", "error_code": 44, "error_message": "two\n\x1b[31mlines " * 50}]}
    conversation = Talk().handshake()
    conversation.client_sends(request(19, 5, {"topics": [{"name": "t"}]}, correlation_id=1))
    conversation.broker_sends(response(19, 5, answer, correlation_id=1))
    path = write(tmp_path / "policy.pcap", conversation)
    (line,) = run(capsys, "read", path).lines
    assert ' -> "two\\n\\x1b[31mlines two' in line
    assert line.endswith('…"  POLICY_VIOLATION')
    assert len(line) < 500
