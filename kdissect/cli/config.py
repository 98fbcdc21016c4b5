"""``kdissect config show``: the configuration file -> its settings, and which table each comes from."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.config_file import (
    COLORS,
    DEFAULTS,
    HOSTS,
    PROFILES,
    configuration,
    is_defaults,
    key_of,
    usual_path,
)
from kdissect.cli.help import command
from kdissect.cli.option_names import name_of, options_of
from kdissect.cli.options import color_option
from kdissect.cli.terminal import output, use_color, width
from kdissect.nearest import did_you_mean
from kdissect.phrases import ABSENT, absent
from kdissect.text import page
from kdissect.text.page import View, table
from kdissect.text.style import Style

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.cli.config_file import ConfigFile

EXAMPLES = """\b
Examples:
  kdissect config show
  kdissect config show --profile prod
  kdissect config show read            all options of kdissect read
"""

VIEWS = (
    View("COMMAND", itemgetter(0), keep=True),
    View("OPTION", itemgetter(1), keep=True),
    View("VALUE", itemgetter(2), shrinks=True, keep=True),
    View("FROM", itemgetter(3), keep=True),
)


@command(epilog=EXAMPLES)
@click.argument("action", type=click.Choice(["show"]), metavar="[show]", default="show")
@click.argument("names", nargs=-1, metavar="[COMMAND]...")
@color_option
@click.pass_context
def config(context: click.Context, action: str, names: tuple[str, ...], color: str) -> None:  # noqa: ARG001
    """Show settings, and where each comes from.

    Checks the whole configuration file. With COMMAND, lists all options of that command with their values.
    """
    file = configuration(context)
    assert file is not None
    contexts = {name_of(each): each for each in _contexts(context.find_root())}
    name = " ".join(names)
    if name and name not in contexts:
        raise click.UsageError(f'unknown command "{name}"{did_you_mean(name, contexts)}')
    for each in contexts.values():
        _check(each, file)
    rows = list(_options(contexts[name], file)) if name else list(_settings(file, contexts))
    notes = [
        str(file.path) if file.path is not None else f"no configuration file: {usual_path()} does not exist"
    ]
    if file.profile is not None:
        notes.append(f"profile {file.profile}")
    with output() as out:
        section = table("Configuration", VIEWS[bool(name) :], rows, notes=tuple(notes))
        page.write(out, [section], width=width(out), style=Style(use_color(out, color)))


def _contexts(context: click.Context) -> Iterator[click.Context]:
    """The contexts of all commands below one."""
    group = context.command
    if not isinstance(group, click.Group):
        yield context
        return
    for name in group.list_commands(context):
        child = group.get_command(context, name)
        assert child is not None
        yield from _contexts(
            child.context_class(child, info_name=name, parent=context, **child.context_settings)
        )


def _check(context: click.Context, file: ConfigFile) -> None:
    """Check all that a file has for a command, in every profile.

    Raises:
        UsageError: there is no such option, or it cannot have this value.
    """
    options = {option.name: option for option in options_of(context)}
    for profile in (None, *file.tables.get(PROFILES, {})):
        chosen = file._replace(profile=profile)
        chosen.colors()
        chosen.hosts()
        for name, value in chosen.default_map(context).items():
            option = options[name]
            try:
                option.process_value(context, value)
            except click.BadParameter as error:
                setting = chosen.options(name_of(context))[key_of(option)]
                raise file.error(setting.table, f"{key_of(option)}: {error.message}") from None


def _settings(file: ConfigFile, names: Iterable[str]) -> Iterator[Sequence[str]]:
    """What a file sets: for all commands, and for those that have tables."""
    for name in (DEFAULTS, *names):
        for key, setting in file.options(name).items():
            if is_defaults(setting.table) == (name == DEFAULTS):
                yield "all" if name == DEFAULTS else name, key, _text(setting.value), f"[{setting.table}]"
    for name in (COLORS, HOSTS):
        for key, setting in file.settings(name).items():
            yield name, key, _text(setting.value), f"[{setting.table}]"


def _options(context: click.Context, file: ConfigFile) -> Iterator[Sequence[str]]:
    """All options of a command."""
    settings = file.options(name_of(context))
    for option in options_of(context):
        key = key_of(option)
        if key in settings:
            yield name_of(context), key, _text(settings[key].value), f"[{settings[key].table}]"
        else:
            yield name_of(context), key, _text(option.to_info_dict()["default"]), "default"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) or ABSENT if isinstance(value, list | tuple) else absent(value)
