"""What explains what: each relation, its limits, and how parts of a rule become one row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.anomalies import ERROR, NOTE, WARNING
from kdissect.limits import DEFAULT, SECOND_NS
from kdissect.stats.findings import causes
from kdissect.stats.findings.causes import AS_LONG, EXPLAINS, TIES, UNSERVED, explained, rows
from kdissect.stats.findings.rule import Evidence, RulePart
from kdissect.stats.findings.rules import RULES

if TYPE_CHECKING:
    from kdissect.stats.document import FindingRow

BY_NAME = {rule.name: rule for rule in RULES}
PLACES = {name: place for place, name in enumerate(BY_NAME)}
RELATIONS = [(cause, other, tie) for cause in EXPLAINS for other, tie in explained(cause).items()]
SCOPE = {
    "client": ["web"],
    "host": ["10.0.0.1"],
    "broker": ["10.0.0.2:9092"],
    "topic": ["orders"],
    "group": ["billing"],
    "node": ["3"],
    "API": ["Produce"],
    "error": ["UNKNOWN"],
    "mechanism": ["PLAIN"],
    "denied": ["Produce"],
    "end": ["client"],
    "acks": ["1"],
    "partition": ["orders-0"],
    "transactional ID": ["pay-1"],
}
ELSE = {kind: [f"other-{kind}"] for kind in SCOPE}


@pytest.fixture(autouse=True)
def _plain_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rules say about counts that they have not made is not looked at here."""
    for rule in RULES:
        monkeypatch.setattr(rule, "_message", lambda *_: "something")
    monkeypatch.setattr(
        causes, "_impact", lambda *_: causes.ImpactRow(connections=None, requests=1, records=None, lost_us=7)
    )


def part(name: str, first_s: float = 10, last_s: float = 20, scope: Any = SCOPE, **more: Any) -> RulePart:
    evidence = Evidence()
    (host,), (broker,) = scope.get("host", ["10.0.0.1"]), scope.get("broker", ["10.0.0.2:9092"])
    evidence.touch(host, broker)
    evidence.take(round(first_s * SECOND_NS), "c1")
    evidence.take(round(last_s * SECOND_NS), "c2")
    kinds = (*BY_NAME[name].of, "node") if name == "leaders-moving" else BY_NAME[name].of
    of = {kind: scope[kind] for kind in kinds if kind in scope}
    settings = {"severity": WARNING, "until_ns": None, **more}
    return RulePart(BY_NAME[name](DEFAULT), of, evidence, **settings)


def summary(*parts: RulePart) -> list[tuple[str, str | None]]:
    return [(row.rule, row.explained_by) for row in rows(parts, PLACES)]


def test_all_rules_and_ties_exist() -> None:
    for cause, others in EXPLAINS.items():
        assert {cause, *others} <= BY_NAME.keys()
        assert set(others.values()) <= TIES.keys()


def test_nothing_explains_itself() -> None:
    def reached(rule: str, seen: tuple[str, ...] = ()) -> None:
        assert rule not in seen, "a cycle"
        for other in EXPLAINS.get(rule, ()):
            reached(other, (*seen, rule))

    for rule in EXPLAINS:
        reached(rule)
    assert UNSERVED not in EXPLAINS


@pytest.mark.parametrize(("cause", "other", "tie"), RELATIONS, ids=lambda value: value)
def test_a_relation_holds_where_both_have_something_in_common(cause: str, other: str, tie: str) -> None:
    assert summary(part(other), part(cause)) == [(cause, None), (other, cause)]
    later = summary(part(other, 500, 600), part(cause))
    assert sorted(later) == sorted([(cause, None), (other, None)])
    if tie != causes.TIME:
        apart = summary(part(other, scope=ELSE), part(cause))
        assert sorted(apart) == sorted([(cause, None), (other, None)])


