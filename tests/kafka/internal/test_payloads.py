from __future__ import annotations

from dataclasses import replace
from struct import pack
from typing import Any

import pytest

from kdissect.kafka import schema
from kdissect.kafka.internal.payloads import (
    Context,
    GroupProtocol,
    GroupProtocols,
    carries_payloads,
    decode_payload,
    open_body,
    open_payloads,
)
from kdissect.model import Anomaly, Body, Embedded, Exchange
from kdissect.tables.values import json_bytes
from kdissect.text.outline import BodyContext, outline
from tests.attack.mutation import mutated
from tests.exchange_factory import connection, exchange
from tests.kafka.encoder import fill
from tests.kafka.internal.framed import encoded, every_case, framed, framing_of, shown
from tests.kafka.random_bodies import Case, cases, random_body, rpc_messages

CONSUMER, CONNECT = GroupProtocol("consumer", "range"), GroupProtocol("connect", "sessioned")
STICKY, COOPERATIVE = GroupProtocol("consumer", "sticky"), GroupProtocol("consumer", "cooperative-sticky")
STREAMS = GroupProtocol("consumer", "stream")

SITES = {
    "ConsumerProtocolSubscription": ("subscription", CONSUMER),
    "ConsumerProtocolAssignment": ("assignment", CONSUMER),
    "ConnectWorkerMetadata": ("subscription", CONNECT),
    "ConnectAssignment": ("assignment", CONNECT),
    "StickyAssignorUserData": ("subscription_data", STICKY),
    "CooperativeStickyAssignorUserData": ("subscription_data", COOPERATIVE),
    "SubscriptionInfoData": ("subscription_data", STREAMS),
    "StreamsAssignmentInfo": ("assignment_data", STREAMS),
    "DefaultPrincipalData": ("DefaultPrincipalData", GroupProtocol()),
}
CASES = [(family, case) for family, case in every_case() if case.message.name in SITES]


def wire(message_name: str, version: int = 0, prefix: int | None = None, /, **values: Any) -> bytes:
    """An embedded message completed with natural defaults, behind an int16 version if there is one."""
    message = schema.embedded(message_name)
    body = encoded(Case(message, version, None), fill(message, version, values))
    return body if prefix is None else pack(">h", prefix) + body


def body_of(payload: object) -> Body:
    assert isinstance(payload, Embedded)
    return shown(payload.decoded)


ASSIGNED = [{"topic": "orders", "partitions": [0, 2]}]
SUBSCRIPTION = wire("ConsumerProtocolSubscription", 1, 1, topics=["orders"], user_data=None)
ASSIGNMENT = wire("ConsumerProtocolAssignment", 0, 0, assigned_partitions=ASSIGNED, user_data=None)


# --- one payload --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "case"), CASES, ids=[str(case.layout) for _, case in CASES])
def test_every_payload_where_it_belongs(family: str, case: Case) -> None:
    role, protocol = SITES[case.message.name]
    random = case.random("payloads")
    for _ in range(3):
        sample = framed(case, framing_of(family, case), random)
        result = decode_payload(role, sample.data, Context(protocol))
        assert isinstance(result, Embedded)
        assert result.data == sample.data
        assert body_of(result) == sample.body
        assert result.decoded["_message"] == case.message.name
        assert result.decoded["_version"] == case.version


def test_user_data_of_the_sticky_assignor_with_and_without_its_generation() -> None:
    old = wire("StickyAssignorUserData", 0, previous_assignment=ASSIGNED)
    new = wire("StickyAssignorUserData", 1, previous_assignment=ASSIGNED, generation=7)
    for protocol in (STICKY, COOPERATIVE):  # the latter with librdkafka
        for role in ("subscription_data", "assignment_data"):
            assert body_of(decode_payload(role, old, Context(protocol))) == {"previous_assignment": ASSIGNED}
            result = body_of(decode_payload(role, new, Context(protocol)))
            assert result == {"previous_assignment": ASSIGNED, "generation": 7}


