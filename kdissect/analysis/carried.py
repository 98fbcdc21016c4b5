"""Exchange -> the record data in it, and each record with what the messages around it tell. Holds one batch.

Records travel in Produce requests, and in the responses of Fetch, ShareFetch and FetchSnapshot. Where in a
message they stand is told by the schema: the field's type, the roles of the fields beside and above it. The
way there is worked out once for each layout.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.analysis.content import PARTITION, RECORDS, TOPIC
from kdissect.kafka.batches import read_records
from kdissect.kafka.bodies import request_layout, response_layout
from kdissect.kafka.internal.topics import CLUSTER_METADATA, CLUSTER_METADATA_ID, open_record
from kdissect.kafka.layout import layout as layout_of
from kdissect.kafka.layout import split
from kdissect.limits import DEFAULT
from kdissect.model import Embedded, Withheld

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kdissect.kafka.batches import Batch
    from kdissect.kafka.bodies import Layout
    from kdissect.kafka.internal.control import Control
    from kdissect.kafka.internal.topics import Payload
    from kdissect.kafka.recordbatch import Headers, Record
    from kdissect.kafka.records import RecordData
    from kdissect.kafka.schema import Field
    from kdissect.limits import Limits
    from kdissect.model import Body, Exchange

REQUEST, RESPONSE = "request", "response"
FETCH_SNAPSHOT = 59

_NO_TOPIC_ID = "A" * 22
_BASE_OFFSET = "base_offset"
_OWN_KEYS = ("_left_over", "_tags")


class Carried(NamedTuple):
    """Record data of one partition.

    Attributes:
        exchange: that carried it.
        produced: whether a client sent it; else a broker did.
        topic: its name, None where the capture has not taught it.
        topic_id: None where the message has none.
        partition: None where the message ends before it.
        records: not opened yet.
        base_offset: the first record's, as the response to a Produce tells; None where it does not.
        aborted: ``aborted_transactions`` of a Fetch response; None: it does not tell.
    """

    exchange: Exchange
    produced: bool
    topic: str | None
    topic_id: str | None
    partition: int | None
    records: RecordData
    base_offset: int | None = None
    aborted: Sequence[Mapping[str, int]] | None = None

    @property
    def names(self) -> list[str]:
        """What the topic can be called: its name, its id."""
        return [name for name in (self.topic, self.topic_id) if name]


class CarriedRecord(NamedTuple):
    """One record with all that is told about it.

    Attributes:
        carried: the exchange and the partition.
        batch: what it shares with others.
        record: as in the batch; of one in Kafka's own topics ``key`` and ``value`` say more.
        offset: absolute; None for a Produce whose response is not there or refuses, and in a snapshot.
        key, value, headers: as they may be shown.
        control: ``COMMIT``, ``ABORT`` ...: what a control record marks, None for any other.
    """

    carried: Carried
    batch: Batch
    record: Record
    offset: int | None
    key: Payload
    value: Payload
    headers: Headers
    control: str | None = None


def carried(exchange: Exchange) -> Iterator[Carried]:
    """The record data of an exchange in wire order, nulls left out."""
    request, response = request_layout(exchange), response_layout(exchange)
    if request is not None and exchange.request is not None and (plan := _plan_of(request, RECORDS)):
        offsets = _base_offsets(exchange)
        for place in _places(plan, exchange.request):
            base_offset = offsets.get((place.topic or place.topic_id, place.partition))
            yield _carried(exchange, place, produced=True, base_offset=base_offset)
    if response is not None and exchange.response is not None and (plan := _plan_of(response, RECORDS)):
        for place in _places(plan, exchange.response):
            # What follows the first slice of a snapshot begins anywhere, also inside a batch.
            if not (exchange.api_key == FETCH_SNAPSHOT and place.struct.get("position")):
                aborted = place.struct.get("aborted_transactions")
                yield _carried(exchange, place, produced=False, aborted=aborted)


def open_carried(
    found: Carried, limits: Limits = DEFAULT, *, show_secrets: bool = False
) -> Iterator[tuple[Batch, Iterator[CarriedRecord]]]:
    """Open record data batch by batch; the batch's anomalies say what could not be read."""
    where = REQUEST if found.produced else RESPONSE
    batches = read_records(
        found.records, limits, base_offset=found.base_offset, aborted=found.aborted, where=where
    )
    for batch in batches:
        yield batch, _records(found, batch, show_secrets=show_secrets)


def _carried(exchange: Exchange, place: _Place, **told: Any) -> Carried:
    topic_id = place.topic_id
    name = place.topic or (None if topic_id is None else exchange.topic_names.get(topic_id))
    return Carried(
        exchange=exchange,
        topic=name,
        topic_id=topic_id,
        partition=place.partition,
        records=place.value,
        **told,
    )


