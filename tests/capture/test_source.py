"""Blocks from files, streams, pipes and stdin, each as soon as it is there."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING, BinaryIO

import pytest

from kdissect.capture.source import Source
from kdissect.errors import CaptureError
from kdissect.limits import DEFAULT
from tests.captures import open_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, int]]:
    receiving, sending = os.pipe()
    with open(receiving, "rb") as reader:  # noqa: PTH123
        yield reader, sending
    with contextlib.suppress(OSError):
        os.close(sending)


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("block_bytes", [1, 3, 100])
def test_a_file(tmp_path: Path, reopened: bool, block_bytes: int) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(b"abcdefgh")
    source = Source(path, DEFAULT, block_bytes=block_bytes)
    source.reopened = reopened
    assert (source.name, source.size) == (str(path), 8)
    blocks = []
    for block in source.blocks():
        blocks.append(block)
        assert source.bytes_read == sum(map(len, blocks))
    assert b"".join(blocks) == b"abcdefgh"
    assert max(map(len, blocks)) <= block_bytes


def test_a_reopened_file_is_closed_between_blocks_and_must_stay_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(b"abcdefgh")
    source = Source(path, DEFAULT, block_bytes=4)
    source.reopened = True
    blocks = source.blocks()
    assert next(blocks) == b"abcd"
    assert open_in(tmp_path) == 0
    other = tmp_path / "b.pcap"
    other.write_bytes(b"ABCDEFGH")
    other.replace(path)
    with pytest.raises(CaptureError, match="replaced by another file"):
        next(blocks)


@pytest.mark.parametrize("buffered", [False, True])
def test_a_pipe_is_read_as_it_comes(pipe: tuple[BinaryIO, int], buffered: bool) -> None:
    reader, sending = pipe
    source = Source(reader if buffered else reader.raw, DEFAULT)  # type: ignore[attr-defined]
    assert source.size is None
    blocks = source.blocks()
    for data in (b"a", b"bcd", b"e" * 5000):
        os.write(sending, data)
        assert next(blocks) == data
    os.close(sending)
    assert list(blocks) == []
    assert source.bytes_read == 5004


def test_a_non_blocking_pipe_is_waited_for(pipe: tuple[BinaryIO, int]) -> None:
    import threading

    reader, sending = pipe
    os.set_blocking(reader.fileno(), False)
    blocks = Source(reader.raw, DEFAULT).blocks()  # type: ignore[attr-defined]
    late = threading.Timer(0.05, os.write, (sending, b"late"))
    late.start()
    assert next(blocks) == b"late"
    late.join()


def test_stdin(monkeypatch: pytest.MonkeyPatch, pipe: tuple[BinaryIO, int]) -> None:
    reader, sending = pipe
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(reader))
    source = Source("-", DEFAULT)
    assert (source.name, source.size) == ("-", None)
    blocks = source.blocks()
    os.write(sending, b"x")
    assert next(blocks) == b"x"
    os.close(sending)
    assert list(blocks) == []


def test_stdin_that_a_program_put_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc")))
    assert list(Source("-", DEFAULT).blocks()) == [b"abc"]


def test_a_stream_is_named_after_its_file_and_not_closed(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(b"abc")
    with path.open("rb") as file:
        source = Source(file, DEFAULT)
        assert (source.name, source.size) == (str(path), None)
        assert list(source.blocks()) == [b"abc"]
        assert not file.closed
    assert Source(io.BytesIO(), DEFAULT).name == "stream"


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"missing\.pcap: no such file or directory$"):
        Source(tmp_path / "missing.pcap", DEFAULT)


def test_warnings_begin_with_the_name() -> None:
    source = Source("-", DEFAULT)
    source.warn("is odd")
    assert source.warnings == ["-: is odd"]
    assert source.format_error(OSError(5, "Input/output error")) == "-: input/output error"
    assert source.format_error(OSError("strange")) == "-: strange"
