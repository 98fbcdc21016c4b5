"""Items in order -> the same items in the same order, with the values of the keys in them.

A key is something whose value another item reveals: a topic ID and its name, a batch and when it was
produced. An item with an unknown key waits for it for some packet time, and later items wait with it to keep
the order. Holds at most ``naming_rows`` items of ``naming_bytes``, and a limited number of values.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from kdissect.names import Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kdissect.exchanges.learned import BatchCopy, NumberedBatch, ProducedBatch
    from kdissect.limits import Limits
    from kdissect.model import Anomaly

Key = TypeVar("Key")
Value = TypeVar("Value")


class Refs(NamedTuple, Generic[Key, Value]):
    """The keys in an item, in wire order, the values that it reveals, and keys for which it does not wait.
    ``NO_REFS`` if there are none.
    """

    keys: list[Key]
    learned: list[tuple[Key, Value]]
    optional: Sequence[Key] = ()


NO_REFS: Refs[Any, Any] = Refs([], [])


class Resolvable(Protocol):
    """Anything that can wait for a value: an exchange, or a stand-in for one in another process."""

    anomalies: list[Anomaly]
    topic_ids: dict[str, str]
    produced_ns: dict[ProducedBatch, int] | None
    copies: dict[NumberedBatch, BatchCopy] | None

    @property
    def completed_ns(self) -> int: ...

    @property
    def held_bytes(self) -> int: ...


Item = TypeVar("Item", bound=Resolvable)


class Resolver(Generic[Item, Key, Value]):
    """The values known so far, and the items that wait for one.

    Args:
        limits: to respect.
        refs: returns the keys in an item, and the values learned from it.
        window_ns: how long an item waits.
        capacity: number of values that are kept; those with long names count as several ``entries``.
        knows_all: whether all values were learned beforehand. Then nothing is learned, and nothing waits.
    """

    __slots__ = (
        "_bytes", "_held", "_knows_all", "_limits", "_refs", "_rows", "_values", "_window_ns"
    )  # fmt: skip

    def __init__(
        self,
        limits: Limits,
        refs: Callable[[Item], Refs[Key, Value]],
        window_ns: int,
        capacity: int,
        *,
        knows_all: bool,
    ) -> None:
        self._limits = limits
        self._refs = refs
        self._window_ns = 0 if knows_all else window_ns
        self._knows_all = knows_all
        self._values: Recent[Key, Value] = Recent(capacity)
        # with its keys, those unknown, and since when it waits
        self._held: deque[tuple[Item, list[Key], list[Key], int]] = deque()
        self._rows = self._bytes = 0

    def feed(self, item: Item) -> list[Item]:
        """Add the next item in order of completion. Returns the items that are settled, in order."""
        refs = self._refs(item)
        if refs is NO_REFS and not self._held:
            return [item]
        settled = self._prepare(item)
        settled += self._expired(item.completed_ns)  # before learning from this item: it is too late for them
        if not self._knows_all:
            for key, value in refs.learned:
                self._learn(item, key, value)
        if not self._held and (self._resolve(item, refs.keys) or self._window_ns <= 0):
            self._resolve(item, refs.optional)
            settled.append(item)
            return settled
        self._hold(item, refs)
        settled += self._settled()
        return settled

    def _prepare(self, item: Item) -> list[Item]:  # noqa: ARG002  (used by subclasses)
        """Make ready for an item that may wait, or change what waits. Returns the items that are settled."""
        return []

    def _hold(self, item: Item, refs: Refs[Key, Value]) -> None:
        """Let an item wait behind the others."""
        self._held.append((item, [*refs.keys, *refs.optional], refs.keys[::-1], self._since_ns(item)))
        self._count(item, 1)

    def _take_held(self) -> Iterable[Item]:
        """All that wait; none does any longer."""
        held, self._held, self._rows, self._bytes = self._held, deque(), 0, 0
        return [item for item, *_ in held]

    def _expired(self, now_ns: int) -> list[Item]:
        """Release the items that have waited as long as they may."""
        expired, held, window_ns = [], self._held, self._window_ns
        while held and now_ns - held[0][3] >= window_ns:
            expired.append(self._release())
        return expired

    def _settled(self) -> list[Item]:
        """Release the items that wait for nothing, and those that are too many."""
        settled, held = [], self._held
        while held:
            first, _, unknown, _ = held[0]
            while unknown and self._find(first, unknown[-1]) is not None:
                unknown.pop()
            if unknown:
                if self._rows <= self._limits.naming_rows and self._bytes <= self._limits.naming_bytes:
                    break
                self._note_full(first, f"{self._rows} exchanges of {self._bytes} bytes were waiting")
            settled.append(self._release())
        return settled

    def _since_ns(self, item: Item) -> int:
        """Since when an item waits."""
        return item.completed_ns

    def resolve_now(self, item: Item) -> None:
        """Write the values known so far into an item that does not wait."""
        refs = self._refs(item)
        self._resolve(item, refs.keys)
        self._resolve(item, refs.optional)

    def close(self) -> list[Item]:
        """The items that still wait."""
        return [self._release() for _ in range(len(self._held))]

    @property
    def evicted(self) -> int:
        """Values forgotten because of the ``capacity``."""
        return self._values.forgotten

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits."""
        return not self._held

    def _release(self) -> Item:
        item, keys, *_ = self._held.popleft()
        self._count(item, -1)
        self._resolve(item, keys)
        return item

    def _resolve(self, item: Item, keys: Sequence[Key]) -> bool:
        """Write the values of an item's keys, as far as they are known. Returns whether all are."""
        values = {key: value for key in keys if (value := self._find(item, key)) is not None}
        if values:
            self._write(item, values)
        return len(values) == len(keys)

    def _count(self, item: Item, sign: int) -> None:
        """Count an item that begins or ceases to wait."""
        rows, size = self._size(item)
        self._rows += sign * rows
        self._bytes += sign * size

    def _size(self, item: Item) -> tuple[int, int]:
        """Exchanges and bytes of an item that waits."""
        return 1, item.held_bytes

    def _learn(self, item: Item, key: Key, value: Value) -> None:  # noqa: ARG002  (used by subclasses)
        """Keep a value that an item reveals."""
        self._keep(key, value)

    def _keep(self, key: Key, value: Value) -> None:
        before = self._values.get(key)
        self._values.keep(key, value if before is None else before)  # the first value of a key is final

    def _find(self, item: Item, key: Key) -> Value | None:
        """The value of a key in an item; None if it is not known."""
        raise NotImplementedError

    def _write(self, item: Item, values: dict[Key, Value]) -> None:
        """Add the values of its keys to an item."""
        raise NotImplementedError

    def _note_full(self, item: Item, detail: str) -> None:
        """Note that an item no longer waits, because too much does."""