def test_four_bytes_are_what_the_assignor_makes_of_them() -> None:
    assert body_of(decode_payload("subscription_data", bytes(4), Context(COOPERATIVE))) == {"generation": 0}
    result = body_of(decode_payload("subscription_data", bytes(4), Context(STICKY)))
    assert result == {"previous_assignment": []}


def test_payloads_nest() -> None:
    sticky = wire("StickyAssignorUserData", 1, previous_assignment=ASSIGNED, generation=3)
    data = wire("ConsumerProtocolSubscription", 3, 3, topics=["orders"], user_data=sticky)
    result = body_of(decode_payload("subscription", data, Context(STICKY)))
    assert body_of(result["user_data"])["generation"] == 3
    allocation = wire("ConnectAssignment", 2, 2, leader="w1", assignment=[], revoked=None)
    data = wire("ConnectWorkerMetadata", 2, 2, url="http://w1:8083/", allocation=allocation)
    result = body_of(decode_payload("subscription", data, Context(CONNECT)))
    assert body_of(result["allocation"])["leader"] == "w1"


def test_consumers_of_tomorrow_are_read_as_far_as_they_are_known() -> None:
    data = wire("ConsumerProtocolSubscription", 3, 12, topics=["orders"]) + b"new"
    result = decode_payload("subscription", data, Context(CONSUMER))
    assert isinstance(result, Embedded)
    assert result.decoded["_version"] == 12
    assert result.decoded["topics"] == ["orders"]
    assert result.decoded["_trailing"] == b"new"


@pytest.mark.parametrize(
    ("message", "version", "shown", "missing"),
    [
        ("ConsumerProtocolSubscription", 1, ["topics", "user_data"], "owned_partitions"),
        (
            "ConsumerProtocolSubscription",
            3,
            ["topics", "user_data"],
            "owned_partitions, generation_id, rack_id",
        ),
        ("ConsumerProtocolSubscription", 2, ["topics", "user_data", "owned_partitions"], "generation_id"),
        ("ConsumerProtocolSubscription", 0, ["topics"], "user_data"),
        ("ConsumerProtocolAssignment", 1, ["assigned_partitions"], "user_data"),
        ("ConnectWorkerMetadata", 1, ["url", "config_offset"], "allocation"),
    ],
)
def test_a_message_that_ends_early_is_shown_and_says_what_is_missing(
    message: str, version: int, shown: list[str], missing: str
) -> None:
    values: Body = {"topics": ["orders"], "assigned_partitions": ASSIGNED, "url": "http://w1:8083/"}
    values |= {"user_data": b"u", "owned_partitions": ASSIGNED, "config_offset": 5}
    known, body = schema.embedded(message), {name: values[name] for name in shown}
    beginning = replace(known, fields=tuple(field for field in known.fields if field.name in shown))
    data = pack(">h", version) + encoded(Case(beginning, version, None), body)
    role, protocol = SITES[message]
    assert body_of(decode_payload(role, data, Context(protocol))) == body
    assert decode_payload(role, data[:-1], Context(protocol)) is None  # ends inside of a field
    assert decode_payload(role, data, Context()) is None  # without its JoinGroup, it could be anything
    sync: Body = {"assignments": [{"assignment": data}]}
    join: Body = {"protocols": [{"metadata": data}]}
    api_key, request = (14, sync) if role == "assignment" else (11, join)
    layout = schema.request(api_key)
    assert layout is not None
    (anomaly,) = open_body(layout, request, Context(protocol), "request")
    assert anomaly.kind == "truncated_payload"
    assert anomaly.detail == f"{message} version {version} ends before {missing}"


def test_a_version_without_fields_is_no_message() -> None:
    assert decode_payload("subscription", pack(">h", 1), Context(CONSUMER)) is None


def test_without_a_protocol_only_an_exact_consumer_is_believed() -> None:
    assert body_of(decode_payload("assignment", ASSIGNMENT, Context()))["assigned_partitions"] == ASSIGNED
    assert decode_payload("assignment", ASSIGNMENT + b"\0", Context()) is None
    assert decode_payload("assignment", b"\0\x09" + ASSIGNMENT[2:], Context()) is None
    worker = wire("ConnectWorkerMetadata", 1, 1, url="http://w1:8083/")
    assert decode_payload("subscription", worker, Context()) is None


