"""``kdissect``: which commands there are, and how each of them ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdissect import __version__
from kdissect.cli import habits
from kdissect.cli.commands import Commands
from kdissect.cli.terminal import FAILED, INTERRUPTED, OK, USAGE, output, warn
from kdissect.errors import CaptureError, KdissectError, OutputError, UnexpectedError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        warn(*habits.told(error).split("\n"))
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
