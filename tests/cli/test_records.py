from __future__ import annotations

import base64
import csv
import io
import json
import re
import signal
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import core
from kdissect.cli.terminal import INTERRUPTED, OK, USAGE
from kdissect.tables.columns import RECORD
from samples.golden import captures, name_of
from tests.cli.commands import Run, capture_bytes, run, spawn, write
from tests.frames import FETCH, request, response
from tests.record_batches import CONTROL, GZIP, Item, batch
from tests.segments import Talk

if TYPE_CHECKING:
    from collections.abc import Callable

    Records = Callable[..., Run]
    Row = dict[str, Any]
    Place = tuple[Any, ...]

LONG_BYTES = 200
FETCH_SNAPSHOT = 59
SECRET = b"hunter2-scram"
DETAILS = "details: kdissect read -V --records"
QUICKSTART = "samples/quickstart.pcap"
TRANSACTIONS = "samples/kafka-4-transactions.pcap"
BASICS = "samples/kafka-4-basics.pcap"
KRAFT = "samples/kafka-4-kraft.pcap.gz"

MICROSECOND = timedelta(microseconds=1)
NEVER_READ = ("mock-acks0", "kafka-4-sasl", "kafka-4-fenced", "kafka-4-habits")

# One begins and ends in the middle of what its clients did; the others show no records.
REPORTED = [
    path
    for path in captures()
    if name_of(path) not in ("midstream", "tls", "http-on-9092", "raw-requests", "unanswered")
]


@pytest.fixture
def records(capsys: pytest.CaptureFixture[str]) -> Records:
    return lambda *options: run(capsys, "records", *map(str, options))


def rows(done: Run) -> list[Row]:
    assert done.status == OK
    return [json.loads(line) for line in done.lines]


# Records compared with what the clients logged


def shown(row: Row) -> Place:
    """A row of ours in the form of ``record_key``."""

    def payload(text: str | None, encoding: str | None) -> Any:
        if encoding != "base64" or text is None:
            return text
        raw = base64.b64decode(text)
        return {"bytes": len(raw)} if len(raw) > LONG_BYTES else {"base64": text}

    headers = [[each["key"], payload(each["value"], each["value_encoding"])] for each in row["headers"]]
    key, value = (payload(row[name], row[f"{name}_encoding"]) for name in ("key", "value"))
    return record_key({**row, "key": key, "value": value, "headers": headers})


def record_key(row: Row) -> Place:
    """The comparable part of a row of a truth file: most log only the size of long strings, and some omit the
    partition of a record without offset."""
    value = row["value"]
    if isinstance(value, str) and len(value.encode()) > LONG_BYTES:
        value = {"bytes": len(value.encode())}
    # kafka-python makes up offsets for what nobody acknowledged.
    offset = None if row.get("acks") == 0 else row["offset"]
    where = (row["client_id"], row["topic"], None if offset is None else row["partition"], offset)
    return (*where, *map(json.dumps, (row["key"], value, row["headers"])))


def truth_of(capture: Path) -> dict[str, list[Row]]:
    truth: dict[str, list[Row]] = json.loads(Path(f"samples/{name_of(capture)}.truth.json").read_text())
    return truth


@pytest.mark.parametrize("capture", REPORTED, ids=name_of)
def test_what_was_produced(capture: Path, records: Records) -> None:
    sent = Counter(
        record_key(row)
        for row in truth_of(capture)["produced"]
        if row["error"] is None and (row["offset"] is not None or row["acks"] == 0)
    )
    without_offset = {row["client_id"] for row in truth_of(capture)["produced"] if row["acks"] == 0}
    clients = {client_id for client_id, *_ in sent}
    seen = Counter(
        shown(row)
        for row in rows(records("--json", "--produced", capture))
        if row["client_id"] in clients
        and not row["error"]  # one that was fetched nevertheless, or sent again, has an offset, too
        and (row["offset"] is not None or row["client_id"] in without_offset)
    )
    assert (seen - sent, sent - seen) == (Counter(), Counter())


