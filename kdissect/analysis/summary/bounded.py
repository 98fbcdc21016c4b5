"""Key -> value, made when it is first asked for; of at most so many keys, all others share one value.

So a table of clients, topics or errors cannot grow with a capture that has millions of them, and what no row
was left for is still counted, and said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


class Mergeable(Protocol):
    """A value that can take in another one of its kind."""

    def merge(self, other: Any, /) -> None:
        """Take in what another one counted; the other is not used any more."""


Key = TypeVar("Key", bound="Hashable")
Value = TypeVar("Value", bound=Mergeable)


class Bounded(dict[Key, Value]):
    """A dict that makes missing values, until it is full.

    Args:
        most: keys that get a value of their own.
        make: makes a value.

    Attributes:
        other: the value of all further keys; None while there are none.
    """

    def __init__(self, most: int, make: Callable[[], Value]) -> None:
        super().__init__()
        self.other: Value | None = None
        self._most = most
        self._make = make

    def __missing__(self, key: Key) -> Value:
        if len(self) < self._most:
            value = self[key] = self._make()
            return value
        if self.other is None:
            self.other = self._make()
        return self.other

    def __reduce__(self) -> Any:  # processes send tables to each other; dict's own way would forget the bound
        return Bounded, (self._most, self._make), {"other": self.other}, None, iter(self.items())

    def merge(self, other: Bounded[Key, Value]) -> None:
        """Add another table's values to those of the same keys."""
        for key, value in other.items():
            self[key].merge(value)
        if other.other is not None:
            if self.other is None:
                self.other = self._make()
            self.other.merge(other.other)
