"""Every version of every message as Apache Kafka's own classes write it: we read the same values and write
the same bytes. What the vectors are, and how they were made: tests/vectors/README.md.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.kafka import schema
from kdissect.kafka.compiler import decoder
from kdissect.kafka.primitives import DecodeBudget
from kdissect.kafka.walker import walk
from tests.kafka.encoder import encoder
from tests.kafka.random_bodies import all_messages, cases
from tests.vectors.messages import body_of, vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INSTANCES = 10
WITHOUT = {
    "JoinGroupRequest v0 of 0.8.2": "older than the classes that Kafka generates",
    "JoinGroupResponse v0 of 0.8.2": "the same",
    "StickyAssignorUserData v0": "written by hand, until 2.2",
}
"""Layouts without a vector, and why."""


@pytest.mark.parametrize("file", schema.file_names())
def test_kafkas_values_and_ours_are_the_same(file: str, oracle: Callable[..., None]) -> None:
    for message in schema.parse(schema.file_text(file), file).messages:
        for place, result in vectors().get(message.name, {}).items():
            decode, encode = decoder(*place), encoder(*place)
            for vector in result:
                expected = body_of(vector, place)
                walked = walk(place.message, place.version, vector.raw, 0, place.draft)
                assert decode(vector.raw, 0, DecodeBudget()) == (expected, len(vector.raw)), vector
                assert (walked.error, walked.value, walked.end) == (None, expected, len(vector.raw)), vector
                assert encode(expected) == vector.raw, vector
            for release, instances in Counter(vector.release for vector in result).items():
                oracle(f"message versions by Apache Kafka {release}", instances=instances)


def test_which_layouts_kafka_confirms(report: Callable[[str], None]) -> None:
    everything = {str(case.layout) for case in cases(all_messages())}
    confirmed = {str(place.layout) for places in vectors().values() for place in places}
    every = [vector for places in vectors().values() for result in places.values() for vector in result]
    report(
        f"layouts: {len(everything)}, written by Apache Kafka's classes: {len(confirmed)}, of"
        f" {len(vectors())} messages in {len(every)} instances, {sum(len(each.raw) for each in every)} bytes"
    )
    report(f"layouts that they do not write: {len(WITHOUT)}: {', '.join(WITHOUT)}")
    assert everything ^ confirmed == WITHOUT.keys()
    assert (len(everything), len(vectors()), len(every)) == (937, 296, 15_647)


def test_every_request_and_response_is_confirmed_by_two_generations_of_kafka() -> None:
    """By 3.9, by 4.4, or by both: together they have all there ever was."""
    for message in all_messages():
        if message.kind in ("request", "response"):
            places = vectors()[message.name]
            final = {place.version for place in places if place.draft is None}
            assert final == set(range(message.versions.first, message.versions.last + 1))
            for result in places.values():
                assert set(Counter(vector.release for vector in result).values()) == {INSTANCES}


def test_vectors_hold_what_is_easily_got_wrong() -> None:
    seen: Counter[str] = Counter()
    for places in vectors().values():
        for result in places.values():
            for vector in result:
                seen.update(traits(vector.json))
    rare = {name: count for name, count in seen.items() if count < 100}
    assert rare == {}
    assert len(seen) == 13


def traits(value: Any) -> Iterator[str]:
    match value:
        case None | True | False:
            yield repr(value)
        case dict():
            yield from ("unknown tags" for name in value if name == "_tags")
            for inner in value.values():
                yield from traits(inner)
        case list():
            yield "empty array" if not value else "long array" if len(value) > 126 else "array"
            for inner in value:
                yield from traits(inner)
        case str():
            yield "empty text" if not value else "long text" if len(value) > 126 else "text"
            if not value.isascii():
                yield "not ascii"
        case int():
            yield "extreme number" if value in EXTREMES else "number"


EXTREMES = {extreme for bits in (7, 15, 31, 63) for extreme in (-(1 << bits), (1 << bits) - 1)}
