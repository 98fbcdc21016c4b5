"""``Exchange`` -> a short description specific to its API: ``orders-0 from 7 -> 12 records, 3.4 KB``.

The request is described before the arrow, the response after it; errors are shown elsewhere. Bodies may be
partial, so any field may be missing. Stateless. At most ``phrases.NAMES`` names are shown, the rest are
counted. The text is not yet safe for a terminal (phrases.py).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.kafka import apis, codes
from kdissect.kafka.records import RecordData
from kdissect.model import Embedded, Withheld
from kdissect.phrases import NAMES, TopicId, duration, facts, listed, many, named, numbered, size, topic_label
from kdissect.text.style import iso_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kdissect.model import Body, Exchange


Words = tuple[str, str]
"""Text about the request, text about the response."""

_NO_UUID = "A" * 22  # sixteen zero bytes, as Kafka prints them
_SUBJECTS = 3  # fields shown for an API without its own function


class Pair(NamedTuple):
    """Both bodies of an exchange; a missing one is empty."""

    exchange: Exchange
    request: Body
    response: Body

    def topics_text(self, topics: Iterable[Body] | None) -> str:
        """The topics and partitions of either body; topic IDs are resolved where a name was learned."""
        return topics_text(self.exchange, topics)


def about(exchange: Exchange) -> str:
    """Describe an exchange; empty if nothing is known."""
    if exchange.api_key is None:
        return _sasl_or_orphan(exchange)
    pair = Pair(exchange, exchange.request or {}, exchange.response or {})
    request_text, response_text = _words_of(exchange.api_key)(pair)
    if exchange.request_frame is None:
        request_text = pair.topics_text(_topics(pair.response))
    elif not request_text and "_undecoded" in pair.request:
        request_text = _subject(exchange, "_undecoded", pair.request["_undecoded"])
    return f"{request_text} -> {response_text}".lstrip() if response_text else request_text


def _topics(body: Body) -> list[Body]:
    """The array of topics in a body."""
    keys = {*TOPIC_KEYS, "topic_id"}
    arrays = (value for value in body.values() if isinstance(value, list) and value)
    return next((array for array in arrays if isinstance(array[0], dict) and keys & array[0].keys()), [])


def _sasl_or_orphan(exchange: Exchange) -> str:
    frame = exchange.first_frame
    if exchange.request_frame is None:
        return f"response {exchange.correlation_id}, {size(frame.size + 4)}, request not captured"
    return facts(exchange.sasl_mechanism, f"{size(frame.size)} token")


@cache
def _words_of(api_key: int) -> Callable[[Pair], Words]:
    api = apis.by_key(api_key)
    return _WORDS.get(api.name, _first_fields) if api else _first_fields


# Pieces


def _length(value: Any) -> int:
    return value.length if isinstance(value, Withheld) else len(value or b"")


def _bytes(value: Any) -> str:
    return size(_length(value)) if value is not None else ""


def _node(body: Body) -> str:
    if body.get("node_id", -1) < 0:
        return ""
    return f"broker {body['node_id']} at {body.get('host')}:{body.get('port')}"


def _enumerated(message: str, path: str, value: int | None) -> str:
    if value is None:
        return ""
    return (codes.enum_name(message, path, value) or str(value)).lower().replace("_", " ")


def _amount(all_records: list[RecordData]) -> str:
    counts = [records.count() for records in all_records]
    number = "compressed message sets" if None in counts else many(sum(filter(None, counts)), "record")
    return f"{number}, {size(sum(map(len, all_records)))}"


# Records


def _produce(pair: Pair) -> Words:
    topics = pair.request.get("topic_data")
    _, records = partitions_with_records(topics)
    request_text = facts(
        pair.topics_text(topics),
        _amount(records) if records else no_records(topics),
        named("transaction", pair.request.get("transactional_id")),
        "acks=1" if pair.request.get("acks") == 1 else "",
    )
    return request_text, named("offset", only_number(pair.response.get("responses"), "base_offset"))


def _fetch(pair: Pair) -> Words:
    topics = pair.request.get("topics")
    replica = pair.request.get("replica_id")
    if replica is None:
        replica = (pair.request.get("replica_state") or {}).get("replica_id")
    request_text = where = pair.topics_text(topics)
    if not request_text:
        session = pair.request.get("session_id")
        group = named("group", pair.request.get("group_id"))
        request_text = numbered("session", session) if session else group
    offset = only_number(topics, "fetch_offset")
    if offset is not None:
        request_text = f"{request_text} from {offset}"
    request_text = f"{numbered('replica', replica)} {request_text}".strip()
    if not pair.response:
        return request_text, ""
    responses = pair.response.get("responses")
    topics_with_records, records = partitions_with_records(responses)
    if not records:
        return request_text, no_records(responses)
    fetched = pair.topics_text(topics_with_records)
    return request_text, facts(fetched if fetched != where else "", _amount(records))


def _fetch_snapshot(pair: Pair) -> Words:
    topics = pair.request.get("topics")
    only = only_partition(pair.response.get("topics")) or {}
    request_text = facts(pair.topics_text(topics), numbered("from byte", only_number(topics, "position")))
    return request_text, _bytes(only.get("unaligned_records"))


def _list_offsets(pair: Pair) -> Words:
    topics = pair.request.get("topics") or []
    partitions = [each for topic in topics[:NAMES] for each in (topic.get("partitions") or ())[:NAMES]]
    stamps = {each.get("timestamp") for each in partitions}
    when = _when(stamps.pop()) if len(stamps) == 1 else ""
    only = only_partition(pair.response.get("topics")) or {}
    offset = only.get("offset", next(iter(only.get("old_style_offsets") or ()), None))
    return f"{pair.topics_text(topics)} {when}".strip(), numbered("offset", offset)


def _when(timestamp: int | None) -> str:
    if timestamp is None or timestamp < 0:
        return _enumerated("ListOffsetsRequest", "topics.partitions.timestamp", timestamp)
    return f"at {iso_ms(timestamp) or timestamp}"


def _leader_epoch(pair: Pair) -> Words:
    topics = pair.request.get("topics")
    request_text = facts(
        pair.topics_text(topics), numbered("leader epoch", only_number(topics, "leader_epoch"))
    )
    return request_text, numbered("ends at", only_number(pair.response.get("topics"), "end_offset"))


# Cluster and topics


def _metadata(pair: Pair) -> Words:
    topics = pair.request.get("topics", [])
    if topics:
        request_text = pair.topics_text(topics)
    else:
        request_text = "all topics" if topics is None or pair.exchange.api_version == 0 else "no topics"
    described = pair.response.get("topics") or []
    partitions = sum(len(topic.get("partitions") or ()) for topic in described)
    broker_list = pair.response.get("brokers")
    brokers = "" if broker_list is None else many(len(broker_list), "broker")
    counts = f"{many(len(described), 'topic')}, {many(partitions, 'partition')}" if described else ""
    return request_text, facts(brokers, counts)


def _api_versions(pair: Pair) -> Words:
    software = (
        f"{pair.request.get('client_software_name', '')} {pair.request.get('client_software_version', '')}"
    )
    keys = pair.response.get("api_keys")
    return software.strip(), many(len(keys), "API") if keys else ""


def _create_topics(pair: Pair) -> Words:
    topics = pair.request.get("topics") or []
    request_text = listed([topic_name(pair.exchange, topic) for topic in topics])
    if len(topics) == 1:
        partitions, replicas = topics[0].get("num_partitions", -1), topics[0].get("replication_factor", -1)
        request_text = facts(
            request_text,
            many(partitions, "partition") if partitions >= 0 else "",
            many(replicas, "replica") if replicas >= 0 else "",
        )
    return facts(request_text, "validate only" if pair.request.get("validate_only") else ""), ""


def _delete_topics(pair: Pair) -> Words:
    names = [topic_name(pair.exchange, topic) for topic in pair.request.get("topics") or ()]
    return listed(pair.request.get("topic_names") or names), ""


def _create_partitions(pair: Pair) -> Words:
    topics = pair.request.get("topics") or ()
    return listed([f"{topic.get('name')} to {topic.get('count')} partitions" for topic in topics]), ""


def _controller(pair: Pair) -> Words:
    names = ("topic_states", "ungrouped_partition_states", "topics", "ungrouped_partitions")
    topics = next((pair.request[name] for name in names if pair.request.get(name)), None)
    request_text = facts(pair.topics_text(topics), numbered("controller", pair.request.get("controller_id")))
    return request_text, ""


def _configs(pair: Pair) -> Words:
    resources = []
    for resource in pair.request.get("resources") or ():
        kind = _enumerated("DescribeConfigsRequest", "resources.resource_type", resource.get("resource_type"))
        names = [config.get("name") for config in resource.get("configs") or ()]
        keys = listed(names or resource.get("configuration_keys") or [])
        resources.append(f"{kind} {resource.get('resource_name')}{f' ({keys})' if keys else ''}")
    return listed(resources), ""


def _create_acls(pair: Pair) -> Words:
    return listed([_acl(each) for each in pair.request.get("creations") or ()]), ""


def _acl(acl: Body) -> str:
    permission = _enumerated("CreateAclsRequest", "creations.permission_type", acl.get("permission_type"))
    operation = _enumerated("CreateAclsRequest", "creations.operation", acl.get("operation"))
    kind = _enumerated("CreateAclsRequest", "creations.resource_type", acl.get("resource_type"))
    return f"{permission} {acl.get('principal')} {operation} on {kind} {acl.get('resource_name')}"


# Groups


def _find_coordinator(pair: Pair) -> Words:
    kind = _enumerated("FindCoordinatorRequest", "key_type", pair.request.get("key_type", 0))
    keys = pair.request.get("coordinator_keys") or [pair.request.get("key", "")]
    coordinators = pair.response.get("coordinators") or [pair.response]
    count = len(coordinators)
    return listed(keys, kind), _node(coordinators[0]) if count == 1 else many(count, "coordinator")


def _member(body: Body) -> str:
    return facts(
        named("member", body.get("member_id")),
        named("instance", body.get("group_instance_id") or body.get("instance_id")),
    )


def _join_group(pair: Pair) -> Words:
    protocols = [protocol.get("name") for protocol in pair.request.get("protocols") or ()]
    request_text = facts(
        named("group", pair.request.get("group_id")),
        listed(protocols),
        named("because", pair.request.get("reason")),
    )
    members = pair.response.get("members")
    leads = f"leads {many(len(members), 'member')}" if members else ""
    response_text = facts(
        numbered("generation", pair.response.get("generation_id")), leads, _member(pair.response)
    )
    return request_text, response_text


def _sync_group(pair: Pair) -> Words:
    assignments = pair.request.get("assignments")
    request_text = facts(
        _of_generation(pair.request),
        assignments and many(len(assignments), "assignment"),
        _member(pair.request),
    )
    assignment = pair.response.get("assignment") or None
    if isinstance(assignment, Embedded):
        assigned = pair.topics_text(assignment.decoded.get("assigned_partitions"))
        return request_text, assigned or "nothing assigned"
    return request_text, named("assignment of", _bytes(assignment))


def _of_generation(request: Body) -> str:
    return facts(
        named("group", request.get("group_id")),
        numbered("generation", request.get("generation_id", request.get("generation_id_or_member_epoch"))),
    )


def _heartbeat(pair: Pair) -> Words:
    return facts(_of_generation(pair.request), _member(pair.request)), ""


def _leave_group(pair: Pair) -> Words:
    members = [_member(member) for member in pair.request.get("members") or ()]
    return facts(named("group", pair.request.get("group_id")), _member(pair.request), listed(members)), ""


def _commit(pair: Pair) -> Words:
    topics = pair.request.get("topics")
    request_text = facts(
        named("group", pair.request.get("group_id")),
        pair.topics_text(topics),
        named("offset", only_number(topics, "committed_offset")),
        named("transaction", pair.request.get("transactional_id")),
    )
    return request_text, ""


def _offset_fetch(pair: Pair) -> Words:
    groups = pair.request.get("groups") or [pair.request]
    response_groups = pair.response.get("groups") or [pair.response]
    request_text = listed([group.get("group_id") for group in groups], "group")
    if len(groups) > 1:
        return request_text, ""
    topics = groups[0].get("topics", [])
    request_text = facts(request_text, "all topics" if topics is None else pair.topics_text(topics))
    only = only_partition(response_groups[0].get("topics"))
    if only is None or "committed_offset" not in only:
        return request_text, ""
    offset = only["committed_offset"]
    return request_text, f"offset {offset}" if offset >= 0 else "none committed"


def _new_group_heartbeat(pair: Pair) -> Words:
    epoch = pair.request.get("member_epoch", 0)
    request_text = facts(
        named("group", pair.request.get("group_id")),
        "joins" if epoch == 0 else "leaves" if epoch < 0 else f"epoch {epoch}",
        listed(pair.request.get("subscribed_topic_names") or [], "topic"),
        named("topics like", pair.request.get("subscribed_topic_regex")),
    )
    assigned = pair.topics_text((pair.response.get("assignment") or {}).get("topic_partitions"))
    response_text = facts(
        numbered("epoch", pair.response.get("member_epoch")),
        named("assigned", assigned),
        _member(pair.response),
    )
    return request_text, response_text


# Transactions


def _producer(body: Body) -> str:
    producer_id = body.get("producer_id", -1)
    return f"producer {producer_id} epoch {body.get('producer_epoch')}" if producer_id >= 0 else ""


def _init_producer_id(pair: Pair) -> Words:
    transaction = named("transaction", pair.request.get("transactional_id"))
    return facts(transaction, _producer(pair.request)) or "idempotence", _producer(pair.response)


def _add_partitions(pair: Pair) -> Words:
    transactions = pair.request.get("transactions") or []
    ids = [each.get("transactional_id") for each in transactions]
    ids = ids or [pair.request.get("v3_and_below_transactional_id", "")]
    topics = transactions[0].get("topics") if len(ids) == len(transactions) == 1 else None
    request_text = pair.topics_text(topics or pair.request.get("v3_and_below_topics"))
    return facts(listed(ids, "transaction"), request_text), ""


def _end_txn(pair: Pair) -> Words:
    outcome = "commit" if pair.request.get("committed") else "abort"
    return facts(named(outcome, pair.request.get("transactional_id")), _producer(pair.request)), ""


def _txn_markers(pair: Pair) -> Words:
    markers = [
        facts(
            f"{'commit' if marker.get('transaction_result') else 'abort'} {_producer(marker)}",
            pair.topics_text(marker.get("topics")),
        )
        for marker in pair.request.get("markers") or ()
    ]
    return listed(markers), ""


# Client metrics


def _instance(body: Body) -> str:
    """The client instance (KIP-714); the zero ID requests a new one."""
    instance = body.get("client_instance_id")
    return "new client instance" if instance == _NO_UUID else named("client instance", instance)


def _telemetry_subscriptions(pair: Pair) -> Words:
    request_text, assigned = _instance(pair.request), _instance(pair.response)
    interval_ms = pair.response.get("push_interval_ms")
    return request_text, facts(
        assigned if assigned != request_text else "",
        numbered("subscription", pair.response.get("subscription_id")),
        f"push every {duration(interval_ms * 1_000_000)}" if interval_ms else "",
    )


# Authentication


def _handshake(pair: Pair) -> Words:
    offered = pair.response.get("mechanisms") if pair.response.get("error_code") else None
    return named("mechanism", pair.request.get("mechanism")), named("offers", listed(offered or []))


def _authenticate(pair: Pair) -> Words:
    request_text = facts(pair.exchange.sasl_mechanism, _bytes(pair.request.get("auth_bytes")))
    return request_text, facts(
        named("principal", pair.exchange.principal), _bytes(pair.response.get("auth_bytes") or None)
    )


# Everything else


def _first_fields(pair: Pair) -> Words:
    """The first fields of a request whose API does not have its own function."""
    subjects = []
    for name, value in pair.request.items():
        if name.endswith("_ms") or value is None or isinstance(value, bool):
            continue
        subjects.append(_subject(pair.exchange, name, value))
    if not subjects and "_undecoded" in pair.response:
        return "", _subject(pair.exchange, "_undecoded", pair.response["_undecoded"])
    return facts(*[text for text in subjects if text][:_SUBJECTS]), ""


def _subject(exchange: Exchange, name: str, value: Any) -> str:
    if name == "_undecoded":
        return f"{_bytes(value)} not decoded"
    words = name.replace("_", " ")
    if isinstance(value, (int, str)):
        return named(words.removesuffix(" id"), value) if value != -1 else ""
    if not isinstance(value, list) or not value or name.startswith("_"):
        return ""
    if isinstance(value[0], dict):
        is_topics = any(key in value[0] for key in TOPIC_KEYS[1:]) or "topic" in name
        return topics_text(exchange, value) if is_topics else f"{words}: {len(value):,}"
    return f"{words.removesuffix(' ids')} {listed(value)}"


_WORDS: dict[str, Callable[[Pair], Words]] = {
    "Produce": _produce,
    "Fetch": _fetch,
    "ShareFetch": _fetch,
    "FetchSnapshot": _fetch_snapshot,
    "ListOffsets": _list_offsets,
    "OffsetForLeaderEpoch": _leader_epoch,
    "Metadata": _metadata,
    "ApiVersions": _api_versions,
    "CreateTopics": _create_topics,
    "DeleteTopics": _delete_topics,
    "CreatePartitions": _create_partitions,
    "LeaderAndIsr": _controller,
    "StopReplica": _controller,
    "UpdateMetadata": _controller,
    "DescribeConfigs": _configs,
    "AlterConfigs": _configs,
    "IncrementalAlterConfigs": _configs,
    "CreateAcls": _create_acls,
    "FindCoordinator": _find_coordinator,
    "JoinGroup": _join_group,
    "SyncGroup": _sync_group,
    "Heartbeat": _heartbeat,
    "LeaveGroup": _leave_group,
    "OffsetCommit": _commit,
    "TxnOffsetCommit": _commit,
    "OffsetFetch": _offset_fetch,
    "ConsumerGroupHeartbeat": _new_group_heartbeat,
    "ShareGroupHeartbeat": _new_group_heartbeat,
    "StreamsGroupHeartbeat": _new_group_heartbeat,
    "InitProducerId": _init_producer_id,
    "AddPartitionsToTxn": _add_partitions,
    "EndTxn": _end_txn,
    "WriteTxnMarkers": _txn_markers,
    "GetTelemetrySubscriptions": _telemetry_subscriptions,
    "SaslHandshake": _handshake,
    "SaslAuthenticate": _authenticate,
}


# ------------------------------------------------------------------------------------------------------------
# Bodies -> their topics and partitions as text: ``orders-0,1, payments (12 partitions)``.
#
# Bodies may be partial. At most ``phrases.NAMES`` names are shown, the rest are counted. Stateless.
# ------------------------------------------------------------------------------------------------------------


TOPIC_KEYS = ("name", "topic", "topic_name")
_PARTITION_KEYS = ("partition_index", "partition", "index", "partition_id")


def topic_name(exchange: Exchange, struct: Body) -> str:
    """The topic name of a struct; ``<id ...>`` if no name was learned for its topic ID."""
    for key in TOPIC_KEYS:
        if name := struct.get(key):
            return str(name)
    topic_id = struct.get("topic_id")
    return topic_label(exchange.topic_names.get(topic_id) or TopicId(topic_id)) if topic_id else ""


def array_of(topic: Body) -> list[Any]:
    """The array of a topic's partitions: the only one besides its configs; empty if there is none."""
    for name, value in topic.items():
        if type(value) is list and name != "configs":
            return value
    return []


