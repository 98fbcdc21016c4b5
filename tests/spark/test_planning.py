from __future__ import annotations

import os
from pathlib import Path

import pytest

from kdissect.capture import stores
from kdissect.errors import CaptureError, UsageError
from kdissect.limits import DEFAULT, MIB
from kdissect.net.tcp import Shard
from kdissect.spark import planning, reading
from kdissect.spark.options import SourceOptions, parse
from kdissect.spark.planning import Part, by_files, find, first_times_ns, plan
from kdissect.spark.stream import Ring, StreamReader
from samples.golden import ROOT
from tests.rings import packets_of, pieces
from tests.sources import batches

SAMPLE = ROOT / "samples" / "quickstart.pcap"


def planned(options: SourceOptions) -> list[Part]:
    return plan(options, find(options))


@pytest.fixture
def ring(tmp_path: Path) -> list[str]:
    return [str(path) for path in pieces(packets_of(SAMPLE), tmp_path, 4)]


def test_small_captures_are_read_by_one_task(ring: list[str], tmp_path: Path) -> None:
    assert planned(parse({"path": str(tmp_path)})) == [Part()]
    assert list(find(parse({"path": str(tmp_path)})).files) == ring


def test_large_captures_are_divided_by_connections(
    ring: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "ALONE_BYTES", 100)
    parts = planned(parse({"path": str(tmp_path), "tasks": "3"}))
    assert [part.shard for part in parts] == [Shard(0, 3), Shard(1, 3), Shard(2, 3)]
    assert len(planned(parse({"path": str(tmp_path), "table": "topic_ids"}))) == 1
    captures = planned(parse({"path": str(tmp_path), "table": "captures"}))
    assert [part.paths for part in captures] == [(path,) for path in ring]


