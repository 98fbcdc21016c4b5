"""What rules find, for tests: facts in, findings out."""

from __future__ import annotations

import pickle
from dataclasses import fields
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from kdissect.kafka.records import RecordData
from kdissect.limits import DEFAULT
from kdissect.stats.connection_log import ConnectionLogRow
from kdissect.stats.document import FindingRow, ImpactRow, NamesRow, ScopeRow
from kdissect.stats.findings.causes import rows
from kdissect.stats.findings.rules import RuleSet
from kdissect.stats.tallies import Summing
from tests.producers import facts_of
from tests.record_batches import Item, batch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.model import ConnectionKey
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import Rule


def findings_of(rule: type[Rule], facts: Iterable[Facts]) -> list[FindingRow]:
    """What a rule says; the same whether one saw all, or each connection was seen by one of its own."""
    kept = list(facts)
    apis = rule.apis | (rule.follows.apis if rule.follows else set())
    assert all(not apis or each.api in apis for each in kept), "it does not ask to see these"
    everything = fed(kept, rule)
    parts = {
        connection: fed([each for each in kept if each.exchange.connection.id == connection], rule)
        for connection in dict.fromkeys(each.exchange.connection.id for each in kept)
    }
    merged = RuleSet(DEFAULT, [rule])
    for part in reversed(parts.values()):
        merged.merge(pickle.loads(pickle.dumps(part)))
    reported = rows_of(everything)
    assert rows_of(merged) == reported
    return reported


def rows_of(rules: RuleSet) -> list[FindingRow]:
    """A row for each part of what rules have found."""
    parts = rules.rows()
    return sorted(chain.from_iterable(rows([part], {part.rule.name: 0}) for part in parts), key=_about)


def finding(rule: str, severity: str, message: str = "it failed") -> FindingRow:
    """A finding that nothing explains."""
    at = datetime(2026, 11, 22, tzinfo=UTC)
    none = NamesRow(count=0, names=[])
    return FindingRow(
        rule=rule, severity=severity, subject="client a", message=message, advice="", count=1, first=at,
        last=at, evidence=[], scope=ScopeRow(**{each.name: none for each in fields(ScopeRow)}),
        impact=ImpactRow(connections=None, requests=None, records=None, lost_us=None), explained_by=None,
        parts=[],
    )  # fmt: skip


def fed(facts: Iterable[Facts], *rules: type[Rule]) -> RuleSet:
    """Rules that have seen exchanges."""
    results = RuleSet(DEFAULT, rules)
    summing = Summing(DEFAULT, [results.feed])
    rows: dict[ConnectionKey, ConnectionLogRow] = {}
    for each in facts:
        results.feed(each)
        summing.feed(each)
        info = each.connection
        row = rows.setdefault(info.key, ConnectionLogRow(info.key, "", info.client, info.broker))
        row.add(each.exchange)
    for row in rows.values():
        results.connect(row)
    summing.settle()
    return results


def _about(row: FindingRow) -> tuple[str, str]:
    return row.subject, row.message


def produce(
    after_s: float,
    *,
    error: int = 0,
    partition: int = 0,
    acks: int = -1,
    size: int = 5,
    records: int = 1,
    **more: Any,
) -> Facts:
    data = batch([Item(value=b"x" * size)] * records)
    written = {"index": partition, "records": RecordData(data, 0, len(data))}
    request = {"acks": acks, "topic_data": [{"name": "orders", "partition_data": [written]}]}
    result = {"index": partition, "error_code": error, "base_offset": 0}
    response = {"responses": [{"name": "orders", "partition_responses": [result]}]}
    return facts_of("Produce", 9, after_s, request, response, **more)


def fetch(
    after_s: float,
    *,
    error: int = 0,
    data: bytes = b"",
    max_wait_ms: int = 500,
    replica_id: int = -1,
    **more: Any,
) -> Facts:
    answer = {"partition_index": 0, "error_code": error, "records": RecordData(data, 0, len(data))}
    response = {"error_code": 0, "responses": [{"topic": "orders", "partitions": [answer]}]}
    request = {"replica_id": replica_id, "max_wait_ms": max_wait_ms, "topics": []}
    return facts_of("Fetch", 7, after_s, request, response, "reader", **more)


def metadata(
    after_s: float,
    leaders: Iterable[tuple[int, int]] = ((1, 0),),
    *,
    replicas: int = 1,
    topics: list[Any] | None = None,
    **more: Any,
) -> Facts:
    """Leader and leader epoch of each partition of one topic."""
    partitions = [
        {
            "error_code": 0,
            "partition_index": number,
            "leader_id": leader,
            "leader_epoch": epoch,
            "replica_nodes": list(range(replicas)),
        }
        for number, (leader, epoch) in enumerate(leaders)
    ]
    response = {"topics": [{"error_code": 0, "name": "orders", "partitions": partitions}]}
    return facts_of("Metadata", 7, after_s, {"topics": topics}, response, "asker", **more)
