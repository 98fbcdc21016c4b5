"""Error messages for files that are not captures."""

from __future__ import annotations

import pytest

from kdissect.capture.reader import appearance


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"", "empty"),
        (b'{"topic": "orders"}\n', "text"),
        ("naïve".encode()[:3], "text"),
        (b"snoop\0\0\0\0\0\0\2", "a snoop file; convert it to pcapng with editcap"),
        (b"\xfd7zXZ\0\0", "xz data; decompress it first"),
        (b"\x1f\x8b\x08", "another layer of gzip"),
        (bytes(64), "all zeros, probably from a failed write"),
        (b"\x80\x81\x82", "an unknown format"),
        (b"ab\0cd", "an unknown format"),
    ],
)
def test_appearance(head: bytes, words: str) -> None:
    assert appearance(head) == words