@pytest.mark.parametrize("capture", REPORTED, ids=name_of)
def test_what_was_fetched(capture: Path, records: Records) -> None:
    truth = [row for row in truth_of(capture)["consumed"] if not row["topic"].startswith("__")]
    got = set(map(record_key, truth))
    seen = {shown(row) for row in rows(records("--json", "--fetched", capture))}
    assert got - seen == set()


@pytest.mark.parametrize("capture", REPORTED, ids=name_of)
def test_nothing_is_fetched_before_it_is_produced(capture: Path, records: Records) -> None:
    def place(row: Row) -> Place:
        return row["topic"], row["partition"], row["key"], row["value"]

    sent: dict[Place, str] = {}
    retried: dict[Place, str] = {}  # by content: the first attempt can be without a response
    for row in rows(records("--json", "--produced", capture)):
        if row["offset"] is not None:
            sent.setdefault((row["topic"], row["partition"], row["offset"]), row["time"])
        else:
            retried.setdefault(place(row), row["time"])
    for row in rows(records("--json", "--fetched", capture)):
        if sent.get((row["topic"], row["partition"], row["offset"]), "") > row["time"]:
            assert retried[place(row)] < row["time"]


@pytest.mark.parametrize("capture", REPORTED, ids=name_of)
def test_end_to_end_latency_is_what_a_join_of_the_rows_gives(capture: Path, records: Records) -> None:
    """By topic, partition and offset. The producer's clock agrees: it set the timestamp before it sent."""
    sent: dict[Place, datetime] = {}
    joined = 0
    for row in rows(records("--json", "--produced", capture)):
        assert row["e2e_latency_us"] is None
        if row["offset"] is not None and row["magic"] == 2 and not row["error"] and not row["also_in"]:
            place = row["topic"] or row["topic_id"], row["partition"], row["offset"]
            sent.setdefault(place, datetime.fromisoformat(row["time"]))
    for row in rows(records("--json", "--fetched", capture)):
        time = datetime.fromisoformat(row["time"])
        begin = sent.get((row["topic"] or row["topic_id"], row["partition"], row["offset"]))
        if begin is None or begin > time:
            assert row["e2e_latency_us"] is None
            continue
        joined += 1
        assert row["e2e_latency_us"] == pytest.approx((time - begin) / MICROSECOND, abs=1)
        if row["timestamp_type"] == "CreateTime":
            age_us = (time - datetime.fromisoformat(row["timestamp"])) / MICROSECOND
            assert row["e2e_latency_us"] <= age_us + 1
    assert joined or not sent or name_of(capture) in NEVER_READ


# Errors of Produce responses that the brokers were made to send, and those that clients report as theirs.
REJECTED = {
    "mock-librdkafka": ("plain", ["NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS"]),
    "kafka-4-cluster": ("secret", ["TOPIC_AUTHORIZATION_FAILED"]),
    "kafka-0.9": ("secret", ["TOPIC_AUTHORIZATION_FAILED"]),
}


@pytest.mark.parametrize("sample", REJECTED)
def test_what_was_rejected(sample: str, records: Records) -> None:
    topic, errors = REJECTED[sample]
    (capture,) = (path for path in captures() if name_of(path) == sample)
    truth: Any = truth_of(capture)
    if sample == "mock-librdkafka":
        assert truth["facts"]["produce errors answered"] == errors
    result = [row for row in rows(records("--json", "--topic", topic, capture)) if row["error"] is not None]
    assert [row["error"] for row in result] == errors
    assert {row["offset"] for row in result} == {None}
    if topic == "secret":
        failed = [row for row in truth["produced"] if "TopicAuthorization" in (row["error"] or "")]
        assert [(row["key"], row["value"]) for row in result] == [
            (row["key"], row["value"]) for row in failed
        ]
        (line,) = records("--topic", topic, "--produced", capture).lines
        assert line.endswith("  [rejected: TOPIC_AUTHORIZATION_FAILED]")


