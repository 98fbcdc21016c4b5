"""An exchange -> its partitions, each with the structs for it in request and response.

    Fetch   request   {partition: 3, fetch_offset: 41, ...}
            response  {partition_index: 3, high_watermark: 57, ...}

Which fields lead to a partition is read from the schema's roles, once per layout. Exchanges that only
describe a cluster, such as Metadata, have none.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.exchanges.content import ERROR, GROUP, PARTITION, RECORDS, TOPIC
from kdissect.kafka.bodies import request_layout, response_layout
from kdissect.kafka.layout import layout as layout_of
from kdissect.kafka.layout import present
from kdissect.kafka.records import RecordData
from kdissect.model import Body
from kdissect.phrases import TopicId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kdissect.kafka.bodies import BodyLayout
    from kdissect.kafka.schema import Field
    from kdissect.model import Exchange

# These describe the cluster: partitions in them are not counted.
_DESCRIBING_APIS = frozenset(
    {
        *("Metadata", "UpdateMetadata", "LeaderAndIsr", "StopReplica", "DescribeTopicPartitions"),
        *("DescribeLogDirs", "DescribeProducers", "DescribeQuorum", "ListPartitionReassignments"),
        *("ConsumerGroupDescribe", "ShareGroupDescribe", "StreamsGroupDescribe", "CreateTopics"),
        *("ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat", "AssignReplicasToDirs"),
    }
)
_NO_STRUCT: Body = {}


class Touched(NamedTuple):
    """A partition, and its structs in both messages.

    Attributes:
        topic: its name, or its ID if the name is unknown.
        topic_id: if the messages have it.
        group: the group that the structs belong to. None if they belong to none.
        request, response: each message's struct. Empty if it has none.
        error: the partition's error code. None if the response has none for it.
        produced, fetched: the records in the request, and in the response.
    """

    topic: str
    topic_id: str | None
    partition: int
    group: str | None
    request: Body
    response: Body
    error: int | None
    produced: RecordData | None
    fetched: RecordData | None

    def value(self, name: str) -> Any:
        """A field of the response, otherwise of the request. None if neither has it."""
        value = self.response.get(name)
        return self.request.get(name) if value is None else value


def touched(exchange: Exchange) -> list[Touched]:
    """The partitions in wire order, those of the request first."""
    if exchange.api in _DESCRIBING_APIS:
        return []
    requested = _structs(request_layout(exchange), exchange.request, exchange.topic_ids)
    responded = _structs(response_layout(exchange), exchange.response, exchange.topic_ids)
    partitions: list[Touched] = []
    for key, (topic_id, struct, _, produced) in requested.items():
        topic, partition, group = key
        other_id, answer, error, fetched = responded.pop(key, _NOTHING)
        both_id = topic_id or other_id
        partitions.append(Touched(topic, both_id, partition, group, struct, answer, error, produced, fetched))
    for (topic, partition, group), (topic_id, struct, error, fetched) in responded.items():
        partitions.append(
            Touched(topic, topic_id, partition, group, _NO_STRUCT, struct, error, None, fetched)
        )
    return partitions


_Key = tuple[str, int, str | None]  # topic, partition, group
_PartitionStruct = tuple[
    str | None, Body, int | None, RecordData | None
]  # topic ID, struct, error code, records
_NOTHING: _PartitionStruct = (None, _NO_STRUCT, None, None)


class _PartitionPlan(NamedTuple):
    """Which fields of a struct describe a partition, and which contain structs that do."""

    topic: str | None
    topic_id: str | None
    group: str | None
    partition: str | None
    error: str | None
    records: str | None
    inner: tuple[tuple[str, bool, _PartitionPlan], ...]


def _structs(
    layout: BodyLayout | None, body: Body | None, names: Mapping[str, str]
) -> dict[_Key, _PartitionStruct]:
    structs: dict[_Key, _PartitionStruct] = {}
    if layout is not None and body is not None and (plan := _plan_of(layout)) is not None:
        _gather(plan, body, names, None, None, None, structs)
    return structs


def _gather(
    plan: _PartitionPlan,
    struct: Body,
    names: Mapping[str, str],
    topic: str | None,
    topic_id: str | None,
    group: str | None,
    structs: dict[_Key, _PartitionStruct],
) -> None:
    if plan.topic is not None:
        topic = struct.get(plan.topic) or topic
    if plan.topic_id is not None and (struct_id := struct.get(plan.topic_id)) is not None:
        topic_id = struct_id
        topic = names.get(struct_id) or topic or TopicId(struct_id)
    if plan.group is not None:
        group = struct.get(plan.group) or group
    if plan.partition is not None and topic is not None and plan.partition in struct:
        error = struct.get(plan.error) if plan.error else None
        records = struct.get(plan.records) if plan.records else None
        known = records if isinstance(records, RecordData) else None
        structs[topic, struct[plan.partition], group] = topic_id, struct, error, known
    for name, array, inner in plan.inner:
        if value := struct.get(name):
            for deeper in value if array else (value,):
                _gather(inner, deeper, names, topic, topic_id, group, structs)


def plans(api: str | None, request: BodyLayout, response: BodyLayout) -> tuple[Any, Any] | None:
    """Where partitions are in two messages; None if there are none."""
    both = (None, None) if api in _DESCRIBING_APIS else (_plan_of(request), _plan_of(response))
    return both if any(both) else None


@cache
def _plan_of(layout: BodyLayout) -> _PartitionPlan | None:
    return _plan(layout_of(*layout).fields, layout.version, is_outermost=True)


def _plan(fields: Sequence[Field], version: int, *, is_outermost: bool) -> _PartitionPlan | None:
    """The plan of a struct. None if neither it nor any struct inside it describes a partition."""
    here = present(fields, version)
    single = {(field.role, field.type): field.name for field in here if not field.array}
    partition = single.get((PARTITION, "int32"))
    deeper = [(field.name, field.array, _plan(field.fields, version, is_outermost=False)) for field in here]
    inner = tuple((name, array, plan) for name, array, plan in deeper if plan is not None)
    if partition is None and not inner:
        return None
    return _PartitionPlan(
        topic=single.get((TOPIC, "string")),
        topic_id=single.get((TOPIC, "uuid")),
        # A group at the top level belongs to the whole exchange. A group further inside applies to one struct
        # (OffsetFetch 8).
        group=None if is_outermost else single.get((GROUP, "string")),
        partition=partition,
        error=next((field.name for field in here if field.role == ERROR and not field.array), None),
        records=next((field.name for field in here if field.type == RECORDS), None),
        inner=inner,
    )
