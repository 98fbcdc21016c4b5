from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.workers import LONG, unit

ROOT = Path(__file__).resolve().parent.parent


def files(text: str) -> list[str]:
    """Of tests, in which a text stands."""
    result = (path for path in ROOT.glob("tests/**/test_*.py") if text in path.read_text(encoding="utf-8"))
    return [path.relative_to(ROOT).as_posix() for path in result]


def test_a_file_is_a_unit() -> None:
    assert unit("tests/net/test_tcp.py") == "tests/net/test_tcp.py"


def test_units_that_take_long_exist() -> None:
    assert {*LONG} <= {unit(file) for file in files("")}


@pytest.mark.parametrize(
    ("together", "sign"),
    [("spark", "import SparkSession\n"), ("live", "@listens\n"), ("live", "@makes_interfaces\n")],
)
def test_files_that_cannot_run_beside_each_other_are_one(together: str, sign: str) -> None:
    assert {unit(file) for file in files(sign)} == {together}


@pytest.mark.parametrize(
    ("options", "tests"),
    [((), {"test_garbage[seeds0]", "test_lines_of_a_session"}), (("--short",), {"test_garbage[seeds1]"})],
    ids=["default", "short"],
)
def test_short_runs_the_last_case_of_a_deep_test(options: tuple[str, ...], tests: set[str]) -> None:
    file = "tests/tls/test_keylog.py"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", *options]
    shown = subprocess.run([*command, file], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    cases = {line.removeprefix(f"{file}::") for line in shown.splitlines() if "::" in line}
    names = ("test_garbage", "test_lines_of_a_session")
    assert {case for case in cases if case.startswith(names)} == tests
