"""Captures with damaged messages, held against a reader of frames that knows nothing of kdissect: each
message is shown once and no other, each damage is reported at its message, and nothing is reported elsewhere.

That the bytes of lost packets are neither invented nor forgotten is checked in tests/test_damage.py.
"""

from __future__ import annotations

import io
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from kdissect import dissect, open_capture
from kdissect.kafka.headers import is_flexible
from kdissect.model import ANSWERED
from tests.attack.mutation import pairs
from tests.captures import pcap
from tests.frames import SASL_HANDSHAKE, sized
from tests.segments import Talk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kdissect.model import Exchange
    from tests.attack.mutation import Original, Pair

REPORTS = {"truncated_body", "malformed_body", "malformed_header", "oversized", "trailing_bytes"}
"""The anomalies of a message as a whole. Random bytes in place of an embedded message have their own."""

BEFORE_TOKENS = SASL_HANDSHAKE, 0
"""After it, tokens without a header follow."""


def independent(file: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The frames in a pcap file of Ethernet, IPv4 and TCP without loss."""
    streams: dict[tuple[int, int], bytearray] = {}
    pos = 24
    while pos < len(file):
        size = int.from_bytes(file[pos + 8 : pos + 12], "little")
        segment = file[pos + 16 + 34 : pos + 16 + size]
        ports = int.from_bytes(segment[:2], "big"), int.from_bytes(segment[2:4], "big")
        streams.setdefault(ports, bytearray()).extend(segment[segment[12] // 16 * 4 :])
        pos += 16 + size
    for ports, stream in streams.items():
        while stream:
            size = int.from_bytes(stream[:4], "big")
            yield *ports, bytes(stream[4 : 4 + size])
            del stream[: 4 + size]


def shown(exchanges: list[Exchange]) -> Iterator[tuple[int, int, bytes]]:
    for each in exchanges:
        client, broker = each.connection.client.port, each.connection.broker.port
        if each.request_frame is not None:
            yield client, broker, each.request_frame.data
        if each.response_frame is not None:
            yield broker, client, each.response_frame.data


def cut(message: Original, _flexible: bool, random: Random) -> bytes:
    body = len(message.payload) - max(
        message.keep, min((span.pos for span in message.spans), default=1 << 30)
    )
    return message.payload[: -random.randint(1, body)] if body > 0 else message.payload


def lengthened(message: Original, _flexible: bool, random: Random) -> bytes:
    return message.payload + random.randbytes(random.randint(1, 9))


def beyond_its_end(message: Original, flexible: bool, random: Random) -> bytes:
    """A length or count that exceeds what is left."""
    places = [
        span
        for span in message.spans
        if (span.type in ("string", "bytes", "records") or span.type.startswith("[]"))
        and span.field is not None
        and span.field.tag is None
    ]
    if not places or len(message.payload) > 30_000:
        return message.payload
    span = random.choice(places)
    before, after = message.payload[: span.pos], message.payload[span.pos :]
    if flexible:
        return before + b"\xff\xff\xff\xff\x07" + after[1:]
    return before + (b"\x7f\xff" + after[2:] if span.type == "string" else b"\x7f\xff\xff\xff" + after[4:])


@pytest.mark.parametrize("damage", [cut, lengthened, beyond_its_end], ids=lambda damage: damage.__name__)
def test_every_damage_is_reported_where_it_is(damage: Callable[[Original, bool, Random], bytes]) -> None:
    random = Random(25)
    messages = [each for each in pairs(random) if (each.api_key, each.version) != BEFORE_TOKENS]
    expected: dict[tuple[int, int], tuple[bool, bool, Pair]] = {}
    packets = []
    for first in range(0, len(messages), 40):
        port = 20_000 + first
        talk = Talk(("10.0.0.1", port)).handshake()
        for number, pair in enumerate(messages[first : first + 40], 1):
            sides = [pair.request, pair.response]
            payloads = [side.payload for side in sides]
            harmed = random.choice((0, 1, None))
            if harmed is not None:
                payloads[harmed] = damage(sides[harmed], is_flexible(pair.api_key, pair.version), random)
            was_harmed = tuple(one != side.payload for one, side in zip(payloads, sides, strict=True))
            expected[port, number] = *was_harmed, pair  # type: ignore[assignment]
            correlation_id = number.to_bytes(4, "big")
            talk.client_sends(sized(payloads[0][:4] + correlation_id + payloads[0][8:]))
            talk.broker_sends(sized(correlation_id + payloads[1][4:]))
        packets += talk.packets
    file = pcap((1_700_000_000_000_000_000 + number, each.data) for number, each in enumerate(packets))
    with open_capture(io.BytesIO(file)) as capture:
        exchanges = list(dissect(capture, kafka_ports=[9092]))
    assert Counter(shown(exchanges)) == Counter(independent(file))
    assert 0 <= len(exchanges) - len(messages) < 5  # a Produce with acks=0 has no response
    for each in exchanges:
        if each.kind != ANSWERED:
            continue
        assert each.correlation_id is not None
        request, response, pair = expected[each.connection.client.port, each.correlation_id]
        reported = [anomaly for anomaly in each.anomalies if anomaly.kind in REPORTS]
        about = f"{pair.api_key} v{pair.version}: {each.anomalies}"
        assert any(anomaly.where.startswith("request") for anomaly in reported) == request, about
        assert any(anomaly.where.startswith("response") for anomaly in reported) == response, about
    assert sum(request + response for request, response, _ in expected.values()) > len(messages) / 3
