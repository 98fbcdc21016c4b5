"""What tallies carry: their forms, and what the native core has counted in the bodies of exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kdissect.model import Exchange
    from kdissect.stats.quantiles import Quantiles

FORMS = ONE, COUNTED_BY_CORE, SUM = "one", "counted", "sum"
"""Forms of a tally."""
EACH, SUMS = frozenset({ONE, COUNTED_BY_CORE}), frozenset({SUM})
"""What a counter takes, which it declares as ``takes``."""

Stamp = tuple[int, int]
"""Time of a request, and number of the exchange."""

Counted = tuple[int, int, "list[tuple[int, int]]"]
"""Number of samples, bits of a slot, and the samples kept: times and values; see ``lag.Samples``."""


QUEUED_US = 1_000_000
"""Requests that wait so long for the responses to earlier ones are noted."""


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


class Content(NamedTuple):
    """What is in exchanges with the same bodies.

    Attributes:
        exemplar: one with these bodies and the names of topics in them, without frames; its connection is
            that of the first.
        completed: when they were.
        last: the last one, by completion.
    """

    exemplar: Exchange
    completed: Noted
    last: Stamp


class Topic(NamedTuple):
    """A topic; ``named_ns``: completion of the first exchange, if it has an ID."""

    name: str
    id: str | None
    named_ns: int


class CountedRun(NamedTuple):
    """Consecutive sequence numbers of a producer up to but not including ``end``; ``first``: with them."""

    producer_id: int
    epoch: int
    base: int
    end: int
    batches: int
    first: Stamp
    times_ns: tuple[int, int]


class WrittenPartition(NamedTuple):
    """What was written to a partition; ``ends``: the offsets after it.

    Attributes:
        repeatable: checksum, length and time of batches that may have been sent before, or may be sent again.
    """

    partition: int
    noted: Noted
    size: tuple[int, int]  # bytes, records
    codecs: list[tuple[str, int]]
    ends: Counted
    runs: list[CountedRun]
    repeatable: list[tuple[int, int, int]]

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


class CountedProducer(NamedTuple):
    """Batches with a producer ID."""

    id: int
    epoch: int
    batches: int
    records: int
    first_ns: int
    last_ns: int


class CountedWrites(NamedTuple):
    """Of Produce exchanges."""

    acks: int
    topics: list[WrittenTopic]
    producers: list[CountedProducer]


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
        stable: the first two where a response has both, and not -1; None: all have.
        lags: of the client.
        behind: responses that left records unread.
    """

    partition: int
    touches: int
    size: tuple[int, int]
    codecs: list[tuple[str, int]]
    ends: tuple[Counted, Counted, Counted]
    stable: tuple[Counted, Counted] | None
    lags: Lags
    behind: Noted


class ReadTopic(NamedTuple):
    """What was fetched from a topic."""

    topic: Topic
    partitions: list[ReadPartition]


class CountedPolls(NamedTuple):
    """Fetches whose think time is known, and the sums of that and of what the client waited for them.

    Attributes:
        pauses: those with a long one, see ``lag.PAUSE_US``; ``paused_us``: the sum of these.
    """

    number: int
    think_us: int
    waited_us: int
    pauses: Noted
    paused_us: int


class CountedReads(NamedTuple):
    """Of Fetch exchanges.

    Attributes:
        kind: see ``latency.waiter``.
        empty: responses without records.
        opened, denied: requests for a new fetch session, by whether they got one.
        polls: of those with a known think time.
        topics: all of their sessions.
    """

    kind: str
    max_wait_ms: int
    empty: Noted
    opened: Noted
    denied: Noted
    polls: CountedPolls
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


class CountedBeats(NamedTuple):
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
