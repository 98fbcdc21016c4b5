"""Packets of alternating interfaces in a pcapng file: blocks of many packets, each with its own interface."""

from __future__ import annotations

import io
from random import Random
from typing import TYPE_CHECKING

import pytest

from kdissect.capture.reader import open_capture
from kdissect.errors import CaptureError
from kdissect.limits import DEFAULT, Limits
from kdissect.model import PacketBlock
from kdissect.stats.survey import Census
from tests.captures import enhanced, interface, section
from tests.core import needs_core, without_core

if TYPE_CHECKING:
    from collections.abc import Iterable

PACKETS = 400


def capture(count: int, random: Random, link_types: Iterable[int] = (1,)) -> bytes:
    """A file with so many interfaces, with clocks of their own; packets come from any of them."""
    kinds = [random.choice(list(link_types)) for _ in range(count)]
    clocks = [random.choice((6, 9, 0x8A)) for _ in range(count)]
    parts = [section()]
    parts += [
        interface(link_type=kind, resolution=clock, name=f"eth{number}")
        for number, (kind, clock) in enumerate(zip(kinds, clocks, strict=True))
    ]
    for number in range(PACKETS):
        index = random.randrange(count)
        data = bytes(random.randrange(60, 90))
        parts.append(enhanced(10**9 + number, data, index=index, longer=random.choice((0, 0, 7))))
    return b"".join(parts)


def read(file: bytes) -> tuple[list[PacketBlock], Census]:
    census = Census(DEFAULT)
    with open_capture(io.BytesIO(file)) as opened:
        blocks = [each for each in census.watch(opened.packet_blocks()) if isinstance(each, PacketBlock)]
    return blocks, census


def counts(census: Census) -> list[tuple[object, ...]]:
    return [
        (interface, each.packets, each.cut, each.cut_to, each.captured_bytes, each.wire_bytes)
        for interface, each in census.interfaces.items()
    ]


@pytest.mark.parametrize("link_types", [(1,), (1, 101)])
@pytest.mark.parametrize("count", [1, 2, 300])
def test_each_packet_has_its_interface(
    count: int, link_types: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = capture(count, Random(count), link_types)
    blocks, census = read(file)
    with without_core():
        expected, plain_census = read(file)
    packets = [packet for block in blocks for packet in block.packets]
    assert packets == [packet for block in expected for packet in block.packets]
    assert len(packets) == PACKETS
    assert counts(census) == counts(plain_census)
    assert [packet for block in blocks for packet in block.part(1).packets] == [
        packet for block in blocks for packet in block.packets[1:]
    ]


def test_interfaces_without_packets_are_limited() -> None:
    """Their number is limited by section, and in all sections by that of packets."""
    limits = Limits(interfaces=10)
    sections = [section() + interface() * 10] * 16
    more = section() + interface()
    with (
        open_capture(io.BytesIO(b"".join([*sections, more])), limits=limits) as opened,
        pytest.raises(CaptureError, match="more than 160 interfaces, and fewer packets"),
    ):
        list(opened.packet_blocks())
    packets = section() + interface() + enhanced(1, bytes(60))
    with open_capture(io.BytesIO(b"".join([*sections[1:], *[packets] * 50])), limits=limits) as opened:
        assert (
            sum(len(block.packets) for block in opened.packet_blocks() if isinstance(block, PacketBlock))
            == 50
        )


@needs_core
def test_interfaces_of_one_link_type_share_blocks() -> None:
    """Those that alternate cost as much as one."""
    parts = [section(), *(interface(name=f"eth{number}") for number in range(3000))]
    parts += [enhanced(number, bytes(60), index=number % 3000) for number in range(6000)]
    blocks, _ = read(b"".join(parts))
    assert len(blocks) < 20
