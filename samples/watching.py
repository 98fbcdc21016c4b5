"""Makes kafka-python and aiokafka tell each request and response of theirs, for the truth file.

Wraps the one function in each library that writes a request and the one that takes a response apart.
"""

# ruff: noqa: SLF001  (neither library offers a hook for this)
from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from kafka.protocol.api_key import ApiKey
from truth import Request, Truth

if TYPE_CHECKING:
    from collections.abc import Iterator

LENGTH_BYTES = 4


def error_codes(value: Any) -> list[int]:
    """Distinct error codes other than 0 anywhere in a decoded response."""
    matches: set[int] = set()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            matches.update(code for key, code in item.items() if key == "error_code" and code)
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
    return sorted(matches)


@contextmanager
def watch_kafka_python(truth: Truth) -> Iterator[None]:
    from kafka.net.connection import KafkaConnection
    from kafka.protocol.parser import KafkaProtocol
    from kafka.protocol.sasl import SaslBytesRequest
    from kafka.version import __version__

    waiting: dict[tuple[int, int], Request] = {}
    ports: dict[int, int] = {}
    send, encode, process = (
        KafkaConnection._send_request,
        KafkaProtocol.send_request,
        KafkaProtocol._process_response,
    )

    def send_request(parser: Any, request: Any, correlation_id: int | None = None) -> int:
        correlation_id = encode(parser, request, correlation_id)
        bare = isinstance(request, SaslBytesRequest)  # after SaslHandshake v0: a token without any header
        host, _, port = parser._ident.rpartition("[")[2].rstrip("]").rpartition(":")
        sent = Request(
            client_id=None if bare else parser._client_id,
            software=f"kafka-python {__version__}",
            broker=f"{host}:{port}",
            client_port=ports.get(id(parser)),
            api=None if bare else ApiKey(request.API_KEY).name,
            version=None if bare else request.API_VERSION,
            correlation_id=None if bare else correlation_id,
            request_bytes=len(parser.bytes_to_send[-1]),
        )
        waiting[id(parser), correlation_id] = sent
        truth.requests.append(sent)
        return correlation_id

    def _send_request(connection: Any, *arguments: Any, **options: Any) -> Any:
        if connection.transport and connection.parser:
            ports[id(connection.parser)] = connection.transport._sock.getsockname()[1]
        return send(connection, *arguments, **options)

    def _process_response(parser: Any, buffer: Any) -> Any:
        correlation_id, response = answer = process(parser, buffer)
        sent = waiting.pop((id(parser), correlation_id))
        sent.response_bytes = LENGTH_BYTES + len(buffer)
        sent.errors = None if sent.api is None else error_codes(response.to_dict())
        return answer

    with (
        mock.patch.object(KafkaConnection, "_send_request", _send_request),
        mock.patch.object(KafkaProtocol, "send_request", send_request),
        mock.patch.object(KafkaProtocol, "_process_response", _process_response),
    ):
        yield


@contextmanager
def watch_aiokafka(truth: Truth) -> Iterator[None]:
    from aiokafka import __version__
    from aiokafka.conn import AIOKafkaConnection

    waiting: dict[tuple[int, int], Request] = {}
    send, handle = AIOKafkaConnection.send, AIOKafkaConnection._handle_frame

    def send_(connection: Any, request: Any, expect_response: bool = True) -> Any:
        prepared = request.prepare(connection._versions)
        correlation_id = (connection._correlation_id + 1) % 2**31
        header = prepared.build_request_header(correlation_id=correlation_id, client_id=connection._client_id)
        sent = Request(
            client_id=connection._client_id,
            software=f"aiokafka {__version__}",
            broker=f"{connection.host}:{connection.port}",
            client_port=connection._writer.get_extra_info("sockname")[1] if connection._writer else None,
            api=ApiKey(prepared.API_KEY).name,
            version=prepared.API_VERSION,
            correlation_id=correlation_id,
            request_bytes=LENGTH_BYTES + len(header.encode()) + len(prepared.encode()),
        )
        answer = send(connection, request, expect_response)
        waiting[id(connection), correlation_id] = sent
        truth.requests.append(sent)
        return answer

    def handle_frame(connection: Any, frame: bytes) -> None:
        correlation_id, _, future = connection._requests[0] if connection._requests else (None, None, None)
        handle(connection, frame)
        sent = waiting.pop((id(connection), correlation_id), None)
        if sent is None:
            return  # a response to a request with acks=0
        sent.response_bytes = LENGTH_BYTES + len(frame)
        if future.done() and not future.cancelled() and future.exception() is None:
            sent.errors = error_codes(future.result().to_object())

    with (
        mock.patch.object(AIOKafkaConnection, "send", send_),
        mock.patch.object(AIOKafkaConnection, "_handle_frame", handle_frame),
    ):
        yield
