from __future__ import annotations

import socket
import sys
from contextlib import closing
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from kdissect.errors import SparkError
from kdissect.extras import install
from kdissect.spark import requirements as needing
from kdissect.spark.requirements import (
    Requirement,
    address,
    connect,
    directory,
    java,
    packages,
    python,
    require,
)
from kdissect.spark.session import SparkTarget, check_requirements

if TYPE_CHECKING:
    from pathlib import Path


def install_java(directory: Path, output: str, status: int = 0) -> None:
    (directory / "bin").mkdir()
    path = directory / "bin" / "java"
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{output}\nEND\nexit {status}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("output", "found", "is_fit"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', "17.0.15", True),
        ('java version "1.8.0_202"\nJava(TM) SE Runtime', "1.8.0_202", False),
        ('openjdk version "11.0.2" 2019-01-15', "11.0.2", False),
        ('openjdk version "25-ea" 2025-09-16', "25-ea", True),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version "21" 2023-09-19', "21", True),
    ],
)
def test_releases_of_java(
    output: str, found: str, is_fit: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_java(tmp_path, output)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    requirement = java()
    assert requirement.name == "Java 17 or newer"
    assert requirement.found == f"{found} ({tmp_path}/bin/java)"
    assert (requirement.remedy is None) == is_fit


def test_a_java_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java().found == f"no java in JAVA_HOME, {tmp_path}"
    install_java(tmp_path, "Unable to locate a Java Runtime", 1)
    assert java().found == f"{tmp_path}/bin/java does not report its version"
    (tmp_path / "bin" / "java").write_bytes(b"\x7fELF")
    assert java().found.startswith(f"{tmp_path}/bin/java does not run")
    assert java().remedy == "install one, or set JAVA_HOME to it"


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java().found == "no java on the PATH"
    with pytest.raises(SparkError) as caught:
        require([java()])
    assert str(caught.value) == (
        "Spark needs Java 17 or newer: no java on the PATH; install one, or set JAVA_HOME to it"
    )


def test_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"pyspark": "4.1.4", "pyarrow": "26.0.1"}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    command = install("spark")
    assert list(packages()) == [
        Requirement("pyspark", "4.1.4, not 4.2 or newer, older than 5", command),
        Requirement("pyarrow", "26.0.1"),
        Requirement("pandas", "not installed", command),
    ]
    versions.update(pyspark="4.2.0.dev1", pandas="3.1.1", pyarrow="9.0.0")
    assert [requirement.remedy is None for requirement in packages()] == [True, False, False]


def test_packages_of_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Spark Connect" in connect().name
    monkeypatch.setattr(needing, "CONNECT_PACKAGES", ("nobody.has.this",))
    assert connect() == Requirement("Spark Connect packages", "no nobody", install("spark"))


def test_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/other/python")
    assert sys.executable in python().found
    assert "for workers /other/python" in python().found


def test_a_directory_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    assert directory({}).found.startswith(f"{tmp_path}, ")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "nix"))
    assert directory({}).found == f"{tmp_path}/nix: No such file or directory"
    assert directory({}).remedy is not None
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert directory({"spark.local.dir": str(tmp_path)}).remedy is None


def test_somebody_listens() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        number = server.getsockname()[1]
        (requirement,) = address("--remote", f"sc://127.0.0.1:{number}/;token=secret")
        assert requirement == Requirement(f"a server at --remote sc://127.0.0.1:{number}/", "listens")
        (requirement,) = address("--master", f"spark://127.0.0.1:{number},127.0.0.1:1")
        assert requirement.remedy is None
    (requirement,) = address("--remote", f"sc://127.0.0.1:{number}")
    assert (requirement.found, requirement.remedy) == (
        "Connection refused", "check host and port, and that the server is running"
    )  # fmt: skip
    (requirement,) = address("--remote", "sc://127.0.0.1:nix")
    assert requirement.remedy is not None


@pytest.mark.parametrize("master", ["local[*]", "local[4]", "yarn", "k8s://https://host:6443"])
def test_masters_that_are_not_looked_for(master: str) -> None:
    assert list(address("--master", master)) == []


def test_a_server_needs_no_java_here() -> None:
    names = [requirement.name for requirement in check_requirements(SparkTarget(remote="sc://127.0.0.1:1"))]
    assert "Java 17 or newer" not in names
    assert names[-1] == "a server at --remote sc://127.0.0.1:1"
