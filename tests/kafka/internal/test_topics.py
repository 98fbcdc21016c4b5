from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from kdissect.kafka import schema, secrets
from kdissect.kafka.internal.topics import (
    CLUSTER_METADATA,
    CLUSTER_METADATA_ID,
    Payload,
    is_internal,
    open_record,
)
from kdissect.model import Embedded, Redacted
from kdissect.tables.values import json_bytes
from tests.attack.mutation import mutated
from tests.kafka.encoder import fill
from tests.kafka.internal.framed import encoded, every_case, framed, framing_of, prefix, shown
from tests.kafka.random_bodies import Case

TOPICS = {
    "group_coordinator": "__consumer_offsets",
    "txn_coordinator": "__transaction_state",
    "share_coordinator": "__share_group_state",
    "metadata_record": CLUSTER_METADATA,
    "remote_log_metadata": "__remote_log_metadata",
}
CASES = [(family, case) for family, case in every_case() if family in TOPICS]
SECRET = b"hunter2"


def record(
    family: str, message_name: str, version: int = 0, /, draft: int | None = None, **values: Any
) -> bytes:
    """Bytes of a record's key or value, completed with natural defaults."""
    message = schema.embedded(message_name)
    case = Case(message, version, None if draft is None else message.drafts[draft])
    body = values if draft is not None else fill(message, version, values)
    return prefix(case, framing_of(family, case)) + encoded(case, body)


def decoded(payload: Payload) -> Any:
    assert isinstance(payload, Embedded)
    return shown(payload.decoded)


@pytest.mark.parametrize(("family", "case"), CASES, ids=[str(case.layout) for _, case in CASES])
def test_every_record_of_every_internal_topic(family: str, case: Case) -> None:
    sample = framed(case, framing_of(family, case), case.random("topics"))
    topic = TOPICS[family]
    if sample.framing == "type16":
        key, value = open_record(topic, sample.data, None, show_secrets=True)
        assert key == Embedded(sample.data, key.decoded if isinstance(key, Embedded) else {})
        assert decoded(key) == sample.body
        assert value is None
        return
    raw_key = None if sample.framing == "frame" else pack(">h", case.message.api_key)
    _, value = open_record(topic, raw_key, sample.data, show_secrets=True)
    assert isinstance(value, Embedded)
    assert value.data == sample.data
    assert value.decoded["_message"] == case.message.name
    assert decoded(value) == sample.body


@pytest.mark.parametrize(("family", "case"), CASES, ids=[str(case.layout) for _, case in CASES])
def test_records_with_credentials_show_neither_them_nor_their_bytes(family: str, case: Case) -> None:
    sample = framed(case, framing_of(family, case), case.random("secrets"))
    raw_key = pack(">h", case.message.api_key) if sample.framing == "v16" else None
    if sample.framing == "type16":
        return
    _, value = open_record(TOPICS[family], raw_key, sample.data)
    assert isinstance(value, Embedded)
    leads = secrets.carries_secrets(case.message)
    assert isinstance(value.data, Redacted) == leads
    json_bytes(value)


def test_an_offset_commit() -> None:
    key = record("group_coordinator", "OffsetCommitKey", group="readers", topic="orders", partition=2)
    value = record("group_coordinator", "OffsetCommitValue", 3, offset=17, leader_epoch=4, metadata="")
    shown_key, shown_value = open_record("__consumer_offsets", key, value)
    assert decoded(shown_key) == {"group": "readers", "topic": "orders", "partition": 2}
    assert decoded(shown_value) == {
        "offset": 17,
        "leader_epoch": 4,
        "metadata": "",
        "commit_timestamp": 0,
    }


def test_a_legacy_key_with_a_newer_value() -> None:
    key = record("group_coordinator", "LegacyOffsetCommitKey", group="g", topic="t", partition=0)
    value = record("group_coordinator", "OffsetCommitValue", 1, offset=5, expire_timestamp=9)
    _, shown_value = open_record("__consumer_offsets", key, value)
    assert decoded(shown_value)["expire_timestamp"] == 9


def test_a_group_with_what_its_members_sent() -> None:
    assigned = {"assigned_partitions": [{"topic": "orders", "partitions": [0, 1]}], "user_data": None}
    assignment = record("consumer_protocol", "ConsumerProtocolAssignment", 1, **assigned)
    subscription = record("consumer_protocol", "ConsumerProtocolSubscription", 1, topics=["orders"])
    member = {"member_id": "m", "subscription": subscription, "assignment": assignment}
    group = {"protocol_type": "consumer", "protocol": "range", "members": [member]}
    value = record("group_coordinator", "GroupMetadataValue", 3, **group)
    key = record("group_coordinator", "GroupMetadataKey", group="readers")
    (result,) = decoded(open_record("__consumer_offsets", key, value)[1])["members"]
    assert decoded(result["assignment"]) == assigned
    assert decoded(result["subscription"])["topics"] == ["orders"]


