"""Facts -> findings, by all rules. Holds what the rules hold.

    Facts -> the rules that want to see the api -> findings(): the worst first

A new rule is a file like notleader.py, a line in ``RULES``, and a test that it speaks and that it is silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.summary.findings.acks import Acks
from kdissect.analysis.summary.findings.clientids import ClientIds
from kdissect.analysis.summary.findings.connections import Connections
from kdissect.analysis.summary.findings.emptypolls import EmptyPolls
from kdissect.analysis.summary.findings.fallingbehind import FallingBehind
from kdissect.analysis.summary.findings.fenced import FencedProducers
from kdissect.analysis.summary.findings.hotpartitions import HotPartitions
from kdissect.analysis.summary.findings.instanceids import InstanceIds
from kdissect.analysis.summary.findings.leadersmoving import LeadersMoving
from kdissect.analysis.summary.findings.metadatapolling import MetadataPolling
from kdissect.analysis.summary.findings.notleader import NotLeader
from kdissect.analysis.summary.findings.outofrange import OutOfRange
from kdissect.analysis.summary.findings.oversized import Oversized
from kdissect.analysis.summary.findings.rebalancestorm import RebalanceStorm
from kdissect.analysis.summary.findings.sasl import Sasl
from kdissect.analysis.summary.findings.throttled import Throttled
from kdissect.analysis.summary.findings.tinybatches import TinyBatches
from kdissect.analysis.summary.findings.unsupported import Unsupported
from kdissect.anomalies import ERROR, NOTE, WARNING

if TYPE_CHECKING:
    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findings.rule import Rule
    from kdissect.analysis.summary.findingsdocument import FindingRow
    from kdissect.limits import Limits

RULES: tuple[type[Rule], ...] = (
    *(NotLeader, LeadersMoving, Unsupported, Sasl, Throttled),
    *(Acks, TinyBatches, Oversized, HotPartitions, FencedProducers),
    *(RebalanceStorm, FallingBehind, EmptyPolls, OutOfRange, ClientIds, InstanceIds),
    *(Connections, MetadataPolling),
)
"""About brokers and logins, producers, consumers, and how clients behave in general."""

_WORST_FIRST = (ERROR, WARNING, NOTE)


class Findings:
    """All rules over the same facts."""

    def __init__(self, limits: Limits) -> None:
        self.rules = [rule(limits) for rule in RULES]

    def feed(self, facts: Facts) -> None:
        """Show an exchange to the rules that want it."""
        for rule in self.rules:
            if not rule.apis or facts.api in rule.apis:
                rule.feed(facts)

    def merge(self, other: Findings) -> None:
        """Take in what was seen on other connections."""
        for rule, same in zip(self.rules, other.rules, strict=True):
            rule.merge(same)

    def rows(self) -> list[FindingRow]:
        """The worst first, then in the order of the rules; of a rule the most frequent."""
        rows = [row for rule in self.rules for row in sorted(rule.findings(), key=_most_frequent_first)]
        return sorted(rows, key=lambda row: _WORST_FIRST.index(row.severity))

    def folded(self) -> dict[str, int]:
        """Nothing: what a rule has no row left for is watched together, and gives no finding of its own."""
        return {}


def _most_frequent_first(row: FindingRow) -> tuple[int, str]:
    return -row.count, row.about
