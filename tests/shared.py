"""What several processes make of a capture, beside what one makes of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from click.testing import CliRunner

from kdissect.cli.main import kdissect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LATENCIES = {"p50", "p95", "p99"}


class Said(NamedTuple):
    """What a command wrote, and how it ended."""

    out: bytes
    err: bytes
    status: int


def say(*arguments: object) -> Said:
    """Run a command in this process, which may start others."""
    result = CliRunner().invoke(kdissect, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Said(result.stdout_bytes, result.stderr_bytes, result.exit_code)


def without_percentiles(value: Any) -> Any:
    """A document without what is not the same."""
    if isinstance(value, dict):
        return {key: without_percentiles(each) for key, each in value.items() if key not in _LATENCIES}
    return [without_percentiles(each) for each in value] if isinstance(value, list) else value


def summary(*arguments: object) -> Any:
    """What ``summary --json`` says, percentiles apart."""
    said = say("summary", "--json", *arguments)
    return without_percentiles(json.loads(said.out)), said.err, said.status


def files(folder: Path) -> Iterator[tuple[str, Any]]:
    """The files of an export: bytes, rows of Parquet, and manifests without what tells the time of day."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".parquet":
            from pyarrow import parquet

            yield name, parquet.read_table(path, partitioning=None).to_pylist()
        elif path.name == "manifest.json":
            document = json.loads(path.read_bytes())
            document.pop("written")
            document["clock"].pop("started")
            yield name, document
        elif path.is_file():
            yield name, path.read_bytes()


def exported(folder: Path, *arguments: object) -> Any:
    """What an export writes."""
    said = say("export", *arguments, "-o", folder)
    found = dict(files(folder))
    return {
        name: _sizeless(value) if folder.name and name.endswith("manifest.json") else value
        for name, value in found.items()
    }, said


def _sizeless(document: Any) -> Any:
    if document["format"] == "parquet":  # which writes down how its rows came
        for file in document["files"]:
            file.pop("bytes")
        document.pop("bytes")
    return document
