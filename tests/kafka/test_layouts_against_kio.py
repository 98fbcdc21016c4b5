"""Our layouts against those of kio, which are generated from Kafka's own schema files."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from kio.index import load_entity_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from kdissect.kafka import schema
from kdissect.kafka.apis import all_apis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.kafka.schema import Message

# kio's type -> the wire's.
WIRE_TYPES = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
NULLABLE = ("string", "bytes", "records")

# kio splits words at every capital; one name for two fields is Kafka's own.
RENAMED = {
    "kraft_version": "k_raft_version",
    "kraft_version_feature": "k_raft_version_feature",
    "acceptable_recovery_lag_legacy": "acceptable_recovery_lag",
    "generation_id_or_member_epoch": "generation_id",  # of TxnOffsetCommit until Kafka 4.3
}

Layout = list[tuple[str, str, bool, bool, int | None, "Layout"]]
"""(name, type, array, nullable, tag, struct) in the order of the bytes, tagged fields by tag."""


def ours(result: tuple[schema.Field, ...], version: int) -> Layout:
    layout = []
    for field in result:
        if version in field.versions:
            null = field.nullable is not None and version in field.nullable
            kind = field.type.replace("string16", "string")
            layout.append((field.name, kind, field.array, null, field.tag, ours(field.fields, version)))
    return in_byte_order(layout)


def theirs(entity: type) -> Layout:
    layout = []
    for field in fields(entity):
        kind, null = without_none(field.type)
        array = get_origin(kind) is tuple
        if array:
            kind = get_args(kind)[0]
            kind, _ = without_none(kind)
        inner: Layout = []
        if is_dataclass(kind):
            name, inner = "struct", theirs(kind)
        else:
            name = field.metadata["kafka_type"]
            # kio turns a zero uuid and a timestamp of -1 into None: that is no null on the wire.
            null = null and (array or name in NULLABLE)
        tag = field.metadata.get("tag")
        layout.append((field.name, WIRE_TYPES.get(name, name), array, null, tag, inner))
    return in_byte_order(layout)


def without_none(kind: Any) -> tuple[Any, bool]:
    """Take ``X | None`` apart."""
    if get_origin(kind) is UnionType and NoneType in get_args(kind):
        return next(arg for arg in get_args(kind) if arg is not NoneType), True
    return kind, False


def in_byte_order(layout: Layout) -> Layout:
    return sorted(layout, key=lambda field: -1 if field[4] is None else field[4])


def same_name(mine: str, other: str) -> bool:
    """kio drops units, for it has types of time, and keeps away from Python's own words."""
    ours = {name.removesuffix("_ms") for name in (mine, RENAMED.get(mine, mine))}
    return other.removesuffix("_ms").rstrip("_") in ours


def differences(mine: Layout, other: Layout, path: str) -> list[str]:
    if [field[1:5] for field in mine] != [field[1:5] for field in other]:
        return [f"{path}: {[field[:5] for field in mine]}, kio: {[field[:5] for field in other]}"]
    result = []
    for own, field in zip(mine, other, strict=True):
        if not same_name(own[0], field[0]):
            result.append(f"{path}.{own[0]}, kio: {field[0]}")
        result += differences(own[5], field[5], f"{path}.{own[0]}")
    return result


def kio_entities() -> Iterator[tuple[Message, int, Any]]:
    for name, versions in schema_name_map.items():
        for version, entities in versions.items():
            for kind in entities:
                entity: Any = load_entity_schema(name, version, kind)
                yield message_of(kind, entity), version, entity


def message_of(kind: EntityType, entity: Any) -> Message:
    if kind is EntityType.header:
        return schema.header(entity.__name__)
    if kind is EntityType.data:
        return schema.embedded(entity.__name__)
    message = schema.request(entity.__api_key__)
    if kind is EntityType.response:
        message = schema.response(entity.__api_key__)
    assert message is not None
    return message


def test_every_layout_of_kio_is_ours() -> None:
    compared: Counter[str] = Counter()
    result = []
    for message, version, entity in kio_entities():
        result += differences(ours(message.fields, version), theirs(entity), f"{message.name} v{version}")
        compared[message.kind] += 1
    assert result == []
    assert compared == {"request": 302, "response": 302, "header": 4, "data": 17}


def test_flexible_versions_and_headers_agree() -> None:
    for message, version, entity in kio_entities():
        assert message.is_flexible(version) == entity.__flexible__, f"{message.name} v{version}"
        if message.kind in ("request", "response"):
            # Header versions: requests 2 when flexible, else 1; responses 1 when flexible, else 0.
            header = int(message.is_flexible(version)) + (message.kind == "request")
            if message.name == "ApiVersionsResponse":
                header = 0
            assert entity.__header_schema__.__version__ == header, f"{message.name} v{version}"


def test_what_kio_does_not_have_is_what_kafka_4_removed_or_4_4_brought() -> None:
    missing = Counter(
        "removed" if version in api.removed else api.introduced[version]
        for api in all_apis()
        for version in range(api.versions.first, api.versions.last + 1)
        if version not in schema_name_map.get(api_key_map.get(api.key, ""), {})
    )
    print(f"(api, version) pairs without kio's judgement: {dict(missing)}")  # noqa: T201
    assert set(missing) <= {"removed", "4.4"}
    assert sum(missing.values()) == 368 - 302
