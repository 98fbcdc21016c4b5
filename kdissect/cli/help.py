"""Help: the common options of a command by default, all of them with ``--help-all``; and ``kdissect help``.

Options are listed in groups (option_names.py).
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import Any

import click

from kdissect.cli.config_file import config_options, configuration
from kdissect.cli.option_names import GROUPS, flag_of, group_of, name_of
from kdissect.cli.terminal import output
from kdissect.errors import DEBUG, UsageError
from kdissect.phrases import wrapped

MAX_EXAMPLES = 3
"""Lines of examples in the short help."""

COMMON = {
    name: frozenset(options.split())
    for name, options in {
        "read": "-d --api --topic --client --group --error --slower-than --where -V --json --fields --count "
        "-t -w",
        "records": "-d --topic --partition --key --offset --header --where --unique -V --json --fields "
        "--count --output",
        "live": "-i -d -D --api --topic --client --error --slower-than --top --summary --prometheus -w "
        "--output",
        "story": "-d --api --error --since --until --where --json --diagram --mermaid --svg --html -t",
        "trace": "-d --topic --client --since --until --where --output --max-size",
        "summary": "-d --topic --client --since --by --order-by --findings --groups --lag --transactions "
        "--versions --json --wide",
        "check": "-d --port --client --since --json --max-rows --fail",
        "report": "-d --topic --client --since --until --output --format --open",
        "plot": "-d --topic --client --since --until --output --width",
        "sql": "-d --topic --client --where --json --csv --max-rows --wide",
        "export": "-d --topic --where --since --output --format --tables --records --bodies --overwrite "
        "--jobs",
        "spark decode": "-d --topic --where --output --format --tables --records --tasks --master "
        "--overwrite",
        "spark report": "--report --by --interval --max-rows --json --sketches --master",
        "spark sql": "--json --csv --max-rows --master",
        "spark summary": "-d --topic --client --by --findings --groups --lag --json --html --tasks --master",
    }.items()
}
"""The options in the short help. Commands that are not named show all."""

EXAMPLES = """\b
Examples:
  kdissect help read          same as kdissect read --help-all
  kdissect help spark decode
