from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from kdissect.errors import UsageError
from kdissect.kafka.records import RecordData
from kdissect.model import Embedded, Redacted
from kdissect.query.where import check, value_at

HEADER = pack(">iBIhiqqqhii", 0, 2, 0, 0, 2, 0, 0, -1, -1, -1, 3)
BATCH = pack(">qi", 0, len(HEADER)) + HEADER

BODY: dict[str, Any] = {
    "acks": 0,
    "none": None,
    "secret": Redacted(5),
    "inner": {"a": 1},
    "topics": [
        {"name": "a", "partitions": [{"n": 1, "ids": [5, 6]}, {"n": 2}]},
        {"name": None, "partitions": []},
        {"name": "c", "partitions": [{"n": 3, "ids": [7]}]},
    ],
    "records": RecordData(BATCH * 2, 0, len(BATCH) * 2),
    "payload": Embedded(b"\x01", {"header": {"client_id": "x"}}),
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("acks", 0),
        ("none", None),
        ("inner.a", 1),
        ("inner.b", None),
        ("missing", None),
        ("missing.deeper", None),
        ("acks.deeper", None),
        ("secret.length", None),
        ("topics.name", ["a", None, "c"]),
        ("topics.partitions.n", [1, 2, 3]),
        ("topics.partitions.ids", [5, 6, None, 7]),
        ("topics.partitions.ids.deeper", [None, None, None, None]),
        ("topics.missing.deeper", [None, None, None]),
        ("records.records_count", [3, 3]),
        ("records.missing", [None, None]),
        ("payload.header.client_id", "x"),
    ],
)
def test_value_at(path: str, value: Any) -> None:
    assert value_at(BODY, path.split(".")) == value


def test_nothing_is_in_no_body() -> None:
    assert value_at(None, ["topics", "name"]) is None


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ("request", "acks"),
        ("request", "topics"),
        ("request", "topics.partitions.fetch_offset"),
        ("request", "topic_data.partition_data.records.compression"),
        ("request", "request_data.header.client_id"),
        ("request", "_tags"),
        ("request", "topics._tags"),
        ("response", "throttle_time_ms"),
        ("response", "responses.partitions.records.magic"),
        ("response", "_trailing"),
    ],
)
def test_paths_that_exist(message: str, path: str) -> None:
    check(message, path.split("."))


@pytest.mark.parametrize(
    ("path", "reason", "hint"),
    [
        ("ack", 'request has no field "ack"', "; did you mean request.acks?"),
        (
            "fetch_offset",
            'request has no field "fetch_offset"',
            "; did you mean request.topics.partitions.fetch_offset?",
        ),
        ("topics.nmae", 'request.topics has no field "nmae"', "; did you mean request.topics.name?"),
        ("acks.zzz", 'request.acks has no field "zzz"', ""),
        ("zzzzzzz", 'request has no field "zzzzzzz"', ""),
        ("cursor.zzz", 'request.cursor has no field "zzz"', "; its fields are topic_name, partition_index"),
    ],
)
def test_paths_that_do_not_exist(path: str, reason: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        check("request", path.split("."))
    assert str(caught.value) == f"{reason} in any API{hint}"
