"""``kdissect``: which commands there are, and how each of them ends."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdissect import __version__
from kdissect.cli import habits
from kdissect.cli.terminal import INTERRUPTED, OK, USAGE, output, warn
from kdissect.errors import KdissectError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "read": "Show what Kafka clients and brokers said in a capture.",
    "records": "Show the records that were produced and fetched.",
    "live": "Show what Kafka clients and brokers say, as they say it.",
    "summary": "Tell who talked to whom about what, how fast, and with which errors.",
    "check": "Tell what kind of capture this is, and how good.",
    "export": "Write typed tables for Spark, DuckDB, pandas, polars.",
    "apis": "Show which apis and versions are known, and their layouts.",
}
EXAMPLES = """\b
Examples:
  kdissect read capture.pcap             a line for each request and its response
  kdissect read -V --api Fetch x.pcapng  every field of every Fetch
  kdissect read --json - < x.pcap.gz     JSON lines, from stdin
  kdissect records --topic orders x.pcap key and value of every record
  kdissect live -i eth0                  what passes an interface now
  kdissect apis Fetch 13                 the layout of one version
"""
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Commands(click.Group):
    """The commands of ``COMMANDS``, each in the module of its name, imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """All names, in the order of ``COMMANDS``."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"kdissect.cli.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; without any there is help, on stderr, since nothing was asked for."""
        if not args:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was called; a file in its place gets a hint."""
        if args[0] not in COMMANDS and (args[0] == "-" or Path(args[0]).is_file()):
            ctx.fail(f"{args[0]} is a file, not a command; try: kdissect read {args[0]}")
        if args[0] not in COMMANDS:
            ctx.fail(f'no command "{args[0]}"; there are {", ".join(COMMANDS)}')
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, context_settings=SETTINGS, epilog=EXAMPLES)
@click.version_option(__version__, message="kdissect %(version)s", help="Show the version.")
def kdissect() -> None:
    """Tell what really happened between Kafka clients and brokers, from captured packets alone.

    Data goes to stdout, everything else to stderr. Exit status: 0 fine (also when a capture ends in the
    middle of a packet), 2 usage error or nothing could be read, 130 after Ctrl-C.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status; whatever goes wrong is one line on stderr."""
    try:
        with output():
            status: Any = kdissect.main(arguments, prog_name="kdissect", standalone_mode=False)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        warn(habits.told(error))
        return USAGE
    except click.ClickException as error:
        warn(error.format_message())
        return USAGE
    except KdissectError as error:
        warn(str(error))
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return status if isinstance(status, int) else OK
