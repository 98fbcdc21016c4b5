"""Produced batches -> messages that brokers refuse for their size, or nearly do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.summary.findings.evidence import Evidence
from kdissect.analysis.summary.findings.rule import Rule
from kdissect.anomalies import ERROR, NOTE
from kdissect.kafka.codes import error_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow

_TOO_LARGE = frozenset(map(error_code, ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")))
_LARGE_BYTES = 1_000_000  # max.request.size and message.max.bytes are 1 MiB by default


class Batches(Evidence):
    """Large batches of a client."""

    __slots__ = ("most_bytes",)

    def __init__(self) -> None:
        super().__init__()
        self.most_bytes = 0

    def merge(self, other: Evidence) -> None:
        """Take in those of another part of the same captures."""
        super().merge(other)
        assert isinstance(other, Batches)
        self.most_bytes = max(self.most_bytes, other.most_bytes)


class Oversized(Rule):
    """What a broker refuses for its size is refused for ever; what passes fills the memory of all who touch
    it.
    """

    name = "oversized-messages"
    severity = ERROR
    title = "Messages are refused for their size, or single records have a megabyte or more."
    when = f"Always where one is refused; a note where one record alone has {_LARGE_BYTES:,} bytes."
    advice = (
        "Send a reference to large content instead, or compress it; else raise the topic's max.message.bytes."
    )
    apis = frozenset({"Produce"})
    counts = Batches

    def feed(self, facts: Facts) -> None:
        """Count what is refused, and large records."""
        for each in facts.touched:
            if each.produced is None:
                continue
            refused = each.error in _TOO_LARGE
            if refused or (len(each.produced) >= _LARGE_BYTES and each.produced.count() == 1):
                kept = self.kept[facts.client, each.topic, refused]
                kept.add(facts)
                kept.most_bytes = max(kept.most_bytes, len(each.produced))

    def findings(self) -> Iterator[FindingRow]:
        """Tell of all."""
        for (client, topic, refused), each in self.kept.items():
            plural = "es" if each.count > 1 else ""
            sentence = (
                f"{each.count:,} batch{plural} refused as too large, the largest of {each.most_bytes:,} bytes"
                if refused
                else f"{each.count:,} batch{plural} with a single record of up to {each.most_bytes:,} bytes"
            )
            yield self.found(f"client {client}, topic {topic}", sentence, each, ERROR if refused else NOTE)
