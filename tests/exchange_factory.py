"""Exchanges for tests, from bodies as dicts: no packets, no bytes of messages.

exchange("Metadata", 9, {"topics": [{"name": "orders"}]}, {"throttle_time_ms": 0, "topics": []})
"""

from __future__ import annotations

from typing import Any

from kdissect.exchanges.latency import Splitters
from kdissect.kafka import apis, schema
from kdissect.kafka.bodies import BodyLayout
from kdissect.limits import DEFAULT
from kdissect.model import (
    ANSWERED,
    ORPHAN,
    UNANSWERED,
    Body,
    ConnectionInfo,
    Endpoint,
    Exchange,
    Frame,
    Interface,
)

INTERFACE = Interface("test.pcap", 0, 1)
START_NS = 1_790_000_000_123_456_789  # 2026-09-21T13:33:20.123456789Z
SENT_NS = 1_000_000  # from the first byte of a request to its last one
CAPTURED = {"request_size": 0, "response_size": 0}
"""Arguments of ``exchange``: frames without bytes, none of which is missing."""


def connection(
    connection_id: str = "c0ffee", client: str = "10.0.0.5", port: int = 41234, broker: str = "10.0.0.1"
) -> ConnectionInfo:
    return ConnectionInfo(connection_id, Endpoint(client, port), Endpoint(broker, 9092), from_start=True)


def frame(size: int = 96, start_ns: int = START_NS, end_ns: int | None = None, packet: int = 7) -> Frame:
    """A frame whose bytes were not captured: nothing here may need them."""
    return Frame(b"", size, packet, INTERFACE, start_ns, start_ns if end_ns is None else end_ns)


def exchange(
    api: str | None = "Metadata",
    version: int = 9,
    request: Body | None = None,
    response: Body | None = None,
    *,
    latency_ns: int = 5_000_000,
    request_size: int = 96,
    response_size: int = 196,
    time_ns: int = START_NS,
    kind: str | None = None,
    draft: int | None = None,
    **attributes: Any,
) -> Exchange:
    """An exchange that happened at ``time_ns``: answered if it has a response, orphan if it has nothing else;
    if it has none, its connection has ended. Its latency has the parts that the first one of a connection
    would have.

    Args:
        draft: number of the message's draft that laid out the bodies, None for the final layout.
        attributes: any attribute of an Exchange.
    """
    key = None if api is None else apis.find(api).key
    is_orphan = kind == ORPHAN or (request is None and response is not None)
    built = Exchange(
        connection=attributes.pop("connection", None) or connection(),
        number=attributes.pop("number", 1),
        kind=kind or (ORPHAN if is_orphan else UNANSWERED if response is None else ANSWERED),
        request_frame=None if is_orphan else frame(request_size, time_ns - SENT_NS, time_ns),
        response_frame=None,
        api_key=attributes.pop("api_key", key),
        api_version=None if api is None else version,
        correlation_id=attributes.pop("correlation_id", 42),
        request=request,
        response=response,
        ended=kind == UNANSWERED or response is None,
    )
    if response is not None:
        start_ns = time_ns if is_orphan else time_ns + latency_ns
        built.response_frame = frame(response_size, start_ns, packet=9)
    known = None if built.api_key is None else apis.by_key(built.api_key)
    built.api = known and known.name
    if key is not None:
        built.request_layout = None if request is None else _layout(schema.request(key), version, draft)
        built.response_layout = None if response is None else _layout(schema.response(key), version, draft)
    Splitters(DEFAULT).split(built)
    built.connection.splitter = None  # the others of its connection need not come in order
    for name, value in attributes.items():
        setattr(built, name, value)
    return built


def _layout(message: schema.Message | None, version: int, draft: int | None) -> BodyLayout:
    assert message is not None
    return BodyLayout(message, version, None if draft is None else message.drafts[draft])
