"""Numbers -> their count, sum, least, most and quantiles, however many they are. Holds some 10 KB at most.

A KLL sketch (Karnin, Lang, Liberty 2016, from Apache DataSketches) answers a question for quantile q with a
number whose true rank is within ``RANK_ERROR`` of q, with 99 % probability. So the 99th percentile is told,
the 99.9th is not. Sketches merge, and Spark's kll_merge_agg_double reads their bytes. Up to ``_EXACT``
numbers are kept as they are, and their quantiles exact.
"""

from __future__ import annotations

from bisect import insort
from math import ceil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_K = 400
RANK_ERROR = 0.0068  # of a KLL sketch with k = 400, as DataSketches states it
_EXACT = 256


class Quantiles:
    """A distribution.

    Attributes:
        count, total, least, most: exact; least and most are None while there is no number.
    """

    __slots__ = ("_sketch", "_waiting", "count", "least", "most", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.least: int | None = None
        self.most: int | None = None
        self._waiting: list[int] = []
        self._sketch: Any = None

    def add(self, value: int) -> None:
        """Take a number."""
        self.count += 1
        self.total += value
        if self.least is None or value < self.least:
            self.least = value
        if self.most is None or value > self.most:
            self.most = value
        waiting = self._waiting
        waiting.append(value)
        if len(waiting) > _EXACT:
            self._pass_on()

    def merge(self, other: Quantiles) -> None:
        """Take in all numbers of another distribution."""
        self.count += other.count
        self.total += other.total
        if other.least is not None and other.most is not None:
            self.least = other.least if self.least is None else min(self.least, other.least)
            self.most = other.most if self.most is None else max(self.most, other.most)
        self._waiting += other._waiting
        if other._sketch is not None:
            self._made().merge(other._sketch)
        if len(self._waiting) > _EXACT:
            self._pass_on()

    def at(self, fractions: Sequence[float]) -> list[int | None]:
        """The number at each of these ranks (0.5: the median); None while there is none."""
        if not self.count:
            return [None for _ in fractions]
        if self._sketch is None:
            ordered = sorted(self._waiting)
            return [ordered[max(0, ceil(fraction * len(ordered)) - 1)] for fraction in fractions]
        self._pass_on()
        return [round(value) for value in self._sketch.get_quantiles(list(fractions))]

    def serialize(self) -> bytes:
        """The sketch of doubles in DataSketches' portable form."""
        self._made()
        self._pass_on()
        return bytes(self._sketch.serialize())

    @classmethod
    def deserialize(cls, sketch: bytes, total: int) -> Quantiles:
        """What another program sketched; ``total`` is the sum of its numbers, which no sketch tells."""
        made = cls()
        found = made._sketch = library().kll_doubles_sketch.deserialize(sketch)
        made.count, made.total = found.n, total
        if found.n:
            made.least, made.most = round(found.get_min_value()), round(found.get_max_value())
        return made

    def __getstate__(self) -> tuple[Any, ...]:
        sketch = None if self._sketch is None else bytes(self._sketch.serialize())
        return self.count, self.total, self.least, self.most, self._waiting, sketch

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.count, self.total, self.least, self.most, self._waiting, sketch = state
        self._sketch = None if sketch is None else library().kll_doubles_sketch.deserialize(sketch)

    def _made(self) -> Any:
        if self._sketch is None:
            self._sketch = library().kll_doubles_sketch(_K)
        return self._sketch

    def _pass_on(self) -> None:
        """Hand what waits to the sketch in one call, which costs a tenth of one for each."""
        if self._waiting:
            from numpy import array, float64

            self._made().update(array(self._waiting, dtype=float64))
            self._waiting.clear()


def library() -> Any:
    """What sketches are made with. Whoever shows what happens now calls this before anything does."""
    import datasketches  # with numpy behind it: a tenth of a second, for those who count more than a few

    return datasketches


class Largest:
    """The largest of what is put in: pairs of a number and anything. Holds ``most`` of them."""

    __slots__ = ("_kept", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[tuple[int, int, Any]] = []

    @property
    def least(self) -> int:
        """A number must be larger than this to be kept."""
        return self._kept[0][0] if len(self._kept) >= self._most else -1

    def add(self, number: int, time_ns: int, what: Any) -> None:
        """Keep it if it is large enough; of equals, the earlier one."""
        insort(self._kept, (number, -time_ns, what), key=_rank)
        if len(self._kept) > self._most:
            del self._kept[0]

    def merge(self, other: Largest) -> None:
        """Keep the largest of both."""
        self._kept = sorted(self._kept + other._kept, key=_rank)[-self._most :]

    def all(self) -> list[Any]:
        """What is kept, largest first."""
        return [what for _, _, what in reversed(self._kept)]


def _rank(kept: tuple[int, int, Any]) -> tuple[int, int]:
    return kept[:2]
