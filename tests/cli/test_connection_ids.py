"""Connections with the same ends and first time are kept apart in every output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cli.commands import run

if TYPE_CHECKING:
    import pytest

PATH = str(Path(__file__).parent.parent / "field" / "same-id-fin.pcap")


def test_an_exchange_has_a_name_that_no_other_has(capsys: pytest.CaptureFixture[str]) -> None:
    plain = run(capsys, "read", "--json", PATH)
    names = [f"{row['connection']}/{row['number']}" for row in map(json.loads, plain.lines)]
    assert len(names) == len(set(names)) == 9
    assert run(capsys, "read", "--json", "-j", "2", PATH).out == plain.out
    for name, line in zip(names, plain.lines, strict=True):
        assert run(capsys, "read", "--json", "--exchange", name, PATH).lines == [line]


def test_each_has_a_row_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for jobs in ("1", "2"):
        summary = json.loads(run(capsys, "summary", "--json", "--by", "connection", "-j", jobs, PATH).out)
        counts = [row["exchanges"] for row in summary["connections"]]
        assert sorted(counts) == [2, 3, 4]
