"""The native core writes the records of exchanges in place of Python: the same lines, in the same order."""

from __future__ import annotations

import gzip
import io
import json
from csv import reader
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.traffic import Template, make
from kdissect.capture.reader import open_capture
from kdissect.capture.source import one_by_one
from kdissect.cli.main import main
from kdissect.limits import DEFAULT, Limits
from kdissect.options import Options
from kdissect.pipeline import Dissection
from kdissect.query.record_filters import RecordCriteria, RecordFilter
from kdissect.query.records import Records
from kdissect.query.where import compile_where
from kdissect.sinks.records import RecordRows
from kdissect.sinks.sink import Demand
from kdissect.tables.columns import RECORD, RECORD_NAMES, resolve_record, selected
from kdissect.tables.lines import CsvLines, FieldLines, JsonLines, RecordColumns, RecordLines
from kdissect.text.style import Times
from kdissect.text.table import RecordTable
from tests.captures import pcap, pcapng
from tests.cli.commands import run
from tests.core import NEEDS_CORE, without_core
from tests.depth import IS_DEEP
from tests.frames import FETCH, METADATA, PRODUCE, request, response
from tests.record_batches import (
    BASE_MS,
    CODECS,
    CONTROL,
    GZIP,
    LOG_APPEND,
    LZ4,
    TRANSACTIONAL,
    Item,
    batch,
    message,
    message_set,
    messages,
)
from tests.sinks import Noted
from tests.tables.test_native_rows import capture_of
from tests.test_lending import BUSY, SEEDS, blocks_of, damaged, mixed, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

pytestmark = NEEDS_CORE

TALKS = BUSY if IS_DEEP else ["kafka-4-transactions", "midstream", "kafka-4-basics"]
TOPIC_ID = "QQQQQQQQQQQQQQQQQQQQQQ"
TRACE = (b"traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")


CHOSEN = selected(
    [
        *("value_encoding", "value", "also_in", "trace_id", "headers", "schema_id", "api_version", "key"),
        *("time", "key_encoding", "control_type", "broker_port", "topic", "anomalies", "offset"),
        "e2e_latency_us",
    ],
    RECORD_NAMES.values(),
)
"""In no usual order."""

FORMS: dict[str, Callable[[io.BytesIO], Any]] = {
    "json": lambda out: RecordLines(out.write),
    "csv": lambda out: CsvLines(out.write, columns=RECORD),
    "text": lambda out: RecordTable(io.TextIOWrapper(out, write_through=True), Times("ud", digits=9)),
    "fields": lambda out: FieldLines(io.TextIOWrapper(out, write_through=True), RECORD),
    "chosen json": lambda out: JsonLines(out.write, columns=CHOSEN),
    "chosen csv": lambda out: CsvLines(out.write, columns=CHOSEN),
    "chosen fields": lambda out: FieldLines(io.TextIOWrapper(out, write_through=True), CHOSEN),
}


ALL_RECORDS = RecordCriteria()


def written(
    blocks: Sequence[Any], limits: Limits, criteria: RecordCriteria, *, joins: bool, form: str
) -> tuple[list[Any], int]:
    """The lines, and what else is known at the end; how many exchanges the core wrote."""
    out = io.BytesIO()
    source = Records(RecordFilter(criteria, limits), limits)
    writer, demand = FORMS[form](out), Demand(has_latency_parts=False)
    by_batch = form in ("json", "text") and not (source.selects or source.is_first)
    write = writer.feed_batch if by_batch else writer.feed
    native = writer if form in ("json", "text") else RecordColumns(writer)
    sink = RecordRows(source, write, writer.close, by_batch=by_batch, native=native, demand=demand)
    noted = Noted(sink)
    dissection = Dissection(blocks, Options(limits=limits, end_to_end=joins), split_latency=False)
    for _ in dissection.into(noted):
        pass
    sink.close()
    output = out.getvalue()
    rows = len(list(reader(io.StringIO(output.decode(), "")))) - 1 if "csv" in form else output.count(b"\n")
    assert rows == sink.rows
    return [output.split(b"\n"), sink.part(), dissection.counts, dissection.noticed], noted.taken


