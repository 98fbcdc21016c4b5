"""A decoded body -> the same body, in which bytes that are messages themselves have become ``Embedded``.

The schema's role tells what may be inside (``subscription``, ``telemetry``, the name of a message), the
structs around the bytes tell the rest: the group's protocol, how metrics are compressed. Bytes that are
something else stay bytes. Holds nothing but which fields lead to such bytes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from kdissect.kafka import schema
from kdissect.kafka.internal import telemetry
from kdissect.kafka.internal.groups import UNKNOWN, GroupProtocol, GroupProtocols
from kdissect.kafka.internal.prefix import Opened, read, read_self_versioned, read_versioned
from kdissect.limits import DEFAULT
from kdissect.model import Anomaly, Embedded

if TYPE_CHECKING:
    from kdissect.kafka.primitives import DecodeBudget
    from kdissect.kafka.schema import Field, Message
    from kdissect.limits import Limits
    from kdissect.model import Body, Exchange

_SUBSCRIPTION, _ASSIGNMENT, _SUBSCRIPTION_DATA, _ASSIGNMENT_DATA = schema.GROUP_ROLES
_TELEMETRY = "telemetry"

CONSUMER, CONNECT = "consumer", "connect"

_OF_MEMBERS = {
    (CONSUMER, _SUBSCRIPTION): "ConsumerProtocolSubscription",
    (CONSUMER, _ASSIGNMENT): "ConsumerProtocolAssignment",
    (CONNECT, _SUBSCRIPTION): "ConnectWorkerMetadata",
    (CONNECT, _ASSIGNMENT): "ConnectAssignment",
}

_STICKY, _COOPERATIVE, _STREAMS = "sticky", "cooperative-sticky", "stream"
_STREAMS_DATA = {_SUBSCRIPTION_DATA: "SubscriptionInfoData", _ASSIGNMENT_DATA: "StreamsAssignmentInfo"}


class Context(NamedTuple):
    """What the surroundings of bytes say about them.

    Attributes:
        protocol: of the group that they are about.
        compression_type: number of the codec that packed them.
        limits: bounds on what may come out of them.
        budget: what all of it may take in memory; None: each as much as the messages of an exchange.
    """

    protocol: GroupProtocol = UNKNOWN
    compression_type: int = 0
    limits: Limits = DEFAULT
    budget: DecodeBudget | None = None

    def within(self, struct: Body) -> Context:
        """The same inside a struct, which may say more."""
        compression_type = struct.get("compression_type", self.compression_type)
        return Context(self.protocol.within(struct), compression_type, self.limits, self.budget)


def open_payloads(
    exchange: Exchange,
    protocols: GroupProtocols | None = None,
    limits: Limits = DEFAULT,
    budget: DecodeBudget | None = None,
) -> list[Anomaly]:
    """Open what is inside the bodies of a decoded exchange, in place.

    Args:
        exchange: with its bodies and layouts.
        protocols: what earlier exchanges told about groups; learns from this one.
        limits: bounds on what comes out.
        budget: what is left of the one that the bodies were decoded with.

    Returns:
        What could not be opened though it should.
    """
    anomalies: list[Anomaly] = []
    asked, answered = exchange.request_layout, exchange.response_layout
    if not ((asked and carries_payloads(asked.message)) or (answered and carries_payloads(answered.message))):
        return anomalies  # as most apis
    protocol = (GroupProtocols(limits) if protocols is None else protocols).learn(exchange)
    for where, body, layout in (
        ("request", exchange.request, exchange.request_layout),
        ("response", exchange.response, exchange.response_layout),
    ):
        if body is not None and layout is not None and carries_payloads(layout.message):
            context = Context(protocol, limits=limits, budget=budget)
            anomalies += open_body(layout.message, body, context, where)
    return anomalies


def open_body(message: Message, body: Body, context: Context, where: str) -> list[Anomaly]:
    """The same for one body; ``where`` is what the paths of anomalies begin with."""
    anomalies: list[Anomaly] = []
    if carries_payloads(message):
        _open(message.fields, body, context, where, anomalies)
    return anomalies


@cache
def carries_payloads(message: Message) -> bool:
    """Whether any version of the message has bytes that can be opened."""
    return any(map(_leads_to_payload, message.fields))


def decode_payload(role: str, data: bytes, context: Context) -> Embedded | None:
    """Decode the bytes of a field with this role, and what is inside them; None where they are something
    else.
    """
    return _decode(role, data, context, "", [])


@cache
def _leads_to_payload(field: Field) -> bool:
    return _is_payload(field.role) or any(map(_leads_to_payload, field.fields))


def _is_payload(role: str | None) -> bool:
    return role is not None and (role in (*schema.GROUP_ROLES, _TELEMETRY) or role[0].isupper())


def _open(
    fields: tuple[Field, ...], body: Body, context: Context, where: str, anomalies: list[Anomaly]
) -> None:
    inner = context.within(body)
    for field in fields:
        value = body.get(field.name)
        if not value or not _leads_to_payload(field):
            continue
        path = f"{where}.{field.name}" if where else field.name
        if field.fields:
            for struct in value if field.array else (value,):
                _open(field.fields, struct, inner, path, anomalies)
        elif isinstance(value, bytes):
            assert field.role is not None
            body[field.name] = _decode(field.role, value, inner, path, anomalies) or value


def _decode(
    role: str, data: bytes, context: Context, where: str, anomalies: list[Anomaly]
) -> Embedded | None:
    if role == _TELEMETRY:
        metrics = telemetry.decode(data, context.compression_type, context.limits)
        if isinstance(metrics, Anomaly):
            anomalies.append(metrics._replace(where=where))
            return None
        return Embedded(data, metrics)
    opened = _opened(role, data, context.protocol, context.budget)
    if opened is None:
        if (message := _expected(role, context.protocol)) is not None:
            anomalies.append(Anomaly("malformed_payload", where, f"{len(data)} bytes are no {message}"))
        return None
    _open(opened.message.fields, opened.body, context, where, anomalies)
    return Embedded(data, opened.body)


def _expected(role: str, protocol: GroupProtocol) -> str | None:
    """The message that the bytes cannot but be. User data and principals are anybody's own: None."""
    return _OF_MEMBERS.get((protocol.type or "", role))


