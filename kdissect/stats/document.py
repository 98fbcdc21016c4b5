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

    member_id: str = told("As the broker or the member itself made it.")
    group_instance_id: str | None = told("Of a static member.")
    client: str = told("Its client id, or its address where it told none.")
    address: str = told("Where it was last seen from.")
    joined: datetime | None = told("When it first asked to join; null where that was not captured.")
    left: datetime | None = told("When it left of its own; null where it did not.")
    last: datetime = told("When it was last seen, and accepted.")
    heartbeats: int = told("Heartbeats that brought nothing new.")
    generation: int | None = told("The last one that it was seen in.")
    assignment: dict[str, list[int]] | None = told(
        "Topic to partitions, the last that it was given; subtopology to tasks in streams groups; null where "
        "none was captured or readable."
    )
    subscribed: list[str] | None = told("Topics that it wants.")


@dataclass(slots=True, kw_only=True)
class CauseRow:
    """What started a rebalance, or happened while it went on."""

    cause: str = told(
        "first (the group had no member), join, return (a static member under a new member id), leave, "
        "timeout (gone without leaving, or refused as unknown), subscription (a member wants other topics), "
        "revocation (second half of a cooperative rebalance), protocol (another assignor), metadata (the "
        "leader joins again: topics changed), rejoin (another member does, for no such cause), unknown."
    )
    time: datetime | None = told("When; null where it cannot be told.")
    member_id: str | None = told("Whose doing.")
    client: str | None = told("Its client id.")
    reason: str | None = told("What the client gave as the reason (KIP-800).")


@dataclass(slots=True, kw_only=True)
class RebalanceRow:
    """A rebalance: from the first JoinGroup to the last SyncGroup of one generation.

    In groups without these: from what started it to the last member that was told its new epoch.
    """

    start: datetime = told("When the first member asked to join.")
    end: datetime | None = told("When the last one had its assignment; null where none was seen to get one.")
    seconds: float | None = told("How long that took.")
    causes: list[CauseRow] = told("What started it, then what happened meanwhile.")
    generation_before: int | None = told("Null where it was not captured.")
    generation_after: int = told("The one that it led to.")
    members_before: int | None = told("Null where it was not captured.")
    members_after: int | None = told("As the leader was told; where that was not captured, who was seen.")
    joins: int = told("JoinGroup requests that it took, failed ones included.")
    protocol: str | None = told("The assignor that was chosen.")
    leader: str | None = told("Member id of the leader.")
    exchange: str = told("The first of these: `read --exchange` shows it.")


@dataclass(slots=True, kw_only=True)
class StormRow:
    """Rebalances that follow each other closely, again and again."""

    start: datetime = told("When the first of them started.")
    end: datetime = told("When the last one started.")
    rebalances: int = told("How many.")
    causes: dict[str, int] = told("What started them.")


@dataclass(slots=True, kw_only=True)
class CommittedRow:
    """Offsets that a group committed for a partition."""

    topic: str = told("Its name, or its id where no name was seen.")
    partition: int = told("Its number.")
    commits: int = told("How many were accepted.")
    failed: int = told("How many were refused, or never answered.")
    first_offset: int | None = told("The first that was accepted; null where none was, here and below.")
    first: datetime | None = told("When.")
    last_offset: int | None = told("The last.")
    last: datetime | None = told("When.")
    per_second: float | None = told("How fast the committed offset moved between these two.")


@dataclass(slots=True, kw_only=True)
class GroupStory:
    """A group, and what happened to it."""

    group: str = told("Its group id.")
    kind: str | None = told("classic, consumer (KIP-848), share or streams; null where only commits show it.")
    protocol_type: str | None = told("Of a classic group: consumer, connect.")
    protocols: list[str] = told("Assignors that were chosen.")
    members: list[MemberRow] = told("Everybody who was a member, in order of appearance.")
    rebalances: list[RebalanceRow] = told("In order of time.")
    storms: list[StormRow] = told(
        "Where 4 or more rebalances start within a minute, first members and the second halves of "
        "cooperative ones not counted."
    )
    committed: list[CommittedRow] = told("By topic and partition.")
    errors: dict[str, int] = told("Error codes in answers to its members, by name.")
    first: datetime = told("When it was first seen.")
    last: datetime = told("When it was last seen.")
    events_left_out: int = told("Events that no room was left for: the timeline ends before them.")


