"""What the native core has counted -> tallies of several exchanges; and what it must know for that."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from kdissect import core
from kdissect.exchanges.content import GROUP, GROUP_KEY
from kdissect.exchanges.group_events import usual_events
from kdissect.exchanges.latency import FETCHES, is_recent
from kdissect.exchanges.learned import ADVERTISING
from kdissect.exchanges.memory import memory_plan
from kdissect.exchanges.outcomes import WAITING_APIS
from kdissect.exchanges.topic_names import topic_refs
from kdissect.exchanges.touched import plans
from kdissect.exchanges.undecoded import first_names, undecoded, whole_exchange
from kdissect.kafka import apis
from kdissect.kafka.bodies import BodyLayout, decode_request, decode_response
from kdissect.kafka.codes import error_code, error_name
from kdissect.kafka.headers import API_VERSIONS
from kdissect.model import ANSWERED, Exchange, LatencyParts
from kdissect.names import kept
from kdissect.phrases import TopicId
from kdissect.sinks.plan import CommonPlan, ConnectionPlan, TallyPlan
from kdissect.stats.connection_log import REFUSED
from kdissect.stats.contents import (
    COUNTED_BY_CORE,
    QUEUED_US,
    CommittedPartition,
    CommittedTopic,
    Content,
    CountedBeats,
    CountedPolls,
    CountedProducer,
    CountedReads,
    CountedRun,
    CountedWrites,
    Lags,
    Noted,
    ReadPartition,
    ReadTopic,
    ReportedPartition,
    ReportedTopic,
    ReportedVersions,
    Topic,
    WrittenPartition,
    WrittenTopic,
)
from kdissect.stats.facts import SLOW_US
from kdissect.stats.quantiles import Quantiles
from kdissect.stats.tallies import Alike, Keys
from kdissect.stats.traffic import Slow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdissect.exchanges.fetch_sessions import FetchSessions, Position
    from kdissect.exchanges.undecoded import WholeExchange
    from kdissect.model import ConnectionInfo
    from kdissect.sinks.plan import PartitionTest, PlanContext, TopicIdNames
    from kdissect.stats.connection_log import ConnectionLog
    from kdissect.stats.contents import Stamp
    from kdissect.stats.quantiles import Largest

PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, HEARTBEAT = 0, 1, 2, 8, 9, 12
ONLY_COUNTED = frozenset(
    apis.find(name).key
    for name in (
        *("OffsetForLeaderEpoch", "StopReplica", "ListGroups"),
        *("DescribeAcls", "CreateAcls", "DeleteAcls", "DescribeLogDirs", "CreatePartitions"),
        *("ListPartitionReassignments", "DescribeClientQuotas", "AlterClientQuotas", "UpdateFeatures"),
        *("DescribeProducers", "UnregisterBroker", "DescribeTransactions", "ListTransactions"),
        *("AllocateProducerIds", "GetTelemetrySubscriptions", "ListConfigResources"),
        *("LeaderAndIsr", "UpdateMetadata", "DeleteTopics", "DeleteRecords"),
        *("AlterReplicaLogDirs", "ElectLeaders", "AlterPartitionReassignments", "OffsetDelete"),
        *("DescribeUserScramCredentials", "BeginQuorumEpoch", "EndQuorumEpoch"),
        *("DescribeQuorum", "AssignReplicasToDirs", "InitializeShareGroupState", "ReadShareGroupState"),
        *("WriteShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary"),
    )
)
"""Keys of the APIs of whose exchanges, without errors, summaries need only number, sizes and times."""
ALIKE = ADVERTISING
"""Keys of the APIs of whose exchanges summaries need bodies and times: those with equal bodies are alike."""
COUNTED = ONLY_COUNTED.union(
    ALIKE, (PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, HEARTBEAT, API_VERSIONS)
)
"""Keys of the APIs whose exchanges the core counts."""


def _counted(counted: tuple[Any, ...], detail: tuple[Any, ...]) -> Alike:
    """What the core passes to ``TallyPlan.take``."""
    (connection, api_key, api_version, client_id, identity, is_measured, apart), totals, latencies = counted
    group, partitions = apart
    exchanges, sizes, noted = totals
    service_us, wait_us, undetermined, queued_us, queued, total_us, transfer_us = latencies
    software, software_version, principal, _ = identity
    api = apis.by_key(api_key)
    assert api is not None
    keys = Keys(
        api.name,
        api_key,
        api_version,
        client_id,
        software,
        software_version,
        principal,
        ANSWERED,
        group,
        has_request=True,
        has_flaw=False,
        is_measured=is_measured,
    )
    one = Alike(keys, connection, client_id or connection.client.ip, str(connection.broker))
    one.form = COUNTED_BY_CORE
    one.noted = Noted(*noted)
    one.exchanges = one.kinds[ANSWERED] = exchanges
    one.request_bytes, one.response_bytes = sizes
    one.service_us, one.wait_us = Quantiles.of(*service_us), Quantiles.of(*wait_us)
    one.undetermined = undetermined
    one.total_us, one.transfer_us = Quantiles.of(*total_us), transfer_us
    one.queued_us, one.queued = Quantiles.of(*queued_us), Noted(*queued)
    one.first_ns, one.last_ns = one.noted.first_ns, one.noted.last_ns
    one.first = one.first_of(one.noted)
    one.partitions = partitions
    if api_key == PRODUCE:
        one.writes = _writes(*detail)
    elif api_key == FETCH:
        one.reads = _reads(*detail)
    elif api_key in (HEARTBEAT, OFFSET_COMMIT):
        one.beats = _beats(*detail)
    elif api_key == API_VERSIONS:
        one.versions = ReportedVersions(*detail)
    elif api_key in ALIKE:
        exemplar, completed, last = detail
        one.content = Content(exemplar, Noted(*completed), last)
    else:
        one.offsets = _offsets(*detail)
    return one


def _slow(common: tuple[Any, ...], times: tuple[Any, ...], topics: list[tuple[str, bool]]) -> Slow:
    """What the core passes to ``TallyPlan.take_slow``, after the rank."""
    (connection, api_key, client_id, number), (time_ns, latency_us, total_us, parts) = common, times
    api = apis.by_key(api_key)
    assert api is not None
    return Slow(
        f"{connection.id}/{number}",
        time_ns,
        latency_us,
        total_us,
        LatencyParts(*parts),
        api.name,
        client_id or connection.client.ip,
        str(connection.broker),
        tuple(TopicId(topic) if is_nameless else topic for topic, is_nameless in topics),
        0,
    )


def _content(
    names: TopicIdNames,
    connection: ConnectionInfo,
    api: tuple[int, int],
    messages: Sequence[bytes],
    completed_ns: int,
) -> Exchange | None:
    """See ``TallyPlan.content``. The names in the bodies have been learned."""
    request = decode_request(messages[0], api[0])
    response = decode_response(messages[1], *api, request=request.value)
    exchange = Exchange(connection, 0, ANSWERED, None, None, *api, None)
    exchange.request, exchange.request_layout = request.value, request.layout
    exchange.response, exchange.response_layout = response.value, response.layout
    refs = topic_refs(exchange)
    exchange.topic_ids = dict(refs.learned)
    has_other_names = any(
        names.name(each, completed_ns) != exchange.topic_ids.get(each) for each in refs.keys
    )
    return None if request.anomalies or response.anomalies or has_other_names else exchange


def _one(
    context: PlanContext,
    whole: WholeExchange,
    latency: tuple[Sequence[int | None], int | None] | None,
    positions: Sequence[Position] | None,
) -> tuple[Exchange, Sequence[Position] | None] | None:
    """See ``TallyPlan.one``. The names in the bodies, and the cluster, have been learned."""
    exchange = whole_exchange(whole)
    context.decoding.decode(exchange)
    if exchange.anomalies:
        return None
    for topic_id in topic_refs(exchange).keys:
        name = context.names.name(topic_id, exchange.completed_ns)
        if name is None:
            return None
        if name != topic_id:
            exchange.topic_ids[topic_id] = name
    if latency is not None:
        parts, exchange.think_us = latency
        exchange.parts = LatencyParts(*parts)
    return exchange, positions


def _topic(name: str, topic_id: str | None, named_ns: int) -> Topic:
    """A topic, or one whose ID stands for its name."""
    return Topic(TopicId(name), None, named_ns) if topic_id == name else Topic(name, topic_id, named_ns)


def _writes(acks: int, topics: list[Any], producers: list[Any]) -> CountedWrites:
    written = [
        WrittenTopic(
            _topic(*topic),
            exchanges,
            Quantiles.of(*service_us),
            Noted(*noted),
            size,
            [
                WrittenPartition(
                    partition,
                    Noted(*each),
                    counted,
                    codecs,
                    ends,
                    [CountedRun(*run) for run in runs],
                    repeatable,
                )
                for partition, each, counted, codecs, ends, runs, repeatable in partitions
            ],
        )
        for topic, exchanges, service_us, noted, size, partitions in topics
    ]
    return CountedWrites(acks, written, [CountedProducer(*each) for each in producers])


def _reads(kind: str, max_wait_ms: int, noted: list[Any], polls: Any, topics: list[Any]) -> CountedReads:
    read = [
        ReadTopic(
            _topic(*topic),
            [
                ReadPartition(partition, touches, size, codecs, ends, stable, Lags(*lags), Noted(*behind))
                for partition, touches, size, codecs, ends, stable, lags, behind in partitions
            ],
        )
        for topic, partitions in topics
    ]
    empty, opened, denied = (Noted(*each) for each in noted)
    number, think_us, waited_us, pauses, paused_us = polls
    known = CountedPolls(number, think_us, waited_us, Noted(*pauses), paused_us)
    return CountedReads(kind, max_wait_ms, empty, opened, denied, known, read)


def _beats(member: Any, last: Stamp, completed_ns: int, topics: Sequence[Any] = ()) -> CountedBeats:
    committed = [
        CommittedTopic(_topic(*topic), [CommittedPartition(*each) for each in partitions])
        for topic, partitions in topics
    ]
    return CountedBeats(member, last, completed_ns, committed)


def _offsets(topics: list[Any]) -> list[ReportedTopic]:
    return [
        ReportedTopic(_topic(*topic), [ReportedPartition(*each) for each in partitions])
        for topic, partitions in topics
    ]


def tally_plan(
    context: PlanContext,
    log: ConnectionLog,
    feed: Callable[[Alike], object],
    feed_one: Callable[[Exchange, PartitionTest | None, Sequence[Position] | None], object],
    sessions: FetchSessions,
    *,
    slowest: Largest | None = None,
    interval: Callable[[], int] = int,
    by: frozenset[str] = frozenset(),
    is_partition: PartitionTest | None = None,
) -> TallyPlan:
    """What the core must know to count exchanges.

    Args:
        context: names of topics, and limits.
        log: of the connections.
        feed: takes the tallies.
        feed_one: takes exchanges that are counted one by one, which of their partitions are, and the
            positions after a Fetch.
        sessions: fed the other exchanges.
        slowest: gets those with the longest service times, as many as it keeps. None: they are not needed.
        interval: see ``TallyPlan``.
        by: names of ``traffic.BY``: columns and tables by which counts are needed.
        is_partition: which partitions are counted; None: all. It excludes none by names of topics.
    """
    names, limits, splitters = context.names, context.limits, context.splitters

    def api(api_key: int, version: int) -> tuple[Any, bytes, list[Any]] | None:
        known, row = undecoded(api_key, version, shows_values=False), _row(api_key, version)
        return None if known is None or row is None else (row, known.tags, [])

    def take_counted(counted: tuple[Any, ...], detail: tuple[Any, ...]) -> None:
        feed(_counted(counted, detail))

    def learn_cluster(info: ConnectionInfo, cluster: str) -> None:
        info.cluster_id = kept(cluster)

    def take_slow(rank: tuple[int, ...], *slow: Any) -> None:
        assert slowest is not None
        slowest.rank(rank, lambda: _slow(*slow))

    def take_one(one: tuple[Exchange, Sequence[Position] | None]) -> None:
        exchange, positions = one
        feed_one(exchange, is_partition, positions)

    common = CommonPlan(
        shared=lambda *_: [],
        api=api,
        error=error_name,
        topic_name=names.name,
        learn_name=names.learn,
        around=lambda _: ("", ""),
        budget=limits.decoded_bytes,
    )

    return TallyPlan(
        common,
        ConnectionPlan(log.usual_exchanges, [apis.find(name).key for name in sorted(WAITING_APIS)]),
        take=take_counted,
        take_one=take_one,
        take_slow=take_slow,
        memory=memory_plan(splitters, sessions),
        slowest=0 if slowest is None else slowest.count,
        interval=interval,
        has_cluster=lambda info: info.cluster_id is not None,
        learn_cluster=learn_cluster,
        alike=sorted(ALIKE),
        content=partial(_content, names),
        counted=sorted(COUNTED),
        one=partial(_one, context),
        refused=[error_code(name) for name in sorted(REFUSED)],
        slow_us=SLOW_US,
        queued_us=QUEUED_US,
        by_group="group" in by,
        by_partition=not by.isdisjoint(("topic", "partition")),
        is_partition=is_partition,
    )


@cache
def _row(api_key: int, version: int) -> core.native.Row | None:
    """The core's ``Row`` of an API."""
    known = undecoded(api_key, version, shows_values=False)
    if known is None:
        return None
    api = apis.by_key(api_key)
    assert api is not None
    request, response = BodyLayout(known.request, version), BodyLayout(known.response, version)
    nothing: tuple[list[list[str]], None] = [], None
    return core.native.Row(
        known.core,
        (None, None),
        (first_names(request, api_key, GROUP, GROUP_KEY), nothing),
        ([], []),
        (api_key in FETCHES, is_recent(api_key, version), False),
        None,
        (plans(api.name, request, response), [], usual_events(api.name), None),
    )
