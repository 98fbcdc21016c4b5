"""A capture -> files that follow each other, as tcpdump rotates them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.capture.reader import open_capture
from kdissect.capture.write import PcapngWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from kdissect.model import Packet


def packets_of(path: Path) -> list[Packet]:
    with open_capture(path) as capture:
        return list(capture)


def write(path: Path, packets: Iterable[Packet]) -> Path:
    """A capture of these packets."""
    with path.open("wb") as file:
        writer = PcapngWriter(file)
        for packet in packets:
            writer.write(packet)
    return path


def pieces(packets: Sequence[Packet], directory: Path, count: int) -> list[Path]:
    """So many files, each with as many packets."""
    directory.mkdir(parents=True, exist_ok=True)
    size = -(-len(packets) // count)
    return [
        write(directory / f"ring-{number:03}.pcapng", packets[start : start + size])
        for number, start in enumerate(range(0, len(packets), size))
    ]


def hold_back(*files: Path) -> dict[Path, bytes]:
    """Remove files, to be written later."""
    held_back = {path: path.read_bytes() for path in files}
    for path in held_back:
        path.unlink()
    return held_back
