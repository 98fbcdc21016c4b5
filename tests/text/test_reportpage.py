from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import dissect, open_capture
from kdissect.limits import DEFAULT
from kdissect.stats.document import BusiestRow, EvidenceRow
from kdissect.stats.intervals import MAX_INTERVALS, SHORTEST_NS
from kdissect.stats.rows import moment
from kdissect.stats.summarizer import PARTS, Summarizer
from kdissect.text.style import PLAIN
from samples.golden import ROOT
from tests.reports import NEEDS_EXTRA
from tests.text.test_checkpage import FULL

if TYPE_CHECKING:
    from kdissect.stats.document import Summary

pytestmark = NEEDS_EXTRA

MAX_BYTES = 3_000_000


@cache
def summary(sample: str = "kafka-4-lag") -> Summary:
    with open_capture(ROOT / f"samples/{sample}.pcap.gz") as packets:
        dissection = dissect(packets)
        counted = Summarizer(
            DEFAULT, parts=frozenset(PARTS), interval_ns=SHORTEST_NS, max_intervals=MAX_INTERVALS
        )
        connections = counted.connection_feed(DEFAULT, filtered=False)
        dissection.observe(connections)
        for exchange in dissection:
            counted.feed(exchange)
            connections.exchange(exchange)
        connections.close()
        return counted.close([sample], dissection.counts, dissection.skipped)


def test_charts_show_what_the_document_has() -> None:
    from kdissect.text import charts  # altair takes a second

    document = summary()
    drawn = {chart.name: chart for chart in charts.charts(document)}
    assert document.intervals is not None
    seconds = document.intervals[0].seconds
    columns = drawn["throughput"].columns
    series = [name for name in columns if name not in ("t", "e")]
    assert len(series) == 8
    assert series[-1] == "others"
    total = sum(sum(columns[name]) for name in series) * seconds
    assert total == pytest.approx(document.capture.exchanges)
    counts = drawn["distribution"].columns
    ranges = [name for name in counts if name not in ("t", "e")]
    assert sum(sum(counts[name]) for name in ranges) == sum(
        row.service_us.count for row in document.intervals
    )
    assert max(map(max, (drawn["latency"].columns[name] for name in ("p50", "p95", "p99")))) == (
        max(row.service_us.p99 or 0 for row in document.intervals) / 1000
    )
    lag = drawn["lag"].columns
    assert document.lag_over_time is not None
    for row in document.lag_over_time:
        shown = [
            lag for name, lag in zip(lag["name"], lag["records"], strict=True) if name == f"group {row.group}"
        ]
        assert shown == [point.lag for point in row.points]
        assert max(shown) == row.lag_worst
    assert sum(sum(row.exchanges or ()) for row in document.busiest or () if row.table == "client") == (
        document.capture.exchanges
    )
    for chart in drawn.values():
        assert len({len(values) for values in chart.columns.values()}) == 1
        if chart.name == "matrix":
            assert sum(chart.columns["connections"]) == document.capture.connections["Kafka"]
            continue
        assert all(
            start < end for start, end in zip(chart.columns["t"], chart.columns["e"], strict=True)
        ) or (chart.name == "lag")


def many(rows: list[Any] | None, count: int, **names: str) -> list[Any]:
    """The first of some rows, many times, with long names that are longer in HTML."""
    assert rows
    long = "<&>'\"" * 50
    return [
        replace(rows[0], **{field: f"{name}{number}{long}" for field, name in names.items()})
        for number in range(count)
    ]


