from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.errors import SchemaError
from kdissect.kafka import apis, schema
from kdissect.kafka.records import RecordData
from kdissect.kafka.walker import walk
from kdissect.model import Body, Redacted
from kdissect.text.about import about
from kdissect.text.about_template import Call, Path, Scope, described_apis, parse, specialized, templates
from tests.exchange_factory import connection, exchange, frame
from tests.kafka.encoder import encoder
from tests.kafka.random_bodies import Case, random_body

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = RecordData(
    bytes.fromhex("0000000000000007 0000003d 00000000 02 00000000 0000 00000000")
    + bytes(8 + 8)
    + b"\xff" * 14
    + (3).to_bytes(4, "big")
    + bytes(12),
    0,
    73,
)


def topics(*partitions: dict[str, Any], name: str = "orders", key: str = "partitions") -> list[Body]:
    return [{"name": name, key: list(partitions)}]


CASES: list[tuple[str, int, Body, Body | None, str]] = [
    (
        "Produce",
        9,
        {"acks": -1, "topic_data": topics({"index": 0, "records": BATCH}, key="partition_data")},
        {"responses": topics({"index": 0, "error_code": 0, "base_offset": 7}, key="partition_responses")},
        "orders-0, 3 records, 73 B -> offset 7",
    ),
    (
        "Produce",
        9,
        {
            "transactional_id": "t-1",
            "acks": 1,
            "topic_data": topics(*({"index": n, "records": BATCH} for n in range(5)), key="partition_data"),
        },
        None,
        "orders (5 partitions), 15 records, 365 B, transaction t-1, acks=1",
    ),
    (
        "Fetch",
        4,
        {
            "replica_id": -1,
            "topics": [{"topic": "orders", "partitions": [{"partition": 0, "fetch_offset": 7}]}],
        },
        {"responses": [{"topic": "orders", "partitions": [{"partition_index": 0, "records": BATCH}]}]},
        "orders-0 from 7 -> 3 records, 73 B",
    ),
    (
        "Fetch",
        7,
        {"replica_id": 2, "session_id": 99, "topics": []},
        {"responses": [{"topic": "orders", "partitions": [{"partition_index": 3, "records": BATCH}]}]},
        "replica 2 session 99 -> orders-3, 3 records, 73 B",
    ),
    (
        "Fetch",
        7,
        {"replica_id": -1, "session_id": 99, "topics": []},
        {"responses": []},
        "session 99 -> no records",
    ),
    ("ListOffsets", 1, {"topics": topics({"partition_index": 0, "timestamp": -1})}, None, "orders-0 latest"),
    (
        "ListOffsets",
        1,
        {"topics": topics({"partition_index": 0, "timestamp": 1_790_000_000_000})},
        {"topics": topics({"partition_index": 0, "offset": 55})},
        "orders-0 at 2026-09-21T14:13:20.000Z -> offset 55",
    ),
    ("Metadata", 0, {"topics": []}, None, "all topics"),
    ("Metadata", 9, {"topics": None}, {"brokers": [{}], "topics": []}, "all topics -> 1 broker"),
    (
        "Metadata",
        9,
        {"topics": [{"name": "orders"}]},
        {"brokers": [{}, {}], "topics": [{"name": "orders", "partitions": [{}, {}, {}]}]},
        "orders -> 2 brokers, 1 topic, 3 partitions",
    ),
    (
        "ApiVersions",
        3,
        {"client_software_name": "librdkafka", "client_software_version": "2.16.0"},
        {"api_keys": [{}, {}]},
        "librdkafka 2.16.0 -> 2 APIs",
    ),
    (
        "CreateTopics",
        5,
        {
            "topics": [{"name": "orders", "num_partitions": 3, "replication_factor": -1}],
            "validate_only": True,
        },
        None,
        "orders, 3 partitions, validate only",
    ),
    ("DeleteTopics", 4, {"topic_names": ["a", "b", "c", "d"]}, None, "a, b, c and 1 more"),
    ("CreatePartitions", 3, {"topics": [{"name": "orders", "count": 6}]}, None, "orders to 6 partitions"),
    (
        "StopReplica",
        3,
        {
            "controller_id": 1,
            "topic_states": [{"topic_name": "o", "partition_states": [{"partition_index": 4}]}],
        },
        None,
        "o-4, controller 1",
    ),
    (
        "IncrementalAlterConfigs",
        1,
        {
            "resources": [
                {"resource_type": 2, "resource_name": "orders", "configs": [{"name": "retention.ms"}]}
            ]
        },
        None,
        "topic orders (retention.ms)",
    ),
    (
        "CreateAcls",
        3,
        {
            "creations": [
                {
                    "resource_type": 3,
                    "resource_name": "g",
                    "principal": "User:a",
                    "operation": 3,
                    "permission_type": 3,
                }
            ]
        },
        None,
        "allow User:a read on group g",
    ),
    (
        "FindCoordinator",
        2,
        {"key": "shipping", "key_type": 0},
        {"node_id": 1, "host": "kafka-1", "port": 9092},
        "group shipping -> broker 1 at kafka-1:9092",
    ),
    (
        "FindCoordinator",
        4,
        {"key_type": 1, "coordinator_keys": ["t-1", "t-2"]},
        {"coordinators": [{}, {}]},
        "transactions t-1, t-2 -> 2 coordinators",
    ),
    (
        "JoinGroup",
        5,
        {"group_id": "shipping", "member_id": "", "protocols": [{"name": "range"}]},
        {"generation_id": 4, "member_id": "m-1", "members": [{}, {}]},
        "group shipping, range -> generation 4, leader of 2 members, member m-1",
    ),
    (
        "ConsumerGroupHeartbeat",
        0,
        {"group_id": "g", "member_epoch": 0},
        {"error_code": 42, "error_message": "MemberId can't be empty.", "member_epoch": 0},
        'group g, joins -> epoch 0, "MemberId can\'t be empty."',
    ),
    (
        "DeleteTopics",
        5,
        {"topic_names": ["a", "b", "c"]},
        {
            "responses": [
                {"name": "a", "error_code": 29, "error_message": "denied"},
                {"name": "b", "error_code": 73, "error_message": "disabled"},
                {"name": "c", "error_code": 29, "error_message": "denied too"},
            ]
        },
        'a, b, c -> "denied" and 1 more message',
    ),
    (
        "Fetch",
        13,
        {
            "session_id": 7,
            "topics": [],
            "forgotten_topics_data": [{"topic_id": "A" * 22, "partitions": [0, 3]}],
        },
        {"responses": []},
        f"session 7, forget <id {'A' * 22}>-0,3 -> no records",
    ),
    (
        "SyncGroup",
        3,
        {"group_id": "g", "generation_id": 4, "member_id": "m-1", "assignments": [{}]},
        {"assignment": bytes(26)},
        "group g, generation 4, 1 assignment, member m-1 -> assignment of 26 B",
    ),
    (
        "Heartbeat",
        3,
        {"group_id": "g", "generation_id": 4, "member_id": "m-1"},
        {},
        "group g, generation 4, member m-1",
    ),
    ("LeaveGroup", 3, {"group_id": "g", "members": [{"member_id": "m-1"}]}, {}, "group g, member m-1"),
    (
        "OffsetCommit",
        8,
        {"group_id": "g", "topics": topics({"partition_index": 0, "committed_offset": 9})},
        {},
        "group g, orders-0, offset 9",
    ),
    (
        "OffsetFetch",
        5,
        {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]},
        {"topics": topics({"partition_index": 0, "committed_offset": -1})},
        "group g, orders-0 -> none committed",
    ),
    (
        "OffsetFetch",
        8,
        {"groups": [{"group_id": "g", "topics": None}]},
        {"groups": [{"group_id": "g", "topics": topics({"partition_index": 0, "committed_offset": 9})}]},
        "group g, all topics -> offset 9",
    ),
    (
        "ConsumerGroupHeartbeat",
        1,
        {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["orders"]},
        {
            "member_id": "m",
            "member_epoch": 3,
            "assignment": {"topic_partitions": [{"topic_id": "id", "partitions": [0, 1]}]},
        },
        "group g, joins, topic orders -> epoch 3, assigned <id id>-0,1, member m",
    ),
    (
        "InitProducerId",
        4,
        {"transactional_id": None, "producer_id": -1},
        {"producer_id": 4000, "producer_epoch": 0},
        "idempotence -> producer 4000 epoch 0",
    ),
    (
        "AddPartitionsToTxn",
        3,
        {
            "v3_and_below_transactional_id": "t",
            "v3_and_below_topics": [{"name": "orders", "partitions": [1]}],
        },
        None,
        "transaction t, orders-1",
    ),
    (
        "AddPartitionsToTxn",
        4,
        {"transactions": [{"transactional_id": "t", "topics": [{"name": "orders", "partitions": [1]}]}]},
        None,
        "transaction t, orders-1",
    ),
    (
        "EndTxn",
        3,
        {"transactional_id": "t", "producer_id": 4000, "producer_epoch": 1, "committed": True},
        {},
        "commit t, producer 4000 epoch 1",
    ),
    (
        "WriteTxnMarkers",
        1,
        {
            "markers": [
                {
                    "producer_id": 4000,
                    "producer_epoch": 1,
                    "transaction_result": False,
                    "topics": [{"name": "orders", "partition_indexes": [0]}],
                }
            ]
        },
        None,
        "abort producer 4000 epoch 1, orders-0",
    ),
    (
        "GetTelemetrySubscriptions",
        0,
        {"client_instance_id": "A" * 22},
        {"client_instance_id": "b" * 22, "subscription_id": 7, "push_interval_ms": 60_000},
        f"new client instance -> client instance {'b' * 22}, subscription 7, push every 60.00s",
    ),
    (
        "GetTelemetrySubscriptions",
        0,
        {"client_instance_id": "b" * 22},
        {"client_instance_id": "b" * 22, "subscription_id": 8, "push_interval_ms": 0},
        f"client instance {'b' * 22} -> subscription 8",
    ),
    ("GetTelemetrySubscriptions", 0, {}, None, ""),
    ("Produce", 9, {"acks": -1}, None, ""),
    (
        "SaslHandshake",
        1,
        {"mechanism": "PLAIN"},
        {"error_code": 33, "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]},
        "mechanism PLAIN -> offers SCRAM-SHA-256, SCRAM-SHA-512",
    ),
    (
        "SaslHandshake",
        1,
        {"mechanism": "PLAIN"},
        {"error_code": 0, "mechanisms": ["PLAIN"]},
        "mechanism PLAIN",
    ),
    ("DeleteGroups", 2, {"groups_names": ["a", "b"]}, {}, "groups a, b"),
    ("DescribeGroups", 5, {"groups": ["a"]}, {}, "group a"),
    ("ListGroups", 5, {"states_filter": ["Empty"], "types_filter": []}, {}, "states filter Empty"),
    ("DescribeLogDirs", 4, {"topics": [{"topic": "orders", "partitions": [1, 2]}]}, {}, "orders-1,2"),
    (
        "DescribeAcls",
        3,
        {"resource_type_filter": 2, "resource_name_filter": "orders", "operation": 3, "permission_type": 1},
        {},
        "any read on topic orders",
    ),
    (
        "AddOffsetsToTxn",
        0,
        {"transactional_id": "pay", "producer_id": 7, "producer_epoch": 0, "group_id": "g"},
        {},
        "transaction pay, producer 7 epoch 0, group g",
    ),
    # APIs without templates
    (
        "ControlledShutdown",
        2,
        {"broker_id": 3, "broker_epoch": 8, "want_fence": False},
        {},
        "broker 3, broker epoch 8",
    ),
    (
        "DescribeClientQuotas",
        1,
        {"components": [{"entity_type": "user"}], "strict": False},
        {},
        "user",
    ),
]