def test_other_protocols_and_assignors_keep_their_bytes() -> None:
    assert decode_payload("subscription", SUBSCRIPTION, Context(GroupProtocol("sr", "v0"))) is None
    sticky = wire("StickyAssignorUserData", 1, previous_assignment=ASSIGNED)
    assert decode_payload("subscription_data", sticky, Context(CONSUMER)) is None
    assert decode_payload("DefaultPrincipalData", b"my own principal", Context()) is None


# --- in bodies ----------------------------------------------------------------------------------------------


def join(version: int = 5, **more: Any) -> Exchange:
    protocols = [{"name": "range", "metadata": SUBSCRIPTION}]
    request = {"group_id": "readers", "protocol_type": "consumer", "protocols": protocols}
    members = [{"member_id": "m", "metadata": SUBSCRIPTION}]
    response = {"protocol_name": "range", "leader": "m", "member_id": "m", "members": members}
    return exchange("JoinGroup", version, request, response, **more)


def test_a_join_and_what_its_leader_receives() -> None:
    joined = join()
    assert open_payloads(joined) == []
    assert joined.request is not None
    assert joined.response is not None
    assert body_of(joined.request["protocols"][0]["metadata"])["topics"] == ["orders"]
    assert body_of(joined.response["members"][0]["metadata"])["topics"] == ["orders"]


def test_opening_twice_changes_nothing() -> None:
    joined = join()
    open_payloads(joined)
    before = json_bytes(joined.request)
    assert open_payloads(joined) == []
    assert json_bytes(joined.request) == before


def test_a_sync_group_knows_its_protocol_from_the_join() -> None:
    protocols = GroupProtocols()
    worker = wire("ConnectWorkerMetadata", 1, 1, url="http://w1:8083/")
    offered = [{"name": "compatible", "metadata": worker}]
    sent = {"group_id": "connect", "protocol_type": "connect", "protocols": offered}
    joined = exchange("JoinGroup", 5, sent, {"protocol_name": "compatible", "members": []})
    assert open_payloads(joined, protocols) == []
    assert joined.request is not None
    assert body_of(joined.request["protocols"][0]["metadata"])["url"] == "http://w1:8083/"

    assignment = wire("ConnectAssignment", 1, 1, leader="w1", assignment=[], revoked=None)

    def sync(**more: Any) -> Exchange:
        request = {"group_id": "connect", "assignments": [{"member_id": "w1", "assignment": assignment}]}
        return exchange("SyncGroup", 3, request, {"assignment": assignment}, **more)

    known, elsewhere = sync(), sync(connection=connection("other"))
    assert open_payloads(known, protocols) == []
    assert known.request is not None
    assert known.response is not None
    assert body_of(known.request["assignments"][0]["assignment"])["leader"] == "w1"
    assert body_of(known.response["assignment"])["leader"] == "w1"
    assert open_payloads(elsewhere, protocols) == []
    assert elsewhere.response == {"assignment": assignment}


def test_a_sync_group_of_version_5_says_it_itself() -> None:
    received = {"protocol_type": "consumer", "protocol_name": "range", "assignment": ASSIGNMENT + b"more"}
    synced = exchange("SyncGroup", 5, None, received)
    assert open_payloads(synced) == []
    assert synced.response is not None
    assert body_of(synced.response["assignment"])["_trailing"] == b"more"


def test_described_groups_are_each_their_own() -> None:
    def group(protocol_type: str, metadata: bytes) -> Body:
        member = {"member_id": "m", "member_metadata": metadata, "member_assignment": b""}
        return {"protocol_type": protocol_type, "protocol_data": "x", "members": [member]}

    worker = wire("ConnectWorkerMetadata", 0, 0, url="http://w1:8083/")
    groups = [group("consumer", SUBSCRIPTION), group("connect", worker), group("sr", b"{}"), group("", b"")]
    described = exchange("DescribeGroups", 5, {"groups": ["a"]}, {"groups": groups})
    assert open_payloads(described) == []
    metadata = [one["members"][0]["member_metadata"] for one in groups]
    assert [one.decoded["_message"] for one in metadata[:2]] == [
        "ConsumerProtocolSubscription",
        "ConnectWorkerMetadata",
    ]
    assert metadata[2:] == [b"{}", b""]


