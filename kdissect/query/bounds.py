"""``connections=50000,stream_bytes=16MiB`` -> ``Limits``. Holds no state."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from kdissect.errors import UsageError
from kdissect.limits import DEFAULT, MILLISECOND_NS, MINUTE_NS, SECOND_NS, Limits
from kdissect.nearest import did_you_mean
from kdissect.query.filters import parse_duration, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable
    from dataclasses import Field

_COUNT, _SIZE, _TIME = "count", "size", "time"
_UNITS = {
    _TIME: (("m", MINUTE_NS), ("s", SECOND_NS), ("ms", MILLISECOND_NS), ("us", 1000), ("ns", 1)),
    _SIZE: (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)),
}
_MAX_VALUE = 1 << 62  # C libraries add such values in 64 bits


def parse_limits(texts: Iterable[str], defaults: Limits = DEFAULT) -> Limits:
    """``connections=50000,stream_bytes=16MiB`` -> the defaults with these values replaced.

    Raises:
        UsageError: unknown limit, or invalid value.
    """
    known = {name_of(bound): bound for bound in fields(Limits)}
    values = {}
    for text in (part for option in texts for part in option.split(",")):
        name, equals, value = text.partition("=")
        plain = name.strip().lower().replace("-", "_").removesuffix("_ns")
        if not equals:
            raise UsageError(f'invalid limit "{text}": use NAME=VALUE; --limits alone lists the names')
        if plain not in known:
            raise UsageError(
                f'unknown limit "{name.strip()}"{did_you_mean(plain, known)}; --limits alone lists the limits'
            )
        values[known[plain].name] = _to_number(plain, _kind(known[plain]), value)
    return replace(defaults, **values)


def name_of(bound: Field[Any]) -> str:
    """The name as users write it, without the unit of times."""
    return bound.name.removesuffix("_ns")


def value_text(bound: Field[Any], limits: Limits) -> str:
    """The value of a limit, in the notation of ``parse_limits``."""
    value = getattr(limits, bound.name)
    units = _UNITS.get(_kind(bound), (("", 1),))
    return next(f"{value // size}{unit}" for unit, size in units if value % size == 0)


def _kind(bound: Field[Any]) -> str:
    if bound.name.endswith("_ns"):
        return _TIME
    return _SIZE if bound.name.endswith("_bytes") else _COUNT


def _to_number(name: str, kind: str, text: str) -> int:
    try:
        if kind == _TIME:
            number = parse_duration(text)
        elif kind == _SIZE:
            number = parse_size(text)
        elif text.strip().replace("_", "").isdecimal():
            number = int(text)
        else:
            raise UsageError(f'invalid count "{text}": use 20000')
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    if not (0 if kind == _TIME else 1) <= number <= _MAX_VALUE:
        raise UsageError(f'{name}: "{text}" is too {"large" if number else "small"}')
    return number