def test_the_page_of_a_large_cluster_is_not_larger_than_it_says() -> None:
    from kdissect.text import charts  # altair takes a second
    from kdissect.text.report_page import page

    known = summary()
    assert known.intervals is not None
    assert known.group_history is not None
    assert known.slowest is not None
    group = replace(
        known.group_history[0],
        members=many(known.group_history[0].members, 100, client="client", member_id="member"),
        rebalances=known.group_history[0].rebalances * 100,
    )
    apis = {f"Api{number}": 1_234_567 + number for number in range(90)}
    interval = replace(known.intervals[0], apis=apis, api_bytes=apis, error_names=apis, anomalies=apis)
    rates = [1_234_567 + 89 * number for number in range(MAX_INTERVALS)]
    busy = BusiestRow(
        table="", name="", exchanges=rates, errors=rates, produced_bytes=rates, fetched_bytes=rates
    )
    document = replace(
        known,
        topics=many(known.topics, 5_000, topic="topic"),
        clients=many(known.clients, 5_000, client="client"),
        brokers=many(known.brokers, 2_000, broker="broker"),
        errors=many(known.errors, 5_000, client="client", topic="topic"),
        lag=many(known.lag, 5_000, name="reader", topic="topic"),
        client_connections=many(known.client_connections, 5_000, client="client"),
        host_connections=many(known.host_connections, 5_000, host="host"),
        connections_over_time=many(known.connections_over_time, 400, client="client"),
        lag_over_time=many(known.lag_over_time, 20, group="group"),
        findings=many(known.findings, 1_000, subject="subject", message="message", advice="advice"),
        slowest=many(known.slowest, 50, client="client"),
        group_history=[replace(group, group=f"{number}{'<' * 300}") for number in range(1_000)],
        busiest=[
            replace(row, table=table)
            for table in ("broker", "client", "topic", "group")
            for row in many([busy], 8, name=table)
        ],
        intervals=[
            replace(interval, start=moment(number * 10**12), service_counts=[number + 1] * 17)
            for number in range(MAX_INTERVALS)
        ],
    )
    evidence = EvidenceRow(
        exchange="", time=known.slowest[0].time, api="Fetch", client="", broker="10.0.0.1:9092", topics=[],
        outcome="answered", errors=["UNKNOWN_TOPIC_OR_PARTITION"], request_transfer_us=1, latency_us=100,
        queued_us=20, throttled_us=20, network_us=20, wait_us=None, service_us=None, response_transfer_us=1,
    )  # fmt: skip
    rows = [
        replace(row, topics=[row.client] * 5, exchange=f"c0ffee/{number}")
        for number, row in enumerate(many([evidence], 250, client="client"))
    ]
    text = page(document, FULL, rows, PLAIN)
    assert len(text.encode()) < MAX_BYTES
    assert "4,900 others with " in text
    assert "950 more, not shown" in text
    for chart in charts.charts(document):
        assert max(map(len, chart.columns.values())) <= MAX_INTERVALS


def test_attempts_to_connect_are_one_line_and_other_connections_have_their_own() -> None:
    from kdissect.text import charts  # altair takes a second

    document = summary("kafka-4-cluster")
    drawn = charts.chart("lifetimes", document)
    assert drawn is not None
    lines = Counter(zip(drawn.columns["name"], drawn.columns["kind"], strict=True))
    assert lines.pop(("127.0.0.1 to 127.0.0.1:19293", "refused")) == 25
    assert {*lines.values()} == {1}
    assert len(lines) == 29
    assert {kind for _, kind in lines} == {"client FIN", "broker FIN"}
    row = replace((document.connections_over_time or [])[-1], ending="broker RST", outstanding=2)
    drawn = charts.chart("lifetimes", replace(document, connections_over_time=[row]))
    assert drawn is not None
    assert drawn.columns["kind"] == ["broker RST, requests outstanding"]
    color = drawn.spec()["layer"][0]["encoding"]["color"]["scale"]
    assert color["domain"] == drawn.columns["kind"]
    assert len(color["range"]) == 1


def test_findings_say_whom_they_hit_what_they_cost_and_what_explains_them() -> None:
    from kdissect.text.report_page import page

    text = page(summary("kafka-4-cluster"), FULL, (), PLAIN)
    assert "<dt>Whom</dt><dd>1 client host: 127.0.0.1; 1 broker: 127.0.0.1:19293; 63 connections</dd>" in text
    assert "<dt>Cost</dt><dd>60 connections failed, 15.97s lost</dd>" in text
    assert text.count("<dt>Explained by</dt><dd>broker-unreachable</dd>") == 2
    assert "NamesRow" not in text


def test_tables_link_to_the_latencies_that_are_on_the_page() -> None:
    from kdissect.text.report_page import page

    document = summary("kafka-4-cluster")
    assert document.errors is not None
    example = document.errors[0].example
    slow = many(document.slowest, 1)[0]
    text = page(replace(document, slowest=[replace(slow, exchange=example)]), FULL, (), PLAIN)
    assert f'<td><a href="#x-{example}">{example}</a></td>' in text
    assert f'<tr id="x-{example}">' in text
    assert f"<td>{document.errors[-1].example}</td>" in text


def test_an_api_has_the_same_color_in_all_charts() -> None:
    from kdissect.text import charts  # altair takes a second

    colors: dict[str, str] = {}
    for name in ("throughput", "bytes"):
        drawn = charts.chart(name, summary("kafka-4-cluster"))
        assert drawn is not None
        scale = drawn.spec()["encoding"]["color"]["scale"]
        shown = dict(zip(scale["domain"], scale["range"], strict=True))
        assert len({*shown.values()}) == len(shown)
        usual = {"Fetch", "Produce", "Metadata", "ApiVersions", "others"} & {*shown}
        assert len(usual) == 5
        assert {api: colors.setdefault(api, shown[api]) for api in usual} == {
            api: shown[api] for api in usual
        }