def test_parts_are_in_the_same_order_however_they_came() -> None:
    """The subject does not say by which mechanism logins failed."""
    logins = [
        part("sasl-failures", first_s, scope={**SCOPE, "mechanism": [mechanism]})
        for first_s, mechanism in ((3, "PLAIN"), (1, "GSSAPI"), (2, "SCRAM-SHA-256"))
    ]
    assert rows(logins, PLACES) == rows(logins[::-1], PLACES)
    assert len(rows(logins, PLACES)[0].parts) == 3


def test_a_shorter_pause_explains_no_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = {"throttled": 1, "broker-silent": 8}
    monkeypatch.setattr(
        causes,
        "_impact",
        lambda rule, _: causes.ImpactRow(
            connections=None, requests=None, records=None, lost_us=lost[rule.name]
        ),
    )
    assert EXPLAINS["throttled"]["broker-silent"] == AS_LONG
    parts = part("throttled"), part("broker-silent")
    assert sorted(summary(*parts)) == [("broker-silent", None), ("throttled", None)]
    lost["throttled"] = 7
    assert summary(*parts) == [("throttled", None), ("broker-silent", "throttled")]


def test_other_clusters_are_not_to_blame() -> None:
    one, other = (
        part("leaders-moving", cluster_id="a"),
        part("not-leader-storm", cluster_id="b"),
    )
    assert sorted(summary(one, other)) == [("leaders-moving", None), ("not-leader-storm", None)]
    other = replace(other, cluster_id="a")
    assert summary(one, other) == [("leaders-moving", None), ("not-leader-storm", "leaders-moving")]


def test_what_began_before_the_broker_went_or_went_on_for_long_has_another_cause() -> None:
    gone = part("broker-unreachable", 100, 120)
    for first_s, last_s, is_explained in ((99, 121, True), (90, 110, False), (110, 300, False)):
        late = part("coordinator-unavailable", first_s, last_s)
        expected = "broker-unreachable" if is_explained else None
        assert dict(summary(gone, late))["coordinator-unavailable"] == expected
    for_ever = replace(gone, until_ns=1000 * SECOND_NS)  # it did not come back
    late = part("coordinator-unavailable", 110, 300)
    assert dict(summary(for_ever, late))["coordinator-unavailable"] == "broker-unreachable"


@pytest.mark.parametrize(
    ("client", "broker", "first_s", "is_explained"),
    [
        ("10.0.0.9", "10.0.0.1:9092", 12, True),
        ("10.0.0.1", "10.0.0.2:9092", 12, True),
        ("10.0.0.9", "10.0.0.2:9092", 12, False),
        ("10.0.0.1", "10.0.0.1:9092", 12, False),
        ("10.0.0.9", "10.0.0.1:9092", 2, False),
    ],
    ids=["to-it", "from-it", "of-others", "one-host", "before"],
)
@pytest.mark.parametrize("cause", ["quorum-unreachable", "broker-fenced"])
def test_a_broker_out_of_its_cluster_serves_nobody(
    cause: str, client: str, broker: str, first_s: float, is_explained: bool
) -> None:
    silent = part("broker-silent", first_s, scope={**SCOPE, "host": [client], "broker": [broker]})
    by = cause if is_explained else None
    assert sorted(summary(silent, part(cause))) == sorted([("broker-silent", by), (cause, None)])


def test_a_chain_stands_below_its_root() -> None:
    chain = part("broker-unreachable"), part("leaders-moving"), part("not-leader-storm")
    assert summary(*chain) == [
        ("broker-unreachable", None),
        ("leaders-moving", "broker-unreachable"),
        ("not-leader-storm", "broker-unreachable"),
    ]


