"""Which versions another implementation has confirmed; all of them Apache Kafka itself (test_vectors.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from kdissect.kafka.schema import Versions
from tests.kafka.oracles.kafka_python import class_versions, is_embedded, our_message, schema_classes
from tests.kafka.oracles.test_kafka_python import RIGHT_OLD_CLASSES
from tests.kafka.random_bodies import cases, rpc_messages

if TYPE_CHECKING:
    from collections.abc import Callable


def rpc_versions() -> set[tuple[str, int]]:
    return {(message.name, version) for message, version, draft in cases(rpc_messages()) if draft is None}


def kio() -> set[tuple[str, int]]:
    names = {(message.api_key, message.kind): message.name for message in rpc_messages()}
    return {
        (names[key, sort.name], version)
        for key, name in api_key_map.items()
        for version, sorts in schema_name_map[name].items()
        for sort in sorts
        if sort in (EntityType.request, EntityType.response)
    }


def kafka_python_schemas() -> set[tuple[str, int]]:
    rpc = (cls for cls in schema_classes() if not is_embedded(cls))
    return {(our_message(cls).name, version) for cls in rpc for version in class_versions(cls)}


def kafka_python_old() -> set[tuple[str, int]]:
    return {(our_message(cls).name, cls.API_VERSION) for cls in RIGHT_OLD_CLASSES}


def test_what_others_confirm(report: Callable[[str], None]) -> None:
    everything = rpc_versions()
    by_kio, by_schemas, by_old = kio(), kafka_python_schemas(), kafka_python_old()
    alone = everything - by_kio - by_schemas - by_old
    confirmed = len(everything - alone)
    report(
        f"request and response versions: {len(everything)}, confirmed by at least one of these: {confirmed}"
    )
    report(f"kio: {len(by_kio)}; kafka-python: {len(by_schemas)}, its old classes: {len(by_old)}")
    report(f"only by Apache Kafka itself: {len(alone)}: {', '.join(_ranges(alone))}")
    assert by_kio | by_schemas | by_old <= everything
    assert (len(everything), len(by_kio), len(by_schemas), len(by_old)) == (736, 604, 478, 270)
    assert len(alone) == 91


def _ranges(result: set[tuple[str, int]]) -> list[str]:
    """One text a message: its name and the first and last of its versions."""
    versions: dict[str, list[int]] = {}
    for name, version in sorted(result):
        versions.setdefault(name, []).append(version)
    return [f"{name} {Versions(numbers[0], numbers[-1])}" for name, numbers in versions.items()]
