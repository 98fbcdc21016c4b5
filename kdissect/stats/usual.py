"""Usual exchanges that the native core has counted -> ``Usual``, which the parts of a summary add as if they
had been fed one by one.

Usual exchanges are answered, without errors, anomalies, throttle times or anything retransmitted, and all of
it was decoded. Those in one ``Usual`` are of one connection, API, version and client. Counts may come later
than exchanges of other connections that were complete after them. So a part adds them only to what can be
merged in any order.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect import core
from kdissect.exchanges.group_events import ALIVE, CLASSIC, COMMIT, GroupEvent, usual_events
from kdissect.exchanges.memory import memory_plan
from kdissect.exchanges.outcomes import WAITING_APIS
from kdissect.exchanges.touched import plans
from kdissect.exchanges.undecoded import undecoded
from kdissect.kafka import apis
from kdissect.kafka.bodies import BodyLayout
from kdissect.kafka.codes import error_name
from kdissect.kafka.headers import API_VERSIONS
from kdissect.sinks.plan import CommonPlan, ConnectionPlan, TallyPlan
from kdissect.stats.quantiles import Quantiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kdissect.exchanges.fetch_sessions import FetchSessions
    from kdissect.model import ConnectionInfo
    from kdissect.sinks.plan import PlanContext
    from kdissect.stats.connection_log import ConnectionLog

Stamp = tuple[int, int]
"""Time of a request, and number of the exchange."""

Counted = tuple[int, int, "list[tuple[int, int]]"]
"""Number of samples, bits of a slot, and the samples kept: times and values; see ``lag.Samples``."""

PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, HEARTBEAT = 0, 1, 2, 8, 9, 12
ONLY_COUNTED = frozenset(
    apis.find(name).key
    for name in (
        *("OffsetForLeaderEpoch", "BrokerHeartbeat", "StopReplica", "ListGroups"),
        *("DescribeAcls", "CreateAcls", "DeleteAcls", "DescribeLogDirs", "CreatePartitions"),
        *("ListPartitionReassignments", "DescribeClientQuotas", "AlterClientQuotas", "UpdateFeatures"),
        *("DescribeProducers", "UnregisterBroker", "DescribeTransactions", "ListTransactions"),
        *("AllocateProducerIds", "GetTelemetrySubscriptions", "ListConfigResources"),
    )
)
"""Keys of the APIs of whose exchanges, without errors, summaries need only number, sizes and times."""
COUNTED = ONLY_COUNTED.union(
    (PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, HEARTBEAT, API_VERSIONS)
)
"""Keys of the APIs whose exchanges the core counts."""


class Noted(NamedTuple):
    """Occurrences.

    Attributes:
        number: how many.
        first_ns, last_ns: times of the first and last.
        first: the first five exchanges.
        pieces: start in intervals of 10 seconds since 1970, and how many are in this one.
    """

    number: int
    first_ns: int
    last_ns: int
    first: list[Stamp]
    pieces: list[tuple[int, int]]


class Topic(NamedTuple):
    """A topic; ``named_ns``: completion of the first exchange, if it has an ID."""

    name: str
    id: str | None
    named_ns: int


class UsualRun(NamedTuple):
    """Consecutive sequence numbers of a producer up to but not including ``end``; ``first``: with them."""

    producer_id: int
    epoch: int
    base: int
    end: int
    batches: int
    first: Stamp
    times_ns: tuple[int, int]


class WrittenPartition(NamedTuple):
    """What was written to a partition; ``ends``: the offsets after it."""

    partition: int
    noted: Noted
    size: tuple[int, int]  # bytes, records
    codecs: list[tuple[str, int]]
    ends: Counted
    runs: list[UsualRun]

    @property
    def touches(self) -> int:
        """Exchanges with it."""
        return self.noted.number


class WrittenTopic(NamedTuple):
    """What was written to a topic; ``noted`` once for each partition."""

    topic: Topic
    exchanges: int
    service_us: Quantiles
    noted: Noted
    size: tuple[int, int]
    partitions: list[WrittenPartition]


class UsualProducer(NamedTuple):
    """Batches with a producer ID."""

    id: int
    epoch: int
    batches: int
    records: int
    first_ns: int
    last_ns: int


class UsualWrites(NamedTuple):
    """Of Produce exchanges."""

    acks: int
    topics: list[WrittenTopic]
    producers: list[UsualProducer]


class Lags(NamedTuple):
    """See ``lag.ClientLag``; ``start``: first time and offset; ages in nanoseconds."""

    number: int
    first: tuple[int, int]
    last: tuple[int, int]
    worst: tuple[int, int]
    start: tuple[int, int]
    position: tuple[int, int]
    last_age: tuple[int, int] | None
    worst_age_ns: int | None


class ReadPartition(NamedTuple):
    """What was fetched from a partition.

    Attributes:
        touches: responses with a field for records.
        size: bytes, records.
        codecs: batches by codec.
        ends: high watermark, last stable offset, log start offset.
        lags: of the client.
        behind: responses that left records unread.
    """

    partition: int
    touches: int
    size: tuple[int, int]
    codecs: list[tuple[str, int]]
    ends: tuple[Counted, Counted, Counted]
    lags: Lags
    behind: Noted


class ReadTopic(NamedTuple):
    """What was fetched from a topic."""

    topic: Topic
    partitions: list[ReadPartition]


class UsualReads(NamedTuple):
    """Of Fetch exchanges.

    Attributes:
        kind: see ``latency.waiter``.
        empty: responses without records.
        topics: all of their sessions.
    """

    kind: str
    max_wait_ms: int
    empty: Noted
    topics: list[ReadTopic]

    @property
    def are_replicated(self) -> bool:
        """Whether a broker fetches."""
        return self.kind != "Fetch"


class CommittedPartition(NamedTuple):
    """Offsets committed for a partition: the first, the last, and samples."""

    partition: int
    commits: int
    first: tuple[Stamp, int]
    last: tuple[Stamp, int]
    offsets: Counted


class CommittedTopic(NamedTuple):
    """Offsets committed for a topic."""

    topic: Topic
    partitions: list[CommittedPartition]


class UsualBeats(NamedTuple):
    """Of Heartbeat or OffsetCommit exchanges of a member.

    Attributes:
        member: group, member, instance, generation.
        last: the last request; ``completed_ns``: the last response.
        topics: of commits.
    """

    member: tuple[str, str | None, str | None, int | None]
    last: Stamp
    completed_ns: int
    topics: list[CommittedTopic]


class ReportedPartition(NamedTuple):
    """Offsets that a ``group`` has committed, from OffsetFetch; None: the end, from ListOffsets."""

    partition: int
    group: str | None
    offsets: Counted


class ReportedTopic(NamedTuple):
    """Offsets that brokers report of a topic."""

    topic: Topic
    partitions: list[ReportedPartition]


class ReportedVersions(NamedTuple):
    """What the last response says.

    Attributes:
        apis: API key, first and last version that the broker supports.
        completed: end of the response, and number of the exchange.
    """

    apis: list[tuple[int, int, int]]
    completed: Stamp


class Usual(NamedTuple):
    """Exchanges that are alike.

    Attributes:
        api, client, broker: as in ``Facts``.
        identity: software name and version, principal and SASL mechanism.
        is_measured: whether the service times are known.
        bytes: of requests and responses.
        undetermined: exchanges of which neither service time nor wait is known.
        queued_us: those that are not 0.
        total_us: those that are known; ``transfer_us``: sum of what is not part of latencies, of the same.
        group: that the requests name, and ``partitions``: topics and partitions in each exchange, in wire
            order, if they are kept apart by them.
        writes, reads, beats: those of their API.
        versions: of ApiVersions.
        offsets: of other APIs.
    """

    connection: ConnectionInfo
    api: str
    api_key: int
    api_version: int
    client_id: str | None
    client: str
    broker: str
    identity: tuple[str | None, str | None, str | None, str | None]
    is_measured: bool
    group: str | None
    partitions: list[tuple[str, int]]
    exchanges: int
    bytes: tuple[int, int]
    noted: Noted
    service_us: Quantiles
    wait_us: Quantiles
    undetermined: int
    queued_us: Quantiles
    total_us: Quantiles
    transfer_us: int
    writes: UsualWrites | None
    reads: UsualReads | None
    beats: UsualBeats | None
    versions: ReportedVersions | None
    offsets: list[ReportedTopic]

    @property
    def topics(self) -> list[Topic]:
        """All topics."""
        detail: Any = self.writes or self.reads or self.beats
        return [each.topic for each in (self.offsets if detail is None else detail.topics)]

    @property
    def is_replicated(self) -> bool:
        """Whether a broker fetches."""
        return self.reads is not None and self.reads.are_replicated

    def volumes(self) -> Iterator[tuple[str, WrittenPartition | ReadPartition]]:
        """The partitions that were written to or returned, with their topics."""
        detail: Any = self.writes or self.reads
        for topic in () if detail is None else detail.topics:
            for each in topic.partitions:
                if each.touches:
                    yield topic.topic.name, each

    def id(self, number: int) -> str:
        """As ``Facts.id``, by the number of an exchange."""
        return f"{self.connection.id}/{number}"

    def first(self, noted: Noted) -> list[tuple[int, str]]:
        """Times and IDs of the first exchanges."""
        return [(time_ns, self.id(number)) for time_ns, number in noted.first]

    def events(self) -> list[tuple[GroupEvent, GroupEvent]]:
        """The first and the last group event, if there are any. They are completed when the last one is."""
        if (beats := self.beats) is None:
            return []
        group, member, instance, generation = beats.member
        is_commit = self.api_key == OFFSET_COMMIT
        first_ns, first_number = self.noted.first[0]
        last_ns, last_number = beats.last
        last = GroupEvent(
            time_ns=last_ns,
            completed_ns=beats.completed_ns,
            connection=self.connection.id,
            number=last_number,
            group_id=group,
            kind=None if is_commit else CLASSIC,
            event=COMMIT if is_commit else ALIVE,
            client_id=self.client_id,
            client_ip=self.connection.client.ip,
            cluster_id=self.connection.cluster_id,
            member_id=member,
            group_instance_id=instance,
            generation=generation,
        )
        return [(last._replace(time_ns=first_ns, number=first_number), last)]


_OF_OTHERS = frozenset((PRODUCE, FETCH, HEARTBEAT, OFFSET_COMMIT, API_VERSIONS))  # no ``Usual.offsets``


def _usual(counted: tuple[Any, ...], detail: tuple[Any, ...]) -> Usual:
    """What the core passes to ``TallyPlan.take``."""
    (connection, api_key, api_version, client_id, identity, is_measured, apart), totals, latencies = counted
    group, partitions = apart
    exchanges, sizes, noted = totals
    service_us, wait_us, undetermined, queued_us, total_us, transfer_us = latencies
    api = apis.by_key(api_key)
    assert api is not None
    return Usual(
        connection,
        api.name,
        api_key,
        api_version,
        client_id,
        client_id or connection.client.ip,
        str(connection.broker),
        tuple(identity),
        is_measured,
        group,
        partitions,
        exchanges,
        sizes,
        Noted(*noted),
        Quantiles.of(*service_us),
        Quantiles.of(*wait_us),
        undetermined,
        Quantiles.of(*queued_us),
        Quantiles.of(*total_us),
        transfer_us,
        _writes(*detail) if api_key == PRODUCE else None,
        _reads(*detail) if api_key == FETCH else None,
        _beats(*detail) if api_key in (HEARTBEAT, OFFSET_COMMIT) else None,
        ReportedVersions(*detail) if api_key == API_VERSIONS else None,
        [] if api_key in _OF_OTHERS else _offsets(*detail),
    )


def _writes(acks: int, topics: list[Any], producers: list[Any]) -> UsualWrites:
    written = [
        WrittenTopic(
            Topic(*topic),
            exchanges,
            Quantiles.of(*service_us),
            Noted(*noted),
            size,
            [
                WrittenPartition(
                    partition, Noted(*each), counted, codecs, ends, [UsualRun(*run) for run in runs]
                )
                for partition, each, counted, codecs, ends, runs in partitions
            ],
        )
        for topic, exchanges, service_us, noted, size, partitions in topics
    ]
    return UsualWrites(acks, written, [UsualProducer(*each) for each in producers])


def _reads(kind: str, max_wait_ms: int, empty: Any, topics: list[Any]) -> UsualReads:
    read = [
        ReadTopic(
            Topic(*topic),
            [
                ReadPartition(partition, touches, size, codecs, ends, Lags(*lags), Noted(*behind))
                for partition, touches, size, codecs, ends, lags, behind in partitions
            ],
        )
        for topic, partitions in topics
    ]
    return UsualReads(kind, max_wait_ms, Noted(*empty), read)


def _beats(member: Any, last: Stamp, completed_ns: int, topics: Sequence[Any] = ()) -> UsualBeats:
    committed = [
        CommittedTopic(Topic(*topic), [CommittedPartition(*each) for each in partitions])
        for topic, partitions in topics
    ]
    return UsualBeats(member, last, completed_ns, committed)


def _offsets(topics: list[Any]) -> list[ReportedTopic]:
    return [
        ReportedTopic(Topic(*topic), [ReportedPartition(*each) for each in partitions])
        for topic, partitions in topics
    ]


def tally_plan(
    context: PlanContext,
    log: ConnectionLog,
    take: Callable[[Usual], object],
    sessions: FetchSessions,
    *,
    slowest: int = 0,
    interval: Callable[[], int] = int,
    by: frozenset[str] = frozenset(),
) -> TallyPlan:
    """What the core must know to count exchanges.

    Args:
        context: names of topics, and limits.
        log: of the connections.
        take: takes the counts.
        sessions: fed the other exchanges.
        slowest: so many exchanges with the longest service times are not counted but passed on.
        interval: see ``TallyPlan``.
        by: names of ``traffic.BY``: columns and tables by which counts are needed.
    """
    names, limits, splitters = context.names, context.limits, context.splitters

    def api(api_key: int, version: int) -> tuple[Any, bytes, list[Any]] | None:
        known, row = undecoded(api_key, version), _row(api_key, version)
        return None if known is None or row is None else (row, known.tags, [])

    def take_counted(counted: tuple[Any, ...], detail: tuple[Any, ...]) -> None:
        usual = _usual(counted, detail)
        if usual.versions is not None:
            splitters.note_versions(usual.connection, usual.versions.apis)
        take(usual)

    common = CommonPlan(
        shared=lambda *_: [],
        api=api,
        error=error_name,
        topic_name=names.name,
        learn_name=names.learn,
        around=lambda _: ("", ""),
        budget=limits.decoded_bytes,
        leaves_flaws=True,
    )

    return TallyPlan(
        common,
        ConnectionPlan(log.usual_exchanges, [apis.find(name).key for name in sorted(WAITING_APIS)]),
        take=take_counted,
        memory=memory_plan(splitters, sessions),
        slowest=slowest,
        interval=interval,
        by_group="group" in by,
        by_partition=not by.isdisjoint(("topic", "partition")),
    )


@cache
def _row(api_key: int, version: int) -> core.native.Row | None:
    """The core's ``Row`` of an API whose exchanges it counts."""
    known = undecoded(api_key, version)
    if not core.is_used or known is None or api_key not in COUNTED:
        return None
    api = apis.by_key(api_key)
    assert api is not None
    request, response = BodyLayout(known.request, version), BodyLayout(known.response, version)
    nothing: tuple[list[list[str]], None] = [], None
    return core.native.Row(
        known.core,
        (None, None),
        (nothing, nothing),
        ([], []),
        api_key == FETCH,
        (plans(api.name, request, response), [], usual_events(api.name)),
    )