@pytest.mark.parametrize(
    ("api", "version", "request_body", "response_body", "text"), CASES, ids=[f"{s[0]} {s[4]}" for s in CASES]
)
def test_a_few_words(
    api: str, version: int, request_body: Body, response_body: Body | None, text: str
) -> None:
    assert about(exchange(api, version, request_body, response_body)) == text


def test_sasl_shows_sizes_and_names_only() -> None:
    tokens = exchange("SaslAuthenticate", 2, {"auth_bytes": Redacted(32)}, {"auth_bytes": b""})
    tokens.sasl_mechanism, tokens.principal = "PLAIN", "User:alice"
    assert about(tokens) == "PLAIN, 32 B -> principal User:alice"
    raw = exchange(
        None, request={"sasl_token": Redacted(32)}, sasl_mechanism="GSSAPI", request_frame=frame(32)
    )
    assert about(raw) == "GSSAPI, 32 B token"


def test_a_response_alone() -> None:
    orphan = exchange(None, response={"_undecoded": Redacted(20)}, response_size=20, correlation_id=7)
    orphan.connection = connection()
    assert about(orphan) == "response 7, 24 B, request not captured"


def test_an_orphan() -> None:
    """A response to acks=0 still has its API, and topics of its own."""
    answer = {"responses": topics({"index": 3, "base_offset": 7}, key="partition_responses")}
    assert about(exchange("Produce", 9, None, answer)) == "orders-3 -> offset 7"


