from __future__ import annotations

from typing import Any

from kdissect.limits import DEFAULT, Limits
from kdissect.stats.cluster import Cluster, Node
from kdissect.stats.facts import Facts
from tests.exchange_factory import connection, exchange


def broker(node_id: int, host: str, port: int = 9092, rack: str | None = None) -> dict[str, Any]:
    return {"node_id": node_id, "host": host, "port": port, "rack": rack}


def metadata(*brokers: dict[str, Any]) -> Facts:
    return Facts(exchange("Metadata", 9, {"topics": []}, {"brokers": list(brokers), "topics": []}))


def coordinator(node_id: int, host: str) -> Facts:
    return Facts(
        exchange(
            "FindCoordinator",
            2,
            {"key": "g"},
            {"error_code": 0, "node_id": node_id, "host": host, "port": 9092},
        )
    )


def versions(*offers: tuple[int, int, int]) -> Facts:
    keys = [{"api_key": key, "min_version": first, "max_version": last} for key, first, last in offers]
    return Facts(exchange("ApiVersions", 2, {}, {"error_code": 0, "api_keys": keys}))


def cluster(*facts: Facts, limits: Limits = DEFAULT) -> Cluster:
    result = Cluster(limits)
    for each in facts:
        result.feed(each)
    return result


def test_node_by_address_and_port() -> None:
    result = cluster(metadata(broker(1, "10.0.0.1", rack="a"), broker(2, "10.0.0.2")))
    assert result.node("10.0.0.1:9092") == Node(1, "10.0.0.1", 9092, "a")
    assert result.node("10.0.0.3:9092") is None


def test_brokers_with_host_names_are_identified_by_a_unique_port() -> None:
    result = cluster(
        metadata(broker(1, "kafka-1", 9093), broker(2, "kafka-2", 9092), broker(3, "kafka-3", 9092))
    )
    node = result.node("10.0.0.1:9093")
    assert node is not None
    assert node.id == 1
    assert result.node("10.0.0.2:9092") is None


def of(cluster_id: str, address: str, *brokers: dict[str, Any], time_ns: int = 0) -> Facts:
    """A response with a cluster ID, of the broker at an address."""
    answer = {"brokers": list(brokers), "cluster_id": cluster_id, "topics": []}
    answered = exchange("Metadata", 9, {"topics": []}, answer, connection=connection(broker=address))
    answered.completed_ns = time_ns
    return Facts(answered)


def test_clusters_use_the_same_ids() -> None:
    one = [broker(1, "10.0.0.1"), broker(2, "10.0.0.2")]
    other = [broker(1, "10.1.0.1"), broker(2, "10.1.0.2")]
    result = cluster(of("one", "10.0.0.1", *one), of("other", "10.1.0.1", *other))
    addresses = ("10.0.0.1", "10.0.0.2", "10.1.0.1", "10.1.0.2")
    nodes = [result.node(f"{address}:9092") for address in addresses]
    assert [node and node.id for node in nodes] == [1, 2, 1, 2]
    parts = cluster(of("other", "10.1.0.1", *other)), cluster(of("one", "10.0.0.1", *one))
    parts[0].merge(parts[1])
    assert parts[0].nodes == result.nodes
    assert parts[0].clusters == result.clusters == {"10.0.0.1:9092": "one", "10.1.0.1:9092": "other"}


def test_host_names_are_looked_up_in_the_cluster_that_a_broker_reports() -> None:
    result = cluster(of("one", "10.0.0.1", broker(7, "a")), of("other", "10.1.0.1", broker(8, "b")))
    nodes = [result.node(f"{address}:9092") for address in ("10.0.0.1", "10.1.0.1", "10.2.0.1")]
    assert [node and node.id for node in nodes] == [7, 8, None]


def test_an_address_belongs_to_the_node_that_was_reported_there_last() -> None:
    moved = of("one", "10.0.0.1", broker(2, "10.0.0.1"), time_ns=5)
    result = cluster(moved, of("one", "10.0.0.1", broker(1, "10.0.0.1", rack="a"), time_ns=3))
    assert result.node("10.0.0.1:9092") == Node(2, "10.0.0.1", 9092, None)


def test_a_broker_that_was_replaced() -> None:
    for host in ("10.0.0.1", "kafka-1"):
        reports = [of("one", "10.0.0.1", broker(number, host), time_ns=number) for number in (1, 4, 5)]
        for order in (reports, reports[::-1]):
            result = cluster(*order)
            node = result.node("10.0.0.1:9092")
            assert node is not None
            assert (node.id, result.earlier_ids("10.0.0.1:9092")) == (5, [1, 4])
    assert result.earlier_ids("10.0.0.1:1") == []


def test_find_coordinator_does_not_remove_a_rack() -> None:
    result = cluster(metadata(broker(1, "10.0.0.1", rack="a")), coordinator(1, "10.0.0.1"))
    assert result.nodes["", 1].rack == "a"
    result = cluster(metadata(broker(1, "10.0.0.1", rack="a")), coordinator(1, "10.0.0.9"))
    assert result.nodes["", 1] == Node(1, "10.0.0.9", 9092, None)


def test_a_coordinator_that_is_not_there_is_no_node() -> None:
    assert cluster(coordinator(-1, "")).nodes == {}


def test_offers() -> None:
    result = cluster(versions((0, 0, 9), (1, 4, 13)), versions())
    assert result.offers == {"10.0.0.1:9092": {0: (0, 9), 1: (4, 13)}}


def test_merged_and_bounded() -> None:
    limits = Limits(summary_rows=1)
    result = cluster(metadata(broker(1, "10.0.0.1")), limits=limits)
    result.merge(cluster(metadata(broker(2, "10.0.0.2")), versions((0, 0, 9))))
    assert (list(result.nodes), list(result.offers)) == ([("", 1)], ["10.0.0.1:9092"])
