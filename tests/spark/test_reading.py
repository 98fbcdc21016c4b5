"""The rows are the same with all ways to divide captures among tasks."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from pyspark.sql.datasource import EqualTo

from kdissect.capture import stores
from kdissect.errors import CaptureError
from kdissect.options import WHOLE, WINDOW
from kdissect.pipeline import learned_from
from kdissect.spark import reading
from kdissect.spark.datasource import PushingReader
from kdissect.spark.options import FILES, parse
from kdissect.tables.rows import TABLES
from samples.golden import ROOT, captures, name_of
from tests.damage import DAMAGES
from tests.depth import IS_DEEP
from tests.exports import as_json, export_capture, json_rows
from tests.growing import KINDS, packets
from tests.late import late, late_packets
from tests.rings import packets_of, pieces, write
from tests.sources import BY_FILE, OF_EARLIER, OF_FILES, batches, rows
from tests.spark.test_parts import Failing

pytestmark = pytest.mark.filterwarnings("ignore:[0-9]+ damaged capture")

SOME = ("quickstart", "mock-rebalance", "tansu-sasl", "midstream")
SAMPLES = [path for path in captures() if IS_DEEP or name_of(path) in SOME]
FILES_OF = 20 if IS_DEEP else 5


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_a_sample_in_many_files_has_the_rows_of_one(sample: Path, tmp_path: Path) -> None:
    packets = packets_of(ROOT / sample)
    pieces(packets, tmp_path / "ring", FILES_OF)
    (tmp_path / "one").mkdir()
    write(tmp_path / "one" / "all.pcapng", packets)
    _are_the_same(tmp_path, [table for table in TABLES if table != "captures"])


@pytest.mark.parametrize("names", [WHOLE, WINDOW])
def test_so_has_one_whose_names_are_learned_late(names: str, tmp_path: Path) -> None:
    pieces(late_packets(), tmp_path / "ring", 5)
    (tmp_path / "one").mkdir()
    late(tmp_path / "one" / "all.pcapng")
    for table in ("exchanges", "records", "topic_ids"):
        _are_the_same_without_files(tmp_path, table, names=names)
    topics = {
        str(row.split("'topic': ")[1]).split(",")[0] for row in rows(tmp_path / "one", "records", names=names)
    }
    assert topics == ({"'orders'"} if names == WHOLE else {"'orders'", "None"})


def test_a_filter_says_what_it_could_not_check(tmp_path: Path) -> None:
    capture = late(tmp_path / "late.pcapng")
    with pytest.warns(
        UserWarning, match=r"^the filter could not check 193 exchanges: no name for 1 topic ID"
    ):
        rows(capture, "exchanges", names=WINDOW, topic="orders")
    assert rows(capture, "exchanges", names=WHOLE, topic="orders")


@pytest.mark.parametrize("damage", DAMAGES if IS_DEEP else list(DAMAGES)[::2])
def test_so_has_what_is_left_of_one(damage: str, tmp_path: Path) -> None:
    packets = packets_of(ROOT / "samples" / "quickstart.pcap")
    left = DAMAGES[damage](packets, Random(1)).packets
    pieces(left, tmp_path / "ring", 5)
    (tmp_path / "one").mkdir()
    write(tmp_path / "one" / "all.pcapng", left)
    _are_the_same(tmp_path, ["exchanges", "anomalies"])


def _are_the_same(directory: Path, tables: list[str]) -> None:
    for table in tables:
        expected, but = _are_the_same_without_files(directory, table), OF_FILES
        if table in BY_FILE:
            if IS_DEEP:  # samples whose names are learned late, which files do not notice
                but = OF_FILES | OF_EARLIER
                expected = rows(directory / "one", table, but)
            files = {"split": FILES, "lookback": "20"}
            assert rows(directory / "ring", table, but, **files) == expected
            assert rows(directory / "ring", table, but, filesPerTask="3", **files) == expected


def _are_the_same_without_files(directory: Path, table: str, **options: str) -> Counter[str]:
    expected = rows(directory / "one", table, **options)
    assert rows(directory / "ring", table, split="none", **options) == expected
    assert rows(directory / "ring", table, split="connections", tasks="3", **options) == expected
    return expected


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_every_table_has_the_rows_of_an_export(sample: Path, tmp_path: Path) -> None:
    path = (ROOT / sample).absolute()
    export_capture(path, tmp_path, ["none"])
    for name, table in TABLES.items():
        types = {column.name: column.type for column in table.binary_columns}
        parsed = replace(parse({"path": str(path), "table": name}).for_batch, end_to_end=name == "records")
        values = [row for batch in batches(parsed, list(types)) for row in batch.to_pylist()]
        shown = [{key: as_json(value, types[key], key, row) for key, value in row.items()} for row in values]
        assert shown == json_rows(tmp_path / "none" / name), name


def test_only_requested_columns_are_read() -> None:
    sample = ROOT / "samples" / "quickstart.pcap"
    every, some = rows(sample, "exchanges"), rows(sample, "exchanges", api="Produce,Fetch")
    assert some == Counter(
        {row: n for row, n in every.items() if "'api': 'Produce'" in row or "'api': 'Fetch'" in row}
    )
    assert 0 < rows(sample, "records", topic="orders").total() < rows(sample, "records").total()
    by_clock = rows(sample, "exchanges", since="09:25:31.75")
    assert 0 < by_clock.total() < every.total()
    assert rows(sample, "connections", api="CreateTopics").total() < rows(sample, "connections").total()


def test_a_file_that_is_no_capture_costs_nothing_of_the_others(tmp_path: Path) -> None:
    data = (ROOT / "samples" / "quickstart.pcap").read_bytes()
    (tmp_path / "1.pcap").write_bytes(data)
    expected = rows(tmp_path, "exchanges")
    (tmp_path / "2.pcap").write_bytes(data[:24] + b"\xff" * 100)
    (tmp_path / "3.pcap.gz").write_bytes(b"\x1f\x8b\x08\x00 and no more")
    for split in ("none", "connections", "files"):
        assert rows(tmp_path, "exchanges", split=split) == expected
        capture_rows = rows(tmp_path, "captures", split=split)
        assert capture_rows.total() == 2  # the file that is not gzip data is no capture
        assert capture_rows == rows(tmp_path, "captures")
        assert "packet 1 claims 4294967295 captured bytes" in str(capture_rows)
    (tmp_path / "1.pcap").write_bytes(data[:-5])
    assert "ends in the middle of" in str(rows(tmp_path, "captures", split="files"))


def test_rows_come_in_batches() -> None:
    parsed = parse({"path": str(ROOT / "samples" / "quickstart.pcap"), "batchRows": "10"})
    sizes = [batch.num_rows for batch in batches(parsed, ["api"])]
    assert sizes == [10] * 7 + [5]


def test_rows_are_filtered() -> None:
    parsed = parse({"path": str(ROOT / "samples" / "quickstart.pcap")})
    reader = PushingReader(parsed, ["api"])
    assert not list(reader.pushFilters([EqualTo(("api",), "Fetch")]))
    (part,) = reader.partitions()
    assert {api for batch in reader.read(part) for api in batch["api"].to_pylist()} == {"Fetch"}


def test_facts_are_learned_once_in_a_process_as_long_as_captures_do_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces(late_packets(), tmp_path, 2)
    expected = rows(tmp_path, "exchanges", split="none")
    learned = []
    monkeypatch.setattr(
        reading, "learned_from", lambda *args, **kw: learned.append(args) or learned_from(*args, **kw)
    )
    for _ in range(2):
        assert rows(tmp_path, "exchanges", split="connections", tasks="3") == expected
    assert len(learned) == 1
    os.utime(next(tmp_path.iterdir()), (1, 1))
    assert rows(tmp_path, "exchanges", split="connections", tasks="3", cluster="x") != expected
    assert rows(tmp_path, "exchanges", split="connections", tasks="3") == expected
    assert len(learned) == 3
    rows(tmp_path, "captures")
    assert len(learned) == 3


def fail_late(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three quarters of a capture be read; then there is an I/O error."""
    opened = stores.open_file
    most = path.stat().st_size * 3 // 4
    monkeypatch.setattr("kdissect.capture.source.FILE_BLOCK_BYTES", 4096)
    monkeypatch.setattr(
        stores, "open_file", lambda name: Failing(name, most) if name == str(path) else opened(name)
    )