# ------------------------------------------------------------------------------------------------------------
# Who is behind, and how far: the part of the document that ``--lag`` asks for.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class LagRow:
    """A reader of a partition: a client that fetches it, or a group that commits offsets of it."""

    kind: str = told("`client` or `group`.")
    name: str = told("Client id, or group id.")
    topic: str = told("Name or id of the topic.")
    partition: int = told("Its partition.")
    position: int | None = told("Of a client: the offset behind the last record it got.")
    committed_offset: int | None = told("Of a group: the last offset committed, or told by OffsetFetch.")
    high_watermark: int | None = told("End of what consumers may read, as the wire last told it.")
    last_stable_offset: int | None = told("End of what read_committed consumers may read.")
    log_start_offset: int | None = told("First offset that is still there.")
    lag: int | None = told("Records between that position or offset and the high watermark, at the end.")
    lag_first: int | None = told("The same when it was first known.")
    lag_worst: int | None = told("The same when it was largest.")
    worst: datetime | None = told("When that was.")
    seconds: float | None = told("Age of the newest record it got, when records were left; 0 when none were.")
    seconds_worst: float | None = told("The oldest that it was.")
    first: datetime = told("First time that it fetched or committed.")
    last: datetime = told("Last time.")
    count: int = told("Answers to Fetch that told a lag; of a group: commits, and answers to OffsetFetch.")