# Formats and filters


def test_lines(records: Records) -> None:
    done = records("--topic", "orders", "--offset", "0", "--produced", QUICKSTART)
    assert (done.status, done.err) == (OK, "")
    assert done.lines[0] == (
        "09:25:31.744257  Produce  orders-1              0           customer-0        "
        '{"order": 0, "item": "apple", "count": 1}'
    )
    assert len(done.lines) == 3


def test_times(records: Records) -> None:
    assert records("-t", "r", "-c", "1", QUICKSTART).lines[0].lstrip().startswith("0.0")


def test_the_columns_are_the_documented_ones(records: Records) -> None:
    (row,) = rows(records("--json", "-c", "1", QUICKSTART))
    assert list(row) == [column.name for column in RECORD]
    assert row["compression"] == "lz4"
    assert row["timestamp"].startswith("2026-11-21T09:25:31.")


def test_filters(records: Records) -> None:
    def count(*options: str) -> int:
        return len(records(*options, QUICKSTART).lines)

    assert count() == count("--produced") + count("--fetched") == count("--produced", "--fetched")
    assert count("--unique") == 25
    assert count("--key", "customer-[03]", "--produced") == count(
        "--key", "customer-0", "--produced"
    ) + count("--key", "customer-3", "--produced")
    assert count("--header", "trace=9e3779b1", "--produced") == 1
    assert count("--header", "trace") == count("--topic", "orders")
    assert count("--header", "nothing") == 0
    assert count("--partition", "orders:1", "--offset", "2..3", "--produced") == 2
    assert count("--control") == 0
    assert count("-c", "3") == 3
    assert count("--exchange", "441bec302e4e/2", "--partition", "1") == 2
    assert count("--api", "Produce") == count("--produced")


@pytest.mark.parametrize(
    ("text", "is_selected"),
    [
        ('key == "customer-0"', lambda row: row["key"] == "customer-0"),
        (
            "partition == 2 and offset in {1..2}",
            lambda row: row["partition"] == 2 and row["offset"] in (1, 2),
        ),
        ("value.count > 2", lambda row: '"count": 3' in row["value"]),
        ("request.acks == 1", lambda row: row["api"] == "Produce" and row["topic"] == "payments"),
        ('topic == "payments"', lambda row: row["topic"] == "payments"),
    ],
    ids=("key", "offset", "path", "request", "topic"),
)
def test_expressions_over_records(text: str, is_selected: Callable[[Row], bool], records: Records) -> None:
    done = records("--json", "-Y", text, QUICKSTART)
    assert rows(done) == list(filter(is_selected, rows(records("--json", QUICKSTART)))) != []
    assert records("-j", "2", "--json", "-Y", text, QUICKSTART).out == done.out


def test_an_expression_is_about_the_columns_of_json(records: Records) -> None:
    everything = rows(records("--json", BASICS))
    slow = rows(records("--json", "-Y", "e2e_latency_us > 1ms", BASICS))
    assert slow == [row for row in everything if (row["e2e_latency_us"] or 0) > 1000] != []
    lines = records("-e", "e2e_latency_us", BASICS).lines
    assert lines == [str(row["e2e_latency_us"] or "") for row in everything]
    done = records("-Y", "ofset == 1", QUICKSTART)
    assert (done.status, done.err.splitlines()[0]) == (
        USAGE,
        'kdissect: --where: no column "ofset"; did you mean "offset"?',
    )


