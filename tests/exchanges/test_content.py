from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

import pytest

from kdissect.exchanges import content
from kdissect.kafka import apis, schema
from kdissect.kafka.layout import layout
from kdissect.kafka.records import RecordData
from kdissect.model import Redacted
from tests.exchange_factory import exchange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.kafka.schema import Field
    from kdissect.model import Body

ZERO = "A" * 22
ORDERS_ID = "b3JkZXJzb3JkZXJzb3JkZQ"


def batch(count: int) -> bytes:
    header = pack(">iBIhiqqqhii", 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)
    return pack(">qi", 0, len(header)) + header


def message(attributes: int) -> bytes:
    entry = pack(">IbbiI", 0, 0, attributes, -1, 1) + b"v"
    return pack(">qi", 0, len(entry)) + entry


def record_data(*entries: bytes) -> RecordData:
    data = b"before" + b"".join(entries)
    return RecordData(data + b"behind", 6, len(data))


def produce(*fields: RecordData | None) -> Body:
    partitions = [{"index": number, "records": data} for number, data in enumerate(fields)]
    return {"acks": 1, "topic_data": [{"name": "orders", "partition_data": partitions}]}


# -- what brokers say about errors


def test_each_message_is_about_the_error_code_before_it() -> None:
    partitions = [
        {"index": 0, "error_code": 0, "error_message": "not about an error"},
        {
            "index": 1,
            "error_code": 87,
            "record_errors": [{"batch_index": 0, "batch_index_error_message": "no key"}],
            "error_message": "One or more records have been rejected",
        },
        {"index": 2, "error_code": 2, "record_errors": [], "error_message": "x" * 500},
        {"index": 3, "error_code": 2, "record_errors": [], "error_message": "second"},
        {"index": 4, "error_code": 3, "record_errors": [], "error_message": None},
    ]
    answer = {"responses": [{"name": "orders", "partition_responses": partitions}]}
    messages = content.error_messages(exchange("Produce", 9, {}, answer))
    assert messages == {"INVALID_RECORD": "no key", "CORRUPT_MESSAGE": "x" * 159 + "…"}


def test_messages_in_all_places() -> None:
    answer: Body = {"error_code": 15, "error_message": "loading"}
    assert content.error_messages(exchange("FindCoordinator", 3, {}, answer)) == {
        "COORDINATOR_NOT_AVAILABLE": "loading"
    }
    topics: Body = {"topics": [{"name": "a", "error_code": 44, "error_message": "policy"}]}
    assert content.error_messages(exchange("CreateTopics", 5, {}, topics)) == {"POLICY_VIOLATION": "policy"}
    partition = {
        "error_code": 0,
        "error_message": None,
        "acknowledge_error_code": 121,
        "acknowledge_error_message": "not acquired",
    }
    shared: Body = {"responses": [{"partitions": [partition]}]}
    assert content.error_messages(exchange("ShareFetch", 1, {}, shared)) == {
        "INVALID_RECORD_STATE": "not acquired"
    }


def test_no_message_of_sasl_and_none_that_was_redacted() -> None:
    answer: Body = {"error_code": 58, "error_message": "token abc is expired"}
    assert content.error_messages(exchange("SaslAuthenticate", 2, {}, answer)) == {}
    refused: Body = {"responses": [{"error_code": 40, "error_message": Redacted(9)}]}
    assert content.error_messages(exchange("AlterConfigs", 2, {}, refused)) == {}


# -- topics and partitions


def test_topics_are_distinct_and_in_wire_order_the_requests_first() -> None:
    sample = exchange(
        "Metadata",
        8,
        {"topics": [{"name": "b"}, {"name": "a"}, {"name": "b"}]},
        {"topics": [{"name": "c"}, {"name": "a"}]},
    )
    assert content.topics(sample) == ["b", "a", "c"]


def test_arrays_of_names() -> None:
    assert content.topics(exchange("DeleteTopics", 3, {"topic_names": ["b", "a"]})) == ["b", "a"]


def test_ids_are_named_where_the_name_was_learned() -> None:
    body = {"topics": [{"topic_id": ORDERS_ID, "partitions": []}, {"topic_id": "other", "partitions": []}]}
    sample = exchange("Fetch", 13, body, topic_ids={ORDERS_ID: "orders"})
    assert content.topics(sample) == ["orders", "other"]


def test_a_name_beside_an_id_stands_for_both() -> None:
    sample = exchange("Metadata", 12, {}, {"topics": [{"name": "orders", "topic_id": ORDERS_ID}]})
    assert content.topics(sample) == ["orders"]


@pytest.mark.parametrize(("name", "shown"), [(None, [ZERO]), ("orders", ["orders"])])
def test_the_zero_id_is_shown_only_where_no_name_is(name: str | None, shown: list[str]) -> None:
    sample = exchange("Metadata", 12, {"topics": [{"topic_id": ZERO, "name": name}]})
    assert content.topics(sample) == shown


