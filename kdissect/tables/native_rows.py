"""Columns of exchanges -> what the native core must know to write them as JSON lines or CSV, or to add rows
to a batch. Caches what it must know of each API.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect import core
from kdissect.exchanges.content import (
    GROUP,
    GROUP_KEY,
    TRANSACTION,
    TRANSACTION_KEY,
    record_paths,
    topic_plan,
)
from kdissect.exchanges.expected import expected_of
from kdissect.exchanges.group_events import usual_events
from kdissect.exchanges.latency import FETCHES, is_recent
from kdissect.exchanges.learned import ADVERTISING, NAMING
from kdissect.exchanges.memory import memory_plan
from kdissect.exchanges.nodes import places
from kdissect.exchanges.outcomes import WAITING_APIS
from kdissect.exchanges.touched import plans
from kdissect.exchanges.undecoded import first_names, undecoded, user_data, whole_exchange
from kdissect.kafka import apis
from kdissect.kafka.bodies import BodyLayout, rejected_exchange
from kdissect.kafka.codes import error_name
from kdissect.kafka.internal.topics import is_internal
from kdissect.kafka.secrets import is_sensitive_config
from kdissect.model import ANSWERED, Exchange, Frame, LatencyParts
from kdissect.names import kept
from kdissect.phrases import TopicId, printable, topic_label
from kdissect.query.where import ADDED_FIELDS
from kdissect.sinks.plan import CommonPlan, ConnectionPlan, RecordPlan, RowPlan, TimeFormat
from kdissect.tables.columns import BY_NAME, FIELD, OBJECT, RECORD, RECORD_NAMES, file_name, text_getter
from kdissect.tables.exchanges import BODIES, EXCHANGE_EXPORT_ONLY
from kdissect.tables.native_whole import whole_plan
from kdissect.tables.partitions import PARTITIONS, message_field
from kdissect.tables.values import json_bytes, second_text, text_and_encoding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kdissect.exchanges.partition_records import CarriedRecord
    from kdissect.exchanges.undecoded import FieldPath
    from kdissect.model import Body, ConnectionInfo
    from kdissect.sinks.plan import Identity, PlanContext
    from kdissect.stats.connection_log import ConnectionLog
    from kdissect.tables.columns import Column
    from kdissect.tables.others import TopicIds
    from kdissect.tables.rows import TableRows

    WriteOptional = Callable[[CarriedRecord], str]
    WritePayloads = Callable[[CarriedRecord], Sequence[str]]

_SHARED = (
    "connection", "client_ip", "client_port", "broker_ip", "broker_port", "cluster_id", "hop_ip", "hop_port",
    "proxy", "community_id",
    "client_software_name", "client_software_version", "principal", "sasl_mechanism",
)  # fmt: skip
_OF_API = ("api", "api_key", "api_version", "wait_kind")
_PROTOCOL = "protocol_type", "protocol_name"
_NULL = "null", 0
_OF_PARTITION = {
    "base_offset": ("base_offset", "base_offset"),
    "requested_timestamp_ms": ("requested", "timestamp"),
    "fetch_lag": ("fetch_lag", "high_watermark", "fetch_offset"),
}
"""Columns of partitions that are not named after what is in them, or need a field."""
_OF_COMMIT = {
    "member_id": ("text_in", ("member_id",)),
    "group_instance_id": ("text_in", ("group_instance_id", "instance_id")),
    "generation": ("number_in", ("generation_id_or_member_epoch",)),
}
"""The same of the group event of a commit."""
_NOT_IN_COMMITS = frozenset(
    {"kind", "session_timeout_ms", "protocol_type", "protocol", "reason", "assignment", "subscribed", "leads"}
    | {"members"}
)
_FIELDS: list[tuple[str, ...]] = [
    *(
        column.get.keywords["names"]
        for column in PARTITIONS.columns
        if isinstance(column.get, partial) and column.get.func is message_field
    ),
    *(tuple(names) for _, *names in _OF_PARTITION.values()),
    *(names for _, names in _OF_COMMIT.values()),
]
"""The fields of messages that are columns of partitions and groups, each with its names there."""
_OF_RECORD = {
    "time": ("record_time", 0),
    "date": ("record_date", 0),
    "time_ns": ("record_time_ns", 0),
    **{
        name: (name, 0)
        for name in (
            *(
                "timestamp_ms",
                "request_time",
                "topic",
                "topic_id",
                "partition",
                "offset",
                "before_fetch_offset",
                "timestamp",
            ),
            *("timestamp_type", "key", "value", "magic", "compression", "base_offset", "producer_id"),
            *("producer_epoch", "base_sequence", "leader_epoch", "transactional", "aborted"),
            *("control", "control_type", "error", "key_encoding", "value_encoding"),
        )
    },
}
"""Columns of records by what is in them (core/src/sinks/records/)."""
_PAYLOADS = ("key", "value")
_SAME_IN_RECORDS: dict[str, Any] = {"e2e_latency_us": None, "also_in": None, "anomalies": []}
"""The same in all records that the core writes; end-to-end latencies and copies are filled in later."""
_OTHERS_WITH_RECORDS = (59, 78)  # FetchSnapshot, ShareFetch
_OF_INCOMPLETE = ("request_size", "request_received", "response_size", "response_received")
_SAME = ("kind", "outcome", "anomalies", *_OF_INCOMPLETE)  # in all exchanges that the core writes


def are_known(columns: Sequence[Column]) -> bool:
    """Whether the core can write these columns: columns of exchanges and fields of bodies, each once."""
    are_different = len({column.name for column in columns}) == len(columns)
    return are_different and all(
        BY_NAME.get(column.name) is column or _field_path(column) is not None for column in columns
    )


def _field_path(column: Column) -> FieldPath | None:
    """Which field of a body it is. None: it is something else, or no message has it on the wire."""
    head, *path = column.name.split(".")
    if column.type != FIELD or head not in BODIES or not ADDED_FIELDS.isdisjoint(path):
        return None
    return head == BODIES[0], tuple(path)


def json_cell(column: Column, exchange: Exchange) -> str:
    """A column of an exchange as JSON."""
    return json_bytes(text_getter(column)(exchange)).decode()


def row_plan(
    context: PlanContext,
    columns: Sequence[Column],
    cell: Callable[[Column, Exchange], str],
    heads: Sequence[str],
    end: str,
    form: str,
) -> RowPlan:
    """What the core must know to write text.

    Args:
        context: names of topics, and limits.
        columns: that ``are_known``.
        cell: writes a column of an exchange.
        heads: what stands before each column.
        end: what stands after the last.
        form: ``RowPlan.format``.
    """
    written: list[tuple[str, tuple[str, int]]] = []
    fields: list[FieldPath] = []
    before = ""
    for head, column in zip(heads, columns, strict=True):
        before += head
        if path := _field_path(column):
            written.append((before, ("field", len(fields))))
            fields.append(path)
            before = ""
        elif column.name in _SAME:
            before += cell(column, _stub())
        else:
            written.append((before, _content(column.name, written)))
            before = ""
    return _plan(context, columns, cell, written)._replace(fields=fields, end=before + end, format=form)


def are_of_records(columns: Sequence[Column], optional: Sequence[str]) -> bool:
    """Whether the core can write these columns of records: none is a path into another, or there twice, or
    depends on more of the exchange. ``optional``: those from headers and schemas, which must be neighbors.
    """
    names = [column.name for column in columns]
    places = [place for place, name in enumerate(names) if name in optional]
    return (
        len(set(names)) == len(names)
        and all(RECORD_NAMES.get(column.name) is column for column in columns)
        and all(RECORD_NAMES[name] in RECORD or name in (*_SHARED, *_OF_API[:3]) for name in names)
        and places == list(range(places[0], places[0] + len(places)) if places else ())
    )


class RecordText(NamedTuple):
    """How values of records become text.

    Attributes:
        columns: which.
        heads: what stands before each column.
        end: what stands after the last.
        form: see ``RecordPlan.format``.
        cell: writes a column of an exchange or record.
        value: writes a value.
        optional: names of the columns from headers and schemas.
        marks: bytes that are not UTF-8 and stand for what is filled in later, by column; one without a name
            begins each row.
    """

    columns: Sequence[Column]
    heads: Sequence[str]
    end: str
    form: str
    cell: Callable[[Column, Any], str]
    value: Callable[[Any], str]
    optional: Sequence[str]
    marks: Mapping[str, bytes]


def record_plan(context: PlanContext, text: RecordText, *, is_table: bool = False) -> RecordPlan:
    """What the core must know to write records as JSON lines, CSV, or between tabs.

    Args:
        context: names of topics, and limits.
        text: what they look like; of columns that ``are_of_records``.
        is_table: whether they are rows of a table beside others, with the same ``RowPlan``.
    """
    columns, optional = text.columns, text.optional
    names = [column.name for column in columns]
    written: list[tuple[str, tuple[str, int]]] = []
    encodings = ["", ""]
    before, is_encoded = "", False
    if "" in text.marks:
        written.append(("", ("mark", text.marks[""][0])))
    for place, (head, column) in enumerate(zip(text.heads, columns, strict=True)):
        name = column.name
        if is_encoded:
            encodings[_PAYLOADS.index(names[place - 1])] = head
            is_encoded = False
            continue
        if name in optional:
            if place == 0 or names[place - 1] not in optional:
                written.append((before, ("optional", 0)))
                before = ""
            continue
        before += head
        if name in text.marks:
            content: tuple[str, int] = ("mark", text.marks[name][0])
        elif name in _SAME_IN_RECORDS:
            before += text.value(_SAME_IN_RECORDS[name])
            continue
        elif name in _PAYLOADS:
            is_encoded = text.form != "fields" and names[place + 1 : place + 2] == [f"{name}_encoding"]
            content = (name if is_encoded else f"{name}_text"), 0
        else:
            of_exchange = _shared_content(name) if is_table else _content(name, written)
            content = _OF_RECORD.get(name, of_exchange)
        written.append((before, content))
        before = ""
    of_optional = [
        (head, each) for head, each in zip(text.heads, columns, strict=True) if each.name in optional
    ]

    def write_optional(record: CarriedRecord) -> str:
        return "".join(head + text.cell(column, record) for head, column in of_optional)

    def payloads(record: CarriedRecord) -> list[str]:
        return [text.value(each) for data in (record.key, record.value) for each in text_and_encoding(data)]

    def printed(payload: bytes, _: bool) -> str:
        return text.value(payload.decode())

    shared = [BY_NAME[name] for name in names if name in (*_SHARED, *_OF_API)]
    plan = usual_records(context, shared, text.cell, written, before + text.end, write_optional, payloads)
    of_key, of_value = encodings
    return plan._replace(
        format=text.form,
        encodings=(of_key, of_value),
        rejected=lambda code: text.value(error_name(code)),
        printed=printed,
    )


def record_columns_plan(
    context: PlanContext, columns: Sequence[Column], optional: Sequence[str]
) -> RecordPlan:
    """What the core must know to add rows of records to columns.

    Args:
        context: names of topics, and limits.
        columns: of the table.
        optional: names of those from headers and schemas.
    """
    from kdissect.exchanges.partition_records import payloads_alone  # loads the decompressors

    getters = [column.get for column in columns if column.name in optional]
    written: list[tuple[str, tuple[str, int]]] = []
    for column in columns:
        name = column.name
        if name in optional:
            if name == optional[0]:
                written.append(("", ("optional", 0)))
        elif _SAME_IN_RECORDS.get(name, name) is None:
            written.append(("", _NULL))
        else:
            written.append(("", _OF_RECORD.get(name) or _shared_content(name)))
    plan = usual_records(context, (), lambda *_: "", written, "", lambda _: "", lambda _: ())

    def values(
        key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
    ) -> list[Any]:
        record = payloads_alone(key, value, tuple(headers))
        return [get(record) for get in getters]

    return plan._replace(optional=values)


def usual_records(
    context: PlanContext,
    columns: Sequence[Column],
    cell: Callable[[Column, Exchange], str],
    written: list[tuple[str, tuple[str, int]]],
    end: str,
    write_optional: WriteOptional,
    write_payloads: WritePayloads,
) -> RecordPlan:
    """What the core must know to write lines of text with the records of usual exchanges.

    Args:
        context: names of topics, and limits.
        columns: those that are the same for a connection, or for an API.
        cell: writes one of them.
        written: what stands before each column, and what is in it.
        end: what stands after the last.
        write_optional: writes what headers and schemas say.
        write_payloads: writes key, its encoding, value and its encoding of a record that no client wrote.
    """
    from kdissect.exchanges.partition_records import RecordPlace, payloads_alone, record_alone
    from kdissect.kafka.compression import Budget  # loads the decompressors

    limits, joined = context.limits, context.written
    budget = Budget()
    plan = _plan(context, columns, cell, [], shows_values=False)

    def api(api_key: int, version: int) -> tuple[Any, bytes, list[Any]] | None:
        return None if api_key in _OTHERS_WITH_RECORDS else plan.common.api(api_key, version)

    def label(topic: str, is_id: bool) -> tuple[str, bool]:
        return printable(topic_label(TopicId(topic) if is_id else topic)), not is_internal(topic)

    def opens(place: tuple[Any, ...], payloads: Any) -> tuple[str | None, Sequence[str], str]:
        record = record_alone(RecordPlace(*place), payloads, show_secrets=context.decoding.show_secrets)
        return record.control, write_payloads(record), write_optional(record)

    def inflate(number: int, is_first: bool, codec: int, magic: int, data: bytes) -> bytes:
        nonlocal budget
        if is_first:
            budget = Budget(number)
        inflated = budget.inflate(codec, data, limits, magic)
        if inflated.fault or inflated.flaws or not isinstance(inflated.data, bytes):
            raise ValueError
        return inflated.data

    return RecordPlan(
        plan.common._replace(api=api),
        format="text",
        times=TimeFormat(6),
        columns=written,
        end=end,
        encodings=("", ""),
        before_fetch=("", ""),
        no_optional=write_optional(payloads_alone(None, None, ())),
        capture=plan.capture,
        label=label,
        rejected=error_name,
        whole=whole_exchange,
        printed=lambda payload, _: payload.decode(),
        directions=(True, True),
        is_partition=None,
        selects=None,
        opens=opens,
        open_messages=partial(_open_messages, context),
        optional=lambda key, value, headers: write_optional(payloads_alone(key, value, tuple(headers))),
        inflate=inflate,
        bounds=(limits.batch_items, limits.record_headers, limits.batch_items),
        learn=plan.learn,
        join=None if joined is None else joined.note,
        has_room=None if joined is None else joined.has_room,
    )


def _open_messages(
    context: PlanContext, place: tuple[ConnectionInfo, int], api: tuple[int, int], frames: Sequence[bytes]
) -> int:
    """See ``RecordPlan``."""
    request, response = (Frame(data, len(data), 0, None, 0, 0) for data in frames)  # type: ignore[arg-type]
    exchange = Exchange(*place, ANSWERED, request, response, *api, None)
    context.decoding.decode(exchange)
    if exchange.anomalies:
        raise ValueError(exchange.anomalies)
    return exchange.decoded_bytes


class NativeTable(NamedTuple):
    """A table to which the core adds rows.

    Attributes:
        columns: of the table.
        batch: where the core adds them: ``Columns``, or ``TableLines``.
        capacity: rows and bytes with which that is full.
    """

    columns: Sequence[Column]
    batch: Any
    capacity: tuple[int, int]


def table_plan(
    context: PlanContext,
    tables: Mapping[str, NativeTable],
    topic_ids: TopicIds | None = None,
    log: ConnectionLog | None = None,
    rows: TableRows | None = None,
    *,
    are_lines: bool = False,
    records: tuple[RecordPlan, Any] | None = None,
) -> RowPlan:
    """What the core must know to add rows to batches.

    Args:
        context: names of topics, and limits.
        tables: by name.
        topic_ids: makes their table, if it is requested: of an exchange with a new pair.
        log: of the connections, if it is needed.
        rows: makes those of other exchanges, and of tables to which the core adds none.
        are_lines: whether all tables are JSON lines, or all columns.
        records: see ``RowPlan``.
    """

    def value(column: Column, exchange: Exchange) -> Any:
        return column.get(exchange)

    def name(topic_id: str, completed_ns: int) -> str | None:
        known = names.name(topic_id, completed_ns)
        is_listed = topic_ids is None or known in (None, topic_id) or topic_ids.has((topic_id, known))
        return known if is_listed else None

    def learn(topic_id: str, name: str) -> None:
        if topic_ids is not None and not topic_ids.has((topic_id, name)):
            raise LookupError(topic_id)
        names.learn(topic_id, name)

    def is_left(api_key: int) -> bool:
        return records is not None and api_key in _OTHERS_WITH_RECORDS

    names = context.names
    known = BY_NAME | {column.name: column for column in EXCHANGE_EXPORT_ONLY}
    plan = _plan(
        context, [known[name] for name in (*_SHARED, *_OF_API)], json_cell if are_lines else value, []
    )
    contents = {"exchanges": _exchange_content, "partitions": _partition_content, "groups": _group_content}
    filled = [
        (table, [contents[table](column) for column in columns], batch, capacity)
        for table, (columns, batch, capacity) in tables.items()
    ]
    api = plan.common.api
    common = plan.common._replace(
        topic_name=name,
        learn_name=learn,
        api=lambda key, version: None if is_left(key) else api(key, version),
    )
    plan = plan._replace(common=common, tables=filled, records=records)
    joined = None if records is None else context.written
    later: Callable[..., Callable[..., Any]] = _now if joined is None else joined.later
    if rows is not None:
        groups = tables["groups"].columns if "groups" in tables else ()
        member = _FIELDS.index(_OF_COMMIT["member_id"][1])
        whole = whole_plan(context, rows, groups, member, later, are_lines=are_lines)
        plan = plan._replace(whole=whole)
    if log is None:
        return plan
    waiting = [apis.find(name).key for name in sorted(WAITING_APIS)]
    return plan._replace(log=ConnectionPlan(later(log.usual_exchanges), waiting))


def _now(take: Callable[..., object]) -> Callable[..., object]:
    return take


def _exchange_content(column: Column) -> tuple[str, int]:
    known = BY_NAME.get(column.name)
    if column.name in _OF_INCOMPLETE:
        return _NULL
    if column.type == OBJECT and known is not None and column.get is not known.get:
        return _NULL
    return _shared_content(column.name)


def _partition_content(column: Column) -> tuple[str, int]:
    if isinstance(column.get, partial) and column.get.func is message_field:
        return "number_in", _FIELDS.index(column.get.keywords["names"])
    if column.name in _OF_PARTITION:
        content, *names = _OF_PARTITION[column.name]
        return content, _FIELDS.index(tuple(names)) if names else 0
    return _shared_content(column.name)


def _group_content(column: Column) -> tuple[str, int]:
    if column.name in _NOT_IN_COMMITS:
        return _NULL
    if column.name in _OF_COMMIT:
        content, names = _OF_COMMIT[column.name]
        return content, _FIELDS.index(names)
    return _shared_content(column.name)


def _shared_content(name: str) -> tuple[str, int]:
    for kind, names in (("shared", _SHARED), ("of_api", _OF_API)):
        if name in names:
            return name if name == "wait_kind" else kind, names.index(name)
    return _content(name, ())


def _plan(
    context: PlanContext,
    columns: Sequence[Column],
    cell: Callable[[Column, Exchange], Any],
    written: list[tuple[str, tuple[str, int]]],
    *,
    shows_values: bool = True,
) -> RowPlan:
    names, limits = context.names, context.limits
    splitters, protocols = context.splitters, context.decoding.protocols

    def cells(chosen: Sequence[str], exchange: Exchange) -> list[Any]:
        return [cell(column, exchange) for column in columns if column.name in chosen]

    def shared(info: ConnectionInfo, identity: Identity) -> list[Any]:
        software, version, principal, mechanism = identity
        return cells(
            _SHARED,
            Exchange(
                info, 0, ANSWERED, None, None, None, None, None,
                client_software_name=software, client_software_version=version, principal=principal,
                sasl_mechanism=mechanism, cluster_id=info.cluster_id,
            ),
        )  # fmt: skip

    def api(api_key: int, version: int) -> tuple[Any, bytes, list[Any]] | None:
        known = undecoded(api_key, version, shows_values=shows_values)
        row = native_row(api_key, version, shows_values=shows_values)
        if known is None or row is None:
            return None
        return row, known.tags, cells(_OF_API, _stub(api_key, version))

    def learn(info: ConnectionInfo, cluster: str) -> bool:
        is_new = info.cluster_id is None
        if is_new:
            info.cluster_id = kept(cluster)
        return is_new

    def follow(
        info: ConnectionInfo,
        api_key: int,
        group: str | None,
        of_request: Sequence[str | None],
        of_response: Sequence[str | None],
        offered: Sequence[str | None],
    ) -> str:
        request, response = (dict(zip(_PROTOCOL, each, strict=True)) for each in (of_request, of_response))
        body: Body = {**request, "group_id": group, "protocols": [{"name": name} for name in offered]}
        if not protocols.follow(info.key, api_key, body, response):
            raise ValueError
        return protocols.lookup(info.key, group).name or ""

    def rejected(version: int, request: bytes, response: bytes) -> str:
        exchange = rejected_exchange(version, request, response, limits)
        if exchange.anomalies:
            raise ValueError
        return json_bytes(exchange.response).decode()

    common = CommonPlan(
        shared=shared,
        api=api,
        error=error_name,
        topic_name=names.name,
        learn_name=names.learn,
        around=lambda second: (second_text(second), "Z"),
        budget=limits.decoded_bytes,
    )
    return RowPlan(
        common,
        written,
        fields=[],
        end="",
        format="json",
        tables=[],
        records=None,
        log=None,
        whole=None,
        learn=learn,
        follow=follow,
        is_secret=is_sensitive_config,
        rejected=rejected,
        capture=lambda interface: file_name(interface.capture),
        expected=lambda info, api_key, *rest: expected_of(info, _stub(api_key).api, *rest),
        memory=memory_plan(splitters),
    )


def _stub(api_key: int | None = None, version: int | None = None) -> Exchange:
    api = None if api_key is None else apis.by_key(api_key)
    name = api.name if api else None
    return Exchange(None, 0, ANSWERED, None, None, api_key, version, None, api=name)  # type: ignore[arg-type]


def _content(name: str, before: Sequence[tuple[str, tuple[str, int]]]) -> tuple[str, int]:
    """What is in a column, and which of several such: texts that exchanges share are in order of columns."""
    if name in LatencyParts._fields:
        return "part", LatencyParts._fields.index(name)
    for kind, names in (("shared", _SHARED), ("of_api", _OF_API)):
        if name in names:
            return kind, sum(content == kind for _, (content, _) in before)
    return name, 0


@cache
def native_row(api_key: int, version: int, *, shows_values: bool = True) -> core.native.Row | None:
    """The core's ``Row``, which reads columns from bodies. None if that is left to Python.
    ``shows_values``: whether the columns are those of messages.
    """
    known = undecoded(api_key, version, shows_values=shows_values)
    if not core.is_used or known is None:
        return None
    request, response = BodyLayout(known.request, version), BodyLayout(known.response, version)
    return core.native.Row(
        known.core,
        (topic_plan(request, False), topic_plan(response, False)),
        (
            first_names(request, api_key, GROUP, GROUP_KEY),
            first_names(request, api_key, TRANSACTION, TRANSACTION_KEY),
        ),
        ([_names(path) for path in record_paths(request)], [_names(path) for path in record_paths(response)]),
        (api_key in FETCHES, is_recent(api_key, version), known.has_configs and shows_values),
        user_data() if known.follows and shows_values else None,
        (
            plans(_stub(api_key).api, request, response),
            _FIELDS,
            usual_events(_stub(api_key).api),
            (*places(api_key, request, response), api_key in ADVERTISING, api_key in NAMING),
        ),
    )


def _names(path: Sequence[tuple[str, bool]]) -> list[str]:
    return [name for name, _ in path]
