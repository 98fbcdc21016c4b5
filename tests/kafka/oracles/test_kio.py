"""kio (PyPI) writes random values in every version that it knows; we read the same values, to the last byte.

kio leaves out a tagged field that has its default value: there an absent key equals kio's default.
"""

from __future__ import annotations

import io
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args
from uuid import UUID

import pytest
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_writer
from kio.serial._implicit_defaults import get_tagged_field_default
from kio.serial._introspect import get_field_tag
from kio.static.constants import EntityType
from kio.static.primitive import Records

from kdissect.kafka import schema
from kdissect.kafka.codes import uuid_text
from kdissect.kafka.layout import is_tagged, split
from kdissect.kafka.records import RecordData
from tests.kafka.oracles.both import LETTERS, check, same_name
from tests.kafka.random_bodies import TIMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.kafka.schema import Field, Message

INSTANCES = 8 * TIMES
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def kio_cases() -> list[tuple[str, EntityType]]:
    """Every kio schema name with every sort of message under it."""
    result = {
        (name, sort)
        for name, versions in schema_name_map.items()
        for sorts in versions.values()
        for sort in sorts
    }
    return sorted(result, key=lambda case: (case[0], case[1].name))


def kio_versions(name: str, sort: EntityType) -> list[int]:
    return [version for version, sorts in schema_name_map[name].items() if sort in sorts]


@cache
def kio_message(name: str, sort: EntityType, version: int) -> tuple[Any, Message]:
    """kio's class and our message."""
    theirs = load_entity_schema(name, version, sort)
    if sort is EntityType.request:
        ours = schema.request(theirs.__api_key__)
    elif sort is EntityType.response:
        ours = schema.response(theirs.__api_key__)
    elif sort is EntityType.header:
        ours = schema.header(theirs.__name__)
    else:
        ours = schema.embedded(theirs.__name__)
    assert ours is not None
    return theirs, ours


@pytest.mark.parametrize(("name", "sort"), kio_cases(), ids=lambda value: getattr(value, "name", value))
def test_values_written_by_kio(name: str, sort: EntityType, oracle: Any) -> None:
    for version in kio_versions(name, sort):
        theirs, ours = kio_message(name, sort, version)
        make = _Maker(Random(f"{name} {sort} {version}"), version)
        for _ in range(INSTANCES):
            entity, expected = make.entity(theirs, ours.fields)
            out = io.BytesIO()
            entity_writer(theirs)(out, entity)
            check(ours, version, out.getvalue(), expected)
        oracle(f"kio 0.6: {sort.name} versions", instances=INSTANCES)


def test_kio_covers_what_it_did() -> None:
    counts = {
        sort: sum(len(kio_versions(*case)) for case in kio_cases() if case[1] is sort) for sort in EntityType
    }
    assert counts[EntityType.request] + counts[EntityType.response] == 604
    assert (counts[EntityType.header], counts[EntityType.data]) == (4, 17)


class _Maker:
    """Makes kio's value and ours side by side, field by field; both declare them in wire order."""

    def __init__(self, random: Random, version: int) -> None:
        self.random = random
        self.version = version

    def entity(self, theirs: Any, ours: Sequence[Field]) -> tuple[Any, dict[str, Any]]:
        positional, tagged = split(ours, self.version)
        values, body = {}, {}
        tags = {get_field_tag(field): field for field in fields(theirs) if get_field_tag(field) is not None}
        assert sorted(tags) == [field.tag for field in tagged]
        in_order = (field for field in fields(theirs) if get_field_tag(field) is None)
        for their_field, our_field in zip(in_order, positional, strict=True):
            assert same_name(their_field.name, our_field.name)
            values[their_field.name], body[our_field.name] = self.field(their_field, our_field)
        for our_field in tagged:
            their_field = tags[our_field.tag]
            assert same_name(their_field.name, our_field.name)
            default = value = get_tagged_field_default(their_field)
            if self.random.random() < 0.6:
                value, expected = self.field(their_field, our_field)
            values[their_field.name] = value
            if value != default:
                body[our_field.name] = expected
        return theirs(**values), body

    def field(self, theirs: Any, ours: Field) -> tuple[Any, Any]:
        kind = theirs.type
        options = get_args(kind)
        nullable = NoneType in options
        if nullable:
            kind = next(option for option in options if option is not NoneType)
        kafka_type = theirs.metadata.get("kafka_type")
        if nullable and self.random.random() < 0.3:
            if kafka_type == "datetime_i64":
                return None, -1
            if kafka_type == "uuid":
                return None, "A" * 22
            # A null list is the one null of an array; kio gives nullable structs and strings theirs by the
            # same None.
            if not is_tagged(ours, self.version):
                return None, None
        if not ours.array:
            return self.value(kind, kafka_type, ours)
        element = get_args(kind)[0]
        element = next((option for option in get_args(element) if option is not NoneType), element)
        long = ours.type != "struct" and self.random.random() < 0.05
        count = 200 if long else self.random.choice([0, 1, 1, 2, 3])
        pairs = [self.value(element, kafka_type, ours) for _ in range(count)]
        return tuple(their for their, _ in pairs), [our for _, our in pairs]

    def value(self, kind: Any, kafka_type: str | None, ours: Field) -> tuple[Any, Any]:
        random = self.random
        if ours.type == "struct":
            return self.entity(kind, ours.fields)
        match kafka_type:
            case "bool":
                return (flag := random.random() < 0.5), flag
            case "string":
                return (text := "".join(random.choices(LETTERS, k=self.size()))), text
            case "bytes":
                return (raw := random.randbytes(self.size())), raw
            case "records":
                raw = random.randbytes(self.size())
                return Records(raw), RecordData(raw, 0, len(raw))
            case "uuid":
                raw = random.choice([bytes(16), random.randbytes(16)])
                return UUID(bytes=raw), uuid_text(raw)
            case "float64":
                return (number := random.choice([0.0, -1.5, random.random()])), number
            case "error_code":
                code = random.choice(list(ErrorCode))
                return code, code.value
            case "timedelta_i32" | "timedelta_i64":
                ms = random.choice([0, -1, 2**31 - 1, -(2**31), random.getrandbits(31)])
                return kind.parse(ms * MILLISECOND), ms
            case "datetime_i64":
                ms = random.choice([0, random.getrandbits(37)]) * 1000
                return EPOCH + ms * MILLISECOND, ms
        bits = int(str(kafka_type).lstrip("uint"))
        low, high = (
            (0, 2**bits - 1) if str(kafka_type).startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        number = random.choice([0, low, high, random.randint(low, high)])
        return kind(number), number

    def size(self) -> int:
        return (
            self.random.choice([126, 127, 3000])
            if self.random.random() < 0.02
            else self.random.choice([0, 1, 4, 12])
        )
