"""Numbers -> count, sum, minimum, maximum and quantiles. Holds about 10 KB at most.

A KLL sketch (Karnin, Lang, Liberty 2016, from Apache DataSketches) estimates quantile q by a number whose
true rank is within ``RANK_ERROR`` of q, with 99% probability. So the 99th percentile is shown, the 99.9th is
not. Sketches merge, and Spark's kll_merge_agg_double reads their bytes. Up to ``_EXACT`` numbers are kept,
and quantiles are exact.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar

from kdissect.names import entries, kept

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from kdissect.model import Exchange
    from kdissect.stats.sums import Mergeable


_K = 400
RANK_ERROR = 0.0068  # of a KLL sketch with k = 400, according to DataSketches
_EXACT = 256


class Quantiles:
    """A distribution.

    Attributes:
        count, total, min, max: exact; min and max are None while empty.
    """

    __slots__ = ("_buffer", "_sketch", "count", "max", "min", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.min: int | None = None
        self.max: int | None = None
        self._buffer: list[int] = []
        self._sketch: Any = None

    def add(self, value: int) -> None:
        """Add a number."""
        self.count += 1
        self.total += value
        if self.min is None or value < self.min:
            self.min = value
        if self.max is None or value > self.max:
            self.max = value
        buffer = self._buffer
        buffer.append(value)
        if len(buffer) > _EXACT:
            self._flush()

    def add_all(self, values: Sequence[int]) -> None:
        """Add numbers."""
        if not values:
            return
        self.count += len(values)
        self.total += sum(values)
        low, high = min(values), max(values)
        self.min = low if self.min is None else min(self.min, low)
        self.max = high if self.max is None else max(self.max, high)
        self._buffer += values
        if len(self._buffer) > _EXACT:
            self._flush()

    def merge(self, other: Quantiles) -> None:
        """Add all numbers of another distribution."""
        if not other.count:
            return
        self.count += other.count
        self.total += other.total
        if other.min is not None and other.max is not None:
            self.min = other.min if self.min is None else min(self.min, other.min)
            self.max = other.max if self.max is None else max(self.max, other.max)
        self._buffer += other._buffer
        if other._sketch is not None:
            self._ensure_sketch().merge(other._sketch)
        if len(self._buffer) > _EXACT:
            self._flush()

    def at(self, fractions: Sequence[float]) -> list[int | None]:
        """The number at each of these ranks (0.5: the median); None while empty."""
        if not self.count:
            return [None for _ in fractions]
        if self._sketch is None:
            ordered = sorted(self._buffer)
            return [ordered[max(0, ceil(fraction * len(ordered)) - 1)] for fraction in fractions]
        self._flush()
        return [round(value) for value in self._sketch.get_quantiles(list(fractions))]

    def histogram(self, bounds: Sequence[int]) -> list[int]:
        """How many numbers are below the first bound, then below each next one, and how many are not."""
        if self._sketch is None:
            ordered = sorted(self._buffer)
            below = [bisect_left(ordered, bound) for bound in bounds]
        else:
            self._flush()
            below = [round(self._sketch.get_rank(bound) * self.count) for bound in bounds]
        return [after - before for before, after in zip([0, *below], [*below, self.count], strict=True)]

    def serialize(self) -> bytes:
        """The sketch of doubles in DataSketches' portable form."""
        self._ensure_sketch()
        self._flush()
        return bytes(self._sketch.serialize())

    @classmethod
    def deserialize(cls, sketch: bytes, total: int) -> Quantiles:
        """A sketch of another program; ``total`` is the sum of its numbers, which a sketch does not hold."""
        quantiles = cls()
        kll = quantiles._sketch = library().kll_doubles_sketch.deserialize(sketch)
        quantiles.count, quantiles.total = kll.n, total
        if kll.n:
            quantiles.min, quantiles.max = round(kll.get_min_value()), round(kll.get_max_value())
        return quantiles

    def __getstate__(self) -> tuple[Any, ...]:
        sketch = None if self._sketch is None else bytes(self._sketch.serialize())
        return self.count, self.total, self.min, self.max, self._buffer, sketch

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.count, self.total, self.min, self.max, self._buffer, sketch = state
        self._sketch = None if sketch is None else library().kll_doubles_sketch.deserialize(sketch)

    def _ensure_sketch(self) -> Any:
        if self._sketch is None:
            self._sketch = library().kll_doubles_sketch(_K)
        return self._sketch

    def _flush(self) -> None:
        """Move the buffer to the sketch in one call, which costs a tenth of a call per number."""
        if self._buffer:
            from numpy import array, float64

            self._ensure_sketch().update(array(self._buffer, dtype=float64))
            self._buffer.clear()


def library() -> Any:
    """The sketch library, imported on first use. Live views call this at the start to avoid a pause later."""
    import datasketches  # imports numpy: a tenth of a second, only needed for many values

    return datasketches


class Largest:
    """The items with the largest numbers; of equal numbers, those of the first exchanges. Holds ``count`` of
    them.
    """

    __slots__ = ("_count", "_kept")

    def __init__(self, count: int) -> None:
        self._count = count
        self._kept: list[tuple[tuple[int, ...], Any]] = []  # by rank

    def add(self, number: int, exchange: Exchange, item: Callable[[], Any]) -> None:
        """Keep an item of an exchange if its number is large enough."""
        if len(self._kept) >= self._count and (not self._kept or number < self._kept[0][0][0]):
            return
        completed_ns, packet = exchange.order
        rank = number, -completed_ns, -packet, -exchange.number
        if len(self._kept) < self._count or rank > self._kept[0][0]:
            insort(self._kept, (rank, kept(item())), key=_rank)
            del self._kept[: -self._count]

    def merge(self, other: Largest) -> None:
        """Keep the largest of both."""
        self._kept = sorted(self._kept + other._kept, key=_rank)[-self._count :]

    def all(self) -> list[Any]:
        """The kept items, largest first."""
        return [item for _, item in reversed(self._kept)]


