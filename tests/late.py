"""A capture that begins when all its clients know their topics, ten seconds before one asks for metadata: the
end of the sample ``kafka-4-latecomer``, from a time on at which nothing was in flight.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from samples.golden import ROOT
from tests.rings import packets_of, write

if TYPE_CHECKING:
    from pathlib import Path

    from kdissect.model import Packet

SAMPLE = ROOT / "samples" / "kafka-4-latecomer.pcap.gz"
TRUTH: dict[str, Any] = json.loads((ROOT / "samples" / "kafka-4-latecomer.truth.json").read_text())


def late_packets() -> list[Packet]:
    """Its packets."""
    return [packet for packet in packets_of(SAMPLE) if packet.time_ns >= TRUTH["facts"]["all at rest"]]


def late(path: Path) -> Path:
    """The capture as a file."""
    return write(path, late_packets())
