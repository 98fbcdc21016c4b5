"""What a summary says, as typed values: one document, whose JSON has the same names.

Times are UTC; latencies run from a request's last byte to its response's first. docs/summary.schema.json is
made from this file, and the page that people read shows nothing else. Nobody changes a row; the classes are
not frozen all the same, because to load them would take twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003  (the JSON Schema is made from the annotations)
from typing import Any

# ------------------------------------------------------------------------------------------------------------
# A sentence -> a field of a dataclass that has it: what the JSON Schema says about the field.
# ------------------------------------------------------------------------------------------------------------


def told(sentence: str) -> Any:
    """A field, and what it means."""
    return field(metadata={"sentence": sentence})


# ------------------------------------------------------------------------------------------------------------
# What ``summary --groups`` says, as typed values: one ``GroupStory`` for each group.
#
# Times are UTC. In a classic group a generation is what JoinGroup hands out; in the others (KIP-848, share,
# streams) the member epoch stands in its place.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class MemberRow:
    """A member of a group, under one member id."""

    member_id: str = told("Member id assigned by the broker, or chosen by the member itself.")
    group_instance_id: str | None = told("Group instance id of a static member.")
    client: str = told("Its client id, or its address if it sent none.")
    address: str = told("The last address it was seen from.")
    joined: datetime | None = told("When it first sent a join request; null if that was not captured.")
    left: datetime | None = told("When it left on its own; null if it did not.")
    last: datetime = told("When it was last seen and accepted.")
    heartbeats: int = told("Heartbeats without news.")
    generation: int | None = told("The last generation it was seen in.")
    assignment: dict[str, list[int]] | None = told(
        "Topic to partitions, as last assigned; subtopology to tasks in streams groups; null if none was "
        "captured or readable."
    )
    subscribed: list[str] | None = told("Topics it subscribes to.")


@dataclass(slots=True, kw_only=True)
class CauseRow:
    """What started a rebalance, or happened while it went on."""

    cause: str = told(
        "first (the group was empty), join, return (a static member with a new member id), leave, timeout "
        "(gone without leaving, or rejected as unknown), subscription (a member subscribes to other "
        "topics), revocation (second half of a cooperative rebalance), protocol (another assignor), "
        "metadata (the leader rejoins: topics changed), rejoin (another member does, without such a "
        "cause), unknown."
    )
    time: datetime | None = told("When; null if unknown.")
    member_id: str | None = told("The member that caused it.")
    client: str | None = told("Its client id.")
    reason: str | None = told("The reason given by the client (KIP-800).")


@dataclass(slots=True, kw_only=True)
class RebalanceRow:
    """A rebalance: from the first JoinGroup to the last SyncGroup of one generation.

    In groups without these: from what started it to the last member that was told its new epoch.
    """

    start: datetime = told("When the first member sent a join request.")
    end: datetime | None = told("When the last member had its assignment; null if none was seen to get one.")
    seconds: float | None = told("Its duration.")
    causes: list[CauseRow] = told("What started it, then what happened meanwhile.")
    generation_before: int | None = told("Null if it was not captured.")
    generation_after: int = told("The generation it led to.")
    members_before: int | None = told("Null if it was not captured.")
    members_after: int | None = told("As reported to the leader; if that was not captured, the members seen.")
    joins: int = told("JoinGroup requests it took, including failed ones.")
    protocol: str | None = told("The assignor chosen.")
    leader: str | None = told("Member id of the leader.")
    exchange: str = told("Its first exchange, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class StormRow:
    """Rebalances that follow each other closely, again and again."""

    start: datetime = told("When the first of them started.")
    end: datetime = told("When the last of them started.")
    rebalances: int = told("Number of rebalances.")
    causes: dict[str, int] = told("What started them.")


@dataclass(slots=True, kw_only=True)
class CommittedRow:
    """Offsets that a group committed for a partition."""

    topic: str = told("Topic name, or topic id if no name was seen.")
    partition: int = told("Partition number.")
    commits: int = told("Commits accepted.")
    failed: int = told("Commits refused or without response.")
    first_offset: int | None = told("First committed offset accepted; null if none was, here and below.")
    first: datetime | None = told("When.")
    last_offset: int | None = told("Last committed offset accepted.")
    last: datetime | None = told("When.")
    per_second: float | None = told("Rate at which the committed offset moved between the two.")


@dataclass(slots=True, kw_only=True)
class GroupStory:
    """A group, and what happened to it."""

    group: str = told("Group id.")
    kind: str | None = told("classic, consumer (KIP-848), share or streams; null if only commits were seen.")
    protocol_type: str | None = told("Protocol type of a classic group: consumer, connect.")
    protocols: list[str] = told("Assignors chosen.")
    members: list[MemberRow] = told("All members, in order of appearance.")
    rebalances: list[RebalanceRow] = told("In order of time.")
    storms: list[StormRow] = told(
        "Where 4 or more rebalances start within a minute, not counting first members and the second "
        "halves of cooperative ones."
    )
    committed: list[CommittedRow] = told("By topic and partition.")
    errors: dict[str, int] = told("Error codes in responses to its members, by name.")
    first: datetime = told("When it was first seen.")
    last: datetime = told("When it was last seen.")
    events_left_out: int = told("Events dropped because of a limit: the timeline ends before them.")


# ------------------------------------------------------------------------------------------------------------
# Who is behind, and how far: the part of the document that ``--lag`` asks for.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class LagRow:
    """A reader of a partition: a client that fetches it, or a group that commits offsets of it."""

    kind: str = told("`client` or `group`.")
    name: str = told("Client id, or group id.")
    topic: str = told("Topic name or id.")
    partition: int = told("Partition number.")
    position: int | None = told("Of a client: the offset after the last record it received.")
    committed_offset: int | None = told("Of a group: the last offset committed, or returned by OffsetFetch.")
    high_watermark: int | None = told("End of what consumers may read, as last seen.")
    last_stable_offset: int | None = told("End of what read_committed consumers may read.")
    log_start_offset: int | None = told("First offset still available.")
    lag: int | None = told("Records between that position or offset and the high watermark, at the end.")
    lag_first: int | None = told("The lag when it was first known.")
    lag_worst: int | None = told("The largest lag.")
    worst: datetime | None = told("When the lag was largest.")
    seconds: float | None = told(
        "Age of the newest record it received, if records were left; 0 if none were."
    )
    seconds_worst: float | None = told("The largest such age.")
    first: datetime = told("Its first fetch or commit.")
    last: datetime = told("Its last fetch or commit.")
    count: int = told("Fetch responses that show a lag; of a group: commits and OffsetFetch responses.")


# ------------------------------------------------------------------------------------------------------------
# What an expert would point at: the part of the document that ``--findings`` asks for.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class FindingRow:
    """Something to look at."""

    rule: str = told("Id of the rule; `summary --findings --list` explains each.")
    severity: str = told(
        "`error`: something does not work. `warning`: costs time, money or safety. `note`: good to know."
    )
    about: str = told("What the finding is about.")
    sentence: str = told("The evidence, with numbers.")
    advice: str = told("What to do about it.")
    count: int = told("How often it was seen.")
    first: datetime = told("When it was first seen.")
    last: datetime = told("When it was last seen.")
    evidence: list[str] = told("CONNECTION/NUMBER of the first five, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class RuleRow:
    """A rule."""

    rule: str = told("Id of the rule.")
    severity: str = told("Usual severity of its findings.")
    title: str = told("What it looks for.")
    when: str = told("Its threshold, and the reason for it.")
    advice: str = told("The advice it gives.")


# ------------------------------------------------------------------------------------------------------------
# Who uses which version, and what newer brokers refuse: the part of the document for ``--versions``.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class UsedRow:
    """A version of an api that a client uses."""

    client: str = told("Client id, or the address of a client without one.")
    software: str | None = told("Name and version of the client library, if sent in ApiVersions.")
    addresses: list[str] = told("Client addresses: at most 20.")
    api: str = told("API name.")
    api_key: int = told("API key.")
    version: int = told("Version of the requests.")
    since: str | None = told("The Apache Kafka release that introduced this version.")
    removed: str | None = told(
        "The release from which on brokers reject it; null if current releases accept it."
    )
    count: int = told("Number of requests.")
    first: datetime = told("Time of the first.")
    last: datetime = told("Time of the last.")
    example: str = told("CONNECTION/NUMBER of the first, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class OfferRow:
    """An api that a broker offers."""

    broker: str = told("Address and port.")
    release: str | None = told("Kafka release of the broker, inferred from the versions it advertises.")
    api: str = told("API name, or its key if newer than this version of kdissect.")
    api_key: int = told("API key.")
    first_version: int = told("Lowest version the broker supports.")
    last_version: int = told("Highest version the broker supports.")
    used: list[int] = told("Versions used with this broker; empty: no client uses the API.")


@dataclass(slots=True, kw_only=True)
class VersionsPart:
    """The audit before an upgrade."""

    refused: int = told("Rows of `used` whose version a newer release rejects.")
    used: list[UsedRow] = told("Versions that clients use; those that will break first come first.")
    offered: list[OfferRow] = told("Versions that brokers advertise.")


# ------------------------------------------------------------------------------------------------------------
# Producers and their transactions: the part of the document that ``--transactions`` asks for.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class ProducerRow:
    """A transactional id, or an idempotent producer that has none."""

    transactional_id: str | None = told("Transactional id; null for a producer without one.")
    producer_ids: list[int] = told("Producer ids it was given or used: at most 20.")
    epoch: int | None = told("The highest producer epoch of the last of them.")
    clients: list[str] = told("Client ids: at most 20.")
    addresses: list[str] = told("Client addresses: at most 20.")
    inits: int = told("InitProducerId requests that succeeded.")
    begun: int = told("Transactions; the sum of the next five numbers.")
    committed: int = told("Ended by EndTxn, commit.")
    aborted: int = told("Ended by EndTxn, abort.")
    superseded: int = told("Ended by another InitProducerId: the coordinator aborts the open transaction.")
    timed_out: int = told("Ended by the coordinator, which wrote abort markers after the timeout.")
    open: int = told("Still open at the end of the capture.")
    longest_us: int | None = told("Duration of the longest, in microseconds.")
    fenced: int = told("Responses that report a producer as fenced.")
    batches: int = told("Batches with a producer id that it sent, including retries.")
    records: int = told("Records in them.")
    missing: int = told("Sequence numbers missing between those seen: no captured batch has them.")
    repeated: int = told("Records sent more than once: retries.")
    commit_markers: int = told("Partitions for which the coordinator requested a commit marker.")
    abort_markers: int = told("Partitions for which it requested an abort marker.")
    control_batches: int = told(
        "Batches with markers in fetched records, counted each time they were fetched."
    )
    first: datetime | None = told("When it was first seen.")
    last: datetime | None = told("When it was last seen.")


@dataclass(slots=True, kw_only=True)
class TransactionRow:
    """A transaction."""

    transactional_id: str = told("Whose.")
    producer_id: int = told("Producer id.")
    epoch: int = told("Producer epoch at its start.")
    outcome: str = told("`open`, `timed_out`, `superseded`, `aborted` or `committed`.")
    begin: datetime = told(
        "The first AddPartitionsToTxn or AddOffsetsToTxn, or the first transactional Produce (KIP-890)."
    )
    end: datetime | None = told(
        "Time of the response to EndTxn, or to whatever ended it; null while it is open."
    )
    open_us: int = told("Microseconds from start to end, or to the end of the capture.")
    marked: datetime | None = told("When its first marker was written, if captured.")
    is_whole: bool = told("Whether its start is known to be in the capture.")
    partitions: int = told("Distinct partitions it wrote to or added.")
    records: int = told("Records sent in it.")
    offsets: int = told("Partitions for which it committed offsets of a group.")
    example: str = told("CONNECTION/NUMBER of its first exchange, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class FencedRow:
    """Answers that told a producer that its epoch is over."""

    transactional_id: str | None = told("Transactional id; null for a producer without one.")
    producer_id: int = told("The producer id in its requests.")
    epoch: int = told("The producer epoch in its requests.")
    error: str = told("PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH as older brokers call it.")
    api: str = told("API of the responses.")
    client: str = told("Client id of the fenced producer.")
    address: str = told("Its address.")
    by_client: str | None = told(
        "Client id that had last requested the producer id, from another connection."
    )
    by_address: str | None = told("Its address.")
    by_example: str | None = told("CONNECTION/NUMBER of the InitProducerId that raised the epoch.")
    count: int = told("How often it was seen.")
    first: datetime = told("Time of the first.")
    last: datetime = told("Time of the last.")
    example: str = told("CONNECTION/NUMBER of the first.")


@dataclass(slots=True, kw_only=True)
class SequenceRow:
    """What a producer id wrote to a partition."""

    producer_id: int = told("Producer id.")
    transactional_id: str | None = told("Its transactional id, if any.")
    topic: str = told("Topic name or id.")
    partition: int = told("Partition number.")
    epochs: int = told("Producer epochs it wrote with.")
    batches: int = told("Batches, including retries.")
    records: int = told("Records in them.")
    holes: int = told("Gaps in the sequence numbers: lost before the broker, or by the capture.")
    missing: int = told("Sequence numbers missing in them.")
    repeated: int = told("Records sent more than once.")
    errors: dict[str, int] = told("Batches refused, by error.")
    first: datetime = told("Time of the first.")
    last: datetime = told("Time of the last.")
    example: str | None = told("CONNECTION/NUMBER of the first batch after a gap.")


@dataclass(slots=True, kw_only=True)
class TransactionsPart:
    """Producers with a producer id."""

    producers: list[ProducerRow] = told("Those with a transactional id first.")
    transactions: list[TransactionRow] = told(
        "Open ones first, committed ones last; the longest first within each state."
    )
    transactions_left_out: int = told("Transactions that are counted above but not listed.")
    fenced: list[FencedRow] = told("Fenced producers.")
    sequences: list[SequenceRow] = told("By partition, those with gaps first.")


# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Spread:
    """How a quantity is distributed."""

    count: int = told("Number of values.")
    min: int | None = told("Minimum; null if there are no values, here and below.")
    mean: float | None = told("Arithmetic mean.")
    p50: int | None = told("Median.")
    p95: int | None = told("95th percentile.")
    p99: int | None = told("99th percentile. Ranks are within 0.7 % when there are many values.")
    max: int | None = told("Maximum.")


@dataclass(slots=True, kw_only=True)
class LoadRow:
    """The exchanges that a row stands for."""

    exchanges: int = told("Number of exchanges.")
    answered: int = told("Exchanges with request and response.")
    unanswered: int = told("Requests whose response never came or was not captured.")
    unacknowledged: int = told("Requests that expect no response: acks=0.")
    orphans: int = told("Responses whose request was not captured.")
    per_second: float | None = told("Exchanges per second, over the time span of the whole summary.")
    request_bytes: int = told("Bytes of request frames, including the size prefix.")
    response_bytes: int = told("Bytes of response frames, including the size prefix.")
    latency_us: Spread = told("Microseconds until the response, not counting long polls.")
    long_polls: int = told("Fetches that waited for data until their max_wait_ms expired.")
    long_poll_us: Spread = told("Their duration, in microseconds.")
    errors: int = told("Exchanges with an error code in the response.")
    throttled: int = told("Exchanges whose response has a throttle time.")
    throttle_time_ms: int = told("Sum of these throttle times, which are not part of the latency.")
    first: datetime | None = told("Time of the first.")
    last: datetime | None = told("Time of the last.")


@dataclass(slots=True, kw_only=True)
class ApiRow(LoadRow):
    """An api."""

    api: str = told("API name.")
    versions: list[int] = told("Versions used.")


@dataclass(slots=True, kw_only=True)
class BrokerRow(LoadRow):
    """A broker, or whatever answered at this address."""

    broker: str = told("Address and port.")
    id: int | None = told("Node id, if reported by Metadata, FindCoordinator or the like.")
    rack: str | None = told("Its rack, if reported.")
    release: str | None = told("Kafka release, inferred from the versions it advertises in ApiVersions.")
    connections: int = told("Number of connections clients had to it.")
    clients: int = told("Distinct client ids.")


@dataclass(slots=True, kw_only=True)
class ClientRow(LoadRow):
    """A client id, whichever programs use it."""

    client: str = told("Its client id, or its address if it sent none.")
    software: list[str] = told("Name and version of its library, if sent in ApiVersions.")
    principals: list[str] = told("Authenticated principal, if it appears in the traffic.")
    addresses: list[str] = told("Client addresses: at most 20.")
    connections: int = told("Number of its connections.")
    apis: dict[str, int] = told("Exchanges by API.")


@dataclass(slots=True, kw_only=True)
class RecordsRow:
    """What was written to or read from a topic or partition.

    A record that two consumers fetch, or one consumer twice, counts twice. What was refused does not count.
    """

    produced_records: int | None = told("Records accepted; null if compressed message sets hide the number.")
    produced_bytes: int = told("Bytes of their batches on the wire.")
    produced_batches: int = told("Record batches, or messages of magic 0 and 1.")
    produced_records_per_second: float | None = told("Over the time span of the whole summary.")
    produced_bytes_per_second: float | None = told("Likewise.")
    fetched_records: int | None = told("Records sent to consumers; null as above.")
    fetched_bytes: int = told("Bytes of their batches on the wire.")
    fetched_batches: int = told("Record batches, or messages of magic 0 and 1.")
    fetched_records_per_second: float | None = told("Over the time span of the whole summary.")
    fetched_bytes_per_second: float | None = told("Likewise.")
    replicated_bytes: int = told("Batches sent to other brokers.")
    compression: dict[str, int] = told("Produced batches by codec.")
    ratio: float | None = told(
        "Uncompressed over compressed bytes, of the produced batches that were decoded."
    )
    errors: dict[str, int] = told("Error codes in responses, by name.")


@dataclass(slots=True, kw_only=True)
class TopicRow(RecordsRow):
    """A topic."""

    topic: str = told("Topic name, or topic id if no name was seen.")
    partitions: int = told("Distinct partitions written or read.")
    producers: list[str] = told("Clients that wrote to it: at most 20.")
    consumers: list[str] = told("Clients that read from it: at most 20.")
    produce_latency_us: Spread = told("Of Produce requests with this topic, in microseconds.")


@dataclass(slots=True, kw_only=True)
class PartitionRow(RecordsRow):
    """A partition."""

    topic: str = told("Topic name or id.")
    partition: int = told("Partition number.")


@dataclass(slots=True, kw_only=True)
class GroupRow(LoadRow):
    """What members and tools asked of a group's coordinator."""

    group: str = told("Group id.")
    clients: list[str] = told("Client ids: at most 20.")
    apis: dict[str, int] = told("Exchanges by API.")


