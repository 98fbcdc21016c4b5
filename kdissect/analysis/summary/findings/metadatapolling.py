"""Metadata requests -> clients that ask for too much of it, too often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.summary.findings.evidence import Evidence, Minutes
from kdissect.analysis.summary.findings.rule import Rule
from kdissect.anomalies import WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow

_LARGE_BYTES = 10_000
_MOST_LARGE, _MOST = 30, 120


class Asked(Minutes):
    """Metadata requests of a client."""

    __slots__ = ("bytes", "of_all")

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self.of_all = 0

    def merge(self, other: Evidence) -> None:
        """Take in those of another part of the same captures."""
        super().merge(other)
        assert isinstance(other, Asked)
        self.bytes += other.bytes
        self.of_all += other.of_all


class MetadataPolling(Rule):
    """Clients ask every five minutes, and when something fails. Each answer names every partition asked
    for.
    """

    name = "metadata-polling"
    severity = WARNING
    title = "A client asks for metadata all the time."
    when = (
        f"{_MOST_LARGE} requests in a minute if answers have {_LARGE_BYTES:,} bytes or more on average, "
        f"{_MOST} if they are smaller; a client that starts asks a few times."
    )
    advice = "Ask for the topics that are needed only, and leave metadata.max.age.ms at minutes."
    apis = frozenset({"Metadata"})
    counts = Asked

    def feed(self, facts: Facts) -> None:
        """Count requests, and bytes of answers."""
        exchange = facts.exchange
        if exchange.request is None:
            return
        kept = self.kept[facts.client]
        kept.add(facts)
        kept.bytes += 0 if exchange.response_frame is None else exchange.response_frame.size
        topics = exchange.request.get("topics")
        kept.of_all += topics is None or (exchange.api_version == 0 and not topics)

    def findings(self) -> Iterator[FindingRow]:
        """Tell of those who ask much."""
        for client, each in self.kept.items():
            mean = each.bytes // max(1, each.count)
            if each.busiest >= (_MOST_LARGE if mean >= _LARGE_BYTES else _MOST):
                yield self.found(
                    f"client {client}",
                    f"{each.count:,} Metadata requests, {each.busiest:,} of them within a minute and "
                    f"{each.of_all:,} for all topics; an answer has {mean:,} bytes on average",
                    each,
                )
