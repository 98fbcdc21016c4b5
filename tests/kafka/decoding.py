"""Decoding by all implementations at once: native core, compiled code and walker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.errors import DecodeError
from kdissect.kafka import schema
from kdissect.kafka.compiler import decoder, generated_decoder
from kdissect.kafka.primitives import DecodeBudget
from kdissect.kafka.walker import walk

if TYPE_CHECKING:
    from kdissect.kafka.compiler import Decoder
    from kdissect.kafka.schema import Draft, Message
    from kdissect.kafka.walker import Span, Walk
    from kdissect.model import Body


def decode(
    message: Message, version: int, data: bytes, pos: int = 0, draft: Draft | None = None
) -> tuple[Body, int]:
    """The body and its end, of which all are sure; or the error of the compiled code, when all fail."""
    for large in (False, True):
        chosen, generated = (
            make(message, version, draft, large=large) for make in (decoder, generated_decoder)
        )
        assert outcome(chosen, data, pos) == outcome(generated, data, pos)
    budget, of_walker = DecodeBudget(), DecodeBudget()
    walked = walk(message, version, data, pos, draft, of_walker)
    try:
        body, end = generated_decoder(message, version, draft)(data, pos, DecodeBudget())
        assert generated_decoder(message, version, draft, large=True)(data, pos, budget) == (body, end)
    except DecodeError:
        assert walked.error is not None
        raise
    assert walked.error is None
    assert walked.end == end
    assert of_walker.left == budget.left
    assert comparable(walked.value) == comparable(body)
    check_spans(walked, pos)
    return body, end


def outcome(decode: Decoder, data: bytes, pos: int) -> tuple[Any, ...]:
    """Everything that a decoder does: its result or error, and what it leaves of the budget."""
    budget = DecodeBudget()
    try:
        body, end = decode(data, pos, budget)
    except DecodeError as error:
        return type(error), str(error), error.pos, budget.left
    return comparable(body), end, budget.left, budget.met_null


def comparable(value: Any) -> Any:
    """For comparison: dicts are equal in any order, but wire order is promised; no NaN equals another."""
    if isinstance(value, dict):
        return [(key, comparable(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        return [comparable(inner) for inner in value]
    return repr(value) if isinstance(value, float) else value


LONGEST_PREFIX = 15  # a tag, a size and a count, each a varint


def check_spans(walked: Walk, start: int) -> None:
    """Every byte is in a span: no holes, except in containers, behind a length."""
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
