from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
import pytest

from kdissect.cli.help import COMMON
from kdissect.cli.main import kdissect
from kdissect.cli.option_names import GROUPS, flag_of
from kdissect.cli.terminal import OK, USAGE
from tests.cli.commands import run

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINES = 40


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", each) for inner, each in commands(command, context))
        else:
            yield name, command


ALL = dict(commands(kdissect, click.Context(kdissect)))


def options() -> list[click.Option]:
    every = (option for command in ALL.values() for option in command.params)
    return [each for each in every if isinstance(each, click.Option) and not each.hidden]


def flags(command: click.Command) -> set[str]:
    return {flag for option in command.params if isinstance(option, click.Option) for flag in option.opts}


@pytest.mark.parametrize("name", ALL)
def test_the_short_help_fits_a_page(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, *name.split(), "-h")
    assert shown.status == OK
    assert len(shown.lines) <= MAX_LINES
    assert shown.out == run(capsys, *name.split(), "--help").out


@pytest.mark.parametrize("name", ALL)
def test_the_full_help_has_every_option_once(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, *name.split(), "--help-all")
    assert shown.out == run(capsys, "help", *name.split()).out
    sections = re.split("^(?=[A-Z][a-z]+:$)", shown.out, maxsplit=1, flags=re.MULTILINE)[1]
    lines = [*sections.partition("  -h, --help")[0].splitlines(), "  -h"]
    first_words = [line.strip().split(" ")[0].rstrip(",") for line in lines if line.startswith("  -")]
    options = [each for each in ALL[name].params if isinstance(each, click.Option) and not each.hidden]
    assert len(first_words) == len(options) + 1  # and --help
    assert set(first_words) <= flags(ALL[name]) | {"-h"} | {
        flag for o in options for flag in o.secondary_opts
    }


def test_the_tables_name_options_that_exist() -> None:
    known = {name: flags(command) for name, command in ALL.items()}
    assert COMMON.keys() <= known.keys()
    for name, common in COMMON.items():
        assert common <= known[name], name
    everywhere = set().union(*known.values()) | {"--help", "--version"}
    for group in GROUPS.values():
        assert group <= everywhere
    assert all(sum(flag_of(each) in group for group in GROUPS.values()) == 1 for each in options())


def test_no_file_shows_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    failed = run(capsys, "read")
    assert (failed.status, failed.out) == (USAGE, "")
    assert failed.err.splitlines() == [
        "kdissect: no FILE given; use - for stdin",
        "Usage: kdissect read [OPTIONS] FILE...",
        "  kdissect read capture.pcap",
        "  kdissect read -V --exchange 1f0c9a2be4d7/12 capture.pcap",
        "All options: kdissect read --help-all",
    ]


def test_help_of_what_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert 'unknown command "reed"' in run(capsys, "help", "reed").err
    assert "kdissect read has no commands" in run(capsys, "help", "read", "x").err
    assert run(capsys, "help").out == run(capsys, "--help").out
