from __future__ import annotations

import re
from typing import Any

import pytest

from kdissect.kafka import schema
from kdissect.kafka.walker import Walk, walk
from kdissect.model import Body, Redacted
from kdissect.text.outline import MAX_ELEMENTS, BodyContext
from kdissect.text.tree import offsets
from tests.kafka.encoder import encoder, fill
from tests.kafka.random_bodies import Case, random_body

BATCH = bytes(8) + (49 + 40).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(44) + b"\xee" * 40


def walked(api: int, version: int, body: Body, **options: Any) -> tuple[BodyContext, Walk, bytes]:
    message = schema.request(api)
    assert message is not None
    data = encoder(message, version)(fill(message, version, body))
    return BodyContext(message, version, {}), walk(message, version, data, **options), data


def lines(api: int, version: int, body: Body, *, full: bool = False) -> list[str]:
    view, walk_result, data = walked(api, version, body)
    return [line.rstrip() for line in offsets(view._replace(full=full), walk_result, data)]


def test_offset_bytes_name_value_meaning() -> None:
    body = {
        "topics": [{"name": "orders"}, {"name": None}],
        "allow_auto_topic_creation": True,
        "_tags": {5: b"\7"},
    }
    assert lines(3, 10, body) == [
        "000000  03                       topics: [2]",
        "000001                             [0]",
        "000001  00 00 00 00 00 00 00 00      topic_id: AAAAAAAAAAAAAAAAAAAAAA",
        "000009  00 00 00 00 00 00 00 00",
        '000011  07 6f 72 64 65 72 73         name: "orders"',
        "000018  00                           _tags: 0",
        "000019                             [1]",
        "000019  00 00 00 00 00 00 00 00      topic_id: AAAAAAAAAAAAAAAAAAAAAA",
        "000021  00 00 00 00 00 00 00 00",
        "000029  00                           name: null",
        "00002a  00                           _tags: 0",
        "00002b  01                       allow_auto_topic_creation: true",
        "00002c  00                       include_cluster_authorized_operations: false",
        "00002d  00                       include_topic_authorized_operations: false",
        "00002e  01                       _tags: 1",
        "00002f  05 01 07                   (unknown tag 5): 1 byte: 07",
    ]


def shown_bytes(shown: list[str]) -> bytes:
    return b"".join(bytes.fromhex(line[8:31]) for line in shown if re.match("[0-9a-f]{6}", line))


@pytest.mark.parametrize("api", [0, 1, 3, 11, 44, 68])
def test_every_byte_is_shown_once(api: int) -> None:
    message = schema.request(api)
    assert message is not None
    for version in range(message.versions.first, message.versions.last + 1):
        case = Case(message, version, None)
        body = random_body(case.layout, case.random("offsets"))
        data = encoder(message, version)(body)
        walk_result = walk(message, version, data)
        shown = list(
            offsets(BodyContext(message, version, {}, full=True), walk_result, data, hide_records=False)
        )
        assert shown_bytes(shown) == data


def test_long_arrays_and_values_stop() -> None:
    topics = {"topics": [{"name": str(number)} for number in range(50)]}
    shown = lines(3, 1, topics)
    assert len(shown) == 1 + 2 * MAX_ELEMENTS + 1
    assert shown[-1].strip() == "… 30 more (--full shows all)"
    assert len(lines(3, 1, topics, full=True)) == 1 + 2 * 50
    nested = {"topics": [{"topic": "a", "partitions": list(range(30))}, {"topic": "b", "partitions": [1]}]}
    shown = lines(35, 1, nested)
    assert [line.strip() for line in shown if "more" in line] == ["… 10 more (--full shows all)"]
    assert shown[-1].endswith("[0]: 1")
    assert lines(3, 1, {"topics": [{"name": "x" * 100}]})[-1] == "        … 70 more bytes"


def test_record_data_shows_its_batches_and_not_more_than_their_header() -> None:
    body = {"topic_data": [{"partition_data": [{"records": BATCH}]}]}
    view, walk_result, data = walked(0, 3, body)
    shown = list(offsets(view._replace(full=True), walk_result, data))
    assert any("[0] offsets 0 to 0" in line for line in shown)
    assert "ee" not in "".join(line[8:31] for line in shown)
    open_ones = list(offsets(view._replace(full=True), walk_result, data, hide_records=False))
    assert b"\xee" * 40 in shown_bytes(open_ones)


def test_a_redacted_value_shows_no_byte() -> None:
    view, walk_result, data = walked(36, 0, {"auth_bytes": b"hunter2"})
    walk_result.spans[0] = walk_result.spans[0]._replace(value=Redacted(7))
    assert list(offsets(view, walk_result, data)) == [
        "000000  not shown                auth_bytes: redacted (7 bytes)"
    ]


def test_a_walk_that_had_to_stop() -> None:
    view, walk_result, data = walked(3, 1, {"topics": [{"name": "orders"}] * 3}, max_spans=2)
    shown = list(offsets(view, walk_result, data))
    assert shown[1].split() == ["000004", "[0]"]
    assert shown[2].strip() == "(ends here: more than 2 fields in topics.name at byte 4)"
    cut = walk(view.message, 1, data[:9])  # type: ignore[arg-type]
    assert list(offsets(view, cut, data[:9]))[-1].strip().startswith("(ends here: ")
