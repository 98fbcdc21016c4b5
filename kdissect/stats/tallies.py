"""Exchanges -> tallies: what every counter is fed. Holds those that are being summed up.

A tally is one exchange with its facts (``Facts``), or several that are alike (``Alike``): of one connection,
API, version and client, different only in time, size and content. It comes to a counter in one of two ways:

* each as it is made, by the pipeline (of one exchange) or by the native core (of several, with counts of what
  is in their bodies);
* in sums (``Summing``) that have number, sizes and times only, of all connections between a client and a
  broker, at the end. Many counters need no more.

What the core counts is answered, without errors, anomalies, throttle times or anything retransmitted, and all
of it was decoded. Its tallies may come later than exchanges of other connections that were complete after
them. So a counter adds them only to what can be merged in any order.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from kdissect.exchanges.group_events import ALIVE, CLASSIC, COMMIT, GroupEvent
from kdissect.model import ABANDONED, ANSWERED, INCOMPLETE, INCOMPLETE_REQUEST, PENDING, UNANSWERED
from kdissect.names import entries, kept
from kdissect.stats.contents import SUM
from kdissect.stats.quantiles import Distinct, Quantiles
from kdissect.stats.sums import Summed, earliest, initialize, join, latest, merged, own, summed, total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kdissect.limits import Limits
    from kdissect.model import ConnectionInfo, Exchange
    from kdissect.stats.contents import (
        Content,
        CountedBeats,
        CountedReads,
        CountedWrites,
        Noted,
        ReadPartition,
        ReportedTopic,
        ReportedVersions,
        Topic,
        WrittenPartition,
    )
    from kdissect.stats.facts import Facts

Value = TypeVar("Value")


# ------------------------------------------------------------------------------------------------------------
# Tallies -> their number, sizes, latencies and errors. Holds one row of counts.
# ------------------------------------------------------------------------------------------------------------


@summed
class Load(Summed):
    """The counts of one row: of an API, a client, a broker ...

    Attributes:
        exchanges: number of them; ``kinds``: by kind.
        no_answer: requests that the broker did not answer; ``abandoned``: those to which no response was due;
            ``pending``: those that were still waiting when the capture ended (outcomes.py).
        incomplete_responses, incomplete_requests: exchanges with a message that did not end; ``broken_off``:
            those of them whose connection ended.
        request_bytes, response_bytes: sizes of frames, including their length bytes.
        service_us: of answered exchanges whose service time is known.
        wait_us: of those for which the broker waited on purpose.
        undetermined: number of the other answered exchanges.
        total_us: what clients waited at least, of exchanges for which that is known.
        failed: exchanges with an error in the response that is not expected; ``expected``: those with
            expected errors only (exchanges/expected.py).
        throttled: exchanges with a throttle time in the response; ``throttle_ms`` is their sum.
        first_ns, last_ns: times of the first and last of them.
    """

    exchanges: int = total()
    kinds: Counter[str] = total(Counter)
    no_answer: int = total()
    abandoned: int = total()
    pending: int = total()
    incomplete_responses: int = total()
    incomplete_requests: int = total()
    broken_off: int = total()
    request_bytes: int = total()
    response_bytes: int = total()
    service_us: Quantiles = merged(Quantiles)
    wait_us: Quantiles = merged(Quantiles)
    undetermined: int = total()
    total_us: Quantiles = merged(Quantiles)
    failed: int = total()
    expected: int = total()
    throttled: int = total()
    throttle_ms: int = total()
    first_ns: int | None = earliest()
    last_ns: int | None = latest()

    @property
    def unclear(self) -> int:
        """Number of requests whose response may not have been captured."""
        known = self.no_answer + self.abandoned + self.pending + self.incomplete_requests
        return self.kinds[UNANSWERED] - known

    @property
    def incomplete(self) -> int:
        """Number of incomplete messages."""
        return self.incomplete_responses + self.incomplete_requests

    def add(self, tally: Tally) -> None:
        """Count a tally."""
        if tally.exchange is None:
            join(self, tally, Load)
            return
        self.exchanges += 1
        self.kinds[tally.exchange.kind] += 1
        if tally.outcome != ANSWERED:
            self.no_answer += tally.outcome == UNANSWERED
            self.abandoned += tally.outcome == ABANDONED
            self.pending += tally.outcome == PENDING
            self.incomplete_responses += tally.outcome == INCOMPLETE
            self.incomplete_requests += tally.outcome == INCOMPLETE_REQUEST
            self.broken_off += tally.exchange.announced is not None and bool(tally.exchange.ended)
        self.request_bytes += tally.request_bytes
        self.response_bytes += tally.response_bytes
        if tally.service_us is not None:
            self.service_us.add(tally.service_us)
        elif tally.wait_us is not None:
            self.wait_us.add(tally.wait_us)
        elif tally.parts is not None:
            self.undetermined += 1
        if (total_us := tally.exchange.total_us) is not None:
            self.total_us.add(total_us)
        if tally.errors:
            self.failed += bool(tally.serious)
            self.expected += not tally.serious
        if tally.throttle_ms > 0:
            self.throttled += 1
            self.throttle_ms += tally.throttle_ms
        time_ns = tally.time_ns
        if self.last_ns is None or time_ns > self.last_ns:
            self.last_ns = time_ns
        if self.first_ns is None or time_ns < self.first_ns:
            self.first_ns = time_ns


# ------------------------------------------------------------------------------------------------------------
# Exchanges that are alike.
# ------------------------------------------------------------------------------------------------------------


FIRST = 5
"""Exchanges whose IDs are kept."""


class Keys(NamedTuple):
    """What the exchanges of a connection have in common; see ``Facts`` and ``Exchange``.

    Attributes:
        api_key: None for SASL tokens without a header, and without a request.
        group: that the requests name, if they are kept apart by it.
        is_measured: whether the service times are known.
    """

    api: str
    api_key: int | None
    api_version: int | None
    client_id: str | None
    software: str | None
    software_version: str | None
    principal: str | None
    kind: str
    group: str | None
    has_request: bool
    has_flaw: bool
    is_measured: bool


@summed
class Alike(Load):
    """A tally of several exchanges.

    Attributes:
        exchange: None; a tally of one has its exchange.
        keys, and attributes of the same name: what they have in common.
        connection: their connection.
        client, broker: as in ``Facts``.
        form: how it was made; of a sum, nothing of what follows is known.
        noted: of all of them.
        partitions: topics and partitions in each exchange, in wire order, if they are kept apart by them.
        queued_us: those that are not 0; ``queued``: requests that waited so for ``QUEUED_US`` or more.
        transfer_us: sum of what is not part of latencies, of those with a known ``total_us``.
        writes, reads, beats: those of their API.
        versions: of ApiVersions.
        content: of those of which one is kept.
        offsets: of other APIs.
        connections: names of all connections in a sum, of which ``connection`` is the first.
    """

    exchange = None

    keys: Keys = own()
    api: str = own()
    has_flaw: bool = own()
    connection: ConnectionInfo = own()
    client: str = own()
    broker: str = own()
    form: str = own()
    first: list[tuple[int, str]] = own(list)
    noted: Noted = own(type(None))
    partitions: Sequence[tuple[str, int]] = own(tuple)
    queued_us: Quantiles = own(type(None))
    queued: Noted = own(type(None))
    transfer_us: int = own(int)
    writes: CountedWrites | None = own(type(None))
    reads: CountedReads | None = own(type(None))
    beats: CountedBeats | None = own(type(None))
    versions: ReportedVersions | None = own(type(None))
    content: Content | None = own(type(None))
    offsets: Sequence[ReportedTopic] = own(tuple)
    connections: Distinct = own(Distinct)

    def __init__(self, keys: Keys, connection: ConnectionInfo, client: str, broker: str) -> None:
        initialize(self, Alike)
        self.keys, self.connection, self.form = keys, connection, SUM
        self.api, self.has_flaw = keys.api, keys.has_flaw  # read more often than all others
        self.client, self.broker = client, broker

    def add(self, tally: Tally) -> None:
        """Count a tally with the same ``keys``."""
        Load.add(self, tally)
        first = self.first
        if len(first) < FIRST or (tally.first_ns or 0) <= first[-1][0]:
            self.first = sorted([*first, *tally.first])[:FIRST]

    def become_sum(self, keys: tuple[Any, ...]) -> None:
        """Be one of which only number, sizes and times are known, with these ``keys``."""
        self.keys, self.form = Keys(*keys), SUM
        self.first = sorted(self.first)
        self.noted = self.queued_us = self.queued = None  # type: ignore[assignment]  # as of any sum
        self.writes = self.reads = self.beats = self.versions = self.content = None
        self.partitions, self.offsets, self.transfer_us = (), (), 0

    @property
    def kind(self) -> str:
        """See ``Keys``."""
        return self.keys.kind

    @property
    def group(self) -> str | None:
        """See ``Keys``."""
        return self.keys.group

    @property
    def topics(self) -> list[Topic]:
        """All topics."""
        detail: Any = self.writes or self.reads or self.beats
        return [each.topic for each in (self.offsets if detail is None else detail.topics)]

    @property
    def exemplar(self) -> Exchange | None:
        """An exchange with the same bodies; None: they are not needed."""
        return None if self.content is None else self.content.exemplar

    @property
    def completed(self) -> Noted:
        """When those with an ``exemplar`` were."""
        assert self.content is not None
        return self.content.completed

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

    def kept(self, value: Value) -> Value:
        """Names as tables keep them."""
        return kept(value)

    def id_of(self, number: int) -> str:
        """As ``Facts.id``, by the number of an exchange."""
        return f"{self.connection.id}/{number}"

    def first_of(self, noted: Noted) -> list[tuple[int, str]]:
        """Times and IDs of the first of some of the exchanges."""
        return [(time_ns, self.id_of(number)) for time_ns, number in noted.first]

    def events(self) -> list[tuple[GroupEvent, GroupEvent]]:
        """The first and the last group event, if there are any. They are completed when the last one is."""
        if (beats := self.beats) is None:
            return []
        group, member, instance, generation = beats.member
        is_commit = self.api == "OffsetCommit"
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
            client_id=self.keys.client_id,
            client_ip=self.connection.client.ip,
            cluster_id=self.connection.cluster_id,
            member_id=member,
            group_instance_id=instance,
            generation=generation,
        )
        return [(last._replace(time_ns=first_ns, number=first_number), last)]


Tally: TypeAlias = "Facts | Alike"


# ------------------------------------------------------------------------------------------------------------
# Tallies -> sums of those that are alike: of all connections of a client with a broker. Holds
# ``Limits.summary_buckets``, and passes on all when there are more.
# ------------------------------------------------------------------------------------------------------------


class Summing:
    """Sums tallies up.

    Args:
        limits: to respect.
        counters: fed with the sums. They keep none.
        by_group, by_connection: whether those of different groups or connections differ.
    """

    def __init__(
        self,
        limits: Limits,
        counters: Iterable[Callable[[Alike], object]],
        *,
        by_group: bool = False,
        by_connection: bool = False,
    ) -> None:
        self._counters = list(counters)
        self._by_group, self._by_connection = by_group, by_connection
        self._max_buckets = limits.summary_buckets
        self._sums: dict[tuple[Any, ...], Alike] = {}
        self._held = 0

    def feed(self, tally: Tally) -> None:
        """Add a tally. One of several may become a sum: it is not used afterward."""
        keys, info = self._keys(tally), tally.connection
        is_apart = self._by_connection or info.cluster_id is None  # that may become known
        cluster = info.key if is_apart else info.cluster_id
        ends = info.client.ip, info.hop and info.hop.ip, info.broker, cluster
        one = self._sums.get((keys, ends))
        if one is not None:
            one.add(tally)
        else:
            if tally.exchange is None:
                one = tally
                one.become_sum(keys)
            else:
                one = Alike(Keys(*keys), info, tally.client, tally.broker)
                one.add(tally)
            self._sums[keys, ends] = one
            self._held += entries(keys) + entries(ends) - 1
        one.connections.add(info.name)
        if self._held > self._max_buckets:
            self.settle()

    def _keys(self, tally: Tally) -> tuple[Any, ...]:
        """The ``Keys`` of its sum."""
        if tally.exchange is None:
            keys = tally.keys
            return keys if self._by_group or keys.group is None else keys._replace(group=None)
        exchange = tally.exchange
        return (
            tally.api,
            exchange.api_key,
            exchange.api_version,
            tally.kept(exchange.client_id),
            exchange.client_software_name,
            exchange.client_software_version,
            exchange.principal,
            exchange.kind,
            tally.kept(tally.group) if self._by_group else None,
            exchange.request_frame is not None,
            tally.has_flaw,
            tally.service_us is not None,
        )

    def settle(self) -> None:
        """Pass on all sums."""
        sums, self._sums, self._held = self._sums, {}, 0
        for one in sums.values():
            for counter in self._counters:
                counter(one)
