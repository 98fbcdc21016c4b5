"""The message vectors -> for each one our message, its version and the body that it must become.

Kafka's JSON has the names of its Java fields; ours are those of its protocol guide, which are made from the
same words. What else differs stands in the tables here.
"""

from __future__ import annotations

import lzma
import re
from base64 import b64decode
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from kdissect.kafka import schema
from kdissect.kafka.apis import find
from kdissect.kafka.layout import layout, split
from kdissect.kafka.records import RecordData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.kafka.layout import Layout
    from kdissect.kafka.schema import Draft, Field, Message
    from kdissect.model import Body

FILE = Path(__file__).with_name("messages.jsonl.xz")

RENAMED_MESSAGES = {"QuotaRecord": "ClientQuotaRecord"}  # since 3.0
GROUP_KEYS = [key for key in schema.family("group_coordinator") if key.name.endswith("Key")]
"""Until 4.0 the record type was the version of such a key."""

RENAMED = {
    ("VoteRequest", "replica_epoch"): "candidate_epoch",  # until KIP-996 only candidates sent it
    ("VoteRequest", "replica_id"): "candidate_id",
    ("VoteRequest", "replica_directory_id"): "candidate_directory_id",
    ("ListConfigResourcesResponse", "config_resources"): "client_metrics_resources",  # all there was in 3.9
    ("ListConfigResourcesResponse", "resource_name"): "name",
    ("TxnOffsetCommitRequest", "generation_id_or_member_epoch"): "generation_id",  # until 4.3
}
"""(message, our name) -> what one of the releases calls the field."""


class Vector(NamedTuple):
    """One instance as Kafka wrote it."""

    message: str
    version: int
    release: str
    raw: bytes
    json: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.message} v{self.version} of {self.release}: {self.raw.hex()}"


class Place(NamedTuple):
    """What we call it."""

    message: Message
    version: int
    draft: Draft | None

    @property
    def layout(self) -> Layout:
        return layout(self.message, self.version, self.draft)


@cache
def vectors() -> dict[str, dict[Place, list[Vector]]]:
    """All of them by the name of our message."""
    result: dict[str, dict[Place, list[Vector]]] = {}
    for line in lzma.decompress(FILE.read_bytes()).splitlines():
        reported = orjson.loads(line)
        raw = bytes.fromhex(reported["bytes"])
        vector = Vector(reported["message"], reported["version"], reported["release"], raw, reported["json"])
        place = place_of(vector.message, vector.version, vector.release)
        result.setdefault(place.message.name, {}).setdefault(place, []).append(vector)
    return result


@cache
def place_of(name: str, version: int, release: str) -> Place:
    """Our message, version and draft."""
    if release < "4.1" and any(key.name == name for key in GROUP_KEYS):
        message = next(key for key in GROUP_KEYS if key.api_key == version)
        version = 0
    else:
        message = _message(name)
    drafts = (draft for draft in message.drafts if version in draft.versions and _had(release, draft))
    return Place(message, version, next(drafts, None))


def _message(name: str) -> Message:
    short = name.removesuffix("Data")
    if short.endswith("Header"):
        return schema.header(short)
    if short.endswith("Request"):
        message = schema.request(find(short.removesuffix("Request")).key)
    elif short.endswith("Response"):
        message = schema.response(find(short.removesuffix("Response")).key)
    else:
        message = schema.embedded(RENAMED_MESSAGES.get(name, name))
    assert message is not None
    return message


def _had(release: str, draft: Draft) -> bool:
    first, _, last = draft.releases.partition("-")
    return first <= release.rpartition(".")[0] <= (last or first)


def body_of(vector: Vector, place: Place) -> Body:
    """What Kafka's JSON says, as our decoder would say it."""
    json = dict(vector.json)
    tags = json.pop("_tags", None)
    body = struct(json, place.layout.fields, place)
    if tags is not None:
        body["_tags"] = {int(tag): bytes.fromhex(raw) for tag, raw in tags.items()}
    return body


def struct(json: dict[str, Any], fields: Sequence[Field], place: Place) -> Body:
    """The same for one struct; neither JSON nor bytes have a tagged field that is at its default."""
    reported = {snake(name): value for name, value in json.items()}
    positional, tagged = split(fields, place.version)
    body = {}
    for field in (*positional, *(field for field in tagged if field.name in reported)):
        name = field.name if field.name in reported else RENAMED[place.message.name, field.name]
        body[field.name] = _field(reported.pop(name), field, place)
    assert not reported, f"{place.layout} has no {', '.join(reported)}"
    return body


def _field(json: Any, field: Field, place: Place) -> Any:
    if json is None:
        return None
    return [_value(each, field, place) for each in json] if field.array else _value(json, field, place)


def _value(json: Any, field: Field, place: Place) -> Any:
    if field.type == "struct":
        return struct(json, field.fields, place)
    if field.type == "bytes":
        return b64decode(json, validate=True)
    if field.type == "records":
        raw = b64decode(json, validate=True)
        return RecordData(raw, 0, len(raw))
    return json


@cache
def snake(name: str) -> str:
    """How the protocol guide spells a Java name; KRaft is one word."""
    return re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name.replace("KR", "Kr").replace("kR", "kr")).lower()
