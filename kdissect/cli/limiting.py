"""``--limits``: texts -> the bounds of a run, and the table of all bounds for people. Holds nothing."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kdissect.analysis.nearest import did_you_mean
from kdissect.analysis.quantities import parse_duration, parse_size
from kdissect.errors import UsageError
from kdissect.limits import DEFAULT, MILLISECOND_NS, MINUTE_NS, SECOND_NS, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from dataclasses import Field

Command = TypeVar("Command", bound="Callable[..., Any]")

SHOW = "help"
"""What ``--limits`` without a value stands for."""

_COUNT, _SIZE, _TIME = "count", "size", "time"
_UNITS = {
    _TIME: (("m", MINUTE_NS), ("s", SECOND_NS), ("ms", MILLISECOND_NS), ("us", 1000), ("ns", 1)),
    _SIZE: (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)),
}
_WIDTH = 100
_LARGEST = 1 << 62  # sums of a few of them still fit into what C libraries take

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
    """``connections=50000,stream_bytes=16MiB`` -> the usual bounds with these numbers in their place.

    Raises:
        click.BadParameter: there is no such bound, or the value is none.
    """
    known = {name_of(bound): bound for bound in fields(Limits)}
    wanted = {}
    for text in (part for given in texts for part in given.split(",")):
        name, equals, value = text.partition("=")
        plain = name.strip().lower().replace("-", "_").removesuffix("_ns")
        if not equals:
            raise click.BadParameter(
                f'"{text}" sets nothing; write NAME=VALUE, --limits alone shows the names'
            )
        if plain not in known:
            raise click.BadParameter(f'no bound is called "{name.strip()}"{did_you_mean(plain, known)}')
        wanted[known[plain].name] = _to_number(plain, _kind(known[plain]), value)
    return replace(usual, **wanted)


def table(limits: Limits = DEFAULT) -> str:
    """Every bound with its value and its reason, by stage."""
    names = {bound: name_of(bound) for bound in fields(Limits)}
    width = max(map(len, names.values()))
    lines, stage = [TABLE_HEAD], None
    for bound, name in names.items():
        if bound.metadata["stage"] != stage:
            stage = bound.metadata["stage"]
            lines.append(f"{stage}:\n")
        beginning = f"  {name:{width}}  {value_text(_kind(bound), getattr(limits, bound.name)):>9}  "
        reason = fill(
            bound.metadata["reason"], _WIDTH, initial_indent=beginning, subsequent_indent=" " * len(beginning)
        )
        lines.append(reason + "\n")
    return "".join(lines)


def name_of(bound: Field[Any]) -> str:
    """As people write it: a time brings its own unit."""
    return bound.name.removesuffix("_ns")


def value_text(kind: str, value: int) -> str:
    """As ``to_limits`` takes it."""
    units = _UNITS.get(kind, (("", 1),))
    return next(f"{value // size}{unit}" for unit, size in units if value % size == 0)


def _kind(bound: Field[Any]) -> str:
    if bound.name.endswith("_ns"):
        return _TIME
    return _SIZE if re.search(r"_bytes(_in_all)?$", bound.name) else _COUNT


def _to_number(name: str, kind: str, text: str) -> int:
    try:
        if kind == _TIME:
            number = parse_duration(text)
        elif kind == _SIZE:
            number = parse_size(text)
        elif text.strip().replace("_", "").isdecimal():
            number = int(text)
        else:
            raise UsageError(f'"{text}" is no count; write 20000')
    except UsageError as error:
        raise click.BadParameter(f"{name}: {error}") from None
    if not (0 if kind == _TIME else 1) <= number <= _LARGEST:
        raise click.BadParameter(f'{name}: "{text}" is too {"large" if number else "small"}')
    return number