def partitions_of(topic: Body) -> list[Any]:
    """The partition numbers of a topic, whose array has numbers or structs with a number each."""
    array = array_of(topic)
    if not array or type(array[0]) is not dict:
        return array
    for key in _PARTITION_KEYS:
        if key in array[0]:
            return [partition.get(key, "?") for partition in array]
    return ["?"] * len(array)


def topic_text(name: str, partitions: Sequence[Any]) -> str:
    """A topic with its partitions, as text."""
    count = len(partitions)
    if count == 1:
        return f"{name}-{partitions[0]}"
    if count > NAMES:
        return f"{name} ({many(count, 'partition')})"
    return f"{name}-{','.join(map(str, partitions))}" if partitions else name


def topics_text(exchange: Exchange, topics: Iterable[Body] | None) -> str:
    """Several topics: ``orders-0,1, payments (12 partitions) and 5 more topics``."""
    structs = list(topics or ())
    if not structs:
        return ""
    if "partition_index" in structs[0]:
        structs = _grouped(exchange, structs)
    if len(structs) == 1:
        return topic_text(topic_name(exchange, structs[0]), partitions_of(structs[0]))
    shown = ", ".join(
        [topic_text(topic_name(exchange, topic), partitions_of(topic)) for topic in structs[:NAMES]]
    )
    rest = len(structs) - NAMES
    return f"{shown} and {many(rest, 'more topic')}" if rest > 0 else shown


