from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from kdissect.exchanges.nodes import Node, names_nodes, nodes
from kdissect.limits import DEFAULT
from kdissect.tables.native_rows import native_row
from kdissect.tables.rows import TABLES
from kdissect.tables.whole import WHOLE_TABLES, WholeRows
from samples.golden import captures, name_of
from tests.core import needs_core
from tests.exchange_factory import START_NS, connection, exchange
from tests.exports import json_rows, parquet_rows
from tests.shared import say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kdissect.limits import Limits
    from kdissect.model import Exchange

SAMPLES = {name_of(path): path for path in captures()}
SECOND_NS = 1_000_000_000


def rows(
    exchanges: Sequence[Exchange], parts: int = 1, limits: Limits = DEFAULT
) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of ``brokers``, from a number of parts that are merged; what is missing."""
    made = [WholeRows(["brokers"], limits) for _ in range(parts)]
    for number, each in enumerate(exchanges):
        made[number % parts].feed(each)
    first, *others = made
    for other in others:
        first.merge(other.of_clusters)
    columns = WHOLE_TABLES["brokers"].columns
    result = [{column.name: column.get(row) for column in columns} for _, row in first.close()]
    return result, first.left_out()


def metadata(second: int, *brokers: tuple[int, str, str | None], cluster: str | None = "A") -> Exchange:
    response = {
        "brokers": [
            {"node_id": node_id, "host": host, "port": 9092, "rack": rack} for node_id, host, rack in brokers
        ],
        "cluster_id": cluster,
        "topics": [],
    }
    known = connection()
    known.cluster_id = cluster
    return exchange(
        "Metadata", 9, {"topics": []}, response, time_ns=START_NS + second * SECOND_NS, connection=known,
        number=second,
    )  # fmt: skip


@pytest.mark.parametrize("parts", [1, 3])
def test_brokers(parts: int) -> None:
    exchanges = [
        metadata(1, (1, "kafka-1", "a"), (2, "kafka-2", None)),
        metadata(2, (1, "kafka-1", "b")),
        metadata(3, (1, "kafka-9", None)),  # it has moved
        metadata(4, (1, "kafka-1", None), cluster="B"),
    ]
    found, missing = rows(exchanges, parts)
    keys = "cluster_id", "node_id", "host", "port", "rack", "number"
    assert [tuple(row[key] for key in keys) for row in found] == [
        ("A", 1, "kafka-1", 9092, "b", 1),
        ("A", 2, "kafka-2", 9092, None, 1),
        ("A", 1, "kafka-9", 9092, None, 3),
        ("B", 1, "kafka-1", 9092, None, 4),
    ]
    assert [(row["time"], row["last_time"]) for row in found[:2]] == [
        (START_NS + first * SECOND_NS, START_NS + last * SECOND_NS) for first, last in ((1, 2), (1, 1))
    ]
    assert not missing


def test_a_broker_named_before_its_cluster_is_in_it() -> None:
    one = exchange(
        "FindCoordinator", 2, {"key": "g", "key_type": 0},
        {"error_code": 0, "node_id": 1, "host": "kafka-1", "port": 9092},
        time_ns=START_NS, number=1,
    )  # fmt: skip
    for parts in (1, 2):
        (row,), _ = rows([one, metadata(1, (1, "kafka-1", "a"))], parts)
        assert (row["cluster_id"], row["rack"], row["number"], row["time"]) == ("A", "a", 1, START_NS)


def test_brokers_are_limited() -> None:
    exchanges = [metadata(number, (number, "kafka", None)) for number in range(5)]
    found, missing = rows(exchanges, limits=replace(DEFAULT, export_brokers=3))
    assert [row["node_id"] for row in found] == [0, 1, 2]
    assert missing == ["brokers: more than the limit export_brokers; the others are not in the table"]


LISTENERS = [{"name": "IN", "host": "in-1", "port": 9093}, {"name": "OUT", "host": "out-1", "port": 9092}]


@pytest.mark.parametrize(
    ("api", "version", "request_body", "response_body"),
    [
        ("DescribeQuorum", 2, {"topics": []}, {"nodes": [{"node_id": 1, "listeners": LISTENERS}]}),
        ("BrokerRegistration", 4, {"broker_id": 1, "listeners": LISTENERS, "rack": "a"}, {"error_code": 0}),
        ("AddRaftVoter", 0, {"voter_id": 1, "listeners": LISTENERS}, {"error_code": 0}),
        (
            "UpdateMetadata",
            6,
            {"controller_id": 9, "live_brokers": [{"id": 1, "endpoints": LISTENERS, "rack": "a"}]},
            {"error_code": 0},
        ),
    ],
)
def test_listeners(
    api: str, version: int, request_body: dict[str, Any], response_body: dict[str, Any]
) -> None:
    rack = "a" if "rack" in str(request_body) else None
    assert list(nodes(exchange(api, version, request_body, response_body))) == [
        Node(1, "in-1", 9093, rack),
        Node(1, "out-1", 9092, rack),
    ]


def test_what_names_no_broker() -> None:
    nobody = {"error_code": 15, "node_id": -1, "host": "", "port": -1}
    assert not list(nodes(exchange("FindCoordinator", 2, {"key": "g", "key_type": 0}, nobody)))
    assert not list(nodes(exchange("Metadata", 9, {"topics": []}, None)))
    assert not list(nodes(exchange(None, 0)))
    assert names_nodes(3, 0)
    assert not names_nodes(1, 17)  # Fetch, of which each exchange would be read


# ------------------------------------------------------------------------------------------------------------
# Rebalances: those of the summary, whoever made the rows.
# ------------------------------------------------------------------------------------------------------------


def moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def in_summary(path: Path) -> list[tuple[Any, ...]]:
    document = orjson.loads(say("summary", "--groups", "--json", path).out)
    return sorted(
        (
            group["cluster_id"], group["group"], moment(each["start"]), moment(each["end"]),
            each["generation_before"], each["generation_after"], each["members_before"],
            each["members_after"], each["joins"], each["protocol"], each["leader"], each["exchange"],
            *((cause["cause"], cause["member_id"], cause["reason"]) for cause in each["causes"]),
        )
        for group in document["group_history"]
        for each in group["rebalances"]
    )  # fmt: skip


def in_table(directory: Path) -> list[tuple[Any, ...]]:
    return sorted(
        (
            row["cluster_id"], row["group_id"], moment(row["time"]), moment(row["end_time"]),
            row["generation_before"], row["generation_after"], row["members_before"], row["members_after"],
            row["joins"], row["protocol"], row["leader"], f"{row['connection']}/{row['number']}",
            *((cause["cause"], cause["member_id"], cause["reason"]) for cause in row["causes"]),
        )
        for row in json_rows(directory / "rebalances")
    )  # fmt: skip


@pytest.mark.usefixtures("with_core_and_without")
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("name", ["kafka-4-storm", "kafka-4-cluster", "mock-rebalance"])
def test_rebalances_are_those_of_the_summary(name: str, jobs: int, tmp_path: Path) -> None:
    path = SAMPLES[name]
    say("export", "-j", jobs, "-o", tmp_path, "--tables", "rebalances", path)
    rebalances = in_table(tmp_path)
    assert rebalances == in_summary(path)
    assert len(rebalances) >= 5


@needs_core
def test_members_are_alive_whether_the_core_or_python_saw_it(tmp_path: Path) -> None:
    """Heartbeats and commits of stable groups, which the core finishes."""
    path, made = SAMPLES["kafka-4-storm"], []
    assert native_row(12, 4) is not None  # Heartbeat
    for name, options in (("core", ()), ("python", ("--where", "number >= 0"))):
        tables = "exchanges,partitions,groups,brokers,rebalances"
        out = tmp_path / name
        say("export", "--format", "parquet", "-j", 1, "--tables", tables, "-o", out, *options, path)
        made.append([parquet_rows(out / table, TABLES[table]) for table in WHOLE_TABLES])
    assert made[0] == made[1]
    assert any(cause["cause"] == "timeout" for row in made[0][1] for cause in row["causes"])


def test_events_beyond_the_limits_are_reported(tmp_path: Path) -> None:
    limit = "summary_group_events=5"
    done = say("export", "-o", tmp_path, "--limits", limit, SAMPLES["kafka-4-storm"])
    assert "rebalances: " in done.err.decode()
    assert " events of groups beyond the limits summary_group_" in done.err.decode()