def compare(
    blocks: Sequence[Any],
    limits: Limits = DEFAULT,
    criteria: RecordCriteria = ALL_RECORDS,
    *,
    joins: bool = True,
    form: str = "json",
) -> tuple[list[bytes], int]:
    """The lines of the records, which are the same without the core, and how many exchanges that wrote."""
    result, taken = written(blocks, limits, criteria, joins=joins, form=form)
    with without_core():
        expected, none = written(blocks, limits, criteria, joins=joins, form=form)
    assert none == 0
    for own, other in zip(result, expected, strict=True):
        assert own == other
    return result[0][:-1], taken


def produce(data: bytes, *, topic: str = "orders", version: int = 9, **answer: Any) -> Template:
    partition = {"index": 3, "base_offset": 70} | ({"log_append_time_ms": -1} if version > 1 else {}) | answer
    body = {"acks": -1, "topic_data": [{"name": topic, "partition_data": [{"index": 3, "records": data}]}]}
    answers = {"responses": [{"name": topic, "partition_responses": [partition]}]}
    return Template(request(PRODUCE, version, body), response(PRODUCE, version, answers))


def fetch(
    data: bytes,
    *,
    version: int = 12,
    topic: str = "orders",
    topic_id: str = TOPIC_ID,
    offset: int = 70,
    **more: Any,
) -> Template:
    name = {"topic_id": topic_id} if version > 12 else {"topic": topic}
    partition = {"partition_index": 3, "records": data, "aborted_transactions": None} | more
    body = {"topics": [name | {"partitions": [{"partition": 3, "fetch_offset": offset}]}]}
    answers = {"responses": [name | {"partitions": [partition]}]}
    return Template(request(FETCH, version, body), response(FETCH, version, answers))


def blocks(exchanges: Sequence[Template], directory: Path) -> Sequence[Any]:
    return blocks_of(capture_of(exchanges, directory / "exchanges.pcap").read_bytes(), directory)


ITEMS = (Item(b"k", b"v"), Item(None, None), Item(b"\xff", 'a"\\\n\u2028ж'.encode(), (), BASE_MS + 1234))
HEADERS = Item(b"h", b"\0\0\0\0\7avro", (TRACE, (b"empty", None)))
SPECIAL = [
    Item(data, data)
    for data in (
        b"",
        b"NULL",
        b'"',
        b" ",
        b"  a  ",
        b"a,b\r\nc",
        b"a\rb",
        b"\t",
        "ж\u3000".encode(),
        b"k" * 40,
    )
]
NUMBERED: dict[str, Any] = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 5}

