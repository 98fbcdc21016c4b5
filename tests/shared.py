"""What several processes make of a capture, beside what one makes of it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from click.testing import CliRunner

from kdissect.cli.main import kdissect

_LATENCIES = {"p50", "p95", "p99"}


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


def without_percentiles(value: Any) -> Any:
    """A document without what is not the same."""
    if isinstance(value, dict):
        return {key: without_percentiles(each) for key, each in value.items() if key not in _LATENCIES}
    return [without_percentiles(each) for each in value] if isinstance(value, list) else value


def summary(*arguments: object) -> Any:
    """What ``summary --json`` says, percentiles apart."""
    output = say("summary", "--json", *arguments)
    return without_percentiles(json.loads(output.out)), output.err, output.status
