"""Ten thousand damaged frames (deep: two hundred thousand), and damaged captures: whatever the bytes,
anomalies come out and nothing is raised."""

from __future__ import annotations

import contextlib
import io
import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from kdissect import CaptureError, dissect, open_capture
from kdissect.anomalies import CATALOGUE
from kdissect.kafka.bodies import decode_exchange
from kdissect.kafka.headers import read_request_header, response_header_version
from kdissect.model import ANSWERED, ConnectionInfo, Endpoint, Exchange
from kdissect.tables.lines import CsvLines, JsonLines
from kdissect.text.style import COLORED, Times
from kdissect.text.table import ExchangeTable
from kdissect.text.tree import ExchangeTree
from tests.captures import pcap
from tests.frames import frame, request_payload
from tests.kafka.encoder import encoder
from tests.kafka.random_bodies import cases, random_body, rpc_messages
from tests.test_pipeline import talk

if TYPE_CHECKING:
    from collections.abc import Iterator

INFO = ConnectionInfo("0123456789ab", Endpoint("10.0.0.1", 40000), Endpoint("10.0.0.2", 9092))
FRAMES = 10_000
DEEP_FRAMES = 200_000 if os.environ.get("KDISSECT_HYPOTHESIS") == "deep" else FRAMES


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


def pairs(random: Random) -> Iterator[tuple[int, int, bytes, bytes]]:
    """(api key, version, request, response), every layout in turn."""
    by_key: dict[tuple[int | None, int], dict[str, bytes]] = {}
    for case in cases(rpc_messages()):
        if case.draft is None:
            body = encoder(case.message, case.version)(random_body(case.layout, random))
            by_key.setdefault((case.message.api_key, case.version), {})[case.message.kind] = body
    for (key, version), bodies in by_key.items():
        assert key is not None
        complete = request_payload(key, version)
        request = complete[: read_request_header(complete).body_pos] + bodies["request"]
        header = b"\0\0\0\1" + b"\0" * response_header_version(key, version)
        yield key, version, request, header + bodies["response"]


def mutated(payload: bytes, random: Random, keep: int) -> bytes:
    """Some bytes changed, some cut out or put in; the first ``keep`` stay."""
    out = bytearray(payload)
    for _ in range(random.randint(1, 6)):
        place = random.randint(keep, len(out))
        what = random.randrange(4)
        if what == 0 and place < len(out):
            out[place] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        elif what == 1:
            out[place : place + random.randrange(9)] = b""
        elif what == 2:
            out[place:place] = random.randbytes(random.randrange(9))
        else:
            out[place : place + 4] = random.choice(
                (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x10\x00\x00")
            )
    return bytes(out)


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
            request_bytes, response_bytes = mutated(request, random, 8), mutated(response, random, 4)
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
