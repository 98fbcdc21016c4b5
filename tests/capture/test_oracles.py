"""scapy as an independent judge of what we read and of what we write."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.capture.write import PcapngWriter
from kdissect.model import Interface, Packet
from tests.capture.reading import read
from tests.captures import EXAMPLE, VARIANTS, enhanced, interface, section

if TYPE_CHECKING:
    from pathlib import Path


def scapy_packets(path: Path) -> list[tuple[int, bytes]]:
    from scapy.utils import RawPcapReader

    seen = []
    with RawPcapReader(str(path)) as reader:
        data: bytes
        meta: Any
        for data, meta in reader:
            if hasattr(meta, "tshigh"):
                ticks = (meta.tshigh << 32) + meta.tslow
                seen.append((int(Decimal(ticks) / Decimal(meta.tsresol) * 10**9), bytes(data)))
            else:
                nano = reader.nano
                seen.append((meta.sec * 10**9 + meta.usec * (1 if nano else 1000), bytes(data)))
    return seen


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "pcap modified"])
def test_scapy_and_we_read_the_same(tmp_path: Path, variant: str) -> None:
    path = tmp_path / "a.pcap"
    data = VARIANTS[variant](EXAMPLE)
    path.write_bytes(data)
    assert scapy_packets(path) == read(data).timed == list(EXAMPLE)


def test_scapy_and_we_read_the_same_clocks(tmp_path: Path) -> None:
    data = section()
    resolutions = [6, 9, 3, 0x80 | 20, 8]
    for index, resolution in enumerate(resolutions):
        data += interface(resolution=resolution) + enhanced(123_456_789_012, b"x", index=index)
    path = tmp_path / "a.pcapng"
    path.write_bytes(data)
    assert scapy_packets(path) == read(data).timed


def test_scapy_reads_what_we_write(tmp_path: Path) -> None:
    packets = [Packet(0, ns + 7, Interface("a", 0, 1), data, len(data)) for ns, data in EXAMPLE]
    path = tmp_path / "a.pcapng"
    with path.open("wb") as file:
        writer = PcapngWriter(file)
        for packet in packets:
            writer.write(packet)
    assert scapy_packets(path) == [(ns + 7, data) for ns, data in EXAMPLE]
