"""Exchanges of which the native core shows everything only if it knows more than their layouts: how groups
encode what their members exchange, which values are credentials, and when brokers throttle.
"""

from __future__ import annotations

import io
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.traffic import Template
from kdissect.capture.reader import open_capture
from kdissect.kafka import schema
from kdissect.kafka.layout import layout
from kdissect.limits import SECOND_NS
from kdissect.options import Options
from kdissect.pipeline import Dissection
from kdissect.sinks.lines import Lines
from kdissect.sinks.rows import Rows
from kdissect.sinks.sink import Demand
from kdissect.tables.columns import EXCHANGE
from kdissect.tables.lines import JsonLines
from kdissect.text.style import Times
from kdissect.text.table import ExchangeTable
from tests.core import NEEDS_CORE, without_core
from tests.depth import IS_DEEP
from tests.frames import API_VERSIONS, FETCH, HEARTBEAT, PRODUCE, request, response, sized
from tests.kafka.encoder import encoder
from tests.kafka.random_bodies import random_body
from tests.rings import write
from tests.segments import ACK, FIN, Talk
from tests.sinks import taken
from tests.tables.test_native_rows import capture_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = NEEDS_CORE

JOIN_GROUP, SYNC_GROUP, CREATE_TOPICS, DESCRIBE_CONFIGS = 11, 14, 19, 32
FIRST = 2  # heartbeats in every capture
ERROR, THROTTLE = b"\0\x23", bytes(4)


def exchange_of(api_key: int, version: int, body: dict[str, Any], answer: dict[str, Any]) -> Template:
    return Template(request(api_key, version, body), response(api_key, version, answer))


def written(path: Path, *, by_core: bool) -> tuple[list[bytes], int]:
    """The lines of JSON, and how many the core wrote."""
    out = io.BytesIO()
    sink = Rows(JsonLines(out.write, columns=EXCHANGE), Demand(one_by_one=not by_core))
    with open_capture(str(path)) as capture:
        rows = taken(Dissection(capture.packet_blocks(), Options()), sink)
    return out.getvalue().splitlines(), rows


def taken_of(exchanges: Sequence[Template], path: Path) -> int:
    """How many of the exchanges the core takes. Their lines are the same without it."""
    capture_of(exchanges, path)
    lines, number = written(path, by_core=True)
    with without_core():
        expected, none = written(path, by_core=False)
    assert none == 0
    assert lines == expected
    assert len(lines) == FIRST + len(exchanges)
    return number - FIRST


def embedded(name: str, version: int, body: dict[str, Any], *, has_prefix: bool = True) -> bytes:
    message = schema.embedded(name)
    prefix = version.to_bytes(2, "big") if has_prefix else b""
    return prefix + encoder(message, version)(random_body(layout(message, version), Random(name)) | body)


STICKY = embedded("StickyAssignorUserData", 1, {}, has_prefix=False)
COOPERATIVE = b"\0\0\0\7"


@pytest.mark.parametrize(
    ("protocol", "data", "is_taken"),
    [
        ("range", b"", True),
        ("range", b"\1\2", True),
        ("sticky", STICKY, True),
        ("sticky", COOPERATIVE, False),
        ("cooperative-sticky", COOPERATIVE, True),
        ("cooperative-sticky", STICKY, False),
        ("stream", b"\0\0\0\x0b", False),
    ],
)
def test_members_of_groups(protocol: str, data: bytes, is_taken: bool, tmp_path: Path) -> None:
    subscription = embedded("ConsumerProtocolSubscription", 1, {"topics": ["t"], "user_data": data})
    assignment = embedded("ConsumerProtocolAssignment", 1, {"user_data": data})
    members = {
        "group_id": "g",
        "protocol_type": "consumer",
        "protocols": [{"name": protocol, "metadata": subscription}],
    }
    joined = {
        "protocol_name": protocol,
        "members": [{"member_id": "m", "metadata": subscription}],
    }
    synced = {"group_id": "g", "assignments": [{"member_id": "m", "assignment": assignment}]}
    exchanges = [
        exchange_of(JOIN_GROUP, 5, members, joined),
        exchange_of(SYNC_GROUP, 3, synced, {"assignment": assignment}),  # as the JoinGroup says
        exchange_of(
            SYNC_GROUP,
            5,
            synced | {"group_id": "h", "protocol_type": "consumer", "protocol_name": protocol},
            {"protocol_type": "consumer", "protocol_name": protocol, "assignment": assignment},
        ),
    ]
    assert taken_of(exchanges, tmp_path / "capture") == (3 if is_taken else 0)


def test_members_that_are_no_consumers(tmp_path: Path) -> None:
    joins = {
        "group_id": "g",
        "protocol_type": "connect",
        "protocols": [{"name": "default", "metadata": b"?"}],
    }
    syncs = {"group_id": "g", "assignments": [{"member_id": "m", "assignment": b"?"}]}
    exchanges = [
        exchange_of(JOIN_GROUP, 5, joins, {"protocol_name": "default"}),
        exchange_of(SYNC_GROUP, 3, syncs, {"assignment": b"?"}),
        exchange_of(SYNC_GROUP, 3, syncs | {"group_id": "unknown"}, {"assignment": b"?"}),
    ]
    assert taken_of(exchanges, tmp_path / "capture") == 0


