"""Declarations of what a class counts -> its ``merge``: how two counts of the same thing become one.

    @summed
    class Written(Summed):
        bytes: int = total()
        first_ns: int | None = earliest()
        clients: Distinct = merged(Distinct)

Parts of a capture are counted apart, by processes and on a cluster, and added up: an attribute that ``merge``
forgets is lost in silence. So each declares how two of it join, and what it is at first; a class with one
that does not is refused at import. Instances are plain slotted objects.

What has an algorithm (sketches, bounded tables) writes ``merge`` by hand and joins as a value.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import iadd
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    Join = Callable[[Any, Any], Any]
    Make = Callable[[], Any]


class Mergeable(Protocol):
    """A value that can take in another one of its kind."""

    def merge(self, other: Any, /) -> None:
        """Take in what another one counted; the other is not used any more."""


class Summed:
    """What adds up as its attributes declare; see ``summed``."""

    __slots__ = ()

    declared: ClassVar[tuple[tuple[str, Join, Make | None], ...]] = ()

    def __init__(self) -> None:
        declared = vars(type(self))["declared"]  # not inherited: a class that is not ``summed`` fails
        for name, _, make in declared:
            if make is not None:
                setattr(self, name, make())

    def merge(self, other: Self) -> None:
        """Take in what another one counted; the other is not used any more."""
        join(self, other, type(self))


Sum = TypeVar("Sum", bound=Summed)


def summed(cls: type[Sum]) -> type[Sum]:
    """Give a class slots for its attributes, and to ``__init__`` and ``merge`` what they declare.

    The class is a new one, as with slotted dataclasses: methods name the base class, as ``super()`` would
    look for the old one.

    Raises:
        TypeError: an attribute does not declare how two of it join.
    """
    cls = dataclass(init=False, repr=False, eq=False, match_args=False, slots=True)(cls)
    for each in fields(cls):  # type: ignore[arg-type]
        if "join" not in each.metadata:
            raise TypeError(f"{cls.__name__}.{each.name} does not declare how two of it join")
    cls.declared = tuple((each.name, *each.metadata.values()) for each in fields(cls))  # type: ignore[arg-type]
    return cls


def join(one: Sum, other: Sum, of: type[Sum]) -> None:
    """Take in what another one counted, as far as a class declares it: their own, or a base of both."""
    for name, two, _ in vars(of)["declared"]:
        setattr(one, name, two(getattr(one, name), getattr(other, name)))


# ------------------------------------------------------------------------------------------------------------
# Declarations. Where an attribute has no value at first, ``__init__`` gives it one.
# ------------------------------------------------------------------------------------------------------------


def joined(join: Join, make: Make | None = None) -> Any:
    """What a function makes of both."""
    return field(metadata={"join": join, "make": make})


def total(make: Make = int) -> Any:
    """The sum of numbers, counters or lists."""
    return joined(iadd, make)


def earliest(start: Any = None) -> Any:
    """The least of both; None is none."""
    return joined(earlier, lambda: start)


def latest(start: Any = None) -> Any:
    """The greatest of both; None is none."""
    return joined(later, lambda: start)


def largest(start: Any = 0) -> Any:
    """The same for what is not a time, from 0."""
    return latest(start)


def either(start: Any) -> Any:
    """The first that is known, or true."""
    return joined(_either, lambda: start)


def merged(make: Make | None = None) -> Any:
    """A value with a ``merge`` of its own, or None in both."""
    return joined(_merge, make)


def merged_by_name() -> Any:
    """A dict of such values with the same keys in both."""
    return joined(_merge_by_name)


def own(make: Make | None = None) -> Any:
    """What stays as it is: the same in both, used in ``feed`` alone, or left to a ``merge`` by hand."""
    return joined(_first, make)


def earlier(one: Any, other: Any) -> Any:
    """The lesser; None is none."""
    return other if one is None else one if other is None or one <= other else other


def later(one: Any, other: Any) -> Any:
    """The greater; None is none."""
    return other if one is None else one if other is None or one >= other else other


def _either(one: Any, other: Any) -> Any:
    return one or other


def _first(one: Any, _: Any) -> Any:
    return one


def _merge(one: Any, other: Any) -> Any:
    if one is not None:
        one.merge(other)
    return one


def _merge_by_name(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    for name, value in one.items():
        value.merge(other[name])
    return one
