from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect import dissect, open_capture
from kdissect.errors import UsageError
from kdissect.query.record_filters import RecordCriteria, RecordFilter
from kdissect.query.records import Records
from kdissect.query.subjects import CLIENT, FORMS, GROUP, RECORD, TOPIC, TRANSACTION, Subject, parse_subject

if TYPE_CHECKING:
    from kdissect.model import Exchange

CLUSTER, FENCED = "samples/kafka-4-cluster.pcap.gz", "samples/kafka-4-fenced.pcap.gz"


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("group:billing", Subject(GROUP, "billing")),
        ("group:a:b", Subject(GROUP, "a:b")),
        ("client:[::1]:9092", Subject(CLIENT, "[::1]:9092")),
        ("txn:pay 1", Subject(TRANSACTION, "pay 1")),
        ("topic:orders", Subject(TOPIC, "orders")),
        ("record:orders:3@41", Subject(RECORD, "orders", 3, 41)),
        ("record:my-orders-3@41", Subject(RECORD, "my-orders", 3, 41)),
    ],
)
def test_every_form(text: str, subject: Subject) -> None:
    assert parse_subject(text) == subject


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "group", "group:", "billing", "record:orders", "record:orders:3", "record:orders@3"),
        *("record::3@1", "record:orders:x@1", "record:orders:1@-1", "record:orders:1@\u0663"),
    ],
)
def test_anything_else_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_subject(text)
    assert str(error.value) == f'invalid subject "{text}": use {FORMS}'


def test_a_mistyped_kind_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r'did you mean "topic"\?$'):
        parse_subject("topics:orders")


def matching(text: str, capture: str) -> list[tuple[str | None, str | None]]:
    """The client and API of each exchange that concerns a subject."""
    of_subject = parse_subject(text).filter()
    with open_capture(capture) as packets:
        return [(each.client_id, each.api) for each in dissect(packets) if of_subject.matches(each)]


def test_a_transaction_has_the_markers_of_its_producer_id() -> None:
    apis = {api for _, api in matching("txn:pay-alone", FENCED)}
    assert apis == {
        "FindCoordinator",
        "InitProducerId",
        "AddPartitionsToTxn",
        "Produce",
        "EndTxn",
        "WriteTxnMarkers",
    }
    assert not matching("txn:nobody", FENCED)


def test_a_record_has_the_first_commit_past_it_and_no_other() -> None:
    commits = [each for each in matching("record:spread:1@0", CLUSTER) if each[1] == "OffsetCommit"]
    assert commits == [("readers-2", "OffsetCommit")]


@pytest.mark.parametrize("sample", ["kafka-0.9", "kafka-0.10.2", "kafka-4-lag"])
def test_a_record_is_in_batches_and_in_compressed_message_sets(sample: str) -> None:
    of_records = Records(RecordFilter(RecordCriteria(topics=("spread", "orders"), partitions=("0",))))
    with open_capture(f"samples/{sample}.pcap.gz") as packets:
        exchanges = list(dissect(packets))
    carriers: dict[tuple[str | None, int], set[Exchange]] = {}
    for each in exchanges:
        for record in of_records.of((each,)):
            if record.offset is not None:
                carriers.setdefault((record.source.topic, record.offset), set()).add(each)
    assert carriers
    for (topic, offset), expected in list(carriers.items())[:40]:
        of_subject = parse_subject(f"record:{topic}:0@{offset}").filter()
        assert expected <= set(filter(of_subject.matches, exchanges))
