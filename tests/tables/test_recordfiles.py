from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from kdissect.errors import OutputError
from kdissect.tables import record_files
from kdissect.tables.record_files import RecordFiles, name_of_topic
from tests.record_batches import Item, batch
from tests.record_exchanges import fetch, opened, produce

if TYPE_CHECKING:
    from pathlib import Path

    from kdissect.model import Exchange


def written(
    directory: Path, *exchanges: Exchange, show_secrets: bool = False
) -> tuple[dict[str, bytes], str]:
    """Every file below the directory, and the summary line."""
    sink = RecordFiles(directory)
    for exchange in exchanges:
        for record in opened(exchange, show_secrets=show_secrets):
            sink.feed(record)
    sink.close()
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}, sink.summary_line()


def test_values_and_keys(tmp_path: Path) -> None:
    raw = batch([Item(b"key", b"\0\xff"), Item(None, b""), Item(b"", None)], base_offset=7)
    files, summary = written(tmp_path / "new" / "out", fetch(raw))
    assert files == {
        "orders/3/7.key": b"key",
        "orders/3/7.value": b"\0\xff",
        "orders/3/8.value": b"",
        "orders/3/9.key": b"",
        "orders/3/9.null": b"",
    }
    assert summary == f"2 values, 2 keys, 1 null written to {tmp_path / 'new' / 'out'}"


def test_without_an_offset_the_exchange_makes_the_name(tmp_path: Path) -> None:
    raw = batch([Item(value=b"1")]) + batch([Item(value=b"2")])
    files, _ = written(tmp_path, produce(raw))
    assert files == {"orders/3/c0ffee-1-0.value": b"1", "orders/3/c0ffee-1-1.value": b"2"}


def test_duplicate_records_are_skipped(tmp_path: Path) -> None:
    raw, other = batch([Item(b"k", b"1")]), batch([Item(b"k", b"2")])
    answer = {"error_code": 0, "base_offset": 0}
    files, summary = written(tmp_path, produce(raw, answer), fetch(raw), fetch(other), fetch(other))
    assert files == {
        "orders/3/0.key": b"k",
        "orders/3/0.value": b"1",
        "orders/3/c0ffee-1-0.key": b"k",
        "orders/3/c0ffee-1-0.value": b"2",
    }
    assert summary.endswith("; 2 duplicate records skipped")


def test_an_internal_record_is_written_as_it_is(tmp_path: Path) -> None:
    files, _ = written(tmp_path, fetch(batch([Item(b"\0\2\0\2g1", None)]), topic="__consumer_offsets"))
    assert files == {"__consumer_offsets/3/0.key": b"\0\2\0\2g1", "__consumer_offsets/3/0.null": b""}


def test_a_credential_is_written_only_on_request(tmp_path: Path) -> None:
    exchange = fetch(batch([Item(None, b"hunter2")]), topic="__cluster_metadata")
    files, summary = written(tmp_path / "hidden", exchange)
    assert files == {}
    assert summary.endswith("; 1 credential not written")
    files, _ = written(tmp_path / "shown", exchange, show_secrets=True)
    assert files == {"__cluster_metadata/3/0.value": b"hunter2"}


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders.v1_a-b", "orders.v1_a-b"),
        ("..", "%2E%2E"),
        (".", "%2E"),
        ("../../etc/passwd", "..%2F..%2Fetc%2Fpasswd"),
        ("a\0b\\c:%", "a%00b%5Cc%3A%25"),
        ("\u00fc", "%C3%BC"),
    ],
)
def test_no_topic_leads_out_of_the_directory(topic: str, name: str, tmp_path: Path) -> None:
    assert name_of_topic(topic) == name
    files, _ = written(tmp_path / "out", fetch(batch([Item()]), topic=topic))
    assert files == {f"{name}/3/0.value": b"value"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_long_names_stay_apart(tmp_path: Path) -> None:
    names = {name_of_topic("x" * length) for length in (200, 5000, 5001)}
    assert len(names) == 3
    assert all(len(name) < 250 for name in names)
    assert len(written(tmp_path, fetch(batch([Item()]), topic="/" * 249))[0]) == 1


def test_an_unknown_topic(tmp_path: Path) -> None:
    files, _ = written(tmp_path, fetch(batch([Item()]), topic=""), show_secrets=True)
    assert files == {"%unknown/3/0.value": b"value"}


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is not empty; use a new directory"):
        RecordFiles(tmp_path)
    with pytest.raises(OutputError, match=r"cannot write .*file: "):
        RecordFiles(tmp_path / "file")


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, path: Path) -> None:
            os.close(os.open(path, os.O_CREAT))

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None: ...

        def write(self, _: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    sink = RecordFiles(tmp_path)
    (record,) = opened(fetch(batch([Item()])))
    monkeypatch.setattr(record_files, "create", lambda path, _: Full(path))
    with pytest.raises(OutputError, match=r"cannot write .*orders/3: No space left on device"):
        sink.feed(record)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_directories_that_are_known_to_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "_MAX_DIRECTORIES", 1)
    raw = batch([Item()])
    files, _ = written(tmp_path, *(fetch(raw, topic=topic) for topic in ("a", "b", "a")))
    assert sorted(files) == ["a/3/0.value", "b/3/0.value"]
