"""Exchange -> the entry of a broker's request log about it: the JSON of KIP-673. Holds nothing.

As Kafka's ``RequestConvertToJson`` writes it since 2.7, without what only the broker knows: the end of the
connection's ID, the name of the listener, and how the time was divided among its threads. As everywhere,
credentials are withheld.
"""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from typing import TYPE_CHECKING, Any

from kdissect.kafka import apis
from kdissect.kafka.records import RecordData
from kdissect.model import Embedded

if TYPE_CHECKING:
    from kdissect.model import Body, ConnectionInfo, Exchange

_WORD_END = re.compile(r"(?<=[a-z])(?=[A-Z])")
_ANONYMOUS = "User:ANONYMOUS"
_UNKNOWN = "unknown"


def entry(exchange: Exchange) -> dict[str, Any]:
    """What the request log says about an exchange, for JSON.

    As in the log, a request in an Envelope stands for it, unless the Envelope failed. ``totalTimeMs`` is the
    latency without ``queued_us``, ``throttled_us`` and ``network_us``: if captured at the client, it includes
    a network round trip. None: not known.
    """
    info = exchange.connection
    header: Body = {
        "request_api_key": exchange.api_key,
        "request_api_version": exchange.api_version,
        "correlation_id": exchange.correlation_id,
        "client_id": exchange.client_id,
    }
    request, response, principal = exchange.request, exchange.response, exchange.principal
    software = exchange.client_software_name, exchange.client_software_version
    if principal is None and info.from_start and not (info.sasl_mechanism or info.is_decrypted):
        principal = _ANONYMOUS
    forwarded, answer = _inside(request, "request_data"), _inside(response, "response_data")
    is_forwarded = bool(forwarded and (answer or response is None))
    if is_forwarded:
        sender = _inside(request, "request_principal")
        header, request, response = forwarded["header"], forwarded["body"], answer.get("body")
        principal = f"{sender['type']}:{sender['name']}" if "name" in sender else None
        software = None, None
    return {
        "isForwarded": is_forwarded,
        "requestHeader": {
            **as_kafka_writes(header),
            "requestApiKeyName": _api_name(header["request_api_key"]),
        },
        "request": _value(request),
        "response": _value(response),
        "connection": f"{info.broker}-{info.client_end}",
        "totalTimeMs": _total_ms(exchange),
        "throttleTimeMs": (response or {}).get("throttle_time_ms"),
        "securityProtocol": _security_protocol(info),
        "principal": principal,
        "clientInformation": {
            "softwareName": software[0] or _UNKNOWN,
            "softwareVersion": software[1] or _UNKNOWN,
        },
    }


def _inside(body: Body | None, name: str) -> Body:
    """The message in a field of an Envelope; empty if there is none, or if it could not be decoded."""
    data = (body or {}).get(name)
    return data.decoded if isinstance(data, Embedded) else {}


def _total_ms(exchange: Exchange) -> float | None:
    latency_us, parts = exchange.latency_us, exchange.parts
    if latency_us is None or parts is None:
        return None
    known = [part for part in parts[:3] if part is not None]
    return (latency_us - sum(known)) / 1000 if len(known) == 3 else None


def _security_protocol(info: ConnectionInfo) -> str | None:
    """None if the connection may have logged in before it was captured."""
    if not (info.sasl_mechanism or info.from_start):
        return None
    return ("SASL_" if info.sasl_mechanism else "") + ("SSL" if info.is_decrypted else "PLAINTEXT")


@cache
def _api_name(api_key: int | None) -> str | None:
    api = None if api_key is None else apis.by_key(api_key)
    return None if api is None else _WORD_END.sub("_", api.name).upper()


@cache
def _field_name(name: str) -> str:
    """The name in Kafka's message definitions, from that in the protocol guide; KRaft is two words there."""
    first, *words = name.replace("kraft", "k_raft").split("_")
    return first + "".join(map(str.capitalize, words))


def as_kafka_writes(body: Body) -> dict[str, Any]:
    """A struct as Kafka's JSON has it: bytes in base64, of records only their size, no unknown tags."""
    return {
        _field_name(name) + ("SizeInBytes" if isinstance(value, RecordData) else ""): _value(value)
        for name, value in body.items()
        if not name.startswith("_")
    }


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return as_kafka_writes(value)
    if isinstance(value, list):
        return [_value(element) for element in value]
    if isinstance(value, RecordData):
        return len(value)
    if isinstance(value, Embedded):
        return _value(value.data)
    return b64encode(value).decode() if isinstance(value, bytes) else value