def test_grep(tmp_path: Path, records: Records) -> None:
    items = [Item(b"k1", b"caf\xc3\xa9"), Item(b"k2", b"\x00\xff\xfe"), Item(None, None), Item(b"n\nk", b"x")]
    path = write(tmp_path / "x.pcap", talk(batch(items)))

    def offsets(*patterns: str) -> list[str]:
        options = [option for pattern in patterns for option in ("--grep", pattern)]
        return records(*options, "-e", "offset", path).lines

    assert offsets("k[12]") == ["0", "1"]
    assert offsets("É") == []
    assert offsets("(?i)É") == ["0"]
    assert offsets(r"\xff\xfe$") == ["1"]
    assert offsets("^x$", "caf") == ["0", "3"]
    assert offsets("") == ["0", "1", "3"]
    done = records("--grep", "a(b", path)
    assert (done.status, done.err) == (
        USAGE,
        'kdissect: --grep "a(b": invalid regular expression (RE2): missing ): a(b\n',
    )
    decoded = records("--topic", "__consumer_offsets", "--grep", '"group":"pay-in"', TRANSACTIONS)
    assert len(decoded.lines) > 1


def test_paths_into_json_of_any_shape(tmp_path: Path, records: Records) -> None:
    deep = b"[" * 300 + b"]" * 300
    values = [
        b'{"a": {"b": [1, 2]}}',
        b'{"a": ' + deep + b"}",
        b"not JSON",
        None,
        b"[" * 2000,
        b'{"a": 1e999}',
        b"[1]",
    ]
    path = write(tmp_path / "x.pcap", talk(batch([Item(None, value) for value in values])))
    assert records("-e", "value.a.b", path).lines == ["1;2", *[""] * 6]
    assert [json.loads(line)["value.a"] for line in records("--json", "-e", "value.a", path).lines] == [
        {"b": [1, 2]},
        *[None] * 5,
        [None],
    ]
    assert records("-Y", "value.a.b == 2", "-e", "offset", path).lines == ["0"]


def test_grep_finds_no_credentials(records: Records) -> None:
    assert '"stored_key":{"withheld":' in records("--grep", 'stored_key":{"withheld"', KRAFT).out
    assert records("--grep", 'stored_key":[^{]', KRAFT).out == ""


def test_hex_dumps(records: Records) -> None:
    done = records("-x", "--topic", "orders", "-c", "1", QUICKSTART)
    assert done.lines[4:6] == [
        '  key: "customer-0"',
        "    000000  63 75 73 74 6f 6d 65 72 2d 30                    |customer-0|",
    ]
    assert done.lines[-1] == '    000020  6f 75 6e 74 22 3a 20 31 7d                       |ount": 1}|'


def test_templates(records: Records) -> None:
    template = r"%t %p %o %k %s\n"
    everything = rows(records("--json", QUICKSTART))
    names = ("topic", "partition", "offset", "key", "value")
    expected = [" ".join("" if row[name] is None else str(row[name]) for name in names) for row in everything]
    assert records("--template", template, QUICKSTART).lines == expected
    assert records("-j", "2", "--template", template, QUICKSTART).lines == expected
    done = records("--template", "%q", QUICKSTART)
    assert (done.status, done.out) == (USAGE, "")


def test_times_are_those_of_the_records(records: Records) -> None:
    fetched = rows(records("--json", "--fetched", BASICS))
    row = next(row for row in fetched if row["time"][:22] != row["request_time"][:22])
    around = ("--since", row["time"], "--until", row["time"][:-1] + "9Z")
    assert row in rows(records("--json", *around, BASICS))
    assert row not in rows(records("--json", "--until", row["time"], BASICS))
    assert all(each["time"] == row["time"] for each in rows(records("--json", *around, BASICS)))


def test_invalid_filters(records: Records) -> None:
    done = records("--offset", "9..5", QUICKSTART)
    assert (done.status, done.err) == (USAGE, "kdissect: the range 9..5 is empty\n")
    assert records().status == USAGE


def test_nothing_to_show(records: Records) -> None:
    assert records("--key", "nobody", QUICKSTART).err.startswith("kdissect: no records to show in ")
    assert 'no topic "order"; did you mean "orders"?' in records("--topic", "order", QUICKSTART).err


