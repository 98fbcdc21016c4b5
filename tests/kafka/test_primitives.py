from __future__ import annotations

import pytest

from kdissect.errors import Malformed
from kdissect.kafka.primitives import modified_utf8, null, size_of, tag_head, uvarint
from tests.kafka.encoder import put, put_jutf, put_tags, put_utf16, put_uvarint


@pytest.mark.parametrize("value", [128, 129, 16383, 16384, 2**21, 2**28 - 1, 2**28, 2**32 - 1, 2**35 - 1])
def test_uvarints_come_back(value: int) -> None:
    raw = put_uvarint(value)
    assert uvarint(raw + b"?", 1, raw[0]) == (value, len(raw))
    with pytest.raises(IndexError):
        uvarint(raw[:-1], 1, raw[0])


def test_short_uvarints_take_one_byte() -> None:
    assert [put_uvarint(value) for value in (0, 1, 127)] == [b"\x00", b"\x01", b"\x7f"]


def test_uvarints_end() -> None:
    with pytest.raises(Malformed, match="more than 5 bytes at byte 0"):
        uvarint(b"\xff" * 9, 1, 0xFF)


def test_null_is_minus_one_alone() -> None:
    assert null(-1, 7) is None  # type: ignore[func-returns-value]
    with pytest.raises(Malformed, match="a length of -2 at byte 7"):
        null(-2, 7)


def test_a_tag_head_has_tag_end_and_start() -> None:
    assert tag_head(b"?\x05\x03abc", 1) == (5, 6, 3)
    assert tag_head(b"\x85\x01\x80\x02", 0) == (133, 260, 4)


@pytest.mark.parametrize("text", ["", "a", "\0", "é", "中", "𝄞🐘", "a\0𝄞z"])
def test_java_texts_come_back(text: str) -> None:
    assert modified_utf8(put_jutf(text)[2:]) == text
    assert put_utf16(text)[4:].decode("utf-16-be") == text


def test_modified_utf8_has_no_zero_byte_and_no_four_byte_character() -> None:
    assert put_jutf("\0𝄞") == b"\0\x08\xc0\x80\xed\xa0\xb4\xed\xb4\x9e"


def test_tags_ascend() -> None:
    assert put_tags(None) == put_tags({}) == b"\0"
    assert put_tags({300: b"b", 2: b"a"}) == b"\2\2\1a\xac\2\1b"


def test_sizes() -> None:
    assert size_of("ihqB16s?d") == 40


def test_values_by_type() -> None:
    assert put("int16", True, -2) == b"\xff\xfe"
    assert put("uuid", False, "A" * 22) == bytes(16)
    assert (put("string", False, "a"), put("string", True, "a"), put("string16", True, "a")) == (
        b"\0\1a",
        b"\2a",
        b"\0\1a",
    )
