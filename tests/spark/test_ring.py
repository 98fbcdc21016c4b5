from __future__ import annotations

import gzip
import os
import re
from typing import TYPE_CHECKING

import pytest

from kdissect.limits import DEFAULT
from kdissect.spark import planning
from kdissect.spark.stream import Ring, being_written, ring_of
from samples.golden import ROOT
from tests.rings import packets_of, pieces

if TYPE_CHECKING:
    from pathlib import Path

PACKETS = packets_of(ROOT / "samples" / "quickstart.pcap")


def names(rings: Ring) -> list[str]:
    return [file.name for file in rings.files()]


def test_files_are_in_order_of_their_packets(tmp_path: Path) -> None:
    files = pieces(PACKETS, tmp_path, 3)
    files[0].rename(tmp_path / "z.pcapng")
    (tmp_path / ".hidden.pcapng").write_bytes(files[1].read_bytes())
    (tmp_path / "empty.pcapng").touch()
    (tmp_path / "readme").write_text("no capture")
    pieces(PACKETS, tmp_path / "below", 3)
    for place in (tmp_path, tmp_path / "*.{pcapng,pcap}"):
        listed = Ring([str(place)], DEFAULT).files()
        assert [file.name for file in listed] == ["z.pcapng", "ring-001.pcapng", "ring-002.pcapng"]
        assert listed[0].first_ns == PACKETS[0].time_ns
    for name in ("none", "none*"):
        assert Ring([str(tmp_path / name)], DEFAULT).files() == []


def test_each_directory_has_rings_of_its_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        pieces(PACKETS, tmp_path / name, 2)
        (tmp_path / name / "ring-000.pcapng").rename(tmp_path / name / f"{name}-000.pcapng")
    listed = Ring([str(tmp_path / "*" / "*")], DEFAULT).files()
    assert [file.ring.removeprefix(f"{tmp_path}/") for file in listed] == [
        "one/one-.pcapng", "two/two-.pcapng", "one/ring-.pcapng",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "names",
    [
        ["kafka.pcap", "kafka.pcap1", "kafka.pcap00", "kafka.pcap12"],
        ["kafka1-0.pcap", "kafka1-17.pcap"],
        ["kafka2_00001_20261121090500.pcapng", "kafka2_00002_20261121100500.pcapng"],
        ["kafka3_20261121090500_00001.pcapng", "kafka3_20261121100500_00002.pcapng"],
        ["kafka4-2026-11-21_09:05:00.pcap", "kafka4-2026-11-22_10:06.pcap1", "kafka4-2026-11-23.pcap"],
        ["kafka5-20261121090500.pcap", "kafka5-20261121T1005.pcap", "kafka5-1795252800.pcap"],
        ["10.0.0.5-20261121-090500.pcap", "10.0.0.5-20261122-100500.pcap"],
        ["kafka-6.pcap", "kafka-7.pcap"],
        ["cap7.pcap", "cap8.pcap"],
    ],
)
def test_a_ring_is_known_by_its_name_without_number_and_time(names: list[str]) -> None:
    rings = {ring_of(name) for name in names}
    assert len(rings) == 1
    assert rings.isdisjoint(
        map(ring_of, ["kafka9-0.pcap", "kafka8_00001_20261121090500.pcapng", "kafka.cap"])
    )


def test_the_first_file_of_a_ring_may_have_no_number(tmp_path: Path) -> None:
    for host in ("host1", "host2"):
        for file, name in zip(pieces(PACKETS, tmp_path, 2), (f"{host}.pcap", f"{host}.pcap1"), strict=True):
            file.rename(tmp_path / name)
    assert {(file.name, file.ring) for file in Ring([str(tmp_path)], DEFAULT).files()} == {
        (f"{host}.pcap{number}", str(tmp_path / f"{host}.pcap"))
        for host in ("host1", "host2")
        for number in ("", 1)
    }


def test_a_pattern_names_the_ring() -> None:
    assert [ring_of(name, re.compile("^[a-z]+")) for name in ("a1b2", "a2b1", "7")] == ["a", "a", ""]
    assert ring_of("a1b2", re.compile("(b)|(c)")) == "b"
    assert ring_of("a1c2", re.compile("(b)|(c)")) == ""


def test_of_each_ring_the_newest_file_may_be_written_to(tmp_path: Path) -> None:
    files = pieces(PACKETS, tmp_path, 4)
    files[2].rename(files[2].with_name("other-7.pcapng"))
    for second, name in enumerate(
        ("other-7.pcapng", "ring-003.pcapng", "ring-000.pcapng", "ring-001.pcapng")
    ):
        os.utime(tmp_path / name, (second, second))
    listed = being_written(Ring([str(tmp_path)], DEFAULT).files())
    assert {file.name for file in listed} == {"other-7.pcapng", "ring-003.pcapng", "ring-001.pcapng"}


def test_a_file_that_was_compressed_is_the_same(tmp_path: Path) -> None:
    first, second = pieces(PACKETS, tmp_path, 2)
    looked = Ring([str(tmp_path)], DEFAULT)
    before = [file[:2] for file in looked.files()]
    packed = tmp_path / f"{first.name}.gz"
    packed.write_bytes(gzip.compress(first.read_bytes()))
    assert [file.path for file in looked.files()] == [str(first), str(second)]
    first.unlink()
    assert [file.path for file in looked.files()] == [str(packed), str(second)]
    assert [file[:2] for file in looked.files()] == before


def test_a_reused_name_is_another_file(tmp_path: Path) -> None:
    first, second = pieces(PACKETS, tmp_path, 2)
    looked = Ring([str(tmp_path)], DEFAULT)
    assert names(looked) == [first.name, second.name]
    later = pieces(PACKETS[-5:], tmp_path / "later", 1)[0]
    later.replace(first)
    assert names(looked) == [second.name, first.name]


def test_a_file_is_read_again_only_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces(PACKETS, tmp_path, 3)
    looked = Ring([str(tmp_path)], DEFAULT)
    before = looked.files()
    monkeypatch.delattr(planning, "first_time_ns")
    assert looked.files() == before
