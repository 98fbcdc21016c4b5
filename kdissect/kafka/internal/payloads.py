"""A decoded body -> the same body, in which bytes that are messages themselves have become ``Embedded``.

The schema's role says what may be inside (``subscription``, ``telemetry``, the name of a message). The
structs around the bytes have the rest: the group's protocol, the compression of metrics. Other bytes stay
bytes. Holds only the paths of such fields.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.errors import DecodeError, SchemaError
from kdissect.kafka import primitives, schema
from kdissect.kafka.compiler import decoder
from kdissect.kafka.compression import inflate
from kdissect.kafka.primitives import DecodeBudget
from kdissect.kafka.walker import walk
from kdissect.limits import DEFAULT
from kdissect.model import Anomaly, Embedded
from kdissect.names import Recent

if TYPE_CHECKING:
    from kdissect.kafka.schema import Draft, Field, Message
    from kdissect.limits import Limits
    from kdissect.model import Body, ConnectionKey, Exchange


# ------------------------------------------------------------------------------------------------------------
# JoinGroup exchanges -> the protocol of each classic group, in which its members' bytes are encoded.
#
# Holds a type and a name for each (connection, group) that joined last, at most ``limits.group_protocols`` of
# them. Above that, the one that joined first is evicted. A member joins and synchronizes on the
# connection to its group's coordinator, so nothing is lost by keeping connections apart.
# ------------------------------------------------------------------------------------------------------------


JOIN_GROUP, SYNC_GROUP = 11, 14

FOLLOWED = (
    ("group_id", "protocol_type", "protocol_name", "protocols", "name"),
    ("protocol_type", "protocol_name"),
)
"""Fields of both, and of structs in them, from which the protocol of a group is known."""

_NAMES = ("protocol_name", "protocol_data", "protocol", "name")  # in different messages


class GroupProtocol(NamedTuple):
    """The protocol of a classic group.

    Attributes:
        type: ``consumer``, ``connect``, or another that its members agreed on. None: unknown.
        name: of the assignor, or of Connect's protocol. None: unknown.
    """

    type: str | None = None
    name: str | None = None

    def within(self, struct: Body) -> GroupProtocol:
        """The same, overridden by the fields of a struct."""
        name = next((struct[key] for key in _NAMES if struct.get(key)), None)
        return GroupProtocol(struct.get("protocol_type") or self.type, name or self.name)


UNKNOWN = GroupProtocol()


class GroupProtocols:
    """The protocols of groups whose JoinGroup was captured."""

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._known: Recent[tuple[str, int, str], GroupProtocol] = Recent(limits.group_protocols)

    def learn(self, exchange: Exchange) -> GroupProtocol:
        """Remember the protocol of a decoded JoinGroup. Returns what is known about the exchange's group."""
        request, response = exchange.request or {}, exchange.response or {}
        return self._learn(exchange.connection.key, exchange.api_key, request, response)

    def follow(self, connection: ConnectionKey, api_key: int, request: Body, response: Body) -> bool:
        """Learn from an exchange that is not decoded, only its ``FOLLOWED`` fields are. Returns whether its
        members are consumers.
        """
        known = self._learn(connection, api_key, request, response).type
        types = request.get("protocol_type") or known, response.get("protocol_type") or known
        return types == (CONSUMER, CONSUMER)

    def _learn(
        self, connection: ConnectionKey, api_key: int | None, request: Body, response: Body
    ) -> GroupProtocol:
        group = request.get("group_id")
        if api_key == JOIN_GROUP:
            protocol = joined(request, response)
            if isinstance(group, str):
                self._known.keep((*connection, group), protocol)
            return protocol
        return self.lookup(connection, group)

    def known_to(self, exchange: Exchange) -> GroupProtocols:
        """What is known about the group of a decoded exchange, whatever is learned later."""
        protocols, group = GroupProtocols(), (exchange.request or {}).get("group_id")
        if isinstance(group, str) and (known := self.lookup(exchange.connection.key, group)) != UNKNOWN:
            protocols._known.keep((*exchange.connection.key, group), known)
        return protocols

    def lookup(self, connection: ConnectionKey, group: str | None) -> GroupProtocol:
        """What is known about a group, by the connection on which it was joined."""
        return UNKNOWN if group is None else self._known.find((*connection, group)) or UNKNOWN


def joined(request: Body, response: Body) -> GroupProtocol:
    """The protocol of a JoinGroup: the response has its name, and since version 7 its type."""
    offered = request.get("protocols") or []
    only = offered[0].get("name") if len(offered) == 1 else None
    return GroupProtocol(request.get("protocol_type"), only).within(response)


