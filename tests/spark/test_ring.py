from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from kdissect.errors import UsageError
from kdissect.limits import DEFAULT
from kdissect.spark import ring
from kdissect.spark.ring import Ring
from samples.golden import ROOT
from tests.rings import packets_of, pieces

if TYPE_CHECKING:
    from pathlib import Path

PACKETS = packets_of(ROOT / "samples" / "quickstart.pcap")


def names(found: Ring) -> list[str]:
    return [file.name for file in found.files()]


def test_files_are_in_order_of_their_packets(tmp_path: Path) -> None:
    files = pieces(PACKETS, tmp_path, 3)
    files[0].rename(tmp_path / "z.pcapng")
    (tmp_path / ".hidden.pcapng").write_bytes(files[1].read_bytes())
    (tmp_path / "empty.pcapng").touch()
    (tmp_path / "readme").write_text("no capture")
    pieces(PACKETS, tmp_path / "below", 3)
    for place in (tmp_path, tmp_path / "*"):
        found = Ring([str(place)], DEFAULT).files()
        assert [file.name for file in found] == ["z.pcapng", "ring-001.pcapng", "ring-002.pcapng"]
        assert found[0].first_ns == PACKETS[0].time_ns
    assert Ring([str(tmp_path / "none")], DEFAULT).files() == []


def test_files_of_several_folders_do_not_follow_each_other(tmp_path: Path) -> None:
    for name in ("one", "two"):
        pieces(PACKETS, tmp_path / name, 2)
    with pytest.raises(
        UsageError, match=r"a stream is of one folder, not of .*one, .*two; start one for each"
    ):
        Ring([str(tmp_path / "*" / "*")], DEFAULT).files()


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


def test_a_name_that_comes_again_is_another_file(tmp_path: Path) -> None:
    first, second = pieces(PACKETS, tmp_path, 2)
    looked = Ring([str(tmp_path)], DEFAULT)
    assert names(looked) == [first.name, second.name]
    later = pieces(PACKETS[-5:], tmp_path / "later", 1)[0]
    later.replace(first)
    assert names(looked) == [second.name, first.name]


def test_a_file_is_looked_into_again_only_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces(PACKETS, tmp_path, 3)
    looked = Ring([str(tmp_path)], DEFAULT)
    before = looked.files()
    monkeypatch.delattr(ring, "first_time_ns")
    assert looked.files() == before
