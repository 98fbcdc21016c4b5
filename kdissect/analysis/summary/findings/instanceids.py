"""FENCED_INSTANCE_ID -> static members of a group that share a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.summary.findings.rule import Rule
from kdissect.anomalies import ERROR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow

_ERRORS = frozenset({"FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID"})


class InstanceIds(Rule):
    """A static member (KIP-345) that is fenced stops to consume: another one has its name."""

    name = "duplicate-instance-ids"
    severity = ERROR
    title = "Two members of a group have the same group.instance.id."
    when = "Always: brokers say so when it happens, and the member that is told stops."
    advice = (
        "Give each member a group.instance.id of its own, and stop the old one before a new one takes over."
    )

    def feed(self, facts: Facts) -> None:
        """Count refusals."""
        if facts.errors and not _ERRORS.isdisjoint(facts.errors):
            instance = (facts.exchange.request or {}).get("group_instance_id")
            instance = instance or (facts.exchange.request or {}).get("instance_id")
            self.kept[facts.group, instance, facts.client].add(facts)

    def findings(self) -> Iterator[FindingRow]:
        """Tell of all."""
        for (group, instance, client), each in self.kept.items():
            about = ", ".join(
                f"{what} {name}"
                for what, name in (("group", group), ("instance", instance), ("client", client))
                if name
            )
            times = "once" if each.count == 1 else f"{each.count:,} times"
            yield self.found(about, f"told {times} that another member has its group.instance.id", each)
