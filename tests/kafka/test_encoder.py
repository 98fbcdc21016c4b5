"""What the encoder promises beside being the decoder's inverse, which test_compiler.py tests."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from kdissect.kafka.records import RecordData
from tests.kafka.decoding import decode, message_of
from tests.kafka.encoder import EncodeError, encoder

MESSAGE = message_of("""\
# Encoded.

Encoded 0-1, flexible 1+ =>
  id: int8
  kind: int8
  [topics] =>
    name: string
    topic_id: uuid
    [partitions]: int32
  cursor? =>
    place: int16
  records: records?
  late: string?                             1+ tag 2
  early: bool                               1+ tag 0
""")
BODY: dict[str, Any] = {
    "id": 1,
    "kind": 2,
    "topics": [{"name": "a", "topic_id": "A" * 22, "partitions": [7]}],
    "cursor": {"place": 3},
    "records": b"xyz",
}


def test_generated_code_reads_like_written() -> None:
    assert inspect.getsource(encoder(MESSAGE, 1)) == GOLDEN


def test_tags_are_written_in_ascending_order() -> None:
    body = {**BODY, "late": "x", "_tags": {9: b"!", 1: b"?"}, "early": True}
    raw = encoder(MESSAGE, 1)(body)
    assert raw.endswith(b"\4\0\1\1\1\1?\2\2\2x\x09\1!")
    assert decode(MESSAGE, 1, raw)[0] == {**body, "records": RecordData(b"xyz", 0, 3)}


def test_absent_tags_are_not_written_and_null_ones_are() -> None:
    assert encoder(MESSAGE, 1)(BODY).endswith(b"xyz\0")
    assert encoder(MESSAGE, 1)({**BODY, "late": None}).endswith(b"xyz\1\2\1\0")


def test_records_as_bytes_or_as_decoded() -> None:
    data = RecordData(b"__xyz__", 2, 5)
    for version in (0, 1):
        assert encoder(MESSAGE, version)(BODY) == encoder(MESSAGE, version)({**BODY, "records": data})


def test_keys_that_the_version_does_not_have_are_ignored() -> None:
    assert encoder(MESSAGE, 0)({**BODY, "late": "x", "other": 1}) == encoder(MESSAGE, 0)(BODY)


def topic(**changes: Any) -> dict[str, Any]:
    return {"topics": [BODY["topics"][0], BODY["topics"][0] | changes]}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kind": 128}, r"kind is of type int, which is no int8: .* format requires -128 <= number <= 127"),
        ({"kind": "x"}, r"kind is of type str, which is no int8"),
        ({"kind": None}, r"kind is null, which is no int8"),
        (topic(name=5), r"topics\[1\].name is of type int, which is no string"),
        (topic(name="x" * 40_000), r"topics\[1\].name is of type str, which is no string"),
        (topic(name="\ud800"), r"topics\[1\].name is of type str, which is no string"),
        (
            topic(topic_id="short"),
            r"topics\[1\].topic_id is of type str, which is no uuid: 'short' is no uuid",
        ),
        (topic(partitions=[1, 2**31]), r"topics\[1\].partitions\[1\] is of type int, which is no int32"),
        (topic(partitions=4), r"topics\[1\].partitions is of type int where a list belongs"),
        ({"topics": ["a"]}, r"topics\[0\] is of type str where a struct belongs"),
        ({"cursor": {"place": None}}, r"cursor.place is null, which is no int16"),
        ({"records": "text"}, r"records is of type str, which is no records"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(EncodeError, match=r"^Encoded v0: " + says):
        encoder(MESSAGE, 0)(BODY | changes)


@pytest.mark.parametrize(
    ("missing", "path"),
    [("kind", "kind"), ("topics", "topics"), ("cursor", "cursor"), ("records", "records")],
)
def test_what_is_missing_is_named(missing: str, path: str) -> None:
    body = {name: value for name, value in BODY.items() if name != missing}
    with pytest.raises(EncodeError, match=f"^Encoded v1: {path} is missing$"):
        encoder(MESSAGE, 1)(body)


def test_what_is_missing_inside_is_named() -> None:
    with pytest.raises(EncodeError, match=r"^Encoded v1: topics\[0\].partitions is missing$"):
        encoder(MESSAGE, 1)({**BODY, "topics": [{"name": "a", "topic_id": "A" * 22}]})


@pytest.mark.parametrize("tags", [{"a": b""}, {1: 5}, 3])
def test_unknown_tags_that_are_none_are_named(tags: Any) -> None:
    with pytest.raises(
        EncodeError, match=r"^Encoded v1: (topics\[0\].)?_tags is no dict of numbers and bytes"
    ):
        encoder(MESSAGE, 1)({**BODY, "_tags": tags})
    with pytest.raises(EncodeError, match=r"^Encoded v1: topics\[0\]._tags is no dict of numbers and bytes"):
        encoder(MESSAGE, 1)({**BODY, "topics": [{**BODY["topics"][0], "_tags": tags}]})


GOLDEN = """\
def encode_Encoded_v1(body):
    out = bytearray()
    try:
        out += pack_bb(body["id"], body["kind"])
        topics = body["topics"]
        out += put_compact_count(topics)
        for topics_item in topics or ():
            out += put_compact_string(topics_item["name"])
            out += pack_16s(uuid_bytes(topics_item["topic_id"]))
            partitions = topics_item["partitions"]
            out += put_compact_count(partitions)
            out += put_numbers("i", partitions)
            out += put_tags(topics_item.get("_tags"))
        cursor = body["cursor"]
        if cursor is None:
            out += b'\\xff'
        else:
            out += b'\\x01'
            out += pack_h(cursor["place"])
            out += put_tags(cursor.get("_tags"))
        out += put_compact_bytes(body["records"])
        tags = dict(body.get("_tags", ()))
        if "early" in body:
            early_out = tags[0] = bytearray()
            early_out += pack_t(body["early"])
        if "late" in body:
            late_out = tags[2] = bytearray()
            late_out += put_compact_string(body["late"])
        out += put_tags(tags)
    except UNWRITABLE as error:
        raise fault(body) from error
    return bytes(out)
"""
