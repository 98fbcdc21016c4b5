"""A command line that is not understood -> one line that says so, and what fingers used to tshark and tcpdump
should type here. Holds a table of their options.
"""

from __future__ import annotations

import click

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