def test_partitions_of_arrays_of_structs_and_of_numbers() -> None:
    sample = exchange(
        "Fetch",
        11,
        {
            "topics": [{"topic": "a", "partitions": [{"partition": 1}, {"partition": 0}]}],
            "forgotten_topics_data": [{"topic": "b", "partitions": [7]}],
        },
        {"responses": [{"topic": "a", "partitions": [{"partition_index": 0}, {"partition_index": 2}]}]},
    )
    assert content.partitions(sample) == [("a", 1), ("a", 0), ("b", 7), ("a", 2)]
    assert content.topics(sample) == ["a", "b"]


def test_partitions_beside_the_topic_and_in_an_array_of_numbers() -> None:
    flat = {"topic_name": "a", "partition_index": 3}
    sample = exchange("ControlledShutdown", 1, {}, {"remaining_partitions": [flat]})
    assert content.partitions(sample) == [("a", 3)]
    sample = exchange("OffsetFetch", 1, {"topics": [{"name": "a", "partition_indexes": [4, 5]}]})
    assert content.partitions(sample) == [("a", 4), ("a", 5)]


def test_partitions_carry_the_topics_name() -> None:
    body = {"topics": [{"topic_id": ORDERS_ID, "partitions": [{"partition": 1}]}]}
    sample = exchange("Fetch", 13, body, topic_ids={ORDERS_ID: "orders"})
    assert content.partitions(sample) == [("orders", 1)]


def test_tagged_structs_are_looked_into() -> None:
    body: Body = {"topics": [{"name": "a"}], "cursor": {"topic_name": "b", "partition_index": 2}}
    assert content.partitions(exchange("DescribeTopicPartitions", 0, body)) == [("b", 2)]
    body = {"topics": [{"name": "a"}], "cursor": None}
    assert content.topics(exchange("DescribeTopicPartitions", 0, body)) == ["a"]


def fields_below(fields: Sequence[Field], version: int) -> Iterator[tuple[Field, ...]]:
    for field in fields:
        if version in field.versions:
            yield (field,)
            for path in fields_below(field.fields, version):
                yield (field, *path)


def all_layouts() -> Iterator[tuple[str, int, Sequence[Field]]]:
    for api in apis.all_apis():
        for expected in (schema.request(api.key), schema.response(api.key)):
            assert expected is not None
            for version in range(expected.versions.first, expected.versions.last + 1):
                yield expected.name, version, layout(expected, version).fields


def test_no_struct_names_two_topics() -> None:
    for name, version, fields in all_layouts():
        structs = [fields, *(path[-1].fields for path in fields_below(fields, version) if path[-1].fields)]
        for struct in structs:
            topics = [f.type for f in struct if version in f.versions and f.role == "topic" and not f.array]
            assert len(topics) == len(set(topics)), (name, version)


def test_record_data_is_in_four_messages_and_at_the_end_of_one_path() -> None:
    result = {}
    for name, version, fields in all_layouts():
        paths = [path for path in fields_below(fields, version) if path[-1].type == "records"]
        if paths:
            result[name] = [".".join(field.name for field in path) for path in paths]
    assert result == {
        "ProduceRequest": ["topic_data.partition_data.records"],
        "FetchResponse": ["responses.partitions.records"],
        "FetchSnapshotResponse": ["topics.partitions.unaligned_records"],
        "ShareFetchResponse": ["responses.partitions.records"],
    }


# -- errors


def test_errors_are_distinct_names_in_wire_order_without_none() -> None:
    partitions = [{"partition_index": n, "error_code": code} for n, code in enumerate((0, 6, 3, 6))]
    sample = exchange(
        "Fetch", 11, {}, {"error_code": 70, "responses": [{"topic": "a", "partitions": partitions}]}
    )
    assert content.errors(sample) == [
        "FETCH_SESSION_ID_NOT_FOUND",
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]


def test_no_error_no_response_unknown_error() -> None:
    assert content.errors(exchange("Heartbeat", 4, {}, {"error_code": 0})) == []
    assert content.errors(exchange("Heartbeat", 4, {})) == []
    assert content.errors(exchange("Heartbeat", 4, {}, {"error_code": -1})) == ["UNKNOWN_SERVER_ERROR"]
    assert content.errors(exchange("Heartbeat", 4, {}, {"error_code": 9999})) == ["UNKNOWN_ERROR_9999"]


# -- groups and transactions


