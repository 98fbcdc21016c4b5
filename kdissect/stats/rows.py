"""Counts -> the rows of the document, largest first. Holds nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kdissect.model import ANSWERED, ORPHAN, UNACKNOWLEDGED, UNANSWERED
from kdissect.stats import document, releases

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kdissect.stats.cluster import Cluster
    from kdissect.stats.quantiles import Quantiles
    from kdissect.stats.record_counts import Carried, Records, Topic, Volume
    from kdissect.stats.traffic import Load, Traffic

NAMES = 20
"""Clients and addresses that a row lists."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ranked(counted: Mapping[str, int]) -> dict[str, int]:
    """The most frequent first, and of those that are equally frequent the first in the alphabet."""
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def moment(time_ns: int) -> datetime:
    """Nanoseconds since 1970 -> UTC, to the microsecond."""
    return _EPOCH + timedelta(microseconds=time_ns // 1000)


def spread(quantiles: Quantiles) -> document.Spread:
    """How numbers are distributed."""
    p50, p95, p99 = quantiles.at((0.5, 0.95, 0.99))
    count = quantiles.count
    return document.Spread(
        count=count,
        min=quantiles.least,
        mean=round(quantiles.total / count, 1) if count else None,
        p50=p50,
        p95=p95,
        p99=p99,
        max=quantiles.most,
    )


def per_second(count: int, seconds: float) -> float | None:
    """A rate; None where no time passed."""
    return round(count / seconds, 3) if seconds > 0 else None


def load(counted: Load, seconds: float) -> dict[str, Any]:
    """The fields that all rows about exchanges share."""
    return {
        "exchanges": counted.exchanges,
        "answered": counted.kinds[ANSWERED],
        "unanswered": counted.kinds[UNANSWERED],
        "unacknowledged": counted.kinds[UNACKNOWLEDGED],
        "orphans": counted.kinds[ORPHAN],
        "per_second": per_second(counted.exchanges, seconds),
        "request_bytes": counted.request_bytes,
        "response_bytes": counted.response_bytes,
        "latency_us": spread(counted.latency_us),
        "long_polls": counted.long_poll_us.count,
        "long_poll_us": spread(counted.long_poll_us),
        "errors": counted.failed,
        "throttled": counted.throttled,
        "throttle_time_ms": counted.throttle_ms,
        "first": None if counted.first_ns is None else moment(counted.first_ns),
        "last": None if counted.last_ns is None else moment(counted.last_ns),
    }


def volume(counted: Volume, seconds: float) -> dict[str, Any]:
    """The fields that topics and partitions share."""
    return {
        **_carried("produced", counted.produced, seconds),
        **_carried("fetched", counted.fetched, seconds),
        "replicated_bytes": counted.replicated.bytes,
        "compression": ranked(counted.codecs),
        "ratio": counted.ratio,
        "errors": ranked(counted.errors),
    }


def _carried(name: str, counted: Carried, seconds: float) -> dict[str, Any]:
    records = None if counted.hidden else counted.records
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
        document.ApiRow(api=name, versions=sorted(each.versions), **load(each, seconds))
        for name, each in _busiest(traffic.tables.apis)
    ]


def brokers(traffic: Traffic, cluster: Cluster, seconds: float) -> list[document.BrokerRow]:
    """By broker."""
    found: list[document.BrokerRow] = []
    for name, each in _busiest(traffic.tables.brokers):
        node, offers = cluster.node(name), cluster.offers.get(name)
        found.append(
            document.BrokerRow(
                broker=name,
                id=None if node is None else node.id,
                rack=None if node is None else node.rack,
                release=None if offers is None else releases.guess(offers),
                connections=len(each.connections),
                clients=len(each.clients),
                **load(each, seconds),
            )
        )
    return found


def clients(traffic: Traffic, seconds: float) -> list[document.ClientRow]:
    """By client id."""
    return [
        document.ClientRow(
            client=name,
            software=each.software.first(NAMES),
            principals=each.principals.first(NAMES),
            addresses=each.addresses.first(NAMES),
            connections=len(each.connections),
            apis=ranked(each.apis),
            **load(each, seconds),
        )
        for name, each in _busiest(traffic.tables.clients)
    ]


def groups(traffic: Traffic, seconds: float) -> list[document.GroupRow]:
    """By group."""
    return [
        document.GroupRow(
            group=name,
            clients=each.clients.first(NAMES),
            apis=ranked(each.apis),
            **load(each, seconds),
        )
        for name, each in _busiest(traffic.tables.groups)
    ]


def connections(traffic: Traffic, seconds: float) -> list[document.ConnectionRow]:
    """By connection."""
    return [
        document.ConnectionRow(
            connection=name,
            client=each.client,
            client_address=each.client_address,
            broker=each.broker,
            **load(each, seconds),
        )
        for name, each in _busiest(traffic.tables.connections)
    ]


def topics(records: Records, seconds: float) -> list[document.TopicRow]:
    """By topic, the one with most bytes first."""
    return [
        document.TopicRow(
            topic=name,
            partitions=len(each.partitions),
            producers=each.producers.first(NAMES),
            consumers=each.consumers.first(NAMES),
            produce_latency_us=spread(each.produce_latency_us),
            **volume(each, seconds),
        )
        for name, each in sorted(records.topics.items(), key=_bytes_then_name)
    ]


def partitions(records: Records, seconds: float) -> list[document.PartitionRow]:
    """By partition, the one with most bytes first."""
    return [
        document.PartitionRow(topic=topic, partition=partition, **volume(each, seconds))
        for (topic, partition), each in sorted(records.partitions.items(), key=_bytes_then_name)
    ]


def errors(traffic: Traffic) -> list[document.ErrorRow]:
    """Errors, the most frequent first."""
    ordered = sorted(traffic.failures.items(), key=lambda item: (-item[1].count, item[1].first))
    return [
        document.ErrorRow(
            **failure._asdict(),
            count=each.count,
            first=moment(each.first[0]),
            last=moment(each.last_ns),
            example=each.first[1],
        )
        for failure, each in ordered
    ]


def slowest(traffic: Traffic) -> list[document.SlowRow]:
    """The slowest exchanges, slowest first."""
    return [
        document.SlowRow(
            exchange=slow.exchange,
            time=moment(slow.time_ns),
            latency_us=slow.latency_us,
            api=slow.api,
            client=slow.client,
            broker=slow.broker,
            topics=list(slow.topics),
            throttle_time_ms=slow.throttle_ms,
        )
        for slow in traffic.slowest.all()
    ]


def _busiest(table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(table.items(), key=lambda item: (-item[1].exchanges, item[0]))


def _bytes_then_name(item: tuple[Any, Volume | Topic]) -> tuple[int, Any]:
    name, counted = item
    return -(counted.produced.bytes + counted.fetched.bytes + counted.replicated.bytes), name
