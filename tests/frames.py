"""Frames for tests: requests and responses written by our own encoder, short bodies completed with natural
defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.kafka import schema
from kdissect.kafka.headers import is_flexible, response_header_version
from kdissect.model import Data, Frame, Gap, Interface
from tests.kafka.encoder import encoder, fill

if TYPE_CHECKING:
    from collections.abc import Iterable

LO = Interface("test.pcap", 0, 1)
PRODUCE, FETCH, METADATA, HEARTBEAT, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 0, 1, 3, 12, 17, 18, 36


def sized(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def request_payload(
    api_key: int,
    version: int,
    body: dict[str, Any] | None = None,
    *,
    correlation_id: int = 1,
    client_id: str | None = "test-client",
) -> bytes:
    """Header and body, without the size."""
    header = {
        "request_api_key": api_key,
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    header_version = 0 if (api_key, version) == (7, 0) else 2 if is_flexible(api_key, version) else 1
    message = schema.request(api_key)
    assert message is not None
    return encoder(schema.header("RequestHeader"), header_version)(header) + encoder(message, version)(
        fill(message, version, body or {})
    )


def response_payload(
    api_key: int, version: int, body: dict[str, Any] | None = None, *, correlation_id: int = 1
) -> bytes:
    """Header and body, without the size."""
    message = schema.response(api_key)
    assert message is not None
    header = encoder(schema.header("ResponseHeader"), response_header_version(api_key, version))
    return header({"correlation_id": correlation_id}) + encoder(message, version)(
        fill(message, version, body or {})
    )


def request(api_key: int, version: int, body: dict[str, Any] | None = None, **header: Any) -> bytes:
    return sized(request_payload(api_key, version, body, **header))


def response(api_key: int, version: int, body: dict[str, Any] | None = None, **header: Any) -> bytes:
    return sized(response_payload(api_key, version, body, **header))


def frame(payload: bytes, *, packet: int = 1, time_ns: int = 0, size: int | None = None) -> Frame:
    return Frame(payload, len(payload) if size is None else size, packet, LO, time_ns, time_ns)


def data(payload: bytes, packet: int = 1, time_ns: int = 0) -> Data:
    return Data(packet, time_ns, LO, payload)


def gap(length: int, reason: str = "lost", packet: int = 1, time_ns: int = 0) -> Gap:
    return Gap(packet, time_ns, LO, length, reason)


def heartbeats(count: int, first: int = 1) -> list[bytes]:
    """Small complete requests with correlation ids in order."""
    body = {"group_id": "group", "generation_id": 7, "member_id": "member-1"}
    return [request(HEARTBEAT, 4, body, correlation_id=first + number) for number in range(count)]


def heartbeat_answers(count: int, first: int = 1) -> list[bytes]:
    return [response(HEARTBEAT, 4, {}, correlation_id=first + number) for number in range(count)]


def joined(pieces: Iterable[bytes]) -> bytes:
    return b"".join(pieces)
