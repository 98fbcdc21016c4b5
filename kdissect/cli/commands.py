"""Names of commands -> the commands, each in a module of its name, imported when it is called."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.terminal import USAGE
from kdissect.errors import DEBUG

if TYPE_CHECKING:
    from collections.abc import Mapping


def _debug(_context: click.Context, _option: click.Parameter, is_set: bool) -> None:
    if is_set:
        os.environ[DEBUG] = "1"  # which processes that are started have too


_DEBUG = click.Option(
    ["--debug"],
    is_flag=True,
    expose_value=False,
    callback=_debug,
    help=f"Show the traceback of a bug; {DEBUG}=1 does it too.",
)


class Commands(click.Group):
    """A group of commands.

    Args:
        module: whose modules they are.
        told: what each does, in the order of the help text.
    """

    def __init__(self, *arguments: Any, module: str, told: Mapping[str, str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._module = module
        self._told = told

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """All names, in their order."""
        return list(self._told)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command."""
        if cmd_name not in self._told:
            return None
        command: click.Command = getattr(import_module(f"{self._module}.{cmd_name}"), cmd_name)
        if not isinstance(command, click.Group) and _DEBUG not in command.params:
            command.params.append(_DEBUG)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._told.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; without any there is help, on stderr, since nothing was asked for."""
        if not args:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was called."""
        if args[0] not in self._told:
            ctx.fail(f'no command "{args[0]}"; there are {", ".join(self._told)}')
        return super().resolve_command(ctx, args)
