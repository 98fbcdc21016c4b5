"""Bytes that do not fit their layout become anomalies."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from kio.index import load_entity_schema
from kio.serial import entity_reader
from kio.serial.errors import UnexpectedNull
from kio.static.constants import EntityType

from kdissect.capture.reader import open_capture
from kdissect.kafka.bodies import (
    DecodedBody,
    decode_exchange,
    decode_request,
    decode_response,
    fits_request,
    fits_response,
)
from kdissect.kafka.headers import CORRELATION_ID_BYTES, read_request_header
from kdissect.kafka.primitives import DecodeBudget
from kdissect.model import Embedded, Redacted
from kdissect.pipeline import dissect
from tests.exchange_factory import exchange
from tests.frames import (
    API_VERSIONS,
    FETCH,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    frame,
    request_payload,
    response_payload,
)

ENVELOPE, CREATE_TOPICS, CONSUMER_GROUP_HEARTBEAT = 58, 19, 68


def kinds(decoded: DecodedBody) -> list[str]:
    return [anomaly.kind for anomaly in decoded.anomalies]


def test_a_body_that_fits_has_no_anomaly() -> None:
    decoded = decode_request(request_payload(HEARTBEAT, 4, {"group_id": "g"}), HEARTBEAT)
    assert decoded.value["group_id"] == "g"
    assert decoded.layout is not None
    assert (decoded.layout.message.name, decoded.layout.version) == ("HeartbeatRequest", 4)
    assert decoded.anomalies == []


def test_bytes_behind_a_complete_body_are_kept_and_reported() -> None:
    # librdkafka 2.16 sends three bytes too many after Metadata v12
    decoded = decode_request(request_payload(METADATA, 12) + b"\0\0\0", METADATA)
    assert decoded.value["_trailing"] == b"\0\0\0"
    assert decoded.anomalies[0].detail == "3 bytes after the complete body"
    assert kinds(decoded) == ["trailing_bytes"]


def test_a_body_that_ends_early_shows_the_fields_that_are_there() -> None:
    payload = response_payload(FETCH, 11, {"throttle_time_ms": 7, "error_code": 35})
    decoded = decode_response(payload[:10], FETCH, 11)
    assert decoded.value == {"throttle_time_ms": 7, "error_code": 35}
    assert decoded.anomalies[0].where == "response.session_id"
    assert kinds(decoded) == ["truncated_body"]


def test_a_lying_length_is_reported_with_its_position() -> None:
    payload = bytearray(request_payload(HEARTBEAT, 3, {"group_id": "abcdef", "member_id": "m"}))
    payload[payload.index(b"abcdef") - 2 : payload.index(b"abcdef")] = b"\x80\x00"
    decoded = decode_request(bytes(payload), HEARTBEAT)
    assert kinds(decoded) == ["malformed_body"]
    assert decoded.anomalies[0].where == "request.group_id"
    assert "_undecoded" in decoded.value


# Heartbeat (group_id, generation_id, member_id, group_instance_id), OffsetFetch (group_id, topics), and
# Metadata (topics): in version 3 and 1 lengths are fixed, in the others they are varints. -1 or 0 is null.
HEADERS = {
    3: bytes.fromhex("000c 0003 00000001 ffff"),
    4: bytes.fromhex("000c 0004 00000001 ffff 00"),
    1: bytes.fromhex("0009 0001 00000001 ffff"),
    6: bytes.fromhex("0009 0006 00000001 ffff 00"),
}


@pytest.mark.parametrize(
    ("version", "body", "fields"),
    [
        (3, "ffff 00000007 0001 6d ffff", ["group_id"]),  # group_instance_id can be null
        (4, "00 00000007 00 00 00", ["group_id", "member_id"]),
        (1, "0001 67 ffffffff", ["topics"]),
        (1, "0001 67 00000002 ffff 00000000 ffff ffffffff", ["topics.name", "topics.partition_indexes"]),
        (6, "02 67 02 00 01 00 00", ["topics.name"]),
    ],
)
def test_a_null_where_none_can_be_is_shown_and_reported(version: int, body: str, fields: list[str]) -> None:
    payload = HEADERS[version] + bytes.fromhex(body)
    decoded = decode_request(payload, payload[1])
    assert kinds(decoded) == ["unexpected_null"] * len(fields)
    assert [anomaly.where for anomaly in decoded.anomalies] == [f"request.{field}" for field in fields]
    assert not {"_trailing", "_undecoded"} & decoded.value.keys()
    assert fits_request(payload)  # an odd client is still a client
    example = exchange(request=None)
    example.api_key, example.api_version, example.request_frame = payload[1], version, frame(payload)
    example.request_header = read_request_header(payload)
    decode_exchange(example)
    assert (example.request, example.anomalies) == (decoded.value, decoded.anomalies)


def test_a_null_that_is_legal_is_not_reported() -> None:
    payload = HEADERS[6] + bytes.fromhex("02 67 00 00")  # all topics
    assert decode_request(payload, 9).anomalies == []
    budget = DecodeBudget()
    decode_request(HEADERS[4] + bytes.fromhex("00 00000007 00 00 00"), 12, budget=budget)
    assert decode_request(payload, 9, budget=budget).anomalies == []


def test_a_null_before_the_end_of_a_cut_body_is_reported() -> None:
    decoded = decode_request(HEADERS[4] + bytes.fromhex("00 0000"), 12)
    assert kinds(decoded) == ["unexpected_null", "truncated_body"]


def test_what_a_broker_sends_as_null_is_invalid_for_kio() -> None:
    """librdkafka's mock broker sends errors of SyncGroup with a null assignment."""
    with open_capture("samples/mock-kafka-python.pcap") as capture:
        result = [each for each in dissect(capture) if each.anomalies and each.api == "SyncGroup"]
    assert [each.anomalies[0][:2] for each in result] == [("unexpected_null", "response.assignment")] * 3
    response = load_entity_schema("sync_group", 3, EntityType.response)
    for each in result:
        assert each.response_frame is not None
        with pytest.raises(UnexpectedNull):
            entity_reader(response)(each.response_frame.data, CORRELATION_ID_BYTES)


