from __future__ import annotations

import gzip
from random import Random

import pytest

from kdissect.kafka.internal import payloads
from kdissect.limits import DEFAULT, Limits
from kdissect.model import Anomaly
from kdissect.tables.values import json_bytes
from tests.attack.mutation import mutated

metrics_pb2 = pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2")


def push() -> bytes:
    data = metrics_pb2.MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="bytes.consumed", unit="1")
    metric.sum.aggregation_temporality = metrics_pb2.AGGREGATION_TEMPORALITY_DELTA
    metric.sum.is_monotonic = True
    point = metric.sum.data_points.add(time_unix_nano=1_790_000_000_123_456_789, as_double=1.5)
    point.attributes.add(key="topic").value.string_value = "orders"
    point.exemplars.add(span_id=b"\1\2\3\4\5\6\7\x08", as_int=-3)
    return bytes(data.SerializeToString())


BODY = {
    "_message": "MetricsData",
    "resource_metrics": [{"scope_metrics": [{"metrics": [{
        "name": "bytes.consumed",
        "unit": "1",
        "sum": {
            "data_points": [{
                "time_unix_nano": 1_790_000_000_123_456_789,
                "as_double": 1.5,
                "exemplars": [{"span_id": b"\1\2\3\4\5\6\7\x08", "as_int": -3}],
                "attributes": [{"key": "topic", "value": {"string_value": "orders"}}],
            }],
            "aggregation_temporality": "AGGREGATION_TEMPORALITY_DELTA",
            "is_monotonic": True,
        },
    }]}]}],
}  # fmt: skip


def test_metrics_by_name() -> None:
    assert payloads.decode(push(), 0, DEFAULT) == BODY


def test_compressed_metrics() -> None:
    assert payloads.decode(gzip.compress(push()), 1, DEFAULT) == BODY


def test_an_enumeration_value_of_tomorrow_is_its_number() -> None:
    data = metrics_pb2.MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.sum.aggregation_temporality = 77
    (scope,) = payloads.decode(data.SerializeToString(), 0, DEFAULT)["resource_metrics"][0]["scope_metrics"]  # type: ignore[index,call-overload]
    assert scope["metrics"] == [{"sum": {"aggregation_temporality": 77}}]


@pytest.mark.parametrize(
    ("data", "compression_type"),
    [(b"\xff\xff", 0), (b"not gzip", 1), (push(), 9), (gzip.compress(bytes(10_000), mtime=0), 1)],
)
def test_what_is_no_metrics_is_reported(data: bytes, compression_type: int) -> None:
    result = payloads.decode(data, compression_type, Limits(telemetry_bytes=5000))
    assert isinstance(result, Anomaly)
    assert result.kind == "malformed_payload"


def test_without_the_library_the_bytes_stay_and_a_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "_protobuf", lambda: None)
    assert payloads.decode(push(), 0, DEFAULT) == Anomaly("unread_telemetry", "", f"{len(push())} bytes")


def test_nothing_raises_on_damage() -> None:
    random = Random(20261121)
    for _ in range(1500):
        result = payloads.decode(mutated(push(), random, 0), 0, DEFAULT)
        if not isinstance(result, Anomaly):
            json_bytes(result)


@pytest.mark.parametrize(("levels", "readable"), [(30, True), (40, False)])
def test_nesting_is_bounded_so_that_all_that_is_read_can_be_shown(levels: int, readable: bool) -> None:
    data = metrics_pb2.MetricsData()
    value = data.resource_metrics.add().resource.attributes.add(key="k").value
    for _ in range(levels):
        value = value.kvlist_value.values.add(key="k").value
    result = payloads.decode(data.SerializeToString(), 0, DEFAULT)
    assert isinstance(result, dict) == readable
    if readable:
        json_bytes(result)
