"""``summary --json`` and ``check --json`` are the same bytes in each run, with any seed of hashes. That they
are the same with several processes, and without the native core, is tested in tests/ways.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samples.golden import ROOT, captures, name_of
from tests.cli.test_hash_seeds import outputs_of_all_seeds
from tests.depth import IS_DEEP

if TYPE_CHECKING:
    from pathlib import Path

ALL = [*(ROOT / path for path in captures()), *sorted((ROOT / "tests/field").glob("*.pcap"))]
EQUALS = "raw-requests"  # has two unknown versions as often, of several connections
CAPTURES = ALL if IS_DEEP else [path for path in ALL if path in ALL[::3] or name_of(path) == EQUALS]
SUMMARY = "summary --json --groups --lag --versions --transactions --connections --findings"
BY_TIME = "summary --json --interval 1s --by client"
CHECK = "check --json"


def test_with_every_seed(tmp_path: Path) -> None:
    commands = [(line, path) for path in CAPTURES for line in (SUMMARY, BY_TIME, CHECK)]
    outputs_of_all_seeds(commands, tmp_path / "out")