@dataclass(slots=True, kw_only=True)
class ConnectionRow(LoadRow):
    """A connection."""

    connection: str = told("Connection id, as in `read`.")
    client: str = told("Client id of its first exchange, or its address.")
    client_address: str = told("Address and port of the client.")
    broker: str = told("Address and port of the broker.")


@dataclass(slots=True, kw_only=True)
class ErrorRow:
    """An error that brokers answered with."""

    error: str = told("Error name.")
    api: str = told("API of the responses.")
    topic: str | None = told("The topic, if the response names one.")
    client: str = told("Client id of the requests.")
    count: int = told("Number of exchanges and topics with it.")
    first: datetime = told("Time of the first.")
    last: datetime = told("Time of the last.")
    example: str = told("CONNECTION/NUMBER of the first, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class SlowRow:
    """One of the slowest exchanges; long polls are none of them."""

    exchange: str = told("CONNECTION/NUMBER, for `read --exchange`.")
    time: datetime = told("Time of the last byte of the request.")
    latency_us: int = told("Microseconds until the first byte of the response.")
    api: str = told("API name.")
    client: str = told("Client id.")
    broker: str = told("Broker address.")
    topics: list[str] = told("Topics: at most 5.")
    throttle_time_ms: int = told(
        "Throttle time in the response; since 2.0 brokers respond before throttling (KIP-219)."
    )


@dataclass(slots=True, kw_only=True)
class IntervalRow(LoadRow):
    """A piece of time."""

    start: datetime = told("Start of the window.")
    key: str | None = told("The row of `--by` that it counts; null: all exchanges.")


@dataclass(slots=True, kw_only=True)
class CaptureRow:
    """What was read, and what of it could not be seen."""

    captures: list[str] = told("Files, as given.")
    packets: int = told("Packets read.")
    connections: dict[str, int] = told("TCP connections by protocol.")
    exchanges: int = told("Exchanges that match the filters.")
    first: datetime | None = told("Time of the first.")
    last: datetime | None = told("Time of the last.")
    seconds: float = told("From first to last.")
    request_bytes: int = told("Bytes of request frames.")
    response_bytes: int = told("Bytes of response frames.")
    lost_bytes: int = told("Bytes of TCP streams missing from the capture.")
    gaps: int = told("Number of gaps.")
    anomalies: dict[str, int] = told("Anomalies by kind; `kdissect check` has details.")
    skipped: dict[str, int] = told("Skipped packets by reason.")


@dataclass(slots=True, kw_only=True)
class Summary:
    """The whole document. A part that was not asked for is null."""

    capture: CaptureRow = told("Totals.")
    apis: list[ApiRow] | None = told("By API.")
    brokers: list[BrokerRow] | None = told("By broker.")
    clients: list[ClientRow] | None = told("By client id.")
    topics: list[TopicRow] | None = told("By topic.")
    partitions: list[PartitionRow] | None = told("By partition.")
    groups: list[GroupRow] | None = told("By group.")
    connections: list[ConnectionRow] | None = told("By connection.")
    errors: list[ErrorRow] | None = told("Errors.")
    slowest: list[SlowRow] | None = told("The slowest exchanges.")
    intervals: list[IntervalRow] | None = told("A time series.")
    group_stories: list[GroupStory] | None = told("Members and rebalances of each group.")
    lag: list[LagRow] | None = told("Consumer lag.")
    versions: VersionsPart | None = told("Versions in use, and those that newer brokers reject.")
    transactions: TransactionsPart | None = told("Producers with a producer id, and their transactions.")
    findings: list[FindingRow] | None = told("Likely problems, the worst first.")
    folded: dict[str, int] = told("Exchanges without a row of their own, by table: tables are bounded.")
