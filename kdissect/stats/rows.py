"""Counts -> the rows of the document, largest first. Holds no state."""

from __future__ import annotations

from collections import Counter
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from kdissect.exchanges.latency import UNKNOWN
from kdissect.model import ANSWERED, ORPHAN, UNACKNOWLEDGED, UNANSWERED
from kdissect.names import kept
from kdissect.stats import document, releases
from kdissect.stats.quantiles import Distinct, Quantiles
from kdissect.stats.traffic import some_topics, united

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from dataclasses import Field

    from _typeshed import DataclassInstance

    from kdissect.stats.cluster import Cluster
    from kdissect.stats.facts import Facts
    from kdissect.stats.record_counts import RecordCounts, RecordTotals, TopicRecords, Volume
    from kdissect.stats.tallies import Load
    from kdissect.stats.traffic import Traffic

    Row = TypeVar("Row", bound=DataclassInstance)

NAMES = 20
"""Maximum number of clients or addresses in a row."""

DECADES_US = tuple(10**power for power in range(2, 8))
"""Bounds of ``service_histogram``: 100 us to 10 s."""

BOUNDS_US = tuple(digit * decade for decade in DECADES_US for digit in (1, 2, 5))[:-2]
"""Those of ``service_counts``."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def row_of(kind: type[Row], counted: Any, /, **more: Any) -> Row:
    """A row of the document; other fields are taken from the attributes of ``counted`` with the same name.

    ``first`` is taken from ``first_ns``. A ``Distinct`` becomes its size, or for a list its first names.
    """
    return kind(
        **more,
        **{
            each.name: _field(each, counted)
            for each in fields(kind)
            if each.name not in more and each.default is MISSING
        },
    )


def _field(field: Field[Any], counted: Any) -> Any:
    if hasattr(counted, f"{field.name}_ns"):
        time_ns = getattr(counted, f"{field.name}_ns")
        return None if time_ns is None else moment(time_ns)
    value = getattr(counted, field.name)
    if isinstance(value, Quantiles):
        return spread(value)
    if isinstance(value, Counter):
        return ranked(value)
    if isinstance(value, Distinct):
        return len(value) if field.type == "int" else value.first(NAMES)
    return value


def ranked(counted: Mapping[str, int]) -> dict[str, int]:
    """The most frequent first, then in alphabetical order."""
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def moment(time_ns: int) -> datetime:
    """Nanoseconds since 1970 -> UTC, to the microsecond."""
    return _EPOCH + timedelta(microseconds=time_ns // 1000)


def spread(quantiles: Quantiles) -> document.Spread:
    """The distribution of numbers."""
    p50, p95, p99 = quantiles.at((0.5, 0.95, 0.99))
    count = quantiles.count
    return document.Spread(
        count=count,
        min=quantiles.min,
        mean=round(quantiles.total / count, 1) if count else None,
        p50=p50,
        p95=p95,
        p99=p99,
        max=quantiles.max,
    )


def per_second(count: int, seconds: float) -> float | None:
    """A rate; None if no time passed."""
    return round(count / seconds, 3) if seconds > 0 else None


def load(counted: Load, seconds: float) -> dict[str, Any]:
    """Fields common to all rows about exchanges, except those that ``row_of`` copies."""
    return {
        "answered": counted.kinds[ANSWERED],
        "unanswered": counted.kinds[UNANSWERED],
        "unacknowledged": counted.kinds[UNACKNOWLEDGED],
        "orphans": counted.kinds[ORPHAN],
        "per_second": per_second(counted.exchanges, seconds),
        "errors": counted.failed,
        "expected_errors": counted.expected,
        "throttle_time_ms": counted.throttle_ms,
    }


def volume(counted: Volume, seconds: float) -> dict[str, Any]:
    """Fields common to topics and partitions, except those that ``row_of`` copies."""
    sent_bytes = counted.produced.bytes + counted.unknown.bytes + counted.rejected.bytes
    return {
        **_direction("produced", counted.produced, seconds),
        "sent_bytes": sent_bytes,
        "sent_bytes_per_second": per_second(sent_bytes, seconds),
        **_direction("fetched", counted.fetched, seconds),
        "replicated_bytes": counted.replicated.bytes,
        "unknown_records": None if counted.unknown.uncounted else counted.unknown.records,
        "compression": ranked(counted.codecs),
        "fetched_compression": ranked(counted.fetched_codecs),
    }


def _direction(name: str, counted: RecordTotals, seconds: float) -> dict[str, Any]:
    records = None if counted.uncounted else counted.records
    return {
        f"{name}_records": records,
        f"{name}_bytes": counted.bytes,
        f"{name}_batches": counted.batches,
        f"{name}_records_per_second": None if records is None else per_second(records, seconds),
        f"{name}_bytes_per_second": per_second(counted.bytes, seconds),
    }


def apis(traffic: Traffic, seconds: float) -> list[document.ApiRow]:
    """By api."""
    return [
        row_of(
            document.ApiRow,
            each,
            api=name,
            versions=sorted(each.versions),
            service_histogram=each.service_us.histogram(DECADES_US),
            **load(each, seconds),
        )
        for name, each in _busiest(traffic.tables.apis)
    ]


def brokers(traffic: Traffic, cluster: Cluster, seconds: float) -> list[document.BrokerRow]:
    """By broker."""
    result: list[document.BrokerRow] = []
    for name, each in _busiest(traffic.tables.brokers):
        node, offers = cluster.node(name), cluster.offers.get(name)
        result.append(
            row_of(
                document.BrokerRow,
                each,
                broker=name,
                cluster_id=cluster.clusters.get(name),
                id=None if node is None else node.id,
                earlier_ids=cluster.earlier_ids(name),
                rack=None if node is None else node.rack,
                release=None if offers is None else releases.guess(offers),
                **load(each, seconds),
            )
        )
    return result


def clients(traffic: Traffic, seconds: float) -> list[document.ClientRow]:
    """By client ID."""
    return [
        row_of(document.ClientRow, each, **key._asdict(), **load(each, seconds))
        for key, each in sorted(
            united(traffic.tables.clients).items(),
            key=lambda item: (-item[1].exchanges, item[0].client, item[0].cluster_id or ""),
        )
    ]


def groups(traffic: Traffic, seconds: float) -> list[document.GroupRow]:
    """By group."""
    return [
        row_of(document.GroupRow, each, group=name, **load(each, seconds))
        for name, each in _busiest(traffic.tables.groups)
    ]


def connections(traffic: Traffic, seconds: float) -> list[document.ConnectionRow]:
    """By connection."""
    return [
        row_of(document.ConnectionRow, each, connection=name, **load(each, seconds))
        for name, each in _busiest(traffic.tables.connections)
    ]


def topics(records: RecordCounts, seconds: float) -> list[document.TopicRow]:
    """By topic, the one with most bytes first."""
    duplicates = records.duplicate_bytes()
    return [
        row_of(
            document.TopicRow,
            each,
            topic=name,
            duplicate_bytes=duplicates[name],
            goodput_bytes_per_second=per_second(each.produced.bytes - duplicates[name], seconds),
            **volume(each, seconds),
        )
        for name, each in sorted(records.topics.items(), key=_bytes_then_name)
    ]


def partitions(records: RecordCounts, seconds: float) -> list[document.PartitionRow]:
    """By partition, the one with most bytes first."""
    return [
        row_of(document.PartitionRow, each, topic=topic, partition=partition, **volume(each, seconds))
        for (topic, partition), each in sorted(records.partitions.items(), key=_bytes_then_name)
    ]


def errors(traffic: Traffic) -> list[document.ErrorRow]:
    """Errors, the most frequent first; those that are expected come last."""
    ordered = sorted(
        united(traffic.failures).items(),
        key=lambda item: (
            *(item[1].expected - item[1].count, -item[1].count, item[1].first),
            item[0].cluster_id or "",
        ),
    )
    return [row_of(document.ErrorRow, each, **failure._asdict()) for failure, each in ordered]


def unanswered(traffic: Traffic, names: Mapping[str, str]) -> list[document.UnansweredRow]:
    """Requests that were not answered, the oldest first. ``names``: of topic IDs."""
    return [
        row_of(document.UnansweredRow, each, topics=_named(each.topics, names))
        for each in traffic.unanswered.all()
    ]


def waits(traffic: Traffic) -> list[document.WaitRow]:
    """By kind, the longest sum first."""
    rows = [
        document.WaitRow(
            kind=kind, us=spread(each.us), total_us=each.us.total, undetermined=each.undetermined
        )
        for kind, each in traffic.waits.items()
    ]
    return sorted(rows, key=lambda row: (-row.total_us, row.kind))


def slowest(traffic: Traffic, names: Mapping[str, str]) -> list[document.SlowRow]:
    """The exchanges with the longest service times, the longest first. ``names``: of topic IDs."""
    return [
        row_of(
            document.SlowRow,
            slow,
            topics=_named(slow.topics, names),
            throttle_time_ms=slow.throttle_ms,
            **{name: us for name, us in slow.parts._asdict().items() if name != "wait_us"},
        )
        for slow in traffic.slowest.all()
    ]


def evidence(facts: Facts, names: Mapping[str, str]) -> document.EvidenceRow:
    """An exchange that findings name. ``names``: of topic IDs."""
    exchange = facts.exchange
    return document.EvidenceRow(
        exchange=facts.id,
        time=moment(exchange.time_ns),
        api=facts.api,
        client=facts.client,
        broker=facts.broker,
        topics=list(map(kept, _named(some_topics(facts), names))),
        outcome=facts.outcome or "",
        errors=facts.errors,
        request_transfer_us=exchange.request_transfer_us,
        latency_us=facts.latency_us,
        response_transfer_us=exchange.response_transfer_us,
        **(facts.parts or UNKNOWN)._asdict(),
    )


def _named(topics: Iterable[str], names: Mapping[str, str]) -> list[str]:
    return list(dict.fromkeys(names.get(topic, topic) for topic in topics))


def _busiest(table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(table.items(), key=lambda item: (-item[1].exchanges, item[0]))


def by_bytes(row: document.RecordsRow) -> int:
    """Sort key of topics or partitions of several clusters."""
    return -(row.produced_bytes + row.fetched_bytes + row.replicated_bytes)


def _bytes_then_name(item: tuple[Any, Volume | TopicRecords]) -> tuple[int, Any]:
    name, counted = item
    return -(counted.produced.bytes + counted.fetched.bytes + counted.replicated.bytes), name