def test_the_principal_of_an_envelope() -> None:
    principal = wire("DefaultPrincipalData", 0, 0, type="User", name="alice", token_authenticated=False)
    request = {"request_data": b"", "request_principal": principal, "client_host_address": b"\x7f\0\0\1"}
    envelope = exchange("Envelope", 0, request, None)
    assert open_payloads(envelope) == []
    assert envelope.request is not None
    assert body_of(envelope.request["request_principal"])["name"] == "alice"


def test_what_cannot_be_what_it_should_is_an_anomaly() -> None:
    broken = join()
    assert broken.request is not None
    broken.request["protocols"][0]["metadata"] = SUBSCRIPTION[:5]
    assert open_payloads(broken) == [
        Anomaly(
            "malformed_payload",
            "request.protocols.metadata",
            "5 bytes are not a valid ConsumerProtocolSubscription",
        )
    ]
    assert broken.request["protocols"][0]["metadata"] == SUBSCRIPTION[:5]


def test_partial_bodies_are_welcome() -> None:
    assert open_payloads(exchange("JoinGroup", 5, {"group_id": "g"}, {"members": [{"member_id": "m"}]})) == []
    assert open_payloads(exchange("SyncGroup", 3, {}, {})) == []
    undecoded = exchange("JoinGroup", 5, {"_undecoded": b"x"}, None)
    undecoded.request_layout = None
    assert open_payloads(undecoded) == []


def test_which_messages_carry_payloads() -> None:
    named = {message.name for message in rpc_messages() if carries_payloads(message)}
    assert named == {
        "JoinGroupRequest",
        "JoinGroupResponse",
        "SyncGroupRequest",
        "SyncGroupResponse",
        "DescribeGroupsResponse",
        "EnvelopeRequest",
        "PushTelemetryRequest",
    }


# --- shown --------------------------------------------------------------------------------------------------


def test_sinks_show_what_is_inside() -> None:
    joined = join()
    open_payloads(joined)
    message = schema.request(11)
    assert message is not None
    assert joined.request is not None
    lines = list(outline(BodyContext(message, 5, {}), joined.request, message.fields))
    assert any(line.strip().startswith("topics: ") and '"orders"' in line for line in lines)
    assert b'"decoded":{"_message":"ConsumerProtocolSubscription","_version":1,' in json_bytes(joined.request)


# --- damage -------------------------------------------------------------------------------------------------


def test_nothing_raises_on_ten_thousand_damaged_payloads() -> None:
    random = CASES[0][1].random("mutations")
    sample = [framed(case, framing_of(family, case), random) for family, case in CASES]
    contexts = [
        (role, Context(protocol)) for role, protocol in {*SITES.values(), ("assignment", GroupProtocol())}
    ]
    opened = 0
    for number in range(10_000):
        piece = sample[number % len(sample)]
        role, protocol = SITES[piece.case.message.name]
        context = Context(protocol)
        if number % 4 == 0:
            role, context = random.choice(contexts)
        result = decode_payload(role, mutated(piece.data, random, 0), context)
        if result is not None:
            opened += 1
            json_bytes(result)
    assert opened > 1000


def test_nothing_raises_on_bodies_of_random_bytes() -> None:
    for case in cases([message for message in rpc_messages() if carries_payloads(message)]):
        fields = case.message.fields if case.draft is None else case.draft.fields
        random = case.random("bodies")
        for _ in range(5):
            body = random_body(case.layout, random)
            open_body(case.message, body, Context(CONSUMER), "request")
            json_bytes(body)
            list(outline(BodyContext(case.message, case.version, {}), body, fields))
