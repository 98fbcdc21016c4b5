"""``summary --json`` and ``check --json`` are the same bytes in each run, with any seed of hashes. That they
are the same with several processes, and without the native core, is tested in tests/ways.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from samples.golden import ROOT, captures, name_of
from tests.cli.test_hash_seeds import SEEDS, outputs

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
def test_with_every_seed(capture: Path, tmp_path: Path) -> None:
    commands = (SUMMARY, BY_TIME, CHECK)
    first, *others = [outputs(commands, capture, tmp_path / "out", seed) for seed in SEEDS]
    assert first[0]
    assert others == [first] * len(others)
