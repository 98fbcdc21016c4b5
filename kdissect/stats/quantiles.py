"""Numbers -> count, sum, minimum, maximum and quantiles. Holds 40 KB at most, of a busy API about 10.

Up to ``EXACT`` numbers, quantiles are exact. Of more, only the number in each of 3,712 buckets is kept: the
range from a power of two to the next is divided into 64 equal parts, as in an HdrHistogram, and each number
below 128 has its own. A quantile is the middle of a bucket: within 0.8% of the number with exactly this rank.

A bucket is found with integers alone, and whether quantiles are exact depends only on how many numbers there
are. So any order, any division between processes, the native core (core/src/sinks/quantiles.rs) and Spark
(spark/jobs/keys.py) give the same bits: docs/decisions/our-own-buckets-for-quantiles.md.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from math import ceil, log
from operator import add
from typing import TYPE_CHECKING, Any, TypeVar

from kdissect.names import entries, kept

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from kdissect.model import Exchange
    from kdissect.stats.sums import Mergeable


EXACT = 256
"""Quantiles of so many numbers are exact."""
BITS = 6
_PARTS = 1 << BITS  # buckets from a power of two to the next
_EXACT_BITS = BITS + 1  # of numbers that have buckets of their own
_UNCOUNTED = 1024  # buckets, most of them several times, that are counted together


def bucket_of(number: int) -> int:
    """The bucket of a number that is not negative: 0 to 3711 for those below 2^63."""
    scale = number.bit_length() - _EXACT_BITS
    return (scale << BITS) + (number >> scale) if scale > 0 else number


def middle_of(bucket: int) -> int:
    """The middle of the numbers in a bucket."""
    scale = max(0, (bucket >> BITS) - 1)
    return ((bucket - (scale << BITS)) << scale) + (1 << scale >> 1)


class Quantiles:
    """A distribution. A negative number, as of a clock that was set back, counts as 0.

    Attributes:
        count, total, min, max: exact; min and max are None while empty.
    """

    __slots__ = ("_buckets", "_counts", "_numbers", "count", "max", "min", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.min: int | None = None
        self.max: int | None = None
        self._numbers: list[int] = []  # all of them, up to EXACT; otherwise none
        self._buckets: array[int] = array("H")  # of the first of those numbers; otherwise not in counts yet
        self._counts: dict[int, array[int]] = {}  # of _PARTS buckets each

    @classmethod
    def of(
        cls,
        total: int,
        low: int | None,
        high: int | None,
        numbers: list[int],
        buckets: Iterable[tuple[int, int]],
    ) -> Quantiles:
        """What was counted elsewhere.

        Args:
            total: sum of all numbers.
            low: minimum.
            high: maximum.
            numbers: all of them, if there are up to ``EXACT``; otherwise none.
            buckets: and their counts, if there are more numbers.
        """
        one = cls()
        one.total, one.min, one.max, one._numbers, one.count = total, low, high, numbers, len(numbers)
        for bucket, count in buckets:
            one.count += count
            one._add_counts(bucket, count)
        return one

    def add(self, number: int) -> None:
        """Add a number."""
        if number < 0:
            number = 0
        self.count += 1
        self.total += number
        if self.min is None or number < self.min:
            self.min = number
        if self.max is None or number > self.max:
            self.max = number
        if self.count <= EXACT:
            self._numbers.append(number)
        else:
            self._take_buckets((bucket_of(number),))

    def merge(self, other: Quantiles) -> None:
        """Add all numbers of another distribution."""
        if other.min is None or other.max is None:
            return
        self.count += other.count
        self.total += other.total
        self.min = other.min if self.min is None else min(self.min, other.min)
        self.max = other.max if self.max is None else max(self.max, other.max)
        if self.count <= EXACT:
            self._numbers += other._numbers
            return
        self._take_buckets(other._uncounted())
        for place, counts in other._counts.items():
            known = self._counts.get(place)
            self._counts[place] = counts[:] if known is None else array("Q", map(add, known, counts))

    def at(self, fractions: Sequence[float]) -> list[int | None]:
        """The number at each of these ranks (0.5: the median); None while empty."""
        if self.min is None or self.max is None:
            return [None for _ in fractions]
        ranks = [max(1, ceil(fraction * self.count)) for fraction in fractions]
        if self.count <= EXACT:
            ordered = sorted(self._numbers)
            return [ordered[rank - 1] for rank in ranks]
        buckets = self.buckets()
        middles, until = list(map(middle_of, buckets)), list(accumulate(buckets.values()))
        return [min(max(middles[bisect_left(until, rank)], self.min), self.max) for rank in ranks]

    def histogram(self, bounds: Sequence[int]) -> list[int]:
        """How many numbers are below the first bound, then below each next one, and how many are not. Of more
        than ``EXACT`` numbers, all in a bucket count where its middle is.
        """
        if self.count <= EXACT:
            ordered = sorted(self._numbers)
            below = [bisect_left(ordered, bound) for bound in bounds]
        else:
            buckets = self.buckets()
            middles, until = list(map(middle_of, buckets)), [0, *accumulate(buckets.values())]
            below = [until[bisect_left(middles, bound)] for bound in bounds]
        return [after - before for before, after in zip([0, *below], [*below, self.count], strict=True)]

    def buckets(self) -> dict[int, int]:
        """The counts of all buckets with numbers, in order."""
        counted = Counter(self._uncounted())
        for place, counts in self._counts.items():
            for bucket, count in enumerate(counts, place << BITS):
                if count:
                    counted[bucket] += count
        return dict(sorted(counted.items()))

    def _uncounted(self) -> array[int]:
        """Buckets that are not in ``_counts``, found once for all tables that the numbers are added to."""
        if new := self._numbers[len(self._buckets) :]:
            self._buckets.extend(map(bucket_of, new))
        return self._buckets

    def _take_buckets(self, buckets: Iterable[int]) -> None:
        """Add those of numbers, when there are more than ``EXACT``."""
        self._uncounted().extend(buckets)
        self._numbers.clear()
        if len(self._buckets) > _UNCOUNTED:
            for bucket, count in Counter(self._buckets).items():
                self._add_counts(bucket, count)
            del self._buckets[:]

    def _add_counts(self, bucket: int, count: int) -> None:
        counts = self._counts.get(bucket >> BITS)
        if counts is None:
            counts = self._counts[bucket >> BITS] = array("Q", bytes(8 * _PARTS))
        counts[bucket & (_PARTS - 1)] += count


class Largest:
    """The items with the largest numbers; of equal numbers, those of the first exchanges. Holds ``count`` of
    them.
    """

    __slots__ = ("_kept", "count")

    def __init__(self, count: int) -> None:
        self.count = count
        self._kept: list[tuple[tuple[int, ...], Any]] = []  # by rank

    def add(self, number: int, exchange: Exchange, item: Callable[[], Any]) -> None:
        """Keep an item of an exchange if its number is large enough."""
        if len(self._kept) >= self.count and (not self._kept or number < self._kept[0][0][0]):
            return
        completed_ns, packet = exchange.order
        self.rank((number, -completed_ns, -packet, -exchange.number), item)

    def rank(self, rank: tuple[int, ...], item: Callable[[], Any]) -> None:
        """The same by its rank: the number; completion, packet and number of the exchange, each negative."""
        if len(self._kept) < self.count or rank > self._kept[0][0]:
            insort(self._kept, (rank, kept(item())), key=_rank)
            del self._kept[: -self.count]

    def merge(self, other: Largest) -> None:
        """Keep the largest of both."""
        self._kept = sorted(self._kept + other._kept, key=_rank)[-self.count :]

    def all(self) -> list[Any]:
        """The kept items, largest first."""
        return [item for _, item in reversed(self._kept)]


def _rank(ranked: tuple[tuple[int, ...], Any]) -> tuple[int, ...]:
    return ranked[0]


# ------------------------------------------------------------------------------------------------------------
# Names -> number of distinct names, and the first of them in alphabetical order. Holds at most 30 KB.
#
# Up to ``_EXACT_DISTINCT`` names are counted exactly, fewer if they are long; after that a HyperLogLog sketch
# (Flajolet et al. 2007) estimates their number, usually within 2%. It keeps the highest rank per register: no
# order or division of the names changes that.
# ------------------------------------------------------------------------------------------------------------


_EXACT_DISTINCT = 100
_INDEX_BITS = 12
_REGISTERS = 1 << _INDEX_BITS  # a standard error of 1.6%
_RANKS = 64 - _INDEX_BITS + 1


class Distinct:
    """The number of distinct names, in bounded memory."""

    __slots__ = ("_end", "_entries", "_names", "_registers")

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._entries = 0  # that they take
        self._end: str | None = None  # the names from here on were dropped
        self._registers: bytearray | None = None

    def __len__(self) -> int:
        return len(self._names) if self._registers is None else _estimate(self._registers)

    def add(self, name: str) -> None:
        """Add a name, seen before or not."""
        if name in self._names or (name := kept(name)) in self._names:
            return
        if self._registers is not None:
            _register(self._registers, name)
        if self._end is None or name < self._end:
            self._names.add(name)
            self._entries += entries(name)
            while self._entries > _EXACT_DISTINCT:
                self._drop()

    def merge(self, other: Distinct) -> None:
        """Add all names of another."""
        if other._registers is not None:
            mine = self._begin_sketch()
            mine[:] = map(max, mine, other._registers)
        if other._end is not None and (self._end is None or other._end < self._end):
            self._end = other._end
            self._names = {name for name in self._names if name < other._end}
            self._entries = sum(map(entries, self._names))
        for name in other._names:
            self.add(name)

    def first(self, count: int) -> list[str]:
        """The first names, in alphabetical order."""
        return sorted(self._names)[:count]

    def _drop(self) -> None:
        """Forget the last name, except in the sketch."""
        self._begin_sketch()
        self._end = max(self._names)
        self._names.remove(self._end)
        self._entries -= entries(self._end)

    def _begin_sketch(self) -> bytearray:
        if self._registers is None:
            self._registers = bytearray(_REGISTERS)
            for name in self._names:
                _register(self._registers, name)
        return self._registers


def _register(registers: bytearray, name: str) -> None:
    index, rank = _place(name)
    registers[index] = max(registers[index], rank)


@lru_cache(4096)
def _place(name: str) -> tuple[int, int]:
    """The register of a name, and its rank: leading zeros in the rest of its hash, plus one."""
    number = int.from_bytes(blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest())
    return number & (_REGISTERS - 1), _RANKS - (number >> _INDEX_BITS).bit_length()


def _estimate(registers: bytearray) -> int:
    """The number of names, without the bias of few or many (Ertl 2017, algorithm 6)."""
    counts = Counter(registers)
    z = 0.0
    for rank in range(_RANKS, 0, -1):
        z = (z + counts[rank]) / 2
    power, weight = counts[0] / _REGISTERS, 1.0
    z += counts[0]
    while power > 1e-9:
        power *= power
        z += _REGISTERS * power * weight
        weight *= 2
    return round(_REGISTERS * _REGISTERS / (2 * log(2) * z))


# ------------------------------------------------------------------------------------------------------------
# Key -> value, created on first access; past a maximum number of keys, all others share one value.
#
# So a table of clients, topics or errors stays bounded in a capture with millions of them, and the rest is
# still counted and reported.
# ------------------------------------------------------------------------------------------------------------


Key = TypeVar("Key", bound="Hashable")
Value = TypeVar("Value", bound="Mergeable")


@dataclass(slots=True, eq=False)
class Room:
    """How many entries some tables take together."""

    taken: int = 0


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
        self._room = Room()  # for the keys

    @property
    def settings(self) -> tuple[int, Callable[[], Value]]:
        """The arguments."""
        return self._max_keys, self._make

    def share(self, other: Bounded[Key, Value]) -> None:
        """Be full when this empty table and another, with all that share with it, have as many keys."""
        self._room = other._room

    def __missing__(self, key: Key) -> Value:
        if (name := kept(key)) is not key:
            return self[name]
        if self._room.taken < self._max_keys:
            value = self[key] = self._make()
            return value
        if self.other is None:
            self.other = self._make()
        return self.other

    def __setitem__(self, key: Key, value: Value) -> None:
        if key not in self:
            self._room.taken += entries(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: Key) -> None:
        self._room.taken -= entries(key)
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
        """Add another table's values to those of the same keys; the other is not used afterward."""
        if other._room is self._room:
            self._room.taken -= sum(map(entries, other))
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
