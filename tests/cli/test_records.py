from __future__ import annotations

import base64
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.cli.terminal import OK, USAGE
from kdissect.sinks.columns import RECORD
from samples.golden import captures, name_of
from tests.cli.running import Run, run, write
from tests.frames import FETCH, request, response
from tests.record_batches import CONTROL, Item, batch
from tests.segments import Talk

if TYPE_CHECKING:
    from collections.abc import Callable

    Records = Callable[..., Run]
    Row = dict[str, Any]
    Place = tuple[Any, ...]

LONG_BYTES = 200
FETCH_SNAPSHOT = 59
SECRET = b"hunter2-scram"
QUICKSTART = "samples/quickstart.pcap"
TRANSACTIONS = "samples/kafka-4-transactions.pcap"
KRAFT = "samples/kafka-4-kraft.pcap.gz"

# One begins and ends in the middle of what its clients did; the others show no records.
TOLD = [
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


# What clients say that they sent and got


def shown(row: Row) -> Place:
    """A row of ours as ``said`` has it."""

    def payload(text: str | None, encoding: str | None) -> Any:
        if encoding != "base64" or text is None:
            return text
        raw = base64.b64decode(text)
        return {"bytes": len(raw)} if len(raw) > LONG_BYTES else {"base64": text}

    headers = [[each["key"], payload(each["value"], each["value_encoding"])] for each in row["headers"]]
    key, value = (payload(row[name], row[f"{name}_encoding"]) for name in ("key", "value"))
    return said({**row, "key": key, "value": value, "headers": headers})


def said(row: Row) -> Place:
    """A row of a truth file, to be compared: of long texts most say the size alone, and of a record without
    an offset some do not say the partition."""
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


@pytest.mark.parametrize("capture", TOLD, ids=name_of)
def test_what_was_produced(capture: Path, records: Records) -> None:
    sent = Counter(
        said(row)
        for row in truth_of(capture)["produced"]
        if row["error"] is None and (row["offset"] is not None or row["acks"] == 0)
    )
    without_offset = {row["client_id"] for row in truth_of(capture)["produced"] if row["acks"] == 0}
    clients = {client_id for client_id, *_ in sent}
    seen = Counter(
        shown(row)
        for row in rows(records("--json", "--produced", capture))
        if row["client_id"] in clients and (row["offset"] is not None or row["client_id"] in without_offset)
    )
    assert (seen - sent, sent - seen) == (Counter(), Counter())


@pytest.mark.parametrize("capture", TOLD, ids=name_of)
def test_what_was_fetched(capture: Path, records: Records) -> None:
    truth = [row for row in truth_of(capture)["consumed"] if not row["topic"].startswith("__")]
    got = set(map(said, truth))
    seen = {shown(row) for row in rows(records("--json", "--fetched", capture))}
    assert got - seen == set()


# What is shown, and how


def test_lines(records: Records) -> None:
    done = records("--topic", "orders", "--offset", "0", "--produced", QUICKSTART)
    assert (done.status, done.err) == (OK, "")
    assert done.lines[0] == (
        "2026-11-21T09:25:31.744257Z  Produce  orders-1    0       customer-0  "
        '{"order": 0, "item": "apple", "count": 1}'
    )
    assert len(done.lines) == 3


def test_times(records: Records) -> None:
    assert records("-t", "r", "-c", "1", QUICKSTART).lines[0].startswith("0.0")


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


def test_what_is_not_understood(records: Records) -> None:
    done = records("--offset", "9..5", QUICKSTART)
    assert (done.status, done.err) == (USAGE, "kdissect: no offset is in 9..5\n")
    assert records().status == USAGE


def test_nothing_to_show(records: Records) -> None:
    assert records("--key", "nobody", QUICKSTART).err.startswith("kdissect: no such record in ")
    assert 'no topic "order"; did you mean "orders"?' in records("--topic", "order", QUICKSTART).err


def test_transactions(records: Records) -> None:
    marks = rows(records("--json", "--control", "--topic", "spread", TRANSACTIONS))
    assert {row["control_type"] for row in marks} == {"COMMIT", "ABORT"}
    assert all(row["control"] for row in marks)
    found = rows(records("--json", "--no-control", "--fetched", TRANSACTIONS))
    assert {row["aborted"] for row in found} == {True, False, None}
    assert {row["transactional"] for row in found} == {True, False}
    assert "  aborted" in records("--fetched", TRANSACTIONS).out


def test_internal_topics_are_decoded(records: Records) -> None:
    found = rows(records("--json", "--topic", "__consumer_offsets", "--key", "pay-in", TRANSACTIONS))
    assert {row["key_encoding"] for row in found} == {"json"}
    assert {json.loads(row["key"])["group"] for row in found} == {"pay-in"}


# What is wrong, and what is withheld


def talk(body: bytes, *, topic: str = "orders", snapshot: bytes | None = None) -> Talk:
    """A client that fetches."""
    made = Talk()
    made.handshake()
    answer = {"responses": [{"topic": topic, "partitions": [{"records": body}]}]}
    made.client_sends(request(FETCH, 4, {}, correlation_id=1))
    made.broker_sends(response(FETCH, 4, answer, correlation_id=1))
    if snapshot is not None:
        made.client_sends(request(FETCH_SNAPSHOT, 0, {}, correlation_id=2))
        partitions = [{"unaligned_records": snapshot}]
        answer = {"topics": [{"name": topic, "partitions": partitions}]}
        made.broker_sends(response(FETCH_SNAPSHOT, 0, answer, correlation_id=2))
    return made


def test_damaged_batches_are_counted_on_stderr(tmp_path: Path, records: Records) -> None:
    body = batch([Item(b"k", b"v")], crc=1) + batch([Item()], count=3)
    done = records(write(tmp_path / "x.pcap", talk(body)))
    assert len(done.lines) == 2
    assert done.err == "kdissect: wrong or odd in record batches: 1 crc_mismatch, 1 wrong_record_count\n"


def test_no_escape_sequence_reaches_a_terminal(tmp_path: Path, records: Records) -> None:
    done = records(write(tmp_path / "x.pcap", talk(batch([Item(b"\x1b[31m", b"a\nb\xff\x9b")]))))
    assert done.lines[0].endswith("\\x1b[31m  a\\nb\\xff\\x9b")


@pytest.mark.parametrize("topic", ["__cluster_metadata", ""])
@pytest.mark.parametrize("options", [[], ["--json"]], ids=" ".join)
def test_what_may_be_a_credential_is_withheld(
    tmp_path: Path, records: Records, topic: str, options: list[str]
) -> None:
    items = [Item(SECRET, SECRET, ((SECRET, SECRET),))]
    body = batch(items) + batch(items, flags=CONTROL) + batch([Item(b"\0\0\0\2", SECRET)], flags=CONTROL)
    path = write(tmp_path / "x.pcap", talk(body, topic=topic, snapshot=body))
    done = records(*options, path)
    assert len(done.lines) == 6
    assert "hunter2" not in done.out + done.err
    assert "withheld" in done.out
    assert "hunter2" in records("--show-secrets", *options, path).out


def test_a_scram_user_on_its_way_through_the_metadata_log(records: Records) -> None:
    found = rows(records("--json", "--topic", "__cluster_metadata", KRAFT))
    users = [json.loads(row["value"]) for row in found if "UserScramCredentialRecord" in (row["value"] or "")]
    assert users
    for user in users:
        assert {name for name, value in user.items() if isinstance(value, dict) and "withheld" in value} >= {
            "salt",
            "stored_key",
            "server_key",
        }
    shown = records("--json", "--show-secrets", "--topic", "__cluster_metadata", KRAFT).out
    hidden = records("--json", "--topic", "__cluster_metadata", KRAFT).out
    for row in shown.splitlines():
        value = json.loads(row)["value"] or ""
        if "UserScramCredentialRecord" in value:
            secret = json.loads(value)["stored_key"]["base64"]
            assert secret not in hidden


def test_a_snapshot_tells_no_offsets(tmp_path: Path, records: Records) -> None:
    path = write(tmp_path / "x.pcap", talk(batch([Item()]), snapshot=batch([Item()])))
    assert [row["offset"] for row in rows(records("--json", path))] == [0, None]


def test_a_damaged_capture_is_told(tmp_path: Path, records: Records) -> None:
    whole = Path(write(tmp_path / "x.pcap", talk(batch([Item()])))).read_bytes()
    path = tmp_path / "damaged.pcap"
    path.write_bytes(whole + bytes(8) + b"\xff" * 8)
    done = records(path)
    assert len(done.lines) == 1
    assert "what follows was not read" in done.err
