from __future__ import annotations

from typing import TYPE_CHECKING
from zipfile import ZipFile

from kdissect.cli.terminal import FAILED, OK, USAGE
from tests.cli.commands import run

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_zip(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "kdissect.zip"
    done = run(capsys, "spark", "package", "-o", str(path))
    assert (done.status, done.out) == (OK, "")
    assert done.err.endswith(f"written to {path}; --help shows how to use it\n")
    assert "kdissect/pipeline.py" in ZipFile(path).namelist()


def test_names_that_python_cannot_import_from(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done = run(capsys, "spark", "package", "-o", str(tmp_path / "kdissect.egg"))
    assert done.status == USAGE
    assert "the name must end in .zip" in done.err


def test_a_directory_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done = run(capsys, "spark", "package", "-o", str(tmp_path / "nix" / "k.zip"))
    assert done.status == FAILED
    assert "cannot write" in done.err
