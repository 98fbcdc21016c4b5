"""Timestamps of produced batches -> producers whose clock or unit is wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kdissect.anomalies import WARNING
from kdissect.limits import MILLISECOND_NS
from kdissect.phrases import many
from kdissect.stats.findings.rule import Evidence, Rule
from kdissect.stats.sums import largest, summed

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import Scope

_HOUR_MS = 3_600_000  # message.timestamp.after.max.ms by default
_YEAR_2000_MS = 946_684_800_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@summed
class FarBatches(Evidence):
    """Such batches; the timestamp that is farthest away, after its distance, and the time then."""

    farthest: tuple[int, int, int] = largest((0, 0, 0))


@summed
class FarTimestamps(Rule):
    """Retention goes by timestamps: records from the past are deleted at once, those from the future keep
    their segment for years. Windows and joins of stream processors take them for late, or wait.
    """

    name = "far-timestamps"
    severity = WARNING
    of = ("client", "topic")
    title = "A producer writes timestamps that cannot be right."
    when = (
        "Any batch with a timestamp before the year 2000, or more than an hour after the capture's clock, "
        "which newer brokers reject by default (message.timestamp.after.max.ms). Old data that is copied "
        "keeps its timestamps and is not reported."
    )
    advice = (
        "Check the unit (Kafka takes milliseconds; seconds give dates in 1970, microseconds in the far "
        "future) and the clocks of the producer and of the capturing host."
    )
    apis = frozenset({"Produce"})
    counts = FarBatches

    def feed(self, facts: Facts) -> None:
        """Count such batches; the core passes on all of them."""
        now_ms = facts.time_ns // MILLISECOND_NS
        latest_ms = now_ms + _HOUR_MS
        for each in facts.touched:
            for batch in each.produced.batches() if each.produced is not None else ():
                timestamp_ms = (
                    batch["max_timestamp"] if "max_timestamp" in batch else batch.get("timestamp", 0)
                )
                if timestamp_ms > latest_ms or 0 < timestamp_ms < _YEAR_2000_MS:  # 0 and less: there is none
                    kept = self.kept[facts.client, each.topic]
                    kept.add(facts)
                    kept.farthest = max(kept.farthest, (abs(timestamp_ms - now_ms), timestamp_ms, now_ms))

    def _message(self, _: Scope, each: FarBatches) -> str:
        timestamp, now = map(_date, each.farthest[1:])
        batches = many(each.count, "batch", "batches")
        return f"{batches} with timestamps as far as {timestamp}; the capture's clock says {now}"


def _date(time_ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).strftime("%Y-%m-%d %H:%M")
    except OverflowError:
        return f"{time_ms:,} ms"
