"""Parts of findings -> one row per cause, with its consequences below it.

    what rules found -> causes and consequences (``EXPLAINS``) -> one row per rule -> the most harmful first

A consequence has its own row below that of its cause, and does not count for the verdict. Holds no state.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kdissect.anomalies import NOTE
from kdissect.limits import SECOND_NS
from kdissect.stats.document import FindingPart, FindingRow, ImpactRow, NamesRow, ScopeRow
from kdissect.stats.findings.rule import MAX_ENDS, WORST_FIRST, Evidence, combined, joined_scope, subject
from kdissect.stats.rows import row_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from kdissect.stats.findings.rule import RulePart, Scope

# ------------------------------------------------------------------------------------------------------------
# What explains what: the cause, its consequences, and what the two must have in common.
# ------------------------------------------------------------------------------------------------------------

PATH, CLIENT, BROKER, GROUP, TOPIC, NODE, TIME = "path", "client", "broker", "group", "topic", "node", "time"
AS_LONG, HOST, TRANSACTION, PAIR, END = "as long", "host", "transactional ID", "pair", "end"
TIES: Mapping[str, str] = {
    PATH: "client address and broker, at the same time",
    AS_LONG: "client address and broker, at the same time, and the cause took about as long",
    PAIR: "the two hosts, whichever of them is the client, at the same time",
    END: "host of the broker, as client or as broker; they begin in the time of the cause",
    CLIENT: "client, at the same time",
    BROKER: "broker; they begin in the time of the cause",
    GROUP: "group, at the same time",
    TOPIC: "topic, at the same time",
    TRANSACTION: "transactional ID; before its next transaction",
    NODE: "broker that led before; they begin in the time of the cause",
    TIME: "cluster; they begin in the time of the cause",
}
_WITHIN = frozenset({BROKER, END, NODE, TIME})
"""With these, the consequence must begin in the time of the cause; with the others, their times overlap."""

_USELESS = dict.fromkeys(
    ("broker-closes", "broker-resets", "reconnect-loop", "connection-per-request"), CLIENT
)
_UNLED = {
    "leaders-moving": NODE,
    **dict.fromkeys(("not-leader-storm", "not-enough-replicas", "replica-out-of-sync"), TIME),
}
_OUT_OF_CLUSTER = {  # an acks=all request waits for a follower that stopped, until it leaves the ISR
    **dict.fromkeys(("broker-silent", "request-timeouts"), END),
    **dict.fromkeys(("slow-requests", "queueing"), TIME),
    **_UNLED,
}
_WAITING = dict.fromkeys(("request-timeouts", "queueing", "slow-requests"), AS_LONG)

EXPLAINS: Mapping[str, Mapping[str, str]] = {
    "broker-unreachable": {
        **dict.fromkeys(("connection-refused", "connect-timeout", "broker-resets", "broker-closes"), BROKER),
        **dict.fromkeys(("reconnect-loop", "request-timeouts", "incomplete-messages"), BROKER),
        **dict.fromkeys(("broker-silent", "idle-connection-dropped"), BROKER),
        **dict.fromkeys(("mtu-black-hole", "path-interrupted", "long-polls-cut"), PATH),
        "coordinator-unavailable": TIME,
        **_UNLED,
    },
    "quorum-unreachable": {
        **dict.fromkeys(("connection-refused", "connect-timeout", "path-interrupted", "network-loss"), PAIR),
        **dict.fromkeys(("incomplete-messages", "client-vanished", "reconnect-loop"), PAIR),
        "elections-lost": TIME,
        **_OUT_OF_CLUSTER,
    },
    "broker-fenced": _OUT_OF_CLUSTER,
    "fetch-session-churn": {"fetch-sessions-evicted": BROKER},
    "advertised-listener-unreachable": {
        **dict.fromkeys(("connection-refused", "connect-timeout"), PATH),
        **dict.fromkeys(("reconnect-loop", "connection-per-request", "metadata-polling"), CLIENT),
    },
    "tls-port-mismatch": _USELESS,
    "shared-address": {"not-leader-storm": BROKER},
    "session-expired": dict.fromkeys(("broker-closes", "broker-resets", "reconnect-loop"), PATH),
    "long-polls-cut": {
        **dict.fromkeys(("broker-closes", "request-timeouts"), PATH),
        **dict.fromkeys(("reconnect-loop", "connection-per-request"), CLIENT),
    },
    "sasl-failures": _USELESS,
    "unsupported-version-loop": _USELESS,
    "throttled": {
        **_WAITING,
        **dict.fromkeys(("stalled-reader", "broker-silent"), AS_LONG),
        "falling-behind": CLIENT,
    },
    "mtu-black-hole": {
        "path-interrupted": PATH,
        **dict.fromkeys(("network-loss", "request-timeouts", "reconnect-loop", "client-vanished"), PATH),
        **dict.fromkeys(("incomplete-messages", "broker-silent", "idle-connection-dropped"), PATH),
        **_WAITING,
    },
    "idle-connection-dropped": {
        "path-interrupted": PATH,
        **dict.fromkeys(("network-loss", "request-timeouts", "client-vanished", "broker-resets"), PATH),
        **dict.fromkeys(("broker-closes", "incomplete-messages"), PATH),
        **_WAITING,
    },
    "path-interrupted": dict.fromkeys(
        ("network-loss", "request-timeouts", "incomplete-messages", "client-vanished"), PATH
    ),
    "network-loss": {
        **_WAITING,
        **dict.fromkeys(("client-vanished", "incomplete-messages"), PATH),
    },
    "slow-transfer": {**_WAITING, "incomplete-messages": PATH},
    "client-vanished": {"request-timeouts": PATH, "incomplete-messages": PATH},
    "stalled-reader": {**_WAITING, "broker-silent": AS_LONG, "incomplete-messages": PATH},
    "broker-silent": {**_WAITING, "request-timeouts": PATH, "reconnect-loop": PATH},
    "slow-broker": {"slow-requests": BROKER},
    "response-mismatch": {"request-timeouts": PATH, "reconnect-loop": PATH},
    "broker-closes": {"reconnect-loop": PATH, "connection-per-request": CLIENT},
    "broker-resets": {"reconnect-loop": PATH, "connection-per-request": CLIENT},
    "connection-refused": {"reconnect-loop": PATH},
    "connect-timeout": {"reconnect-loop": PATH},
    "reconnect-loop": {"connection-per-request": CLIENT},
    "topic-recreated": dict.fromkeys(("leaders-moving", "not-leader-storm", "offset-out-of-range"), TOPIC),
    "leaders-moving": {"not-leader-storm": TOPIC},
    "replica-out-of-sync": {"not-enough-replicas": TOPIC},
    "readers-blocked": dict.fromkeys(("fenced-producers", "transaction-failed"), TRANSACTION),
    "slow-poll": dict.fromkeys(("poll-timeout", "falling-behind"), CLIENT),
    "poll-timeout": {"rebalance-storm": GROUP, "falling-behind": CLIENT},
}
"""Fundamental causes first: if several explain a finding, the first one does."""

UNSERVED = "client-unserved"
"""Any finding about a client, except notes, explains this one."""

_ABOUT = 0.8
_SLACK_NS, _AFTER_NS = 5 * SECOND_NS, 60 * SECOND_NS


def explained(rule: str) -> Mapping[str, str]:
    """The rules that a rule explains, and the ties."""
    others = EXPLAINS.get(rule, {})
    return others if rule == UNSERVED else {**others, UNSERVED: CLIENT}


def _meet(cause: RulePart, part: RulePart, tie: str) -> bool:
    """Whether two parts are about the same cluster, if that is known, and their times agree."""
    if cause.cluster_id != part.cluster_id and None not in (cause.cluster_id, part.cluster_id):
        return False
    begin_ns = cause.evidence.first_ns - _SLACK_NS
    end_ns = (cause.evidence.last_ns if cause.until_ns is None else cause.until_ns) + _SLACK_NS
    first_ns, last_ns = part.evidence.first_ns, part.evidence.last_ns
    if tie == AS_LONG and _lost_us(cause) < _ABOUT * _lost_us(part):
        return False
    if tie in _WITHIN:
        return begin_ns <= first_ns <= end_ns and last_ns <= end_ns + _AFTER_NS
    return first_ns <= end_ns and last_ns >= begin_ns


def _lost_us(part: RulePart) -> int:
    return _impact(part.rule, part.evidence).lost_us or 0


def _keys(part: RulePart, tie: str) -> set[Any]:
    """What a part must share with another, one at least."""
    scope, ends = part.scope, part.evidence.ends
    if tie in (PATH, AS_LONG):
        return set(ends)
    if tie in (PAIR, END):  # not on one host: all its processes have one address
        both = ((host, broker.rpartition(":")[0].strip("[]")) for host, broker in ends)
        pairs = {tuple(sorted(pair)) for pair in both if len({*pair}) > 1}
        hosts = {host for pair in pairs for host in pair}
        return {*pairs} if tie == PAIR else hosts.intersection(scope[HOST]) if NODE in scope else hosts
    if tie == BROKER:
        return {*scope.get(BROKER, ()), *(broker for _, broker in ends)}
    if tie == CLIENT:  # some connections never named their client: then it is the one at that address
        return {*scope.get(CLIENT, ()), *scope.get(HOST, ()), *(host for host, _ in ends)}
    return {TIME} if tie == TIME else set(scope.get(tie, ()))


def _are_one_client(cause: RulePart, part: RulePart) -> bool:
    """Whether they name the same client, or one of them none."""
    one, two = (
        {*each.scope.get(CLIENT, ())} - {host for host, _ in each.evidence.ends} for each in (cause, part)
    )
    return not (one and two) or not one.isdisjoint(two)


def _causes(parts: Sequence[RulePart]) -> list[int | None]:
    """For each part the place of the one that explains it; None: no other does."""
    ties: dict[str, dict[str, str]] = defaultdict(
        dict
    )  # consequence -> cause -> tie, the fundamental ones first
    index: dict[tuple[str, str, Any], list[int]] = defaultdict(list)
    for rule in [
        *EXPLAINS,
        *dict.fromkeys(part.rule.name for part in parts if part.rule.name not in EXPLAINS),
    ]:
        for other, tie in explained(rule).items():
            ties[other][rule] = tie
    for place, part in enumerate(parts):
        if part.severity != NOTE or part.rule.name in EXPLAINS:
            for tie in set(explained(part.rule.name).values()):
                for key in _keys(part, tie):
                    index[part.rule.name, tie, key].append(place)

    def cause_of(part: RulePart) -> int | None:
        for rule, tie in ties[part.rule.name].items():
            for key in sorted(_keys(part, tie)):
                for place in index.get((rule, tie, key), ()):
                    cause = parts[place]
                    if part.rule.name == UNSERVED and cause.severity == NOTE:
                        continue
                    if _meet(cause, part, tie) and (tie != CLIENT or _are_one_client(cause, part)):
                        return place
        return None

    return [cause_of(part) for part in parts]


# ------------------------------------------------------------------------------------------------------------
# Parts of one rule -> one row.
# ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Finding:
    """Parts that make a row, and the rows that it explains."""

    parts: list[RulePart] = field(default_factory=list)
    consequences: dict[str, _Finding] = field(default_factory=dict)

    def rows(self, *, names_cluster: bool, explained_by: str | None = None) -> Iterator[FindingRow]:
        """Its row, then those of its consequences in order of time."""
        row = self._row(names_cluster=names_cluster, explained_by=explained_by)
        yield row
        below = [
            next(each.rows(names_cluster=names_cluster, explained_by=row.rule))
            for each in self.consequences.values()
        ]
        yield from sorted(below, key=lambda each: (each.first, each.rule))

    def _row(self, *, names_cluster: bool, explained_by: str | None) -> FindingRow:
        parts = sorted(self.parts, key=lambda each: (-each.evidence.count, subject(each.scope)))
        (rule, *_), scope = [each.rule for each in parts], joined_scope([each.scope for each in parts])
        evidence = combined([each.evidence for each in parts])
        about = subject(scope)
        if names_cluster and parts[0].cluster_id is not None:
            about = f"{about} of cluster {parts[0].cluster_id}"
        return row_of(
            FindingRow,
            evidence,
            cluster_id=parts[0].cluster_id,
            rule=rule.name,
            severity=min((each.severity for each in parts), key=WORST_FIRST.index),
            subject=about,
            message=rule.message(scope, evidence),
            advice=rule.advice,
            evidence=evidence.examples,
            scope=_scope_row(scope, parts),
            impact=_impact(rule, evidence),
            explained_by=explained_by,
            parts=[_part_row(each) for each in parts] if len(parts) > 1 else [],
        )


def _part_row(part: RulePart) -> FindingPart:
    return row_of(
        FindingPart,
        part.evidence,
        subject=subject(part.scope),
        message=part.rule.message(part.scope, part.evidence),
        evidence=part.evidence.examples,
    )


def _scope_row(scope: Scope, parts: Sequence[RulePart]) -> ScopeRow:
    ends = {end for part in parts for end in part.evidence.ends}
    are_all = all(len(part.evidence.ends) < MAX_ENDS for part in parts)
    ids = {name.partition("/")[0] for part in parts for name in part.evidence.examples}
    count = sum(part.evidence.count for part in parts)
    of_connections = all("/" not in name for part in parts for name in part.evidence.examples)
    are_shown = sum(len(part.evidence.examples) for part in parts) >= count

    def names(kind: str, more: Iterable[str] = ()) -> NamesRow:
        known = sorted({*scope.get(kind, ()), *more})
        return NamesRow(count=len(known) if are_all else None, names=known[:_NAMES])

    return ScopeRow(
        clients=names(CLIENT),
        hosts=names(HOST, (host for host, _ in ends)),
        brokers=names(BROKER, (broker for _, broker in ends)),
        topics=names(TOPIC),
        groups=names(GROUP),
        connections=NamesRow(
            count=count if of_connections else len(ids) if are_shown else None, names=sorted(ids)[:_NAMES]
        ),
    )


_NAMES = 5


def _impact(rule: Any, evidence: Evidence) -> ImpactRow:
    """What it cost, see ``Rule``."""
    lost = attrgetter(rule.lost)(evidence) if rule.lost else None
    unit = {"_ns": 1000, "_us": 1}.get(rule.lost[-3:])
    return ImpactRow(
        requests=attrgetter(rule.failed)(evidence) if rule.failed else None,
        connections=attrgetter(rule.cut)(evidence) if rule.cut else None,
        records=attrgetter(rule.records)(evidence) if rule.records else None,
        lost_us=None if lost is None else lost * 1000 if unit is None else lost // unit,
    )


def rows(parts: Sequence[RulePart], places: Mapping[str, int]) -> list[FindingRow]:
    """The rows: the most severe and harmful causes first, each followed by its consequences.

    Args:
        parts: of all rules; the subject names the cluster if there are several.
        places: of the rules; of findings that are equally harmful, those of the first rule come first.
    """
    parts = sorted(parts, key=_by_name)  # not as they came, which depends on how a capture is divided
    causes = _causes(parts)
    findings: dict[tuple[str | None, str, str], _Finding] = defaultdict(_Finding)
    for part, cause in zip(parts, causes, strict=True):
        root = part
        while cause is not None:
            root, cause = parts[cause], causes[cause]
        finding = findings[root.cluster_id, root.rule.name, "".join(root.scope.get(root.rule.apart, ()))]
        if root is not part:
            finding = finding.consequences.setdefault(part.rule.name, _Finding())
        finding.parts.append(part)
    names_cluster = len({part.cluster_id for part in parts if part.cluster_id is not None}) > 1
    trees = [list(finding.rows(names_cluster=names_cluster)) for finding in findings.values()]
    events = {part.rule.name for part in parts if part.rule.is_event}
    trees.sort(key=lambda tree: _worst_first(tree[0], events, places))
    return [row for tree in trees for row in tree]


def _by_name(part: RulePart) -> tuple[Any, ...]:
    return part.rule.name, part.cluster_id or "", *part.scope.values()


def _worst_first(row: FindingRow, events: Collection[str], places: Mapping[str, int]) -> tuple[Any, ...]:
    """Of one severity: what failed, then events of unknown cost, then time in which requests only waited."""
    impact = row.impact
    failed = (impact.requests or 0) + (impact.connections or 0) + (impact.records or 0)
    return (
        WORST_FIRST.index(row.severity),
        -failed,
        row.rule not in events,
        -(impact.lost_us or 0),
        places[row.rule],
        -row.count,
        row.subject,
    )
