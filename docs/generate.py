"""Help texts, columns, types -> docs/*.md and *.schema.json, so that the docs match the program.

python docs/generate.py            write the pages
python docs/generate.py --check    write nothing; print a diff and exit with status 1 if a page is outdated
"""

from __future__ import annotations

import sys
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdissect.cli.main import kdissect
from kdissect.spark.options import OPTIONS
from kdissect.stats.document import Summary
from kdissect.stats.quality import Check
from kdissect.tables import column_page
from kdissect.tables.json_schema import schema
from kdissect.tables.values import json_document

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parent
WIDTH = 100

CLI_HEAD = """\
# Commands

This page is generated from `kdissect --help` and the `--help` of each command.
"""

SOURCE_HEAD = """\
# Options of the data source

This page is generated. It lists the options of `spark.read.format("kdissect")` and
`spark.readStream.format("kdissect")`; [spark.md](spark.md) has examples. Names are not case-sensitive and may
contain `-` or `_`. Separate several values with commas, or pass a JSON list. Defaults are in brackets.
"""


def pages() -> dict[Path, str]:
    """Every generated page, and what should stand in it."""
    return {
        FOLDER / "cli.md": cli_page(),
        FOLDER / "columns.md": column_page.markdown().rstrip() + "\n",
        FOLDER / "source.md": source_page(),
        FOLDER / "summary.schema.json": json_document(schema(Summary)).decode(),
        FOLDER / "check.schema.json": json_document(schema(Check)).decode(),
    }


def cli_page() -> str:
    """A section for each command, in the order in which ``--help`` lists them."""
    sections = (f"## {name}\n\n```text\n{text}\n```\n" for name, text in help_texts(kdissect, "kdissect"))
    return "\n".join((CLI_HEAD, *sections))


def source_page() -> str:
    """A line for each option of the data source."""
    rows = (f"| `{name}` | {sentence} |" for name, sentence in OPTIONS.items())
    return "\n".join((SOURCE_HEAD, "| option | meaning |", "|---|---|", *rows, ""))


def help_texts(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """Yield a command's full name and its help, then those of the commands below it."""
    context = click.Context(
        command, info_name=name, parent=parent, terminal_width=WIDTH, **command.context_settings
    )
    yield context.command_path, command.get_help(context).rstrip()
    if isinstance(command, click.Group):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            if child is not None and not child.hidden:
                yield from help_texts(child, child_name, context)


def differences() -> Iterator[str]:
    """Yield the lines of a diff from what stands in docs to what should."""
    for path, wanted in pages().items():
        found = path.read_text(encoding="utf-8") if path.exists() else ""
        name = f"docs/{path.name}"
        yield from unified_diff(
            found.splitlines(), wanted.splitlines(), name, f"{name}, generated", lineterm=""
        )


def main(arguments: list[str]) -> int:
    """Write the pages, or with ``--check`` compare them."""
    if arguments == ["--check"]:
        lines = list(differences())
        if lines:
            sys.stdout.write("\n".join([*lines, "", "python docs/generate.py would write this", ""]))
        return 1 if lines else 0
    if arguments:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
