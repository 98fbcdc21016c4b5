"""Names -> how many different ones there are, and the first of them. Holds some 10 KB at most.

Up to ``_EXACT`` names are counted exactly; past that a HyperLogLog sketch (from Apache DataSketches) goes on,
within about 2 % as a rule.
"""

from __future__ import annotations

from typing import Any

from kdissect.analysis.summary.quantiles import library

_EXACT = 100
_LG_K = 12  # 4,096 registers: a standard error of 1.6 %


class Distinct:
    """A set of names that does not grow without bound."""

    __slots__ = ("_names", "_sketch")

    def __init__(self) -> None:
        self._names: dict[str, None] = {}  # a set with an order
        self._sketch: Any = None

    def __len__(self) -> int:
        return len(self._names) if self._sketch is None else round(self._sketch.get_estimate())

    def add(self, name: str) -> None:
        """Take a name, seen before or not."""
        if name in self._names:
            return
        if len(self._names) < _EXACT:
            self._names[name] = None
            return
        if self._sketch is None:
            self._begin_sketch()
        self._sketch.update(name)

    def merge(self, other: Distinct) -> None:
        """Take in all names of another."""
        for name in other._names:
            self.add(name)
        if other._sketch is not None:
            if self._sketch is None:
                self._begin_sketch()
            self._sketch = _union(self._sketch, other._sketch)

    def first(self, most: int) -> list[str]:
        """Some of the names, sorted: of up to ``_EXACT`` names the first in the alphabet."""
        return sorted(self._names)[:most]

    def __getstate__(self) -> tuple[Any, ...]:
        return self._names, None if self._sketch is None else bytes(self._sketch.serialize_compact())

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._names, sketch = state
        self._sketch = None if sketch is None else library().hll_sketch.deserialize(sketch)

    def _begin_sketch(self) -> None:
        self._sketch = library().hll_sketch(_LG_K)
        for name in self._names:
            self._sketch.update(name)


def _union(one: Any, two: Any) -> Any:
    union = library().hll_union(_LG_K)
    union.update(one)
    union.update(two)
    return union.get_result()
