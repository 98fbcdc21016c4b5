"""Declarations of the counts of a class -> its ``merge``, which adds one instance to another.

    @summed
    class Written(Summed):
        bytes: int = total()
        first_ns: int | None = earliest()
        clients: Distinct = merged(Distinct)

Parts of a capture are counted by several processes or on a cluster, then merged; an attribute that ``merge``
forgets would be lost silently. So each attribute declares how two values join, and its initial value; a class
with an attribute that does not is rejected at import. Instances are plain slotted objects.

Classes with an algorithm (sketches, bounded tables) write ``merge`` by hand and are declared as ``merged``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache
from operator import iadd
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Join = Callable[[Any, Any], Any]
    Make = Callable[[], Any]


_IMMUTABLE = (int, str, tuple, type(None))


class Mergeable(Protocol):
    """A value that can add another of its type."""

    def merge(self, other: Any, /) -> None:
        """Add the counts of another; the other is not used afterward."""


class Summed:
    """Base class of counts that merge as their attributes declare; see ``summed``."""

    __slots__ = ()

    declared: ClassVar[tuple[tuple[str, Join, Make | None], ...]] = ()
    joins: ClassVar[tuple[tuple[str, Join], ...]] = ()  # of those that ``merge`` may change

    def __init__(self) -> None:
        initialize(self, type(self))

    def merge(self, other: Self) -> None:
        """Add the counts of another; the other is not used afterward."""
        join(self, other, type(self))


Sum = TypeVar("Sum", bound=Summed)


def summed(cls: type[Sum]) -> type[Sum]:
    """Class decorator: creates slots, and collects the declarations for ``__init__`` and ``merge``.

    It returns a new class, as slotted dataclasses do: methods must name their base class, because ``super()``
    would refer to the old class.

    Raises:
        TypeError: an attribute does not declare how two values join.
    """
    cls = dataclass(init=False, repr=False, eq=False, match_args=False, slots=True)(cls)
    for each in fields(cls):  # type: ignore[arg-type]
        if "join" not in each.metadata:
            raise TypeError(f"{cls.__name__}.{each.name} does not declare how two values of it merge")
    cls.declared = tuple((each.name, *each.metadata.values()) for each in fields(cls))  # type: ignore[arg-type]
    cls.joins = tuple((name, two) for name, two, _ in cls.declared if two not in (_first, _unused))
    return cls


def initialize(one: Summed, of: type[Summed]) -> None:
    """Set the attributes that ``of`` declares: its class, or a base of it."""
    _constructor(of)(one)  # type: ignore[arg-type]  # mypy: a class is not hashable


@cache
def _constructor(of: type[Summed]) -> Callable[[Any], None]:
    """That of a dataclass. It is compiled, which takes long for those that are never used."""
    initial = [
        (name, Any, field(init=False, default=start))
        if isinstance(start := make(), _IMMUTABLE)
        else (name, Any, field(init=False, default_factory=make))
        for name, _, make in vars(of)["declared"]  # not inherited: a class that is not ``summed`` fails
        if make is not None
    ]
    holder = make_dataclass(of.__name__, initial, repr=False, eq=False, match_args=False, slots=True)
    constructor: Callable[[Any], None] = vars(holder)["__init__"]
    return constructor


def join(one: Sum, other: Sum, of: type[Sum]) -> None:
    """Add the counts of another, of those attributes that ``of`` declares: their class, or a base of both."""
    for name, two in vars(of)["joins"]:
        more = getattr(other, name)
        if more or two not in _ADDING:  # most counts of most rows are 0
            setattr(one, name, two(getattr(one, name), more))


def carried(part: Summed) -> list[str]:
    """The declared attributes that another instance needs to merge this one: all that are not ``fed``."""
    return [name for name, two, _ in part.declared if two is not _unused]


def bare(cls: type[Sum]) -> Sum:
    """An instance for the values of ``carried`` attributes, to be merged into another."""
    one = object.__new__(cls)
    for name, two, make in cls.declared:
        if two is _unused:
            object.__setattr__(one, name, None if make is None else make())
    return one


def values_of(part: Any) -> Iterator[Any]:
    """A declared value and those inside it: what is ``carried`` of ``Summed``, values ``merged_by_name``."""
    yield part
    inside = [getattr(part, name) for name in carried(part)] if isinstance(part, Summed) else []
    for each in part.values() if type(part) is dict else inside:
        yield from values_of(each)


# ------------------------------------------------------------------------------------------------------------
# Declarations. An attribute without an initial value is set by ``__init__``.
# ------------------------------------------------------------------------------------------------------------


def joined(join: Join, make: Make | None = None) -> Any:
    """The result of a function of both."""
    return field(metadata={"join": join, "make": make})


def total(make: Make = int) -> Any:
    """The sum of numbers, counters or lists."""
    return joined(_add_counts if make is Counter else iadd, make)


def earliest(start: Any = None) -> Any:
    """The smaller of both; None is ignored."""
    return joined(earlier, lambda: start)


def latest(start: Any = None) -> Any:
    """The larger of both; None is ignored."""
    return joined(later, lambda: start)


def largest(start: Any = 0) -> Any:
    """The same for numbers other than times, starting from 0."""
    return latest(start)


def either(start: Any) -> Any:
    """The first that is known or true."""
    return joined(_either, lambda: start)


def merged(make: Make | None = None) -> Any:
    """A value with its own ``merge``, or None in both."""
    return joined(_merge, make)


def merged_by_name() -> Any:
    """A dict of such values with the same keys in both."""
    return joined(_merge_by_name)


def own(make: Make | None = None) -> Any:
    """Stays unchanged: the same in both, or merged by hand."""
    return joined(_first, make)


def fed(make: Make | None = None) -> Any:
    """Used in ``feed`` only. A copy that was made to be merged has an initial value, or None."""
    return joined(_unused, make)


def earlier(one: Any, other: Any) -> Any:
    """The smaller; None is ignored."""
    return other if one is None else one if other is None or one <= other else other


def later(one: Any, other: Any) -> Any:
    """The larger; None is ignored."""
    return other if one is None else one if other is None or one >= other else other


def _add_counts(one: Counter[Any], other: Counter[Any]) -> Counter[Any]:
    """As ``+=`` does, which also looks through all counts of the first for those to drop."""
    for each, count in other.items():
        if count:
            one[each] = one.get(each, 0) + count
    return one


_ADDING = iadd, _add_counts


def _either(one: Any, other: Any) -> Any:
    return one or other


def _first(one: Any, _: Any) -> Any:
    return one


def _unused(one: Any, _: Any) -> Any:
    return one


def _merge(one: Any, other: Any) -> Any:
    if one is not None:
        one.merge(other)
    return one


def _merge_by_name(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    for name, value in one.items():
        value.merge(other[name])
    return one
