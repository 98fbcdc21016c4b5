"""Decoding by both implementations at once: every test of decoding runs over compiled code and walker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.errors import DecodeError
from kdissect.kafka import schema
from kdissect.kafka.compiler import decoder
from kdissect.kafka.primitives import DecodeBudget
from kdissect.kafka.walker import walk

if TYPE_CHECKING:
    from kdissect.kafka.schema import Draft, Message
    from kdissect.kafka.walker import Span, Walk
    from kdissect.model import Body


def decode(
    message: Message, version: int, data: bytes, pos: int = 0, draft: Draft | None = None
) -> tuple[Body, int]:
    """The body and its end, of which both are sure; or the error of the compiled code, when both fail."""
    budget, of_walker = DecodeBudget(), DecodeBudget()
    walked = walk(message, version, data, pos, draft, of_walker)
    try:
        body, end = decoder(message, version, draft)(data, pos, DecodeBudget())
        assert decoder(message, version, draft, large=True)(data, pos, budget) == (body, end)
    except DecodeError:
        assert walked.error is not None
        raise
    assert walked.error is None
    assert walked.end == end
    assert of_walker.left == budget.left
    assert comparable(walked.value) == comparable(body)
    check_spans(walked, pos)
    return body, end


def comparable(value: Any) -> Any:
    """For comparison: dicts are equal in any order, but wire order is promised; no NaN equals another."""
    if isinstance(value, dict):
        return [(key, comparable(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        return [comparable(inner) for inner in value]
    return repr(value) if isinstance(value, float) else value


LONGEST_PREFIX = 15  # a tag, a size and a count, each a varint


def check_spans(walked: Walk, start: int) -> None:
    """Every byte is told: spans follow each other without a hole, in containers behind a length at most."""
    open_spans: list[Span] = []
    expected: list[int | None] = [
        start
    ]  # at each depth: where the next span begins, None: at the container's first

    def close() -> None:
        span, end = open_spans.pop(), expected.pop()
        assert end in (None, span.pos + span.length)

    for span in walked.spans:
        while len(open_spans) > span.depth:
            close()
        assert len(open_spans) == span.depth
        if expected[-1] is None:
            assert 0 <= span.pos - open_spans[-1].pos <= LONGEST_PREFIX
            expected[-1] = span.pos
        assert span.pos == expected[-1]
        expected[-1] = span.pos + span.length
        open_spans.append(span)
        expected.append(None)
    while open_spans:
        close()
    assert expected == [walked.end]


def message_of(text: str) -> Message:
    """The first message of a .kmsg text."""
    return schema.parse(text, "test").messages[0]
