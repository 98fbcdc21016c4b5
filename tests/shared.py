"""What several processes make of a capture, beside what one makes of it."""

from __future__ import annotations

from typing import NamedTuple

from click.testing import CliRunner

from kdissect.cli.main import kdissect


class Output(NamedTuple):
    """What a command wrote, and how it ended."""

    out: bytes
    err: bytes
    status: int


def say(*arguments: object) -> Output:
    """Run a command in this process, which may start others."""
    result = CliRunner().invoke(kdissect, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Output(result.stdout_bytes, result.stderr_bytes, result.exit_code)


def summary(*arguments: object) -> Output:
    """What ``summary --json`` says."""
    return say("summary", "--json", *arguments)
