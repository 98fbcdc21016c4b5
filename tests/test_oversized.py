"""Messages that would take far more memory decoded than on the wire: each command stays within a bound that
is measured, in a process of its own."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from functools import cache
from random import Random
from struct import pack
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from kdissect.errors import Oversized
from kdissect.exchanges.partition_records import decode_batches, partition_records
from kdissect.kafka import schema
from kdissect.kafka.bodies import decode_request, decode_response
from kdissect.kafka.compiler import LARGE_BYTES, decoder
from kdissect.kafka.headers import read_request_header, response_body_pos
from kdissect.kafka.internal.payloads import Context, GroupProtocol, open_body
from kdissect.kafka.primitives import DecodeBudget
from kdissect.kafka.walker import walk
from kdissect.limits import DEFAULT, Limits
from kdissect.tables.record_bodies import Opener, with_records
from kdissect.text.outline import MAX_ELEMENTS
from tests.captures import pcap
from tests.frames import FETCH, METADATA, request, request_payload, response, response_payload, sized
from tests.kafka.encoder import put_compact_bytes, put_uvarint
from tests.record_batches import GZIP, ZSTD, Item, batch, message, record, streamed_zstd
from tests.record_exchanges import fetch
from tests.segments import Talk
from tests.test_growth import MEASURED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, DESCRIBE_GROUPS = 9, 11, 12, 15
SIZE = 3 << 20
MAX_KIB = 150 * 1024  # a process that dissects nothing takes 45 MB
MAX_WHOLE_KIB = 300_000_000 // 1024
LIMITS = "decoded_bytes=8MiB,naming_bytes=8MiB"


def header(api_key: int, version: int, correlation_id: int = 1) -> bytes:
    return b"%b\0\1c\0" % b"".join(
        (api_key.to_bytes(2, "big"), version.to_bytes(2, "big"), correlation_id.to_bytes(4, "big"))
    )


def array(element: bytes, size: int = SIZE) -> bytes:
    count = size // len(element)
    return put_uvarint(count + 1) + element * count


def structs(correlation_id: int = 1, size: int = SIZE) -> bytes:
    """OffsetFetch with topics of three bytes."""
    return header(OFFSET_FETCH, 8, correlation_id) + b"\2\2g" + array(b"\1\1\0", size) + b"\0\0\0"


def nested(size: int = SIZE) -> bytes:
    """OffsetFetch with groups of ten topics each."""
    group = b"\2g" + array(b"\1\1\0", 30) + b"\0"
    return header(OFFSET_FETCH, 8) + array(group, size) + b"\0\0"


def tagged_structs(size: int = SIZE) -> bytes:
    """OffsetFetch with an unknown tag in each topic."""
    return header(OFFSET_FETCH, 8) + b"\2\2g" + array(b"\1\1\1\x63\0", size) + b"\0\0\0"


def tags(size: int = SIZE) -> bytes:
    """Heartbeat with many unknown tags."""
    numbers = b"".join(put_uvarint(tag) + b"\0" for tag in range(200, 200 + size // 4))
    return request_payload(HEARTBEAT, 4)[:-1] + put_uvarint(size // 4) + numbers


def strings(size: int = SIZE) -> bytes:
    """DescribeGroups with short ids."""
    return header(DESCRIBE_GROUPS, 5) + array(b"\3ab", size) + b"\0\0"


def escapes(size: int = SIZE) -> bytes:
    """DescribeGroups with ids whose bytes become four characters of four bytes each."""
    group = put_compact_bytes("\U0001f600".encode() + b"\xff" * 120)
    return header(DESCRIBE_GROUPS, 5) + array(group, size) + b"\0\0"


def long_string(size: int = SIZE) -> bytes:
    """The same with one id."""
    group = put_compact_bytes("\U0001f600".encode() + b"\xff" * size)
    return header(DESCRIBE_GROUPS, 5) + b"\2" + group + b"\0\0"


def payloads() -> bytes:
    """JoinGroup with members whose subscriptions have many topics."""
    subscription = pack(">hi", 1, 20) + b"\0\1a" * 20 + bytes(8)
    members = [{"member_id": str(number), "metadata": subscription} for number in range(50)]
    return response_payload(JOIN_GROUP, 9, {"protocol_type": "consumer", "members": members})


def captured(path: Path, *exchanges: tuple[bytes, bytes]) -> Path:
    talk = Talk(mss=60_000)
    talk.handshake()
    for requested, answered in exchanges:
        talk.client_sends(sized(requested))
        talk.broker_sends(sized(answered))
    path.write_bytes(pcap((packet.time_ns, packet.data) for packet in talk.packets))
    return path


@cache
def pyarrow_kib() -> int:
    """What pyarrow takes before the first row: 57 to 81 MiB, by the release of numpy."""
    code = """