def test_an_io_error_while_learning_ends_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was learned until then is not used by the task that repeats this one."""
    pieces(late_packets(), tmp_path, 2)
    opened = stores.open_file
    fail_late(max(tmp_path.iterdir()), monkeypatch)
    with pytest.raises(CaptureError, match="cannot read all of"):
        rows(tmp_path, "exchanges", split="connections", tasks="2")
    monkeypatch.setattr(stores, "open_file", opened)
    split = rows(tmp_path, "exchanges", split="connections", tasks="2")
    assert split == rows(tmp_path, "exchanges", split="none")


MEASURE = """
import sys
from kdissect.spark.options import parse
from tests.peak import peak_kib
from tests.sources import batches
options = parse({"path": sys.argv[1], "batchRows": "1000"})
columns = ["time", "request", "response", "topics"]
print(sum(batch.num_rows for batch in batches(options, columns)), peak_kib())
"""


@pytest.mark.deep
def test_memory_of_a_task_does_not_grow_with_its_captures(tmp_path: Path) -> None:
    measured = []
    for count in (3_000, 15_000):
        path = write(tmp_path / f"{count}.pcapng", packets(KINDS["pipelined"](count)))
        command = [sys.executable, "-c", MEASURE, str(path)]
        out = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
        measured.append([int(number) for number in out.split()])
    (few, small), (many, large) = measured
    assert many > 4 * few
    assert large < small * 1.15


def test_an_empty_file_in_a_directory_has_a_row(tmp_path: Path) -> None:
    write(tmp_path / "all.pcapng", packets_of(ROOT / "samples" / "quickstart.pcap"))
    (tmp_path / "lost.pcap").touch()
    capture_rows = rows(tmp_path, "captures", {"interfaces"})
    (row,) = (text for text in capture_rows if "lost.pcap" in text)
    assert "neither pcap nor pcapng; it is empty" in row
    assert capture_rows.total() == 2


@pytest.mark.parametrize("split", ["none", "connections", "files"])
def test_an_io_error_ends_the_query(split: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage does not: ``test_a_sample_that_was_damaged``."""
    pieces(packets_of(ROOT / "samples" / "quickstart.pcap"), tmp_path, 2)
    complete = rows(tmp_path, "exchanges", split=split, tasks="2")
    last = max(tmp_path.iterdir())
    fail_late(last, monkeypatch)
    with pytest.raises(CaptureError, match=rf"^cannot read all of {last}; failOnDataLoss=false ignores that"):
        rows(tmp_path, "exchanges", split=split, tasks="2")
    some = rows(tmp_path, "exchanges", split=split, tasks="2", failOnDataLoss="false")
    assert 0 < some.total() < complete.total()


