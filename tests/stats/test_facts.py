from __future__ import annotations

from typing import Any

from kdissect.kafka.records import RecordData
from kdissect.stats.facts import Facts
from tests.exchange_factory import CAPTURED, exchange


def fetch(records: bytes = b"", *, latency_ms: float = 500, error: int = 0, **request: Any) -> Facts:
    request = {"replica_id": -1, "max_wait_ms": 500, "topics": [{"topic": "orders"}], **request}
    partition = {
        "partition_index": 0,
        "error_code": error,
        "high_watermark": 7,
        "records": RecordData(records, 0, len(records)),
    }
    response = {"throttle_time_ms": 0, "responses": [{"topic": "orders", "partitions": [partition]}]}
    return Facts(exchange("Fetch", 4, request, response, latency_ns=round(latency_ms * 1e6), **CAPTURED))


def test_an_exchange_was_served_or_waited() -> None:
    heartbeat = Facts(exchange("Heartbeat", 3, {"group_id": "g"}, {}, latency_ns=10**9))
    assert (heartbeat.service_us, heartbeat.wait_us) == (1_000_000, None)
    assert (fetch().service_us, fetch().wait_us) == (None, 500_000)
    assert (fetch(error=6).service_us, fetch(error=6).wait_us) == (None, None)
    unanswered = Facts(exchange(request={}))
    assert (unanswered.service_us, unanswered.wait_us, unanswered.parts) == (None, None, None)


def test_a_follower_is_a_replica() -> None:
    assert not fetch().replica
    assert fetch(replica_id=3).replica
    assert Facts(exchange("Fetch", 15, {"replica_state": {"replica_id": 3}}, {})).replica
    assert not Facts(exchange("Fetch", 15, {"max_wait_ms": 1}, {})).replica


def test_what_has_no_name_is_called_something() -> None:
    assert Facts(exchange(None, api_key=99, request={}, response={})).api == "api 99"
    assert Facts(exchange(None, request={"sasl_token": b""}, response={})).api == "SASL token"


def test_a_response_without_its_request_is_of_an_unknown_api() -> None:
    assert Facts(exchange(None, response={})).api == "unknown"
    assert Facts(exchange("Produce", response={})).api == "Produce"  # of a request with acks=0
    assert Facts(exchange(None, response={}, correlation_id=None)).api == "SASL token"


def test_a_client_without_id_is_its_address() -> None:
    assert Facts(exchange(client_id="shop", request={})).client == "shop"
    assert Facts(exchange(client_id="", request={})).client == "10.0.0.5"


def test_latency_is_never_negative() -> None:
    assert Facts(exchange(request={}, response={}, latency_ns=-5)).latency_us == 0
    assert Facts(exchange(request={})).latency_us is None
