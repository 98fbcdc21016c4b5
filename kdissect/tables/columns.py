"""Exchanges and records -> columns: the contract with every reader of our output. Stateless.

Each column is defined once: name, type, meaning, how to read it. JSON lines, CSV, ``--where``, exports and
docs/columns.md all derive from these definitions. Names and types are stable; columns may be added. An absent
value is None, never "" or -1 unless that was on the wire; a list can be empty, and is absent only if the
message that has it is incomplete.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import orjson

from kdissect.anomalies import CATALOGUE
from kdissect.errors import UsageError
from kdissect.exchanges import content
from kdissect.exchanges.outcomes import outcome
from kdissect.kafka import apis, codes, vendors
from kdissect.model import KINDS, OUTCOMES, Embedded
from kdissect.nearest import did_you_mean
from kdissect.net.tcp import community_id
from kdissect.query import where
from kdissect.query.filters import build, client_names, convert_amount, named_topics
from kdissect.query.where import Reference
from kdissect.tables.values import json_bytes, text_and_encoding, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kdissect.exchanges.partition_records import CarriedRecord
    from kdissect.kafka.internal.topics import Payload
    from kdissect.kafka.traces import SchemaId
    from kdissect.model import Exchange
    from kdissect.options import Options
    from kdissect.query.filters import Filter


# ------------------------------------------------------------------------------------------------------------
# The types of columns, independent of any format.
#
# A type is written like Spark's: ``string``, ``array<string>``,
# ``array<struct<kind:string,where:string>>``.
# ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scalar:
    """The type of a single value, and how formats write it.

    Attributes:
        name: in docs.
        sql: the type in Spark's DDL.
        spark: the type in the JSON of a Spark schema.
        arrow: the pyarrow function that makes the type, and its arguments.
        to_text: converts what a column's ``get`` returns for JSON lines and CSV; None: not needed.
        to_arrow: the same for pyarrow.
    """

    name: str
    sql: str
    spark: str
    arrow: tuple[str, ...]
    to_text: Callable[[Any], Any] | None = None
    to_arrow: Callable[[Any], Any] | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Array:
    """A list of values of one type; it can be empty, its elements are never absent."""

    element: Type

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class Struct:
    """Named values."""

    fields: tuple[tuple[str, Type], ...]

    def __str__(self) -> str:
        return f"struct<{','.join(f'{name}:{kind}' for name, kind in self.fields)}>"


Type = Scalar | Array | Struct


def _microseconds(time_ns: int) -> int:
    return time_ns // 1000


_EPOCH_DAY = date(1970, 1, 1).toordinal()


def _days(text: str) -> int:
    return date.fromisoformat(text).toordinal() - _EPOCH_DAY


STRING = Scalar("string", "STRING", "string", ("string",))
BOOLEAN = Scalar("boolean", "BOOLEAN", "boolean", ("bool_",))
INT16 = Scalar("int16", "SMALLINT", "short", ("int16",))
INT32 = Scalar("int32", "INT", "integer", ("int32",))
INT64 = Scalar("int64", "BIGINT", "long", ("int64",))
FLOAT64 = Scalar("float64", "DOUBLE", "double", ("float64",))
BINARY = Scalar("binary", "BINARY", "binary", ("binary",))
"""Bytes, in formats that have them."""
DATE = Scalar("date", "DATE", "date", ("date32",), to_arrow=_days)
"""A UTC date, as text: ``2026-11-21``."""
TIMESTAMP = Scalar(
    "timestamp",
    "TIMESTAMP",
    "timestamp",
    ("timestamp", "us", "UTC"),
    to_text=timestamp,
    to_arrow=_microseconds,
)
"""Nanoseconds since 1970 as an int; written with microseconds, in UTC: ``2026-11-21T09:05:00.123456Z``."""
OBJECT = Scalar("object", "STRING", "string", ("string",), to_arrow=json_bytes)
"""A decoded body: a JSON object, or a string of JSON where columns are fixed (Parquet, Spark, CSV)."""
FIELD = replace(OBJECT, name="field")
"""The value of any field of a body: number, string, list or JSON."""


# ------------------------------------------------------------------------------------------------------------


if TYPE_CHECKING:
    Getter = Callable[[Any], Any]

ANOMALIES = Array(Struct((("kind", STRING), ("where", STRING), ("detail", STRING))))
PROXY = Struct(
    (
        ("version", INT32),
        ("server_name", STRING),
        ("alpn", STRING),
        ("tls_version", STRING),
        ("common_name", STRING),
        ("aws_endpoint_id", STRING),
    )
)
"""What a PROXY header says besides addresses, as in ``model.Proxy``."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        type: see above; a timestamp is an int.
        get: reads it from a row; None if it is absent.
        description: its meaning, for docs.
        unit: of numbers.
        needs_bodies: whether it is read from decoded bodies.
        inside: reads the object that paths lead into, if that is not what ``get`` returns.
    """

    name: str
    type: Type
    get: Getter
    description: str
    unit: str = ""
    needs_bodies: bool = False
    inside: Getter | None = None


def file_name(name: str) -> str:
    """The name of a file as text. It consists of bytes; those that are not UTF-8 became surrogates, which no
    format can hold.
    """
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()


def _capture(exchange: Exchange) -> str:
    return file_name(exchange.capture)


def _part(name: str, description: str) -> Column:
    """The column of a part of the latency."""
    return Column(name, INT64, attrgetter(name), description, "us", needs_bodies=True)


def _incomplete(message: str) -> tuple[Column, Column]:
    """The columns of a message that began but did not end."""
    return (
        Column(
            f"{message}_size",
            INT32,
            attrgetter(f"{message}_size"),
            f"Size that the prefix of an incomplete {message} announced, not counting the prefix itself. "
            f"Null if the {message} is complete.",
            "bytes",
        ),
        Column(
            f"{message}_received",
            INT64,
            attrgetter(f"{message}_received"),
            f"Bytes of an incomplete {message} that came, including its 4-byte size prefix. Null if the "
            f"{message} is complete.",
            "bytes",
        ),
    )


def _errors(exchange: Exchange) -> list[str] | None:
    if exchange.announced is not None and exchange.is_cut:
        return None
    return content.errors(exchange)


def _anomalies(exchange: Exchange) -> list[dict[str, Any]]:
    return [anomaly._asdict() for anomaly in exchange.anomalies]


def tcp_columns(get: Callable[[Any], Any]) -> tuple[Column, ...]:
    """The columns about a TCP connection and its PROXY headers.

    Args:
        get: from a row to an object with ``client``, ``broker``, ``hop`` and ``proxy``, as in
            ``model.ConnectionInfo``.
    """

    def hop(name: str) -> Getter:
        return lambda row: None if (end := get(row).hop) is None else getattr(end, name)

    def fields(row: Any) -> dict[str, Any] | None:
        proxy = get(row).proxy
        return None if proxy is None else {name: getattr(proxy, name) for name, _ in PROXY.fields}

    def community(row: Any) -> str:
        ends = get(row)
        return community_id(ends.hop or ends.client, ends.broker)

    return (
        Column(
            "hop_ip",
            STRING,
            hop("ip"),
            "Address from which the TCP connection was opened, if it begins with a PROXY header: that of a "
            "load balancer or proxy. `client_ip` and `client_port` are then those that the header names, if "
            "it names any. Null without a header.",
        ),
        Column("hop_port", INT32, hop("port"), "Its TCP port."),
        Column(
            "proxy",
            PROXY,
            fields,
            "What else the PROXY header says: its version; the server name (SNI), ALPN and version of the "
            "client's TLS session with the proxy; the common name in the client's certificate; the ID of the "
            "VPC endpoint in AWS. Null without a header. It is a claim of the end that connected.",
        ),
        Column(
            "community_id",
            STRING,
            community,
            "Community ID of the TCP connection (version 1, seed 0), by which Zeek, Suricata, Arkime and "
            "Wireshark find it too. Connections that use the same addresses and ports one after the other "
            "have the same.",
        ),
    )


EXCHANGE: tuple[Column, ...] = (
    Column("capture", STRING, _capture, "Capture file or interface."),
    Column(
        "connection",
        STRING,
        attrgetter("connection.id"),
        "Short connection ID: a hash of both endpoints and the time of its first packet, identical in "
        "every run over the same input, regardless of command and options. It differs if the first packet "
        "was not read. Of connections with the same endpoints and time, the second and later ones have other "
        "IDs.",
    ),
    Column(
        "number",
        INT64,
        attrgetter("number"),
        "Number of the exchange on its connection, from 1, in order of completion. With `connection`, the "
        "key that joins tables.",
    ),
    Column(
        "packet",
        INT64,
        attrgetter("packet"),
        "Number of the packet in `capture` that completed the request (orphan: the response), from 1, as "
        "in Wireshark.",
    ),
    Column(
        "kind",
        STRING,
        attrgetter("kind"),
        "`answered`, `unanswered` (no response captured, whatever the reason; see `outcome`), "
        "`unacknowledged` (acks=0) or `orphan` (response only).",
    ),
    Column(
        "outcome",
        STRING,
        outcome,
        "`answered`; `incomplete`: the response began but did not end before the connection or the capture "
        "did (`kind` is `answered`); `abandoned`: no response was due when the connection was closed in "
        "order, because the client's FIN came first, within 1 s or while it received an earlier response "
        "(of requests that brokers hold: after the time that they allow), or the broker's during a long "
        "poll, within `max_wait_ms` but not within 100 ms; `unanswered`: no response, and the connection "
        "ended otherwise, or 30 s passed "
        "after the request's own timeout (`max_wait_ms`, `rebalance_timeout_ms` or `timeout_ms`), if it has "
        "one, or a later request was answered and bytes may be missing or correlation IDs repeat (otherwise "
        "the response can still come); `pending`: none of these before the capture ended; "
        "`incomplete_request`: the request itself began but did not end (`kind` is `unanswered`); "
        "`not_expected` (acks=0); `orphan`. Null if the response may not have been captured.",
        needs_bodies=True,
    ),
    Column(
        "time",
        TIMESTAMP,
        attrgetter("time_ns"),
        "Time of the last byte of the request (orphan: of the response).",
    ),
    Column(
        "latency_us",
        INT64,
        attrgetter("latency_us"),
        "From the last byte of the request to the first byte of the response: the sum of `queued_us`, "
        "`throttled_us`, `network_us`, `wait_us` and `service_us`, where these are known.",
        "us",
    ),
    _part(
        "queued_us",
        "Time that the request waited behind the previous request on its connection, until the last byte of "
        "the response to that one: brokers process the requests of a connection one by one. The broker's "
        "request queue is part of `service_us` instead. Null after a gap, and if a response came before the "
        "one to an earlier request, for both of them.",
    ),
    _part(
        "throttled_us",
        "Time after `queued_us` during which a quota muted the connection: the rest of the previous "
        "response's throttle time (KIP-219). Before Kafka 2.0: how long the broker delayed this response. "
        "Null if the throttle time is not known.",
    ),
    _part(
        "network_us",
        "Time lost to retransmissions: from the end of `queued_us` and `throttled_us` to the last "
        "retransmission of any byte of the request. 0 if the capture lacks the original or the "
        "retransmission, or if the broker reported before its response that the retransmission was "
        "unnecessary (D-SACK). Not the network round trip, which `service_us` includes if captured at the "
        "client.",
    ),
    _part(
        "wait_us",
        "Time after `queued_us`, `throttled_us` and `network_us` during which the broker held the request "
        "until there was something to answer (Kafka's purgatory), with the work on it. It holds JoinGroup "
        "and SyncGroup until all members have joined, and a Fetch or ShareFetch until there are `min_bytes` "
        "of records: those that had fewer available when they were sent, judging by the last high watermark "
        "seen on the connection. 0 for all other requests. Null if this cannot be known.",
    ),
    _part(
        "service_us",
        "Time after `queued_us`, `throttled_us` and `network_us` during which the broker worked on a request "
        "that it did not hold; if captured at the client, a network round trip is part of it. Null if the "
        "broker held the request (see `wait_us`), or if one of the other parts is null.",
    ),
    _part(
        "think_us",
        "Before a Fetch or ShareFetch: from the last byte of the response to the previous one of its "
        "connection to its own last byte. It is not part of the latency. For this time the consumer "
        "requested nothing: it processed records, was paused, or had enough of them in its queue; if "
        "captured at the broker, a network round trip is part of it. Null for other APIs, for the first "
        "fetch, after a gap or a throttle time, and if the request came before the response.",
    ),
    Column(
        "request_transfer_us",
        INT64,
        attrgetter("request_transfer_us"),
        "From the first byte of the request to its last. 0 if one packet has both. Null if bytes of it were "
        "not captured or not kept (`--limits frame_bytes`), if it did not end, and if the first byte came "
        "after the last, because segments were reordered or retransmitted.",
        "us",
    ),
    Column(
        "response_transfer_us",
        INT64,
        attrgetter("response_transfer_us"),
        "From the first byte of the response to its last; null as above.",
        "us",
    ),
    Column(
        "total_us",
        INT64,
        attrgetter("total_us"),
        "What the client waited at least, from the first byte of the request to the last byte of the "
        "response: the sum of `request_transfer_us`, `latency_us` and `response_transfer_us`. Null if one of "
        "them is.",
        "us",
    ),
    Column(
        "client_ip",
        STRING,
        attrgetter("connection.client.ip"),
        "Client address; that in the PROXY header, if the connection begins with one.",
    ),
    Column("client_port", INT32, attrgetter("connection.client.port"), "Client TCP port, as above."),
    Column(
        "broker_ip",
        STRING,
        attrgetter("connection.broker.ip"),
        "Broker address.",
    ),
    Column("broker_port", INT32, attrgetter("connection.broker.port"), "Broker TCP port."),
    Column(
        "cluster_id",
        STRING,
        attrgetter("cluster_id"),
        "Cluster of the broker: as Metadata, DescribeCluster and a few other APIs name it, or as given with "
        "`--cluster`. Null if it is not known; see [clusters](names.md#clusters).",
    ),
    *tcp_columns(attrgetter("connection")),
    Column("client_id", STRING, attrgetter("client_id"), "Client ID in the request header."),
    Column(
        "client_software_name",
        STRING,
        attrgetter("client_software_name"),
        "Client library, if sent in ApiVersions 3 or later on this connection.",
    ),
    Column(
        "client_software_version",
        STRING,
        attrgetter("client_software_version"),
        "Version of the client library.",
    ),
    Column(
        "principal",
        STRING,
        attrgetter("principal"),
        "Authenticated principal of the connection, if it appears in the traffic.",
    ),
    Column("sasl_mechanism", STRING, attrgetter("sasl_mechanism"), "SASL mechanism, as named by the client."),
    Column(
        "api",
        STRING,
        attrgetter("api"),
        "API name, such as Fetch, AutoMQ CreateStreams or Confluent 10007; null for an unknown API key.",
    ),
    Column(
        "api_key",
        INT16,
        attrgetter("api_key"),
        "API key; null for an orphan, and for a SASL token without a request header (SaslHandshake v0).",
    ),
    Column("api_version", INT16, attrgetter("api_version"), "API version of the request."),
    Column("correlation_id", INT32, attrgetter("correlation_id"), "Correlation ID of request and response."),
    Column(
        "request_bytes",
        INT64,
        attrgetter("request_bytes"),
        "Size of the request frame, including its 4-byte size prefix; of an incomplete one, the bytes that "
        "came.",
        "bytes",
    ),
    Column(
        "response_bytes",
        INT64,
        attrgetter("response_bytes"),
        "Size of the response frame, including its 4-byte size prefix; of an incomplete one, the bytes that "
        "came.",
        "bytes",
    ),
    *_incomplete("request"),
    *_incomplete("response"),
    Column(
        "topics",
        Array(STRING),
        content.topics,
        "Distinct topic names in wire order, the request's first; the topic ID if no name is known.",
        needs_bodies=True,
    ),
    Column(
        "group_id",
        STRING,
        content.group_id,
        "First group named in the request, including groups in FindCoordinator.",
        needs_bodies=True,
    ),
    Column(
        "transactional_id",
        STRING,
        content.transactional_id,
        "First transactional ID in the request, including those in FindCoordinator.",
        needs_bodies=True,
    ),
    Column(
        "errors",
        Array(STRING),
        _errors,
        "Names of the distinct error codes in the response, in wire order, except NONE. Null if the response "
        "is incomplete.",
        needs_bodies=True,
    ),
    Column(
        "expected_errors",
        Array(STRING),
        lambda exchange: list(exchange.expected_errors),
        "Those of `errors` that are normal steps of the protocol: version negotiation, joining a group, the "
        "first seconds after a leader or coordinator moved.",
        needs_bodies=True,
    ),
    Column(
        "throttle_time_ms",
        INT32,
        content.throttle_time_ms,
        "Throttle time in the response.",
        "ms",
        needs_bodies=True,
    ),
    Column(
        "records",
        INT64,
        content.records,
        "Records in request and response, from the batch headers; null if the API carries none, and for "
        "compressed message sets of magic 0 and 1, whose headers have no record count.",
        needs_bodies=True,
    ),
    Column(
        "records_bytes",
        INT64,
        content.records_bytes,
        "Bytes of the record data on the wire, including batch headers.",
        "bytes",
        needs_bodies=True,
    ),
    Column(
        "request",
        OBJECT,
        attrgetter("request"),
        "Decoded body of the request, with the field names of the protocol guide.",
        needs_bodies=True,
    ),
    Column("response", OBJECT, attrgetter("response"), "Decoded body of the response.", needs_bodies=True),
    Column(
        "anomalies",
        ANOMALIES,
        _anomalies,
        "Anomalies: kind, where (message and field path), detail.",
        needs_bodies=True,
    ),
)

BY_NAME = {column.name: column for column in EXCHANGE}


ALIASES = {
    "topic": Column("topic", Array(STRING), named_topics, "As ``--topic``.", needs_bodies=True),
    "client": Column("client", Array(STRING), client_names, "As ``--client``."),
    "group": Column("group", Array(STRING), content.groups, "As ``--group``.", needs_bodies=True),
    "error": replace(BY_NAME["errors"], name="error"),
    "latency": replace(BY_NAME["latency_us"], name="latency"),
}
"""Names in ``--where`` that work like the options of the same names."""

TCP_STREAM = Column(
    "tcp_stream",
    INT32,
    attrgetter("connection.number"),
    "Number of the TCP connection in the capture, from 0: tshark's `tcp.stream`. Filters and --fields only; "
    "not on Spark.",
)

_EXCHANGE_NAMES = {**BY_NAME, **ALIASES, TCP_STREAM.name: TCP_STREAM}


def text_getter(column: Column) -> Getter:
    """How to read a column for JSON lines and CSV."""
    return converted(column, column.type.to_text if isinstance(column.type, Scalar) else None)


def arrow_getter(column: Column) -> Getter:
    """How to read a column for pyarrow."""
    return converted(column, column.type.to_arrow if isinstance(column.type, Scalar) else None)


def converted(column: Column, convert: Callable[[Any], Any] | None) -> Getter:
    """How to read a column and convert what is not absent."""
    get = column.get
    if convert is None:
        return get
    return lambda row: None if (value := get(row)) is None else convert(value)


def resolve(name: str) -> Reference:
    """What a name in ``--where`` refers to: a column, or a path into one (``request.topics.name``).

    Raises:
        UsageError: there is no such column or path; the message suggests the nearest.
    """
    return _reference(name, _EXCHANGE_NAMES)


def _reference(name: str, known: Mapping[str, Column]) -> Reference:
    head, *path = name.split(".")
    column = known.get(head)
    if column is None:
        raise UsageError(f'no column "{head}"{_column_hint(head, path, known)}')
    if not path:
        get = text_getter(column)
        return Reference(get, column.needs_bodies, partial(_why_invalid, column), _converter(column.unit))
    get = _path_getter(column, path)
    if column.type == ANOMALIES and path == ["kind"]:
        return Reference(get, column.needs_bodies, _why_no_anomaly)
    return Reference(get, column.needs_bodies, to_number=_converter(path[-1].rpartition("_")[2]))


def _path_getter(column: Column, path: Sequence[str]) -> Getter:
    """How to read what is at a path in a column.

    Raises:
        UsageError: there is no such path.
    """
    get = column.inside or column.get
    if column.type == OBJECT:
        where.check(column.name, path)
    elif column.inside is None:
        _check_struct(column, path)
    return lambda row: where.value_at(get(row), path)


def selected(names: Sequence[str], columns: Iterable[Column] = EXCHANGE) -> tuple[Column, ...]:
    """The columns of these names, and paths into columns (``request.topics.name``), in this order.

    Raises:
        UsageError: there is no such column or path; the message suggests the nearest.
    """
    by_name = {column.name: column for column in (TCP_STREAM, *columns)}
    return tuple(by_name.get(name) or _path_column(name, by_name) for name in names)


def _path_column(name: str, by_name: Mapping[str, Column]) -> Column:
    head, *path = name.split(".")
    column = by_name.get(head)
    if column is None:
        hint = did_you_mean(head, by_name) or "; kdissect fields lists columns"
        raise UsageError(f'no column "{head}"{hint}')
    return Column(name, FIELD, _path_getter(column, path), "", needs_bodies=column.needs_bodies)


def _converter(unit: str) -> Callable[[str], float] | None:
    return partial(convert_amount, unit) if unit in _UNITS else None


def filter_of(options: Options) -> Filter:
    """The filter for all criteria and the expression.

    Raises:
        UsageError: one of them is invalid.
    """
    expression = where.compile_where(options.where, resolve) if options.where else None
    return build(**options.criteria, where=expression)


def _why_invalid(column: Column, sign: str, text: str | None) -> str | None:
    """Why a column never matches a string, or a number if ``text`` is None: a wrong type, an unknown name."""
    kind, signs = column.type, _EQUAL
    if column.name == "latency" and text is None:
        return "latency needs a unit: 50ms"
    if column.name == "client" and sign == "!=":
        return 'a client has several names: use not client == "..."'
    if column.name.endswith("_ip") and text is not None and "/" in text:
        return f"remove the quotes to match a network: {text}"
    if kind == ANOMALIES:
        return f"{column.name} have several parts: use {column.name}.kind"
    if isinstance(kind, Array):
        kind, signs = kind.element, (*_EQUAL, "in", "not in")
    if kind in (INT16, INT32, INT64) and text is not None:
        return f"{column.name} is a number; remove the quotes"
    if kind in (STRING, TIMESTAMP) and text is None:
        return f"{column.name} is a string; put it in quotes"
    if text is None or column.name not in _NAMES or sign not in signs:
        return None
    known = _NAMES[column.name]()
    if text in known or text.startswith(_NAMELESS_ERROR) or vendors.find(text) == [text]:
        return None
    return f'no {column.name.removesuffix("s")} "{text}"{did_you_mean(text, known)}'


def _why_no_anomaly(sign: str, text: str | None) -> str | None:
    """Why no anomaly is of this kind."""
    if text is None or text in CATALOGUE or sign not in (*_EQUAL, "in", "not in"):
        return None
    return f'no anomaly "{text}"{did_you_mean(text, CATALOGUE)}'


_UNITS = ("us", "ms", "ns", "bytes")  # in names of fields
_EQUAL: tuple[str, ...] = ("==", "!=")
_NAMELESS_ERROR = "UNKNOWN_ERROR_"  # followed by a code that only a newer broker knows
_NAMES: dict[str, Callable[[], Collection[str]]] = {
    "api": apis.names,
    "kind": lambda: KINDS,
    "outcome": lambda: OUTCOMES,
    "errors": codes.error_names,
    "error": codes.error_names,
}
"""Columns with a fixed set of values."""


def _column_hint(head: str, path: Sequence[str], known: Collection[str]) -> str:
    """A suggestion for a name that is not a column."""
    if head == "kafka" and path and path[-1] in BY_NAME:
        return f'; did you mean "{path[-1]}"?'  # tshark puts the protocol first
    stem, _, unit = head.rpartition("_")
    if unit in ("ns", "ms", "s") and f"{stem}_us" in known:
        return f"; write durations with a unit: {stem}_us > 5ms"
    return did_you_mean(head, known) or f'; strings must be quoted ("{head}"); kdissect fields lists columns'


def _check_struct(column: Column, path: Sequence[str]) -> None:
    inside = column.type.element if isinstance(column.type, Array) else column.type
    names = [name for name, _ in inside.fields] if isinstance(inside, Struct) else []
    if len(path) > 1 or path[0] not in names:
        parts = f"its fields are {', '.join(names)}" if names else "it has no fields"
        raise UsageError(f'no "{".".join(path)}" in column {column.name}; {parts}')


# ------------------------------------------------------------------------------------------------------------
# Record -> columns: of the exchange that carried it, its own, and of its batch.
# ------------------------------------------------------------------------------------------------------------


HEADER = Struct((("key", STRING), ("value", STRING), ("value_encoding", STRING)))

NO_TIMESTAMP = -1
"""Written by a producer that sets no timestamp."""


def _of_exchange(name: str) -> Column:
    """The same column of the exchange that carried a record."""
    column = _EXCHANGE_NAMES[name]
    get = column.get
    return replace(column, get=lambda record: get(record.source.exchange))


_WRITABLE_LEVELS = 200


def _json(payload: Payload) -> Any:
    """A key or value as an object: decoded, or JSON. None if it is neither, or nested more deeply than orjson
    writes.
    """
    if isinstance(payload, Embedded):
        return payload.decoded
    if isinstance(payload, bytes):
        with suppress(orjson.JSONDecodeError, orjson.JSONEncodeError):
            value = orjson.loads(payload)
            if payload.count(b"[") + payload.count(b"{") > _WRITABLE_LEVELS:
                orjson.dumps(value)
            return value
    return None


def _request_ns(record: CarriedRecord) -> int | None:
    frame = record.source.exchange.request_frame
    return None if frame is None else frame.end_ns


def _e2e_latency_us(record: CarriedRecord) -> int | None:
    sent_ns = record.source.produced_ns(record.batch)
    return None if sent_ns is None else (record.source.time_ns - sent_ns) // 1000


def _also_in(record: CarriedRecord) -> str | None:
    copy = record.source.copy(record.batch)
    return None if copy is None else copy.exchange


def _timestamp_ns(record: CarriedRecord) -> int | None:
    time_ms = record.timestamp_ms
    return None if time_ms is None or time_ms == NO_TIMESTAMP else time_ms * 1_000_000


def _headers(record: CarriedRecord) -> list[dict[str, str | None]]:
    return [
        dict(zip(("key", "value", "value_encoding"), (key, *text_and_encoding(value)), strict=True))
        for key, value in record.headers
    ]


def _base_offset(record: CarriedRecord) -> int | None:
    return None if record.offset is None else record.batch.base_offset


def _id(schema: SchemaId | None) -> int | None:
    return None if schema is None else schema.id


def _guid(schema: SchemaId | None) -> str | None:
    return None if schema is None else schema.guid


def _record_anomalies(record: CarriedRecord) -> list[dict[str, str]]:
    anomalies = record.batch.anomalies
    return [anomaly._asdict() for anomaly in anomalies] if anomalies else []


def _aborted(record: CarriedRecord) -> bool | None:
    return None if record.source.aborted is None else record.batch.aborted


_ENCODINGS = (
    "`utf-8`; `base64` for bytes that are not UTF-8; `json` for decoded records of Kafka's internal "
    "topics, control records, and what `--schemas` decoded; `withheld` for a credential, whose text is "
    "then null; null for a null key. In Parquet and Spark, keys and values are binary."
)

RECORD: tuple[Column, ...] = (
    _of_exchange("capture"),
    _of_exchange("connection"),
    replace(
        _of_exchange("number"),
        description="Number of the exchange that carried the record. With `connection`, the key that joins "
        "tables.",
    ),
    Column(
        "time",
        TIMESTAMP,
        attrgetter("source.time_ns"),
        "When the record was seen: the last byte of the request that produced it, or of the response that "
        "carried it to a consumer or replica.",
    ),
    Column(
        "request_time",
        TIMESTAMP,
        _request_ns,
        "Time of the last byte of the request: the same as `time` for a produced record, the start of "
        "the fetch for a fetched one; null if the request was not captured.",
    ),
    _of_exchange("api"),
    _of_exchange("correlation_id"),
    _of_exchange("client_id"),
    _of_exchange("client_ip"),
    _of_exchange("client_port"),
    _of_exchange("broker_ip"),
    _of_exchange("broker_port"),
    _of_exchange("cluster_id"),
    Column("topic", STRING, attrgetter("source.topic"), "Topic name; null if only its ID is known."),
    Column("topic_id", STRING, attrgetter("source.topic_id"), "Topic ID, if the message has it."),
    Column("partition", INT32, attrgetter("source.partition"), "Partition number."),
    Column(
        "offset",
        INT64,
        attrgetter("offset"),
        "Offset in the partition; for Produce, counted from the response's base offset (after an error, from "
        "that of the copy `also_in`) and null while that is unknown; null in a snapshot.",
    ),
    Column(
        "before_fetch_offset",
        BOOLEAN,
        attrgetter("is_before_fetch"),
        "Whether the Fetch requested a later offset: brokers send whole batches, and clients skip the "
        "records before that offset. Null for produced records, and if the request does not have the offset.",
    ),
    Column(
        "e2e_latency_us",
        INT64,
        _e2e_latency_us,
        "End-to-end latency of a fetched record: from the last byte of the request that produced it to the "
        "last byte of the response that carried it to a consumer or replica. Null if the Produce or its "
        "response was not captured, for magic 0 and 1, and in Spark streams.",
        "us",
    ),
    Column(
        "also_in",
        STRING,
        _also_in,
        "Exchange with another copy of its batch, if its Produce failed (an error, or no response) and it "
        "was fetched nevertheless: of the fetched record the Produce, of the produced record the Fetch, as "
        "`connection/number`. Producer ID, epoch and base sequence identify the batch. Null if the other "
        "exchange was complete more than 1 s later. In Spark and with `export -j` only fetched records have "
        "it; a join by these columns finds the others.",
    ),
    Column(
        "error",
        STRING,
        attrgetter("source.error"),
        "Error in the response to a produced record: the broker rejected its batch (after "
        "`REQUEST_TIMED_OUT` and `NOT_ENOUGH_REPLICAS_AFTER_APPEND` the leader may have stored it). Null "
        "if there was no error or no response, and for fetched records.",
    ),
    Column(
        "timestamp",
        TIMESTAMP,
        _timestamp_ns,
        "Timestamp of the record, in milliseconds; null if it has none.",
    ),
    Column(
        "timestamp_type",
        STRING,
        attrgetter("timestamp_type"),
        "Source of the timestamp: `CreateTime`, the producer; `LogAppendTime`, the broker (for Produce, "
        "from the response); null for magic 0.",
    ),
    Column(
        "key",
        STRING,
        lambda record: text_and_encoding(record.key)[0],
        "Key; see `key_encoding`. Filters and --fields can use fields inside JSON: `key.id`.",
        inside=lambda record: _json(record.key),
    ),
    Column("key_encoding", STRING, lambda record: text_and_encoding(record.key)[1], _ENCODINGS),
    Column(
        "value",
        STRING,
        lambda record: text_and_encoding(record.value)[0],
        "Value; see `value_encoding`. Filters and --fields can use fields inside JSON: `value.order.id`.",
        inside=lambda record: _json(record.value),
    ),
    Column(
        "value_encoding",
        STRING,
        lambda record: text_and_encoding(record.value)[1],
        "Same as `key_encoding`, for the value.",
    ),
    Column(
        "key_schema_id",
        INT32,
        lambda record: _id(record.key_schema),
        "Schema ID of the key; null if nothing indicates one.",
    ),
    Column(
        "key_schema_guid",
        STRING,
        lambda record: _guid(record.key_schema),
        "Schema GUID of the key, if a header `__key_schema_id` has that instead.",
    ),
    Column(
        "schema_id",
        INT32,
        lambda record: _id(record.schema),
        "Schema ID of the value: from a header `__value_schema_id`, otherwise the prefix written by "
        "Confluent's serializers. A value of 8 bytes is treated as a number; other custom values that "
        "begin with a zero byte can be mistaken for it.",
    ),
    Column(
        "schema_guid",
        STRING,
        lambda record: _guid(record.schema),
        "Schema GUID of the value, if a header `__value_schema_id` has that instead.",
    ),
    Column(
        "headers",
        Array(HEADER),
        _headers,
        "Headers in wire order; a key can occur twice, a value can be null.",
    ),
    Column(
        "trace_id",
        STRING,
        lambda record: None if (trace := record.trace) is None else trace.id,
        "Trace ID from headers: W3C `traceparent`, B3, or SkyWalking's `sw8`, in this order.",
    ),
    Column(
        "span_id",
        STRING,
        lambda record: None if (trace := record.trace) is None else trace.span_id,
        "Span that wrote the record; for `sw8`, segment and span number: `segment/3`.",
    ),
    Column(
        "trace_format",
        STRING,
        lambda record: None if (trace := record.trace) is None else trace.format,
        "Trace format: `w3c`, `b3` or `sw8`.",
    ),
    Column("magic", INT16, attrgetter("batch.magic"), "Format of its batch: 0, 1 or 2."),
    Column(
        "compression",
        STRING,
        attrgetter("batch.compression"),
        "Compression of its batch: `none`, `gzip`, `snappy`, `lz4`, `zstd`.",
    ),
    Column("base_offset", INT64, _base_offset, "Base offset of its batch; null if `offset` is null."),
    Column(
        "producer_id",
        INT64,
        attrgetter("batch.producer_id"),
        "Producer ID of its batch; -1: none; null for magic 0 and 1.",
    ),
    Column(
        "producer_epoch",
        INT16,
        attrgetter("batch.producer_epoch"),
        "Producer epoch of its batch; -1 and null as for `producer_id`.",
    ),
    Column(
        "base_sequence",
        INT32,
        attrgetter("batch.base_sequence"),
        "Base sequence of its batch; -1 and null as for `producer_id`.",
    ),
    Column(
        "leader_epoch",
        INT32,
        attrgetter("batch.leader_epoch"),
        "Leader epoch of its batch; producers write -1 or 0.",
    ),
    Column(
        "transactional",
        BOOLEAN,
        attrgetter("batch.transactional"),
        "Whether its batch is part of a transaction.",
    ),
    Column("control", BOOLEAN, attrgetter("batch.control"), "Whether it is a control record."),
    Column(
        "control_type",
        STRING,
        attrgetter("control"),
        "Type of control record: `COMMIT`, `ABORT`, `LEADER_CHANGE` ..., `unknown`; null for data.",
    ),
    Column(
        "aborted",
        BOOLEAN,
        _aborted,
        "Whether it belongs to an aborted transaction; null if the response does not say.",
    ),
    Column(
        "anomalies",
        ANOMALIES,
        _record_anomalies,
        "Anomalies of its batch: kind, where (message), detail.",
    ),
)

_SAME = frozenset(
    {"capture", "connection", "number", "api", "correlation_id", "client_id"}
    | {"client_ip", "client_port", "broker_ip", "broker_port", "cluster_id"}
)
"""Columns of a record that are those of its exchange."""

RECORD_NAMES = {
    **{name: _of_exchange(name) for name in _EXCHANGE_NAMES},
    **{each.name: each for each in RECORD},
}
"""What filters and --fields of records know: the columns of a record, and for all other names those of the
exchange that carried it.
"""


def resolve_record(name: str) -> Reference:
    """``resolve`` for ``RECORD_NAMES``."""
    return _reference(name, RECORD_NAMES)


def is_about_records(name: str) -> bool:
    """Whether a name in ``RECORD_NAMES`` can differ between the records of an exchange."""
    head = name.partition(".")[0]
    return RECORD_NAMES[head] in RECORD and head not in _SAME
