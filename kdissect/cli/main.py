"""``kdissect``: a command line -> the command it names, and errors of any command -> an exit status."""

from __future__ import annotations

import gc
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kdissect import __version__, core
from kdissect.cli.config_file import configuration
from kdissect.cli.help import HelpContext, NoFileError
from kdissect.cli.terminal import FAILED, INTERRUPTED, OK, USAGE, output, warn
from kdissect.errors import CaptureError, KdissectError, OutputError, UnexpectedError, WriteError
from kdissect.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_GC_THRESHOLDS = 5_000, 10, 10
"""Almost nothing here is part of a cycle, but a table of many connections takes long to search for one."""


# ------------------------------------------------------------------------------------------------------------
# Names of commands -> commands. Each is in a module of the same name, which is imported when it is called.
# ------------------------------------------------------------------------------------------------------------


class Commands(click.Group):
    """A group of commands.

    Args:
        module: the package with their modules.
        summaries: what each command does, by name.
        sections: the commands under each heading of the help text.
    """

    context_class = HelpContext

    def __init__(
        self,
        *arguments: Any,
        module: str,
        summaries: Mapping[str, str],
        sections: Mapping[str, Sequence[str]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._module = module
        self._summaries = summaries
        self._sections = sections or {"Commands": tuple(summaries)}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """Return all names, in the order of the help text."""
        return list(self._summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command."""
        if cmd_name not in self._summaries:
            return None
        command: click.Command = getattr(import_module(f"{self._module}.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing any."""
        for heading, names in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self._summaries[name]) for name in names])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Without any, print the help to stderr and exit with a usage error."""
        if not args and not ctx.resilient_parsing:  # during shell completion
            click.echo(ctx.get_help(), err=True)
            ctx.exit(USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was called."""
        if args[0] not in self._summaries:
            hint = did_you_mean(args[0], self._summaries) or f"; known: {', '.join(self._summaries)}"
            ctx.fail(f'unknown command "{args[0]}"{hint}')
        return super().resolve_command(ctx, args)


# ------------------------------------------------------------------------------------------------------------
# A usage error -> one line, with a hint for options of tshark and tcpdump.
# ------------------------------------------------------------------------------------------------------------


_LIVE = "kdissect live -i IFACE"

OPTION_HINTS = {
    "-a": f"read is for captures; for live traffic: {_LIVE}",
    "-A": "-x shows the bytes of each field",
    "-C": "-w writes one file; split it with editcap",
    "-D": "kdissect live -D lists interfaces",
    "-E": "--csv has a heading and commas, --json a key for each column, --fields tabs",
    "-f": "filter with --port and --where; capture filters are for kdissect live",
    "-F": "-w writes pcapng; convert it with editcap",
    "-i": f"read is for captures; for live traffic: {_LIVE}",
    "-n": "not needed: kdissect does not resolve names",
    "-nn": "not needed: kdissect does not resolve names",
    "-N": "not needed: kdissect does not resolve names",
    "-O": "-V shows all fields of an exchange",
    "-R": "--where, or -Y, selects the exchanges to show",
    "-s": "the snapshot length was set when the capture was recorded (tcpdump -s)",
    "-T": "the formats are --json, --csv, -e NAME,... (without -T), -V (all fields), -x (their bytes)",
    "--sort": "use --order with read, --order-by with summary",
    "-v": "-V shows all fields of an exchange",
    "-X": "-x shows the bytes of each field",
    "-z": "-q counts exchanges and errors",
}
"""What to use instead of options that tshark or tcpdump have and ``read`` does not."""


def format_error(error: click.UsageError) -> str:
    """Format a usage error as one line that ends with a hint."""
    path = error.ctx.command_path if error.ctx is not None else "kdissect"
    if isinstance(error, NoFileError):
        return error.format_message()
    if isinstance(error, click.BadParameter) and (path_of_config := _config_path(error)) is not None:
        return f"{path_of_config}: {error.format_message().rstrip('.')}"
    if isinstance(error, click.BadParameter) and error.message.startswith(_SELF_EXPLANATORY):
        return f"{_name(error)}{error.message}"
    if not isinstance(error, click.NoSuchOption):
        return f"{error.format_message().rstrip('.')} (see {path} --help)"
    message = f"no such option {error.option_name}"
    if error.ctx is not None and error.ctx.parent is None:
        return f"{message}; options go after the command: kdissect read {error.option_name} ..."
    if (hint := OPTION_HINTS.get(error.option_name)) is not None:
        return f"{message}; {hint}"
    if error.possibilities:
        *others, last = error.possibilities
        return f"{message}; did you mean {', '.join(others)}{' or ' if others else ''}{last}?"
    return f"{message} (see {path} --help)"


