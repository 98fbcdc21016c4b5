"""The summary as typed values: one document, whose JSON has the same names.

A key or kind of anomaly that is renamed or removed raises ``SCHEMA_VERSION`` and is in CHANGELOG.md.

Times are UTC; latencies run from a request's last byte to its response's first. docs/summary.schema.json is
generated from this file, and the text page shows nothing else. Rows are never changed, but the classes are
not frozen: loading them would take twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003  (the JSON Schema is made from the annotations)
from typing import Any

SCHEMA_VERSION = 4
"""Version of the documents of ``summary`` and ``check``. New keys do not raise it."""

# ------------------------------------------------------------------------------------------------------------
# A description -> a dataclass field that has it: the JSON Schema repeats it.
# ------------------------------------------------------------------------------------------------------------


def described(description: str) -> Any:
    """A field with its description in the JSON Schema."""
    return field(metadata={"description": description})


def cluster() -> Any:
    """The field with the cluster of a row."""
    description = (
        "ID or name of the cluster; null if it is not known. If the captures name only one, all rows are of "
        "that one."
    )
    return field(default=None, metadata={"description": description})


@dataclass(slots=True, kw_only=True)
class OfCluster:
    """What belongs to a cluster."""

    cluster_id: str | None = cluster()


@dataclass(slots=True, kw_only=True)
class Verdict:
    """A judgment in one word."""

    verdict: str = described(
        "Of a capture: as `verdict` in `kdissect check`. Of the traffic: failing (a finding that is an "
        "error, or at least half of the requests unanswered or with errors), degraded (a warning, or at "
        "least 1 in 20), good, or unknown (no requests, or one side of the traffic was not captured)."
    )
    message: str = described("The figures behind it.")
    reason: str | None = described(
        "The worst finding that led to it, and the number of others; null if there is none."
    )


@dataclass(slots=True, kw_only=True)
class CaptureFinding:
    """A statement about the capture, with advice for the next one."""

    rule: str = described("The rule that found it.")
    verdict: str = described("The verdict this finding leads to; good: harmless.")
    message: str = described("One sentence.")
    advice: str | None = described("What to do about it; null if there is nothing to do.")


# ------------------------------------------------------------------------------------------------------------
# ``summary --groups`` as typed values: one ``GroupHistory`` for each group.
#
# Times are UTC. In a classic group the generation is the one that JoinGroup assigns; in the others (KIP-848,
# share, streams) it is the member epoch.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class MemberRow:
    """A member of a group, under one member ID."""

    member_id: str = described("Member ID assigned by the broker, or chosen by the member itself.")
    group_instance_id: str | None = described("Group instance ID of a static member.")
    client: str = described("Its client ID, or its address if it sent none.")
    address: str = described("The last address it was seen from.")
    joined: datetime | None = described("When it first sent a join request; null if that was not captured.")
    left: datetime | None = described("When it left on its own; null if it did not.")
    left_reason: str | None = described("The reason that it gave for that (KIP-800).")
    last: datetime = described("When it was last seen and accepted.")
    heartbeats: int = described("Heartbeats without an error or a change.")
    generation: int | None = described("The last generation it was seen in.")
    assignment: dict[str, list[int]] | None = described(
        "Topic to partitions, as last assigned; subtopology to tasks in streams groups; null if none was "
        "captured or readable."
    )
    subscribed: list[str] | None = described("Topics it subscribes to.")


@dataclass(slots=True, kw_only=True)
class CauseRow:
    """What started a rebalance, or happened during it."""

    cause: str = described(
        "first (the group was empty), join, return (a static member with a new member ID), leave, timeout "
        "(disappeared without leaving, or rejected as unknown), subscription (a member subscribes to other "
        "topics), revocation (second half of a cooperative rebalance), protocol (another assignor), "
        "metadata (the leader rejoins: topics changed), rejoin (another member rejoins without such a "
        "cause), unknown."
    )
    time: datetime | None = described("When; null if unknown.")
    member_id: str | None = described("The member that caused it.")
    client: str | None = described("Its client ID.")
    reason: str | None = described("The reason given by the client (KIP-800).")


@dataclass(slots=True, kw_only=True)
class RebalanceRow:
    """A rebalance: from its first sign to the last SyncGroup of one generation.

    In other groups: from the event that started it until the last member received the new epoch.
    """

    start: datetime = described(
        "Time of its first exchange: a JoinGroup, a LeaveGroup, or a Heartbeat rejected with "
        "REBALANCE_IN_PROGRESS."
    )
    end: datetime | None = described(
        "When the last member received its assignment; null if none did in the capture."
    )
    seconds: float | None = described("Its duration.")
    causes: list[CauseRow] = described("What started it, then what else happened before it ended.")
    generation_before: int | None = described("Null if it was not captured.")
    generation_after: int = described("The resulting generation.")
    members_before: int | None = described("Null if it was not captured.")
    members_after: int | None = described(
        "As reported to the leader; otherwise, the members seen in the capture."
    )
    joins: int = described("Number of JoinGroup requests, including failed ones.")
    protocol: str | None = described("The assignor chosen.")
    leader: str | None = described("Member ID of the leader.")
    exchange: str = described("Its first exchange, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class StormRow:
    """Several rebalances in quick succession."""

    start: datetime = described("When the first of them started.")
    end: datetime = described("When the last of them started.")
    rebalances: int = described("Number of rebalances.")
    causes: dict[str, int] = described("What started them.")


@dataclass(slots=True, kw_only=True)
class CommittedRow:
    """Offsets that a group committed for a partition."""

    topic: str = described("Topic name, or topic ID if no name was seen.")
    partition: int = described("Partition number.")
    commits: int = described("Successful commits.")
    failed: int = described("Commits rejected or without a response.")
    first_offset: int | None = described(
        "First offset committed successfully; null if none was, here and below."
    )
    first: datetime | None = described("When.")
    last_offset: int | None = described("Last offset committed successfully.")
    last: datetime | None = described("When.")
    per_second: float | None = described("Rate at which the committed offset advanced between the two.")


@dataclass(slots=True, kw_only=True)
class GroupHistory(OfCluster):
    """The history of a group."""

    group: str = described("Group ID.")
    kind: str | None = described(
        "classic, consumer (KIP-848), share or streams; null if only commits were seen."
    )
    protocol_type: str | None = described("Protocol type of a classic group: consumer, connect.")
    protocols: list[str] = described("Assignors chosen.")
    state: str = described("At the end: stable, rebalancing, empty; unknown if no member was captured.")
    present: int = described("Members at the end.")
    members: list[MemberRow] = described("All members, in order of appearance.")
    rebalances: list[RebalanceRow] = described("In order of time.")
    storms: list[StormRow] = described(
        "Periods in which 4 or more rebalances start within a minute, not counting first members and "
        "follow-ups of cooperative rebalances."
    )
    committed: list[CommittedRow] = described("By topic and partition.")
    errors: dict[str, int] = described("Error codes in responses to its members, by name.")
    first: datetime = described("When it was first seen.")
    last: datetime = described("When it was last seen.")
    events_dropped: int = described("Events dropped because of a limit: the timeline ends before them.")


# ------------------------------------------------------------------------------------------------------------
# Consumer lag: the part of the document that ``--lag`` adds.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class LagRow(OfCluster):
    """A reader of a partition: a client that fetches from it, or a group that commits its offsets."""

    kind: str = described("`client` or `group`.")
    name: str = described("Client ID, or group ID.")
    topic: str = described("Topic name or ID.")
    partition: int = described("Partition number.")
    position: int | None = described("Of a client: the offset after the last record it received.")
    committed_offset: int | None = described(
        "Of a group: the last offset committed, or returned by OffsetFetch."
    )
    high_watermark: int | None = described("End of what consumers may read, as last seen.")
    last_stable_offset: int | None = described("End of what read_committed consumers may read.")
    log_start_offset: int | None = described("First offset still available.")
    lag: int | None = described("Records between that position or offset and the high watermark, at the end.")
    lag_first: int | None = described("The lag when it was first known.")
    lag_worst: int | None = described("The largest lag.")
    worst: datetime | None = described("When the lag was largest.")
    seconds: float | None = described(
        "Age of the newest record it received, if there were more to read; 0 if there were none."
    )
    seconds_worst: float | None = described("The largest such age.")
    think_us: int | None = described(
        "Time between the fetches of the client from any partition, in microseconds: the sum of `think_us`. "
        "Of a group: of the client IDs that commit its offsets. Null if it is not known."
    )
    waited_us: int | None = described("What it waited for those fetches, in microseconds.")
    first: datetime = described("Its first fetch or commit.")
    last: datetime = described("Its last fetch or commit.")
    count: int = described("Fetch responses that show a lag; of a group: commits and OffsetFetch responses.")


@dataclass(slots=True, kw_only=True)
class LagPoint:
    """The lag of a group at some time."""

    time: datetime = described("When a commit or a high watermark changed it.")
    lag: int = described("Records, in all its partitions whose lag is known by then.")


@dataclass(slots=True, kw_only=True)
class LagOverTimeRow(OfCluster):
    """How the lag of a group developed."""

    group: str = described("Group ID.")
    lag_worst: int = described("The largest lag of the points.")
    points: list[LagPoint] = described(
        "The first, then the last one in each of at most 64 stretches of equal length."
    )


# ------------------------------------------------------------------------------------------------------------
# ``summary --connections`` as typed values: the connections of a client to a broker, from opening to end.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class ClientConnectionsRow:
    """The Kafka connections of a client to a broker, and those to a listener that never opened."""

    client: str = described("Client ID; its address if it sent none, or if the connection never opened.")
    broker: str = described("Address and port of the broker.")
    connections: int = described("Number of connections.")
    refused: int = described("Connections refused with an RST.")
    unanswered: int = described("Connections whose SYNs were not answered.")
    one_way: int = described(
        "Connections whose SYN was answered, but whose client never acknowledged the SYN-ACK."
    )
    syn_retransmissions: int = described("SYN retransmissions.")
    connect_us: Spread = described("From the first SYN to the end of the TCP handshake.")
    client_round_trip_us: Spread = described(
        "The shortest round trip of each connection between the point of capture and the client, from a SYN "
        "or payload to its acknowledgment, in microseconds."
    )
    broker_round_trip_us: Spread = described("Same for the broker.")
    client_segments: int = described("Segments with new payload from the client.")
    broker_segments: int = described("The same from the broker.")
    client_retransmissions: int = described("Segments that the client retransmitted, excluding SYNs.")
    broker_retransmissions: int = described("The same for the broker.")
    client_spurious: int = described("Unnecessary retransmissions of the client, as the broker reported.")
    broker_spurious: int = described("The same for the broker.")
    client_duplicate_acks: int = described("Duplicate acknowledgments from the client.")
    broker_duplicate_acks: int = described("The same from the broker.")
    client_zero_window_us: int = described("How long the client's receive window was zero: it did not read.")
    broker_zero_window_us: int = described("The same for the broker.")
    ends: dict[str, int] = described(
        "How they ended: client FIN, client RST, broker FIN, broker RST, open (no FIN or RST captured)."
    )
    outstanding: int = described("Requests without a response when their connection ended.")
    tls: dict[str, int] = described("Decrypted connections by TLS version and cipher suite.")


@dataclass(slots=True, kw_only=True)
class HostConnectionsRow:
    """The Kafka connections of a host to a broker."""

    host: str = described("Address of the client.")
    broker: str = described("Address and port of the broker.")
    connections: int = described("Number of connections, without failed ones.")
    failed: int = described("Connections to a Kafka listener that never opened.")
    bytes: int = described("Bytes of request and response frames.")
    bytes_per_second: float | None = described(
        "These, divided by the time from the first packet of the first connection to the last bytes."
    )
    segments: int = described("Segments with new payload, of both directions.")
    lost: int = described(
        "How many of them had to be retransmitted: retransmissions, less those of which the receiver "
        "reported that it had the bytes already (D-SACK)."
    )
    round_trip_us: Spread = described(
        "The shortest round trip of each connection between host and broker, in microseconds."
    )
    client_window_bytes: int | None = described(
        "The largest receive window of the client: no connection carries more to it in a round trip. Null if "
        "no SYN and SYN-ACK were captured, without which its unit is unknown."
    )
    broker_window_bytes: int | None = described("The same for the broker.")
    client_unscaled: int = described(
        "Connections without window scaling, and so with windows of at most 65,535 bytes, because the client "
        "did not offer it."
    )
    broker_unscaled: int = described("Those because the broker did not, although the client did.")


@dataclass(slots=True, kw_only=True)
class LifetimeRow:
    """A connection from opening to end."""

    connection: str = described("Its ID, for `read --connection`.")
    client: str = described("Client ID, or the address of a client without one.")
    broker: str = described("Address and port of the broker.")
    start: datetime = described("Time of its first packet.")
    end: datetime = described("Time of the FIN or RST that ended it; without one, of its last bytes.")
    ending: str = described(
        "How it ended: client FIN, client RST, broker FIN, broker RST, open (no FIN or RST captured); or why "
        "it never opened: refused, unanswered, one-way."
    )
    exchanges: int = described("Its exchanges.")
    outstanding: int = described(
        "Requests without a response at its end, except those that wait by design, as Fetch and JoinGroup do."
    )


# ------------------------------------------------------------------------------------------------------------
# Likely problems: the part of the document that ``--findings`` adds.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class NamesRow:
    """Some of the names that a finding is about."""

    count: int | None = described("How many there are; null if not all were counted.")
    names: list[str] = described("The first five, in alphabetical order.")


@dataclass(slots=True, kw_only=True)
class ScopeRow:
    """Who and what a finding is about, as far as it says so."""

    clients: NamesRow = described("Client IDs, or addresses of clients without one.")
    hosts: NamesRow = described("Addresses of clients.")
    brokers: NamesRow = described("Addresses and ports of brokers.")
    topics: NamesRow = described("Topics.")
    groups: NamesRow = described("Groups.")
    connections: NamesRow = described("IDs of connections, for `read --connection`.")


@dataclass(slots=True, kw_only=True)
class ImpactRow:
    """What a finding cost. Null: nothing of that kind, or not counted."""

    requests: int | None = described("Requests that failed, were refused or stayed unanswered.")
    connections: int | None = described("Connections that could not be opened, or ended too early.")
    records: int | None = described("Records that were refused, not read, or may be stored twice.")
    lost_us: int | None = described("Time lost: for which requests, readers or clients were held up.")


@dataclass(slots=True, kw_only=True)
class FindingPart:
    """One of the subjects of a finding."""

    subject: str = described("What it is about.")
    message: str = described("The evidence, with numbers.")
    count: int = described("How often it was seen.")
    first: datetime = described("When it was first seen.")
    last: datetime = described("When it was last seen.")
    evidence: list[str] = described("As in the finding.")


@dataclass(slots=True, kw_only=True)
class FindingRow(OfCluster):
    """A likely problem: all that a rule found, except what other findings explain."""

    rule: str = described("ID of the rule; `summary --findings --list` explains each.")
    severity: str = described(
        "`error`: something is failing. `warning`: costs time, money or safety. `note`: good to know."
    )
    subject: str = described("What the finding is about.")
    message: str = described("The evidence, with numbers.")
    advice: str = described("What to do about it.")
    count: int = described("How often it was seen.")
    first: datetime = described("When it was first seen.")
    last: datetime = described("When it was last seen.")
    evidence: list[str] = described(
        "The first five: exchanges (CONNECTION/NUMBER, for `read --exchange`) or connections."
    )
    scope: ScopeRow = described("Who and what it is about: number and some names.")
    impact: ImpactRow = described("What it cost.")
    explained_by: str | None = described(
        "The rule whose finding explains this one: it is the last one above without such a rule. It counts "
        "for the verdict, and this one does not. Null: no other finding explains it."
    )
    parts: list[FindingPart] = described(
        "The subjects, the most frequent first, if it has several; otherwise empty."
    )


@dataclass(slots=True, kw_only=True)
class RuleRow:
    """A rule that produces findings."""

    rule: str = described("ID of the rule.")
    severity: str = described(
        "Usual severity of its findings; of rules about the capture, the verdict that they lead to."
    )
    title: str = described("What it looks for.")
    when: str = described("Its threshold, and the reason for it.")
    advice: str = described("The advice it gives; empty: none.")


# ------------------------------------------------------------------------------------------------------------
# API versions in use, and those that newer brokers reject: the part that ``--versions`` adds.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class UsedRow(OfCluster):
    """An API version that a client uses."""

    client: str = described("Client ID, or the address of a client without one.")
    software: str | None = described("Name and version of the client library, if sent in ApiVersions.")
    addresses: list[str] = described("Client addresses: at most 20.")
    api: str = described("API name.")
    api_key: int = described("API key.")
    version: int = described("Version of the requests.")
    since: str | None = described("The Apache Kafka release that introduced this version.")
    removed: str | None = described("The first release that rejects it; null if current releases accept it.")
    count: int = described("Number of requests.")
    first: datetime = described("Time of the first.")
    last: datetime = described("Time of the last.")
    example: str = described("CONNECTION/NUMBER of the first, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class AdvertisedRow(OfCluster):
    """An API that a broker supports."""

    broker: str = described("Address and port.")
    release: str | None = described("Kafka release of the broker, inferred from the versions it advertises.")
    api: str = described("API name, or its key if newer than this version of kdissect.")
    api_key: int = described("API key.")
    min_version: int = described("Lowest version the broker supports.")
    max_version: int = described("Highest version the broker supports.")
    used: list[int] = described("Versions used with this broker; empty: no client uses the API.")


@dataclass(slots=True, kw_only=True)
class VersionsPart:
    """API versions, as an audit before a broker upgrade."""

    rejected: int = described("Rows of `used` whose version a newer release rejects.")
    used: list[UsedRow] = described("Versions that clients use; those that will break first come first.")
    advertised: list[AdvertisedRow] = described("Versions that brokers advertise.")


# ------------------------------------------------------------------------------------------------------------
# Producers and their transactions: the part of the document that ``--transactions`` adds.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class ProducerRow(OfCluster):
    """A transactional ID, or an idempotent producer without one."""

    transactional_id: str | None = described("Transactional ID; null for a producer without one.")
    producer_ids: list[int] = described("Producer IDs assigned to it or used by it: at most 20.")
    epoch: int | None = described("The highest producer epoch of the last of them.")
    clients: list[str] = described("Client IDs: at most 20.")
    addresses: list[str] = described("Client addresses: at most 20.")
    inits: int = described("InitProducerId requests that succeeded.")
    started: int = described("Transactions; the sum of the next five numbers.")
    committed: int = described("Ended by EndTxn, commit.")
    aborted: int = described("Ended by EndTxn, abort.")
    superseded: int = described("Aborted by an InitProducerId while they were open.")
    timed_out: int = described(
        "Ended by the coordinator after their timeout: it wrote abort markers, or refused the next request "
        "of the producer with INVALID_TXN_STATE or PRODUCER_FENCED."
    )
    open: int = described("Still open at the end of the capture.")
    longest_us: int | None = described("Duration of the longest, in microseconds.")
    fenced: int = described("Responses that report a producer as fenced.")
    batches: int = described(
        "Batches with a producer ID that it sent, including retries, without rejected ones."
    )
    records: int = described("Records in them.")
    missing: int = described("Sequence numbers missing between those seen in captured batches.")
    duplicates: int = described("Records sent more than once: retries of batches that were not rejected.")
    commit_markers: int = described("Partitions for which the coordinator requested a commit marker.")
    abort_markers: int = described("Partitions for which it requested an abort marker.")
    control_batches: int = described(
        "Batches with markers in fetched records, counted each time they were fetched."
    )
    first: datetime | None = described("When it was first seen.")
    last: datetime | None = described("When it was last seen.")


@dataclass(slots=True, kw_only=True)
class TransactionRow(OfCluster):
    """A transaction."""

    transactional_id: str = described("Its transactional ID.")
    producer_id: int = described("Producer ID.")
    epoch: int = described("Producer epoch at its start.")
    outcome: str = described("`open`, `timed_out`, `superseded`, `aborted` or `committed`.")
    start: datetime = described(
        "The first AddPartitionsToTxn or AddOffsetsToTxn, or the first transactional Produce (KIP-890)."
    )
    end: datetime | None = described(
        "Time of the response that ended it, usually to EndTxn; null while it is open. If it timed out, when "
        "the first marker was written, or when the producer's next request failed."
    )
    duration_us: int = described("Microseconds from start to end, or to the end of the capture.")
    first_marker: datetime | None = described("When its first marker was written, if captured.")
    timeout_ms: int | None = described(
        "Its timeout, in the last InitProducerId before it; null if that was not captured."
    )
    start_captured: bool = described("Whether its start is known to be in the capture.")
    partitions: int = described("Distinct partitions it wrote to or added.")
    records: int = described("Records sent in it.")
    offset_partitions: int = described("Partitions for which it committed offsets of a group.")
    example: str = described("CONNECTION/NUMBER of its first exchange, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class FencedRow(OfCluster):
    """Responses that report a producer as fenced."""

    transactional_id: str | None = described("Transactional ID; null for a producer without one.")
    producer_id: int = described("The producer ID in its requests.")
    epoch: int = described("The producer epoch in its requests.")
    error: str = described("PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH as older brokers call it.")
    api: str = described("API of the responses.")
    client: str = described("Client ID of the fenced producer.")
    address: str = described("Its address.")
    by_client: str | None = described(
        "Client ID that had last requested the producer ID, from another connection."
    )
    by_address: str | None = described("Its address.")
    by_example: str | None = described("CONNECTION/NUMBER of the InitProducerId that raised the epoch.")
    count: int = described("How often it was seen.")
    first: datetime = described("Time of the first.")
    last: datetime = described("Time of the last.")
    example: str = described("CONNECTION/NUMBER of the first.")


@dataclass(slots=True, kw_only=True)
class SequenceRow(OfCluster):
    """Batches of one producer ID for one partition."""

    producer_id: int = described("Producer ID.")
    transactional_id: str | None = described("Its transactional ID, if any.")
    topic: str = described("Topic name or ID.")
    partition: int = described("Partition number.")
    epochs: int = described("Producer epochs it wrote with.")
    batches: int = described("Batches, including retries.")
    records: int = described("Records in them.")
    gaps: int = described(
        "Gaps in the sequence numbers: records lost before they reached the broker, or by the capture."
    )
    missing: int = described("Sequence numbers missing in them.")
    duplicates: int = described("Records sent more than once.")
    errors: dict[str, int] = described("Batches rejected, by error.")
    first: datetime = described("Time of the first.")
    last: datetime = described("Time of the last.")
    example: str | None = described("CONNECTION/NUMBER of the first batch after a gap.")


@dataclass(slots=True, kw_only=True)
class TransactionsPart:
    """Producers with a producer ID."""

    producers: list[ProducerRow] = described("Producers with a transactional ID first.")
    transactions: list[TransactionRow] = described(
        "Open ones first, committed ones last; the longest first within each state."
    )
    transactions_not_listed: int = described("Transactions that are counted above but not listed.")
    fenced: list[FencedRow] = described("Fenced producers.")
    sequences: list[SequenceRow] = described("By partition, those with gaps first.")


# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Spread:
    """The distribution of a quantity."""

    count: int = described("Number of values.")
    min: int | None = described("Minimum; null if there are no values, here and below.")
    mean: float | None = described("Arithmetic mean.")
    p50: int | None = described("Median: exact up to 256 values, then within 0.8%; the same below.")
    p95: int | None = described("95th percentile.")
    p99: int | None = described("99th percentile.")
    max: int | None = described("Maximum.")


@dataclass(slots=True, kw_only=True)
class LoadRow:
    """Exchanges, and their sizes, latencies and errors."""

    exchanges: int = described("Number of exchanges.")
    answered: int = described("Exchanges with request and response.")
    unanswered: int = described(
        "Requests without a captured response, whatever the reason: the kind `unanswered`."
    )
    no_answer: int = described(
        "Those whose `outcome` is `unanswered`; text output calls only these unanswered."
    )
    abandoned: int = described(
        "Requests to which no response was due when the connection was closed: the `outcome` is `abandoned`."
    )
    pending: int = described("Unanswered requests that were still waiting when the capture ended.")
    incomplete_responses: int = described(
        "Exchanges whose response began but did not end: the `outcome` is `incomplete`. They are `answered`."
    )
    incomplete_requests: int = described(
        "Unanswered requests that began but did not end: the `outcome` is `incomplete_request`."
    )
    unacknowledged: int = described("Requests that expect no response: acks=0.")
    orphans: int = described("Responses without a request.")
    per_second: float | None = described("Exchanges per second, over the time span of the whole summary.")
    request_bytes: int = described("Bytes of request frames, including the size prefix.")
    response_bytes: int = described("Bytes of response frames, including the size prefix.")
    service_us: Spread = described("Service times, in microseconds; see `service_us` in docs/columns.md.")
    wait_us: Spread = described(
        "Waits of requests that the broker held (long polls, or waiting for group members), in microseconds."
    )
    undetermined: int = described("Answered exchanges whose service time and wait are unknown.")
    total_us: Spread = described(
        "What clients waited at least, waits included, in microseconds; see `total_us` in docs/columns.md."
    )
    errors: int = described("Exchanges with an error in the response that is not expected.")
    expected_errors: int = described("Exchanges with expected errors only: normal steps of the protocol.")
    throttled: int = described("Exchanges whose response has a throttle time.")
    throttle_time_ms: int = described("Sum of these throttle times, which are not part of the latency.")
    first: datetime | None = described("Time of the first.")
    last: datetime | None = described("Time of the last.")


@dataclass(slots=True, kw_only=True)
class ApiRow(LoadRow):
    """Exchanges of an API."""

    api: str = described("API name.")
    versions: list[int] = described("Versions used.")
    service_histogram: list[int] = described(
        "Service times below 100 us, then below 1 ms, 10 ms, 100 ms, 1 s and 10 s, and "
        "longer ones: 7 counts. Approximate for many values, like percentiles."
    )


@dataclass(slots=True, kw_only=True)
class BrokerRow(LoadRow):
    """Exchanges with a broker, or with another endpoint at its address, such as a proxy."""

    broker: str = described("Address and port.")
    cluster_id: str | None = described("ID of its cluster, as it reported it last, or as given.")
    id: int | None = described("Node ID, as last reported by Metadata, FindCoordinator or a similar API.")
    earlier_ids: list[int] = described(
        "Node IDs that were reported for this address before, the first one first: the broker was replaced."
    )
    rack: str | None = described("Its rack, if reported.")
    release: str | None = described("Kafka release, inferred from the versions it advertises in ApiVersions.")
    connections: int = described("Number of client connections to it.")
    clients: int = described("Distinct client IDs.")


@dataclass(slots=True, kw_only=True)
class ClientRow(LoadRow):
    """Exchanges of a client ID, which several programs can share."""

    client: str = described("Its client ID, or its address if it sent none.")
    cluster_id: str | None = cluster()
    software: list[str] = described("Name and version of its library, if sent in ApiVersions.")
    principals: list[str] = described("Authenticated principal, if it appears in the traffic.")
    addresses: list[str] = described("Client addresses: at most 20.")
    connections: int = described("Number of its connections.")
    apis: dict[str, int] = described("Exchanges by API.")


@dataclass(slots=True, kw_only=True)
class RecordsRow(OfCluster):
    """Records written to and read from a topic or partition.

    A record counts once each time it is fetched. Rejected records do not count, nor do the markers of
    transactions, which brokers write.
    """

    produced_records: int | None = described(
        "Records accepted; null if compressed message sets hide the number."
    )
    produced_bytes: int = described("Bytes of their batches on the wire.")
    produced_batches: int = described("Record batches, or messages of magic 0 and 1.")
    produced_records_per_second: float | None = described("Over the time span of the whole summary.")
    produced_bytes_per_second: float | None = described("As above.")
    sent_bytes: int = described(
        "Bytes of all batches that producers sent: also those that were rejected, or for which no response "
        "says whether they were written, and which producers usually send again."
    )
    sent_bytes_per_second: float | None = described("Over the time span of the whole summary.")
    fetched_records: int | None = described("Records sent to consumers; null as above.")
    fetched_bytes: int = described("Bytes of their batches on the wire.")
    fetched_batches: int = described("Record batches, or messages of magic 0 and 1.")
    fetched_records_per_second: float | None = described("Over the time span of the whole summary.")
    fetched_bytes_per_second: float | None = described("As above.")
    replicated_bytes: int = described("Batches sent to other brokers.")
    unknown_records: int | None = described(
        "Records of Produce requests for which no response says whether they were written; not in "
        "`produced_records`. Null as above."
    )
    compression: dict[str, int] = described("Produced batches by codec.")
    fetched_compression: dict[str, int] = described("Batches sent to consumers, by codec.")
    compression_ratio: float | None = described(
        "Uncompressed bytes divided by compressed bytes, of the produced batches that were decoded."
    )
    errors: dict[str, int] = described(
        "Exchanges with an error for it in the response that is not expected, by error name."
    )


@dataclass(slots=True, kw_only=True)
class TopicRow(RecordsRow):
    """Records of a topic."""

    topic: str = described("Topic name, or topic ID if no name was seen.")
    partitions: int = described("Distinct partitions written or read.")
    duplicate_bytes: int = described(
        "Bytes of `produced_bytes` in batches that a broker had accepted before: the same bytes on another "
        "connection, 1 s later or more, because the producer gave up. Only the first 20 exchanges of each "
        "connection are searched for them. With idempotence the broker stores them once, without it again."
    )
    goodput_bytes_per_second: float | None = described(
        "Bytes accepted without those; `sent_bytes_per_second` is the throughput."
    )
    producers: list[str] = described("Clients that wrote to it: at most 20.")
    consumers: list[str] = described("Clients that read from it: at most 20.")
    produce_service_us: Spread = described(
        "Service times of Produce requests with this topic, in microseconds."
    )


@dataclass(slots=True, kw_only=True)
class ExchangesByRow(LoadRow):
    """Exchanges that have several values in common."""

    by: dict[str, str | None] = described(
        "These values by name: `api`, `client`, `broker`, `group`, `connection`. Null: they have none."
    )
    cluster_id: str | None = cluster()


@dataclass(slots=True, kw_only=True)
class RecordsByRow(RecordsRow):
    """Records of a topic that have other values in common too."""

    by: dict[str, str | int | None] = described(
        "The topic and the other values, by name. Null: they have none."
    )
    partitions: int = described("Distinct partitions written or read.")
    producers: list[str] = described("Clients that wrote them: at most 20.")
    consumers: list[str] = described("Clients that read them: at most 20.")
    produce_service_us: Spread = described("Service times of Produce requests with them, in microseconds.")


@dataclass(slots=True, kw_only=True)
class PartitionRow(RecordsRow):
    """Records of a partition."""

    topic: str = described("Topic name or ID.")
    partition: int = described("Partition number.")


@dataclass(slots=True, kw_only=True)
class GroupRow(LoadRow):
    """Exchanges of members and tools with a group's coordinator."""

    group: str = described("Group ID.")
    clients: list[str] = described("Client IDs: at most 20.")
    apis: dict[str, int] = described("Exchanges by API.")


