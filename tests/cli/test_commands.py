from __future__ import annotations

import sys
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from kdissect.cli.main import Commands
from kdissect.cli.terminal import USAGE

SUMMARIES = {"one": "Says one.", "two": "Says two."}


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Two commands; only the module of the first can be imported."""

    @click.command()
    def one() -> None:
        click.echo("1")

    module = ModuleType("some.one")
    module.one = one  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some", ModuleType("some"))
    monkeypatch.setitem(sys.modules, "some.one", module)
    return Commands("some", module="some", summaries=SUMMARIES)


def test_a_command_is_imported_when_it_is_called(group: Commands) -> None:
    assert CliRunner().invoke(group, ["one"]).output == "1\n"
    assert isinstance(CliRunner().invoke(group, ["two"]).exception, ModuleNotFoundError)


def test_help_imports_none(group: Commands) -> None:
    text = CliRunner().invoke(group, ["--help"]).output
    assert text.index("one  Says one.") < text.index("two  Says two.")


def test_help_without_arguments(group: Commands) -> None:
    done = CliRunner().invoke(group, [])
    assert (done.exit_code, done.stdout) == (USAGE, "")
    assert "Says one." in done.stderr


def test_an_unknown_command(group: Commands) -> None:
    done = CliRunner().invoke(group, ["three"])
    assert done.exit_code == USAGE
    assert 'unknown command "three"; known: one, two' in done.stderr
