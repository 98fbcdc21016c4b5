"""``--limits``: texts -> the bounds of a run, and the table of all bounds for people. Holds nothing."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kdissect.analysis.bounds import name_of, parse_limits, value_text
from kdissect.errors import UsageError
from kdissect.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Command = TypeVar("Command", bound="Callable[..., Any]")

SHOW = "help"
"""What ``--limits`` without a value stands for."""

_WIDTH = 100

TABLE_HEAD = """\
What kdissect holds has bounds, so that memory does not grow with a capture. What is given up past
one is counted and told. --limits NAME=VALUE sets one: a count, a size (64KB, 16MiB), a time (250ms, 15m).
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
        help="Set a bound on what is held: connections=50000, stream_bytes=16MiB. Alone: show them all.",
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
