"""Members of groups -> client ids that several members share at one time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.summary.findings.evidence import Evidence
from kdissect.analysis.summary.findings.rule import Rule
from kdissect.anomalies import NOTE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow


class ClientIds(Rule):
    """Quotas, request logs and metrics go by client id: members that share one cannot be told apart in
    them.
    """

    name = "duplicate-client-ids"
    severity = NOTE
    title = "Members of a group have the same client id."
    when = (
        "Two members that were active at the same time; one that came back with a new member id is no second."
    )
    advice = "Give each member a client.id of its own, for example with the name of its host."
    apis = frozenset(
        {
            *("JoinGroup", "SyncGroup", "Heartbeat"),
            *("ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat"),
        }
    )

    def feed(self, facts: Facts) -> None:
        """Note when a member was active."""
        request = facts.exchange.request
        member = None if request is None else request.get("member_id")
        if member and facts.group and facts.exchange.client_id and not facts.errors:
            self.kept[facts.group, facts.exchange.client_id, member].add(facts)

    def findings(self) -> Iterator[FindingRow]:
        """Tell of those that were active together."""
        members: dict[tuple[str, str], list[Evidence]] = {}
        for (group, client, _), each in self.kept.items():
            members.setdefault((group, client), []).append(each)
        for (group, client), active in members.items():
            most = _at_once(active)
            if most > 1:
                evidence = Evidence()
                for each in active:
                    evidence.merge(each)
                yield self.found(
                    f"group {group}, client {client}",
                    f"{most:,} members with this client id were active at the same time",
                    evidence,
                )


def _at_once(active: list[Evidence]) -> int:
    """The most that were active at a moment."""
    lasting = [each for each in active if each.last_ns > each.first_ns]
    changes = sorted([(each.first_ns, 1) for each in lasting] + [(each.last_ns, -1) for each in lasting])
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most
