from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kdissect import __version__
from kdissect.anomalies import CATALOGUE
from kdissect.extras import install
from kdissect.limits import DEFAULT
from kdissect.model import Anomaly
from kdissect.pipeline import Dissection
from kdissect.stats.connection_log import ConnectionFeed
from kdissect.stats.pulse import OTHER, Pulse
from kdissect.text.metrics import BUCKETS, Metrics
from tests.frames import heartbeats
from tests.pulses import BATCH, NOT_LEADER, at, beat, busy, commit, fetch, produce
from tests.segments import ACK, PSH, RST, SYN, Talk

if TYPE_CHECKING:
    from kdissect.limits import Limits
    from kdissect.stats.facts import Facts

Scraped = dict[tuple[str, ...], float]


def metrics_of(*facts: Facts, pulse: Pulse | None = None, limits: Limits = DEFAULT) -> Metrics:
    pulse = pulse or Pulse(limits)
    metrics = Metrics(limits, pulse.now, lambda: (7, 2))
    for each in facts:
        pulse.feed(each)
        metrics.feed(each)
    return metrics


def scraped(metrics: Metrics) -> Scraped:
    """Samples by name and labels' values, in order of the labels' names."""
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    samples = [sample for family in families for sample in family.samples]
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for sample in samples
    }


def test_exchanges_their_bytes_and_latencies() -> None:
    samples = scraped(metrics_of(beat(0), beat(1, latency_ms=400), produce(2)))
    assert samples["kdissect_exchanges_total", "Heartbeat", "answered"] == 2
    assert samples["kdissect_exchanges_total", "Produce", "answered"] == 1
    assert samples["kdissect_request_bytes_total", "Heartbeat"] == 200
    assert samples["kdissect_response_bytes_total", "Heartbeat"] == 400
    assert samples["kdissect_latency_seconds_count", "Heartbeat"] == 2
    assert samples["kdissect_latency_seconds_sum", "Heartbeat"] == pytest.approx(0.405)
    assert samples["kdissect_latency_seconds_bucket", "Heartbeat", "0.005"] == 1
    assert samples["kdissect_latency_seconds_bucket", "Heartbeat", "0.5"] == 2
    assert (
        len([key for key in samples if key[:2] == ("kdissect_latency_seconds_bucket", "Heartbeat")])
        == len(BUCKETS) + 1
    )
    assert samples["kdissect_client_exchanges_total", "app"] == 2


def test_connections() -> None:
    metrics = metrics_of()
    feed = ConnectionFeed(
        DEFAULT, lambda row: metrics.connect(row, did_not_open=row.opening == "refused"), filtered=False
    )
    cut_off = Talk().handshake().client_sends(heartbeats(1)[0]).broker_acks()
    cut_off.waits(0.3).put(0, PSH | ACK, heartbeats(1)[0], sequence=1001).put(1, ACK, window=0).waits(
        2
    ).reset(1)
    refused = Talk(client=("10.0.0.1", 40_001)).put(0, SYN, acknowledgment=0).put(1, RST | ACK)
    for exchange in Dissection([*cut_off.packets, *refused.packets], observer=feed):
        feed.exchange(exchange)
    samples = scraped(metrics)
    assert samples["kdissect_connections_ended_total", "broker", "RST"] == 1
    assert samples[("kdissect_connections_cut_off_total",)] == 1
    assert samples["kdissect_connections_not_opened_total", "refused"] == 1
    assert samples["kdissect_tcp_segments_total", "client"] == 1
    assert samples["kdissect_tcp_retransmissions_total", "client"] == 1
    assert samples["kdissect_tcp_zero_window_seconds_total", "broker"] == pytest.approx(2, abs=0.1)
    assert samples[("kdissect_connect_seconds_count",)] == 1


