from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.errors import Malformed, Oversized, Truncated
from kdissect.kafka import schema
from kdissect.kafka.primitives import DecodeBudget
from kdissect.kafka.walker import walk
from tests.kafka.decoding import message_of
from tests.kafka.encoder import encoder
from tests.kafka.random_bodies import all_messages, cases, random_body

if TYPE_CHECKING:
    from kdissect.kafka.schema import Message

MESSAGE = message_of("""\
# A little of everything.

Little 0-1, flexible 1+ =>
  id: int32
  [topics] =>
    name: string? topic
    [partitions]: int16
  cursor? =>                                1+
    place: int64
  note: string                              1+ tag 7
""")
OLD = b"\0\0\0\1\0\0\0\2\0\1a\0\0\0\1\0\5\xff\xff\0\0\0\0"
FLEXIBLE = b"\0\0\0\1\2\2a\2\0\5\0\1\0\0\0\0\0\0\0\x2a\0\2\7\2\2h\x63\2\xab\xcd"


def lines(message: Message, version: int, data: bytes, pos: int = 0) -> str:
    """One line a span: indentation, name, type, first byte + length, value of leaves."""
    shown = ""
    for span in walk(message, version, data, pos).spans:
        value = "" if isinstance(span.value, dict | list) else f" = {span.value!r}"
        shown += f"{'  ' * span.depth}{span.name}: {span.type} @{span.pos}+{span.length}{value}\n"
    return shown


def test_spans_name_every_byte() -> None:
    assert (
        lines(MESSAGE, 0, b"??" + OLD + b"??", 2)
        == """\
id: int32 @2+4 = 1
topics: []struct @6+19
  [0]: struct @10+9
    name: string @10+3 = 'a'
    partitions: []int16 @13+6
      [0]: int16 @17+2 = 5
  [1]: struct @19+6
    name: string @19+2 = None
    partitions: []int16 @21+4
"""
    )


def test_spans_of_flexible_versions_show_tags() -> None:
    assert (
        lines(MESSAGE, 1, FLEXIBLE)
        == """\
id: int32 @0+4 = 1
topics: []struct @4+7
  [0]: struct @5+6
    name: string @5+2 = 'a'
    partitions: []int16 @7+3
      [0]: int16 @8+2 = 5
    _tags: tags @10+1 = 0
cursor: struct @11+10
  place: int64 @12+8 = 42
  _tags: tags @20+1 = 0
_tags: tags @21+9 = 2
  note: string @22+4 = 'h'
  99: tag @26+4 = b'\\xab\\xcd'
"""
    )


def test_paths_are_those_of_the_schema() -> None:
    paths = {span.name: span.path for span in walk(MESSAGE, 1, FLEXIBLE).spans}
    assert paths["partitions"] == "topics.partitions"
    assert paths["[0]"] == "topics.partitions"
    assert paths["place"] == "cursor.place"
    assert paths["note"] == "note"
    assert paths["99"] == "_tags"


def test_spans_know_their_field() -> None:
    fields = {span.name: span.field for span in walk(MESSAGE, 1, FLEXIBLE).spans}
    assert fields["99"] is None
    assert fields["_tags"] is None
    assert fields["name"] is not None
    assert fields["name"].role == "topic"


def test_an_error_keeps_what_was_before_it() -> None:
    walked = walk(MESSAGE, 0, OLD[:-3])
    assert isinstance(walked.error, Truncated)
    assert (walked.error.path, walked.error.pos) == ("topics.partitions", len(OLD) - 4)
    assert walked.value == {"id": 1, "topics": [{"name": "a", "partitions": [5]}, {"name": None}]}
    assert walked.end == len(OLD) - 4
    assert (walked.spans[-1].path, walked.spans[-1].name) == ("topics.name", "name")


def test_elements_that_are_there_are_shown_under_a_count_that_lies() -> None:
    walked = walk(MESSAGE, 0, b"\0\0\0\1\x7f\xff\xff\xff\0\1a\0\0\0\0\0\1b\0")
    assert isinstance(walked.error, Truncated)
    assert walked.value["topics"] == [{"name": "a", "partitions": []}, {"name": "b"}]
    walked = walk(message_of("# N.\n\nN 0 =>\n  [list]: int16\n"), 0, b"\0\0\0\x09\0\1\0\2\0")
    assert walked.value == {"list": [1, 2]}
    assert isinstance(walked.error, Truncated)
    assert (walked.error.path, walked.error.pos, walked.end) == ("list", 8, 8)


def test_no_empty_element_stands_for_one_that_is_not_there() -> None:
    assert walk(MESSAGE, 0, OLD[:17]).value == {"id": 1, "topics": [{"name": "a", "partitions": [5]}]}


def test_faults_say_what_and_where() -> None:
    walked = walk(MESSAGE, 0, b"\0\0\0\1\0\0\0\1\xff\xf0")
    assert isinstance(walked.error, Malformed)
    assert str(walked.error) == "a length of -16 in topics.name at byte 10"
    assert walked.end == 8
    walked = walk(MESSAGE, 0, b"\0\0\0\1\0\0\0\1\0\x20abc")
    assert str(walked.error) == "32 bytes needed, 3 left in topics.name at byte 10"
    walked = walk(MESSAGE, 1, b"\0\0\0\1\1\xff\1\7\5\3hi\0\0")
    assert str(walked.error) == "tag 7 ends at byte 12, by its size at byte 14 in note at byte 12"
    assert walked.value == {"id": 1, "topics": [], "cursor": None, "note": "hi"}


def test_it_stops_at_the_bound_on_spans() -> None:
    walked = walk(MESSAGE, 1, FLEXIBLE, max_spans=4)
    assert [span.name for span in walked.spans] == ["id", "topics", "[0]", "name"]
    assert isinstance(walked.error, Oversized)
    assert (walked.spans[1].length, walked.end) == (3, 7)


def test_without_spans_it_reads_on() -> None:
    walked = walk(MESSAGE, 1, FLEXIBLE, max_spans=None)
    assert (walked.spans, walked.error) == ([], None)
    assert walked.value == walk(MESSAGE, 1, FLEXIBLE).value


def test_it_stops_where_the_budget_is_spent() -> None:
    walked = walk(MESSAGE, 1, FLEXIBLE, budget=DecodeBudget(10))
    assert isinstance(walked.error, Oversized)
    assert (walked.error.path, walked.value) == ("topics", {"id": 1, "topics": []})


@pytest.mark.parametrize("message", all_messages()[::7], ids=lambda message: message.name)
def test_partial_bodies_grow_with_the_bytes(message: Message) -> None:
    """The more of a message is there, the more of it is found; what was found stays as it was."""
    for case in cases([message])[-2:]:
        raw = encoder(message, case.version, case.draft)(random_body(case.layout, case.random("grow")))[:400]
        before = walk(message, case.version, b"", 0, case.draft)
        for size in range(1, len(raw)):
            walked = walk(message, case.version, raw[:size], 0, case.draft)
            assert walked.end >= before.end
            assert len(walked.spans) >= len(before.spans)
            before = walked


def test_the_error_of_a_message_does_not_hold_it() -> None:
    message = schema.request(3)
    assert message is not None
    result = walk(message, 12, b"\x02")
    assert result.error is not None
    assert result.error.__traceback__ is None
    assert result.error.__context__ is None