# ------------------------------------------------------------------------------------------------------------
# Bytes of an embedded message -> its body, by the kind of prefix. Holds nothing.
#
#     v16     int16 version, body
#     type16  int16 record type, body in version 0: keys of the coordinators' topics
#     frame   uvarint frame version, uvarint record type, uvarint version, body (KIP-631)
#     self    the body, whose first field is the version: int16 or int32
#     none    the body: the reader has to know the version, or try them
#
# A decoded body begins with two keys of ours: ``_message``, its name in the schema, and ``_version``, as in
# the prefix. Layouts of pre-releases are tried if the final one does not end with the bytes. Then ``_draft``
# names the releases.
# ------------------------------------------------------------------------------------------------------------


_INT16 = Struct(">h")
_INT32 = Struct(">i")
_FRAME_VERSIONS = (0, 1)  # 0 only in 2.8


class DecodedPayload(NamedTuple):
    """A decoded embedded message.

    Attributes:
        message: its schema, with the fields of the layout that fit.
        body: decoded, after ``_message`` and ``_version``.
        missing: names of the last fields, if the bytes end before them.
    """

    message: Message
    body: Body
    missing: tuple[str, ...] = ()


def read(
    message: Message,
    version: int,
    data: bytes,
    pos: int = 0,
    *,
    declared_version: int | None = None,
    exact: bool = False,
    partial: bool = False,
    budget: DecodeBudget | None = None,
) -> DecodedPayload | None:
    """Decode a body. None if no layout of the version fits.

    Args:
        message: the expected schema.
        version: of the layout.
        data: prefix and body.
        pos: where the body begins.
        declared_version: the version in the prefix, if the layout is of an older one.
        exact: reject bytes after the body. Otherwise they become ``_trailing``.
        partial: accept bytes that end before one of its fields, but not before the first or inside of one.
        budget: memory for the body. None: the default for an exchange.
    """
    budget = budget or DecodeBudget()
    if version not in message.versions:
        return None
    rest: tuple[Body, int] | None = None
    for draft in (None, *(draft for draft in message.drafts if version in draft.versions)):
        try:
            body, end = decoder(message, version, draft)(data, pos, budget)
        except DecodeError:
            continue
        if end == len(data):
            return _decoded_payload(
                message, version if declared_version is None else declared_version, draft, body
            )
        if draft is None:
            rest = body, end
    missing: tuple[str, ...] = ()
    if rest is not None and not exact:
        body, end = rest
        body["_trailing"] = data[end:]
    elif partial:
        walked = walk(message, version, data, pos, budget=budget, max_spans=None)
        names = [field.name for field in message.fields if version in field.versions]
        missing = tuple(names[len(walked.value) :])
        ends_early = walked.end == len(data) and walked.value and missing
        if not ends_early or walked.error is None or walked.error.path != missing[0]:
            return None
        body = walked.value
    else:
        return None
    decoded = _decoded_payload(message, version if declared_version is None else declared_version, None, body)
    return decoded._replace(missing=missing)


def read_versioned(
    message: Message,
    data: bytes,
    *,
    newest: bool = False,
    exact: bool = False,
    partial: bool = False,
    budget: DecodeBudget | None = None,
) -> DecodedPayload | None:
    """Decode v16. With ``newest``, versions above the newest known one are assumed to append fields to it."""
    if len(data) < _INT16.size:
        return None
    declared_version: int = _INT16.unpack_from(data)[0]
    version = min(declared_version, message.versions.last) if newest else declared_version
    return read(
        message,
        version,
        data,
        _INT16.size,
        declared_version=declared_version,
        exact=exact,
        partial=partial,
        budget=budget,
    )


def read_self_versioned(
    message: Message, data: bytes, budget: DecodeBudget | None = None
) -> DecodedPayload | None:
    """Decode a body that begins with its version."""
    prefix = _INT32 if message.fields[0].type == "int32" else _INT16
    if len(data) < prefix.size:
        return None
    return read(message, prefix.unpack_from(data)[0], data, budget=budget)


def read_key(family: str, data: bytes) -> DecodedPayload | None:
    """Decode type16."""
    message = key_message(family, record_type(data))
    return None if message is None else read(message, 0, data, _INT16.size)


def record_type(key: bytes) -> int:
    """The record type in a coordinator's key. -1 if the key is too short."""
    return int(_INT16.unpack_from(key)[0]) if len(key) >= _INT16.size else -1


def read_frame(family: str, data: bytes) -> DecodedPayload | None:
    """Decode frame, to its last byte."""
    try:
        frame_version, pos = _uvarint(data, 0)
        kind, pos = _uvarint(data, pos)
        version, pos = _uvarint(data, pos)
    except (IndexError, DecodeError):
        return None
    message = _by_type(family, "").get(kind)
    if message is None or frame_version not in _FRAME_VERSIONS:
        return None
    return read(message, version, data, pos, exact=True)


def key_message(family: str, kind: int) -> Message | None:
    """The schema of a coordinator's keys of a record type."""
    return _by_type(family, "Key").get(kind)