USUAL = {
    "plain": produce(batch(ITEMS)),
    "headers": fetch(batch([HEADERS, *ITEMS], base_offset=70)),
    "special": fetch(batch(SPECIAL[:3] + SPECIAL[4:], base_offset=67)),
    "none": fetch(b""),
    **{name: fetch(batch(ITEMS * 9, codec=codec, base_offset=70)) for name, codec in CODECS.items()},
    "several batches": fetch(batch(ITEMS, base_offset=67) + batch(ITEMS, codec=GZIP, base_offset=70)),
    "several batches produced": produce(batch(ITEMS) + batch(ITEMS)),
    "without offset": produce(batch(ITEMS), base_offset=-1),
    "append time": produce(batch(ITEMS), log_append_time_ms=BASE_MS + 9),
    "append time fetched": fetch(batch(ITEMS, flags=LOG_APPEND, base_offset=70)),
    "no timestamp": fetch(batch([Item(timestamp_ms=-1)] * 3, base_ms=-1, base_offset=70)),
    "transactional": fetch(batch(ITEMS, flags=TRANSACTIONAL, base_offset=70), aborted_transactions=[]),
    "cut at the end": fetch(batch(ITEMS, base_offset=70) + batch(ITEMS, base_offset=73)[:-1]),
    "null": fetch(None),  # type: ignore[arg-type]
    "old version": produce(batch(ITEMS), version=3),
    "hostile name": produce(batch(ITEMS), topic="o\x1b[2J\nx"),
    **{
        f"magic {magic} {name}": fetch(message_set(magic, ITEMS, codec=codec, base_offset=69), version=4)
        for magic in (0, 1)
        for name, codec in CODECS.items()
        if name != "zstd"
    },
    "magic 1 produced": produce(messages(1, ITEMS) + message_set(1, ITEMS, codec=GZIP), version=2),
    "magic 0 produced": produce(messages(0, ITEMS), version=0),
    "magic 0 append time": produce(messages(0, ITEMS), version=2, log_append_time_ms=BASE_MS + 9),
    "magic 1 without offset": produce(message_set(1, ITEMS, codec=GZIP), version=2, base_offset=-1),
    "magic 1 append time": fetch(
        message_set(1, ITEMS, codec=LZ4, flags=LOG_APPEND, wrapper_ms=BASE_MS + 9)
        + messages(1, ITEMS, base_offset=72, attributes=LOG_APPEND),
        version=4,
    ),
    "magic 1 of old librdkafka": fetch(message_set(1, ITEMS, codec=GZIP, wrapper_offset=0), offset=1),
    "magic 1 compacted": fetch(
        message_set(1, [Item(offset=3), Item(offset=7)], codec=GZIP, base_offset=66)
        + messages(0, ITEMS, base_offset=74)
    ),
    "magic 1 cut at the end": fetch(messages(1, ITEMS * 2, base_offset=69)[:-1]),
    "magic 0 cut off": fetch(message_set(0, ITEMS, codec=GZIP)[:-1]),
}
COMMIT, ABORT = (
    batch([Item(key, bytes(6))], flags=CONTROL | TRANSACTIONAL, base_offset=75, **NUMBERED)
    for key in (b"\0\0\0\1", bytes(4))
)
OFFSET = Item(
    b"\0\1\0\1g\0\6orders\0\0\0\3",
    b"\0\3" + (70).to_bytes(8) + b"\xff" * 4 + b'\0\4"\\,\t' + BASE_MS.to_bytes(8),
    (TRACE,),
)
OWN = {"topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "version": 13}
OPENED = {
    "commit": fetch(COMMIT),
    "abort": fetch(ABORT, aborted_transactions=[]),
    "control without value": fetch(batch([Item(bytes(4), None)], flags=CONTROL, base_offset=75)),
    "produced": produce(COMMIT),
    "Kafka's own": fetch(batch([OFFSET, *ITEMS], base_offset=70), topic="__consumer_offsets"),
    "undecoded": fetch(batch([*SPECIAL, HEADERS], base_offset=70), topic="__transaction_state"),
    "Kafka's own produced": produce(batch([OFFSET]), topic="__consumer_offsets"),
    "magic 1 of Kafka's own": fetch(message_set(1, [OFFSET], codec=GZIP), topic="__consumer_offsets"),
    "metadata": fetch(batch([HEADERS, *ITEMS], base_offset=70), **OWN),
    "control of metadata": fetch(COMMIT, **OWN),
}
REJECTED = {
    "rejected": produce(batch(ITEMS), error_code=6),
    "rejected with numbers": produce(
        batch(ITEMS, **NUMBERED) + batch(ITEMS, producer_id=7), error_code=7, log_append_time_ms=BASE_MS
    ),
    "rejected messages": produce(message_set(1, ITEMS, codec=GZIP), version=2, error_code=87),
    "an unknown error": produce(batch([HEADERS]), error_code=999),
}
ABORTED = {
    "aborted": fetch(
        batch(ITEMS, flags=TRANSACTIONAL, base_offset=70, **NUMBERED)
        + batch(ITEMS, flags=TRANSACTIONAL, base_offset=73, producer_id=8)
        + ABORT
        + batch(ITEMS, flags=TRANSACTIONAL, base_offset=76, **NUMBERED)
        + batch(ITEMS, base_offset=79, producer_id=9),
        aborted_transactions=[
            {"producer_id": 9, "first_offset": 0},
            {"producer_id": 7, "first_offset": 72},
            {"producer_id": 7, "first_offset": 99},
        ],
    ),
    "aborted again": fetch(
        batch(ITEMS, flags=TRANSACTIONAL, base_offset=70, **NUMBERED)
        + COMMIT
        + ABORT
        + batch(ITEMS, flags=TRANSACTIONAL, base_offset=76, **NUMBERED),
        aborted_transactions=[
            {"producer_id": 7, "first_offset": 76},
            {"producer_id": 7, "first_offset": 1},
        ],
    ),
}
ODD = {
    "blank": fetch(batch(SPECIAL, base_offset=70)),
    "an unknown control type": fetch(batch([Item(b"\0\0\0\x63", b"v")], flags=CONTROL, base_offset=75)),
    "malformed control": fetch(batch([Item(b"\0\0\0\1", b"v")], flags=CONTROL, base_offset=75)),
    "checksum": fetch(batch(ITEMS, crc=1)),
    "count": fetch(batch(ITEMS, count=9)),
    "damaged": fetch(batch(ITEMS, codec=GZIP, compress=lambda data: data)),
    "codec": fetch(batch(ITEMS, codec=7, compress=bytes)),
    "offsets descend": fetch(batch([Item(offset=4), Item(offset=2)], base_offset=66, last_offset_delta=4)),
    "message checksum": fetch(messages(1, ITEMS) + message(1, crc=1)),
    "inner checksum": fetch(
        message_set(1, ITEMS, codec=GZIP, compress=lambda data: gzip.compress(data[:-1] + b"?"))
    ),
    "inner cut off": fetch(message_set(1, ITEMS, codec=GZIP, compress=lambda data: gzip.compress(data[:-1]))),
    "inner codec": fetch(
        message(1, Item(None, gzip.compress(message_set(1, ITEMS, codec=GZIP))), attributes=GZIP)
    ),
    "inner magic": fetch(message(1, Item(None, gzip.compress(messages(0, ITEMS))), attributes=GZIP)),
    "no inner message": fetch(message(0, Item(None, gzip.compress(b"")), attributes=GZIP)),
    "message size": fetch(messages(0, ITEMS) + message(0, size=15) + bytes(9)),
    "magic 0 and 2": fetch(messages(0, ITEMS, base_offset=70) + batch(ITEMS, base_offset=73)),
    "magic 2 and 1": fetch(batch(ITEMS, base_offset=70) + messages(1, ITEMS, base_offset=73)),
    "a long name": fetch(batch(ITEMS), topic="x" * 250),
    "unknown ID": fetch(batch(ITEMS), version=13),
}


@pytest.mark.parametrize("name", USUAL)
def test_usual_exchanges_are_written(name: str, tmp_path: Path) -> None:
    capture = blocks([USUAL[name]], tmp_path)
    for form in FORMS:
        for joins in (False, True):
            _, taken = compare(capture, joins=joins, form=form)
            assert taken == (2 if name == "hostile name" and "fields" in form else 3)


@pytest.mark.parametrize("name", [*OPENED, *ABORTED])
def test_records_that_no_client_wrote_are_decoded_by_python(name: str, tmp_path: Path) -> None:
    capture = blocks([(OPENED | ABORTED)[name], USUAL["headers"]], tmp_path)
    for form in FORMS:
        _, taken = compare(capture, form=form)
        assert taken == (3 if form == "text" and name in (*ABORTED, "undecoded") else 4)


@pytest.mark.parametrize("name", REJECTED)
def test_rejected_records_are_written(name: str, tmp_path: Path) -> None:
    capture = blocks([REJECTED[name], USUAL["plain"]], tmp_path)
    for form in FORMS:
        for joins in (False, True):
            assert compare(capture, form=form, joins=joins)[1] == 4


@pytest.mark.parametrize("name", ODD)
def test_odd_exchanges_are_left(name: str, tmp_path: Path) -> None:
    for form in FORMS:
        _, taken = compare(blocks([ODD[name], USUAL["plain"]], tmp_path), form=form)
        assert taken <= (3 if name != "blank" or form == "text" else 5)


def test_fetched_batches_are_joined(tmp_path: Path) -> None:
    first, second = batch(ITEMS, base_offset=70, **NUMBERED), batch(ITEMS, base_offset=73)
    talk = [produce(first), fetch(first + second), produce(second, base_offset=73), ODD["malformed control"]]
    for form in FORMS:
        assert compare(blocks(talk, tmp_path), form=form)[1] == 5
    lines, taken = compare(blocks(talk, tmp_path))
    records = list(map(json.loads, lines))
    assert taken == 5
    fetched = [record["e2e_latency_us"] for record in records if record["api"] == "Fetch"]
    assert None not in fetched[:3]
    assert fetched[3:6] == [None] * 3


def test_batches_after_messages_are_joined(tmp_path: Path) -> None:
    """Also if what was produced is not shown."""
    data = batch(ITEMS, base_offset=70)
    talk = [produce(message(1) + data), fetch(data)]
    lines, _ = compare(blocks(talk, tmp_path), criteria=RecordCriteria(fetched=True))
    assert [json.loads(line)["e2e_latency_us"] is None for line in lines] == [False] * 3


def test_exchanges_that_name_a_cluster_are_taken(tmp_path: Path) -> None:
    metadata = Template(request(METADATA, 9, {"topics": []}), response(METADATA, 9, {"cluster_id": "c1"}))
    lines, taken = compare(blocks([USUAL["plain"], metadata, USUAL["plain"]], tmp_path))
    assert taken == 5
    assert [json.loads(line)["cluster_id"] for line in lines][-3:] == ["c1"] * 3


FILTERS = [
    RecordCriteria(keys=["k*"]),
    RecordCriteria(headers=["empty"]),
    RecordCriteria(offsets=["68..71"]),
    RecordCriteria(traces=["4bf9*"]),
    RecordCriteria(schemas=["7"]),
    RecordCriteria(patterns=["a.*b|^v"], control=False),
    RecordCriteria(produced=True),
    RecordCriteria(fetched=True, keys=["!k"]),
    RecordCriteria(partitions=["orders-3"]),
    RecordCriteria(topics=["ord*"], partitions=["3"], produced=True),
    RecordCriteria(control=True),
    RecordCriteria(unique=True),
    RecordCriteria(unique=True, offsets=["..72"]),
    RecordCriteria(where=compile_where('key == "k" or value.group == "g" or control_type', resolve_record)),
    RecordCriteria(
        where=compile_where('partition == 3 and topic == "orders" and offset > 70', resolve_record)
    ),
]


@pytest.mark.parametrize("criteria", FILTERS, ids=lambda each: "-".join(map(str, filter(None, each)))[:60])
def test_selected_records(criteria: RecordCriteria, tmp_path: Path) -> None:
    opened = [each for name, each in OPENED.items() if name != "undecoded"]
    talk = [*USUAL.values(), *opened, *REJECTED.values(), ODD["malformed control"], ODD["count"]]
    capture = blocks(talk, tmp_path)
    for form in FORMS:
        lines, taken = compare(capture, criteria=criteria, form=form)
        skips_odd = criteria.produced  # both of the odd ones are fetched, and not opened
        others = len(USUAL) + len(opened) + len(REJECTED) + (4 if skips_odd else 2) - taken
        assert others in ((0, 1) if "fields" in form else (0,))  # a hostile name, if it is selected
    assert 0 < len(lines) < len(compare(capture, form="text")[0])


def test_copies_of_batches_that_failed(tmp_path: Path) -> None:
    data = batch([*ITEMS, HEADERS], base_offset=70, **NUMBERED)
    talk = [produce(data, error_code=7), fetch(data, offset=72), USUAL["plain"]]
    compare(blocks(talk, tmp_path), form="csv")
    lines, _ = compare(blocks(talk, tmp_path), form="text")
    assert [b"its Produce" in line for line in lines] == [False] * 4 + [True] * 4 + [False] * 3
    lines, _ = compare(blocks(talk, tmp_path))
    also_in = [json.loads(line)["also_in"] for line in lines]
    assert [each is None for each in also_in] == [False] * 8 + [True] * 3


@pytest.mark.parametrize(
    "limits",
    [{}, {"unique_records": 7}, {"naming_rows": 3}, {"naming_bytes": 5000}, {"produce_window_ns": 100_000}],
    ids=str,
)
def test_random_talks(limits: dict[str, int], tmp_path: Path) -> None:
    random, taken = Random(f"{limits}"), 0
    for _ in range(SEEDS):
        talk = random.choices([*(USUAL | OPENED | REJECTED | ABORTED | ODD).values()], k=60)
        packets = timed(capture_of(talk, tmp_path / "talk.pcap"))
        if random.random() < 0.5:
            packets = damaged(packets, random)
        capture, form = blocks_of(random.choice((pcap, pcapng))(packets), tmp_path), random.choice([*FORMS])
        criteria = RecordCriteria(unique=random.random() < 0.3)
        taken += compare(capture, Limits(**limits), criteria, form=form)[1]
    assert taken


def test_samples_in_turn(tmp_path: Path) -> None:
    for seed in range(SEEDS):
        random = Random(f"records {seed}")
        packets = mixed(TALKS, random)
        if seed:
            packets = damaged(packets, random)
        limits = Limits(naming_bytes=random.choice((5_000, 50_000, DEFAULT.naming_bytes)))
        capture = blocks_of(random.choice((pcap, pcapng))(packets), tmp_path)
        compare(capture, limits, form=random.choice([*FORMS]))


def test_text_that_waits_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that was not produced here is waited for, and nothing else is written meanwhile."""
    monkeypatch.setattr("kdissect.exchanges.written._HELD_BYTES", 1)
    talk = [fetch(batch(ITEMS * 100, base_offset=70)) for _ in range(8)]
    _, taken = compare(blocks(talk, tmp_path))
    assert 2 < taken < 10


def test_chatty_clients(tmp_path: Path) -> None:
    contents = make("chatty", tmp_path / "chatty", 200_000, connections=5)
    packets = timed(tmp_path / "chatty")
    records, taken = compare(blocks_of(pcap(packets), tmp_path), Limits(naming_rows=100))
    assert len(records) == contents.records
    assert taken == contents.exchanges


@pytest.mark.parametrize(
    "options",
    [
        ("--json",), ("--csv",), (), ("--json", "--error", "*"), ("--topic", "*r*", "--partition", "0"),
        ("--topic", "*r*", "--names", "window", "-c", "3"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_the_end_of_a_capture(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of some topics nothing but the ID is known, and some exchanges with records have an error elsewhere."""
    with open_capture("samples/kafka-4-cluster.pcap.gz") as source:
        packets = [(packet.time_ns, bytes(packet.data)) for packet in one_by_one(source)]
    path = tmp_path / "end.pcap"
    path.write_bytes(pcap(packets[2 * len(packets) // 5 :]))
    done = run(capsys, "records", "-j", "1", *options, str(path))
    with without_core():
        assert run(capsys, "records", "-j", "1", *options, str(path)) == done
    assert '"topic":null' in done.out or options != ("--json",)


@pytest.mark.parametrize(
    "options",
    [
        ("--json",), ("--csv",), (), ("-e", "offset,value", "--api", "Fetch"), ("--csv", "-e", "key"),
        ("--unique", "--limits", "unique_records=5"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_the_last_of_so_many_records(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It can be in the middle of an exchange, and the exchanges before it may wait for others."""
    data = batch([*ITEMS, *SPECIAL[:3]], base_offset=70, **NUMBERED)
    talk = [produce(data), fetch(data), OPENED["commit"], ODD["count"], USUAL["headers"], fetch(data)]
    path = str(capture_of(talk, tmp_path / "talk.pcap"))
    for count in range(1, 27):
        done = run(capsys, "records", "-j", "1", "-c", str(count), *options, path)
        with without_core():
            assert run(capsys, "records", "-j", "1", "-c", str(count), *options, path) == done


def test_one_process_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the core writes the records; several processes are not even considered."""
    several: list[bool] = []

    def processes(*_: Any, by_default: bool, allowed: bool) -> int:
        several.append(by_default and allowed)
        return 1

    monkeypatch.setattr("kdissect.cli.records.processes", processes)
    path = str(capture_of([USUAL["plain"]], tmp_path / "plain.pcap"))
    for words in ((), ("--json",), ("-V",), ("-e", "key"), ("-e", "request.acks"), ("-e", "time", "-t", "e")):
        assert main(["records", *words, path]) == 0
    with without_core():
        assert main(["records", path]) == 0
    assert several == [False, False, True, False, True, True, True]
