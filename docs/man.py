"""A command -> its manual page: the text of its full help, as roff."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import TYPE_CHECKING

import click

from kdissect.cli.help import option_groups, show_all, wrapped_example
from kdissect.cli.main import EXIT_STATUS

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH = 72  # of examples: a terminal of 80 columns without the margins of man
FILES = {
    "~/.config/kdissect/config.toml": "Defaults of options, colors, and names of hosts; see docs/config.md. "
    "XDG_CONFIG_HOME is respected."
}
ENVIRONMENT = {
    "KDISSECT_CONFIG": "The configuration file, instead of the usual one.",
    "KDISSECT_DEBUG": "If set, a bug in kdissect is shown with its traceback, as with --debug.",
    "KDISSECT_PROFILE": "The profile of the configuration file.",
    "NO_COLOR": "If set, output is not colored.",
    "SPARK_REMOTE": "The Spark Connect server that kdissect spark uses by default.",
}
SEE_ALSO = {"tshark": "1", "tcpdump": "8"}

_ESCAPES = {"\\": "e", "-": "-", "'": "(aq", "`": "(ga", "^": "(ha", "~": "(ti", '"': "(dq"}
_SPECIAL = str.maketrans({character: f"\\{escape}" for character, escape in _ESCAPES.items()})
_VERBATIM = "\b\n"
_EXAMPLES = f"{_VERBATIM}Examples:\n"
_EXIT_STATUS = f"{_VERBATIM}Exit status:\n"
_COMMENT = re.compile(r"(?<=\S) {2,}")
_METAVAR = re.compile(r"(--?[A-Za-z][\w-]*)( [^,/]\S*.*)?")


def page(command: click.Command, context: click.Context) -> str:
    """The page of a command."""
    show_all(context)
    epilog = (command.epilog or "").partition(_EXIT_STATUS)[0]
    examples, _, notes = epilog.removeprefix(_EXAMPLES).partition("\n\n")
    usage = " ".join(_roff(piece) for piece in command.collect_usage_pieces(context))
    description = cleandoc(command.help or "")
    summary = description.partition("\n")[0].rstrip(".")
    sections = {
        "NAME": [_roff(f"{page_name(context)} - {summary}")],
        "SYNOPSIS": [rf"\fB{_roff(context.command_path)}\fR {usage}"],
        "DESCRIPTION": list(_paragraphs(f"{description}\n\n{notes}"))[1:],
        "COMMANDS": [*_commands(command, context)],
        "OPTIONS": [*_options(command, context)],
        "EXAMPLES": [".EX", *_examples(examples), ".EE"] if examples else [],
        "EXIT STATUS": [_item(rf"\fB{status}\fR", text) for status, text in EXIT_STATUS.items()],
        "FILES": [_item(rf"\fI{_roff(path)}\fR", text) for path, text in FILES.items()],
        "ENVIRONMENT": [_item(rf"\fB{name}\fR", text) for name, text in ENVIRONMENT.items()],
        "SEE ALSO": [_references(context)],
    }
    lines = [f'.TH {_roff(page_name(context).upper())} 1 "" kdissect "User Commands"', ".nh", ".ad l"]
    for heading, parts in sections.items():
        lines += [f".SH {heading}", *parts] if parts else []
    return "\n".join(lines) + "\n"


def page_name(context: click.Context) -> str:
    """``kdissect-spark-report``."""
    return context.command_path.replace(" ", "-")


def _roff(text: str) -> str:
    escaped = text.translate(_SPECIAL)
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


def _item(term: str, text: str) -> str:
    return f".TP\n{term}\n{_roff(text)}"


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.strip("\n").split("\n\n"):
        if paragraph.startswith(_VERBATIM):
            yield from (".PP", ".EX", *map(_roff, paragraph.removeprefix(_VERBATIM).splitlines()), ".EE")
        else:
            yield ".PP"
            yield from map(_roff, paragraph.splitlines())


def _commands(command: click.Command, context: click.Context) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            reference = f"{page_name(context)}-{name}"
            yield _item(rf"\fB{_roff(reference)}\fR(1)", child.get_short_help_str(WIDTH))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for group, records in option_groups(command, context).items():
        yield f".SS {group}"
        for names, text in records:
            yield _item(_METAVAR.sub(_styled, names), text)


def _styled(match: re.Match[str]) -> str:
    flag, metavar = match.groups(default="")
    return rf"\fB{_roff(flag)}\fR" + (rf" \fI{_roff(metavar[1:])}\fR" if metavar else "")


def _examples(text: str) -> Iterator[str]:
    """Commands, each below its comment, and wrapped."""
    for line in text.splitlines():
        example, *comment = _COMMENT.split(line.strip(), maxsplit=1)
        yield from (f"# {_roff(each)}" for each in comment)
        yield from map(_roff, wrapped_example(example, WIDTH))


def _references(context: click.Context) -> str:
    """The pages of the commands above, and of other programs."""
    pages = {} if context.parent is None else {page_name(context.find_root()): "1"}
    pages |= {page_name(each): "1" for each in [context.parent] if each is not None} | SEE_ALSO
    return " ,\n".join(f".BR {_roff(name)} ({section})" for name, section in pages.items())
