from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import kdissect
from kdissect.errors import OutputError
from kdissect.spark.package import write
from tests.cli.commands import run
from tests.spark.installed import without

SAMPLE = Path(__file__).parents[2] / "samples" / "quickstart.pcap"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("package") / "kdissect.zip"
    write(path)
    return path


def from_zip(package: Path, directory: Path, *arguments: str) -> str:
    """The output of a Python that can import kdissect only from the zip."""
    path = os.pathsep.join([str(package), str(without("kdissect", directory / "site"))])
    done = subprocess.run(
        [sys.executable, "-S", *arguments],
        env={**os.environ, "PYTHONPATH": path, "TZ": "UTC"},
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def test_all_of_it_is_there(package: Path) -> None:
    root = Path(kdissect.__path__[0])
    names = set(ZipFile(package).namelist())
    files = {path.relative_to(root.parent).as_posix() for path in root.rglob("*") if path.is_file()}
    for_zips = {name for name in files if "__pycache__" not in name and not name.endswith((".so", ".pyi"))}
    assert for_zips == names - {"pyspark_kdissect.py"}
    assert "pyspark_kdissect.py" in names


def test_the_same_bytes_each_time(package: Path, tmp_path: Path) -> None:
    assert write(tmp_path / "again.zip") == len(ZipFile(package).namelist())
    assert (tmp_path / "again.zip").read_bytes() == package.read_bytes()


def test_where_it_is_imported_from(package: Path, tmp_path: Path) -> None:
    output = from_zip(package, tmp_path, "-c", "import kdissect; print(kdissect.__file__)")
    assert output.strip() == f"{package}/kdissect/__init__.py"


def test_captures_are_decoded_from_it(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = from_zip(package, tmp_path, "-m", "kdissect", "read", "--json", str(SAMPLE))
    assert shown == run(capsys, "read", "--json", str(SAMPLE)).out


def test_a_worker_has_it_in_its_own_directory(package: Path, tmp_path: Path) -> None:
    """Where the path of the zip is ``./kdissect.zip``."""
    shutil.copy(package, tmp_path)
    code = "from kdissect.kafka.apis import find; print(find('Fetch').key)"
    assert (
        from_zip(
            Path("./kdissect.zip"), tmp_path, "-c", f"import sys; sys.path[1] = './kdissect.zip'; {code}"
        )
        == "1\n"
    )


def test_a_package_of_the_package(package: Path, tmp_path: Path) -> None:
    """A worker can write the zip again."""
    code = "from pathlib import Path; from kdissect.spark.package import write; write(Path('again.zip'))"
    from_zip(package, tmp_path, "-c", code)
    assert (tmp_path / "again.zip").read_bytes() == package.read_bytes()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*nix"):
        write(tmp_path / "nix" / "kdissect.zip")


@pytest.mark.parametrize("version", [kdissect.__version__, "0.0.0", None])
def test_the_same_version_that_is_installed_is_used(
    package: Path, tmp_path: Path, version: str | None
) -> None:
    """It has the native core. Another version has other columns."""
    (tmp_path / "kdissect").mkdir()
    (tmp_path / "kdissect" / "__init__.py").write_text("")
    if version is not None:
        (tmp_path / "kdissect.dist-info").mkdir()
        (tmp_path / "kdissect.dist-info" / "METADATA").write_text(f"Name: kdissect\nVersion: {version}\n")
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import kdissect; print(*kdissect.__path__)"],
        env={**os.environ, "PYTHONPATH": f"{package}:{tmp_path}"},
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    is_used = version == kdissect.__version__
    assert done.stdout.strip() == str(tmp_path / "kdissect" if is_used else package / "kdissect")
