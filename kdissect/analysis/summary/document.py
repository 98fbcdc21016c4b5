"""What a summary says, as typed values: one document, whose JSON has the same names.

Times are UTC; latencies run from a request's last byte to its response's first. docs/summary.schema.json is
made from this file, and the page that people read shows nothing else. Nobody changes a row; the classes are
not frozen all the same, because to load them would take twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (the JSON Schema is made from the annotations)

from kdissect.analysis.summary.fields import told
from kdissect.analysis.summary.findingsdocument import FindingRow  # noqa: TC001  (likewise)
from kdissect.analysis.summary.groupsdocument import GroupStory  # noqa: TC001  (likewise)
from kdissect.analysis.summary.lagdocument import LagRow  # noqa: TC001  (likewise)
from kdissect.analysis.summary.transactionsdocument import TransactionsPart  # noqa: TC001
from kdissect.analysis.summary.versionsdocument import VersionsPart  # noqa: TC001


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
