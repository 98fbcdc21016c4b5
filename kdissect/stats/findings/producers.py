"""Facts about producers -> findings, by one rule each."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from kdissect.anomalies import ERROR, NOTE, WARNING
from kdissect.exchanges import content
from kdissect.kafka.batches import read_records
from kdissect.kafka.codes import error_code
from kdissect.model import ABANDONED, INCOMPLETE, UNANSWERED
from kdissect.phrases import listed, many, times
from kdissect.stats.contents import EACH, ONE
from kdissect.stats.findings.rule import APIS, Bursts, Evidence, Rule, Topics, combined
from kdissect.stats.quantiles import Distinct
from kdissect.stats.sums import Summed, joined, largest, merged, own, summed, total
from kdissect.stats.transactions import FENCED, Transactions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.exchanges.touched import Touched
    from kdissect.kafka.batches import Batch
    from kdissect.kafka.recordbatch import Record
    from kdissect.kafka.records import BatchOrigin, RecordData
    from kdissect.limits import Limits
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import RulePart, Scope
    from kdissect.stats.tallies import Tally


_NAMES = 3  # clients shown in a message,
_SORTED = 100  # the first of this many in order
_ACKS_MEANING = {
    0: ("records are not acknowledged, so they can be rejected or lost in transit without an error"),
    1: "only the leader acknowledges records, so acknowledged records can be lost if it fails",
}


@summed
class Writes(Evidence):
    """Requests and their clients."""

    clients: Distinct = merged(Distinct)
    replicas: Distinct = merged(Distinct)


@summed
class Acks(Rule):
    """Without acks=all, replicas cost disk and network but do not prevent the loss of records."""

    name = "acks"
    severity = WARNING
    of = ("topic", "acks")
    title = "A producer with acks=0 or 1 writes to a replicated topic."
    when = "Any occurrence: acks=0 is a warning, acks=1 a note."
    advice = "Set acks=all and enable.idempotence=true, unless losing records is acceptable."
    takes = EACH
    apis = frozenset({"Produce"}) | APIS
    counts = Writes

    topics: Topics = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.topics = Topics(limits)

    def feed(self, tally: Tally) -> None:
        """Note the replicas of topics, and producers that do not wait for them."""
        if tally.api in APIS:
            self.topics.learn(tally)
        elif tally.exchange is None:
            if tally.writes is not None and tally.writes.acks in _ACKS_MEANING:
                for written in tally.writes.topics:
                    kept = self.kept[written.topic.name, tally.writes.acks]
                    kept.add_noted(tally, written.noted._replace(number=written.exchanges))
                    kept.clients.add(tally.client)
        elif (acks := (tally.exchange.request or {}).get("acks")) in _ACKS_MEANING:
            for topic in dict.fromkeys(each.topic for each in tally.touched):
                kept = self.kept[topic, acks]
                kept.add(tally)
                kept.clients.add(tally.client)

    def findings(self) -> Iterator[RulePart]:
        """Producers of topics known to have replicas."""
        for (topic, acks), each in self.kept.items():
            replicas = self.topics[topic].replicas if topic in self.topics else 0
            if replicas > 1:
                evidence = combined([each])
                evidence.replicas.add(str(replicas))
                yield self.part((topic, acks), evidence, WARNING if acks == 0 else NOTE)

    def _message(self, scope: Scope, each: Writes) -> str:
        more = len(each.clients) - _NAMES
        clients = ", ".join(each.clients.first(_SORTED)[:_NAMES]) + (
            f" and {more:,} more" if more > 0 else ""
        )
        replicas = " or ".join(each.replicas.first(_NAMES))
        return (
            f"{many(each.count, 'Produce request')} with acks={' and '.join(scope['acks'])} by {clients}, to "
            f"{replicas} replicas: {_ACKS_MEANING[int(scope['acks'][0])]}"
        )


# ------------------------------------------------------------------------------------------------------------
# Records of failed batches that come again with a later producer epoch -> possible duplicates.
#
# Numbers and checksum of the batch differ then, and clients may batch the records anew. So records are
# compared, by a hash of timestamp, key and value. Holds at most ``Limits.resent_records`` of them.
# ------------------------------------------------------------------------------------------------------------


_FRESH = 10_000  # sequence numbers: what failed is sent first with a new epoch; the core passes these on
_DUPLICATE = error_code("DUPLICATE_SEQUENCE_NUMBER")  # the client takes it for success


class Sent(NamedTuple):
    """When a record was sent, with which producer epoch, and in which exchange."""

    time_ns: int
    epoch: int
    exchange: str


def _earliest(one: dict[bytes, Sent], other: dict[bytes, Sent]) -> dict[bytes, Sent]:
    for record, sent in other.items():
        one[record] = min(one.get(record, sent), sent)
    return one


@summed
class SentRecords(Summed):
    """Records of failed batches, and those accepted soon after a new epoch, by hash."""

    failed: dict[bytes, Sent] = joined(_earliest, dict)
    accepted: dict[bytes, Sent] = joined(_earliest, dict)


@summed
class SentAgain(Evidence):
    """Such records, and their producers with their epochs."""

    by: Distinct = merged(Distinct)


@summed
class EpochDuplicates(Rule):
    """The broker drops a batch with a sequence number that it has already stored. With a new producer epoch
    the numbers start again from 0, so it stores the records again.
    """

    name = "epoch-duplicates"
    severity = WARNING
    of = ("client", "topic", "partition")
    records = "count"
    title = "A producer sends records of a failed batch again with a new producer epoch."
    when = (
        "Any record with the same timestamp, key and value as one in a batch that failed (an error, or no "
        "response), accepted with a later epoch of the same producer ID. Transactions are not counted: those "
        "that fail are aborted."
    )
    advice = (
        "Look for the records in the topic: they are there twice if the failed batch was stored (records "
        "shows where it was fetched). Upgrade the client if it takes a new epoch after retriable errors."
    )
    apis = frozenset({"Produce"})
    counts = SentRecords

    limits: Limits = own()
    noted: int = total()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.limits = limits
        self.noted = 0

    def feed(self, facts: Facts) -> None:
        """Note the records that a client may retry, and those that it may retry now."""
        for each in facts.touched:
            if each.produced is None or each.error == _DUPLICATE:
                continue
            is_failed = bool(each.error) or facts.outcome in (ABANDONED, UNANSWERED, INCOMPLETE)
            if not is_failed and each.error != 0:
                continue
            origins = each.produced.origins()
            if any(is_failed or _is_fresh(origin) for origin in origins if origin.producer_id >= 0):
                self._note(facts, each, each.produced, is_failed=is_failed)

    def findings(self) -> Iterator[RulePart]:
        """Records that failed, and were accepted with a later epoch."""
        for (client, topic, partition, producer_id), each in self.kept.items():
            again, epochs = SentAgain(), set()
            for record, failed in each.failed.items():
                sent = each.accepted.get(record)
                if sent is not None and failed.epoch < sent.epoch and failed.time_ns <= sent.time_ns:
                    again.take(failed.time_ns, failed.exchange, 0)
                    again.take(sent.time_ns, sent.exchange)
                    epochs |= {failed.epoch, sent.epoch}
            if again.count:
                again.by.add(f"producer {producer_id} ({min(epochs)} to {max(epochs)})")
                yield self.part((client, topic, partition), again)

    def _message(self, _: Scope, each: SentAgain) -> str:
        return (
            f"{many(each.count, 'record')} of failed batches accepted again with a new epoch of "
            f"{listed(each.by.first(_SORTED))}: duplicates if the first were stored"
        )

    def _note(self, facts: Facts, each: Touched, produced: RecordData, *, is_failed: bool) -> None:
        for batch in read_records(produced, self.limits):
            if batch.transactional or batch.producer_id is None or batch.producer_id < 0:
                continue
            if not is_failed and not _is_fresh(batch):
                continue
            kept = self.kept[facts.client, each.topic, each.partition, batch.producer_id]
            sent = Sent(facts.time_ns, batch.producer_epoch or 0, facts.id)
            room = max(0, self.limits.resent_records - self.noted)
            records = dict.fromkeys(map(_hash, batch.records[:room]), sent)
            self.noted += len(records)
            _earliest(kept.failed if is_failed else kept.accepted, records)


def _is_fresh(batch: BatchOrigin | Batch) -> bool:
    """Whether it is one of the first of a producer epoch that is not the first."""
    return (batch.producer_epoch or 0) > 0 and (batch.base_sequence or 0) < _FRESH


def _hash(record: Record) -> bytes:
    _, time_ms, key, value, _ = record
    digest = blake2b(
        f"{time_ms} {None if key is None else len(key)} {value is None} ".encode(), digest_size=8
    )
    digest.update(key or b"")
    digest.update(value or b"")
    return digest.digest()


# ------------------------------------------------------------------------------------------------------------
# PRODUCER_FENCED -> producers that share a transactional ID, or came back too late.
# ------------------------------------------------------------------------------------------------------------


@summed
class Fences(Evidence):
    """Responses with a fencing error, those to a producer whose transaction had timed out, and the
    transaction.timeout.ms of these.
    """

    timed_out: int = total()
    timeout_ms: int = largest()


@summed
class NamedTransactions(Transactions):
    """The same of producers with a transactional ID."""

    takes = frozenset({ONE})
    needs_flaws = False

    def feed(self, tally: Tally) -> None:
        """Add what transactions consist of."""
        assert tally.exchange is not None
        if tally.api != "Produce" or content.transactional_id(tally.exchange):
            Transactions.feed(self, tally)


@summed
class FencedProducers(Rule):
    """A fenced producer cannot continue; its transaction is aborted. Old versions of the protocol tell a
    producer whose transaction has timed out the same.
    """

    name = "fenced-producers"
    severity = ERROR
    of = ("client", "transactional ID")
    failed = "count"
    title = "A producer is fenced."
    when = "Any occurrence: a fenced producer cannot continue."
    advice = (
        "If its transaction had timed out, end transactions earlier, or raise transaction.timeout.ms (at "
        "most transaction.max.timeout.ms of the broker). If not, make sure that no two processes share a "
        "transactional.id; --transactions shows who fenced whom."
    )
    apis = Transactions.apis
    needs_flaws = True
    follows = NamedTransactions
    counts = Fences

    def feed(self, facts: Facts) -> None:
        """Count such responses."""
        if not FENCED.isdisjoint(facts.errors):
            self.kept[facts.client, content.transactional_id(facts.exchange)].add(facts)

    def findings(self) -> Iterator[RulePart]:
        """Producers, and whether it was their own timeout."""
        timeouts = dict(self.followed.timed_out())
        for key, each in self.kept.items():
            evidence = combined([each])
            if key in timeouts:
                evidence.timed_out, evidence.timeout_ms = each.count, timeouts[key]
            yield self.part(key, evidence)

    def _message(self, _: Scope, each: Fences) -> str:
        message = f"{many(each.count, 'response')} with a fencing error"
        if not each.timed_out:
            return message
        some = "" if each.timed_out == each.count else f" in {each.timed_out:,} of them"
        return (
            f"{message}: its transaction had timed out{some} (transaction.timeout.ms is {each.timeout_ms:,})"
        )


# ------------------------------------------------------------------------------------------------------------
# Other errors after which a transactional producer cannot continue; transactions that hold readers up.
# ------------------------------------------------------------------------------------------------------------


_FATAL = frozenset(
    {
        *("INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING", "INVALID_TRANSACTION_TIMEOUT"),
        *("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
    }
)


@summed
class FatalErrors(Evidence):
    """Responses with such an error, by API and error; the transaction.timeout.ms of the producer."""

    errors: Distinct = merged(Distinct)
    timeout_ms: int = largest()


@summed
class TransactionFailed(Rule):
    """The application must close such a producer and create another one; what it wrote in the transaction is
    rolled back.
    """

    name = "transaction-failed"
    severity = ERROR
    of = ("client", "transactional ID")
    failed = "count"
    title = "A transactional producer gets an error after which it cannot continue."
    when = f"Any of these errors: {', '.join(sorted(_FATAL))}. Fencing is fenced-producers."
    advice = (
        "INVALID_TXN_STATE at the end of a transaction usually means that the coordinator had rolled it back "
        "because it took longer than transaction.timeout.ms: shorten it, or raise that setting (at most "
        "transaction.max.timeout.ms of the broker). Send the records again. --transactions shows when it "
        "began."
    )
    apis = frozenset(
        {
            *("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"),
            "Produce",
        }
    )
    needs_flaws = True
    follows = NamedTransactions
    counts = FatalErrors

    def feed(self, facts: Facts) -> None:
        """Count such responses; note a timeout that is refused."""
        fatal = sorted(_FATAL.intersection(facts.errors))
        if fatal and (name := content.transactional_id(facts.exchange)):
            kept = self.kept[facts.client, name]
            timeout_ms = (facts.exchange.request or {}).get("transaction_timeout_ms") or 0
            kept.timeout_ms = max(kept.timeout_ms, timeout_ms)
            for error in fatal:
                kept.add(facts, error=error)
                kept.errors.add(f"{facts.api} refused with {error}")

    def findings(self) -> Iterator[RulePart]:
        """Producers, and their timeout."""
        for key, each in self.kept.items():
            evidence = combined([each])
            evidence.timeout_ms = max(each.timeout_ms, self.followed.timeout_ms(key[1]))
            yield self.part(key, evidence)

    def _message(self, _: Scope, each: FatalErrors) -> str:
        timeout = f"; its transaction.timeout.ms is {each.timeout_ms:,}" if each.timeout_ms else ""
        return f"{', '.join(each.errors.first(_NAMES))}, {times(each.count)}{timeout}"


# ------------------------------------------------------------------------------------------------------------
# Bytes written to each partition -> partitions that get a disproportionate fraction.
# ------------------------------------------------------------------------------------------------------------


_BATCHES = 100
_PARTITIONS = 3
_TIMES = 2.5  # the fair share
_SHARE = 0.2


@summed
class PartitionWrites(Evidence):
    """Batches and bytes written to a partition. For the message: its share, and bytes and partitions of the
    topic.
    """

    bytes: int = total()
    share: tuple[float, int, int] = largest((0.0, 0, 0))


@summed
class HotPartitions(Rule):
    """A partition has one leader and one reader in each group, so adding machines does not help."""

    name = "hot-partitions"
    severity = WARNING
    of = ("topic", "partition")
    title = "One partition gets far more data than the others of its topic."
    when = (
        f"A partition has {_TIMES} times its fair share, and {_SHARE:.0%} or more of the topic's bytes. "
        f"Topics with fewer than {_PARTITIONS} partitions or {_BATCHES} batches are not reported."
    )
    advice = (
        "Check which keys are most frequent: a single hot key can be spread over partitions only by salting "
        "it or by sending records without a key."
    )
    takes = EACH
    apis = frozenset({"Produce"}) | APIS
    counts = PartitionWrites

    topics: Topics = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.topics = Topics(limits)

    def feed(self, tally: Tally) -> None:
        """Count accepted bytes, and note the number of partitions."""
        if tally.api in APIS:
            self.topics.learn(tally)
        elif tally.exchange is None:
            for written in tally.writes.topics if tally.writes is not None else ():
                for part in written.partitions:
                    kept = self.kept[written.topic.name, part.partition]
                    kept.add_noted(tally, part.noted)
                    kept.bytes += part.size[0]
        else:
            for each in tally.touched:
                if each.produced is not None and not each.error:
                    kept = self.kept[each.topic, each.partition]
                    kept.add(tally)
                    kept.bytes += len(each.produced)

    def findings(self) -> Iterator[RulePart]:
        """The hottest partition of each topic."""
        topics: dict[str, dict[int, PartitionWrites]] = {}
        for (topic, partition), each in self.kept.items():
            topics.setdefault(topic, {})[partition] = each
        for topic, partitions in topics.items():
            known = self.topics[topic].partitions if topic in self.topics else 0
            number = max(known, len(partitions))
            hottest = max(partitions, key=lambda partition: (partitions[partition].bytes, -partition))
            total = sum(each.bytes for each in partitions.values())
            batches = sum(each.count for each in partitions.values())
            fraction = partitions[hottest].bytes / max(1, total)
            if number >= _PARTITIONS and batches >= _BATCHES and fraction >= max(_SHARE, _TIMES / number):
                evidence = combined([partitions[hottest]])
                evidence.share = fraction, total, number
                yield self.part((topic, hottest), evidence)

    def _message(self, scope: Scope, each: PartitionWrites) -> str:
        fraction, total, number = each.share
        up_to = "" if len(scope["partition"]) == 1 else "up to "
        return f"{up_to}{fraction:.0%} of the {total:,} bytes written to {number:,} partitions"


# ------------------------------------------------------------------------------------------------------------
# Produced batches -> messages that brokers reject for their size, or nearly do.
# ------------------------------------------------------------------------------------------------------------


_TOO_LARGE = frozenset(map(error_code, ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")))
_LARGE_BYTES = 1_000_000  # max.request.size and message.max.bytes are 1 MiB by default


@summed
class OversizedBatches(Evidence):
    """Large batches of a client."""

    max_bytes: int = largest()
    refused: int = total()


@summed
class RequestsTooLarge(Rule):
    """A batch rejected for its size fails on every retry; large accepted ones take memory everywhere."""

    name = "oversized-messages"
    severity = ERROR
    of = ("client", "topic")
    failed = "refused"
    title = "Records are rejected because of their size, or are 1 MB or larger."
    when = f"Any rejection is an error; a record of {_LARGE_BYTES:,} bytes or more is a note."
    advice = (
        "Compress large content, or send a reference to it instead. Otherwise raise the topic's "
        "max.message.bytes."
    )
    apis = frozenset({"Produce"})
    counts = OversizedBatches

    def feed(self, facts: Facts) -> None:
        """Count rejected batches and large records."""
        for each in facts.touched:
            if each.produced is None:
                continue
            refused = each.error in _TOO_LARGE
            if refused or (len(each.produced) >= _LARGE_BYTES and each.produced.count() == 1):
                kept = self.kept[facts.client, each.topic, refused]
                kept.add(facts)
                kept.max_bytes = max(kept.max_bytes, len(each.produced))

    def findings(self) -> Iterator[RulePart]:
        """All such batches."""
        for (client, topic, refused), each in self.kept.items():
            evidence = combined([each])
            evidence.refused = each.count if refused else 0
            yield self.part((client, topic), evidence)

    def _level(self, each: OversizedBatches) -> str:
        return ERROR if each.refused else NOTE

    def _message(self, _: Scope, each: OversizedBatches) -> str:
        if not each.refused:
            batches = many(each.count, "batch", "batches")
            return f"{batches} with a single record of up to {each.max_bytes:,} bytes"
        return (
            f"{many(each.refused, 'batch', 'batches')} rejected as too large, the largest with "
            f"{each.max_bytes:,} bytes"
        )


# ------------------------------------------------------------------------------------------------------------
# Sizes of produced batches -> producers that send one record at a time.
# ------------------------------------------------------------------------------------------------------------


_MIN_BATCHES = 200
_RECORDS = 2  # of a batch, on average
_BYTES = 2000  # of a batch, on average: large records need no batching


@summed
class BatchBursts(Bursts):
    """Batches of a client for a topic."""

    bytes: int = total()
    records: int = total()


@summed
class TinyBatches(Rule):
    """Each batch costs 61 bytes, a request, and work on all replicas, and tiny ones do not compress."""

    name = "tiny-batches"
    severity = NOTE
    of = ("client", "topic")
    title = "A producer sends nearly every record in its own batch."
    when = (
        f"{_MIN_BATCHES} batches to a topic in 10 seconds averaging fewer than {_RECORDS} records and "
        f"{_BYTES:,} bytes; low-traffic topics are not reported."
    )
    advice = (
        "Let the producer fill batches: set linger.ms to a value from 5 to 100, and do not flush after each "
        "record."
    )
    takes = EACH
    apis = frozenset({"Produce"})
    counts = BatchBursts

    def feed(self, tally: Tally) -> None:
        """Count batches; a message set of magic 0 or 1 is one."""
        if tally.exchange is None:
            for written in tally.writes.topics if tally.writes is not None else ():
                kept = self.kept[tally.client, written.topic.name]
                kept.add_noted(tally, written.noted)
                size, number = written.size
                kept.bytes += size
                kept.records += number
            return
        for each in tally.touched:
            data = each.produced
            records = None if data is None else data.count()
            if data is not None and records:
                kept = self.kept[tally.client, each.topic]
                kept.add(tally)
                kept.bytes += len(data)
                kept.records += records

    def _reports(self, each: BatchBursts) -> bool:
        is_many = each.busiest >= _MIN_BATCHES and each.records < _RECORDS * each.count
        return is_many and each.bytes < _BYTES * each.count

    def _message(self, _: Scope, each: BatchBursts) -> str:
        return (
            f"{each.count:,} batches averaging {each.records / each.count:.1f} records and "
            f"{each.bytes // each.count:,} bytes, {each.peak}"
        )