def test_how_many_tasks_there_are_depends_on_the_size_of_the_captures(
    ring: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    parsed = parse({"path": str(tmp_path)})
    monkeypatch.setattr(planning, "ALONE_BYTES", 100)
    monkeypatch.setattr(planning, "cores", lambda: 1)
    for part_bytes, count in ((size, 1), (size // 3 + 1, 3), (1, 64)):
        monkeypatch.setattr(planning, "PART_BYTES", part_bytes)
        assert len(planned(parsed)) == count
    monkeypatch.setattr(planning, "cores", lambda: 100)
    assert len(planned(parsed)) == 100


def test_names_are_learned_by_tasks_only_if_needed(ring: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse({"path": ring[0], "split": "connections", "tasks": "2", "names": "window"})
    assert list(batches(options, ["api", "latency_us"]))
    monkeypatch.delattr(reading, "learned_from")
    assert list(batches(options, ["api", "latency_us"]))
    with pytest.raises(NameError, match="learned_from"):
        list(batches(options, ["topics"]))


def test_planning_opens_no_file(ring: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(stores, "open_file")
    monkeypatch.setattr("builtins.open", None)
    assert len(planned(parse({"path": str(tmp_path)}))) == 1
    assert len(planned(parse({"path": str(tmp_path), "split": "connections", "tasks": "3"}))) == 3
    assert len(planned(parse({"path": str(tmp_path), "table": "captures", "split": "files"}))) == 4


def test_a_file_is_read_with_those_before_it() -> None:
    parsed = parse({"lookback": "2"})
    parts = by_files(["a", "b", "c", "d"], parsed)
    assert [(part.paths, part.own, set(part.lost), part.is_last) for part in parts] == [
        (("a",), ("a",), set(), False),
        (("a", "b"), ("b",), set(), False),
        (("a", "b", "c"), ("c",), {"a"}, False),
        (("b", "c", "d"), ("d",), {"b"}, True),
    ]
    parts = by_files(["a", "b", "c", "d"], parse({"filesPerTask": "2"}), before=1, ends=False)
    assert [(part.paths, part.own, set(part.lost), part.is_last) for part in parts] == [
        (("a", "b", "c"), ("b", "c"), {"a", "b"}, False),
        (("c", "d"), ("d",), {"c"}, False),
    ]


@pytest.mark.parametrize(("count", "size", "tasks", "longest"), [
    (2000, 20_000, 65, 31), (64, 20_000, 64, 1), (100, 256 * MIB, 100, 1), (0, 0, 0, 0),
])  # fmt: skip
def test_many_small_files_share_tasks(count: int, size: int, tasks: int, longest: int) -> None:
    names = [str(number) for number in range(count)]
    parts = by_files(names, parse({}), sizes=dict.fromkeys(names, size))
    assert [path for part in parts for path in part.own] == names
    assert (len(parts), max((len(part.own) for part in parts), default=0)) == (tasks, longest)


def test_parts_of_files_of_which_later_ones_were_read_before() -> None:
    (part,) = by_files(["a", "b", "c"], parse({"lookback": "2"}), before=2, after=1, ends=False)
    assert (part.paths, part.own, sorted(part.lost)) == (("a", "b", "c"), ("c",), ["a", "b"])
    first, second = by_files(["a", "b", "c"], parse({}), before=1, after=5, ends=False)
    assert (sorted(first.lost), sorted(second.lost)) == (["a"], ["b", "c"])


def test_files_are_in_order_of_time_whatever_their_names(ring: list[str], tmp_path: Path) -> None:
    (tmp_path / "ring-000.pcapng").rename(tmp_path / "z.pcapng")
    (tmp_path / "empty").touch()
    (tmp_path / "notes.txt").write_text("no capture")
    parts = planned(parse({"path": str(tmp_path), "split": "files"}))
    assert [part.own for part in parts] == [(path,) for path in (str(tmp_path / "z.pcapng"), *ring[1:])]


def test_invalid_arguments_are_reported(ring: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no path given; use"):
        planned(parse({}))
    (tmp_path / "text.pcap").write_text("no capture at all")
    for split in ("none", "connections", "files"):
        with pytest.raises(CaptureError, match="no such file"):
            list(batches(parse({"path": str(tmp_path / "none.pcap"), "split": split}), ["api"]))
        with pytest.raises(CaptureError, match="neither pcap nor pcapng"):
            list(batches(parse({"path": str(tmp_path / "text.pcap"), "split": split}), ["api"]))
    with pytest.raises(UsageError, match="connections covers all files together"):
        planned(parse({"path": ring[0], "split": "files", "table": "connections"}))


def test_the_time_of_a_first_packet(ring: list[str], tmp_path: Path) -> None:
    times_ns = first_times_ns([ring[0], str(tmp_path / "none")], parse({}).limits)
    assert list(times_ns) == [packets_of(SAMPLE)[0].time_ns, None]


def test_files_follow_each_other_within_a_directory(tmp_path: Path) -> None:
    files = [path for name in ("a", "b") for path in pieces(packets_of(SAMPLE), tmp_path / name, 2)]
    parts = planned(parse({"path": str(tmp_path), "split": "files"}))
    a1, a2, b1, b2 = map(str, files)
    assert sorted((part.paths, part.is_last) for part in parts) == [
        ((a1,), False), ((a1, a2), True), ((b1,), False), ((b1, b2), True),
    ]  # fmt: skip


def test_files_are_selected_as_by_other_sources(tmp_path: Path) -> None:
    for name in ("a.pcap", "b.pcap", "sub/c.pcapng", "sub/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(SAMPLE.read_bytes())
    for second, name in enumerate(("a.pcap", "b.pcap", "sub/c.pcapng", "sub/d.txt"), 1_000_000_000):
        os.utime(tmp_path / name, (second, second))

    def selected(**options: str) -> set[str]:
        return {Path(path).name for path in find(parse({"path": str(tmp_path), **options})).files}

    assert selected() == {"a.pcap", "b.pcap", "c.pcapng", "d.txt"}
    assert selected(recursiveFileLookup="true") == selected()
    assert selected(pathGlobFilter="*.pcap") == {"a.pcap", "b.pcap"}
    assert selected(pathGlobFilter="*.{txt,pcapng}") == {"c.pcapng", "d.txt"}
    assert selected(modifiedAfter="2001-09-09T01:46:41Z") == {"c.pcapng", "d.txt"}
    assert selected(modifiedBefore="2001-09-09T03:46:42+02:00") == {"a.pcap", "b.pcap"}
    with pytest.raises(CaptureError, match="no file matches pathGlobFilter"):
        selected(pathGlobFilter="*.gz")
    with pytest.raises(UsageError, match="are not for streams"):
        StreamReader(parse({"path": str(tmp_path), "modifiedAfter": "2001-09-09"}), ["api"])


def test_a_stream_may_read_subdirectories(tmp_path: Path) -> None:
    pieces(packets_of(SAMPLE), tmp_path / "sub" / "deep", 2)

    def names(**options: str) -> list[str]:
        parsed = parse({"path": str(tmp_path), **options})
        files = Ring(parsed.paths, DEFAULT, None, parsed.selects, is_recursive=parsed.recursive).files()
        return [file.name for file in files]

    assert names() == []
    assert names(recursiveFileLookup="true") == ["ring-000.pcapng", "ring-001.pcapng"]
    assert names(recursiveFileLookup="true", pathGlobFilter="*1.*") == ["ring-001.pcapng"]
