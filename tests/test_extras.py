"""How to install what is missing: as kdissect itself was installed, never by its name on an index."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

import pytest

from kdissect.extras import install

ROOT = Path(__file__).parent.parent
REQUIRES = [
    "click<9,>=8.1",
    'pyarrow>=18; extra == "parquet"',
    'duckdb>=1.3; extra == "duckdb"',
    'pyarrow>=18; python_version > "3" and extra == "duckdb"',
]


class Installed:
    requires = REQUIRES

    def __init__(self, origin: object) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


def command(monkeypatch: pytest.MonkeyPatch, origin: object) -> str:
    monkeypatch.setattr(metadata, "distribution", lambda _: Installed(origin))
    return install("duckdb")


def test_from_a_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clone = tmp_path / "a clone"
    clone.mkdir()
    origin = {"url": clone.as_uri(), "dir_info": {}}
    packages = "pip install 'duckdb>=1.3' 'pyarrow>=18'"
    assert command(monkeypatch, origin) == packages  # it is gone, or something else is there
    (clone / "pyproject.toml").touch()
    assert command(monkeypatch, origin) == f"pip install '.[duckdb]' in {clone}"
    origin["dir_info"] = {"editable": True}
    assert command(monkeypatch, origin) == f"pip install -e '.[duckdb]' in {clone}"


@pytest.mark.parametrize("origin", [None, {"url": "file:///tmp/kdissect.whl", "archive_info": {}}])
def test_from_a_wheel(origin: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(monkeypatch, origin) == "pip install 'duckdb>=1.3' 'pyarrow>=18'"


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install("tls") == "pip install '.[tls]' in a clone of kdissect"


def test_no_text_installs_kdissect_by_name() -> None:
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("kdissect/**/*.py")]
    named = re.compile(r"kdissect\[\w+\]|pip install\s+kdissect\b")
    assert [path.name for path in paths if named.search(path.read_text(encoding="utf-8"))] == []
