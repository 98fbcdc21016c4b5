"""Error codes in responses -> findings: what brokers reject, and what they cannot do."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from kdissect.anomalies import ERROR, WARNING
from kdissect.kafka.codes import error_name
from kdissect.phrases import listed, many, times, topic_label
from kdissect.stats.findings.rule import Evidence, Minutes, Rule
from kdissect.stats.quantiles import Distinct
from kdissect.stats.sums import merged, summed, total

if TYPE_CHECKING:
    from kdissect.exchanges.touched import Touched
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import Scope

_TOO_FEW_REPLICAS = frozenset({"NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"})
_STORAGE = frozenset({"KAFKA_STORAGE_ERROR"})
_COORDINATOR = frozenset({"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"})
_DENIED = "_AUTHORIZATION_FAILED"

# Producers retry after these, or another rule covers them.
_NOT_REFUSED = frozenset(
    {
        *_TOO_FEW_REPLICAS,
        *_STORAGE,
        *("NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"),
        *("FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "REPLICA_NOT_AVAILABLE", "REQUEST_TIMED_OUT"),
        *("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"),
        *("CONCURRENT_TRANSACTIONS", "DUPLICATE_SEQUENCE_NUMBER", "NETWORK_EXCEPTION", "UNSUPPORTED_VERSION"),
        *("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "THROTTLING_QUOTA_EXCEEDED"),
    }
)


@summed
class RefusedRecords(Evidence):
    """Batches that were rejected, and their records."""

    records: int = total()

    def refuse(self, facts: Facts, batch: Touched, error: str) -> None:
        """Add a batch."""
        self.add(facts, error=error)
        self.records += 0 if batch.produced is None else batch.produced.count() or 0


class BatchesRefused(Rule):
    """A rule about batches that brokers reject."""

    __slots__ = ()

    needs_flaws = True
    severity = ERROR
    counts = RefusedRecords
    failed = "count"
    records = "records"
    apis = frozenset({"Produce"})

    def feed(self, facts: Facts) -> None:
        """Count rejected batches."""
        for each in facts.touched:
            if each.error and self._covers(error := error_name(each.error)):
                names = {"client": facts.client, "topic": each.topic, "error": error}
                self.kept[tuple(names[kind] for kind in self.of)].refuse(facts, each, error)

    @abstractmethod
    def _covers(self, error: str) -> bool:
        """Whether the rule is about an error."""

    def _message(self, scope: Scope, each: RefusedRecords) -> str:
        return f"{many(each.count, 'batch', 'batches')} rejected: {', '.join(scope['error'])}"


@summed
class ProduceRefused(BatchesRefused):
    """The records of such a batch are not stored, and retries do not help: the application loses them unless
    it checks the result of each send.
    """

    name = "produce-refused"
    of = ("client", "topic", "error")
    title = "A broker rejects records with a non-retriable error."
    when = (
        "Any Produce error that producers do not retry and that no other rule covers: UNKNOWN_SERVER_ERROR, "
        "INVALID_RECORD, INVALID_TIMESTAMP ..."
    )
    advice = (
        "Check the broker's log for the cause, and that the application handles failed sends: the records "
        "are lost unless it sends them again."
    )

    def _covers(self, error: str) -> bool:
        return error not in _NOT_REFUSED and not error.endswith(_DENIED)


@summed
class AuthorizationDenied(Rule):
    """An ACL is missing, or a client attempts something it should not."""

    name = "authorization-denied"
    needs_flaws = True
    severity = WARNING
    of = ("client", "principal", "denied", "error")
    failed = "count"
    title = "A broker denies a client access."
    when = "Any response with an error that ends in AUTHORIZATION_FAILED."
    advice = (
        "If the client should have access, add an ACL for its principal. kafka-acls --list shows existing "
        "ACLs; the broker's authorizer log shows the resource and operation that were denied."
    )

    def feed(self, facts: Facts) -> None:
        """Count denials."""
        for error in facts.errors:
            if error.endswith(_DENIED):
                topics = {
                    each.topic for each in facts.touched if each.error and error_name(each.error) == error
                }
                name = (
                    f"topic {topic_label(min(topics))}"
                    if topics
                    else f"group {facts.group}"
                    if facts.group
                    else ""
                )
                what = f"{facts.api} ({name})" if name else facts.api
                key = facts.client, facts.exchange.principal, what, error
                self.kept[key].add(facts, error=error)

    def _message(self, scope: Scope, each: Evidence) -> str:
        denied = listed(scope["denied"])
        return f"{denied} denied {times(each.count)}: {', '.join(scope['error'])}"


@summed
class NotEnoughReplicas(BatchesRefused):
    """With acks=all, nothing can be written with fewer in-sync replicas than min.insync.replicas."""

    name = "not-enough-replicas"
    of = ("topic", "error")
    title = "Records cannot be written because too few replicas are in sync."
    when = (
        "Any occurrence, including NOT_ENOUGH_REPLICAS_AFTER_APPEND, after which retries may write records "
        "twice."
    )
    advice = (
        "Find brokers that are down or behind: kafka-topics --describe --under-min-isr-partitions. Check "
        "that min.insync.replicas is less than the number of replicas."
    )

    def _covers(self, error: str) -> bool:
        return error in _TOO_FEW_REPLICAS


@summed
class Refusals(Evidence):
    """Errors of a broker, and their topics."""

    topics: Distinct = merged(Distinct)


@summed
class StorageError(Rule):
    """A log directory that fails takes all its partitions offline."""

    name = "storage-error"
    needs_flaws = True
    severity = ERROR
    of = ("broker", "error")
    failed = "count"
    title = "A broker cannot read or write its log directories."
    when = "Any KAFKA_STORAGE_ERROR."
    advice = "Check the broker's disks, mounts and free space; its log names the directory that went offline."
    counts = Refusals

    def feed(self, facts: Facts) -> None:
        """Count such errors."""
        for error in _STORAGE.intersection(facts.errors):
            kept = self.kept[facts.broker, error]
            kept.add(facts, error=error)
            for each in facts.touched:
                if each.error and error_name(each.error) == error:
                    kept.topics.add(each.topic)

    def _message(self, scope: Scope, each: Refusals) -> str:
        topics = (
            f", topic{'s' * (len(each.topics) > 1)} {', '.join(map(topic_label, each.topics.first(3)))}"
            if len(each.topics)
            else ""
        )
        return f"{many(each.count, 'response')} with {', '.join(scope['error'])}{topics}"


_MIN_ERRORS = 10


@summed
class CoordinatorUnavailable(Rule):
    """Without a coordinator, members of a group cannot join or commit, and transactions cannot end."""

    name = "coordinator-unavailable"
    needs_flaws = True
    severity = ERROR
    of = ("client", "error")
    failed = "count"
    title = "A group or a transactional producer has no available coordinator."
    when = (
        f"{_MIN_ERRORS} such errors for one client within a minute: COORDINATOR_NOT_AVAILABLE, "
        "NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS; a few are normal at startup and when a coordinator "
        "moves."
    )
    advice = (
        "Check the replicas of __consumer_offsets and __transaction_state. A new cluster cannot create them "
        "with fewer brokers than their replication factor (offsets.topic.replication.factor)."
    )
    counts = Minutes

    def feed(self, facts: Facts) -> None:
        """Count such errors."""
        for error in _COORDINATOR.intersection(facts.errors):
            self.kept[facts.client, error].add(facts, error=error)

    def _reports(self, each: Minutes) -> bool:
        return each.busiest >= _MIN_ERRORS

    def _message(self, scope: Scope, each: Minutes) -> str:
        return f"{many(each.count, 'response')} with {', '.join(scope['error'])}, {each.peak}"