def _rank(ranked: tuple[tuple[int, ...], Any]) -> tuple[int, ...]:
    return ranked[0]


# ------------------------------------------------------------------------------------------------------------
# Names -> number of distinct names, and the first of them. Holds at most 30 KB.
#
# Up to ``_EXACT_DISTINCT`` names are counted exactly, fewer if they are long; after that a HyperLogLog sketch
# (from Apache DataSketches) estimates their number, usually within 2%.
# ------------------------------------------------------------------------------------------------------------


_EXACT_DISTINCT = 100
_LG_K = 12  # 4,096 registers: a standard error of 1.6%


class Distinct:
    """The number of distinct names, in bounded memory."""

    __slots__ = ("_entries", "_names", "_sketch")

    def __init__(self) -> None:
        self._names: dict[str, None] = {}  # as an ordered set
        self._entries = 0  # that they take
        self._sketch: Any = None

    def __len__(self) -> int:
        return len(self._names) if self._sketch is None else round(self._sketch.get_estimate())

    def add(self, name: str) -> None:
        """Add a name, seen before or not."""
        if name in self._names or (name := kept(name)) in self._names:
            return
        if self._entries < _EXACT_DISTINCT:
            self._names[name] = None
            self._entries += entries(name)
            return
        if self._sketch is None:
            self._begin_sketch()
        self._sketch.update(name)

    def merge(self, other: Distinct) -> None:
        """Add all names of another."""
        for name in other._names:
            self.add(name)
        if other._sketch is not None:
            if self._sketch is None:
                self._begin_sketch()
            self._sketch = _union(self._sketch, other._sketch)

    def first(self, count: int) -> list[str]:
        """The first of the kept names, in alphabetical order."""
        return sorted(self._names)[:count]

    def __getstate__(self) -> tuple[Any, ...]:
        return self._names, None if self._sketch is None else bytes(self._sketch.serialize_compact())

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._names, sketch = state
        self._entries = sum(map(entries, self._names))
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


# ------------------------------------------------------------------------------------------------------------
# Key -> value, created on first access; past a maximum number of keys, all others share one value.
#
# So a table of clients, topics or errors stays bounded in a capture with millions of them, and the rest is
# still counted and reported.
# ------------------------------------------------------------------------------------------------------------


Key = TypeVar("Key", bound="Hashable")
Value = TypeVar("Value", bound="Mergeable")


class Bounded(dict[Key, Value]):
    """A dict that creates missing values, until it is full. Keys are names, or tuples of them, as they are
    ``kept``: look others up with ``[]`` or ``pop``.

    Args:
        max_keys: number of keys that get their own value; those with long names count as several ``entries``.
        make: creates a value.

    Attributes:
        other: the value of all further keys; None while there are none.
    """

    def __init__(self, max_keys: int, make: Callable[[], Value]) -> None:
        super().__init__()
        self.other: Value | None = None
        self._max_keys = max_keys
        self._make = make
        self._entries = 0  # that the keys take

    def __missing__(self, key: Key) -> Value:
        if (name := kept(key)) is not key:
            return self[name]
        if self._entries < self._max_keys:
            value = self[key] = self._make()
            return value
        if self.other is None:
            self.other = self._make()
        return self.other

    def __setitem__(self, key: Key, value: Value) -> None:
        if key not in self:
            self._entries += entries(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: Key) -> None:
        self._entries -= entries(key)
        super().__delitem__(key)

    def pop(self, key: Key, default: Any = None) -> Any:
        """Remove a key, if it is there, and return its value."""
        value = self.get(name := kept(key), default)
        if name in self:
            del self[name]
        return value

    def __reduce__(self) -> Any:  # for pickling between processes: that of dict would lose the limit
        return Bounded, (self._max_keys, self._make), {"other": self.other}, None, iter(self.items())

    def merge(self, other: Bounded[Key, Value]) -> None:
        """Add another table's values to those of the same keys."""
        for key, value in other.items():
            self[key].merge(value)
        if other.other is not None:
            if self.other is None:
                self.other = self._make()
            self.other.merge(other.other)

    def rename(self, names: Mapping[str, str]) -> None:
        """Add the values of keys with a topic ID to those with the topic's name, where that is known."""
        for key in list(self):
            if (renamed := kept(_renamed(key, names))) != key:
                value = self.pop(key)
                if renamed in self:
                    self[renamed].merge(value)
                else:
                    self[renamed] = value


def _renamed(key: Any, names: Mapping[str, str]) -> Any:
    """A key, or tuple of keys, with the name in place of an ID; also in ``topic:partition``."""
    if isinstance(key, tuple):
        parts = [_renamed(part, names) for part in key]
        return key._make(parts) if hasattr(key, "_make") else tuple(parts)
    if not isinstance(key, str):
        return key
    topic, colon, partition = key.partition(":")
    return names.get(topic, topic) + colon + partition


def other_counts(**tables: tuple[Bounded[Any, Any], str]) -> dict[str, int]:
    """Sum of the keys without their own value, by table: an attribute of its ``other``, if not 0."""
    counts = {
        name: getattr(table.other, what) for name, (table, what) in tables.items() if table.other is not None
    }
    return {name: count for name, count in counts.items() if count}