def test_transactions(records: Records) -> None:
    marks = rows(records("--json", "--control", "--topic", "spread", TRANSACTIONS))
    assert {row["control_type"] for row in marks} == {"COMMIT", "ABORT"}
    assert all(row["control"] for row in marks)
    selected = rows(records("--json", "--no-control", "--fetched", TRANSACTIONS))
    assert {row["aborted"] for row in selected} == {True, False, None}
    assert {row["transactional"] for row in selected} == {True, False}
    assert "  [aborted]" in records("--fetched", TRANSACTIONS).out


def test_internal_topics_are_decoded(records: Records) -> None:
    selected = rows(records("--json", "--topic", "__consumer_offsets", "--key", "pay-in", TRANSACTIONS))
    assert {row["key_encoding"] for row in selected} == {"json"}
    assert {json.loads(row["key"])["group"] for row in selected} == {"pay-in"}


def test_csv_has_the_same_columns(records: Records) -> None:
    done = records("--csv", "--topic", "orders", "--offset", "0", "--produced", QUICKSTART)
    header, *selected = csv.reader(io.StringIO(done.out))
    assert header == [column.name for column in RECORD]
    assert len(selected) == 3
    assert dict(zip(header, selected[0], strict=True))["value"] == '{"order": 0, "item": "apple", "count": 1}'


def test_trees(records: Records) -> None:
    done = records("-V", "--topic", "orders", "--offset", "0", "--produced", "-c", "1", QUICKSTART)
    assert done.lines == [
        "topic orders, partition 1, offset 0",
        '  sent in: Produce 441bec302e4e/2, 2026-11-21T09:25:31.744257Z, client ID "web-shop"',
        "  batch: offsets 0 to 1, 2 records, 186 bytes, lz4, CreateTime, leader epoch 0",
        "  timestamp: 2026-11-21T09:25:31.742Z",
        '  key: "customer-0"',
        "  headers: [1]",
        '    trace: "00000000"',
        '  value: "{"order": 0, "item": "apple", "count": 1}"',
    ]


def test_counts_alone(records: Records) -> None:
    done = records("-q", TRANSACTIONS)
    assert done.status == OK
    assert re.fullmatch(
        r"\d+ records, \d+ produced, \d+ fetched, \d+ control, \d+ aborted, .* and values, \d topics\n",
        done.out,
    )


def test_colors(records: Records) -> None:
    assert "\x1b[33m[aborted]\x1b[0m" in records("--fetched", "--colour", "always", TRANSACTIONS).out
    assert "\x1b" not in records("--fetched", TRANSACTIONS).out


def test_files(tmp_path: Path, records: Records) -> None:
    directory = tmp_path / "out"
    done = records("--topic", "orders", "-o", directory, QUICKSTART)
    assert (done.status, done.out) == (OK, "")
    assert re.fullmatch(
        r"kdissect: (\d+) values, \1 keys written to .*out; \d+ duplicate records skipped\n", done.err
    )
    assert (directory / "orders/1/0.value").read_text() == '{"order": 0, "item": "apple", "count": 1}'
    assert (directory / "orders/1/0.key").read_text() == "customer-0"
    values = {path.relative_to(directory).as_posix(): path.read_text() for path in directory.rglob("*.value")}
    assert values == {
        f"orders/{row['partition']}/{row['offset']}.value": row["value"]
        for row in rows(records("--json", "--topic", "orders", "--unique", QUICKSTART))
    }
    again = records("-o", directory, QUICKSTART)
    assert (again.status, again.out) == (USAGE, "")
    assert again.err == f"kdissect: {directory} is not empty; use a new directory\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-V", "--json"), "-V and --json are mutually exclusive"),
        (("--csv", "-o", "x"), "--csv and -o are mutually exclusive"),
        (("-q", "--csv"), "--csv and -q are mutually exclusive"),
    ],
    ids=("-V --json", "--csv -o", "-q --csv"),
)
def test_options_that_exclude_each_other(options: tuple[str, ...], message: str, records: Records) -> None:
    done = records(*options, QUICKSTART)
    expected = f"kdissect: {message} (see kdissect records --help)\n"
    assert (done.status, done.out, done.err) == (USAGE, "", expected)


