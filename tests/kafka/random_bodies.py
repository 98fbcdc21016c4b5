"""Random bodies for every layout, generated from the schema: what the decoder should return.

Seeded and without hypothesis: a body of a nested message costs too many draws to shrink, and a seed repeats
it just as well.
"""

from __future__ import annotations

import zlib
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.kafka import schema
from kdissect.kafka.codes import uuid_text
from kdissect.kafka.layout import is_nullable, layout, split
from kdissect.kafka.records import RecordData
from tests.depth import IS_DEEP
from tests.kafka.encoder import ZERO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.kafka.layout import Layout
    from kdissect.kafka.schema import Draft, Field, Message
    from kdissect.model import Body

TIMES = 30 if IS_DEEP else 1
"""How many times as many random instances as by default."""

_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_UNSIGNED_BITS = {"uint16": 16, "uint32": 32}
_LETTERS = "az09._- \x00\\éßЖ中文𝄞🐘"


class Case(NamedTuple):
    """One layout of the schema."""

    message: Message
    version: int
    draft: Draft | None

    @property
    def layout(self) -> Layout:
        return layout(self.message, self.version, self.draft)

    def random(self, salt: object = "") -> Random:
        """The same numbers for the same layout and salt, in every run and in every order of tests."""
        return Random(zlib.crc32(f"{self.layout}/{salt}".encode()))


def rpc_messages() -> list[Message]:
    """The request and the response of every api."""
    pairs = ((schema.request(key), schema.response(key)) for key in range(256))
    return [message for pair in pairs for message in pair if message is not None]


def all_messages() -> list[Message]:
    """Every message of every .kmsg file."""
    names = schema.file_names()
    return [message for name in names for message in schema.parse(schema.file_text(name), name).messages]


def cases(messages: Sequence[Message]) -> list[Case]:
    """Every version of every message, final layouts and drafts."""
    result = []
    for message in messages:
        result += [
            Case(message, version, None)
            for version in range(message.versions.first, message.versions.last + 1)
        ]
        for draft in message.drafts:
            result += [
                Case(message, version, draft)
                for version in range(draft.versions.first, draft.versions.last + 1)
            ]
    return result


def random_body(shape: Layout, random: Random, *, unknown_tags: bool = True, letters: str = _LETTERS) -> Body:
    """A body with nulls, empty and long arrays and strings, tags set and unset."""
    return _Maker(shape, random, unknown_tags, letters).struct(shape.fields, 0)


class _Maker:
    def __init__(self, shape: Layout, random: Random, unknown_tags: bool, letters: str) -> None:
        self.shape = shape
        self.random = random
        self.unknown_tags = unknown_tags
        self.letters = letters

    def chance(self, percent: int) -> bool:
        return self.random.random() * 100 < percent

    def struct(self, fields: Sequence[Field], depth: int) -> Body:
        positional, tagged = split(fields, self.shape.version)
        body = {field.name: self.field(field, depth) for field in positional}
        if self.shape.flexible:
            body |= {field.name: self.field(field, depth) for field in tagged if self.chance(60)}
            if self.unknown_tags and self.chance(10):
                tags = sorted({self.random.randrange(100, 2**28) for _ in range(self.random.randint(1, 3))})
                body["_tags"] = {tag: self.random.randbytes(self.random.choice([0, 3, 200])) for tag in tags}
        return body

    def field(self, field: Field, depth: int) -> Any:
        nullable = is_nullable(field, self.shape.version)
        if nullable and self.chance(25):
            return None
        if not field.array:
            return self.value(field, depth)
        if self.chance(2) and field.type != "jutf":
            return None  # where it is not legal, encoders do it all the same
        plain = field.type != "struct"
        count = self.random.choice([0, 1, 1, 2, 3]) if depth < 2 or plain else self.random.choice([0, 1, 2])
        if self.chance(5 if plain else 1) and depth < 2:
            count = self.random.randint(126, 300)
        return [self.value(field, depth + 1) for _ in range(count)]

    def value(self, field: Field, depth: int) -> Any:
        kind, random = field.type, self.random
        if kind == "struct":
            return self.struct(field.fields, depth)
        if kind in _BITS:
            top = 1 << _BITS[kind]
            return random.choice([0, -1, top - 1, -top, random.randrange(-top, top)])
        if kind in _UNSIGNED_BITS:
            return random.choice(
                [0, (1 << _UNSIGNED_BITS[kind]) - 1, random.getrandbits(_UNSIGNED_BITS[kind])]
            )
        if kind == "bool":
            return self.chance(50)
        if kind == "float64":
            return random.choice([0.0, -1.5, 1e300, random.random()])
        if kind == "uuid":
            return ZERO if self.chance(20) else uuid_text(random.randbytes(16))
        if kind == "bytes":
            return random.randbytes(self.size())
        if kind == "records":
            raw = random.randbytes(self.size())
            return RecordData(raw, 0, len(raw))
        return "".join(random.choices(self.letters, k=self.size()))

    def size(self) -> int:
        return self.random.choice([127, 128, 5000]) if self.chance(2) else self.random.choice([0, 1, 5, 12])