def test_bytes_that_no_layout_describes() -> None:
    unknown = exchange("Fetch", 18, {"_undecoded": bytes(40)})
    assert about(unknown) == "40 B not decoded"
    unknown.api_key = 200
    assert about(unknown) == "40 B not decoded"


def test_templates_are_for_apis_that_exist() -> None:
    assert described_apis() <= {api.name for api in apis.all_apis()}


def test_every_field_in_a_template_exists_in_an_api_that_has_the_template() -> None:
    written: set[Path] = set()
    existing: set[Path] = set()
    for name in described_apis():
        both, key = templates(name), apis.find(name).key
        messages = schema.request(key), schema.response(key)
        assert both is not None
        assert messages[0] is not None
        request = Scope("", messages[0], messages[0].fields)
        for template, message in zip(both, messages, strict=True):
            assert message is not None
            scope = Scope("", message, message.fields, request=request)
            written |= set(_paths(template))
            existing |= set(_paths(specialized(template, scope)))
    assert existing == written


def _paths(node: Any) -> Iterator[Path]:
    if isinstance(node, Path):
        yield node
    elif isinstance(node, tuple):
        for each in node.arguments if isinstance(node, Call) else node:
            yield from _paths(each)


@pytest.mark.parametrize(
    "text", ["a {b", "a [b", "a } b", "a {b unless}", "a if b is", "{each a b}", "<no end"]
)
def test_a_mistake_in_a_template_is_reported(text: str) -> None:
    with pytest.raises(SchemaError, match=r"about\.txt: not a template"):
        parse(text)


@pytest.mark.parametrize("api", apis.all_apis(), ids=lambda api: api.name)
def test_no_body_is_too_unusual_or_too_short(api: apis.Api) -> None:
    """Whatever a body contains, and wherever it ends, the line is not long."""
    for version in range(api.versions.first, api.versions.last + 1):
        requests, responses = (
            _random_body(schema.request(api.key), version),
            _random_body(schema.response(api.key), version),
        )
        for request_body in (*requests, None):
            for response_body in (*responses, None):
                if request_body is not None or response_body is not None:
                    text = about(exchange(api.name, version, request_body, response_body, kind="answered"))
                    assert len(text) < 20_000


def _random_body(message: schema.Message | None, version: int) -> list[Body]:
    """Random bodies, and partial ones: the bytes are cut at two places."""
    assert message is not None
    case = Case(message, version, None)
    bodies = [random_body(case.layout, case.random(f"about {number}")) for number in range(3)]
    data = encoder(message, version)(bodies[0])
    cuts = [Random(version).randrange(len(data) + 1), len(data) // 2]
    return [*bodies, *(walk(message, version, data[:cut]).value for cut in cuts)]