def test_schemas_and_traces(tmp_path: Path, records: Records) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = ((b"traceparent", f"00-{trace}-b7ad6b7169203331-01".encode()),)
    body = batch([Item(b"a", b"\0\0\0\0\x11{}", headers), Item(b"b")])
    path = write(tmp_path / "x.pcap", talk(body))
    assert records("--trace", trace, path).lines[0].endswith(f"{{}}  schema 17  trace {trace}")
    assert records("--schema", "17", path).lines == records("--trace", "0af7*", path).lines
    assert records("--schema", "18", path).err.startswith("kdissect: no records to show in ")
    (row,) = rows(records("--json", "--schema", "17", path))
    assert (row["schema_id"], row["trace_id"], row["trace_format"]) == (17, trace, "w3c")


def test_ctrl_c_reports_the_counts() -> None:
    process = spawn("records", "-l", "-t", "u", "-", stdin=-1)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(capture_bytes(talk(batch([Item(b"k"), Item(b"k")]))) + bytes(8))
    process.stdin.flush()
    shown = [process.stdout.readline() for _ in range(2)]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (INTERRUPTED, b"")
    assert [line.split()[1:] for line in shown] == [
        [b"Fetch", b"orders-0", b"%d" % at, b"k", b"value"] for at in (0, 1)
    ]
    assert re.fullmatch(rb"kdissect: interrupted after \d+ packets, 2 records shown\n", err)


# Damage and redaction