def test_an_unknown_api_or_version_is_shown_as_bytes() -> None:
    decoded = decode_request(b"\x00\x7f\x00\x03\x00\x00\x00\x09\x00\x01c\x00future", 127)
    assert (decoded.value, kinds(decoded)) == ({"_undecoded": b"future"}, ["unknown_api"])
    newer = bytearray(request_payload(HEARTBEAT, 4))
    newer[3] = 60
    assert kinds(decode_request(bytes(newer), HEARTBEAT)) == ["unknown_version"]


def test_api_versions_is_answered_in_version_0_by_a_broker_that_knows_no_better() -> None:
    answer = response_payload(
        API_VERSIONS, 0, {"error_code": 35, "api_keys": [{"api_key": 18, "max_version": 3}]}
    )
    decoded = decode_response(answer, API_VERSIONS, 4)
    assert decoded.value["api_keys"] == [{"api_key": 18, "min_version": 0, "max_version": 3}]
    assert kinds(decoded) == []
    assert decoded.layout is not None
    assert decoded.layout.version == 0
    empty = response_payload(API_VERSIONS, 0, {"error_code": 35})
    assert decode_response(empty, API_VERSIONS, 3).value == {"error_code": 35, "api_keys": []}


def test_a_draft_is_tried_when_the_final_layout_does_not_fit() -> None:
    from kdissect.kafka import schema
    from tests.kafka.encoder import encoder, fill

    message = schema.request(CONSUMER_GROUP_HEARTBEAT)
    assert message is not None
    (draft,) = [draft for draft in message.drafts if 0 in draft.versions]
    body = fill(message, 0, {"group_id": "g", "member_id": "m"}, draft)
    header = request_payload(CONSUMER_GROUP_HEARTBEAT, 0)[:8] + b"\x00\x01c\x00"
    decoded = decode_request(header + encoder(message, 0, draft)(body), CONSUMER_GROUP_HEARTBEAT)
    assert kinds(decoded) == ["draft_layout"]
    assert decoded.value["group_id"] == "g"