@pytest.mark.parametrize("split", ["none", "connections", "files"])
def test_damage_is_an_error_on_request(tmp_path: Path, split: str) -> None:
    data = SAMPLES[0].read_bytes()
    (tmp_path / "a.pcap").write_bytes(data)
    assert rows(tmp_path, "exchanges", split=split, mode="FAILFAST")
    for name, damaged in (("b.pcap", data[:-5]), ("c.pcap", b"")):
        (tmp_path / name).write_bytes(damaged)
        assert rows(tmp_path, "exchanges", split=split)
        with pytest.raises(CaptureError, match=rf"{name}: "):
            rows(tmp_path, "exchanges", split=split, mode="failfast")
        assert rows(tmp_path, "captures", split=split, mode="FAILFAST").total() == 2
        (tmp_path / name).unlink()


@pytest.mark.parametrize("split", ["none", "connections", "files"])
def test_damaged_captures_are_counted(tmp_path: Path, split: str) -> None:
    data = SAMPLES[0].read_bytes()
    for name, damaged in (("a.pcap", data), ("b.pcap", data[:-5]), ("c.pcap", data[:30]), ("d.pcap", b"")):
        (tmp_path / name).write_bytes(damaged)
    requested = parse({
        "path": str(tmp_path), "split": split, "tasks": "2", "lookback": "0", "filesPerTask": "1",
        "columnNameOfCorruptRecord": "_corrupt", "cluster": "x",
    }).for_batch  # fmt: skip
    columns = ["api", "_corrupt", "cluster_id"]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        read = [row for batch in batches(requested, columns) for row in batch.to_pylist()]
        plain = replace(requested, corrupt_column=None)
        undamaged = [row for batch in batches(plain, ["api"]) for row in batch.to_pylist()]
    assert sum(int(str(each.message).split(" damaged")[0]) for each in warned) == 2 * 3
    assert all(list(row) == columns for row in read)
    problems = sorted(row["_corrupt"] for row in read if row["_corrupt"] is not None)
    names = [Path(each.partition(": ")[0]).name for each in problems]
    assert names == ["b.pcap", "c.pcap", "d.pcap"]
    assert all(row["api"] is None and row["cluster_id"] is None for row in read if row["_corrupt"])
    assert [{"api": row["api"]} for row in read if row["_corrupt"] is None] == undamaged
