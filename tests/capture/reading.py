"""The bytes of a capture, in blocks of any size -> what the readers make of them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, NamedTuple

from kdissect.capture.reader import packets_of
from kdissect.capture.source import Source
from kdissect.errors import CaptureError
from kdissect.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.model import Packet


class Read(NamedTuple):
    """All that reading gave: the packets before the fault, if there was one."""

    packets: list[Packet]
    warnings: list[str]
    fault: str | None
    source: Source

    @property
    def timed(self) -> list[tuple[int, bytes]]:
        return [(packet.time_ns, packet.data) for packet in self.packets]


def read(data: bytes, *, block_bytes: int = 64 * 1024, limits: Limits = DEFAULT) -> Read:
    source = Source(io.BytesIO(data), limits, block_bytes=block_bytes)
    packets: list[Packet] = []
    fault = None
    try:
        packets.extend(packets_of(source))
    except CaptureError as error:
        fault = str(error)
    return Read(packets, source.warnings, fault, source)


def numbers(packets: Iterable[Packet]) -> list[int]:
    return [packet.number for packet in packets]
