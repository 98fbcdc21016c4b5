"""The sliding window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.capture.source import Source
from kdissect.capture.window import Window
from kdissect.limits import DEFAULT

if TYPE_CHECKING:
    from pathlib import Path


def blocks(data: bytes, size: int) -> Window:
    return Window(data[pos : pos + size] for pos in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 3, 100])
def test_more_forgets_what_was_used_and_reads_what_is_needed(size: int) -> None:
    window = blocks(b"abcdefghij", size)
    assert window.more(0, 4)
    assert window.data.startswith(b"abcd")
    assert window.more(3, 5)
    assert (window.start, window.data[:5]) == (3, b"defgh")
    assert not window.more(5, 3)
    assert (window.start, window.data) == (8, b"ij")
    assert not window.more(2, 1)
    assert (window.start, window.data) == (10, b"")


def test_no_more_is_read_than_is_needed() -> None:
    came = iter([b"ab", b"cd", b"ef"])
    window = Window(came)
    assert window.more(0, 3)
    assert window.data == b"abcd"
    assert window.more(1, 3)
    assert next(came) == b"ef"


@pytest.mark.parametrize("size", [1, 3, 100])
def test_skip(size: int) -> None:
    window = blocks(b"abcdefghij", size)
    assert window.more(0, 2)
    assert window.skip(7)
    assert window.place(0) == "byte 7"
    assert window.more(0, 3)
    assert window.data == b"hij"
    assert window.skip(3)
    assert not window.skip(1)
    assert window.data == b""


def test_rest_is_all_that_is_left() -> None:
    window = blocks(b"abcdefghij", 3)
    window.more(0, 4)
    window.skip(2)
    assert b"".join(window.rest()) == b"cdefghij"


def test_an_empty_block_says_that_nothing_more_has_come_yet() -> None:
    window = Window(iter([b"ab", b"", b"cd", b"", b"ef", b""]))
    assert not window.more(0, 3)
    assert window.waits
    assert window.more(0, 3)
    assert (window.data, window.waits) == (b"abcd", False)
    assert window.wait_for(6)
    assert not window.more(0, 7)
    assert window.waits
    assert not window.more(0, 7)
    assert not window.waits


def test_what_is_skipped_and_what_is_left_is_waited_for() -> None:
    window = Window(iter([b"ab", b"", b"cd", b"", b"ef"]))
    assert window.more(0, 1)
    assert window.skip(3)
    assert b"".join(window.rest()) == b"def"


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_file_is_read_again_where_a_unit_crosses_blocks(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abcdefghij")
    source = Source(path, DEFAULT, block_bytes=size)
    assert source.rereads
    window = Window(source.blocks(), again=True)
    assert window.more(0, 2)
    assert window.more(1, 4)
    assert (window.start, window.data[:4]) == (1, b"bcde")
    assert window.skip(5)
    assert window.more(0, 3)
    assert (window.place(0), window.data[:3]) == ("byte 6", b"ghi")
    assert not window.more(2, 3)
    assert not window.more(0, 3)
    assert (window.place(0), window.data) == ("byte 8", b"ij")
    assert list(window.rest()) == [b"ij"]
    assert source.bytes_read == 10
