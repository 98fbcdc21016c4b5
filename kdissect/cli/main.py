"""``kdissect``: which commands there are, and how each of them ends."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdissect import __version__
from kdissect.cli.terminal import FAILED, INTERRUPTED, OK, USAGE, output, warn
from kdissect.errors import DEBUG, CaptureError, KdissectError, OutputError, UnexpectedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# ------------------------------------------------------------------------------------------------------------
# Names of commands -> the commands, each in a module of its name, imported when it is called.
# ------------------------------------------------------------------------------------------------------------


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


# ------------------------------------------------------------------------------------------------------------
# A command line that is not understood -> one line that says so, and what fingers used to tshark and
# tcpdump should type here. Holds a table of their options.
# ------------------------------------------------------------------------------------------------------------


_LIVE = "kdissect live -i IFACE"

ELSEWHERE = {
    "-a": f"read reads captures; for what passes now: {_LIVE}",
    "-A": "-x shows the bytes of each field",
    "-C": "-w writes one file; editcap splits it",
    "-D": "kdissect live -D lists interfaces",
    "-e": "choose columns behind --json (jq) or --csv, or filter by them with --where",
    "-E": "--csv has a header line and commas, --json a key for each column",
    "-f": "choose with --port and --where; capture filters are for kdissect live",
    "-F": "-w writes pcapng; editcap converts it",
    "-i": f"read reads captures; for what passes now: {_LIVE}",
    "-n": "leave it out: kdissect looks up no names",
    "-nn": "leave it out: kdissect looks up no names",
    "-N": "leave it out: kdissect looks up no names",
    "-o": "there are no preferences; -d tcp.port==PORT,kafka takes a port's traffic for Kafka",
    "-O": "-V shows all of an exchange",
    "-R": "--where, or -Y, says which exchanges are shown",
    "-s": "the capture has what tcpdump -s kept",
    "-T": "the formats are --json, --csv, -V (all fields) and -x (with their bytes)",
    "-v": "-V shows all of an exchange",
    "-X": "-x shows the bytes of each field",
    "-z": "-q counts exchanges and errors",
}
"""What stands in for options that tshark or tcpdump have and ``read`` does not."""


def told(error: click.UsageError) -> str:
    """The mistake in one line, a hint behind it."""
    path = error.ctx.command_path if error.ctx is not None else "kdissect"
    if not isinstance(error, click.NoSuchOption):
        return f"{error.format_message().rstrip('.')} (see {path} --help)"
    message = f"no such option {error.option_name}"
    if error.ctx is not None and error.ctx.parent is None:
        return f"{message}; options stand behind a command: kdissect read {error.option_name} ..."
    if (hint := ELSEWHERE.get(error.option_name)) is not None:
        return f"{message}; {hint}"
    if error.possibilities:
        return f"{message}; did you mean {' or '.join(error.possibilities)}?"
    return f"{message} (see {path} --help)"


# ------------------------------------------------------------------------------------------------------------


COMMANDS = {
    "read": "Show what Kafka clients and brokers said in a capture.",
    "records": "Show the records that were produced and fetched.",
    "live": "Show what Kafka clients and brokers say, as they say it.",
    "summary": "Tell who talked to whom about what, how fast, and with which errors.",
    "check": "Tell what kind of capture this is, and how good.",
    "export": "Write typed tables for Spark, DuckDB, pandas, polars.",
    "spark": "Decode and analyse on Spark: on this machine, or on a cluster.",
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


class Kdissect(Commands):
    """The commands; a file where one of them belongs gets a hint."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was called."""
        if args[0] not in COMMANDS and (args[0] == "-" or Path(args[0]).is_file()):
            ctx.fail(f"{args[0]} is a file, not a command; try: kdissect read {args[0]}")
        return super().resolve_command(ctx, args)


@click.group(cls=Kdissect, module=__package__, told=COMMANDS, context_settings=SETTINGS, epilog=EXAMPLES)
@click.version_option(__version__, message="kdissect %(version)s", help="Show the version.")
def kdissect() -> None:
    """Tell what really happened between Kafka clients and brokers, from captured packets alone.

    Data goes to stdout, everything else to stderr. Exit status: 0 fine (also when a capture ends in the
    middle of a packet), 1 what --fail asks for was found, 2 usage error or nothing could be read, 3 a bug in
    kdissect cost some of the output, 130 after Ctrl-C.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status; whatever goes wrong is one line on stderr."""
    try:
        with output():
            status: Any = kdissect.main(arguments, prog_name="kdissect", standalone_mode=False)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        warn(*told(error).split("\n"))
        return USAGE
    except click.ClickException as error:
        warn(*error.format_message().split("\n"))
        return USAGE
    except UnexpectedError as error:
        warn(str(error))
        return FAILED
    except (CaptureError, OutputError) as error:  # names files, and what they are called is anybody's choice
        warn(str(error))
        return USAGE
    except KdissectError as error:
        warn(*str(error).split("\n"))
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  # of this too a person gets one line
        warn(str(UnexpectedError.of(error)))
        return FAILED
    return status if isinstance(status, int) else OK
