"""Layout -> where values of a type or name stand in its bodies, and which topic and partition they are about.

What is around a value is told by roles of the schema; the way there is worked out once for each layout and
kept.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.analysis.content import PARTITION, TOPIC
from kdissect.kafka.layout import layout as layout_of
from kdissect.kafka.layout import present

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.kafka.bodies import Layout
    from kdissect.kafka.schema import Field
    from kdissect.model import Body

_NO_TOPIC_ID = "A" * 22


class Plan(NamedTuple):
    """What a struct says about the value looked for, by field name, and which of its fields lead to it."""

    topic: str | None
    topic_id: str | None
    partition: str | None
    values: tuple[str, ...]
    inner: tuple[tuple[str, bool, Plan], ...]


class Place(NamedTuple):
    """A value that was found, the struct that has it, and what stands around it."""

    topic: str | None
    topic_id: str | None
    partition: int | None
    struct: Body
    value: Any


def places(
    plan: Plan,
    struct: Body,
    topic: str | None = None,
    topic_id: str | None = None,
    partition: int | None = None,
) -> Iterator[Place]:
    """Find the values that are there, in wire order; topic and partition are those around the struct."""
    if plan.topic is not None:
        topic = struct.get(plan.topic) or topic
    if plan.topic_id is not None and (found := struct.get(plan.topic_id)) != _NO_TOPIC_ID:
        topic_id = found or topic_id
    if plan.partition is not None:
        partition = struct.get(plan.partition, partition)
    for name in plan.values:
        if (value := struct.get(name)) is not None:
            yield Place(topic, topic_id, partition, struct, value)
    for name, array, inner in plan.inner:
        if (value := struct.get(name)) is not None:
            for deeper in value if array else (value,):
                yield from places(inner, deeper, topic, topic_id, partition)


@cache
def plan_of(layout: Layout, wanted: str) -> Plan | None:
    """The way to the fields of a type or name; None where the layout has none."""
    return _plan(layout_of(*layout).fields, layout.version, wanted)


def _plan(fields: Sequence[Field], version: int, wanted: str) -> Plan | None:
    """The plan of a struct, None where it does not lead to the type or name that is wanted."""
    here = present(fields, version)
    values = tuple(field.name for field in here if wanted in (field.type, field.name))
    deeper = [(field.name, field.array, _plan(field.fields, version, wanted)) for field in here]
    inner = tuple((name, array, plan) for name, array, plan in deeper if plan is not None)
    if not values and not inner:
        return None
    single = {(field.role, field.type): field.name for field in here if not field.array}
    return Plan(
        topic=single.get((TOPIC, "string")),
        topic_id=single.get((TOPIC, "uuid")),
        partition=single.get((PARTITION, "int32")),
        values=values,
        inner=inner,
    )