def value_message(family: str, kind: int) -> Message | None:
    """The schema of a coordinator's values of a record type."""
    return _by_type(family, "Value").get(kind)


def layout_of(body: Body) -> tuple[Message, int] | None:
    """The layout of a body decoded here, in the newest known version if the prefix has a newer one. None for
    other bodies.
    """
    try:
        message = schema.embedded(body.get("_message", ""))
    except SchemaError:
        return None
    version = min(body["_version"], message.versions.last)
    drafts = (draft for draft in message.drafts if draft.releases == body.get("_draft"))
    return next((_as_drafted(message, draft) for draft in drafts), message), version


@cache
def _by_type(family: str, ending: str) -> dict[int, Message]:
    messages = (message for message in schema.family(family) if message.name.endswith(ending))
    return {message.api_key: message for message in messages if message.api_key is not None}


def _uvarint(data: bytes, pos: int) -> tuple[int, int]:
    first = data[pos]
    return (first, pos + 1) if first < 0x80 else primitives.uvarint(data, pos + 1, first)


def _decoded_payload(message: Message, version: int, draft: Draft | None, body: Body) -> DecodedPayload:
    own: Body = {"_message": message.name, "_version": version}
    if draft is not None:
        own["_draft"] = draft.releases
        message = _as_drafted(message, draft)
    return DecodedPayload(message, own | body)


@cache
def _as_drafted(message: Message, draft: Draft) -> Message:
    """The message with a draft's fields, so that roles, such as those of credentials, are found there."""
    return replace(message, fields=draft.fields)


# ------------------------------------------------------------------------------------------------------------
# Metrics that a client pushes (KIP-714) -> a body: OpenTelemetry's MetricsData as protobuf decodes it.
#
# Needs the package opentelemetry-proto. Without it the bytes stay bytes. Names are those of the .proto files,
# enumerations are shown by name, unset fields are omitted. Holds nothing. At most ``limits.telemetry_bytes``
# are decompressed at a time.
# ------------------------------------------------------------------------------------------------------------


NAME = "MetricsData"


def decode(data: bytes, compression_type: int, limits: Limits) -> Body | Anomaly:
    """Decode the metrics of one push. An anomaly says why it failed."""
    if (protobuf := _protobuf()) is None:
        return Anomaly("unread_telemetry", "", f"{len(data)} bytes")
    plain, fault, _ = inflate(compression_type, data, limits.telemetry_bytes)
    if fault is not None:
        return Anomaly("malformed_payload", "", f"metrics: {fault.reason}")
    metrics = protobuf.metrics_data()
    try:
        metrics.ParseFromString(plain)
    except protobuf.fault as error:
        return Anomaly("malformed_payload", "", f"metrics: {error}")
    return {"_message": NAME} | _body(metrics)


class _Protobuf(NamedTuple):
    metrics_data: Any
    fault: type[Exception]


@cache
def _protobuf() -> _Protobuf | None:
    try:
        from google.protobuf.message import DecodeError as Fault
        from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
    except ImportError:
        return None
    return _Protobuf(MetricsData, Fault)