_SELF_EXPLANATORY = ("invalid ", "unknown ", "no ")


def _name(error: click.BadParameter) -> str:
    """The option that an error is about, before a colon."""
    option = error.param
    return f"{option.opts[-1]}: " if isinstance(option, click.Option) else ""


def _config_path(error: click.BadParameter) -> Path | None:
    """The configuration file that an invalid value is from; None: it is not from there."""
    context, option = error.ctx, error.param
    if context is None or option is None or option.name is None:
        return None
    is_default = context.get_parameter_source(option.name) is ParameterSource.DEFAULT_MAP
    config = configuration(context) if is_default else None
    return None if config is None else config.path


# ------------------------------------------------------------------------------------------------------------


COMMANDS = {
    "read": "Show the exchanges (requests and their responses) in a capture.",
    "records": "Show the records that were produced and fetched.",
    "live": "Show live traffic on an interface.",
    "summary": "Summarize clients, topics, latencies and errors.",
    "story": "Show what happened to one group, client, transaction, topic, record, broker or host.",
    "check": "Report what a capture contains and how complete it is.",
    "report": "Write a page for a ticket: verdicts, findings, charts and tables.",
    "plot": "Draw one chart: SVG, PNG or PDF.",
    "trace": "Write a trace for Perfetto: exchanges on a time line.",
    "sql": "Query captures with SQL.",
    "export": "Write typed tables for Spark, DuckDB, pandas or Polars.",
    "spark": "Decode and analyze with Spark, on this machine or a cluster.",
    "explain": "Say what a number, name or line of a log means.",
    "apis": "Show known APIs and versions, and their layouts.",
    "fields": "List the columns and fields for filters and --fields.",
    "config": "Show settings, and where each comes from.",
    "completion": "Print a shell completion script.",
    "help": "Show all options and examples of a command.",
}
SECTIONS = {
    "Captures": ("read", "records", "summary", "story", "check", "sql"),
    "Pictures": ("report", "plot", "trace"),
    "Live traffic": ("live",),
    "Tables": ("export", "spark"),
    "Reference": ("explain", "apis", "fields", "config", "completion", "help"),
}
EXAMPLES = """\b
Examples:
  kdissect read capture.pcap              one line per exchange
  kdissect read -V --api Fetch x.pcapng   every field of every Fetch
  kdissect read --json - < x.pcap.gz      JSON lines, from stdin
  kdissect records --topic orders x.pcap  key and value of every record
  kdissect live -i eth0                   live traffic on an interface
  kdissect apis Fetch 13                  the layout of one version
"""
EXIT_STATUS = {
    0: "success, even if a capture ends in the middle of a packet",
    1: "--fail or spark doctor found something to report",
    2: "usage error, or a capture that is missing or cannot be read; the others are shown",
    3: "output is missing or incomplete because of an I/O error or a bug in kdissect",
    130: "stopped by Ctrl-C",
    143: "stopped by SIGTERM",
}
_EXIT_STATUS = "\n".join(
    ("\n\b\nExit status:", *(f"  {code:<3}  {text}" for code, text in EXIT_STATUS.items()))
)
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Kdissect(Commands):
    """The top-level commands. A file in place of a command gets a hint."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was called."""
        if args[0] not in COMMANDS and (args[0] == "-" or Path(args[0]).is_file()):
            ctx.fail(f"{args[0]} is a file, not a command; try: kdissect read {args[0]}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Kdissect,
    module=__package__,
    summaries=COMMANDS,
    sections=SECTIONS,
    context_settings=SETTINGS,
    epilog=EXAMPLES + _EXIT_STATUS,
)
@click.version_option(
    __version__,
    message=f"kdissect %(version)s ({'core' if core.is_used else 'pure'})",
    help="Show the version, and whether the native core is in use.",
)
def kdissect() -> None:
    """Show what actually happened between Kafka clients and brokers, from captured packets.

    Data goes to stdout, everything else to stderr. COMMAND -h shows the common options of a command, COMMAND
    --help-all shows all options.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status. Any error is one line on stderr."""
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        with output():
            status: Any = kdissect.main(arguments, prog_name="kdissect", standalone_mode=False)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        warn(*format_error(error).split("\n"))
        return USAGE
    except click.ClickException as error:
        warn(*error.format_message().split("\n"))
        return USAGE
    except (UnexpectedError, WriteError) as error:
        warn(str(error))
        return FAILED
    except (CaptureError, OutputError) as error:  # one line: a file name may contain line breaks
        warn(str(error))
        return USAGE
    except KdissectError as error:
        warn(*str(error).split("\n"))
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  # a bug is reported in one line too
        warn(str(UnexpectedError.of(error)))
        return FAILED
    return status if isinstance(status, int) else OK
