"""Exchanges of APIs that only other vendors' brokers have, with the core and without."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

import pytest

from kdissect.pipeline import Dissection
from tests.captures import pcap
from tests.frames import API_VERSIONS, heartbeat_answers, heartbeats, request, response, sized
from tests.segments import Talk
from tests.shared import say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kdissect.model import Exchange, Packet

SECRET = b"hunter2"


def vendor_request(api_key: int, correlation_id: int) -> bytes:
    return sized(pack(">hhih", api_key, 0, correlation_id, 1) + b"c\0" + SECRET)


def traffic(
    advertised: Sequence[int], used: Sequence[int], version: int = 3, mss: int = 1460
) -> list[Packet]:
    """A connection with ApiVersions, and requests of Kafka before and after those of the vendor."""
    keys = [{"api_key": key, "min_version": 0, "max_version": 1} for key in (0, 1, 18, *advertised)]
    talk = Talk(mss=mss).handshake()
    talk.client_sends(request(API_VERSIONS, version, correlation_id=1))
    talk.broker_sends(response(API_VERSIONS, version, {"api_keys": keys}, correlation_id=1))
    talk.client_sends(heartbeats(1, 2)[0]).broker_sends(heartbeat_answers(1, 2)[0])
    for number, api_key in enumerate(used, 3):
        talk.client_sends(vendor_request(api_key, number))
        talk.broker_sends(sized(pack(">i", number) + b"\0" + SECRET))
    talk.client_sends(heartbeats(1, 99)[0]).broker_sends(heartbeat_answers(1, 99)[0])
    return talk.finish().packets


def dissected(packets: list[Packet]) -> list[Exchange]:
    return list(Dissection(packets))


AUTOMQ = ["CreateStreams", "AutomqRegisterNode", "519", "GetNextNodeId"]
CASES = [
    ("AutoMQ", (*range(501, 517), 600), (501, 513, 519, 600), AUTOMQ),
    ("Inkless", (501, 502), (500, 502), ["InitDisklessLog", "RepairDisklessLog"]),
    ("Redpanda", (15000,), (15000, 15001), ["DescribeRedpandaRoles", "15001"]),
    ("Confluent", (10000, 10012), (10000, 10012), ["10000", "10012"]),
    ("vendor API", (), (505, 620), ["505", "620"]),
]


@pytest.mark.usefixtures("with_core_and_without")
@pytest.mark.parametrize("version", [0, 3])
@pytest.mark.parametrize("mss", [1460, 11])
@pytest.mark.parametrize(("vendor", "advertised", "used", "names"), CASES, ids=[case[0] for case in CASES])
def test_apis_are_named_by_what_the_broker_advertises(
    vendor: str, advertised: Sequence[int], used: Sequence[int], names: list[str], version: int, mss: int
) -> None:
    exchanges = dissected(traffic(advertised, used, version, mss))
    assert [each.api for each in exchanges] == [
        "ApiVersions",
        "Heartbeat",
        *(f"{vendor} {name}" for name in names),
        "Heartbeat",
    ]
    assert {each.kind for each in exchanges} == {"answered"}
    assert [anomaly for each in exchanges for anomaly in each.anomalies] == []
    assert SECRET.decode() not in str([(each.request, each.response) for each in exchanges])


@pytest.mark.usefixtures("with_core_and_without")
def test_an_unknown_api_is_an_anomaly() -> None:
    exchanges = dissected(traffic((501, 502, 503), (300, 621)))
    assert [each.api for each in exchanges[2:-1]] == [None, None]
    assert {anomaly.kind for each in exchanges for anomaly in each.anomalies} == {"unknown_api"}


@pytest.mark.usefixtures("with_core_and_without")
def test_a_capture_that_starts_behind_api_versions() -> None:
    packets = traffic((501, 502, 503), (503, 10000, 15000))[5:]
    names = [each.api for each in dissected(packets)]
    assert names[1:4] == ["vendor API 503", "Confluent 10000", "Redpanda DescribeRedpandaRoles"]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "one.pcap"
    packets = traffic(range(501, 517), (501, 505, 519))
    path.write_bytes(pcap((packet.time_ns, packet.data) for packet in packets))
    return path


@pytest.mark.usefixtures("with_core_and_without")
@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        (("--api", "505"), [4]),
        (("--api", "AutoMQ CreateStreams"), [3]),
        (("--api", "automq-519,Heartbeat"), [2, 5, 6]),
        (("--api", "AutoMQ*"), [3, 4, 5]),
        (("--api", "!501,!ApiVersions"), [2, 4, 5, 6]),
        (("--api", "inkless 501"), []),
        (("-Y", 'api == "AutoMQ 519"'), [5]),
        (("-Y", "api_key >= 505"), [4, 5]),
    ],
)
def test_filters(capture: Path, arguments: tuple[str, str], numbers: list[int]) -> None:
    shown = say("read", *arguments, "--csv", "--fields", "number", capture).out.split()
    assert [int(number) for number in shown if number.isdigit()] == numbers


@pytest.mark.usefixtures("with_core_and_without")
def test_text(capture: Path) -> None:
    def text(*arguments: str) -> str:
        return say(*arguments, capture).out.decode()

    tree = text("read", "-V")
    assert "[3] api_key: 501 (AutoMQ CreateStreams), min_version: 0" in tree
    assert "request_api_key: 519 (AutoMQ 519)" in tree
    assert "AutoMQ PrepareS3Object v0" in text("read")
    assert SECRET.decode() not in tree + text("read", "-x")
    assert SECRET.hex() not in text("read", "-x").replace(" ", "")
    assert "unknown" not in text("check")
    assert "AutoMQ TrimStreams" in text("summary", "--versions", "--json")