def test_a_client_without_an_id_is_the_one_at_its_address() -> None:
    unnamed = {**SCOPE, "client": ["10.0.0.1"]}
    unserved = part(UNSERVED, scope=unnamed)
    assert summary(part("sasl-failures"), unserved)[1] == (UNSERVED, "sasl-failures")
    another = part(UNSERVED, scope={**SCOPE, "client": ["batch"]})
    assert dict(summary(part("sasl-failures"), another))[UNSERVED] is None
    assert dict(summary(part("acks", severity=NOTE), unserved))[UNSERVED] is None, "a note is no reason"


def joined(*scopes: dict[str, list[str]], rule: str = "network-loss") -> FindingRow:
    (row,) = rows(
        [part(rule, 10 + place, 20, {**SCOPE, **each}) for place, each in enumerate(scopes)], PLACES
    )
    return row


def test_parts_of_a_rule_are_one_row_with_what_they_share() -> None:
    row = joined(*({"client": [name], "broker": [f"10.0.0.{name}:9092"]} for name in ("7", "8", "9")))
    assert row.subject == "3 clients, all at 10.0.0.1, 3 brokers"
    assert row.parts[0].subject == 'client "7" at 10.0.0.1, broker 10.0.0.7:9092'
    assert (row.count, row.first, row.scope.connections.count) == (6, row.parts[0].first, 6)
    assert (row.scope.clients.count, row.scope.clients.names) == (3, ["7", "8", "9"])
    assert (row.scope.hosts.count, row.scope.brokers.count, row.scope.topics.count) == (1, 3, 0)
    assert joined({}).parts == []
    two = joined({"client": ["a"]}, {"client": ["b"]})
    assert two.subject == "2 clients: a and b, all at 10.0.0.1, broker 10.0.0.2:9092"


def test_what_is_about_one_broker_is_not_joined_with_another() -> None:
    parts = [part("broker-unreachable", scope={**SCOPE, "broker": [name]}) for name in ("a:1", "b:1", "a:1")]
    reported = rows(parts, PLACES)
    assert [(row.subject, len(row.parts)) for row in reported] == [
        ("broker a:1 (node 3)", 2),
        ("broker b:1 (node 3)", 0),
    ]


def test_only_what_is_not_explained_is_left_beside_a_cause() -> None:
    elsewhere = part("connection-refused", scope={**SCOPE, "broker": ["10.0.0.9:9092"]})
    reported = rows([part("broker-unreachable"), part("connection-refused"), elsewhere], PLACES)
    assert [(row.rule, row.explained_by, row.scope.brokers.names) for row in reported] == [
        ("broker-unreachable", None, ["10.0.0.2:9092"]),
        ("connection-refused", "broker-unreachable", ["10.0.0.2:9092"]),
        ("connection-refused", None, ["10.0.0.9:9092"]),
    ]


def test_the_most_severe_and_harmful_cause_stands_first(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = {"connect-timeout": 5, "throttled": 0, "network-loss": 9, "acks": 50}
    monkeypatch.setattr(
        causes,
        "_impact",
        lambda rule, _: causes.ImpactRow(
            connections=None, requests=failed[rule.name], records=None, lost_us=None
        ),
    )
    parts = [part(name, scope={**SCOPE, "client": [name]}) for name in failed]
    parts[-1].severity = NOTE
    parts[1].severity = ERROR
    assert [name for name, _ in summary(*parts)] == ["throttled", "network-loss", "connect-timeout", "acks"]


def test_an_event_of_unknown_cost_stands_before_time_that_requests_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cost = {
        "queueing": (None, 9),
        "poll-timeout": (None, None),
        "broker-closes": (1, None),
        "acks": (None, None),
    }
    monkeypatch.setattr(
        causes,
        "_impact",
        lambda rule, _: causes.ImpactRow(
            connections=None, requests=cost[rule.name][0], records=None, lost_us=cost[rule.name][1]
        ),
    )
    parts = [part(name, scope={**ELSE, "client": [name], "group": [name]}) for name in cost]
    assert [name for name, _ in summary(*parts)] == ["broker-closes", "poll-timeout", "queueing", "acks"]