def _body(message: Any) -> Body:
    return {
        field.name: [_value(field, item) for item in value] if field.is_repeated else _value(field, value)
        for field, value in message.ListFields()
    }


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _body(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


# ------------------------------------------------------------------------------------------------------------


_SUBSCRIPTION, _ASSIGNMENT, _SUBSCRIPTION_DATA, _ASSIGNMENT_DATA = schema.GROUP_ROLES
_TELEMETRY = "telemetry"

CONSUMER, CONNECT = "consumer", "connect"

_MEMBER_MESSAGES = {
    (CONSUMER, _SUBSCRIPTION): "ConsumerProtocolSubscription",
    (CONSUMER, _ASSIGNMENT): "ConsumerProtocolAssignment",
    (CONNECT, _SUBSCRIPTION): "ConnectWorkerMetadata",
    (CONNECT, _ASSIGNMENT): "ConnectAssignment",
}

PAYLOAD_MESSAGES = {role: name for (kind, role), name in _MEMBER_MESSAGES.items() if kind == CONSUMER}
"""What is in the bytes of consumers, by role."""

_STICKY, _COOPERATIVE, _STREAMS = "sticky", "cooperative-sticky", "stream"
_STREAMS_DATA = {_SUBSCRIPTION_DATA: "SubscriptionInfoData", _ASSIGNMENT_DATA: "StreamsAssignmentInfo"}

USER_DATA: dict[str, tuple[str, int] | None] = {
    _STICKY: ("StickyAssignorUserData", 1),
    _COOPERATIVE: ("CooperativeStickyAssignorUserData", 0),
    _STREAMS: None,
}
"""The assignors whose data is decoded; the message and version that are tried first. None: another way."""


class Context(NamedTuple):
    """What surrounding fields say about bytes.

    Attributes:
        protocol: of their group.
        compression_type: number of the codec.
        limits: on what they decode to.
        budget: memory for all of it. None: the default for an exchange, for each.
    """

    protocol: GroupProtocol = UNKNOWN
    compression_type: int = 0
    limits: Limits = DEFAULT
    budget: DecodeBudget | None = None

    def within(self, struct: Body) -> Context:
        """The same inside a struct, whose fields can override it."""
        compression_type = struct.get("compression_type", self.compression_type)
        return Context(self.protocol.within(struct), compression_type, self.limits, self.budget)


def open_payloads(
    exchange: Exchange,
    protocols: GroupProtocols | None = None,
    limits: Limits = DEFAULT,
    budget: DecodeBudget | None = None,
) -> list[Anomaly]:
    """Decode what is inside the bodies of a decoded exchange, in place.

    Args:
        exchange: with its bodies and layouts.
        protocols: known from earlier exchanges. Learns from this one.
        limits: on what it decodes to.
        budget: the rest of the one with which the bodies were decoded.

    Returns:
        Anomalies of payloads that should be decodable but are not.
    """
    anomalies: list[Anomaly] = []
    request_layout, response_layout = exchange.request_layout, exchange.response_layout
    if not (
        (request_layout and carries_payloads(request_layout.message))
        or (response_layout and carries_payloads(response_layout.message))
    ):
        return anomalies  # most APIs
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
    """Whether any version of the message has bytes that can be decoded."""
    return any(map(_leads_to_payload, message.fields))


def decode_payload(role: str, data: bytes, context: Context) -> Embedded | None:
    """Decode the bytes of a field with this role, and bytes inside them. None if they are something else."""
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
        metrics = decode(data, context.compression_type, context.limits)
        if isinstance(metrics, Anomaly):
            anomalies.append(metrics._replace(where=where))
            return None
        return Embedded(data, metrics)
    decoded = _decode_bytes(role, data, context.protocol, context.budget)
    if decoded is None:
        if (message := _expected(role, context.protocol)) is not None:
            anomalies.append(
                Anomaly("malformed_payload", where, f"{len(data)} bytes are not a valid {message}")
            )
        return None
    if decoded.missing:
        what = f"{decoded.message.name} version {decoded.body['_version']}"
        anomalies.append(
            Anomaly("truncated_payload", where, f"{what} ends before {', '.join(decoded.missing)}")
        )
    _open(decoded.message.fields, decoded.body, context, where, anomalies)
    return Embedded(data, decoded.body)


def _expected(role: str, protocol: GroupProtocol) -> str | None:
    """The message that the bytes must be. None for user data and principals, whose formats applications
    define.
    """
    return _MEMBER_MESSAGES.get((protocol.type or "", role))


def _decode_bytes(
    role: str, data: bytes, protocol: GroupProtocol, budget: DecodeBudget | None
) -> DecodedPayload | None:
    if role in (_SUBSCRIPTION, _ASSIGNMENT):
        return _decode_member_bytes(role, data, protocol, budget)
    if role not in (_SUBSCRIPTION_DATA, _ASSIGNMENT_DATA):
        return read_versioned(schema.embedded(role), data, budget=budget)
    if protocol.name == _STREAMS:
        return read_self_versioned(schema.embedded(_STREAMS_DATA[role]), data, budget)
    if protocol.name == _STICKY:
        return _decode_sticky(data, budget)
    if protocol.name == _COOPERATIVE:
        # librdkafka uses the format of sticky here too, and also sends it in assignments.
        generation = schema.embedded("CooperativeStickyAssignorUserData")
        return read(generation, 0, data, exact=True, budget=budget) or _decode_sticky(data, budget)
    return None


def _decode_sticky(data: bytes, budget: DecodeBudget | None) -> DecodedPayload | None:
    """There is no version prefix, so Kafka tries all versions. kafka-python 3 writes one."""
    message = schema.embedded("StickyAssignorUserData")
    for version in (1, 0):
        if decoded := read(message, version, data, exact=True, budget=budget):
            return decoded
    return read_versioned(message, data, exact=True, budget=budget)


def _decode_member_bytes(
    role: str, data: bytes, protocol: GroupProtocol, budget: DecodeBudget | None
) -> DecodedPayload | None:
    """Decode what a member sends or receives. If the protocol is unknown, only if it is a consumer's to the
    last byte.
    """
    name = _MEMBER_MESSAGES.get((protocol.type or CONSUMER, role))
    if name is None:
        return None
    known = protocol.type is not None
    newest = known and protocol.type == CONSUMER
    return read_versioned(
        schema.embedded(name), data, newest=newest, exact=not known, partial=known, budget=budget
    )