# ------------------------------------------------------------------------------------------------------------
# What an expert would point at: the part of the document that ``--findings`` asks for.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class FindingRow:
    """Something to look at."""

    rule: str = told("The rule that found it; `summary --findings --list` explains each.")
    severity: str = told(
        "`error`: does not work. `warning`: costs time, money or safety. `note`: good to know."
    )
    about: str = told("Who or what it is about.")
    sentence: str = told("What was seen, with numbers.")
    advice: str = told("What to do about it.")
    count: int = told("How often it was seen.")
    first: datetime = told("When first.")
    last: datetime = told("When last.")
    evidence: list[str] = told("CONNECTION/NUMBER of the first five, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class RuleRow:
    """A rule."""

    rule: str = told("Its name.")
    severity: str = told("Of its findings, as a rule.")
    title: str = told("What it looks for.")
    when: str = told("From when on it speaks, and why not earlier.")
    advice: str = told("What it says to do.")


# ------------------------------------------------------------------------------------------------------------
# Who uses which version, and what newer brokers refuse: the part of the document for ``--versions``.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class UsedRow:
    """A version of an api that a client uses."""

    client: str = told("Client id, or the address of a client that told none.")
    software: str | None = told("Name and version of its library, where ApiVersions told it.")
    addresses: list[str] = told("Where from: at most 20 addresses.")
    api: str = told("The api.")
    api_key: int = told("Its key.")
    version: int = told("The version of the requests.")
    since: str | None = told("The release of Apache Kafka that brought this version.")
    removed: str | None = told("The release from which on brokers refuse it; null where today's take it.")
    count: int = told("How many requests.")
    first: datetime = told("Time of the first.")
    last: datetime = told("Time of the last.")
    example: str = told("CONNECTION/NUMBER of the first, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class OfferRow:
    """An api that a broker offers."""

    broker: str = told("Address and port.")
    release: str | None = told("Which Kafka the broker is, guessed from all that it offers.")
    api: str = told("The api, or its key where it is newer than this program.")
    api_key: int = told("Its key.")
    first_version: int = told("First version that the broker takes.")
    last_version: int = told("Last version that it takes.")
    used: list[int] = told("Versions that were used with this broker; empty: nobody uses the api.")


@dataclass(slots=True, kw_only=True)
class VersionsPart:
    """The audit before an upgrade."""

    refused: int = told("Rows of `used` whose version a newer release refuses.")
    used: list[UsedRow] = told("What clients use; what will break first.")
    offered: list[OfferRow] = told("What brokers offer.")


# ------------------------------------------------------------------------------------------------------------
# Producers and their transactions: the part of the document that ``--transactions`` asks for.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class ProducerRow:
    """A transactional id, or an idempotent producer that has none."""

    transactional_id: str | None = told("Its transactional id; null for a producer that has none.")
    producer_ids: list[int] = told("The producer ids that it got or used: at most 20.")
    epoch: int | None = told("The highest producer epoch of the last of them.")
    clients: list[str] = told("Client ids: at most 20.")
    addresses: list[str] = told("Where from: at most 20 addresses.")
    inits: int = told("InitProducerId requests that were answered without an error.")
    begun: int = told("Transactions; the numbers of the next five add up to it.")
    committed: int = told("Ended by EndTxn, commit.")
    aborted: int = told("Ended by EndTxn, abort.")
    superseded: int = told("Ended by another InitProducerId: the coordinator aborts what was open.")
    timed_out: int = told("Ended by the coordinator, which wrote abort markers when the time was over.")
    open: int = told("Never ended in the capture.")
    longest_us: int | None = told("The longest was open for so many microseconds.")
    fenced: int = told("Answers that told a producer that its epoch is over.")
    batches: int = told("Batches with a producer id that it sent, those sent again included.")
    records: int = told("Records in them.")
    missing: int = told("Sequence numbers that no captured batch has, between those that were seen.")
    repeated: int = told("Records that it sent again: retries.")
    commit_markers: int = told("Partitions for which the coordinator had a commit marker written.")
    abort_markers: int = told("Partitions for which it had an abort marker written.")
    control_batches: int = told("Batches with markers in fetched records, as often as they were fetched.")
    first: datetime | None = told("When it was first seen.")
    last: datetime | None = told("When last.")


@dataclass(slots=True, kw_only=True)
class TransactionRow:
    """A transaction."""

    transactional_id: str = told("Whose.")
    producer_id: int = told("Its producer id.")
    epoch: int = told("The producer epoch with which it began.")
    outcome: str = told("`open`, `timed_out`, `superseded`, `aborted` or `committed`.")
    begin: datetime = told(
        "The first AddPartitionsToTxn or AddOffsetsToTxn, or the first transactional Produce (KIP-890)."
    )
    end: datetime | None = told("When EndTxn, or what else ended it, was answered; null while it is open.")
    open_us: int = told("Microseconds from begin to end, or to the end of the capture.")
    marked: datetime | None = told("When its first marker was written, where the capture has that.")
    is_whole: bool = told("Whether its begin is known to be in the capture.")
    partitions: int = told("Different partitions that it wrote to, or was to write to.")
    records: int = told("Records that were sent in it.")
    offsets: int = told("Partitions for which it committed a group's offsets.")
    example: str = told("CONNECTION/NUMBER of its first exchange, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class FencedRow:
    """Answers that told a producer that its epoch is over."""

    transactional_id: str | None = told("Whose; null for a producer without one.")
    producer_id: int = told("The producer id with which it asked.")
    epoch: int = told("The producer epoch with which it asked.")
    error: str = told("PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH as older brokers call it.")
    api: str = told("In answers of which api.")
    client: str = told("To whom.")
    address: str = told("Where that one is.")
    by_client: str | None = told("Who had asked for the producer id before, from another connection.")
    by_address: str | None = told("Where that one is.")
    by_example: str | None = told("CONNECTION/NUMBER of the InitProducerId that raised the epoch.")
    count: int = told("How often.")
    first: datetime = told("When first.")
    last: datetime = told("When last.")
    example: str = told("CONNECTION/NUMBER of the first.")


@dataclass(slots=True, kw_only=True)
class SequenceRow:
    """What a producer id wrote to a partition."""

    producer_id: int = told("The producer id.")
    transactional_id: str | None = told("Its transactional id, where it has one.")
    topic: str = told("Name or id of the topic.")
    partition: int = told("Its partition.")
    epochs: int = told("Producer epochs in which it wrote.")
    batches: int = told("Batches, those sent again included.")
    records: int = told("Records in them.")
    holes: int = told("Places where sequence numbers are missing: lost before the broker, or by the capture.")
    missing: int = told("How many numbers are missing there.")
    repeated: int = told("Records that were sent again.")
    errors: dict[str, int] = told("Batches that were refused, by error.")
    first: datetime = told("Time of the first.")
    last: datetime = told("Time of the last.")
    example: str | None = told("CONNECTION/NUMBER of the first batch behind missing numbers.")


@dataclass(slots=True, kw_only=True)
class TransactionsPart:
    """Producers with a producer id."""

    producers: list[ProducerRow] = told("Those with a transactional id first.")
    transactions: list[TransactionRow] = told(
        "The open first, the committed last; of each the longest first."
    )
    transactions_left_out: int = told("Transactions that are counted above and not listed.")
    fenced: list[FencedRow] = told("Who was told that its epoch is over.")
    sequences: list[SequenceRow] = told("By partition, those with missing numbers first.")


# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Spread:
    """How a quantity is distributed."""

    count: int = told("Of how many numbers.")
    min: int | None = told("The least; null where there are none, here and below.")
    mean: float | None = told("The arithmetic mean.")
    p50: int | None = told("The median.")
    p95: int | None = told("19 of 20 are no larger.")
    p99: int | None = told("99 of 100 are no larger. Ranks are within 0.7 % where there are many numbers.")
    max: int | None = told("The largest.")


@dataclass(slots=True, kw_only=True)
class LoadRow:
    """The exchanges that a row stands for."""

    exchanges: int = told("How many.")
    answered: int = told("Of those, with request and response.")
    unanswered: int = told("Whose response never came, or was not captured.")
    unacknowledged: int = told("That wanted no response: acks=0.")
    orphans: int = told("Responses whose request was not captured.")
    per_second: float | None = told("Exchanges a second, over the span of the whole summary.")
    request_bytes: int = told("Frames of requests, their length bytes included.")
    response_bytes: int = told("Frames of responses, their length bytes included.")
    latency_us: Spread = told("Microseconds until the answer, without long polls.")
    long_polls: int = told("Fetches that found nothing to read until their max_wait_ms was over.")
    long_poll_us: Spread = told("How long these took, in microseconds.")
    errors: int = told("Exchanges with an error code in the response.")
    throttled: int = told("Exchanges whose response tells a throttle time.")
    throttle_time_ms: int = told("The sum of these times, which are no part of the latency.")
    first: datetime | None = told("Time of the first.")
    last: datetime | None = told("Time of the last.")


@dataclass(slots=True, kw_only=True)
class ApiRow(LoadRow):
    """An api."""

    api: str = told("Its name.")
    versions: list[int] = told("Versions that were used.")


@dataclass(slots=True, kw_only=True)
class BrokerRow(LoadRow):
    """A broker, or whatever answered at this address."""

    broker: str = told("Address and port.")
    id: int | None = told("Node id, where Metadata, FindCoordinator or the like told it.")
    rack: str | None = told("Its rack, likewise.")
    release: str | None = told("Which Kafka it is, guessed from the versions it offers in ApiVersions.")
    connections: int = told("How many clients had open to it, at one time or another.")
    clients: int = told("Different client ids.")


@dataclass(slots=True, kw_only=True)
class ClientRow(LoadRow):
    """A client id, whichever programs use it."""

    client: str = told("Its client id, or its address where it told none.")
    software: list[str] = told("Name and version of its library, as ApiVersions told it.")
    principals: list[str] = told("Who it authenticated as, where the wire tells.")
    addresses: list[str] = told("Where from: at most 20 addresses.")
    connections: int = told("How many connections it used.")
    apis: dict[str, int] = told("Exchanges by api.")


@dataclass(slots=True, kw_only=True)
class RecordsRow:
    """What was written to or read from a topic or partition.

    A record that two consumers fetch, or one consumer twice, counts twice. What was refused does not count.
    """

    produced_records: int | None = told(
        "Records accepted; null where compressed message sets hide the number."
    )
    produced_bytes: int = told("Their batches on the wire.")
    produced_batches: int = told("Record batches, or messages of magic 0 and 1.")
    produced_records_per_second: float | None = told("Over the span of the whole summary.")
    produced_bytes_per_second: float | None = told("Likewise.")
    fetched_records: int | None = told("Records sent to consumers; null as above.")
    fetched_bytes: int = told("Their batches on the wire.")
    fetched_batches: int = told("Record batches, or messages of magic 0 and 1.")
    fetched_records_per_second: float | None = told("Over the span of the whole summary.")
    fetched_bytes_per_second: float | None = told("Likewise.")
    replicated_bytes: int = told("Batches sent to other brokers.")
    compression: dict[str, int] = told("Produced batches by codec.")
    ratio: float | None = told(
        "Uncompressed by compressed bytes, of the produced batches that were looked into."
    )
    errors: dict[str, int] = told("Error codes in responses, by name.")


@dataclass(slots=True, kw_only=True)
class TopicRow(RecordsRow):
    """A topic."""

    topic: str = told("Its name, or its id where no name was seen.")
    partitions: int = told("Different partitions that were written or read.")
    producers: list[str] = told("Clients that wrote to it: at most 20.")
    consumers: list[str] = told("Clients that read from it: at most 20.")
    produce_latency_us: Spread = told("Of Produce requests with this topic, in microseconds.")


@dataclass(slots=True, kw_only=True)
class PartitionRow(RecordsRow):
    """A partition."""

    topic: str = told("Its topic's name, or id.")
    partition: int = told("Its number.")


@dataclass(slots=True, kw_only=True)
class GroupRow(LoadRow):
    """What members and tools asked of a group's coordinator."""

    group: str = told("The group id.")
    clients: list[str] = told("Client ids: at most 20.")
    apis: dict[str, int] = told("Exchanges by api.")


@dataclass(slots=True, kw_only=True)
class ConnectionRow(LoadRow):
    """A connection."""

    connection: str = told("Its id, as in `read`.")
    client: str = told("Client id of its first exchange, or its address.")
    client_address: str = told("Address and port.")
    broker: str = told("Address and port.")


@dataclass(slots=True, kw_only=True)
class ErrorRow:
    """An error that brokers answered with."""

    error: str = told("Its name.")
    api: str = told("In answers of which api.")
    topic: str | None = told("About which topic, where the answer says so.")
    client: str = told("To whom.")
    count: int = told("How often: once an exchange and topic.")
    first: datetime = told("When first.")
    last: datetime = told("When last.")
    example: str = told("CONNECTION/NUMBER of the first, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class SlowRow:
    """One of the slowest exchanges; long polls are none of them."""

    exchange: str = told("CONNECTION/NUMBER, for `read --exchange`.")
    time: datetime = told("Last byte of the request.")
    latency_us: int = told("Until the first byte of the response, in microseconds.")
    api: str = told("What was asked.")
    client: str = told("By whom.")
    broker: str = told("Of whom.")
    topics: list[str] = told("About which topics: at most 5.")
    throttle_time_ms: int = told(
        "Throttle time that the answer tells; from 2.0 on brokers answer first (KIP-219)."
    )


@dataclass(slots=True, kw_only=True)
class IntervalRow(LoadRow):
    """A piece of time."""

    start: datetime = told("Where it begins.")
    key: str | None = told("The row of `--by` it counts; null: all exchanges.")


@dataclass(slots=True, kw_only=True)
class CaptureRow:
    """What was read, and what of it could not be seen."""

    captures: list[str] = told("Files, as they were named.")
    packets: int = told("Packets read.")
    connections: dict[str, int] = told("TCP connections by what they speak.")
    exchanges: int = told("Exchanges that the filters let through.")
    first: datetime | None = told("Time of the first of them.")
    last: datetime | None = told("Time of the last.")
    seconds: float = told("From first to last.")
    request_bytes: int = told("Frames of requests.")
    response_bytes: int = told("Frames of responses.")
    lost_bytes: int = told("Bytes of TCP streams that are not in the capture.")
    gaps: int = told("In so many places.")
    anomalies: dict[str, int] = told("What was wrong or odd, by kind: `kdissect check` says more.")
    skipped: dict[str, int] = told("Packets that were not looked at, by reason.")


@dataclass(slots=True, kw_only=True)
class Summary:
    """The whole document. A part that was not asked for is null."""

    capture: CaptureRow = told("What was read.")
    apis: list[ApiRow] | None = told("By api.")
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
    lag: list[LagRow] | None = told("Who is behind.")
    versions: VersionsPart | None = told("Who uses which version, and what newer brokers refuse.")
    transactions: TransactionsPart | None = told("Producers with a producer id, and their transactions.")
    findings: list[FindingRow] | None = told("What an expert would point at, the worst first.")
    folded: dict[str, int] = told("Exchanges that no row was left for, by table: the tables are bounded.")
