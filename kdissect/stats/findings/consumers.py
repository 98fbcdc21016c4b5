"""Facts about consumers and groups -> findings, by one rule each."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.anomalies import ERROR, WARNING
from kdissect.exchanges.group_events import LEAVE
from kdissect.kafka.codes import error_code
from kdissect.limits import SECOND_NS
from kdissect.net.duplex import NEVER_NS
from kdissect.phrases import client_label, duration, many, most_frequent, quoted, times
from kdissect.stats.contents import EACH
from kdissect.stats.findings.producers import NamedTransactions
from kdissect.stats.findings.rule import Bursts, Evidence, Rule, combined
from kdissect.stats.groups import STORM, STORM_NS, Groups, causes, storms, timelines
from kdissect.stats.lag import PAUSE_US, ClientLag, Polling, Samples
from kdissect.stats.quantiles import Bounded, Distinct
from kdissect.stats.rebalances import counted
from kdissect.stats.sums import Summed, earlier, earliest, join, largest, latest, merged, summed, total
from kdissect.stats.transactions import TIMED_OUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kdissect.exchanges.fetch_sessions import Position
    from kdissect.limits import Limits
    from kdissect.stats.contents import CountedReads
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import RulePart, Scope
    from kdissect.stats.tallies import Alike, Tally
    from kdissect.stats.transactions import Producer, Transaction


_MIN_EMPTY = 100
_SHARE = 0.8


@summed
class Polls(Bursts):
    """Empty Fetch responses of a connection, and the number of all responses."""

    responses: int = total()
    max_wait_ms: int = largest()


@summed
class EmptyPolls(Rule):
    """A broker can hold a Fetch until there is something to read; a consumer that does not allow this puts
    load on both ends.
    """

    name = "empty-poll-loop"
    severity = WARNING
    of = ("client", "connection")
    title = "A consumer polls many times a second and receives no records."
    when = (
        f"{_MIN_EMPTY} empty responses on a connection in 10 seconds, making up at least {_SHARE:.0%} of its "
        "responses; with the default wait of 500 ms there are at most 20."
    )
    advice = (
        "Let the broker wait: set fetch.max.wait.ms to 500 and fetch.min.bytes to at least 1 on the consumer."
    )
    takes = EACH
    apis = frozenset({"Fetch", "ShareFetch"})
    counts = Polls

    def feed(self, tally: Tally) -> None:
        """Count responses to consumers, and empty ones."""
        if tally.exchange is None:
            if (reads := tally.reads) is not None and not reads.are_replicated:
                kept = self.kept[tally.client, tally.connection.key]
                kept.responses += tally.exchanges
                kept.max_wait_ms = max(kept.max_wait_ms, reads.max_wait_ms)
                kept.add_noted(tally, reads.empty)
            return
        if tally.replica or tally.latency_us is None or tally.errors:
            return
        kept = self.kept[tally.client, tally.connection.key]
        kept.responses += 1
        request = tally.exchange.request or {}
        kept.max_wait_ms = max(kept.max_wait_ms, request.get("max_wait_ms") or 0)
        if not any(data is not None and len(data) for data in (each.fetched for each in tally.touched)):
            kept.add(tally)

    def _reports(self, each: Polls) -> bool:
        return each.busiest >= _MIN_EMPTY and each.count >= _SHARE * each.responses

    def findings(self) -> Iterator[RulePart]:
        """Connections with mostly empty responses."""
        for (client, (connection, _)), each in self.kept.items():
            if self._reports(each):
                yield self.part((client, connection), each)

    def _message(self, _: Scope, each: Polls) -> str:
        return (
            f"{each.count:,} of {each.responses:,} fetches returned nothing, {each.peak}; "
            f"max_wait_ms is at most {each.max_wait_ms:,}"
        )


# ------------------------------------------------------------------------------------------------------------
# Positions of consumers -> those that read more slowly than producers write.
# ------------------------------------------------------------------------------------------------------------


_RECORDS = 1000
_SECONDS = 10
_BEHIND_SHARE = 0.9  # of the worst lag: partitions do not reach it at the same time


@summed
class Reading(Evidence):
    """Responses that left records unread.

    Attributes:
        lag: in a partition; ``start``: time and offset of the first position of the client.
        partitions: of a topic, each with its own lag.
    """

    lag: ClientLag = merged(ClientLag)
    start: tuple[int, int] | None = earliest()
    partitions: list[Reading] = total(list)

    @property
    def first(self) -> int:
        """The lag when first seen."""
        return sum(each.lag.first[1] for each in self.partitions)

    @property
    def last(self) -> int:
        """The last lag."""
        return sum(each.lag.last[1] for each in self.partitions)

    @property
    def worst(self) -> int:
        """The sum of the worst lags."""
        return sum(each.lag.worst[0] for each in self.partitions)

    @property
    def pace(self) -> float | None:
        """Records per second, from the movement of positions; None if no time passed."""
        start = [each.start for each in self.partitions if each.start is not None]
        ended = [each.lag.position for each in self.partitions]
        time_ns = max(ended)[0] - min(start)[0]
        moved = sum(offset for _, offset in ended) - sum(offset for _, offset in start)
        return moved * SECOND_NS / time_ns if time_ns > 0 else None

    @property
    def is_too_slow(self) -> bool:
        """Whether the lag grows, and the consumer does not catch up soon."""
        pace, last = self.pace, self.last
        if pace is None or last < self.first + _RECORDS:
            return False
        return last >= _BEHIND_SHARE * self.worst and last > _SECONDS * pace

    def add_position(self, time_ns: int, position: Position) -> None:
        """Add a position of the client."""
        if position.lag is not None and position.next_offset is not None:
            self.lag.add(time_ns, position)
            self.start = earlier(self.start, (time_ns, position.next_offset))


@summed
class ReadingLog(Summed):
    """The positions of all consumers, by client, its address, topic and partition: processes on other hosts
    may have the same client ID, as by default. Replicas are not consumers.
    """

    partitions: Bounded[tuple[str, str, str, int], Reading] = merged()

    takes = EACH
    needs_flaws = False
    apis = frozenset({"Fetch"})

    def __init__(self, limits: Limits) -> None:
        self.partitions = Bounded(limits.summary_rows, Reading)

    def feed(self, tally: Tally) -> None:
        """Add positions."""
        reader = tally.client, tally.connection.client.ip
        if tally.exchange is None:
            if (reads := tally.reads) is not None and not reads.are_replicated:
                self._add_reads(reader, tally, reads)
            return
        if tally.replica:
            return
        response = tally.exchange.response_frame
        time_ns = tally.exchange.time_ns if response is None else response.start_ns
        for position in tally.positions:
            if not position.error:
                kept = self.partitions[*reader, position.topic, position.partition]
                kept.add_position(time_ns, position)
                if position.lag:
                    kept.add(tally)

    def _add_reads(self, reader: tuple[str, str], tally: Alike, reads: CountedReads) -> None:
        for topic, partitions in reads.topics:
            for each in partitions:
                kept = self.partitions[*reader, topic.name, each.partition]
                kept.lag.add_counted(each.lags)
                if each.lags.number:
                    kept.start = earlier(kept.start, each.lags.start)
                kept.add_noted(tally, each.behind)

    def behind(self, *, by_host: bool) -> Iterator[tuple[tuple[str, ...], Reading]]:
        """Consumers whose lag grows: client, with its address or without, and topic."""
        partitions: dict[tuple[Any, ...], Reading] = {}
        for (client, host, *partition), each in self.partitions.items():
            key = client, *((host,) if by_host else ()), *partition
            partitions.setdefault(key, Reading()).merge(each)
        topics: dict[tuple[str, ...], Reading] = {}
        for (*topic, _), each in partitions.items():
            if each.start is not None:
                read = topics.setdefault(tuple(topic), Reading())
                join(read, each, Evidence)
                read.partitions.append(each)
        yield from (item for item in topics.items() if item[1].is_too_slow)


@summed
class FallingBehind(Rule):
    """A consumer that falls behind gets records ever later, and never gets those that retention deletes."""

    name = "falling-behind"
    severity = WARNING
    of = ("client", "topic")
    records = "last"
    title = "A consumer reads more slowly than producers write."
    when = (
        f"Its lag has grown by {_RECORDS:,} records, is near the highest value seen, and would take more "
        f"than {_SECONDS} seconds to clear at its current rate; consumers catching up on old data are not "
        "reported."
    )
    advice = (
        "Check what the consumer does between polls, and whether it is throttled. Adding members helps, up "
        "to the number of partitions. --lag shows each partition."
    )
    follows = ReadingLog

    def findings(self) -> Iterator[RulePart]:
        """Consumers whose lag grows, by topic."""
        for key, read in self.followed.behind(by_host=False):
            yield self.part(key, read)

    def _message(self, scope: Scope, each: Reading) -> str:
        who = "the client reads" if len(scope["client"]) == 1 else "the clients read"
        return (
            f"fetch lag {each.last:,} records at the end, {each.first:,} when first seen; {who} "
            f"{each.pace or 0:,.0f} records/s"
        )


# ------------------------------------------------------------------------------------------------------------
# Think times of those -> consumers that are slow themselves. One that fetches ahead thinks only when its
# queue is full.
# ------------------------------------------------------------------------------------------------------------


_PAUSES = 3
_PAUSED_SHARE = 0.5


@summed
class Pauses(Evidence):
    """Fetches after a pause, the think times of all, and what the consumer read."""

    polling: Polling = merged(Polling)
    reading: Reading = merged(Reading)


@summed
class SlowPoll(Rule):
    """However fast brokers are, a consumer reads no faster than its application calls poll(). If one call
    takes longer than max.poll.interval.ms, it must leave its group.
    """

    name = "slow-poll"
    severity = WARNING
    of = ("client", "host")
    records = "reading.last"
    lost = "polling.paused_us"
    title = "A consumer falls behind because of what it does between polls, not because of brokers."
    when = (
        f"Its lag grows as with falling-behind, and it spent {_PAUSED_SHARE:.0%} of the time or more in "
        f"pauses of {PAUSE_US / 1e6:g} s or more between two fetches, at least {_PAUSES} of them. "
        "Consumers that fetch ahead do not pause before their queue is full."
    )
    advice = (
        "See what the application does with the records that poll() returns: calls to slow services, a "
        "commit after each record. Let several threads or more members share the work; to stay in the group, "
        "lower max.poll.records. --lag shows the share of this time as THINK."
    )
    takes = EACH
    apis = frozenset({"Fetch"})
    follows = ReadingLog
    counts = Pauses

    def feed(self, tally: Tally) -> None:
        """Add think times."""
        reader = tally.client, tally.connection.client.ip
        if tally.exchange is None:
            if (reads := tally.reads) is not None and not reads.are_replicated:
                pauses = self.kept[reader]
                pauses.polling.add(tally)
                pauses.add_noted(tally, reads.polls.pauses)
        elif not tally.replica and (think_us := tally.exchange.think_us) is not None:
            pauses = self.kept[reader]
            pauses.polling.add(tally)
            if think_us >= PAUSE_US:
                pauses.add(tally)

    def findings(self) -> Iterator[RulePart]:
        """Those of the consumers whose lag grows that pause most of the time: pauses are in all of their
        topics.
        """
        behind = sorted(self.followed.behind(by_host=True), key=itemgetter(0))
        for reader, each in groupby(behind, key=lambda item: item[0][:-1]):
            pauses = self.kept.get(reader, Pauses())
            polling = pauses.polling
            all_us = polling.think_us + polling.waited_us
            if pauses.count >= _PAUSES and polling.paused_us >= _PAUSED_SHARE * all_us:
                evidence, topics = combined([pauses]), []
                for (*_, topic), read in each:
                    evidence.reading.merge(read)
                    topics.append(topic)
                part = self.part(reader, evidence)
                part.scope = {**part.scope, "topic": topics}
                yield part

    def _message(self, _: Scope, each: Pauses) -> str:
        polling, reading = each.polling, each.reading
        all_us = polling.think_us + polling.waited_us
        waited_ns = polling.waited_us * 1000 // polling.fetches
        return (
            f"{many(each.count, 'pause')} of {PAUSE_US / 1e6:g} s or more between fetches, "
            f"{polling.paused_us / all_us:.0%} of the time; the fetches took {duration(waited_ns)} on "
            f"average; fetch lag {reading.last:,} records at the end, {reading.first:,} when first seen"
        )


# ------------------------------------------------------------------------------------------------------------
# Fetches of the same offset, although records came -> consumers that do not get past it.
# ------------------------------------------------------------------------------------------------------------


_STUCK = 5


@summed
class Repeats(Evidence):
    """Fetches that repeat the offset of the one before; the most in a row, and the offset; the last time, and
    the lag then.
    """

    longest: tuple[int, int] = largest((0, 0))
    lag: tuple[int, int] = latest((0, 0))

    @property
    def unread(self) -> int:
        """The last lag."""
        return self.lag[1]


@summed
class ConsumerStuck(Rule):
    """A consumer that cannot decode a record, fails to process it, or does not skip the end of a batch whose
    last records were compacted away, reads the same records forever.
    """

    name = "consumer-stuck"
    severity = WARNING
    records = "unread"
    title = "A consumer fetches the same offset again and again, although records come."
    when = (
        f"{_STUCK} fetches of an offset in a row on a connection, each after a response with records. Empty "
        "responses, errors, and replicas are not counted."
    )
    advice = (
        "See the consumer's log for what fails at this offset: a record that cannot be decoded or processed, "
        "or a client that does not go past the last offset of a compacted batch (then upgrade it, or seek "
        "past the batch). records --offset shows the records."
    )
    apis = frozenset({"Fetch"})
    counts = Repeats
    of = ("client", "topic", "partition")

    def feed(self, facts: Facts) -> None:
        """Count repeated offsets; the core passes on all of them."""
        if facts.replica:
            return
        for position in facts.positions:
            if position.repeats and not position.error:
                kept = self.kept[facts.client, position.topic, position.partition]
                kept.add(facts)
                kept.longest = max(kept.longest, (position.repeats, position.fetch_offset or 0))
                kept.lag = max(kept.lag, (facts.time_ns, position.lag or 0))

    def _reports(self, each: Repeats) -> bool:
        return each.longest[0] + 1 >= _STUCK

    def _message(self, _: Scope, each: Repeats) -> str:
        repeats, offset = each.longest
        lag = f"; its lag is {each.unread:,}" if each.unread else ""
        return f"{repeats + 1:,} fetches in a row from offset {offset:,}, although records came{lag}"


# ------------------------------------------------------------------------------------------------------------
# Last stable offsets that stand still below the high watermark -> transactions that readers wait for.
# ------------------------------------------------------------------------------------------------------------


_HELD_UP_NS = 5 * SECOND_NS


class Hold(NamedTuple):
    """How long an offset stood still, since when, and how far below the high watermark it was at last.

    Attributes:
        is_timed_out: whether the transaction timed out; ``timeout_ms``: its limit, 0: not captured.
    """

    held_ns: int
    since_ns: int
    offset: int
    behind: int
    is_timed_out: bool = False
    timeout_ms: int = 0


@summed
class Stability(Summed):
    """High watermarks and last stable offsets of a partition as consumers saw them, and their connections."""

    high_watermark: Samples = merged(Samples)
    last_stable: Samples = merged(Samples)
    connections: Distinct = merged(Distinct)

    def longest_hold(self) -> Hold | None:
        """The longest time for which the last stable offset stood still below the high watermark."""
        ends = dict(self.high_watermark.in_order())
        longest: Hold | None = None
        since: tuple[int, int] | None = None  # time, offset
        for time_ns, offset in self.last_stable.in_order():
            behind = ends.get(time_ns, offset) - offset
            if behind <= 0:
                since = None
            elif since is None or since[1] != offset:
                since = time_ns, offset
            else:
                hold = Hold(time_ns - since[0], since[0], offset, behind)
                longest = hold if longest is None else max(longest, hold)
        return longest


@summed
class Holds(Evidence):
    """Connections of readers that were held up, and the longest hold."""

    longest: Hold = largest(Hold(0, 0, 0, 0))


class _Holder(NamedTuple):
    """An open transaction; ``until_ns``: when the next one of that ID began."""

    name: str
    producer: Producer
    transaction: Transaction
    until_ns: int


@summed
class BlockedReaders(Rule):
    """Consumers with isolation.level=read_committed read only up to the first open transaction. One that is
    left open holds up all readers of its partitions, until the coordinator rolls it back.
    """

    name = "readers-blocked"
    severity = WARNING
    of = ("topic", "partition", "client", "transactional ID")
    records = "longest.behind"
    lost = "longest.held_ns"
    title = "An open transaction holds up read_committed consumers."
    when = (
        f"The last stable offset of a partition stood still for {_HELD_UP_NS // SECOND_NS} s or more below "
        "the high watermark, as responses to read_committed consumers show: an error if the transaction "
        "timed out. Of long captures, only samples are compared."
    )
    advice = (
        "See what the producer does while its transaction is open (if it is not captured: kafka-transactions "
        "find-hanging). Commit more often, or lower its transaction.timeout.ms."
    )
    takes = EACH
    apis = frozenset({"Fetch"})
    follows = NamedTransactions
    counts = Stability

    def feed(self, tally: Tally) -> None:
        """Add the offsets of responses; -1 means that the consumer reads uncommitted records too."""
        if tally.exchange is None:
            self._add_reads(tally)
            return
        response = tally.exchange.response_frame
        if tally.replica or response is None:
            return
        for position in tally.positions:
            stable, end = position.last_stable_offset, position.high_watermark
            if not position.error and stable is not None and stable >= 0 and end is not None:
                kept = self.kept[position.topic, position.partition]
                kept.high_watermark.add(response.start_ns, end)
                kept.last_stable.add(response.start_ns, stable)
                kept.connections.add(tally.connection.id)

    def _add_reads(self, tally: Alike) -> None:
        if (reads := tally.reads) is None or reads.are_replicated:
            return
        for topic, partitions in reads.topics:
            for each in partitions:
                end, stable = each.stable or each.ends[:2]
                if stable[0]:
                    kept = self.kept[topic.name, each.partition]
                    kept.high_watermark.add_counted(end)
                    kept.last_stable.add_counted(stable)
                    kept.connections.add(tally.connection.id)

    def findings(self) -> Iterator[RulePart]:
        """Partitions whose readers were held up."""
        known = list(self.followed.transactions())
        for key, each in self.kept.items():
            hold = each.longest_hold()
            if hold is None or hold.held_ns < _HELD_UP_NS:
                continue
            evidence = Holds()
            for connection in each.connections.first(_CLIENTS):
                evidence.take(hold.since_ns, connection)
            evidence.last_ns = hold.since_ns + hold.held_ns
            evidence.longest = hold
            holder = _holder(known, key, hold)
            if holder is None:
                yield self.part((*key, None, None), evidence)
                continue
            if holder.transaction.outcome == TIMED_OUT:
                evidence.longest = hold._replace(
                    is_timed_out=True, timeout_ms=holder.transaction.timeout_ms or 0
                )
            clients = holder.producer.clients.first(_CLIENTS)
            part = self.part((*key, clients[0], holder.name), evidence, until_ns=holder.until_ns)
            part.scope = {**part.scope, "client": clients}
            yield part

    def _level(self, each: Holds) -> str:
        return ERROR if each.longest.is_timed_out else WARNING

    def _message(self, _: Scope, each: Holds) -> str:
        hold = each.longest
        limit = f" (transaction.timeout.ms is {hold.timeout_ms:,})" if hold.timeout_ms else ""
        until = f" until it timed out{limit}" if hold.is_timed_out else ""
        return (
            f"a transaction was open{until}: the last stable offset stood at {hold.offset:,} for "
            f"{duration(hold.held_ns)}, {many(hold.behind, 'offset')} below the high watermark"
        )


def _holder(
    known: Iterable[tuple[str, Producer, Transaction]], partition: tuple[str, int], hold: Hold
) -> _Holder | None:
    """The transaction that was open all the time: the first, if there are several."""
    end_ns = hold.since_ns + hold.held_ns - SECOND_NS
    open_then = [
        (each.start_ns, name, producer, each)
        for name, producer, each in known
        if partition in each.partitions
        and each.start_ns <= hold.since_ns
        and (each.end_ns is None or each.end_ns >= end_ns)
    ]
    if not open_then:
        return None
    _, name, producer, first = min(open_then, key=itemgetter(0, 1))
    later = (each.start_ns for other, _, each in known if other == name and each.start_ns > first.start_ns)
    return _Holder(name, producer, first, min(later, default=NEVER_NS))


# ------------------------------------------------------------------------------------------------------------
# FENCED_INSTANCE_ID -> static members with the same group.instance.id.
# ------------------------------------------------------------------------------------------------------------


_ERRORS = frozenset({"FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID"})


@summed
class InstanceIds(Rule):
    """A fenced static member (KIP-345) stops consuming: another member has its group.instance.id."""

    name = "duplicate-instance-ids"
    needs_flaws = True
    severity = ERROR
    of = ("group", "instance", "client")
    failed = "count"
    title = "Two members of a group have the same group.instance.id."
    when = "Any occurrence: the broker fences the older member, which then stops."
    advice = (
        "Give each member its own group.instance.id, and stop the old member before a new one takes over."
    )

    def feed(self, facts: Facts) -> None:
        """Count fencing errors."""
        if facts.errors and not _ERRORS.isdisjoint(facts.errors):
            instance = (facts.exchange.request or {}).get("group_instance_id")
            instance = instance or (facts.exchange.request or {}).get("instance_id")
            self.kept[facts.group, instance, facts.client].add(facts)

    def _message(self, _: Scope, each: Evidence) -> str:
        return f"fenced {times(each.count)}: another member has its group.instance.id"


# ------------------------------------------------------------------------------------------------------------
# OFFSET_OUT_OF_RANGE -> consumers that fetch records that no longer exist.
# ------------------------------------------------------------------------------------------------------------


_OUT_OF_RANGE = error_code("OFFSET_OUT_OF_RANGE")


@summed
class OffsetResets(Evidence):
    """Such responses, and where the client went on: offsets that it skipped, and that it went back."""

    skipped: int = total()
    back: int = total()


@summed
class OutOfRange(Rule):
    """Retention deleted records before the consumer read them; auto.offset.reset sets where it continues."""

    name = "offset-out-of-range"
    severity = WARNING
    of = ("client", "topic")
    failed = "count"
    records = "skipped"
    title = "A consumer fetches an offset that does not exist, or no longer exists."
    when = "Any occurrence, because a consumer that keeps up never fetches such an offset."
    advice = "Compare the consumer's lag with the topic's retention, and check its auto.offset.reset."
    apis = frozenset({"Fetch"})
    counts = OffsetResets

    def feed(self, facts: Facts) -> None:
        """Count responses to consumers, and what they skip; the core passes on the Fetch after such a
        response. A follower after a long absence gets the same error.
        """
        for each in facts.touched if facts.errors else ():
            if each.error == _OUT_OF_RANGE and not facts.replica:
                self.kept[facts.client, each.topic].add(facts)
        for position in facts.positions:
            if position.skipped and not facts.replica:
                kept = self.kept[facts.client, position.topic]
                kept.skipped += max(0, position.skipped)
                kept.back += max(0, -position.skipped)

    def _message(self, _: Scope, each: OffsetResets) -> str:
        message = f"requested an out-of-range offset {times(each.count)}"
        if each.skipped:
            message += f"; skipped {many(each.skipped, 'record')}"
        return f"{message}; went back {many(each.back, 'offset')}" if each.back else message


# ------------------------------------------------------------------------------------------------------------
# Rebalances -> groups that have too many. Holds the same as ``--groups``, except commits.
# ------------------------------------------------------------------------------------------------------------


_CLIENTS = 3  # shown in a message
_REASON = 80  # characters of a reason, likewise


@summed
class Storms(Evidence):
    """Rebalances by cause, by the client that triggered them, and by the reason that it gave; how many of
    them an empty group.
    """

    causes: Counter[str] = total(Counter)
    clients: Counter[str] = total(Counter)
    reasons: Counter[str] = total(Counter)
    of_empty: int = total()


@summed
class RebalanceStorm(Rule):
    """During a rebalance members read less or nothing, and uncommitted records are read again."""

    name = "rebalance-storm"
    severity = WARNING
    of = ("group",)
    lost = "length_ns"
    title = "A group rebalances repeatedly."
    when = (
        f"{STORM} rebalances that start within {STORM_NS // SECOND_NS} seconds, not counting those at the "
        "start of a group (members join one after the other, unless the first one has returned), those at "
        "its end (they leave one after the other), and the follow-up rebalances of the cooperative protocol."
    )
    advice = (
        "Check whether members are restarted, miss session.timeout.ms, or take longer than "
        "max.poll.interval.ms to process records; with a group.instance.id a member can return without a "
        "rebalance. --groups shows what triggered each rebalance."
    )
    takes = EACH
    apis = frozenset(
        {
            *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"),
            *("ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat"),
        }
    )

    groups: Groups = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.groups = Groups(limits)

    def feed(self, tally: Tally) -> None:
        """Add group events."""
        self.groups.feed(tally)

    def findings(self) -> Iterator[RulePart]:
        """All storms."""
        for group, timeline in timelines(self.groups):
            for storm in storms(timeline):
                evidence = Storms()
                for each in storm:
                    evidence.take(each.start_ns, each.exchange)
                evidence.causes.update(causes(storm))
                evidence.clients.update(
                    each.causes[0].client_id for each in storm if each.causes and each.causes[0].client_id
                )
                evidence.reasons.update(
                    each.causes[0].reason for each in storm if each.causes and each.causes[0].reason
                )
                evidence.of_empty = sum(each.members_before == 0 for each in storm)
                yield self.part(group, evidence)

    def _message(self, _: Scope, each: Storms) -> str:
        seconds = (each.last_ns - each.first_ns) / SECOND_NS
        named = [
            f"{client_label(name)} ({many(count, 'time')})" for name, count in each.clients.most_common()
        ]
        more = f" and {len(named) - _CLIENTS:,} more" if len(named) > _CLIENTS else ""
        by = f"; triggered by client{'s' if len(named) > 1 else ''} {', '.join(named[:_CLIENTS])}{more}"
        empty = f"; {each.of_empty:,} of an empty group" if each.of_empty else ""
        reasons = "".join(
            f"; reason: {quoted(reason, _REASON)} ({many(count, 'time')})"
            for reason, count in most_frequent(each.reasons, 1)
        )
        return (
            f"{each.count:,} rebalances within {seconds:.0f} s ({counted(each.causes)}){empty}"
            f"{by if named else ''}{reasons}"
        )


@summed
class PollTimeout(Rule):
    """A member that does not call poll() in time leaves its group. Another one reads the same records again,
    and if one of them takes so long, does the same.
    """

    name = "poll-timeout"
    severity = WARNING
    of = ("group", "client", "host")
    is_event = True
    title = "A member leaves its group because the application did not call poll() for too long."
    when = (
        "Any LeaveGroup whose reason says so. The Java client gives it since 3.2 (KIP-800), librdkafka none."
    )
    advice = (
        "Find what took so long between two polls: a slow record or a slow dependency. Reduce "
        "max.poll.records, or raise max.poll.interval.ms above the longest time."
    )
    apis = frozenset({"LeaveGroup"})

    def feed(self, facts: Facts) -> None:
        """Count members that leave for this reason."""
        for event in facts.group_events:
            if event.event == LEAVE and not event.error and _POLL_TIMEOUT in (event.reason or ""):
                self.kept[event.group_id, facts.client, facts.exchange.connection.client.ip].add(facts)

    def _message(self, _: Scope, each: Evidence) -> str:
        return f"left the group {times(each.count)}: it did not call poll() within max.poll.interval.ms"


_POLL_TIMEOUT = "poll timeout"  # in the reason that the Java client gives
