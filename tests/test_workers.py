from __future__ import annotations

from pathlib import Path

import pytest

from tests.workers import unit

ROOT = Path(__file__).resolve().parent.parent


def files(text: str) -> list[str]:
    """Of tests, in which a text stands."""
    result = (path for path in ROOT.glob("tests/**/test_*.py") if text in path.read_text(encoding="utf-8"))
    return [path.relative_to(ROOT).as_posix() for path in result]


def test_a_file_is_a_unit() -> None:
    assert unit("tests/net/test_tcp.py") == "tests/net/test_tcp.py"


@pytest.mark.parametrize(
    ("together", "sign"),
    [("spark", "import SparkSession\n"), ("live", "@listens\n"), ("live", "@makes_interfaces\n")],
)
def test_files_that_cannot_run_beside_each_other_are_one(together: str, sign: str) -> None:
    assert {unit(file) for file in files(sign)} == {together}