"""

_ALL = f"{__name__}.all"  # in the context: whether all options are shown


def _debug(_context: click.Context, _option: click.Parameter, is_set: bool) -> None:
    if is_set:
        os.environ[DEBUG] = "1"  # inherited by child processes


def _help_all(context: click.Context, _option: click.Parameter, is_set: bool) -> None:
    if is_set and not context.resilient_parsing:
        click.echo(full_help(context))
        context.exit()


def full_help(context: click.Context) -> str:
    """The help of a command with all options and examples."""
    show_all(context)
    return context.get_help()


def show_all(context: click.Context) -> None:
    """Make the help of a command, and of those below it, show all options and examples."""
    context.meta[_ALL] = True


class HelpFormatter(click.HelpFormatter):
    """Wraps examples that are longer than the terminal; their comments go below them."""

    def write_text(self, text: str) -> None:
        """Write paragraphs: wrapped, or if marked so with their own line breaks."""
        from shutil import get_terminal_size

        whole = click.HelpFormatter(width=self.width)
        whole.current_indent = self.current_indent
        whole.write_text(text)
        max_width = max(self.width, get_terminal_size().columns)
        for line in whole.getvalue().splitlines():
            self.write("".join(f"{each}\n" for each in wrapped_example(line, max_width)))


def wrapped_example(line: str, max_width: int) -> list[str]:
    """The lines of an example: continued with backslashes if it is too long, its comment below."""
    if len(line) <= max_width:
        return [line]
    margin = " " * (len(line) - len(line.lstrip()) + 4)
    command, _, comment = line.strip().partition("  ")
    lines = wrapped(margin[4:] + command, max_width - 2, margin)
    lines[:-1] = [f"{each} \\" for each in lines[:-1]]
    return lines + (wrapped(margin + comment.strip(), max_width, margin) if comment else [])


class HelpContext(click.Context):
    """The context of all commands. Defaults of options are those of the configuration file."""

    formatter_class = HelpFormatter

    def lookup_default(self, name: str, call: Any = True) -> Any:
        """Return the default of an option that is not in the command line; None: the file has none."""
        if self.default_map is None and (config := configuration(self)) is not None:
            self.default_map = config.default_map(self)
        return super().lookup_default(name, call)


class HelpfulCommand(click.Command):
    """A command with a short help (``-h``) and a full one (``--help-all``)."""

    context_class = HelpContext

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params += config_options()
        flag: dict[str, Any] = {"is_flag": True, "expose_value": False}
        debug = f"Show a traceback after a crash; same as {DEBUG}=1."
        self.params.append(click.Option(["--debug"], callback=_debug, help=debug, **flag))
        flag |= {"is_eager": True, "help": "Show all options and examples."}
        self.params.append(click.Option(["--help-all"], callback=_help_all, **flag))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List options in groups."""
        for group, records in option_groups(self, ctx).items():
            with formatter.section(group):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and, in the full help, the rest of the text."""
        if _shown(ctx) is None:
            super().format_epilog(ctx, formatter)
        elif self.epilog:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text("\b\n" + "\n".join(_first_examples(self.epilog)))
            formatter.write(f"\nAll options and examples: {ctx.command_path} --help-all\n")


def option_groups(command: click.Command, context: click.Context) -> dict[str, list[tuple[str, str]]]:
    """The names and texts of the options in the help of a command, by group."""
    shown = _shown(context)
    groups: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
    options = [each for each in command.get_params(context) if isinstance(each, click.Option)]
    for option in options:
        flag, record = flag_of(option), option.get_help_record(context)
        if record is not None and (shown is None or flag in shown):
            names, text = record[0], record[1].replace("  [", " [")
            record = names, text
            groups[group_of(flag)].append(record if shown is None else (names, _first_sentence(text)))
    return {group: records for group, records in groups.items() if records}


class NoFileError(click.UsageError):
    """A command that reads captures was called without any."""

    def __init__(self) -> None:
        super().__init__("no FILE given; use - for stdin")

    def format_message(self) -> str:
        """Return the message, the usage and two examples: five lines."""
        if self.ctx is None:
            return self.message
        examples = _first_examples(self.ctx.command.epilog or "", 2)[1:]
        more = f"All options: {self.ctx.command_path} --help-all"
        return "\n".join((self.message, self.ctx.get_usage(), *examples, more))


command = partial(click.command, cls=HelpfulCommand)
"""``click.command`` for all commands of kdissect."""


def _shown(context: click.Context) -> frozenset[str] | None:
    """The options in the help of a command; None: all."""
    if context.meta.get(_ALL):
        return None
    return COMMON.get(name_of(context))


def _first_sentence(text: str) -> str:
    """The first sentence, up to a semicolon."""
    first = re.split(r"(?<=[.])\s+(?=[A-Z\[])|;\s", text, maxsplit=1)[0]
    return first if first.endswith(".") else f"{first}."


def _first_examples(epilog: str, count: int = MAX_EXAMPLES) -> list[str]:
    """The heading and the first examples, including continuation lines."""
    lines = epilog.removeprefix("\b\n").partition("\n\n")[0].splitlines()
    examples = 0
    for number in range(1, len(lines)):
        examples += not lines[number - 1].endswith("\\")
        if examples > count:
            return lines[:number]
    return lines


@command(epilog=EXAMPLES)
@click.argument("names", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def help(context: click.Context, names: tuple[str, ...]) -> None:  # noqa: A001  (named as the command)
    """Show all options and examples of a command.

    Without COMMAND, list the commands.
    """
    assert context.parent is not None
    shown = context.parent
    for name in names:
        group = shown.command
        if not isinstance(group, click.Group):
            raise UsageError(f"{shown.command_path} has no commands")
        resolved, inner, _ = group.resolve_command(shown, [name])
        assert inner is not None
        shown = inner.context_class(inner, info_name=resolved, parent=shown, **inner.context_settings)
    with output() as out:
        out.write(full_help(shown) + "\n")
