"""Other protocols give no row: seen from their start or from anywhere in the middle, in both directions or in
one, with packets cut by their sender, by the capture or in the middle of a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.pipeline import Dissection
from tests.foreign import LIKE_KAFKA, PROTOCOLS, conversation
from tests.segments import Talk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.model import Packet
    from tests.foreign import Step

SERVER = "10.0.0.2", 9092


def packets(
    steps: list[Step], *, from_start: bool, port: int = 40_000, mss: int = 1460, snaplen: int = 0
) -> list[Packet]:
    talk = Talk(("10.0.0.1", port), SERVER, mss=mss, snaplen=snaplen)
    if from_start:
        talk.handshake()
    for side, payload in steps:
        (talk.broker_sends if side else talk.client_sends)(payload)
    return talk.finish().packets


def ways(name: str) -> Iterator[tuple[str, list[Packet]]]:
    """How a conversation may be captured."""
    steps = conversation(name)
    yield "whole", packets(steps, from_start=True)
    for mss in (7, 64):
        yield f"in packets of {mss} bytes", packets(steps, from_start=True, mss=mss)
        yield f"mid-stream, in packets of {mss} bytes", packets(steps[1:], from_start=False, mss=mss)
    for snaplen in (66, 84, 96) if name != LIKE_KAFKA else ():
        yield f"snaplen {snaplen}", packets(steps, from_start=True, snaplen=snaplen)
        yield f"mid-stream, snaplen {snaplen}", packets(steps[1:], from_start=False, snaplen=snaplen)
    for side in (0, 1):
        one = [step for step in steps if step[0] == side]
        yield f"side {side}", packets(one, from_start=True)
        yield f"side {side}, mid-stream", packets(one, from_start=False)
        if name != LIKE_KAFKA:
            yield f"side {side}, snaplen 96", packets(one, from_start=False, snaplen=96)
    for first in range(min(len(steps), 8)):
        rest = steps[first:]
        yield f"from packet {first}", packets(rest, from_start=False)
        side, payload = rest[0]
        for cut in {1, 4, len(payload) // 2}:
            yield (
                f"from byte {cut} of packet {first}",
                packets([(side, payload[cut:]), *rest[1:]], from_start=False),
            )


@pytest.mark.parametrize("name", PROTOCOLS)
def test_no_row(name: str) -> None:
    for way, capture in ways(name):
        dissection = Dissection(capture)
        rows = [(each.kind, each.api_key, each.correlation_id) for each in dissection]
        assert (rows, dissection.counts["connections: Kafka"]) == ([], 0), way
