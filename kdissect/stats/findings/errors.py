"""Error codes in responses -> findings: what brokers refuse, and what they cannot do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.anomalies import ERROR, WARNING
from kdissect.kafka.codes import error_name
from kdissect.phrases import many
from kdissect.stats.findings.rule import Evidence, Minutes, Rule
from kdissect.stats.quantiles import Distinct
from kdissect.stats.sums import merged, summed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.stats.document import FindingRow
    from kdissect.stats.facts import Facts

_TOO_FEW_REPLICAS = frozenset({"NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"})
_STORAGE = frozenset({"KAFKA_STORAGE_ERROR"})
_COORDINATOR = frozenset({"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"})
_DENIED = "_AUTHORIZATION_FAILED"

# After these a producer retries, or they have rules of their own.
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
class ProduceRefused(Rule):
    """The records of such a batch are not stored, and no retry helps: the application loses them unless it
    looks at the result of each send.
    """

    name = "produce-refused"
    severity = ERROR
    title = "A broker rejects records with a permanent error."
    when = (
        "Any Produce error after which producers do not retry, and that no other rule covers: "
        "UNKNOWN_SERVER_ERROR, CORRUPT_MESSAGE, INVALID_RECORD ..."
    )
    advice = (
        "See the error, and the broker's log for more. Check that the application handles failed sends: "
        "these records were not stored."
    )
    apis = frozenset({"Produce"})

    def feed(self, facts: Facts) -> None:
        """Count refused batches."""
        for each in facts.touched:
            if each.error:
                error = error_name(each.error)
                if error not in _NOT_REFUSED and not error.endswith(_DENIED):
                    self.kept[facts.client, each.topic, error].add(facts)

    def findings(self) -> Iterator[FindingRow]:
        """Clients whose records are refused."""
        for (client, topic, error), each in self.kept.items():
            yield self.finding(
                f"client {client}, topic {topic}",
                f"{many(each.count, 'batch', 'batches')} refused: {error}",
                each,
            )


@summed
class AuthorizationDenied(Rule):
    """An ACL is missing, or a client tries what it should not."""

    name = "authorization-denied"
    severity = WARNING
    title = "A broker denies a client access."
    when = "Any response with an error that ends in AUTHORIZATION_FAILED."
    advice = (
        "If the client should have access, add an ACL for its principal: kafka-acls --list shows the "
        "existing ones, the broker's authorizer log the resource and operation that were denied."
    )

    def feed(self, facts: Facts) -> None:
        """Count denials."""
        for error in facts.errors:
            if error.endswith(_DENIED):
                topics = {
                    each.topic for each in facts.touched if each.error and error_name(each.error) == error
                }
                name = f"topic {min(topics)}" if topics else f"group {facts.group}" if facts.group else ""
                key = facts.client, facts.exchange.principal, facts.api, error, name
                self.kept[key].add(facts)

    def findings(self) -> Iterator[FindingRow]:
        """All clients that were denied something."""
        for (client, principal, api, error, name), each in self.kept.items():
            who = f"client {client}" + (f" as {principal}" if principal else "")
            what = f"{api} of {name}" if name else api
            times = "once" if each.count == 1 else f"{each.count:,} times"
            yield self.finding(who, f"{what} denied {times}: {error}", each)


@summed
class NotEnoughReplicas(Rule):
    """With acks=all and fewer in-sync replicas than min.insync.replicas nothing can be written."""

    name = "not-enough-replicas"
    severity = ERROR
    title = "Records cannot be written, because too few replicas are in sync."
    when = "Any; NOT_ENOUGH_REPLICAS_AFTER_APPEND too, after which retries may write records twice."
    advice = (
        "Find the brokers that are down or lag: kafka-topics --describe --under-min-isr-partitions. Check "
        "that min.insync.replicas is less than the number of replicas."
    )
    apis = frozenset({"Produce"})

    def feed(self, facts: Facts) -> None:
        """Count refused batches."""
        for each in facts.touched:
            if each.error and error_name(each.error) in _TOO_FEW_REPLICAS:
                self.kept[each.topic, error_name(each.error)].add(facts)

    def findings(self) -> Iterator[FindingRow]:
        """Topics that cannot be written."""
        for (topic, error), each in self.kept.items():
            yield self.finding(
                f"topic {topic}", f"{many(each.count, 'batch', 'batches')} refused: {error}", each
            )


@summed
class Refusals(Evidence):
    """Errors of a broker, and the topics they are about."""

    topics: Distinct = merged(Distinct)


@summed
class StorageError(Rule):
    """A log directory that fails takes all its partitions offline."""

    name = "storage-error"
    severity = ERROR
    title = "A broker cannot read or write its log directories."
    when = "Any KAFKA_STORAGE_ERROR."
    advice = (
        "Check disks, mounts and free space of the broker; its log names the directory that went offline."
    )
    counts = Refusals

    def feed(self, facts: Facts) -> None:
        """Count such errors."""
        for error in _STORAGE.intersection(facts.errors):
            kept = self.kept[facts.broker, error]
            kept.add(facts)
            for each in facts.touched:
                if each.error and error_name(each.error) == error:
                    kept.topics.add(each.topic)

    def findings(self) -> Iterator[FindingRow]:
        """Brokers with such errors."""
        for (broker, error), each in self.kept.items():
            topics = f", topics {', '.join(each.topics.first(3))}" if len(each.topics) else ""
            yield self.finding(
                f"broker {broker}", f"{many(each.count, 'response')} with {error}{topics}", each
            )


_LASTING = 10


@summed
class CoordinatorUnavailable(Rule):
    """Without its coordinator a group can neither join nor commit, and a transaction cannot end."""

    name = "coordinator-unavailable"
    severity = ERROR
    title = "A group or a transactional producer finds no coordinator."
    when = (
        f"{_LASTING} such errors for one client within a minute: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, "
        "COORDINATOR_LOAD_IN_PROGRESS; a few are normal after a start and when a coordinator moves."
    )
    advice = (
        "Check the replicas of __consumer_offsets and __transaction_state: a new cluster with fewer brokers "
        "than offsets.topic.replication.factor cannot create them."
    )
    counts = Minutes

    def feed(self, facts: Facts) -> None:
        """Count such errors."""
        for error in _COORDINATOR.intersection(facts.errors):
            self.kept[facts.client, error].add(facts)

    def findings(self) -> Iterator[FindingRow]:
        """Clients that find none."""
        for (client, error), each in self.kept.items():
            if each.busiest >= _LASTING:
                yield self.finding(
                    f"client {client}",
                    f"{many(each.count, 'response')} with {error}, {each.busiest:,} of them within a minute",
                    each,
                )