@dataclass(slots=True, kw_only=True)
class ConnectionRow(LoadRow):
    """Exchanges of a connection."""

    connection: str = described("Connection ID, as in `read`.")
    client: str = described("Client ID of its first exchange, or its address.")
    client_address: str = described("Address and port of the client.")
    broker: str = described("Address and port of the broker.")


@dataclass(slots=True, kw_only=True)
class ErrorRow(OfCluster):
    """An error code that brokers returned."""

    error: str = described("Error name.")
    api: str = described("API of the responses.")
    topic: str | None = described("The topic, if the response names one.")
    client: str = described("Client ID of the requests.")
    count: int = described("Number of exchanges with it: an exchange is in one row for each topic and error.")
    expected: int = described("How many of them are normal steps of the protocol.")
    message: str | None = described(
        "The broker's first message about it, up to 160 characters; null if none has one, or for SASL."
    )
    first: datetime = described("Time of the first.")
    last: datetime = described("Time of the last.")
    example: str = described("CONNECTION/NUMBER of the first, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class UnansweredRow:
    """A request that the broker did not answer."""

    exchange: str = described("CONNECTION/NUMBER, for `read --exchange`.")
    time: datetime = described("Time of the last byte of the request.")
    age_us: int = described("Microseconds until the connection or the capture ended, or a later response.")
    api: str = described("API name.")
    client: str = described("Client ID.")
    broker: str = described("Broker address.")
    topics: list[str] = described("Topics: at most 5.")


@dataclass(slots=True, kw_only=True)
class SlowRow:
    """One of the exchanges with the longest service times."""

    exchange: str = described("CONNECTION/NUMBER, for `read --exchange`.")
    time: datetime = described("Time of the last byte of the request.")
    service_us: int = described("Microseconds that the broker took; rows are ranked by this.")
    latency_us: int = described("Microseconds until the first byte of the response.")
    total_us: int | None = described(
        "Microseconds from the first byte of the request to the last byte of the response: what the client "
        "waited at least. Null if it is not known."
    )
    queued_us: int = described("Part of it: until the previous response of the connection was complete.")
    throttled_us: int = described("Part of it: until the throttle time of the previous response was over.")
    network_us: int = described("Part of it: until the request was retransmitted.")
    api: str = described("API name.")
    client: str = described("Client ID.")
    broker: str = described("Broker address.")
    topics: list[str] = described("Topics: at most 5.")
    throttle_time_ms: int = described(
        "Throttle time in the response; since 2.0 brokers respond before throttling (KIP-219)."
    )


@dataclass(slots=True, kw_only=True)
class EvidenceRow:
    """An exchange that findings name; see docs/columns.md for its times, in microseconds. Null: not known."""

    exchange: str = described("CONNECTION/NUMBER, for `read --exchange`.")
    time: datetime = described("Time of the last byte of the request.")
    api: str = described("API name.")
    client: str = described("Client ID.")
    broker: str = described("Broker address.")
    topics: list[str] = described("Topics: at most 5.")
    outcome: str = described("As the column `outcome`.")
    errors: list[str] = described("Distinct errors in the response.")
    request_transfer_us: int | None = described("From the first byte of the request to the last.")
    latency_us: int | None = described("From there to the first byte of the response.")
    queued_us: int | None = described("Part of it: until the previous response was complete.")
    throttled_us: int | None = described("Part of it: until a throttle time was over.")
    network_us: int | None = described("Part of it: until the request was retransmitted.")
    wait_us: int | None = described("The rest, if the broker held the request.")
    service_us: int | None = described("The rest, if it did not.")
    response_transfer_us: int | None = described("From the first byte of the response to the last.")


@dataclass(slots=True, kw_only=True)
class WaitRow:
    """Latency that was not service time."""

    kind: str = described(
        "API whose requests the broker delays until there is something to answer, and who fetches if that is "
        "not a consumer: `Fetch (replica)`, `Fetch (KRaft)`; or `queued`, `throttled`, `network` as in "
        "docs/columns.md."
    )
    us: Spread = described("Waits, in microseconds.")
    total_us: int = described("Their sum.")
    undetermined: int = described("Answered exchanges for which it is unknown whether they waited.")


@dataclass(slots=True, kw_only=True)
class IntervalRow(LoadRow):
    """Exchanges of one interval of the time series."""

    start: datetime = described("Start of the interval.")
    seconds: float = described("Its length.")
    key: str | None = described("Name of the `--by` row; null: all exchanges.")
    service_counts: list[int] = described(
        "Service times below 100 us, then below 200 us, 500 us, 1 ms ... 10 s, and longer ones: 17 counts. "
        "Approximate for many values, like percentiles."
    )
    apis: dict[str, int] = described("Exchanges by API.")
    api_bytes: dict[str, int] = described("Bytes of request and response frames by API.")
    error_names: dict[str, int] = described(
        "Exchanges with an error in the response that is not expected, by error name."
    )
    anomalies: dict[str, int] = described("Anomalies by kind.")
    queued_us: int = described(
        "Microseconds that requests were queued behind earlier ones, in total; see `queued_us` in "
        "docs/columns.md."
    )
    throttled_us: int = described("The same for `throttled_us`.")
    network_us: int = described("The same for `network_us`.")
    transfer_us: int = described("The same for `request_transfer_us` and `response_transfer_us`.")
    opened: int = described("Kafka connections whose TCP handshake began; 0 with a `key`, as below.")
    ended: dict[str, int] = described("Kafka connections that ended, by how: client FIN, broker RST ...")
    retransmissions: int = described(
        "Segments of Kafka connections that were retransmitted, except SYNs. Of each connection, at most 32 "
        "times are known, each of them that of several segments if there are more."
    )
    lost_bytes: int = described("Bytes of Kafka connections missing from the capture; times as before.")


@dataclass(slots=True, kw_only=True)
class BusiestRow:
    """What a broker, client, topic or group did over time: one number for each row of `intervals`."""

    table: str = described("`broker`, `client`, `topic` or `group`.")
    name: str | None = described("Null: all others together.")
    exchanges: list[int] | None = described("Exchanges; null for topics, like `errors`.")
    errors: list[int] | None = described("Those with an error that is not expected.")
    produced_bytes: list[int] | None = described(
        "Bytes of records written, unless rejected; null if it is not a topic, like `fetched_bytes`."
    )
    fetched_bytes: list[int] | None = described("Bytes of records read, without replication.")


@dataclass(slots=True, kw_only=True)
class CaptureRow:
    """Totals of the capture, and what is missing from it."""

    captures: list[str] = described("Files, as given.")
    packets: int = described("Packets read.")
    connections: dict[str, int] = described("TCP connections by protocol.")
    exchanges: int = described("Exchanges that match the filters.")
    first: datetime | None = described("Time of the first.")
    last: datetime | None = described("Time of the last.")
    seconds: float = described("From first to last.")
    request_bytes: int = described("Bytes of request frames.")
    response_bytes: int = described("Bytes of response frames.")
    lost_bytes: int = described("Bytes of TCP streams missing from the capture.")
    gaps: int = described("Number of gaps.")
    anomalies: dict[str, int] = described("Anomalies by kind; `kdissect check` has details.")
    skipped: dict[str, int] = described("Skipped packets by reason.")


@dataclass(slots=True, kw_only=True)
class Summary:
    """The summary. Parts that were not requested are null."""

    schema_version: int = described(
        "Version of this schema: raised when a key or a kind of anomaly is renamed or removed."
    )
    quality: Verdict | None = described("Of the capture; null if only its exchanges are known.")
    quality_findings: list[CaptureFinding] | None = described(
        "What led to `quality`, the worst first: with each, conclusions from the capture are worth less. "
        "Null if `quality` or findings are."
    )
    health: Verdict | None = described("Of the traffic; null if findings were not requested.")
    capture: CaptureRow = described("Totals.")
    apis: list[ApiRow] | None = described("By API.")
    brokers: list[BrokerRow] | None = described("By broker.")
    clients: list[ClientRow] | None = described("By client ID.")
    topics: list[TopicRow] | None = described("By topic.")
    partitions: list[PartitionRow] | None = described("By partition.")
    groups: list[GroupRow] | None = described("By group.")
    connections: list[ConnectionRow] | None = described("By connection.")
    exchanges_by: list[ExchangesByRow] | None = described("By several columns, without topics.")
    records_by: list[RecordsByRow] | None = described("By several columns, with topics.")
    errors: list[ErrorRow] | None = described("Errors.")
    unanswered: list[UnansweredRow] | None = described("Requests that were not answered, the oldest first.")
    slowest: list[SlowRow] | None = described("The exchanges with the longest service times.")
    waits: list[WaitRow] | None = described("Time that was not service time, by kind.")
    intervals: list[IntervalRow] | None = described("A time series.")
    busiest: list[BusiestRow] | None = described(
        "Of `intervals` whose length doubles as the capture grows, as in `kdissect report`: the 7 busiest "
        "brokers, clients, topics and groups. Names that are in several clusters are counted together."
    )
    group_history: list[GroupHistory] | None = described("Members and rebalances of each group.")
    lag: list[LagRow] | None = described("Consumer lag.")
    lag_over_time: list[LagOverTimeRow] | None = described(
        "Of the 20 groups with the largest lag; null without a time series."
    )
    versions: VersionsPart | None = described("Versions in use, and those that newer brokers reject.")
    transactions: TransactionsPart | None = described("Producers with a producer ID, and their transactions.")
    client_connections: list[ClientConnectionsRow] | None = described(
        "Connections of clients to brokers, from opening to end."
    )
    host_connections: list[HostConnectionsRow] | None = described(
        "The same by host: those with the most connections first."
    )
    connections_over_time: list[LifetimeRow] | None = described(
        "Connections that were reset, then those that never opened, those that ended with outstanding "
        "requests, and the longest: at most 25 of each kind to each broker, and 400 in all. Null without a "
        "time series."
    )
    findings: list[FindingRow] | None = described("Likely problems, the worst first.")
    other: dict[str, int] = described("Exchanges counted together because a table was full, by table.")
