"""docs/filters.md: each of its expressions compiles and matches exchanges of our samples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kdissect
from kdissect.query.where import compile_where
from kdissect.tables.columns import resolve

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/filters.md").read_text()
BLOCKS = re.findall(r"^```filter\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXPRESSIONS = [line for block in BLOCKS for line in block.splitlines()]
BESIDE_TSHARK = re.findall(r"^\|[^|]+\| `kafka[^|]+\| `([^`|]+)`", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def exchanges() -> list[kdissect.Exchange]:
    with kdissect.open_capture(ROOT / "samples/quickstart.pcap") as packets:
        return list(kdissect.dissect(packets))


def test_the_page_has_expressions() -> None:
    assert len(EXPRESSIONS) > 30
    assert len(BESIDE_TSHARK) > 4


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_each_selects_some(text: str, exchanges: list[kdissect.Exchange]) -> None:
    where = compile_where(text, resolve)
    assert any(map(where.matches, exchanges))


@pytest.mark.parametrize("text", BESIDE_TSHARK)
def test_those_beside_tshark_compile(text: str) -> None:
    compile_where(text, resolve)
