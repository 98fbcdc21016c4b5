"""A task that reads a file and those before it tells what belongs to the file: all of it, and once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.spark.options import FILES
from samples.golden import ROOT, captures, name_of
from tests.rings import packets_of, pieces, write
from tests.sources import BY_FILE, OF_FILES, OF_STARTS, rows

if TYPE_CHECKING:
    from pathlib import Path

    from kdissect.model import Packet


@pytest.mark.parametrize("name", ["quickstart", "mock-rebalance", "tansu-sasl"])
def test_a_look_back_that_is_long_enough_costs_nothing_but_what_was_told_before(
    name: str, tmp_path: Path
) -> None:
    (sample,) = (path for path in captures() if name_of(path) == name)
    pieces(packets_of(ROOT / sample), tmp_path, 4)
    for table in BY_FILE:
        but = OF_FILES | OF_STARTS
        assert rows(tmp_path, table, but, split=FILES) == rows(tmp_path, table, but, split="none"), table


def test_what_a_cut_costs_is_told(tmp_path: Path) -> None:
    packets = packets_of(ROOT / "samples" / "quickstart.pcap")
    pieces(packets, tmp_path, 20)
    but = OF_FILES | OF_STARTS
    whole = rows(tmp_path, "exchanges", but | {"anomalies"})
    cut = rows(tmp_path, "exchanges", but | {"anomalies"}, split=FILES, lookback="0")
    given_up = rows(tmp_path, "anomalies", split=FILES, lookback="0", where='"given_up" in anomalies.kind')
    lost = (whole - cut).total()
    assert 0 < lost <= given_up.total()


def test_packets_between_which_a_file_ends_may_come_in_another_order(tmp_path: Path) -> None:
    packets = packets_of(ROOT / "samples" / "quickstart.pcap")
    swapped = list(packets)
    half = len(packets) // 2
    swapped[half - 1], swapped[half] = swapped[half], swapped[half - 1]
    numbered = [packet._replace(number=number) for number, packet in enumerate(swapped, 1)]
    _in_two(numbered, half, tmp_path)
    expected = rows(tmp_path, "exchanges", split="none")
    assert rows(tmp_path, "exchanges", split=FILES) == expected


def _in_two(packets: list[Packet], half: int, folder: Path) -> None:
    write(folder / "1.pcapng", packets[:half])
    write(folder / "2.pcapng", packets[half:])
