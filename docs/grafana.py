"""A table of panels -> docs/monitoring/dashboard.json, a dashboard for Grafana. Written by generate.py."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

_WIDTH, _HEIGHT = 24, 8  # of the page in Grafana's columns, and of a panel


class Panel(NamedTuple):
    """A panel.

    Attributes:
        unit: Grafana's name of it.
        legend: of each series.
        queries: in PromQL.
    """

    title: str
    unit: str
    legend: str
    queries: tuple[str, ...]


PANELS = (
    Panel(
        "Exchanges by API",
        "reqps",
        "{{api}}",
        ("sum by (api) (rate(kdissect_exchanges_total[$__rate_interval]))",),
    ),
    Panel(
        "Service time, p99",
        "s",
        "{{api}}",
        (
            (
                "histogram_quantile(0.99, sum by (le, api) "
                "(rate(kdissect_service_seconds_bucket[$__rate_interval])))"
            ),
        ),
    ),
    Panel(
        "Errors",
        "ops",
        "{{error}} in {{api}}",
        ("sum by (api, error) (rate(kdissect_errors_total[$__rate_interval]))",),
    ),
    Panel(
        "Unanswered and overdue requests",
        "short",
        "{{api}}",
        (
            "sum by (api) (increase(kdissect_unanswered_requests_total[$__rate_interval]))",
            "sum by (api) (kdissect_overdue_requests)",
        ),
    ),
    Panel("Lag by group", "short", "{{group}}", ("max by (group) (kdissect_group_lag_records)",)),
    Panel(
        "Rebalances by group",
        "short",
        "{{group}}",
        ("sum by (group) (increase(kdissect_group_rebalances_total[$__rate_interval]))",),
    ),
    Panel("Members by group", "short", "{{group}}", ("max by (group) (kdissect_group_members)",)),
    Panel(
        "Bytes by topic",
        "Bps",
        "{{topic}} {{direction}}",
        ("topk(20, sum by (topic, direction) (rate(kdissect_topic_bytes_total[$__rate_interval])))",),
    ),
    Panel(
        "Exchanges by client",
        "reqps",
        "{{client}}",
        ("topk(20, sum by (client) (rate(kdissect_client_exchanges_total[$__rate_interval])))",),
    ),
    Panel(
        "Throttled exchanges",
        "ops",
        "{{api}}",
        ("sum by (api) (rate(kdissect_throttled_exchanges_total[$__rate_interval]))",),
    ),
    Panel(
        "Connections that failed or were cut off",
        "short",
        "{{result}}{{by}}",
        (
            "sum by (result) (increase(kdissect_connections_not_opened_total[$__rate_interval]))",
            "increase(kdissect_connections_cut_off_total[$__rate_interval])",
        ),
    ),
    Panel(
        "Segments retransmitted",
        "percentunit",
        "by {{end}}",
        (
            (
                "sum by (end) (rate(kdissect_tcp_retransmissions_total[$__rate_interval])) / "
                "sum by (end) (rate(kdissect_tcp_segments_total[$__rate_interval]))"
            ),
        ),
    ),
    Panel(
        "Packets dropped by the capture",
        "pps",
        "by {{by}}",
        ("sum by (by) (rate(kdissect_packets_dropped_total[$__rate_interval]))",),
    ),
    Panel("Seconds since the last packet", "s", "", ("kdissect_last_packet_age_seconds",)),
)


def dashboard() -> str:
    """The dashboard as JSON; its data source is chosen when it is imported."""
    source = {"type": "prometheus", "uid": "${source}"}
    panels: list[dict[str, Any]] = []
    for place, panel in enumerate(PANELS):
        width = _WIDTH // 2
        panels.append(
            {
                "id": place + 1,
                "type": "timeseries",
                "title": panel.title,
                "datasource": source,
                "gridPos": {"x": place % 2 * width, "y": place // 2 * _HEIGHT, "w": width, "h": _HEIGHT},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "targets": [
                    {
                        "refId": chr(ord("A") + at),
                        "datasource": source,
                        "expr": query,
                        "legendFormat": panel.legend,
                    }
                    for at, query in enumerate(panel.queries)
                ],
            }
        )
    document = {
        "title": "Kafka on the wire (kdissect)",
        "uid": "kdissect",
        "tags": ["kafka", "kdissect"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {
            "list": [{"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": panels,
    }
    return json.dumps(document, indent=1) + "\n"