def _base_offsets(exchange: Exchange) -> dict[tuple[str | None, int | None], int]:
    """Of each partition whose records the broker took, the first record's offset."""
    layout = response_layout(exchange)
    plan = None if layout is None else _plan_of(layout, _BASE_OFFSET)
    if plan is None or exchange.response is None:
        return {}
    return {
        (place.topic or place.topic_id, place.partition): place.value
        for place in _places(plan, exchange.response)
        if place.value >= 0 and not place.struct.get("error_code")
    }


# --- records ------------------------------------------------------------------------------------------------


def _records(found: Carried, batch: Batch, *, show_secrets: bool) -> Iterator[CarriedRecord]:
    # A snapshot counts its records from 0, whatever offsets they had in the log (KIP-630).
    is_in_log = found.exchange.api_key != FETCH_SNAPSHOT
    is_told = is_in_log and (not found.produced or found.base_offset is not None)
    # Where nobody can tell the topic, it can be the one with credentials; FetchSnapshot has no other.
    topic = next(iter(found.names), CLUSTER_METADATA) if is_in_log else CLUSTER_METADATA
    withholds = not show_secrets and topic in (CLUSTER_METADATA, CLUSTER_METADATA_ID)
    controls = batch.controls
    for index, record in enumerate(batch.records):
        control = controls[index] if index < len(controls) else None
        if control is not None:
            key, value = _marked(control, withholds=withholds)
        else:
            key, value = open_record(topic, record.key, record.value, show_secrets=show_secrets)
            if withholds and isinstance(key, bytes):  # brokers write none there
                key = Withheld(len(key))
        yield CarriedRecord(
            carried=found,
            batch=batch,
            record=record,
            offset=record.offset if is_told else None,
            key=key,
            value=value,
            # Brokers write no headers there, and damage can put anything in their place.
            headers=() if withholds else record.headers,
            control=None if control is None else control.type or "unknown",
        )


def _marked(control: Control, *, withholds: bool) -> tuple[Payload, Payload]:
    """Key and value of a control record; what is not what its type says may be anything."""
    if not withholds:
        return control.key, control.value
    return _known(control.key), _known(control.value)


def _known(payload: bytes | Embedded | None) -> Payload:
    match payload:
        case None:
            return None
        case Embedded(bytes(data), decoded):
            odd = any(key in decoded for key in _OWN_KEYS)
            return Withheld(len(data)) if odd else Embedded(Withheld(len(data)), decoded)
        case bytes():
            return Withheld(len(payload))
        case _:
            return payload


# --- the way to them ----------------------------------------------------------------------------------------


class _Plan(NamedTuple):
    """What a struct says about the value looked for, by field name, and which of its fields lead to it."""

    topic: str | None
    topic_id: str | None
    partition: str | None
    values: tuple[str, ...]
    inner: tuple[tuple[str, bool, _Plan], ...]


class _Place(NamedTuple):
    """A value that was found, the struct that has it, and what stands around it."""

    topic: str | None
    topic_id: str | None
    partition: int | None
    struct: Body
    value: Any


def _places(
    plan: _Plan,
    struct: Body,
    topic: str | None = None,
    topic_id: str | None = None,
    partition: int | None = None,
) -> Iterator[_Place]:
    if plan.topic is not None:
        topic = struct.get(plan.topic) or topic
    if plan.topic_id is not None and (found := struct.get(plan.topic_id)) != _NO_TOPIC_ID:
        topic_id = found or topic_id
    if plan.partition is not None:
        partition = struct.get(plan.partition, partition)
    for name in plan.values:
        if (value := struct.get(name)) is not None:
            yield _Place(topic, topic_id, partition, struct, value)
    for name, array, inner in plan.inner:
        if (value := struct.get(name)) is not None:
            for deeper in value if array else (value,):
                yield from _places(inner, deeper, topic, topic_id, partition)


@cache
def _plan_of(layout: Layout, wanted: str) -> _Plan | None:
    return _plan(layout_of(*layout).fields, layout.version, wanted)


def _plan(fields: Sequence[Field], version: int, wanted: str) -> _Plan | None:
    """The plan of a struct, None where it does not lead to the type or name that is wanted."""
    positional, tagged = split(fields, version)
    present = [*positional, *tagged]
    values = tuple(field.name for field in present if wanted in (field.type, field.name))
    deeper = [(field.name, field.array, _plan(field.fields, version, wanted)) for field in present]
    inner = tuple((name, array, plan) for name, array, plan in deeper if plan is not None)
    if not values and not inner:
        return None
    single = {(field.role, field.type): field.name for field in present if not field.array}
    return _Plan(
        topic=single.get((TOPIC, "string")),
        topic_id=single.get((TOPIC, "uuid")),
        partition=single.get((PARTITION, "int32")),
        values=values,
        inner=inner,
    )
