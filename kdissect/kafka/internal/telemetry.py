"""Metrics that a client pushes (KIP-714) -> a body: OpenTelemetry's MetricsData, as protobuf says it.

The package opentelemetry-proto knows the messages, and without it the bytes stay bytes. Names are those of
the .proto files, enumerations are told by name, fields that were not sent are left out. Holds nothing; what
is decompressed at a time is at most ``limits.telemetry_bytes``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.kafka.compression import inflate
from kdissect.model import Anomaly

if TYPE_CHECKING:
    from kdissect.limits import Limits
    from kdissect.model import Body

NAME = "MetricsData"


def decode(data: bytes, compression_type: int, limits: Limits) -> Body | Anomaly:
    """Read the metrics of one push, or say why not."""
    if (protobuf := _protobuf()) is None:
        return Anomaly("unread_telemetry", "", f"{len(data)} bytes")
    plain, fault = inflate(compression_type, data, limits.telemetry_bytes)
    if fault is not None:
        return Anomaly("malformed_payload", "", f"metrics: {fault.reason}")
    metrics = protobuf.metrics_data()
    try:
        metrics.ParseFromString(plain)
    except protobuf.fault as error:
        return Anomaly("malformed_payload", "", f"metrics: {error}")
    return {"_message": NAME} | _body(metrics)


class _Protobuf(NamedTuple):
    metrics_data: Any
    fault: type[Exception]


@cache
def _protobuf() -> _Protobuf | None:
    try:
        from google.protobuf.message import DecodeError as Fault
        from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
    except ImportError:
        return None
    return _Protobuf(MetricsData, Fault)


def _body(message: Any) -> Body:
    return {
        field.name: [_value(field, item) for item in value] if field.is_repeated else _value(field, value)
        for field, value in message.ListFields()
    }


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _body(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value