def test_values_of_configs(tmp_path: Path) -> None:
    def creates(name: str, value: str | None = "secret!") -> Template:
        configs = [{"name": name, "value": value}]
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "configs": configs}
        return exchange_of(CREATE_TOPICS, 7, {"topics": [topic]}, {"topics": [{"name": "t"}]})

    harmless = [creates("retention.ms"), creates("cleanup.policy", None)]
    assert taken_of(harmless, tmp_path / "harmless") == 2
    path = tmp_path / "secret"
    assert taken_of([creates("ssl.key.password"), *harmless, creates("a_password")], path) == 2
    lines, _ = written(path, by_core=True)
    assert [b"secret!" in line for line in lines[FIRST:]] == [False, True, False, False]


@pytest.mark.parametrize("is_marked", [False, True])
def test_configs_that_brokers_mark(is_marked: bool, tmp_path: Path) -> None:
    synonym = {"name": "a", "value": "secret!", "source": 1}
    config = {"name": "a", "value": None, "is_sensitive": is_marked, "synonyms": [synonym]}
    result = {"resource_type": 2, "resource_name": "t", "configs": [config]}
    exchanges = [exchange_of(DESCRIBE_CONFIGS, 1, {}, {"results": [result]})]
    path = tmp_path / "capture"
    assert taken_of(exchanges, path) == (0 if is_marked else 1)
    assert (b"secret!" in b"".join(written(path, by_core=True)[0])) != is_marked


REJECTED = [
    b"",
    THROTTLE,
    b"\0\0\0\1\0\x12\0\0\0\3",  # the whole response of version 0
    b"\2\0\x12\0\0\0\3\0\0\0\0\0\0",  # of version 3
    b"\0\0\0\1\0\0\0\0\0\3",  # with Produce: it says nothing of quotas
]


def test_versions_that_are_not_supported(tmp_path: Path) -> None:
    sent = request(API_VERSIONS, 4, {"client_software_name": "a", "client_software_version": "1"})
    supported = [{"api_key": PRODUCE, "min_version": 0, "max_version": 9}]
    exchanges = []
    for rest in REJECTED:
        exchanges += [
            Template(sent, sized(bytes(4) + ERROR + rest)),
            exchange_of(API_VERSIONS, 0, {}, {"api_keys": supported}),
            exchange_of(HEARTBEAT, 4, {}, {"throttle_time_ms": 3}),
        ]
    assert taken_of(exchanges, tmp_path / "capture") == len(exchanges)
    with_more = [Template(sent, sized(bytes(4) + ERROR + REJECTED[2] + b"more"))]
    assert taken_of(with_more, tmp_path / "more") == 0  # there is an anomaly


@pytest.mark.parametrize("seed", range(40 if IS_DEEP else 8))
def test_throttled_clients(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    throttle = [0, 0, 0, 1, 5, 200, -7]

    def one() -> Template:
        throttle_ms = {"throttle_time_ms": random.choice(throttle)}
        match random.randrange(4):
            case 0:
                supported = {"api_key": PRODUCE, "min_version": 0, "max_version": random.choice([5, 6])}
                error = {"error_code": random.choice([0, 0, 41])}
                return exchange_of(API_VERSIONS, 2, {}, {"api_keys": [supported]} | error | throttle_ms)
            case 1:
                limits = {"min_bytes": random.choice([0, 1]), "max_wait_ms": 500, "session_epoch": 1}
                return exchange_of(FETCH, random.choice([7, 12]), limits, throttle_ms)
            case _:
                return exchange_of(HEARTBEAT, random.choice([1, 4]), {}, throttle_ms)

    assert taken_of([one() for _ in range(60)], tmp_path / "capture") == 60


@pytest.mark.parametrize("closes", [0, 1], ids=["client", "broker"])
@pytest.mark.parametrize("waited", [0, 0.3, 0.7, 5])
def test_lines_of_requests_without_a_response(closes: int, waited: float, tmp_path: Path) -> None:
    talk = Talk().handshake()
    for number in range(FIRST):
        talk.client_sends(request(HEARTBEAT, 4, correlation_id=number))
        talk.broker_sends(response(HEARTBEAT, 4, correlation_id=number))
    talk.client_sends(request(FETCH, 4, {"max_wait_ms": 500}, correlation_id=FIRST))
    talk.broker_acks().waits(waited)
    talk.put(closes, FIN | ACK).put(1 - closes, FIN | ACK).put(closes, ACK)
    later = Talk(("10.0.0.1", 40001), start_ns=talk.time_ns + 3600 * SECOND_NS).handshake()
    path = write(tmp_path / "capture.pcapng", [*talk.packets, *later.packets])
    results = []
    for by_core in (True, False):
        text = io.StringIO()
        sink = Lines(ExchangeTable(text, Times("u")), Demand(selects_all=by_core))
        with open_capture(str(path)) as capture:
            rows = taken(Dissection(capture.packet_blocks(), Options(), split_latency=False), sink)
        results.append((rows, text.getvalue()))
    assert results[0] == (FIRST + 1, results[1][1])
    assert results[1][0] == 0
    assert ("abandoned" in results[1][1]) == (waited < 1 if closes == 0 else waited == 0.3)