def _grouped(exchange: Exchange, flat: list[Body]) -> list[Body]:
    """Group partitions by topic: old controller requests repeat the topic for each partition."""
    topics: dict[str, list[Any]] = {}
    for each in flat:
        topics.setdefault(topic_name(exchange, each), []).append(each.get("partition_index", "?"))
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def only_partition(topics: list[Body] | None) -> Body | None:
    """The struct of the only partition in a message; None if there are more."""
    partitions = array_of(topics[0]) if topics and len(topics) == 1 else ()
    return partitions[0] if len(partitions) == 1 and type(partitions[0]) is dict else None


def only_number(topics: list[Body] | None, name: str) -> int | None:
    """A field of the only partition in a message; None if it is negative or there are more partitions."""
    only = only_partition(topics)
    value = only.get(name) if only else None
    return value if value is not None and value >= 0 else None


def partitions_with_records(topics: Iterable[Body] | None) -> tuple[list[Body], list[RecordData]]:
    """Reduce topics to the partitions with record data that is not empty, and collect that data."""
    reduced: list[Body] = []
    records: list[RecordData] = []
    for topic in topics or ():
        partitions, with_data = array_of(topic), []
        for partition in partitions:
            data = partition.get("records")
            if isinstance(data, RecordData) and len(data):
                with_data.append(partition)
                records.append(data)
        if with_data and len(with_data) < len(partitions):
            names = {name: value for name, value in topic.items() if type(value) is not list}
            topic = {**names, "partitions": with_data}
        if with_data:
            reduced.append(topic)
    return reduced, records


def no_records(topics: Iterable[Body] | None) -> str:
    """``no records``, or empty if the body ends before that is known."""
    if topics is None:
        return ""
    is_complete = all("records" in partition for topic in topics for partition in array_of(topic))
    return "no records" if is_complete else ""
