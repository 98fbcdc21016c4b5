from __future__ import annotations

import os
import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = "import sys; from kdissect.cli.main import main; sys.exit(main())"  # as the console script has it
CHILD = """
import os, subprocess, sys, kdissect
from kdissect.children import python_environment
print(kdissect.__file__, flush=True)
subprocess.run(
    [sys.executable, "-c", "import json, kdissect; print(kdissect.__file__)"],
    env=os.environ | python_environment(), check=True,
)
"""


class Installed(NamedTuple):
    """A Python that has kdissect, and what it needs in the environment for it."""

    python: str
    variables: dict[str, str]
    home: Path


def link(directory: Path) -> Path:
    """Put kdissect into a directory, under a path of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "kdissect").symlink_to(ROOT / "kdissect")
    return directory


def with_others(directory: Path, *paths: Path) -> None:
    """Make a directory of packages that also has ours, and these paths."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "others.pth").write_text("\n".join([*map(str, paths), *site.getsitepackages()]))


def in_venv(tmp_path: Path) -> Installed:
    venv.create(tmp_path / "venv", symlinks=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(tmp_path / "venv")}))
    with_others(packages)
    return Installed(str(tmp_path / "venv" / "bin" / "python"), {}, link(packages))


def editable(tmp_path: Path) -> Installed:
    venv.create(tmp_path / "venv", symlinks=True)
    checkout = link(tmp_path / "checkout")
    with_others(Path(sysconfig.get_path("purelib", "venv", {"base": str(tmp_path / "venv")})), checkout)
    return Installed(str(tmp_path / "venv" / "bin" / "python"), {}, checkout)


def for_user(tmp_path: Path) -> Installed:
    packages = Path(sysconfig.get_path("purelib", "posix_user", {"userbase": str(tmp_path / "user")}))
    with_others(packages)
    base: str = sys._base_executable  # type: ignore[attr-defined]  # a venv has no packages of the user
    return Installed(base, {"PYTHONUSERBASE": str(tmp_path / "user")}, link(packages))


def by_pythonpath(tmp_path: Path) -> Installed:
    """As in ``sudo PYTHONPATH=checkout``."""
    checkout = link(tmp_path / "checkout")
    path = os.pathsep.join([str(checkout), *site.getsitepackages()])
    return Installed(sys._base_executable, {"PYTHONPATH": path}, checkout)  # type: ignore[attr-defined]


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A directory whose modules leave a file behind when they are run."""
    directory = tmp_path / "planted"
    (directory / "kdissect").mkdir(parents=True)
    for name in ("json.py", "select.py", "kdissect/__init__.py"):
        (directory / name).write_text(f"open({str(directory / 'ran')!r}, 'a').write({name!r})")
    return directory


def run(
    installed: Installed, directory: Path, code: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run code as a console script runs: the current directory is not on its path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [installed.python, "-P", "-c", code, *arguments],
        env=kept | installed.variables,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


WAYS = [in_venv, editable, for_user, by_pythonpath]


@pytest.mark.parametrize("install", WAYS)
def test_a_child_has_the_packages_of_its_parent(
    install: Callable[[Path], Installed], planted: Path, tmp_path: Path
) -> None:
    installed = install(tmp_path)
    done = run(installed, planted, CHILD)
    module_path = str(installed.home / "kdissect" / "__init__.py")
    assert (done.stdout.splitlines(), done.stderr) == ([module_path, module_path], "")
    assert not (planted / "ran").exists()


@pytest.mark.parametrize("install", WAYS)
def test_capturing_runs_no_code_of_the_directory(
    install: Callable[[Path], Installed], planted: Path, tmp_path: Path
) -> None:
    """That there is no such interface is known to the process that would capture on it."""
    done = run(install(tmp_path), planted, SCRIPT, "live", "-i", "nowhere0", "-a", "duration:1s")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kdissect: no interface nowhere0")
    assert not (planted / "ran").exists()


def test_workers_run_no_code_of_the_current_directory(planted: Path, tmp_path: Path) -> None:
    capture = str(ROOT / "samples" / "quickstart.pcap")
    done = run(in_venv(tmp_path), planted, SCRIPT, "summary", "-j", "2", capture)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (planted / "ran").exists()
