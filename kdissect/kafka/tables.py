"""Package data (``.tsv`` and ``.txt`` beside this module) -> rows. Holds nothing: who asks, keeps."""

from __future__ import annotations


def rows(name: str) -> list[dict[str, str]]:
    """Read a table: tab separated, the first line names the columns, an empty cell is an empty string."""
    head, *lines = (line.split("\t") for line in _text(name).splitlines())
    return [dict(zip(head, line, strict=True)) for line in lines]


def lines(name: str) -> list[str]:
    """Read a list: one item a line, without comments and empty lines."""
    items = (line.partition("#")[0].strip() for line in _text(name).splitlines())
    return [item for item in items if item]


def _text(name: str) -> str:
    # Imported here because it costs milliseconds; it also reads from a zip, the form in which Spark ships us.
    from importlib.resources import files

    return (files(__package__) / name).read_text(encoding="utf-8")
