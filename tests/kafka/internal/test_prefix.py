from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

import pytest

from kdissect.kafka import schema
from kdissect.kafka.internal import payloads
from kdissect.kafka.internal.payloads import read, read_frame, read_key, read_self_versioned, read_versioned
from tests.kafka.internal.framed import Framed, encoded, every_case, framed, framing_of, shown
from tests.kafka.random_bodies import Case

if TYPE_CHECKING:
    from kdissect.model import Body

CASES = every_case()
IDS = [f"{case.layout}" for _, case in CASES]


def decode(sample: Framed, family: str, data: bytes) -> payloads.DecodedPayload | None:
    message, version = sample.case.message, sample.case.version
    match sample.framing:
        case "v16":
            return read_versioned(message, data)
        case "type16":
            return read_key(family, data)
        case "frame":
            return read_frame(family, data)
        case "none":
            return read(message, version, data)
    return read_self_versioned(message, data)


@pytest.mark.parametrize(("family", "case"), CASES, ids=IDS)
def test_every_embedded_message_is_read_behind_its_prefix(family: str, case: Case) -> None:
    random = case.random("prefix")
    for _ in range(3):
        sample = framed(case, framing_of(family, case), random)
        result = decode(sample, family, sample.data)
        assert result is not None
        assert shown(result.body) == sample.body
        assert result.body["_message"] == case.message.name
        assert result.body["_version"] == case.version
        assert ("_draft" in result.body) == (case.draft is not None)
        assert set(sample.body) <= {field.name for field in result.message.fields} | {"_tags"}
        declared = payloads.layout_of(result.body)
        assert declared is not None
        assert declared[0].fields == result.message.fields
        assert declared[1] == case.version


@pytest.mark.parametrize(("family", "case"), CASES, ids=IDS)
def test_half_a_message_is_not_taken_for_the_whole(family: str, case: Case) -> None:
    sample = framed(case, framing_of(family, case), case.random("half"))
    for end in range(0, len(sample.data), 1 + len(sample.data) // 20):
        result = decode(sample, family, sample.data[:end])
        # Without its tag buffer a message can be what a pre-release wrote.
        assert result is None or shown(result.body) != sample.body or "_draft" in result.body


@pytest.mark.parametrize(("family", "case"), CASES, ids=IDS)
def test_bytes_behind_a_message_are_kept_apart_from_it(family: str, case: Case) -> None:
    sample = framed(case, framing_of(family, case), case.random("behind"))
    result = decode(sample, family, sample.data + b"\xee\xee\xee")
    if sample.framing == "frame":
        assert result is None  # there a later version puts what is new into tags
    elif case.draft is None:
        assert result is not None
        assert shown(result.body) == sample.body | {"_trailing": b"\xee\xee\xee"}


def test_versions_beyond_the_newest_are_read_as_it_where_the_protocol_says_so() -> None:
    message = schema.embedded("ConsumerProtocolAssignment")
    body = {"assigned_partitions": [{"topic": "a", "partitions": [1, 2]}], "user_data": None}
    data = pack(">h", 9) + encoded(Case(message, 3, None), body) + b"more"
    result = read_versioned(message, data, newest=True)
    assert result is not None
    assert result.body == {
        "_message": "ConsumerProtocolAssignment",
        "_version": 9,
        **body,
        "_trailing": b"more",
    }
    assert payloads.layout_of(result.body) == (message, 3)
    assert read_versioned(message, data) is None
    assert read_versioned(message, data, newest=True, exact=True) is None


def test_a_negative_version_is_none() -> None:
    message = schema.embedded("ConsumerProtocolAssignment")
    assert read_versioned(message, b"\xff\xff" + bytes(8), newest=True) is None


@pytest.mark.parametrize(
    "data", [b"", b"\1", b"\1\2", b"\1\2\0", b"\2\2\0\1\0", b"\1\x60\0\1\0", b"\xff" * 6 + b"\0\0"]
)
def test_a_frame_that_is_none(data: bytes) -> None:
    assert read_frame("metadata_record", data) is None


def test_a_frame_of_2_8_has_version_0() -> None:
    result = read_frame("metadata_record", b"\0\x07\0" + pack(">iq", 3, 44))
    assert result is not None
    assert result.body == {
        "_message": "FenceBrokerRecord",
        "_version": 0,
        "_draft": "2.8",
        "id": 3,
        "epoch": 44,
    }


def test_a_leader_change_of_2_7_does_not_say_its_version() -> None:
    message = schema.embedded("LeaderChangeMessage")
    case = Case(message, 0, message.drafts[0])
    body = {"leader_id": 3001, "voters": [{"voter_id": 3001}, {"voter_id": 3002}]}
    result = read_self_versioned(message, encoded(case, body))
    assert result is not None
    assert shown(result.body) == body
    assert result.body["_draft"] == "2.7"


def test_a_key_of_a_type_that_is_not_known_is_none() -> None:
    assert read_key("group_coordinator", b"\0\x12\0\0") is None  # 18 was never shipped
    assert payloads.record_type(b"\0") == -1


@pytest.mark.parametrize("body", [{}, {"header": {}, "body": {}}, {"_message": "MetricsData"}])
def test_other_bodies_say_no_layout(body: Body) -> None:
    assert payloads.layout_of(body) is None