def talk(body: bytes, *, topic: str = "orders", snapshot: bytes | None = None) -> Talk:
    """A client that fetches."""
    conversation = Talk()
    conversation.handshake()
    answer = {"responses": [{"topic": topic, "partitions": [{"records": body}]}]}
    conversation.client_sends(request(FETCH, 4, {}, correlation_id=1))
    conversation.broker_sends(response(FETCH, 4, answer, correlation_id=1))
    if snapshot is not None:
        conversation.client_sends(request(FETCH_SNAPSHOT, 0, {}, correlation_id=2))
        partitions = [{"unaligned_records": snapshot}]
        answer = {"topics": [{"name": topic, "partitions": partitions}]}
        conversation.broker_sends(response(FETCH_SNAPSHOT, 0, answer, correlation_id=2))
    return conversation


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("legacy-crc-wrong", ["", "! crc_mismatch"]),
        ("lz4-frame-flags", ["", "! lz4_checksum_mismatch", "", "", "! lz4_linked_blocks"]),
    ],
)
def test_only_records_with_a_wrong_checksum_are_marked(
    name: str, marks: list[str], records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_used in (core.is_used, False):
        with monkeypatch.context() as context:
            context.setattr(core, "is_used", is_used)
            done = records(f"tests/field/{name}.pcap")
        assert [
            "! " + mark if mark else "" for _, _, mark in (line.partition("! ") for line in done.lines)
        ] == marks


def test_damaged_batches_are_counted_on_stderr(tmp_path: Path, records: Records) -> None:
    body = batch([Item(b"k", b"v")], crc=1) + batch([Item()], count=3)
    done = records(write(tmp_path / "x.pcap", talk(body)))
    assert [line.rpartition("  ")[2] for line in done.lines] == ["! crc_mismatch", "! wrong_record_count"]
    counts = "1 crc_mismatch, 1 wrong_record_count"
    assert done.err == f"kdissect: anomalies in record batches: {counts}; {DETAILS}\n"


def test_a_batch_without_a_readable_record_is_reported(tmp_path: Path, records: Records) -> None:
    lost = batch([Item()], codec=GZIP, compress=lambda _: b"no gzip")
    path = write(tmp_path / "x.pcap", talk(lost * 22 + batch([Item()])))
    for options in ((), ("--json",), ("-q",), ("-V",)):
        done = records(*options, path)
        assert done.out
        first, *others = done.err.splitlines()
        assert re.match(
            r"kdissect: no readable record: orders-0 in \w+/1: damaged_compression \(batch at ", first
        )
        assert len(others) == 21
        assert others[-2:] == [
            "kdissect: 2 more batches like these",
            f"kdissect: anomalies in record batches: 22 damaged_compression; {DETAILS}",
        ]


def test_what_unique_forgot_is_reported(records: Records) -> None:
    done = records("-q", "--unique", "--limits", "unique_records=20", QUICKSTART)
    assert "--unique forgot " in done.err
    assert "raise the limit with --limits unique_records=N" in done.err
    assert records("-q", "--unique", QUICKSTART).err == ""


def test_slices_of_a_snapshot_are_joined(tmp_path: Path, records: Records) -> None:
    raw = b"".join(batch([Item(None, b"%d" % number)]) for number in range(3))
    conversation = Talk()
    conversation.handshake()
    for number, (begin, end) in enumerate(((0, 100), (100, len(raw)))):
        conversation.client_sends(request(FETCH_SNAPSHOT, 0, {}, correlation_id=number))
        piece = {"size": len(raw), "position": begin, "unaligned_records": raw[begin:end]}
        answer = {"topics": [{"name": "__cluster_metadata", "partitions": [piece]}]}
        conversation.broker_sends(response(FETCH_SNAPSHOT, 0, answer, correlation_id=number))
    path = write(tmp_path / "x.pcap", conversation)
    done = records("--json", "--show-secrets", path)
    assert ([row["value"] for row in rows(done)], done.err) == (["0", "1", "2"], "")
    done = records("--where", "number == 1", path)
    assert (len(done.lines), done.err) == (
        1,
        "kdissect: 1 incomplete KRaft snapshot not shown: the capture lacks some FetchSnapshot responses\n",
    )
    done = records("--where", "number == 2", path)
    assert done.out == ""
    assert "__cluster_metadata-0 in " in done.err
    assert "1 unaligned_records" in done.err


def test_no_escape_sequence_reaches_a_terminal(tmp_path: Path, records: Records) -> None:
    done = records(write(tmp_path / "x.pcap", talk(batch([Item(b"\x1b[31m", b"a\nb\xff\x9b")]))))
    assert done.lines[0].endswith("  \\x1b[31m          a\\nb\\xff\\x9b")


@pytest.mark.parametrize("topic", ["__cluster_metadata", ""])
@pytest.mark.parametrize("options", [[], ["--json"]], ids=" ".join)
def test_possible_credentials_are_redacted(
    tmp_path: Path, records: Records, topic: str, options: list[str]
) -> None:
    items = [Item(SECRET, SECRET, ((SECRET, SECRET),))]
    body = batch(items) + batch(items, flags=CONTROL) + batch([Item(b"\0\0\0\2", SECRET)], flags=CONTROL)
    path = write(tmp_path / "x.pcap", talk(body, topic=topic, snapshot=body))
    done = records(*options, path)
    assert len(done.lines) == 6
    assert "hunter2" not in done.out + done.err
    assert ("withheld" if "--json" in options else "redacted (") in done.out
    assert "hunter2" in records("--show-secrets", *options, path).out


@pytest.mark.parametrize("options", [["-V"], ["--csv"], ["-o"]], ids=" ".join)
def test_nor_is_it_in_trees_and_files(tmp_path: Path, records: Records, options: list[str]) -> None:
    path = write(tmp_path / "x.pcap", talk(batch([Item(SECRET, SECRET)]), topic="__cluster_metadata"))
    for name, more in (("hidden", []), ("shown", ["--show-secrets"])):
        where = [tmp_path / name] if options == ["-o"] else []
        done = records(*options, *where, *more, path)
        files = [each.read_bytes() for each in (tmp_path / name).rglob("*") if each.is_file()]
        assert (SECRET in b"".join([done.out.encode(), *files])) == (name == "shown")


def test_a_scram_user_on_its_way_through_the_metadata_log(records: Records) -> None:
    selected = rows(records("--json", "--topic", "__cluster_metadata", KRAFT))
    users = [
        json.loads(row["value"]) for row in selected if "UserScramCredentialRecord" in (row["value"] or "")
    ]
    assert users
    for user in users:
        assert {name for name, value in user.items() if isinstance(value, dict) and "withheld" in value} >= {
            "salt",
            "stored_key",
            "server_key",
        }
    selected = records("--json", "--show-secrets", "--topic", "__cluster_metadata", KRAFT).out
    hidden = records("--json", "--topic", "__cluster_metadata", KRAFT).out
    for row in selected.splitlines():
        value = json.loads(row)["value"] or ""
        if "UserScramCredentialRecord" in value:
            secret = json.loads(value)["stored_key"]["base64"]
            assert secret not in hidden


def test_a_snapshot_has_no_offsets(tmp_path: Path, records: Records) -> None:
    path = write(tmp_path / "x.pcap", talk(batch([Item()]), snapshot=batch([Item()])))
    assert [row["offset"] for row in rows(records("--json", path))] == [0, None]


def test_a_damaged_capture_is_reported(tmp_path: Path, records: Records) -> None:
    data = Path(write(tmp_path / "x.pcap", talk(batch([Item()])))).read_bytes()
    path = tmp_path / "damaged.pcap"
    path.write_bytes(data + bytes(8) + b"\xff" * 8)
    done = records(path)
    assert len(done.lines) == 1
    assert "the rest was not read" in done.err


FIELD = Path(__file__).resolve().parents[1] / "field"


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_batch_whose_produce_failed_is_linked_with_its_fetch(
    jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(FIELD / "idempotent-epoch-bump-duplicates.pcap")
    done = run(capsys, "records", "-j", jobs, "--fields", "number,offset,error,also_in,value", path)
    failed, fetched = "NOT_LEADER_OR_FOLLOWER", "109cc5869b61/5"
    assert [line.split("\t") for line in done.lines] == [
        ["1", "2703", "", "", "0a8f"],
        ["2", "2704", failed, fetched, "0a90"],
        ["3", "2705", failed, fetched, "0a91"],
        ["1", "2704", "UNKNOWN_PRODUCER_ID", fetched, "0a90"],
        ["3", "2706", "", "", "0a90"],
        ["4", "2707", "", "", "0a91"],
        ["5", "2703", "", "", "0a8f"],
        ["5", "2704", "", "267c6eafe895/2", "0a90"],
        ["5", "2705", "", "267c6eafe895/3", "0a91"],
        ["5", "2706", "", "", "0a90"],
        ["5", "2707", "", "", "0a91"],
    ]
    lines = run(capsys, "records", "-j", jobs, path).lines
    assert sum(line.endswith("  [fetched nevertheless in 109cc5869b61/5]") for line in lines) == 3
    assert [line[-34:] for line in lines if "failed]" in line] == [
        "[its Produce 267c6eafe895/2 failed]"[-34:],
        "[its Produce 267c6eafe895/3 failed]"[-34:],
    ]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_records_before_the_requested_offset_are_marked(
    jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(FIELD / "compacted-tail-stuck.pcap")
    lines = run(capsys, "records", "-j", jobs, path).lines
    assert len(lines) == 600
    assert all(line.endswith("  [before 120]") for line in lines)
    rows = [json.loads(line) for line in run(capsys, "records", "--json", "-j", jobs, path).lines]
    assert {row["before_fetch_offset"] for row in rows} == {True}