@pytest.mark.parametrize(
    ("api", "version", "request_", "groups"),
    [
        ("Heartbeat", 4, {"group_id": "g"}, ["g"]),
        ("Heartbeat", 4, {"group_id": ""}, []),
        ("DescribeGroups", 5, {"groups": ["a", "b"]}, ["a", "b"]),
        ("OffsetFetch", 8, {"groups": [{"group_id": "a"}, {"group_id": "b"}]}, ["a", "b"]),
        ("ConsumerGroupDescribe", 0, {"group_ids": ["a"]}, ["a"]),
        ("FindCoordinator", 0, {"key": "g"}, ["g"]),
        ("FindCoordinator", 3, {"key": "g", "key_type": 0}, ["g"]),
        ("FindCoordinator", 3, {"key": "t", "key_type": 1}, []),
        ("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["a", "b"]}, ["a", "b"]),
        ("Metadata", 9, {"topics": []}, []),
    ],
)
def test_groups(api: str, version: int, request_: Body, groups: list[str]) -> None:
    sample = exchange(api, version, request_)
    assert content.groups(sample) == groups
    assert content.group_id(sample) == (groups[0] if groups else None)


@pytest.mark.parametrize(
    ("api", "version", "request_", "names"),
    [
        ("InitProducerId", 4, {"transactional_id": "t"}, ["t"]),
        ("InitProducerId", 4, {"transactional_id": None}, []),
        ("Produce", 9, {"transactional_id": "t", "acks": -1, "topic_data": []}, ["t"]),
        ("FindCoordinator", 2, {"key": "t", "key_type": 1}, ["t"]),
        ("FindCoordinator", 2, {"key": "g", "key_type": 0}, []),
        ("DescribeTransactions", 0, {"transactional_ids": ["a", "b"]}, ["a", "b"]),
        ("AddPartitionsToTxn", 4, {"transactions": [{"transactional_id": "t"}]}, ["t"]),
    ],
)
def test_transactional_ids(api: str, version: int, request_: Body, names: list[str]) -> None:
    sample = exchange(api, version, request_)
    assert content.transactional_ids(sample) == names
    assert content.transactional_id(sample) == (names[0] if names else None)


def test_groups_in_a_response_are_not_the_requests() -> None:
    assert content.group_id(exchange("ListGroups", 4, {}, {"groups": [{"group_id": "g"}]})) is None


def test_throttle_time() -> None:
    assert content.throttle_time_ms(exchange("Heartbeat", 4, {}, {"throttle_time_ms": 25})) == 25
    assert content.throttle_time_ms(exchange("Heartbeat", 0, {}, {"error_code": 0})) is None
    assert content.throttle_time_ms(exchange("Heartbeat", 4, {})) is None


# -- records


def test_records_of_a_request() -> None:
    sample = exchange("Produce", 9, produce(record_data(batch(3)), record_data(batch(2), batch(1))))
    assert (content.records(sample), content.records_bytes(sample)) == (6, 3 * 61)


def test_records_of_a_response() -> None:
    partitions = [{"records": record_data(batch(3))}, {"records": None}, {"records": record_data()}]
    sample = exchange("Fetch", 11, {}, {"responses": [{"partitions": partitions}]})
    assert (content.records(sample), content.records_bytes(sample)) == (3, 61)


def test_no_record_where_there_could_be_some_is_zero() -> None:
    sample = exchange("Fetch", 11, {}, {"responses": []})
    assert (content.records(sample), content.records_bytes(sample)) == (0, 0)


def test_records_are_absent_where_none_could_be() -> None:
    for sample in (exchange("Heartbeat", 4, {}, {}), exchange("Fetch", 11, {}), exchange(None, 3)):
        assert (content.records(sample), content.records_bytes(sample)) == (None, None)


def test_message_sets_count_unless_they_are_compressed() -> None:
    plain, gzip = message(0), message(1)
    sample = exchange("Produce", 0, produce(record_data(plain, plain)))
    assert (content.records(sample), content.records_bytes(sample)) == (2, 2 * len(plain))
    sample = exchange("Produce", 0, produce(record_data(plain), record_data(gzip)))
    assert (content.records(sample), content.records_bytes(sample)) == (None, 2 * len(plain))


# -- bodies that are not whole, or not laid out by the newest schema


@pytest.mark.parametrize("request_", [{}, {"topics": None}, {"topics": [{}]}, {"topics": [{"topic": "a"}]}])
def test_partial_bodies(request_: Body) -> None:
    sample = exchange("Fetch", 11, request_, {"responses": [{"partitions": [{}]}]})
    assert content.topics(sample) in ([], ["a"])
    assert content.partitions(sample) == []
    assert content.errors(sample) == []
    assert content.records(sample) == 0


def test_bodies_without_layout_say_nothing() -> None:
    sample = exchange(None, 3, {"_undecoded": b"xyz"}, {"_undecoded": b"xyz"}, api_key=200, api_version=3)
    assert (content.topics(sample), content.partitions(sample), content.errors(sample)) == ([], [], [])
    assert (content.group_id(sample), content.transactional_id(sample), content.records(sample)) == (
        None,
        None,
        None,
    )


def test_drafts_have_their_own_fields() -> None:
    expected = schema.request(apis.find("ConsumerGroupHeartbeat").key)
    assert expected is not None
    assert expected.drafts
    sample = exchange(
        "ConsumerGroupHeartbeat", 0, {"group_id": "g", "subscribed_topic_names": ["a"]}, draft=0
    )
    assert content.group_id(sample) == "g"
    assert content.topics(sample) == ["a"]
