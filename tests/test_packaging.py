"""What pip makes of the package: with its native core where that can be built, and without it anywhere else.

Each test runs pip as users do, on a copy of the tree. Crates that were compiled for this tree are used again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest

from kdissect import __version__, core

ROOT = Path(__file__).resolve().parent.parent
PARTS = (
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "pyspark_kdissect.py",
    "kdissect",
    "core",
)
SECONDS = 300

pytestmark = [
    pytest.mark.deep,
    pytest.mark.core,
    pytest.mark.skipif(not core.is_used, reason="installed without the native core: there may be no Rust"),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What is needed to build a wheel, without anything that was built before."""
    copy = tmp_path / "tree"
    copy.mkdir()
    built = shutil.ignore_patterns("__pycache__", "*.so", "target")
    for name in PARTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=built)
        else:
            shutil.copy(source, copy)
    shutil.copytree(ROOT / "docs" / "man", copy / "docs" / "man")
    (copy / "tests").mkdir()
    (copy / "tests" / "test_nothing.py").touch()  # setuptools adds such files
    return copy


def files(tree: Path, *patterns: str) -> set[str]:
    paths = (path for pattern in patterns for path in tree.glob(pattern))
    return {path.relative_to(tree).as_posix() for path in paths if path.is_file()}


def pip(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name != "KDISSECT_CORE"}
    return subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)],
        env={**own, "CARGO_TARGET_DIR": str(ROOT / "core" / "target"), **environment},
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )


class Wheel(NamedTuple):
    """A wheel: its tag, the files in it, those of its metadata left out, and what the build said."""

    tag: str
    names: set[str]
    output: str


def wheel(tree: Path, **environment: str) -> Wheel:
    directory = tree.parent / "wheels"
    done = pip("wheel", "-v", "--no-deps", "-w", directory, tree, **environment)
    assert done.returncode == 0, done.stdout
    (path,) = directory.iterdir()
    tag = path.name.removeprefix("kdissect-").removesuffix(".whl").partition("-")[2]
    with ZipFile(path) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    return Wheel(tag, names, done.stdout)


def in_wheels(tree: Path) -> set[str]:
    pages = {
        f"kdissect-{__version__}.data/data/share/man/man1/{path.name}" for path in tree.glob("docs/man/*")
    }
    return files(tree, "kdissect/**/*", "pyspark_kdissect.py") - files(tree, "kdissect/*.so") | pages


def assert_pure(built: Wheel, tree: Path, reason: str) -> None:
    assert built.tag == "py3-none-any"
    assert built.names == in_wheels(tree)
    assert f"kdissect is built without its native core: {reason}" in built.output


def test_a_wheel_with_the_core_is_for_every_python(tree: Path) -> None:
    built = wheel(tree)
    assert built.tag.startswith("cp311-abi3-")
    assert built.names == in_wheels(tree) | {"kdissect/_core.abi3.so"}
    assert "without its native core" not in built.output


def test_a_wheel_without_the_core_is_for_every_machine(tree: Path) -> None:
    assert_pure(wheel(tree, KDISSECT_CORE="no"), tree, "KDISSECT_CORE=no")


def test_a_compile_error_is_reported_or_fatal(tree: Path) -> None:
    with (tree / "core" / "src" / "lib.rs").open("a", encoding="utf-8") as file:
        file.write("fn broken( {\n")
    assert_pure(wheel(tree), tree, "`cargo rustc")
    done = pip("wheel", "--no-deps", "-w", tree.parent / "fatal", tree, KDISSECT_CORE="require")
    assert done.returncode != 0
    assert not list((tree.parent / "fatal").glob("*.whl"))


def test_other_choices_are_rejected(tree: Path) -> None:
    done = pip("wheel", "--no-deps", "-w", tree.parent / "wheels", tree, KDISSECT_CORE="perhaps")
    assert done.returncode != 0
    assert "KDISSECT_CORE can be no or require, not 'perhaps'" in done.stdout


def test_old_rust_counts_as_none(tree: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("rustc", "cargo"):
        program = programs / name
        program.write_text(f"#!/bin/sh\necho '{name} 1.63.0'\n", encoding="utf-8")
        program.chmod(0o755)
    assert_pure(
        wheel(tree, PATH=f"{programs}:/usr/bin:/bin"), tree, "Rust 1.63.0 is too old (it needs 1.85 or later)"
    )


def test_no_rust_at_all(tree: Path, tmp_path: Path) -> None:
    assert_pure(wheel(tree, PATH=str(tmp_path)), tree, "no Rust found (it needs 1.85 or later)")


def test_a_registry_out_of_reach(tree: Path, tmp_path: Path) -> None:
    """Nobody answers there; cargo alone would wait for minutes."""
    home = tmp_path / "cargo"
    home.mkdir()
    (home / "config.toml").write_text(
        '[source.crates-io]\nreplace-with = "away"\n[source.away]\nregistry = "sparse+http://10.255.255.1/"\n',
        encoding="utf-8",
    )
    rustup = os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup"))
    assert_pure(
        wheel(tree, CARGO_HOME=str(home), RUSTUP_HOME=rustup), tree, "its crates cannot be downloaded"
    )


def test_editable_installs(tree: Path, tmp_path: Path) -> None:
    """They have a fast core; without one, none is left from before."""
    site = tmp_path / "site"
    install = ("install", "-v", "--no-deps", "--target", site, "-e", tree)
    done = pip(*install)
    assert done.returncode == 0, done.stdout
    assert [path.name for path in (tree / "kdissect").glob("*.so")] == ["_core.abi3.so"]
    (compiling,) = [line for line in done.stdout.splitlines() if line.strip().startswith("cargo rustc")]
    assert " --release " in compiling
    assert pip(*install, "--upgrade", KDISSECT_CORE="no").returncode == 0
    assert list((tree / "kdissect").glob("*.so")) == []


def test_the_sdist_has_what_a_wheel_is_built_from(tree: Path) -> None:
    expected = files(
        tree,
        "*.*",
        "LICENSE",
        *("core/*.*", "core/src/**/*.rs", "docs/man/*", "kdissect/**/*"),
    )
    subprocess.run(
        [sys.executable, "-m", "build", "--sdist", "--outdir", str(tree.parent), str(tree)],
        check=True,
        capture_output=True,
        timeout=SECONDS,
    )
    (path,) = tree.parent.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {each.name.partition("/")[2] for each in archive if each.isfile()}
    generated = {name for name in names if name.startswith("kdissect.egg-info/")} | {"PKG-INFO", "setup.cfg"}
    assert names - generated == expected
