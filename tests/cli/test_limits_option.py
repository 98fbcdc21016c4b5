"""``--limits``: every limit can be shown and set, and an invalid one is an error of one line."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from kdissect.cli.options import limits_option, table, to_limits
from kdissect.limits import DEFAULT, MIB, Limits
from kdissect.query.bounds import name_of

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command()
@limits_option()
@click.argument("files", nargs=-1)
def command(limits: Limits, files: Sequence[str]) -> None:
    click.echo(f"{limits.connections} {limits.stream_bytes} {len(files)}")


def test_the_default() -> None:
    assert to_limits(()) == DEFAULT


def test_values_with_units_in_one_option_or_several() -> None:
    limits = to_limits(
        ["connections=50000,stream-bytes=2MiB", "REORDER_WINDOW=1s,connection_idle_ns=2m,notices=1_000"]
    )
    assert (limits.connections, limits.stream_bytes, limits.reorder_window_ns) == (
        50_000,
        2 * MIB,
        1_000_000_000,
    )
    assert (limits.connection_idle_ns, limits.notices) == (120_000_000_000, 1000)
    assert to_limits(["connections=1,connections=2"]).connections == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conections=5", 'unknown limit "conections"; did you mean "connections"?'),
        ("capture.pcap", 'invalid limit "capture.pcap": use NAME=VALUE'),
        ("connections=many", 'invalid count "many": use 20000'),
        ("connections=16MiB", 'invalid count "16MiB": use 20000'),
        ("connections=-1", 'invalid count "-1": use 20000'),
        ("connections=0", "too small"),
        ("frame_bytes=1s", 'invalid size "1s": use 1000'),
        ("frame_bytes=0", "too small"),
        ("frame_bytes=9999999999TB", "too large"),
        ("reorder_window=16", 'invalid duration "16": use a number and a unit'),
    ],
)
def test_invalid_limits_are_refused(text: str, message: str) -> None:
    with pytest.raises(click.BadParameter) as error:
        to_limits([text])
    assert message in str(error.value)


def test_the_table_has_every_limit_with_its_reason_and_a_value_that_can_be_parsed() -> None:
    lines = table().splitlines()
    for bound in fields(Limits):
        (line,) = [line for line in lines if line.startswith(f"  {name_of(bound)} ")]
        name, value = line.split()[:2]
        assert to_limits([f"{name}={value}"]) == DEFAULT
        assert bound.metadata["reason"].endswith(".")
        assert bound.metadata["reason"].split()[0] in line
    assert max(map(len, lines)) <= 110


def test_a_command_gets_the_limits() -> None:
    run = CliRunner().invoke(command, ["--limits", "connections=7", "a.pcap"])
    assert run.output == f"7 {DEFAULT.stream_bytes} 1\n"


def test_alone_it_shows_the_table() -> None:
    for arguments in (["--limits"], ["a.pcap", "--limits"], ["--limits", "help"]):
        run = CliRunner().invoke(command, arguments)
        assert (run.exit_code, run.output) == (0, table())


def test_a_file_in_place_of_a_value_is_an_error() -> None:
    run = CliRunner().invoke(command, ["--limits", "a.pcap"])
    assert run.exit_code == 2
    assert "use NAME=VALUE" in run.output
