"""Options that several commands share: declared once, read into values here."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kdissect.capture.inputs import local
from kdissect.errors import UsageError
from kdissect.files import PRIVATE
from kdissect.limits import DEFAULT, LIVE, Limits
from kdissect.model import KINDS
from kdissect.options import Options
from kdissect.query.bounds import name_of, parse_limits, value_text
from kdissect.query.filters import parse_port_rule, parse_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


# ------------------------------------------------------------------------------------------------------------
# ``--limits``: texts -> the bounds of a run, and the table of all bounds for people. Holds nothing.
# ------------------------------------------------------------------------------------------------------------


Command = TypeVar("Command", bound="Callable[..., Any]")

SHOW = "help"
"""What ``--limits`` without a value stands for."""

_WIDTH = 100

TABLE_HEAD = """\
Limits keep memory from growing with the capture. Anything dropped because of a limit is counted and
reported. --limits NAME=VALUE sets one: a count, a size (64KB, 16MiB), a time (250ms, 15m).
"""


def limits_option(usual: Limits = DEFAULT) -> Callable[[Command], Command]:
    """Give a command ``--limits``; it gets the value as ``limits``: the usual ones, but for what was set."""

    def read(context: click.Context, _: click.Parameter, texts: tuple[str, ...]) -> Limits:
        if SHOW in texts:
            click.echo(table(usual), nl=False)
            context.exit()
        return to_limits(texts, usual)

    return click.option(
        "--limits",
        multiple=True,
        is_flag=False,
        flag_value=SHOW,
        callback=read,
        metavar="NAME=VALUE",
        help="Set a limit: connections=50000, stream_bytes=16MiB. Alone: show all limits.",
    )


def to_limits(texts: Iterable[str], usual: Limits = DEFAULT) -> Limits:
    """See ``parse_limits``.

    Raises:
        click.BadParameter: there is no such bound, or the value is none.
    """
    try:
        return parse_limits(texts, usual)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


def table(limits: Limits = DEFAULT) -> str:
    """Every bound with its value and its reason, by stage."""
    from textwrap import fill  # needed here alone

    names = {bound: name_of(bound) for bound in fields(Limits)}
    width = max(map(len, names.values()))
    lines, stage = [TABLE_HEAD], None
    for bound, name in names.items():
        if bound.metadata["stage"] != stage:
            stage = bound.metadata["stage"]
            lines.append(f"{stage}:\n")
        beginning = f"  {name:{width}}  {value_text(bound, limits):>9}  "
        reason = fill(
            bound.metadata["reason"], _WIDTH, initial_indent=beginning, subsequent_indent=" " * len(beginning)
        )
        lines.append(reason + "\n")
    return "".join(lines)


# ------------------------------------------------------------------------------------------------------------


# What turns an option's text into its value. Functions, because click's class of types is generic in some
# releases and not in others.


def to_ports(text: str) -> frozenset[int]:
    """See ``parse_ports``.

    Raises:
        click.BadParameter: it is none.
    """
    return _told(parse_ports, text)


def to_kafka_ports(text: str) -> frozenset[int]:
    """See ``parse_port_rule``.

    Raises:
        click.BadParameter: it is no such rule.
    """
    return _told(parse_port_rule, text)


def _told(parse: Callable[[str], frozenset[int]], text: str) -> frozenset[int]:
    try:
        return parse(text)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


def to_local(_: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """The callback of an option that names what is written: a path as it is, of a ``file:`` URL its path.

    Raises:
        click.BadParameter: it is any other URL.
    """
    try:
        return None if text is None else local(text)
    except UsageError as error:
        raise click.BadParameter(str(error), param=parameter) from None


def to_exchange_id(text: str) -> tuple[str, int]:
    """``CONNECTION/NUMBER`` -> the key that all tables join on.

    Raises:
        click.BadParameter: it is not.
    """
    connection, _, number = text.rpartition("/")
    if not connection or not number.isdecimal():
        raise click.BadParameter(f'invalid exchange "{text}": use CONNECTION/NUMBER, as shown by -V')
    return connection, int(number)


def take_options(options: dict[str, Any]) -> Options:
    """Take what the options below say out of a command's options, and leave the rest."""
    return Options(
        limits=options.pop("limits", DEFAULT),
        ports=frozenset().union(*options.pop("ports")),
        kafka_ports=frozenset().union(*options.pop("decode_as")),
        show_secrets=options.pop("show_secrets"),
        criteria={name: texts for name in CRITERIA if (texts := options.pop(name, ()))},
        where=options.pop("where", None),
        exchanges=frozenset(options.pop("exchanges", ())),
    )


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, in this order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def _criterion(name: str, metavar: str, text: str) -> Callable[[Command], Command]:
    return click.option(f"--{name}", multiple=True, metavar=metavar, help=text)


