"""Values of a slice of time each -> what they are together over the last seconds. Holds ``SLICES`` of them.

    window = Sliding(Load)
    window.at(now_ns).add(facts)
    window.sum(now_ns).exchanges / span_s(now_ns, first_ns)

A slice is a value of any kind that can be made and merged: a ``Load``, quantiles, a row of counts. So a
window forgets by leaving slices out, and needs nothing that could be subtracted.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from kdissect.analysis.summary.bounded import Mergeable

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE_NS = 1_000_000_000
SLICES = 10
WINDOW_S = SLICES * SLICE_NS // 1_000_000_000

_LEAST_S = 1.0  # what came in the first moment is no rate yet

Value = TypeVar("Value", bound=Mergeable)


def span_s(now_ns: int, since_ns: int) -> float:
    """The seconds that a window covers; ``since_ns`` is when counting began."""
    window_ns = now_ns - (now_ns // SLICE_NS - SLICES + 1) * SLICE_NS
    return max(_LEAST_S, min(window_ns, now_ns - since_ns) / 1e9)


class Sliding(Generic[Value]):
    """What was counted lately."""

    __slots__ = ("_make", "_slices")

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._slices: deque[tuple[int, Value]] = deque(maxlen=SLICES)

    def at(self, now_ns: int) -> Value:
        """The value to count in."""
        number, slices = now_ns // SLICE_NS, self._slices
        if slices:
            last, value = slices[-1]
            if last == number:
                return value
            if last > number:  # the clock was set back
                slices.clear()
        value = self._make()
        slices.append((number, value))
        return value

    def sum(self, now_ns: int) -> Value:
        """All that is in the window, as a value of its own."""
        number, together = now_ns // SLICE_NS, self._make()
        for at, value in self._slices:
            if number - SLICES < at <= number:
                together.merge(value)
        return together

    def merge(self, other: Sliding[Value]) -> None:
        """Take in the slices of another one."""
        slices = dict(self._slices)
        for number, value in other._slices:
            if number in slices:
                slices[number].merge(value)
            else:
                slices[number] = value
        self._slices = deque(sorted(slices.items(), key=lambda item: item[0]), maxlen=SLICES)