def test_errors_and_anomalies() -> None:
    with_anomaly = beat(1, error=27)
    with_anomaly.exchange.anomalies.append(Anomaly(next(iter(CATALOGUE)), "x", "y"))
    samples = scraped(metrics_of(beat(0, error=27), with_anomaly))
    assert samples["kdissect_errors_total", "Heartbeat", "REBALANCE_IN_PROGRESS"] == 2
    assert samples["kdissect_client_errors_total", "app"] == 2
    assert samples["kdissect_anomalies_total", next(iter(CATALOGUE))] == 1


def test_records_by_direction() -> None:
    facts = produce(0), produce(1, error=NOT_LEADER), fetch(2), fetch(3, replica_id=1)
    samples = scraped(metrics_of(*facts))
    for direction in ("produced", "fetched", "replicated"):
        assert samples["kdissect_topic_records_total", direction, "orders"] == 10
        assert samples["kdissect_topic_bytes_total", direction, "orders"] == len(BATCH)
    assert samples["kdissect_topic_errors_total", "orders"] == 1


def test_gauges() -> None:
    samples = scraped(metrics_of(pulse=busy()))
    assert samples["kdissect_build_info", __version__] == 1
    assert samples["kdissect_packets_total",] == 1234
    assert samples["kdissect_packets_dropped_total", "kernel"] == 7
    assert samples["kdissect_packets_dropped_total", "kdissect"] == 2
    assert samples["kdissect_last_packet_age_seconds",] == 0
    assert samples["kdissect_group_members", "g"] == 1
    assert samples["kdissect_group_lag_records", "g"] == 510
    assert samples["kdissect_group_rebalances_total", "g"] == 1
    assert samples["kdissect_group_state", "g", "stable"] == 1
    assert samples["kdissect_group_state", "g", "rebalancing"] == 0
    assert samples["kdissect_client_connections", "shop"] == 1
    of_clients = sum(value for key, value in samples.items() if key[0] == "kdissect_client_connections")
    assert samples["kdissect_connections",] == of_clients == 5


def test_software_of_clients() -> None:
    known = {"client_software_name": "apache-kafka-java", "client_software_version": "4.1.0"}
    samples = scraped(metrics_of(beat(0, **known)))
    assert samples["kdissect_client_info", "app", "apache-kafka-java 4.1.0"] == 1


def test_a_wait_is_no_service() -> None:
    waited, unknown = fetch(0), fetch(0)
    waited.wait_us, unknown.wait_us = 500_000, None
    waited.service_us = unknown.service_us = None
    samples = scraped(metrics_of(waited, unknown, beat(0)))
    assert samples["kdissect_wait_seconds_sum", "Fetch"] == 0.5
    assert samples["kdissect_long_polls_total", "Fetch"] == 1
    assert samples["kdissect_undetermined_total", "Fetch"] == 1
    assert samples["kdissect_latency_seconds_count", "Fetch"] == 1
    assert ("kdissect_service_seconds_count", "Fetch") not in samples
    assert samples["kdissect_service_seconds_count", "Heartbeat"] == 1


def test_what_clients_waited_includes_waits_and_transfers() -> None:
    facts = fetch(0)
    facts.wait_us, facts.service_us = 500_000, None
    exchange, latency_us = facts.exchange, facts.latency_us
    assert exchange.request_frame
    assert exchange.response_frame
    assert latency_us
    start_ns, end_ns = (
        exchange.request_frame.end_ns - 1_000_000_000,
        exchange.response_frame.start_ns + 2_000_000_000,
    )
    exchange.request_frame = exchange.request_frame._replace(size=0, start_ns=start_ns)  # no byte is missing
    exchange.response_frame = exchange.response_frame._replace(size=0, end_ns=end_ns)
    samples = scraped(metrics_of(facts))
    assert samples["kdissect_total_seconds_sum", "Fetch"] == (1_000_000 + latency_us + 2_000_000) / 1e6


def test_labels_are_escaped_and_cut() -> None:
    name = 'a "b"\\c\x9b ' + "x" * 1000
    samples = scraped(metrics_of(beat(0, name)))
    assert samples["kdissect_client_exchanges_total", name[:200].replace("\x9b", r"\x9b")] == 1


