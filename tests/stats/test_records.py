from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kdissect import dissect, open_capture
from kdissect.kafka.compression import Budget
from kdissect.kafka.records import RecordData
from kdissect.limits import DEFAULT
from kdissect.stats.facts import Facts
from kdissect.stats.record_counts import Inflation, RecordCounts
from samples.golden import captures, name_of
from tests import producers
from tests.exchange_factory import connection, exchange
from tests.record_batches import GZIP, Item, batch

# Clients of these count other things: members of share groups acknowledge, a lost capture loses.
UNLIKE = {"tls", "midstream", "http-on-9092"}


def records(path: Path) -> RecordCounts:
    counts = RecordCounts(DEFAULT, by_partition=True)
    with open_capture(path) as packets:
        for each in dissect(packets):
            counts.feed(Facts(each))
    return counts


@pytest.mark.parametrize("path", [path for path in captures() if name_of(path) not in UNLIKE], ids=name_of)
def test_what_clients_wrote_was_written(path: Path) -> None:
    """Every record that a broker acknowledged is counted; more may be, of tries that were repeated."""
    rows = json.loads(Path(f"samples/{name_of(path)}.truth.json").read_text())["produced"]
    rows = [row for row in rows if row["error"] is None and row["offset"] is not None]
    logged = Counter((row["topic"], row["partition"]) for row in rows)
    counts = records(path)
    for (topic, partition), count in logged.items():
        produced = counts.partitions[topic, partition].produced
        assert produced.uncounted or produced.records >= count
    producers: dict[str, set[str]] = {}
    for row in rows:
        producers.setdefault(row["topic"], set()).add(row["client_id"])
    for topic, clients in producers.items():
        assert clients <= set(counts.topics[topic].producers.first(100))


def produce(error: int, records: Any = None) -> Facts:
    request = {
        "acks": -1,
        "topic_data": [{"name": "orders", "partition_data": [{"index": 0, "records": records}]}],
    }
    response = {"responses": [{"name": "orders", "partition_responses": [{"index": 0, "error_code": error}]}]}
    return Facts(exchange("Produce", 7, request, response, client_id="shop"))


def test_what_was_refused_is_an_error_and_not_written() -> None:
    counts = RecordCounts(DEFAULT)
    counts.feed(produce(10))
    topic = counts.topics["orders"]
    assert topic.errors == {"MESSAGE_TOO_LARGE": 1}
    assert topic.produced.records == 0


def test_partitions_are_counted_only_on_request() -> None:
    counts = RecordCounts(DEFAULT)
    counts.feed(produce(10))
    assert dict(counts.partitions) == {}


def test_the_ratio_is_that_of_what_was_compressed() -> None:
    items = [Item(value=b"the same text " * 40)] * 5
    packed, plain = batch(items, codec=GZIP), batch(items)
    data = plain + packed
    counts = RecordCounts(DEFAULT)
    counts.feed(produce(0, RecordData(data, 0, len(data))))
    header = 61
    expected = (len(plain) - header) / (len(packed) - header)
    assert counts.topics["orders"].compression_ratio == round(expected, 2)
    assert counts.topics["orders"].codecs == {"none": 1, "gzip": 1}


def test_nothing_compressed_has_no_ratio() -> None:
    data = batch([Item()])
    counts = RecordCounts(DEFAULT)
    counts.feed(produce(0, RecordData(data, 0, len(data))))
    assert counts.topics["orders"].compression_ratio is None
    assert counts.topics["orders"].produced.records == 1


def test_of_later_exchanges_only_some_batches_are_looked_into() -> None:
    counts = Inflation()
    for number in range(400):
        data = batch([Item(value=b"x" * 50 + str(number).encode())], codec=GZIP)
        counts.add(RecordData(data, 0, len(data)), Budget(), every=False)
        looked_into = counts.inflated // 60
    assert 5 < looked_into < 60


def test_records_without_a_response_are_unknown_and_in_no_other_count() -> None:
    counts = RecordCounts(DEFAULT, by_partition=True)
    counts.feed(producers.produce(1, 0, 3, answered=False))
    counts.feed(producers.produce(2, 3, 2))
    for volume in (counts.topics["orders"], counts.partitions["orders", 0]):
        assert (volume.unknown.records, volume.produced.records) == (3, 2)
        assert volume.codecs == {"none": 1}


def test_markers_are_neither_records_nor_batches() -> None:
    counts = RecordCounts(DEFAULT)
    counts.feed(producers.fetch_markers(1))
    fetched = counts.topics["orders"].fetched
    assert (fetched.records, fetched.batches) == (0, 0)


def test_codecs_of_what_was_fetched_are_not_those_of_what_was_produced() -> None:
    data = batch([Item()] * 3, codec=GZIP)
    answer = {"partition_index": 0, "error_code": 0, "records": RecordData(data, 0, len(data))}
    response = {"responses": [{"topic": "orders", "partitions": [answer]}]}
    counts = RecordCounts(DEFAULT)
    counts.feed(Facts(exchange("Fetch", 7, {"replica_id": -1, "topics": []}, response)))
    counts.feed(producers.produce(1, 0))
    topic = counts.topics["orders"]
    assert (topic.codecs, topic.fetched_codecs) == ({"none": 1}, {"gzip": 1})


# --- goodput ------------------------------------------------------------------------------------------------


def test_batches_that_producers_sent_again() -> None:
    path = Path("samples/troubles/sent-again.pcap.gz")
    known = json.loads(path.with_name("sent-again.truth.json").read_text())
    counts = records(path)
    duplicates = counts.duplicate_bytes()
    for topic, acknowledged in known["acknowledged"].items():
        volume = counts.topics[topic].produced
        assert volume.records - acknowledged == 2
        assert duplicates[topic] == 2 * 107  # the late ones have longer keys
    assert known["stored"] == {"orders": 14, "clicks": 12}


def test_the_same_batch_on_one_connection_is_not_sent_again() -> None:
    counts = RecordCounts(DEFAULT)
    data = batch([Item()])
    for _ in range(2):
        counts.feed(produce(0, RecordData(data, 0, len(data))))
    assert counts.topics["orders"].produced.batches == 2
    assert counts.duplicate_bytes() == {}


def accepted_at(*times: tuple[str, float]) -> RecordCounts:
    """Acceptances of one batch, by connection and second."""
    counts = RecordCounts(DEFAULT)
    for name, after_s in times:
        counts.feed(producers.produce(after_s, 0, connection=connection(name), number=1))
    return counts


@pytest.mark.parametrize(
    ("times", "copies"),
    [
        ([("inside", 1), ("outside", 1.001)], 0),
        ([("late", 3), ("first", 1)], 1),
        ([("inside", 1), ("outside", 1.001), ("inside again", 3), ("outside again", 3.001)], 2),
    ],
    ids=["both sides of a NAT", "sent again", "both"],
)
def test_only_what_comes_later_is_sent_again(times: list[tuple[str, float]], copies: int) -> None:
    counts, other = accepted_at(*times[:1]), accepted_at(*times[1:])
    counts.merge(other)
    length = accepted_at(*times).topics["orders"].produced.bytes // len(times)
    expected = {"orders": copies * length} if copies else {}
    assert counts.duplicate_bytes() == accepted_at(*times).duplicate_bytes() == expected


def test_codecs_show_what_brokers_compress_anew() -> None:
    topics = records(Path("samples/troubles/recompressed.pcap.gz")).topics
    assert {name: ({*each.codecs}, {*each.fetched_codecs}) for name, each in topics.items()} == {
        "orders": ({"lz4"}, {"lz4"}),
        "anew": ({"lz4"}, {"gzip"}),
    }
