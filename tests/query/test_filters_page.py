"""docs/filters.md: each of its expressions compiles and matches exchanges of our samples."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kdissect
from kdissect.options import Options
from kdissect.pipeline import Dissection
from kdissect.query.records import records_of
from kdissect.query.where import compile_where
from kdissect.tables.columns import is_about_records, resolve, resolve_record

if TYPE_CHECKING:
    from kdissect.exchanges.partition_records import CarriedRecord

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/filters.md").read_text()


def expressions(language: str) -> list[str]:
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


EXPRESSIONS, OF_RECORDS = expressions("filter"), expressions("records")
BESIDE_TSHARK = re.findall(r"^\|[^|]+\| `kafka[^|]+\| `([^`|]+)`", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def exchanges() -> list[kdissect.Exchange]:
    with kdissect.open_capture(ROOT / "samples/quickstart.pcap") as packets:
        return list(Dissection(packets, Options(end_to_end=True)))


@pytest.fixture(scope="module")
def records(exchanges: list[kdissect.Exchange]) -> list[CarriedRecord]:
    return list(records_of(Options()).of(exchanges))


def test_the_page_has_expressions() -> None:
    assert len(EXPRESSIONS) > 30
    assert len(BESIDE_TSHARK) > 4
    assert len(OF_RECORDS) > 6


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_each_selects_some(text: str, exchanges: list[kdissect.Exchange]) -> None:
    where = compile_where(text, resolve)
    assert any(map(where.matches, exchanges))


@pytest.mark.parametrize("text", OF_RECORDS)
def test_each_selects_some_records(text: str, records: list[CarriedRecord]) -> None:
    where = compile_where(text, resolve_record)
    assert any(map(is_about_records, where.names))
    assert 0 < sum(map(where.matches, records)) < len(records)


@pytest.mark.parametrize("text", BESIDE_TSHARK)
def test_those_beside_tshark_compile(text: str) -> None:
    compile_where(text, resolve)
