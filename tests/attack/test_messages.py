"""Ten thousand damaged frames (deep: two hundred thousand), and damaged captures: whatever the bytes,
anomalies come out and nothing is raised."""

from __future__ import annotations

import contextlib
import io
from random import Random
from typing import TYPE_CHECKING

import pytest

from kdissect import CaptureError, dissect, open_capture, summarize
from kdissect.anomalies import CATALOGUE
from kdissect.kafka.bodies import decode_exchange
from kdissect.model import ANSWERED, ConnectionInfo, Endpoint, Exchange
from kdissect.stats import summarizer
from kdissect.tables.lines import CsvLines, JsonLines
from kdissect.text.style import COLORED, Times
from kdissect.text.table import ExchangeTable
from kdissect.text.tree import ExchangeTree
from tests.attack.mutation import pairs
from tests.captures import pcap
from tests.depth import IS_DEEP
from tests.frames import frame, sized
from tests.segments import Talk
from tests.test_pipeline import talk

if TYPE_CHECKING:
    from kdissect.model import Packet

INFO = ConnectionInfo("0123456789ab", Endpoint("10.0.0.1", 40000), Endpoint("10.0.0.2", 9092))
FRAMES = 10_000 if IS_DEEP else 5_000
SHORTENED = 6  # pairs of messages of each API
DEEP_FRAMES = 200_000 if IS_DEEP else FRAMES


class EverySink:
    """All outputs at once, into memory that is thrown away."""

    def __init__(self) -> None:
        self.text = io.StringIO()
        self.binary = io.BytesIO()
        self.sinks = [
            ExchangeTable(self.text, Times("e"), width=80, style=COLORED),
            ExchangeTree(self.text, Times("e")),
            ExchangeTree(self.text, Times("e"), show_bytes=True),
            JsonLines(self.binary.write),
            CsvLines(self.binary.write),
        ]

    def feed(self, exchange: Exchange) -> None:
        for sink in self.sinks:
            sink.feed(exchange)
        self.text.seek(0)
        self.text.truncate()
        self.binary.seek(0)
        self.binary.truncate()


@pytest.mark.parametrize(
    ("seed", "least"), [(20261121, FRAMES), pytest.param(1, DEEP_FRAMES, marks=pytest.mark.deep)]
)
def test_mutated_frames_become_anomalies(seed: int, least: int) -> None:
    random = Random(seed)
    sink = EverySink()
    layouts = list(pairs(random))
    frames = odd = 0
    while frames < least:
        for key, version, request, response in layouts:
            complete = random.random() < 0.9
            request_bytes, response_bytes = request.damaged(random), response.damaged(random)
            exchange = Exchange(
                INFO,
                1,
                ANSWERED,
                frame(request_bytes, size=len(request_bytes) + (0 if complete else 50)),
                frame(response_bytes, size=len(response_bytes) + (0 if complete else 50)),
                key,
                version,
                1,
            )
            decode_exchange(exchange)
            assert all(anomaly.kind in CATALOGUE for anomaly in exchange.anomalies)
            sink.feed(exchange)
            frames += 2
            odd += bool(exchange.anomalies)
    assert frames >= least
    assert odd > frames / 4  # of the pairs, more than half


def test_fields_that_are_missing_or_null_stop_no_part_of_a_summary() -> None:
    """All rules among them: each API, its messages cut short or with nulls."""
    random = Random(20261128)
    packets: list[Packet] = []
    newest = {pair.api_key: pair for pair in pairs(random)}.values()
    for port, pair in enumerate(newest, 40_000):
        one = Talk(("10.0.0.1", port), mss=60_000).handshake()
        for number in range(1, SHORTENED + 1):
            request, response = pair.request.shortened(random), pair.response.shortened(random)
            correlation_id = number.to_bytes(4, "big")
            one.client_sends(sized(request[:4] + correlation_id + request[8:]))
            one.broker_sends(sized(correlation_id + response[4:]))
        packets += one.packets
    capture = pcap((packet.time_ns, packet.data) for packet in packets)
    with open_capture(io.BytesIO(capture)) as source:
        summary = summarize(dissect(source, kafka_ports=[9092]), parts=list(summarizer.PARTS))
    assert {api.api for api in summary.apis} >= {"AlterPartition", "JoinGroup", "ShareFetch", "Vote"}
    assert summary.findings


def test_mutated_captures_end_in_exchanges_or_one_clear_error() -> None:
    random = Random(4)
    original = pcap((packet.time_ns, packet.data) for packet in talk().packets)
    sink = EverySink()
    seen = 0
    for _ in range(FRAMES // 100):
        damaged = bytearray(original)
        for _ in range(random.randint(1, 30)):
            damaged[random.randrange(24, len(damaged))] = random.randrange(256)
        with (
            contextlib.suppress(CaptureError),
            open_capture(io.BytesIO(bytes(damaged[: random.randint(24, len(damaged))]))) as packets,
        ):
            for exchange in dissect(packets):
                sink.feed(exchange)
                seen += 1
    assert seen > FRAMES / 100
