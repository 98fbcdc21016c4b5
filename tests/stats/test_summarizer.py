"""Numbers equal what the clients of the samples say; parts of a capture add up to the whole."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from functools import cache, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect import dissect, open_capture, summarize
from kdissect.exchanges.clusters import Clusters
from kdissect.exchanges.learned import LearnedFacts, Listeners
from kdissect.limits import DEFAULT, Limits
from kdissect.names import kept
from kdissect.pipeline import Dissection
from kdissect.stats.cluster import Cluster
from kdissect.stats.connection_log import ConnectionFeed
from kdissect.stats.findings.leaders import Leaders
from kdissect.stats.findings.listeners import ResolvedNames
from kdissect.stats.intervals import Shares
from kdissect.stats.lag import Samples
from kdissect.stats.quantiles import Bounded, Distinct, Largest, Quantiles
from kdissect.stats.summarizer import PARTS, Summarizer
from kdissect.stats.sums import Summed, carried, own
from kdissect.stats.transactions import Transactions
from samples.golden import captures, name_of

if TYPE_CHECKING:
    from kdissect.model import Exchange
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.document import Summary

BY = frozenset({"partition", "group", "connection"})
NOT_READABLE = {"tls", "midstream", "http-on-9092"}
OWN = own().metadata["join"]
SAMPLES = [path for path in captures() if name_of(path) not in NOT_READABLE]


@cache
def connections(path: Path) -> list[ConnectionLogRow]:
    """All connections of a sample that have ended, in the order of their ends."""
    rows: list[ConnectionLogRow] = []
    log = ConnectionFeed(DEFAULT, rows.append, filtered=False)
    with open_capture(path) as packets:
        for exchange in Dissection(packets, observer=log):
            log.exchange(exchange)
    log.close()
    return rows


@cache
def exchanges(path: Path) -> list[Exchange]:
    with open_capture(path) as packets:
        return list(dissect(packets))


def truth(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(Path(f"samples/{name_of(path)}.truth.json").read_text())
    return result


@pytest.mark.parametrize("path", [path for path in SAMPLES if truth(path)["requests"]], ids=name_of)
def test_requests_by_api_and_client_are_those_of_the_clients(path: Path) -> None:
    rows = [
        row | {"client_id": kept(row["client_id"])} for row in truth(path)["requests"] if row["client_id"]
    ]
    telling = {row["client_id"] for row in rows}
    summary = summarize(exchanges(path))
    assert summary.clients is not None
    seen = {row.client: row.exchanges for row in summary.clients if row.client in telling}
    logged = Counter(row["client_id"] for row in rows)
    assert seen == dict(logged)
    apis: Counter[str] = Counter()
    for row in summary.clients:
        if row.client in telling:
            apis.update(row.apis)
    assert apis == Counter(named(row["api"]) for row in rows)


@pytest.mark.parametrize("path", SAMPLES, ids=name_of)
def test_tables_add_up(path: Path) -> None:
    summary = summarize(exchanges(path), by=BY, interval_s=1)
    for table in (summary.apis, summary.brokers, summary.clients, summary.connections):
        assert table is not None
        assert sum(row.exchanges for row in table) == len(exchanges(path))
        assert sum(row.request_bytes for row in table) == summary.capture.request_bytes
    assert summary.intervals is not None
    assert sum(row.exchanges for row in summary.intervals if row.key is None) == len(exchanges(path))
    assert summary.topics is not None
    assert summary.partitions is not None
    for name in ("produced_bytes", "fetched_bytes", "replicated_bytes", "produced_batches"):
        by_topic = Counter[str]()
        for row in summary.partitions:
            by_topic[row.topic] += getattr(row, name)
        assert +by_topic == Counter(
            {row.topic: count for row in summary.topics if (count := getattr(row, name))}
        )


def named(api: str | None) -> str:
    """As a summary calls what has no name."""
    return "SASL token" if api is None else f"api {api}" if api.isdecimal() else api


def untimed(summary: Summary) -> dict[str, Any]:
    """A summary as plain values, without percentiles and what depends on the order of what is equal."""
    plain = json.loads(json.dumps(_plain(summary)))
    assert isinstance(plain, dict)
    return plain


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        names = [name for name in value.__dataclass_fields__ if name != "captures"]
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: value[key] for key in sorted(value)}
    return value if isinstance(value, int | float | bool | None) else str(value)


def state(value: Any) -> Any:
    """What was counted, of all that declares how it adds up; lists in no order."""
    if isinstance(value, Summed):
        names = {*carried(value)}
        counted = {
            name: getattr(value, name)
            for name, join, _ in type(value).declared
            if join is not OWN and name in names
        }
        if isinstance(value, Transactions):  # one part knows the name of a producer ID, another does not
            counted["producers"] = value._merged_by_name()
        return state(counted)
    if isinstance(value, Quantiles):
        return value.count, value.total, value.min, value.max, value.at((0.01, 0.5, 0.99)), value.buckets()
    if isinstance(value, Distinct):
        return len(value), value.first(100)
    if isinstance(value, Largest):
        return value.all()
    if isinstance(value, Samples):
        return value.count, value.in_order()
    if isinstance(value, Cluster):
        return value.nodes, value.clusters, value.offers
    if isinstance(value, Leaders):
        return value.terms
    if isinstance(value, Shares):
        return sum(value.numbers)
    if isinstance(value, LearnedFacts):
        return value.topics
    if isinstance(value, Listeners):
        return sorted(value)
    if isinstance(value, Clusters):
        return value.known, value.given
    if isinstance(value, ResolvedNames):
        return value.addresses
    if isinstance(value, Bounded):
        return state(dict(value)), state(value.other)
    if isinstance(value, dict):
        return {key: state(each) for key, each in value.items()}
    return sorted(value, key=repr) if isinstance(value, list) else value


def both(one: Summarizer, other: Summarizer) -> Summarizer:
    summary: Summarizer = pickle.loads(pickle.dumps(one))
    summary.merge(pickle.loads(pickle.dumps(other)))
    return summary


@given(most=st.integers(2, 3), data=st.data())
def test_parts_divided_by_connection_merge_into_one_run(most: int, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(SAMPLES))
    all_of = exchanges(path)
    ids = sorted({each.connection.id for each in all_of})
    part_of = {each: data.draw(st.integers(0, most - 1)) for each in ids}
    everything, *parts = (
        Summarizer(DEFAULT, by=BY, parts=frozenset(PARTS), interval_ns=10**9) for _ in range(most + 1)
    )
    for each in all_of:
        parts[part_of[each.connection.id]].feed(each)
        everything.feed(each)
    for row in connections(path):
        parts[part_of.get(row.id, 0)].connect(row)
        everything.connect(row)
    first, *others = parts
    joined = [reduce(both, parts), *([both(first, reduce(both, others))] if others[1:] else [])]
    expected = untimed(everything.close([], {}, {}))
    whole = state(everything)
    for merged in joined:
        assert state(merged) == whole
        assert untimed(merged.close([], {}, {})) == expected


def test_full_tables_say_so() -> None:
    path = next(path for path in SAMPLES if name_of(path) == "quickstart")
    summary = summarize(exchanges(path), limits=Limits(summary_rows=2), by=BY)
    assert summary.apis is not None
    assert len(summary.apis) == 2
    kept = sum(row.exchanges for row in summary.apis)
    assert summary.other["apis"] == len(exchanges(path)) - kept
    assert {"apis", "clients", "connections"} <= set(summary.other)


def test_a_dissection_brings_its_counts() -> None:
    path = next(path for path in SAMPLES if name_of(path) == "quickstart")
    with open_capture(path) as packets:
        summary = summarize(dissect(packets))
    assert summary.capture.packets == 283
    assert summary.capture.connections == {"Kafka": 12}
    assert summary.capture.captures == [str(path)]


def test_nothing_is_a_summary_too() -> None:
    summary = summarize([])
    assert summary.capture.exchanges == 0
    assert (summary.capture.first, summary.apis, summary.errors) == (None, [], [])
