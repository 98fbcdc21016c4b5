from __future__ import annotations

import json

import pytest

from kdissect.phrases import columns_of, printable, printable_json, quoted, truncate, truncate_start
from kdissect.tables.values import json_bytes


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders-0", "orders-0"),
        ("zażółć 中文 🐘", "zażółć 中文 🐘"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31mred", "\\x9b31mred"),
        ("one\nother", "one\\nother"),
        ("a\tb\r", "a\\tb\\r"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2028", "\\u2028"),
        ("\x00\x7f", "\\x00\\x7f"),
        ("\ud800", "\\ud800"),
    ],
)
def test_nothing_reaches_the_terminal_raw(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(text).isprintable()


def test_json_stays_the_same_json() -> None:
    text = json_bytes(
        {"ESC \x1b DEL \x7f": ["CSI \x9b", "bidi \u202e", "line \u2028", "tag \U000e0041", "zażółć 中"]}
    )
    shown = printable_json(text + b"\n" + text)
    assert all(line.isprintable() for line in shown.decode().split("\n"))
    assert [json.loads(line) for line in shown.split(b"\n")] == [json.loads(text)] * 2
    assert "zażółć 中" in shown.decode()


def test_quotes_delimit_text() -> None:
    assert quoted(" x ") == '" x "'
    assert quoted("abcdef", 4) == '"abcd" … 2 more characters'
    assert quoted("\x1b" * 5, 2) == '"\\x1b\\x1b" … 3 more characters'


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("orders", 6, "orders"),
        ("orders", 5, "orde…"),
        ("中文中文", 5, "中文…"),
        ("中文中文", 8, "中文中文"),
        ("x", 1, "x"),
    ],
)
def test_cut_to_columns(text: str, most: int, shown: str) -> None:
    assert truncate(text, most) == shown
    assert columns_of(shown) <= most


def test_addresses_keep_their_port() -> None:
    assert truncate_start("[2001:db8::dead:beef]:9092", 12) == "…:beef]:9092"
    assert truncate_start("10.0.0.1:9092", 20) == "10.0.0.1:9092"
