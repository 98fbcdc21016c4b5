"""kafka-python (PyPI, 3.x) writes random values, by classes from schemas and by its old hand-written ones.

The old classes know versions that Kafka 4 removed and kio therefore lacks. Their schemas tell no tags: known
ones stay unset.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kdissect.kafka import schema
from kdissect.kafka.codes import uuid_text
from kdissect.kafka.layout import split
from kdissect.kafka.records import RecordData
from tests.kafka.oracles.both import LETTERS, check, same_name
from tests.kafka.oracles.kafka_python import (
    class_versions,
    is_embedded,
    old_classes,
    our_message,
    schema_classes,
)
from tests.kafka.random_bodies import TIMES

# Only now: kafka_python silences what importing these warns about.
from kafka.protocol.api_header import RequestHeader, ResponseHeader  # isort: skip
from kafka.protocol.old import types  # isort: skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.kafka.schema import Field

INSTANCES = 8 * TIMES

# What the old classes have wrong: of DescribeAcls v2 their newer ones, kio and the protocol guide agree with
# us; of DescribeLogDirs v0 only the protocol guide has an opinion, ours.
WRONG = {
    "DescribeAclsRequest_v2": "not flexible",
    "DescribeAclsResponse_v2": "not flexible",
    "DescribeLogDirsRequest_v0": "one partition instead of an array of them",
}
RIGHT_OLD_CLASSES = [cls for cls in old_classes() if cls.__name__ not in WRONG]
NULL_BITS = -(2**31)


@pytest.mark.parametrize("cls", schema_classes(), ids=lambda cls: cls.__name__)
def test_values_written_by_schema_classes(cls: Any, oracle: Any) -> None:
    message = our_message(cls)
    for version in class_versions(cls):
        make = _SchemaMaker(Random(f"{cls.__name__} {version}"), version)
        for _ in range(INSTANCES):
            value, expected, canonical = make.struct(cls._struct, message.fields, cls)
            embedded = {"header": False} if is_embedded(cls) else {}
            check(message, version, value.encode(version=version, **embedded), expected, canonical=canonical)
        oracle(f"kafka-python 3: {message.kind} versions", instances=INSTANCES)


@pytest.mark.parametrize("cls", [RequestHeader, ResponseHeader], ids=lambda cls: cls.__name__)
def test_headers(cls: Any, oracle: Any) -> None:
    message = schema.header(cls.__name__)
    flexible_version = message.versions.last
    random = Random(cls.__name__)
    for version in (flexible_version - 1, flexible_version):
        for _ in range(INSTANCES):
            names = [field.name for field in message.fields if version in field.versions]
            expected = {name: random.randint(-(2**15), 2**15 - 1) for name in names}
            if "client_id" in names:
                expected["client_id"] = random.choice([None, "", "rdkafka", "ключ"])
            raw = cls(**expected).encode(flexible=version == flexible_version)
            check(message, version, raw, expected)
        oracle("kafka-python 3: header versions", instances=INSTANCES)


@pytest.mark.parametrize("cls", RIGHT_OLD_CLASSES, ids=lambda cls: cls.__name__)
def test_values_written_by_old_classes(cls: Any, oracle: Any) -> None:
    message = our_message(cls)
    make = _OldMaker(Random(cls.__name__), cls.API_VERSION)
    for _ in range(INSTANCES):
        values, expected = make.struct(cls.SCHEMA, message.fields)
        check(message, cls.API_VERSION, cls(*values).encode(), expected)
    oracle(f"kafka-python 3, old classes: {message.kind} versions", instances=INSTANCES)


def test_kafka_python_covers_what_it_did() -> None:
    assert sum(len(class_versions(cls)) for cls in schema_classes()) == 486
    assert len(RIGHT_OLD_CLASSES) == 272
    assert len(old_classes()) - len(RIGHT_OLD_CLASSES) == len(WRONG)


class _Random:
    def __init__(self, random: Random, version: int) -> None:
        self.random = random
        self.version = version

    def chance(self, percent: int) -> bool:
        return self.random.random() * 100 < percent

    def count(self, plain: bool) -> int:
        return 200 if plain and self.chance(5) else self.random.choice([0, 1, 1, 2, 3])

    def size(self) -> int:
        return self.random.choice([126, 127, 3000]) if self.chance(2) else self.random.choice([0, 1, 4, 12])

    def primitive(self, kind: str, ours: Field) -> tuple[Any, Any]:
        """Their value and ours."""
        random = self.random
        match kind:
            case "bool":
                return (flag := self.chance(50)), flag
            case "string":
                return (text := "".join(random.choices(LETTERS, k=self.size()))), text
            case "bytes":
                raw = random.randbytes(self.size())
                return raw, RecordData(raw, 0, len(raw)) if ours.type == "records" else raw
            case "uuid":
                raw = random.randbytes(16)
                return (None, "A" * 22) if self.chance(20) else (UUID(bytes=raw), uuid_text(raw))
            case "float64":
                return (number := random.choice([0.0, -1.5, random.random()])), number
            case "bitfield":
                bits = set(random.sample(range(31), random.randint(0, 9)))
                return (None, NULL_BITS) if self.chance(20) else (bits, sum(1 << bit for bit in bits))
        size = int(kind.lstrip("uint"))
        low, high = (0, 2**size - 1) if kind.startswith("u") else (-(2 ** (size - 1)), 2 ** (size - 1) - 1)
        return (number := random.choice([0, low, high, random.randint(low, high)])), number


class _SchemaMaker(_Random):
    """Makes an instance of their class and our body side by side."""

    def struct(self, theirs: Any, ours: Sequence[Field], cls: Any) -> tuple[Any, dict[str, Any], bool]:
        positional, tagged = split(ours, self.version)
        values, body = {}, {}
        tags = {field.tag: field for field in theirs.tagged_fields(self.version)._fields}
        assert sorted(tags) == [field.tag for field in tagged]
        canonical = list(tags) == sorted(tags)
        for their_field, our_field in zip(theirs.untagged_fields(self.version), positional, strict=True):
            assert same_name(their_field.name, our_field.name)
            values[their_field.name], body[our_field.name], in_order = self.field(their_field, our_field)
            canonical = canonical and in_order
        for our_field in tagged:
            their_field = tags[our_field.tag]
            assert same_name(their_field.name, our_field.name)
            if self.chance(60):
                value, expected, in_order = self.field(their_field, our_field)
                canonical = canonical and in_order
                values[their_field.name] = value
                if value != their_field.default:
                    body[our_field.name] = expected
        return cls(version=self.version, **values), body, canonical

    def field(self, theirs: Any, ours: Field) -> tuple[Any, Any, bool]:
        if theirs.nullable_for_version_q(self.version) and theirs.tag is None and self.chance(30):
            return None, None, True
        if theirs.is_struct_array():
            exchange_sample = [
                self.struct(theirs.array_of, ours.fields, theirs.data_class)
                for _ in range(self.count(plain=False))
            ]
            return (
                [value for value, _, _ in exchange_sample],
                [body for _, body, _ in exchange_sample],
                all(order for *_, order in exchange_sample),
            )
        if theirs.is_struct():
            return self.struct(theirs, ours.fields, theirs.data_class)
        if theirs.is_array():
            kind = theirs.array_of._type_str
            pairs = [self.primitive(kind, ours) for _ in range(self.count(plain=True))]
            return [value for value, _ in pairs], [value for _, value in pairs], True
        kind = "bytes" if theirs._type_str == "records" else theirs._type_str
        return *self.primitive(kind, ours), True


class _OldMaker(_Random):
    """Makes the tuples that their hand-written schemas encode, and our body."""

    KINDS = (
        (types.Int8, "int8"),
        (types.Int16, "int16"),
        (types.Int32, "int32"),
        (types.Int64, "int64"),
        (types.Float64, "float64"),
        (types.Boolean, "bool"),
        (types.UUID, "uuid"),
        (types.String, "string"),
        (types.Bytes, "bytes"),
        (types.CompactBytes, "bytes"),
        (types.BitField, "bitfield"),
    )

    def struct(self, theirs: Any, ours: Sequence[Field]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        positional, _ = split(ours, self.version)
        values, body = self.fields(theirs, iter(positional))
        assert list(body) == [field.name for field in positional]
        if theirs.has_tagged_fields():
            tags = {number: self.random.randbytes(3) for number in (200, 201)} if self.chance(10) else {}
            values.append(tags)
            if tags:
                body["_tags"] = tags
        return tuple(values), body

    def fields(self, theirs: Any, ours: Iterator[Field]) -> tuple[list[Any], dict[str, Any]]:
        values, body = [], {}
        for kind in theirs.fields[: -1 if theirs.has_tagged_fields() else None]:
            if isinstance(
                kind, types.Schema
            ):  # they group fields (CreatePartitions); on the wire that is nothing
                value, expected = self.fields(kind, ours)
                values.append(tuple(value))
                body |= expected
            else:
                field = next(ours)
                value, body[field.name] = self.value(kind, field)
                values.append(value)
        return values, body

    def value(self, theirs: Any, ours: Field) -> tuple[Any, Any]:
        if isinstance(theirs, types.Array):
            if ours.nullable is not None and self.version in ours.nullable and self.chance(25):
                return None, None
            pairs = [
                self.element(theirs.array_of, ours) for _ in range(self.count(plain=ours.type != "struct"))
            ]
            return [value for value, _ in pairs], [value for _, value in pairs]
        kind = self.kind(theirs)
        if kind in ("string", "bytes") and self.chance(15):
            return None, None
        return self.primitive(kind, ours)

    def element(self, theirs: Any, ours: Field) -> tuple[Any, Any]:
        if isinstance(theirs, types.Schema):
            return self.struct(theirs, ours.fields)
        if ours.type != "struct":
            return self.primitive(self.kind(theirs), ours)
        # They write a bare value where we, like the protocol guide, have a struct of one field: the bytes are
        # the same.
        (only,), _ = split(ours.fields, self.version)
        value, expected = self.value(theirs, only)
        return value, {only.name: expected}

    def kind(self, theirs: Any) -> str:
        return next(name for cls, name in self.KINDS if theirs is cls or isinstance(theirs, cls))