def test_a_tombstone_stays_null() -> None:
    key = record("txn_coordinator", "TransactionLogKey", transactional_id="payments")
    shown_key, value = open_record("__transaction_state", key, None)
    assert decoded(shown_key) == {"transactional_id": "payments"}
    assert value is None
    assert open_record(CLUSTER_METADATA, None, None) == (None, None)


@pytest.mark.parametrize("topic", ["orders", None, "__consumer_offsets_old"])
def test_records_of_other_topics_stay_as_they_are(topic: str | None) -> None:
    assert not is_internal(topic)
    assert open_record(topic, b"\0\1\0\0", b"\0\0") == (b"\0\1\0\0", b"\0\0")


@pytest.mark.parametrize("topic", list(TOPICS.values()))
def test_what_is_not_understood_stays_as_it_is_or_is_redacted(topic: str) -> None:
    key, value = b"\x7f\x00what", b"\x09\x09\x09" + SECRET
    assert is_internal(topic)
    result = open_record(topic, key, value)
    if topic == CLUSTER_METADATA:
        assert result == (Redacted(len(key)), Redacted(len(value)))
        result = open_record(topic, key, value, show_secrets=True)
    assert result == (key, value)


def secretive() -> list[bytes]:
    scram = {"salt": SECRET, "stored_key": SECRET, "server_key": SECRET, "name": "alice"}
    old = {"name": "alice", "credential_infos": [
        {"mechanism": 1, "salt": SECRET, "salted_password": SECRET, "iterations": 4096}
    ]}  # fmt: skip
    family = "metadata_record"
    return [
        record(family, "UserScramCredentialRecord", **scram),
        *(record(family, "UserScramCredentialRecord", draft=draft, **old) for draft in (0, 1)),
        record(family, "ConfigRecord", name="ssl.keystore.password", value=SECRET.decode()),
        record(family, "DelegationTokenRecord", owner="User:bob", token_id=SECRET.decode()),
    ]


@pytest.mark.parametrize("topic", [CLUSTER_METADATA, CLUSTER_METADATA_ID])
@pytest.mark.parametrize("value", secretive(), ids=range(len(secretive())))
def test_credentials_of_the_cluster_are_redacted_unless_requested(topic: str, value: bytes) -> None:
    _, shown_value = open_record(topic, None, value)
    assert isinstance(shown_value, Embedded)
    assert shown_value.data == Redacted(len(value))
    assert b"hunter2" not in json_bytes(shown_value)
    _, requested = open_record(topic, None, value, show_secrets=True)
    assert isinstance(requested, Embedded)
    assert requested.data == value
    for damaged in (value[:-1], value + b"\0", value[:4], value[:2] + b"\7" + value[3:]):
        left = open_record(topic, None, damaged)[1]
        assert isinstance(left, Redacted) or (isinstance(left, Embedded) and isinstance(left.data, Redacted))
        assert b"hunter2" not in json_bytes(left)


def test_harmless_configs_are_shown() -> None:
    value = record("metadata_record", "ConfigRecord", resource_type=2, name="retention.ms", value="1000")
    _, shown_value = open_record(CLUSTER_METADATA, None, value)
    assert decoded(shown_value)["value"] == "1000"


def test_bytes_behind_a_value_with_credentials_are_redacted_too() -> None:
    key = record("group_coordinator", "StreamsGroupTopologyKey", group_id="app")
    value = record("group_coordinator", "StreamsGroupTopologyValue", epoch=1, subtopologies=[])
    _, shown_value = open_record("__consumer_offsets", key, value + SECRET)
    assert decoded(shown_value)["_trailing"] == Redacted(len(SECRET))
    damaged = value[:-2] + SECRET
    assert open_record("__consumer_offsets", key, damaged)[1] == Redacted(len(damaged))


def test_nothing_raises_on_damaged_records() -> None:
    sample = [framed(case, framing_of(family, case), case.random("damage")) for family, case in CASES]
    random = CASES[0][1].random("mutations")
    for number in range(4000):
        piece = sample[number % len(sample)]
        damaged = mutated(piece.data, random, 0)
        for topic in TOPICS.values():
            shown_key, _ = open_record(topic, damaged, damaged)
            json_bytes(shown_key)
            json_bytes(open_record(topic, pack(">h", random.randrange(25)), damaged)[1])
