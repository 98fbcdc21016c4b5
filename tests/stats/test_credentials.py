"""tests/cli/test_pcapng_output.py looks for every credential that the program knows in what is written."""

from __future__ import annotations

from typing import Any

import pytest

from kdissect.kafka.bodies import decode_exchange
from kdissect.model import Exchange, Frame, Interface
from kdissect.stats.credentials import may_carry_credentials
from tests.exchange_factory import exchange as make_exchange
from tests.frames import FETCH, METADATA, SASL_AUTHENTICATE, request_payload, response_payload

BATCH = bytes(8) + (49).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(44)
CONFIGS = 32
SNAPSHOT = 59


def frame(data: bytes, cut: int = 0) -> Frame:
    return Frame(data[: len(data) - cut], len(data), 1, Interface("a", 0, 1), 1, 1)


def exchange(
    api: int, version: int, request: dict[str, Any], response: dict[str, Any], *, cut: int = 0
) -> Exchange:
    item = make_exchange(api_key=api, api_version=version)
    item.request_frame = frame(request_payload(api, version, request))
    item.response_frame = frame(response_payload(api, version, response), cut)
    decode_exchange(item)
    return item


def fetched(topic: str, batch: bytes = BATCH) -> dict[str, Any]:
    return {"responses": [{"topic": topic, "partitions": [{"records": batch}]}]}


def config(name: str) -> dict[str, Any]:
    return {"results": [{"configs": [{"name": name, "value": "x"}]}]}


@pytest.mark.parametrize(
    ("item", "carries"),
    [
        (exchange(METADATA, 12, {}, {}), False),
        (exchange(SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0x"}, {}), True),
        (exchange(CONFIGS, 4, {}, config("retention.ms")), False),
        (exchange(CONFIGS, 4, {}, config("ssl.key.password")), True),
        (exchange(FETCH, 12, {}, fetched("orders")), False),
        (exchange(FETCH, 12, {}, fetched("__cluster_metadata")), True),
        (exchange(FETCH, 12, {}, fetched("__cluster_metadata", b"")), False),
        (exchange(SNAPSHOT, 0, {}, {"topics": [{"partitions": [{"unaligned_records": BATCH}]}]}), True),
        # not fully captured
        (exchange(METADATA, 12, {}, {}, cut=1), False),
        (exchange(SASL_AUTHENTICATE, 2, {}, {}, cut=1), True),
        (exchange(FETCH, 12, {}, fetched("orders"), cut=30), False),
        (exchange(FETCH, 12, {}, fetched("__cluster_metadata"), cut=30), True),
    ],
)
def test_what_may_carry_credentials(item: Exchange, carries: bool) -> None:
    assert may_carry_credentials(item) == carries


def test_a_response_to_an_unknown_request_may() -> None:
    item = make_exchange(api_key=None, api_version=None, kind="orphan")
    item.request_frame, item.response_frame = None, frame(b"\0\0\0\7" + b"anything")
    decode_exchange(item)
    assert may_carry_credentials(item)
