from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.capture.reader import Readable
from kdissect.errors import CaptureError
from tests.cli.commands import talk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.model import Packet


def damaged(packets: list[Packet]) -> Iterator[Packet]:
    yield from packets
    raise CaptureError("x.pcap: damaged")


def test_what_comes_before_the_damage_is_read() -> None:
    packets = talk().packets
    readable = Readable(damaged(packets))
    assert list(readable) == packets
    assert readable.fault == "x.pcap: damaged"


def test_an_undamaged_capture_has_no_fault() -> None:
    readable = Readable(talk().packets)
    assert next(readable) == talk().packets[0]
    assert list(readable) == talk().packets[1:]
    assert readable.fault is None


def test_damage_before_the_first_packet_is_an_error() -> None:
    with pytest.raises(CaptureError):
        list(Readable(damaged([])))
