"""ShareFetch and ShareAcknowledge exchanges -> records that share groups deliver again (KIP-932)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.anomalies import NOTE, WARNING
from kdissect.kafka.codes import error_code
from kdissect.phrases import many, times
from kdissect.stats.findings.rule import Evidence, Rule, partitions_in
from kdissect.stats.sums import largest, summed, total

if TYPE_CHECKING:
    from kdissect.model import Body
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import Scope

_ACCEPT, _RELEASE, _REJECT = 1, 2, 3
_KINDS = {_ACCEPT: "accepted", _RELEASE: "released", _REJECT: "rejected"}
_INVALID_STATE = error_code("INVALID_RECORD_STATE")


@summed
class Deliveries(Evidence):
    """Responses with records that were delivered before, and late acknowledgments.

    Attributes:
        again: such records; ``late``: partitions whose acknowledgment came too late.
        acknowledged: records by kind; ``is_partial``: there may be more, in messages that were cut short.
    """

    again: int = total()
    late: int = total()
    acknowledged: Counter[int] = total(Counter)
    is_partial: bool = largest(start=False)

    @property
    def unexplained(self) -> int:
        """Records that came again, although no member released them."""
        return 0 if self.is_partial else max(0, self.again - self.acknowledged[_RELEASE])


@summed
class ShareRedelivery(Rule):
    """A record whose acquisition lock runs out before it is acknowledged is delivered to another member, and
    so processed twice; after group.share.delivery.count.limit deliveries it is given up.
    """

    name = "share-redelivery"
    severity = WARNING
    of = ("group", "topic")
    failed = "late"
    records = "unexplained"
    title = "A share group delivers records again that no member has released."
    when = (
        "Any acknowledgment rejected with INVALID_RECORD_STATE is a warning: its lock had run out. Records "
        "delivered again without a release are a note: their member may have left."
    )
    advice = (
        "Process a batch within group.share.record.lock.duration.ms: fetch fewer records (max.poll.records), "
        "or renew locks. Rejected records are not delivered again."
    )
    apis = frozenset({"ShareFetch", "ShareAcknowledge"})
    counts = Deliveries

    def feed(self, facts: Facts) -> None:
        """Count deliveries and acknowledgments."""
        group = facts.group
        for (topic, _), partition in partitions_in(facts, facts.exchange.request):
            if not facts.is_whole:
                self.kept[group, topic].is_partial = True
            for batch in partition.get("acknowledgement_batches") or ():
                self.kept[group, topic].acknowledged.update(_kinds(batch))
        name = "error_code" if facts.api == "ShareAcknowledge" else "acknowledge_error_code"
        for (topic, _), partition in partitions_in(facts, facts.exchange.response):
            again = sum(
                _count(each)
                for each in partition.get("acquired_records") or ()
                if each.get("delivery_count", 1) > 1
            )
            is_late = partition.get(name) == _INVALID_STATE
            if again or is_late:
                kept = self.kept[group, topic]
                kept.add(facts)
                kept.again += again
                kept.late += is_late

    def _reports(self, each: Deliveries) -> bool:
        return bool(each.late or each.unexplained)

    def _level(self, each: Deliveries) -> str:
        return WARNING if each.late else NOTE

    def _message(self, _: Scope, each: Deliveries) -> str:
        late = f"acknowledged too late {times(each.late)}; " if each.late else ""
        kinds = [f"{each.acknowledged[kind]:,} {name}" for kind, name in _KINDS.items()]
        known = "" if each.is_partial else f"; {', '.join(kinds)}"
        return f"{late}{many(each.again, 'record')} delivered again{known}"


def _count(batch: Body) -> int:
    count: int = batch.get("last_offset", -1) - batch.get("first_offset", 0) + 1
    return max(0, count)


def _kinds(batch: Body) -> dict[int, int]:
    """Records by kind of acknowledgment: one for all, or one each."""
    kinds: list[int] = batch.get("acknowledge_types") or []
    return {kinds[0]: _count(batch)} if len(kinds) == 1 else Counter(kinds)