_file_options = together(
    click.argument("files", nargs=-1, metavar="FILE..."),
    click.option(
        "-r",
        "also_files",
        multiple=True,
        metavar="FILE",
        help="Input file (same as FILE).",
    ),
)
_traffic_options = together(
    click.option(
        "-d",
        "decode_as",
        multiple=True,
        type=to_kafka_ports,
        metavar="tcp.port==PORT,kafka",
        help="Decode all traffic on PORT as Kafka.",
    ),
    click.option(
        "--port",
        "ports",
        multiple=True,
        type=to_ports,
        metavar="PORT",
        help="Only connections with this port.",
    ),
    click.option("--show-secrets", is_flag=True, help="Show credentials, which are redacted by default."),
)

input_options = together(
    _file_options,
    _traffic_options,
    limits_option(),
    click.option("--no-progress", is_flag=True, help="No progress bar on stderr."),
)
"""Where packets come from and which of them are Kafka."""

live_options = together(_traffic_options, limits_option(LIVE))
"""The same, where packets come live: without where from."""

filter_options = together(
    _criterion("api", "API", "Fetch, find-coordinator, FIND_COORDINATOR, 10 ..."),
    _criterion("topic", "TOPIC", "Topic name, id or pattern: 'orders-*'."),
    _criterion("partition", "PARTITION", "3, or orders:3."),
    _criterion("client", "CLIENT", "Client id or pattern, or address: 10.0.0.5, 10.0.0.5:41234."),
    _criterion("group", "GROUP", "Group id or pattern."),
    _criterion("error", "ERROR", "NOT_LEADER_OR_FOLLOWER, 6, or a pattern: '*' is any error."),
    _criterion("kind", "KIND", f"One of {', '.join(KINDS)}."),
    _criterion("slower-than", "TIME", "Minimum latency: 50ms, 1.5s."),
    _criterion("bigger-than", "SIZE", "Minimum frame size of request or response: 1000, 64KB, 1MiB."),
    _criterion(
        "since",
        "WHEN",
        "Start of the time range: 2026-11-21T09:05:00Z, 09:05 (UTC, on the first day), or seconds "
        "since 1970.",
    ),
    _criterion("until", "WHEN", "End of the time range (exclusive), in the same formats."),
    _criterion("connection", "ID", "Connection id or prefix."),
    click.option(
        "--where",
        "-Y",
        "where",
        metavar="EXPRESSION",
        help="Filter expression over columns and fields; see the examples below. Regular expressions "
        "(=~) use RE2 syntax.",
    ),
)
"""Which exchanges are shown: criteria of one kind are or-ed, different kinds and-ed."""


def to_mode(text: str) -> int:
    """Permissions of a file, as chmod has them in octal.

    Raises:
        click.BadParameter: it is none that its owner can read and write.
    """
    mode = int(text, 8) if re.fullmatch("0?[0-7]{3}", text) else 0
    if mode & ~0o066 != PRIVATE:
        raise click.BadParameter(f'invalid mode "{text}": use 600, 640, 660 or 644')
    return mode


mode_option = click.option(
    "--mode",
    type=to_mode,
    metavar="MODE",
    help="Permissions of the files written, regardless of the umask; new folders get the matching "
    "execute bits. Files may contain payload and credentials. [default: 600]",
)
"""Who else may read files of what was captured; None: nobody."""


def exchange_option(text: str) -> Callable[[Command], Command]:
    """Exchanges asked for by name; a command says by ``text`` what it does with them."""
    return click.option(
        "--exchange",
        "exchanges",
        multiple=True,
        type=to_exchange_id,
        metavar="CONNECTION/NUMBER",
        help=text,
    )


colour_option = click.option(
    "--color",
    "--colour",
    "colour",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="auto: on a terminal, unless NO_COLOR is set.",
)
"""Whether what a person reads is coloured."""

CSV_TEXTS = (
    "On a terminal, control and bidirectional formatting characters are escaped; files and pipes get them "
    "unchanged."
)
csv_option = click.option("--csv", "as_csv", is_flag=True, help=f"The same columns as CSV. {CSV_TEXTS}")
"""Rows as CSV."""

CRITERIA = (
    *("api", "topic", "partition", "client", "group", "error", "kind"),
    *("slower_than", "bigger_than", "since", "until", "connection"),
)
"""The filter options by name, as ``query.filters.build`` has them; ``where`` is apart."""