def envelope(
    api: int, version: int, forwarded: dict[str, Any], answered: dict[str, Any]
) -> tuple[DecodedBody, DecodedBody]:
    outer = request_payload(ENVELOPE, 0, {"request_data": request_payload(api, version, forwarded)})
    request = decode_request(outer, ENVELOPE)
    answer = response_payload(ENVELOPE, 0, {"response_data": response_payload(api, version, answered)})
    return request, decode_response(answer, ENVELOPE, 0, request=request.value)


def test_an_envelope_is_decoded_in_both_directions() -> None:
    request, response = envelope(HEARTBEAT, 4, {"group_id": "g"}, {"error_code": 27})
    inner = request.value["request_data"]
    assert isinstance(inner, Embedded)
    assert inner.decoded["header"]["request_api_key"] == HEARTBEAT
    assert inner.decoded["body"]["group_id"] == "g"
    assert isinstance(inner.data, bytes)
    answer = response.value["response_data"]
    assert isinstance(answer, Embedded)
    assert answer.decoded["body"]["error_code"] == 27


def test_an_envelope_with_a_credential_api_inside_redacts_its_bytes() -> None:
    configs = [{"name": "sasl.jaas.config", "value": "hunter2"}, {"name": "retention.ms", "value": "5"}]
    request, response = envelope(CREATE_TOPICS, 7, {"topics": [{"name": "t", "configs": configs}]}, {})
    inner = request.value["request_data"]
    assert isinstance(inner.data, Redacted)
    assert [config["value"] for config in inner.decoded["body"]["topics"][0]["configs"]] == [Redacted(7), "5"]
    assert isinstance(response.value["response_data"].data, Redacted)


def test_envelopes_inside_envelopes_are_not_decoded() -> None:
    payload = request_payload(HEARTBEAT, 4)
    for _ in range(300):
        payload = request_payload(ENVELOPE, 0, {"request_data": payload})
    assert isinstance(decode_request(payload, ENVELOPE).value["request_data"], Redacted)


def test_a_frame_that_was_cut_is_read_as_far_as_it_goes() -> None:
    body = {
        "acks": 1,
        "topic_data": [{"name": "orders", "partition_data": [{"index": 3, "records": bytes(500)}]}],
    }
    payload = request_payload(PRODUCE, 9, body)
    decoded = decode_request(payload[:80], PRODUCE, complete=False)
    assert decoded.value["acks"] == 1
    assert decoded.value["topic_data"][0]["name"] == "orders"
    assert decoded.value["topic_data"][0]["partition_data"][0]["index"] == 3
    assert kinds(decoded) == ["uncaptured_body"]


def test_fits_is_exact() -> None:
    payload = request_payload(HEARTBEAT, 4)
    assert fits_request(payload)
    assert not fits_request(payload + b"\0")
    assert not fits_request(payload[:-1])
    assert fits_request(payload[:-1], to_the_end=False)
    answer = response_payload(HEARTBEAT, 4)
    assert fits_response(answer, HEARTBEAT, 4)
    assert not fits_response(answer, HEARTBEAT, 99)


@pytest.mark.parametrize("seed", range(20))
def test_mutated_frames_become_anomalies_and_nothing_raises(seed: int) -> None:
    random = Random(seed)
    body = {"topics": [{"name": "orders", "topic_id": "5RzwtLHbTWqVAuyWxeBeRQ", "partitions": [{}, {}]}]}
    request, answer = request_payload(METADATA, 12), response_payload(METADATA, 12, body)
    for _ in range(100):
        for payload, decode in ((request, decode_request), (answer, decode_response)):
            mutated = bytearray(payload)
            for _ in range(random.randint(1, 4)):
                mutated[random.randrange(8 if decode is decode_request else 4, len(mutated))] = (
                    random.randrange(256)
                )
            cut = bytes(mutated[: random.randint(8, len(mutated))])
            arguments = (METADATA,) if decode is decode_request else (METADATA, 12)
            decoded = decode(cut, *arguments)  # type: ignore[operator]
            assert isinstance(decoded.value, dict)
            if len(cut) < len(payload):
                assert decoded.anomalies
