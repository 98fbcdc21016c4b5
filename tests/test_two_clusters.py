"""Two clusters with the same topics, groups and clients in one run: what each has alone, nothing mixed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from click.testing import CliRunner

from kdissect import dissect, open_capture, summarize
from kdissect.cli.main import kdissect
from kdissect.exchanges.clusters import Clusters, named_cluster, names_cluster
from kdissect.exchanges.fetch_sessions import FetchSessions
from kdissect.limits import DEFAULT, Limits
from kdissect.model import Endpoint
from kdissect.spark.report import report
from kdissect.stats.by_cluster import ByCluster, ClusterNames
from kdissect.stats.facts import Facts
from kdissect.stats.groups import Groups
from kdissect.stats.pulse import Pulse
from kdissect.stats.summarizer import PARTS
from kdissect.tables import duck
from kdissect.tables.rows import TABLES
from kdissect.tables.values import json_document
from samples.golden import captures, name_of
from tests.exchange_factory import connection, exchange
from tests.exports import unpacked
from tests.shared import say

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROD, TEST = "kdissect-sampleCluster", "kdissect-secondCluster"
IN_TABLES = frozenset(TABLES) - {"captures"}

Run = dict[str, Any]
SAMPLES = {name_of(path): path for path in captures()}


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """A sample, and the same in another cluster: all addresses differ, but no name, port or time."""

    def make(name: str) -> tuple[Path, Path]:
        packets = unpacked(SAMPLES[name])
        assert packets.count(PROD.encode())
        others = packets.replace(PROD.encode(), TEST.encode())
        for one, two in ((b"\x7f\0\0\1", b"\x7f\0\0\2"), (b"127.0.0.1", b"127.0.0.2")):
            others = others.replace(one, two)
        directory = tmp_path_factory.mktemp(name)
        paths = directory / "prod.pcap", directory / "test.pcap"
        for path, data in zip(paths, (packets, others), strict=True):
            path.write_bytes(data)
        return paths

    return make


@pytest.fixture(scope="module")
def lagging(twins: Callable[[str], tuple[Path, Path]]) -> tuple[Path, Path]:
    return twins("kafka-4-lag")


@pytest.fixture(scope="module")
def restless(twins: Callable[[str], tuple[Path, Path]]) -> tuple[Path, Path]:
    return twins("kafka-4-storm")


def document(*arguments: object) -> Run:
    loaded: Run = orjson.loads(say("summary", "--json", *arguments).out.decode())
    return loaded


def rows_of(summary: Run, cluster: str | None) -> Run:
    """The rows of a cluster, by table; findings without its name, which a single cluster does not need."""
    tables: Run = {
        name: summary[name] for name in ("topics", "partitions", "group_history", "lag", "findings")
    }
    for part in ("transactions", "versions"):
        tables |= {name: rows for name, rows in (summary[part] or {}).items() if isinstance(rows, list)}
    result = {
        name: [row for row in rows if row["cluster_id"] == cluster] for name, rows in tables.items() if rows
    }
    for row in result.get("findings", ()):
        row["subject"] = row["subject"].removesuffix(f" of cluster {cluster}")
    if "used" in result:  # by a broker, of controllers whose cluster nothing names
        result["used"] = [row for row in result["used"] if row["client"] != "1"]
    for row in result.get("topics", ()):
        for name in [name for name in row if name.endswith("per_second")]:
            del row[name]  # over the time of the whole summary
    return result


PARTED = [f"--{name}" for name in ("groups", "lag", "transactions", "findings", "versions")]


@pytest.mark.usefixtures("with_core_and_without")
@pytest.mark.parametrize("names", ["whole", "window"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_summary(lagging: tuple[Path, Path], names: str, jobs: int) -> None:
    both = document(*PARTED, "--names", names, "-j", jobs, *lagging)
    for cluster, path in zip((PROD, TEST), lagging, strict=True):
        alone = rows_of(document(*PARTED, "--names", names, path), cluster)
        assert rows_of(both, cluster) == alone
        assert max(row["lag_worst"] for row in alone["lag"]) == 958
    assert {row["cluster_id"] for row in both["lag"]} == {PROD, TEST}


@pytest.mark.parametrize("jobs", [1, 2])
def test_lag_over_time(lagging: tuple[Path, Path], jobs: int) -> None:
    def rows(*paths: Path) -> list[Run]:
        result: list[Run] = document("--lag", "--interval", "1s", "-j", jobs, *paths)["lag_over_time"]
        return result

    both = rows(*lagging)
    assert [row["lag_worst"] for row in both] == sorted((row["lag_worst"] for row in both), reverse=True)
    for cluster, path in zip((PROD, TEST), lagging, strict=True):
        assert [row for row in both if row["cluster_id"] == cluster] == rows(path) != []


@pytest.mark.usefixtures("with_core_and_without")
@pytest.mark.parametrize("jobs", [1, 2])
def test_clients_and_errors(twins: Callable[[str], tuple[Path, Path]], jobs: int) -> None:
    paths = twins("kafka-4-transactions")
    both = document("-j", jobs, *paths)
    for cluster, path in zip((PROD, TEST), paths, strict=True):
        alone = document(path)
        for table in ("clients", "errors"):
            expected = [row for row in alone[table] if row["cluster_id"] == cluster]
            shown = [row for row in both[table] if row["cluster_id"] == cluster]
            expected = [row for row in expected if row["client"] != "1"]  # of controllers, which name none
            for row in (*expected, *shown):
                for name in [name for name in row if name.endswith("per_second")]:
                    del row[name]
            assert sorted(shown, key=repr) == sorted(expected, key=repr) != []
    page = say("summary", "--versions", *paths).out.decode()
    assert PROD in page
    assert TEST in page


@pytest.mark.usefixtures("with_core_and_without")
def test_rebalances(restless: tuple[Path, Path]) -> None:
    both = document("--groups", *restless)["group_history"]
    counts = {(row["cluster_id"], row["group"]): len(row["rebalances"]) for row in both}
    assert counts == {
        (cluster, group): n for cluster in (PROD, TEST) for group, n in (("calm", 1), ("restless", 11))
    }


def test_transactions(twins: Callable[[str], tuple[Path, Path]]) -> None:
    paths = twins("kafka-4-transactions")
    both = document("--transactions", *paths)
    for cluster, path in zip((PROD, TEST), paths, strict=True):
        alone = rows_of(document("--transactions", path), cluster)
        assert alone.get("producers")
        assert rows_of(both, cluster) == alone


def test_topics_as_rows(lagging: tuple[Path, Path]) -> None:
    with open_capture(*map(str, lagging)) as capture:
        summary = orjson.loads(json_document(summarize(dissect(capture), parts=PARTS)))
    assert [(row["cluster_id"], row["topic"], row["produced_records"]) for row in summary["topics"]] == [
        (PROD, "orders", 2000),
        (TEST, "orders", 2000),
    ]
    brokers = {row["broker"]: row["cluster_id"] for row in summary["brokers"]}
    assert set(brokers.values()) >= {PROD, TEST}


def test_what_happens_now(lagging: tuple[Path, Path]) -> None:
    """Groups and topics of the dashboard and of metrics: those of one cluster as if it were alone."""

    def now(*paths: Path) -> list[Any]:
        names, pulse = ClusterNames(DEFAULT), Pulse()
        with open_capture(*map(str, paths)) as capture:
            for each in dissect(capture):
                facts = Facts(each)
                names.apply(facts)
                pulse.feed(facts)
        snapshot = pulse.now()
        return sorted([*snapshot.groups, *snapshot.topics], key=lambda row: row.name)

    alone, both = now(lagging[0]), now(*lagging)
    assert {row.name for row in alone} == {"orders", "quick", "slow"}
    assert [row for row in both if " in " not in row.name] == alone
    others = [row._replace(name=row.name.partition(f" in {TEST}")[0]) for row in both if TEST in row.name]
    assert [row.lag for row in others if hasattr(row, "lag")] == [
        row.lag for row in alone if hasattr(row, "lag")
    ]
    assert [row.name for row in others] == [row.name for row in alone]


def test_pages_name_clusters_only_if_there_are_several(lagging: tuple[Path, Path]) -> None:
    for arguments in ((), ("--lag",), ("--groups",), ("--findings",)):
        alone = say("summary", *arguments, lagging[0]).out.decode()
        assert PROD not in alone
        assert "CLUSTER" not in alone
        both = say("summary", *arguments, *lagging).out.decode()
        assert PROD in both
        assert TEST in both


def test_check_and_story(restless: tuple[Path, Path]) -> None:
    health = [
        orjson.loads(say("check", "--json", *paths).out.decode())["health"]
        for paths in (restless[:1], restless)
    ]
    assert "rebalance-storm: group restless: 9 rebalances" in health[0]["reason"]
    assert "rebalance-storm: group restless of cluster " in health[1]["reason"]
    assert ": 9 rebalances within " in health[1]["reason"]
    notes = [
        say("story", "group:restless", *paths).out.decode().count("rebalance ")
        for paths in (restless[:1], restless)
    ]
    assert notes[1] == 2 * notes[0] > 0


@pytest.fixture(scope="module")
def exported(
    lagging: tuple[Path, Path], restless: tuple[Path, Path], tmp_path_factory: Any
) -> dict[str, Path]:
    """Exports of both clusters, of each pair."""
    directories = {}
    for name, paths in (("lag", lagging), ("rebalances", restless)):
        directories[name] = tmp_path_factory.mktemp("tables") / name
        tables = ",".join(TABLES)
        say("export", "--format", "parquet", "--tables", tables, "-o", directories[name], *paths)
    return directories


def test_every_table_has_the_cluster(exported: dict[str, Path]) -> None:
    assert all("cluster_id" in [column.name for column in TABLES[name].columns] for name in IN_TABLES)
    with duck.connection() as session:
        for name in ("exchanges", "records", "partitions", "connections", "groups"):
            files = f"read_parquet('{exported['lag']}/{name}/*.parquet')"
            selected = duck.sql(
                session, f"select cluster_id, count(*) from {files} group by all order by all"
            )
            counts = dict(selected.rows(None))
            assert counts[PROD] == counts[TEST] > 0, name
            unequal = (
                f"select broker_ip from {files} where (cluster_id = '{TEST}') <> (broker_ip = '127.0.0.2')"
            )
            if name in ("exchanges", "records", "partitions", "connections"):
                assert not list(duck.sql(session, f"{unequal} and cluster_id is not null").rows(None))


@pytest.mark.parametrize("job", ["lag", "rebalances", "throughput"])
def test_reports(exported: dict[str, Path], job: str) -> None:
    with duck.connection() as session:
        directory = exported["rebalances" if job == "rebalances" else "lag"]
        ((_, frame),) = report(session, str(directory), [job])
        rows = [dict(zip(frame.columns, row, strict=True)) for row in frame.rows(None)]
    key = "cluster" if job == "throughput" else "cluster_id"
    number = {"lag": "lag_worst", "rebalances": "generation_after", "throughput": "produced_records"}[job]
    prod, test = ([row[number] for row in rows if row[key] == cluster] for cluster in (PROD, TEST))
    assert sorted(prod) == sorted(test)
    assert len(rows) == 2 * len(prod)
    assert max(prod) == {"lag": 958, "rebalances": 11, "throughput": 2000}[job]


def lines(*arguments: object) -> list[Run]:
    return [orjson.loads(line) for line in say("read", "--json", *arguments).out.decode().splitlines()]


@pytest.mark.usefixtures("with_core_and_without")
def test_a_connection_has_the_cluster_from_when_it_is_named(lagging: tuple[Path, Path]) -> None:
    whole, window = (lines("--names", names, lagging[0]) for names in ("whole", "window"))
    assert {row["connection"] for row in window if row["cluster_id"]}
    named: set[str] = set()
    for row, other in zip(window, whole, strict=True):
        if row["api"] in ("Metadata", "DescribeCluster") and row["response"].get("cluster_id"):
            named.add(row["connection"])
        assert row["cluster_id"] == (PROD if row["connection"] in named else None)
        assert row["cluster_id"] in (None, other["cluster_id"])
    assert sum(row["cluster_id"] is None for row in whole) < sum(row["cluster_id"] is None for row in window)


def test_filters(lagging: tuple[Path, Path]) -> None:
    selected = lines("--names", "whole", "-Y", f'cluster_id == "{TEST}"', *lagging)
    assert selected
    assert {row["broker_ip"] for row in selected} == {"127.0.0.2"}


def test_given(lagging: tuple[Path, Path]) -> None:
    assert {row["cluster_id"] for row in lines("--cluster", "blue", *lagging)} == {"blue"}
    by_capture = lines("--cluster", "prod.*=blue", "--cluster", "green", *lagging)
    assert {(row["broker_ip"], row["cluster_id"]) for row in by_capture} == {
        ("127.0.0.1", "blue"),
        ("127.0.0.2", "green"),
    }


def test_patterns_need_files(lagging: tuple[Path, Path]) -> None:
    result = CliRunner().invoke(kdissect, ["read", "--cluster", "a*=b", "-"], input=lagging[0].read_bytes())
    assert result.exit_code == 2
    assert "--cluster PATTERN=NAME reads the input twice, so it needs files" in result.output
    for wrong in (["--cluster", "a="], ["--cluster", "a", "--cluster", "b"]):
        assert CliRunner().invoke(kdissect, ["read", *wrong, str(lagging[0])]).exit_code == 2


# ------------------------------------------------------------------------------------------------------------
# The parts.
# ------------------------------------------------------------------------------------------------------------


def metadata(cluster: str | None, broker: str = "10.0.0.1", nodes: tuple[str, ...] = ()) -> Any:
    response = {
        "brokers": [{"node_id": n, "host": host, "port": 9092} for n, host in enumerate(nodes)],
        "cluster_id": cluster,
        "topics": [],
    }
    return exchange("Metadata", 9, {"topics": []}, response, connection=connection(broker=broker))


def heartbeat() -> Any:
    body = {"group_id": "readers", "generation_id": 1, "member_id": "m"}
    return exchange("Heartbeat", 3, body, {"error_code": 0}, connection=connection(broker="10.0.0.1"))


def test_an_address_that_named_two_clusters_names_none() -> None:
    one, two = Clusters(), Clusters()
    one.learn(metadata("A", "10.0.0.1", ("10.0.0.1", "10.0.0.2")))
    two.learn(metadata("B", "10.0.0.1", ("10.0.0.3",)))
    merged, reverse = Clusters(), Clusters()
    for clusters, order in ((merged, (one, two)), (reverse, (two, one))):
        for each in order:
            clusters.merge(each)
    known = {ip: merged.of(Endpoint(ip, 9092)) for ip in ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")}
    assert known == {"10.0.0.1": None, "10.0.0.2": "A", "10.0.0.3": "B", "10.0.0.4": None}
    assert merged.known == reverse.known


def test_clusters_are_limited_in_bytes() -> None:
    clusters = Clusters(Limits(listeners=100))
    for number in range(300):
        clusters.learn(metadata("C" * 30_000 + str(number), f"10.0.{number // 256}.{number % 256}"))
    assert 0 < len(clusters.known) <= 100
    assert all(cluster is not None and len(cluster) <= 1024 for cluster in clusters.known.values())


def test_what_names_a_cluster() -> None:
    assert names_cluster(3, 9)  # Metadata
    assert not names_cluster(3, 1)  # before KIP-78
    assert names_cluster(62, 0)  # BrokerRegistration, in the request
    assert not names_cluster(1, 17)  # Fetch, for every exchange
    body = {"broker_id": 1, "cluster_id": "A"}
    accepted = exchange("BrokerRegistration", 0, body, {"error_code": 0, "broker_epoch": 1})
    refused = exchange("BrokerRegistration", 0, body, {"error_code": 104, "broker_epoch": -1})
    assert (named_cluster(accepted), named_cluster(refused)) == ("A", None)
    assert named_cluster(metadata(None)) is None


def test_parts_beyond_the_limit_are_counted_together() -> None:
    parts = ByCluster(partial(Groups, DEFAULT), Limits(summary_clusters=2))
    for broker in ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"):
        parts.of(connection(broker=broker))
    assert len(parts.parts) == 3
    assert None in parts.parts


def test_brokers_whose_cluster_is_known_make_room() -> None:
    parts = ByCluster(partial(Groups, DEFAULT), Limits(summary_clusters=2))
    for broker in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        parts.feed(Facts(metadata("A", broker), FetchSessions(DEFAULT)))
    assert set(parts.parts) == {"A"}


def test_a_broker_that_named_two_clusters_is_of_none_however_a_capture_is_divided() -> None:
    fed = [metadata("A"), metadata("B", "10.0.0.2"), metadata("C", "10.0.0.3"), heartbeat(), metadata("B")]

    def counted(*exchanges: Any) -> ByCluster:
        parts = ByCluster(partial(Groups, DEFAULT), DEFAULT)
        for each in exchanges:
            parts.feed(Facts(each, FetchSessions(DEFAULT)))
        return parts

    whole, divided = counted(*fed), counted(fed[3])
    divided.merge(counted(*fed[:3], fed[4]))
    results = [
        {cluster: set(part.groups) for cluster, part in each.by_id().items()} for each in (whole, divided)
    ]
    assert results[0] == results[1] == {None: {"readers"}, "B": set(), "C": set()}


def test_parts_share_the_rows_of_a_table() -> None:
    """However many clusters there are, a table of names has as many rows as with one."""
    limits = Limits(summary_rows=4)
    parts = ByCluster(partial(Groups, limits), limits)
    for broker, names in (("10.0.0.1", "abc"), ("10.0.0.2", "def"), ("10.0.0.3", "g")):
        groups = parts.of(connection(broker=broker)).groups
        for name in names:
            groups[name].seen += 1
    assert sum(len(part.groups) for part in parts.parts.values()) == 4
    assert sum(part.groups.other.seen for part in parts.parts.values() if part.groups.other) == 3
    one, two, _ = parts.parts.values()
    one.merge(two)
    assert set(one.groups) == {"a", "b", "c", "d"}
    one.groups["e"].seen += 1
    assert "e" not in one.groups
    one.groups.pop("a")
    one.groups["e"].seen += 1
    assert "e" in one.groups
