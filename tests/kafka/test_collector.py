from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.kafka.compiler import collector
from kdissect.kafka.layout import is_tagged
from kdissect.model import Redacted
from tests.kafka.decoding import message_of
from tests.kafka.random_bodies import all_messages, cases, random_body

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.kafka.schema import Field, Message
    from kdissect.model import Body

MESSAGE = message_of(
    """\
# Collected.

Collected 0-1, flexible 1+ =>
  error_code: int16 error
  first: string? topic                      1+ tag 1
  [topics] =>
    name: string topic
    [names]? : string topic
    [partitions] =>
      error_code: int16 error
  last? =>
    error_code: int16 error
    topic: string? topic
""".replace("? :", "?:")
)
BODY: dict[str, Any] = {
    "error_code": 1,
    "topics": [
        {"name": "a", "names": ["b", "c"], "partitions": [{"error_code": 2}, {"error_code": 3}]},
        {"name": "d", "names": None, "partitions": []},
    ],
    "last": {"error_code": 4, "topic": None},
    "first": "e",
}


def collect(body: Body, role: str, version: int = 1) -> list[Any]:
    function = collector(MESSAGE, version, role)
    assert function is not None
    return function(body)


def test_values_come_in_wire_order_without_nulls() -> None:
    assert collect(BODY, "error") == [1, 2, 3, 4]
    assert collect(BODY, "topic") == ["a", "b", "c", "d", "e"]
    assert collect(BODY, "topic", 0) == ["a", "b", "c", "d"]


def test_no_collector_without_such_fields() -> None:
    assert collector(MESSAGE, 0, "broker") is None


def test_partial_bodies_will_do() -> None:
    assert collect({}, "error") == []
    assert collect({"error_code": 5, "topics": [{"name": "x"}, {}]}, "error") == [5]
    assert collect({"topics": None, "last": None}, "topic") == []


def test_redacted_values_are_values() -> None:
    assert collect({"topics": [{"name": Redacted(3)}]}, "topic") == [Redacted(3)]


def test_generated_code_reads_like_written() -> None:
    function = collector(MESSAGE, 0, "error")
    assert function is not None
    assert inspect.getsource(function) == GOLDEN


@pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.name)
def test_every_role_of_every_layout(message: Message) -> None:
    """The same as looking at every field of a body."""
    for case in cases([message]):
        body = random_body(case.layout, case.random("collect"))
        for role in {field.role for field in every_field(case.layout.fields)} - {None}:
            function = collector(message, case.version, str(role), case.draft)
            values = list(with_role(case.layout.fields, case.version, str(role), body))
            assert values == ([] if function is None else function(body))


def every_field(fields: Sequence[Field]) -> Iterator[Field]:
    for field in fields:
        yield field
        yield from every_field(field.fields)


def with_role(fields: Sequence[Field], version: int, role: str, body: Body) -> Iterator[Any]:
    in_order = sorted(fields, key=lambda field: field.tag or 0 if is_tagged(field, version) else -1)
    for field in in_order:
        value = body.get(field.name)
        if version not in field.versions or value is None:
            continue
        for element in value if field.array else [value]:
            if field.role == role:
                yield element
            elif field.fields:
                yield from with_role(field.fields, version, role, element)


GOLDEN = """\
def collect_error_Collected_v0(body):
    found = []
    if (value := body.get("error_code")) is not None:
        found.append(value)
    for topics_item in body.get("topics") or ():
        for partitions_item in topics_item.get("partitions") or ():
            if (value := partitions_item.get("error_code")) is not None:
                found.append(value)
    if last := body.get("last"):
        if (value := last.get("error_code")) is not None:
            found.append(value)
    return found
"""
