"""``summary --json`` and ``check --json`` are the same bytes in each run: with any seed of hashes, several
processes, and without the native core.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kdissect import core
from samples.golden import ROOT, captures, name_of
from tests.cli.test_hash_seeds import SEEDS, outputs
from tests.shared import say

if TYPE_CHECKING:
    from pathlib import Path

IS_DEEP = os.environ.get("KDISSECT_HYPOTHESIS") == "deep"
ALL = [*(ROOT / path for path in captures()), *sorted((ROOT / "tests/field").glob("*.pcap"))]
EQUALS = "raw-requests"  # has two unknown versions as often, of several connections
CAPTURES = ALL if IS_DEEP else [path for path in ALL if path in ALL[::3] or name_of(path) == EQUALS]
SUMMARY = "summary --json --groups --lag --versions --transactions --connections --findings"
BY_TIME = "summary --json --interval 1s --by client"
CHECK = "check --json"


@pytest.mark.parametrize("capture", CAPTURES, ids=name_of)
def test_in_every_way(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = (f"{SUMMARY} -j 1", f"{BY_TIME} -j 1", CHECK)
    first = [say(*way.split(), capture) for way in ways]
    assert [say(*way.replace("-j 1", "-j 2").split(), capture) for way in ways[:2]] == first[:2]
    monkeypatch.setattr(core, "is_used", False)
    assert [say(*way.split(), capture) for way in ways] == first


@pytest.mark.parametrize("capture", CAPTURES, ids=name_of)
def test_with_every_seed(capture: Path, tmp_path: Path) -> None:
    commands = (SUMMARY, BY_TIME, CHECK)
    first, *others = [outputs(commands, capture, tmp_path / "out", seed) for seed in SEEDS]
    assert first[0]
    assert others == [first] * len(others)