def _opened(role: str, data: bytes, protocol: GroupProtocol, budget: DecodeBudget | None) -> Opened | None:
    if role in (_SUBSCRIPTION, _ASSIGNMENT):
        return _of_member(role, data, protocol, budget)
    if role not in (_SUBSCRIPTION_DATA, _ASSIGNMENT_DATA):
        return read_versioned(schema.embedded(role), data, budget=budget)
    if protocol.name == _STREAMS:
        return read_self_versioned(schema.embedded(_STREAMS_DATA[role]), data, budget)
    if protocol.name == _STICKY:
        return _sticky(data, budget)
    if protocol.name == _COOPERATIVE:
        # librdkafka sends what it sends for sticky, and hands it out again with assignments.
        generation = schema.embedded("CooperativeStickyAssignorUserData")
        return read(generation, 0, data, exact=True, budget=budget) or _sticky(data, budget)
    return None


def _sticky(data: bytes, budget: DecodeBudget | None) -> Opened | None:
    """No version stands in front, so Kafka tries them; kafka-python 3 puts one there."""
    message = schema.embedded("StickyAssignorUserData")
    for version in (1, 0):
        if opened := read(message, version, data, exact=True, budget=budget):
            return opened
    return read_versioned(message, data, exact=True, budget=budget)


def _of_member(role: str, data: bytes, protocol: GroupProtocol, budget: DecodeBudget | None) -> Opened | None:
    """What a member says or is told; where nobody said in which protocol, only what is a consumer's to the
    last byte.
    """
    name = _OF_MEMBERS.get((protocol.type or CONSUMER, role))
    if name is None:
        return None
    known = protocol.type is not None
    newest = known and protocol.type == CONSUMER
    return read_versioned(schema.embedded(name), data, newest=newest, exact=not known, budget=budget)