def test_names_are_limited_and_the_others_are_counted_together() -> None:
    limits = replace(DEFAULT, metric_labels=3)
    facts = [
        each
        for number in range(50)
        for each in (
            beat(number / 100, f"client-{number}", error=number),
            produce(number / 100, f"topic-{number}"),
            commit(number / 100, 1, f"group-{number}", f"topic-{number}"),
        )
    ]
    metrics = metrics_of(*facts, limits=limits)
    samples = scraped(metrics)
    clients = {key[1] for key in samples if key[0] == "kdissect_client_exchanges_total"}
    assert clients == {"client-0", "shop", "reader", OTHER}
    assert samples["kdissect_client_exchanges_total", OTHER] == 49
    topics = {key[2] for key in samples if key[0] == "kdissect_topic_records_total"}
    assert topics == {"topic-0", "topic-1", "topic-2", OTHER}
    assert samples["kdissect_topic_records_total", "produced", OTHER] == 470
    groups = {key[1] for key in samples if key[0] == "kdissect_group_members"}
    assert len(groups) == 4
    assert len({key[2] for key in samples if key[0] == "kdissect_errors_total"}) == 4
    count = len(samples)
    for number in range(100, 200):
        metrics.feed(beat(number / 100, f"client-{number}"))
    assert len(scraped(metrics)) <= count


def test_counters_only_grow_and_no_series_goes() -> None:
    pulse = Pulse()
    metrics = metrics_of(beat(0), produce(0), pulse=pulse)
    before = scraped(metrics)
    pulse.tick(at(1000), 5)
    after = scraped(metrics)
    totals = {key: value for key, value in before.items() if key[0].endswith(("_total", "_count", "_bucket"))}
    assert all(after[key] >= value for key, value in totals.items())
    assert not any(key[0].endswith("_created") for key in after)


def test_no_credential_and_no_principal_is_a_label() -> None:
    samples = scraped(metrics_of(beat(0, principal="User:alice", sasl_mechanism="PLAIN")))
    assert not any("alice" in part for key in samples for part in key)


def test_every_metric_is_documented() -> None:
    families = text_string_to_metric_families(generate_latest(metrics_of(beat(0)).registry).decode())
    page = Path("docs/metrics.md").read_text(encoding="utf-8")
    ours = [family for family in families if family.name.startswith("kdissect_")]
    assert len(ours) > 20
    for family in ours:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"`{name}`" in page, name
        assert family.documentation


def test_without_the_library_the_error_says_what_to_install() -> None:
    hidden = "import sys; sys.modules['prometheus_client'] = None"
    code = f"{hidden}; from kdissect.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "live", "-i", "lo", "--prometheus", ":0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"kdissect: --prometheus needs prometheus-client: {install('metrics')}\n"


# Alerts and dashboard


MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"


def test_alerts_and_the_dashboard_use_metrics_that_exist() -> None:
    registry = metrics_of(beat(3, error=NOT_LEADER), pulse=busy()).registry
    labels = {
        name: frozenset(collector._labelnames)
        for collector, names in registry._collector_to_names.items()
        for name in names
        if hasattr(collector, "_labelnames")
    }
    families = text_string_to_metric_families(generate_latest(registry).decode())
    for sample in (sample for family in families for sample in family.samples):
        labels[sample.name] = labels.get(sample.name, frozenset()) | sample.labels.keys()
    for name in ("alerts.yml", "dashboard.json"):
        text = (MONITORING / name).read_text()
        for expression in re.findall(r'(?:expr: |"expr": ")(.*)', text):
            used = re.findall(r"kdissect_\w+", expression)
            assert used
            assert set(used) <= labels.keys(), expression
            grouped = {
                each for names in re.findall(r"by \(([^)]*)\)", expression) for each in names.split(", ")
            }
            assert grouped - {"instance", "le"} <= frozenset().union(*(labels[each] for each in used)), (
                expression
            )


def test_promtool_accepts_the_alerts() -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed")
    for arguments in (("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")):
        done = subprocess.run(
            [promtool, *arguments], cwd=MONITORING, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