import kdissect.cli.main
from tests.peak import peak_kib
before = peak_kib()
import kdissect.tables.parquet, pyarrow
pyarrow.array([1])
print(peak_kib() - before)
"""
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)


def run(*command: str) -> tuple[int, str]:
    """Its peak in KiB, and what it wrote."""
    done = subprocess.run([sys.executable, "-c", MEASURED, *command], capture_output=True, check=True)
    return int(done.stderr.splitlines()[-1]), done.stdout.decode()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    answer = structs()[len(header(OFFSET_FETCH, 8)) :]
    directory = tmp_path_factory.mktemp("oversized")
    return captured(directory / "structs.pcap", (structs(), bytes((0, 0, 0, 1, 0, 0, 0, 0, 0)) + answer))


@pytest.mark.parametrize(
    "command",
    ["read", "read -V", "read -x", "read --json", "read --csv", "records --json", "summary --json", "check"],
)
def test_millions_of_tiny_structs(hostile: Path, command: str) -> None:
    peak, shown = run(*command.split(), str(hostile))
    assert peak < MAX_KIB
    if command.startswith("read"):
        assert "OffsetFetch" in shown
        assert "oversized" in shown


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_exported(hostile: Path, tmp_path: Path, form: str) -> None:
    assert run("export", "--format", form, "-o", str(tmp_path / "out"), str(hostile))[0] < MAX_KIB


SHAPES = {each.__name__: each for each in (nested, tagged_structs, tags, strings, escapes)}


@pytest.mark.parametrize("shape", SHAPES)
def test_other_shapes(tmp_path: Path, shape: str) -> None:
    data = SHAPES[shape]()
    api_key, version = data[1], data[3]
    capture = captured(tmp_path / "a.pcap", (data, response_payload(api_key, version)))
    peak, shown = run("read", "--json", "--limits", LIMITS, str(capture))
    assert peak < 100 * 1024
    assert '"kind":"oversized"' in shown


def test_a_string_longer_than_kafka_reads(tmp_path: Path) -> None:
    capture = captured(tmp_path / "a.pcap", (long_string(), response_payload(DESCRIBE_GROUPS, 5)))
    peak, shown = run("read", str(capture))
    assert peak < 50 * 1024
    assert "malformed" in shown


def test_exchanges_wait_for_a_name_undecoded(tmp_path: Path) -> None:
    unnamed = request_payload(FETCH, 13, {"topics": [{"topic_id": f"{7:021d}A"}]}, correlation_id=1)
    waiting = [(unnamed, response_payload(FETCH, 13, {}, correlation_id=1))]
    for number in range(2, 14):
        answer = response_payload(OFFSET_FETCH, 8, {}, correlation_id=number)
        waiting.append((structs(number, 300_000), answer))
    peak, shown = run("read", str(captured(tmp_path / "a.pcap", *waiting)))
    assert peak < MAX_KIB
    assert len(waiting) == shown.count("test-client") + shown.count("OffsetFetch")
    assert "name_not_waited_for" not in shown


def test_only_one_exchange_is_decoded_at_a_time(tmp_path: Path) -> None:
    several = [
        (structs(number, 270_000), response_payload(OFFSET_FETCH, 8, {}, correlation_id=number))
        for number in range(1, 5)
    ]
    one, shown = run("read", str(captured(tmp_path / "one.pcap", several[0])))
    four, _ = run("read", str(captured(tmp_path / "four.pcap", *several)))
    assert "oversized" not in shown
    assert four < one + 10 * 1024  # each takes 25 MB


def test_a_worker_decodes_one_exchange_at_a_time(tmp_path: Path) -> None:
    talk = Talk(mss=60_000)
    talk.handshake()
    talk.client_sends(request(METADATA, 12, correlation_id=1))
    talk.broker_sends(response(METADATA, 12, correlation_id=1))
    for number in range(2, 10):  # that end unanswered, all at once
        talk.client_sends(sized(structs(number, 270_000)))
    capture = tmp_path / "a.pcap"
    capture.write_bytes(pcap((packet.time_ns, packet.data) for packet in talk.packets))
    of_children = "resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss"
    code = f"{MEASURED}    import resource\n    print({of_children}, file=sys.stderr)\n"
    done = subprocess.run(
        [sys.executable, "-c", code, "read", "-j", "2", str(capture)], capture_output=True, check=True
    )
    assert done.stdout.count(b"OffsetFetch") == 8
    assert int(done.stderr.splitlines()[-1]) < 150 * 1024  # each takes 25 MB


def test_its_first_fields_are_shown_and_the_answer_as_usual() -> None:
    budget = DecodeBudget()
    decoded = decode_request(structs(), OFFSET_FETCH, budget=budget)
    (anomaly,) = decoded.anomalies
    assert (anomaly.kind, anomaly.where) == ("oversized", "request.groups.topics")
    (group,) = decoded.value["groups"]
    assert group["group_id"] == "g"
    assert 10_000 < len(group["topics"]) < 50_000
    assert "_undecoded" not in decoded.value
    assert budget.left > DecodeBudget().left // 2
    (less,) = decode_request(structs(), OFFSET_FETCH, budget=DecodeBudget(oversized=1 << 20)).value["groups"]
    assert 1000 < len(less["topics"]) < 10_000


def test_payloads_share_the_budget_of_their_message() -> None:
    body = decode_response(payloads(), JOIN_GROUP, 9, budget=(budget := DecodeBudget())).value
    message = schema.response(JOIN_GROUP)
    assert message is not None
    before = budget.left
    context = Context(GroupProtocol("consumer"), budget=budget)
    assert open_body(message, body, context, "response") == []
    each = (before - budget.left) // len(body["members"])
    assert each > 20 * 64
    context = Context(GroupProtocol("consumer"), budget=DecodeBudget(10 * each))
    body = decode_response(payloads(), JOIN_GROUP, 9).value
    anomalies = open_body(message, body, context, "response")
    assert len(anomalies) == len(body["members"]) - 10


@pytest.mark.parametrize("version", range(14))
def test_200_000_partitions_of_metadata_fit(version: int) -> None:
    """In 20,000 topics; of which one stands for all: what they take grows with their number."""
    message = schema.response(METADATA)
    assert message is not None
    spent = []
    for count in (0, 1):
        payload = response_payload(METADATA, version, {"topics": [topic(version)] * count})
        budget = DecodeBudget()
        decoder(message, version, large=True)(payload, response_body_pos(payload, METADATA, version), budget)
        spent.append(DecodeBudget().left - budget.left)
    assert 20_000 * (spent[1] - spent[0]) < DecodeBudget().left


def test_200_000_partitions_of_metadata_decode_whole(tmp_path: Path) -> None:
    payload = response_payload(METADATA, 12, {"topics": [topic(12)] * 20_000})
    assert len(payload) > LARGE_BYTES
    capture = captured(tmp_path / "a.pcap", (request_payload(METADATA, 12), payload))
    peak, shown = run("read", str(capture))
    assert "20,000 topics, 200,000 partitions" in shown
    assert "!" not in shown
    assert peak < MAX_WHOLE_KIB
    peak, shown = run("read", "--csv", str(capture))
    assert shown.count('""partition_index""') == 200_000
    assert peak < MAX_WHOLE_KIB
    peak, _ = run("export", "--format", "parquet", "-o", str(tmp_path / "out"), str(capture))
    assert peak < MAX_WHOLE_KIB + pyarrow_kib() - 12 * 1024
    (row,) = pq.read_table(tmp_path / "out" / "exchanges" / "part-00000.parquet").to_pylist()
    assert row["response"].count('"partition_index"') == 200_000


def topic(version: int) -> dict[str, Any]:
    """One with ten partitions of three replicas; ids and epochs that CPython keeps no objects for."""
    brokers = [1001, 1002, 1003]
    partition: dict[str, Any] = {"leader_id": 1001, "replica_nodes": brokers, "isr_nodes": brokers}
    if version >= 7:
        partition["leader_epoch"] = 4711
    return {"name": "a-topic-with-a-name", "partitions": [partition] * 10}


@pytest.mark.parametrize("shape", [structs, *SHAPES.values()])
def test_compiler_and_walker_stop_at_the_same_budget(shape: Callable[..., bytes]) -> None:
    payload = shape(size=30_000)
    message = schema.request(payload[1])
    assert message is not None
    pos = read_request_header(payload).body_pos
    budget = DecodeBudget()
    decoder(message, payload[3], large=True)(payload, pos, budget)
    needed = DecodeBudget().left - budget.left
    for left, fits in ((needed, True), (needed - 1, False)):
        walked = walk(message, payload[3], payload, pos, None, DecodeBudget(left), None)
        assert (walked.error is None) == fits
        if fits:
            decoder(message, payload[3], large=True)(payload, pos, DecodeBudget(left))
        else:
            assert isinstance(walked.error, Oversized)
            with pytest.raises(Oversized):
                decoder(message, payload[3], large=True)(payload, pos, DecodeBudget(left))


# --- records ------------------------------------------------------------------------------------------------

RECORDS = 40_000
MAX_RECORDS_KIB = 100 * 1024  # beside 40 MB of records


def fetched(path: Path, records: bytes) -> Path:
    partitions = [{"partition_index": 0, "records": records}]
    topics = [{"topic": "orders", "partitions": partitions}]
    return captured(path, (request_payload(FETCH, 11), response_payload(FETCH, 11, {"responses": topics})))


NOISE = Random(1).randbytes(300_000)  # else it is a bomb


def large_batch() -> bytes:
    plain = record(Item(value=NOISE), 0) + record(Item(value=b"a" * 1000), 1) * (RECORDS - 1)
    return batch(codec=ZSTD, payload=streamed_zstd(plain), count=RECORDS)


def large_message_set() -> bytes:
    plain = message(1, Item(value=NOISE)) + message(1, Item(value=b"a" * 1000)) * (RECORDS - 1)
    return message(1, Item(None, gzip.compress(plain)), attributes=GZIP, offset=RECORDS - 1)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("large")
    built = {"batch": large_batch(), "message set": large_message_set()}
    return {name: fetched(directory / f"{name}.pcap", records) for name, records in built.items()}


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("batch", "records --json"),
        ("batch", "records --csv"),
        ("message set", "records"),
        ("batch", "read -V --records"),
    ],
)
def test_a_large_batch_is_shown_whole(large: dict[str, Path], name: str, command: str) -> None:
    peak, shown = run(*command.split(), str(large[name]))
    assert peak < MAX_RECORDS_KIB
    assert "oversized" not in shown
    if command.startswith("records"):
        assert shown.count("\n") == RECORDS + ("csv" in command)
    else:
        assert f"{RECORDS:,} records" in shown
        assert f"{RECORDS - MAX_ELEMENTS:,} more" in shown


def test_a_large_batch_is_exported_whole(large: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("export", "--tables", "records", "--format", "parquet", "-o", str(out), str(large["batch"]))
    assert run(*command)[0] < MAX_RECORDS_KIB + pyarrow_kib() + 4 * 1024
    assert pq.read_metadata(out / "records" / "part-00000.parquet").num_rows == RECORDS


def test_records_in_a_body_have_a_bound(large: dict[str, Path]) -> None:
    limits = ("--limits", "decoded_bytes=32MiB")
    peak, shown = run("read", "--json", "--records", *limits, str(large["batch"]))
    assert peak < MAX_RECORDS_KIB
    (result,) = json.loads(shown)["response"]["responses"][0]["partitions"][0]["records"]
    assert 5000 < len(result["records"]) < RECORDS
    (anomaly,) = result["anomalies"]
    assert anomaly["kind"] == "oversized_records"
    assert f"{len(result['records'])} of {RECORDS} records" in anomaly["detail"]


@pytest.mark.parametrize("entry", [batch([Item()]), message(1, Item())], ids=["batches", "messages"])
def test_batches_behind_that_bound_are_counted(entry: bytes) -> None:
    shown = fetch(entry * 100)
    limits = Limits(decoded_bytes=100_000)
    (get,) = (each.get for each in with_records(Opener(limits=limits)) if each.name == "response")
    *result, last = get(shown)["responses"][0]["partitions"][0]["records"]
    assert 10 < len(result) < 50
    assert [len(each["records"]) for each in result[:-1]] == [1] * (len(result) - 1)
    (anomaly,) = last["anomalies"]
    assert anomaly["kind"] == "oversized_records"
    assert f"{100 - len(result)} batches or messages after" in anomaly["detail"]


def test_a_long_value_that_is_escaped(tmp_path: Path) -> None:
    peak, shown = run("records", str(fetched(tmp_path / "a.pcap", batch([Item(value=b"\1" * 3_000_000)]))))
    assert peak < MAX_RECORDS_KIB
    assert shown.count(r"\x01") == 3_000_000


def test_a_record_shares_the_budget_of_its_message() -> None:
    """While it is shown, it takes 14 times its bytes."""
    value = NOISE * 10
    shown = fetch(batch([Item(value=value)]))
    (partition,) = partition_records(shown)
    for used, is_shown in ((0, True), (DEFAULT.decoded_bytes - 15 * len(value), True), (180 << 20, False)):
        shown.decoded_bytes = used
        (opened,) = decode_batches(partition, DEFAULT)
        assert len(opened.batch.records) == is_shown
        assert [each.kind for each in opened.batch.anomalies] == ["oversized_records"] * (not is_shown)


@pytest.mark.deep
@pytest.mark.parametrize("value", [b"\1" * 120_000_000, b"a" * 16_000_000], ids=["120 MB", "16 MB"])
@pytest.mark.parametrize("command", ["records", "records --json", "read --json --records"])
def test_a_record_longer_than_any(tmp_path: Path, value: bytes, command: str) -> None:
    payload = streamed_zstd(record(Item(value=NOISE + NOISE), 0) + record(Item(value=value), 1))
    capture = fetched(tmp_path / "a.pcap", batch(codec=ZSTD, payload=payload, count=2))
    assert run(*command.split(), str(capture))[0] < MAX_WHOLE_KIB


def test_workers_and_their_parent_write_a_large_batch_in_parts(large: dict[str, Path]) -> None:
    of_children = "resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss"
    code = f"{MEASURED}    import resource\n    print({of_children}, file=sys.stderr)\n"
    outputs = []
    for jobs, most in (("1", ()), ("2", ()), ("1", ("-c", "30000")), ("2", ("-c", "30000"))):
        command = [sys.executable, "-c", code, "records", "--json", "-j", jobs, *most, str(large["batch"])]
        done = subprocess.run(command, capture_output=True, check=True)
        outputs.append(done.stdout)
        assert max(map(int, done.stderr.splitlines()[-2:])) < MAX_RECORDS_KIB
    assert outputs[0] == outputs[1]
    assert outputs[2] == outputs[3]
    assert (outputs[0].count(b"\n"), outputs[2].count(b"\n")) == (RECORDS, 30_000)


def test_no_temporary_file_is_left_of_rows_that_were_not_written(
    large: dict[str, Path], tmp_path: Path
) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "kdissect", "records", "-j", "2", str(large["batch"])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as run_away:
        assert run_away.stdout is not None
        run_away.stdout.readline()
        run_away.stdout.close()  # as ``head -n 1`` does
    assert list(tmp_path.iterdir()) == []
