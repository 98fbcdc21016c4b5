"""Names from the wire -> as tables keep them, and how much of a table they take.

Clients choose most names: of themselves, their software, groups, members, transactions. A name can have
32 KB, and one character of it can make Python take four bytes for each. So what a table keeps of any name is
what ``kept`` returns, and tables count their ``entries``.
"""

from __future__ import annotations

from _blake2 import blake2b  # as in net/duplex.py
from sys import getsizeof
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Key = TypeVar("Key", bound="Hashable")
Value = TypeVar("Value")

NAME_BYTES = 1024
"""Longest name that is kept whole, in bytes of UTF-8; topics have 249 characters at most. What is kept of a
longer one is shorter than this, and so does not change if it is kept again.
"""
ENTRY_BYTES = 256
"""Memory of a name that is included in one entry of a table; most names take 50 to 150 bytes."""

_BEGINNING_BYTES = 1000
_HASH_BYTES = 4
_SHORT = NAME_BYTES // 4  # characters: each takes four bytes at most
_ONE_ENTRY = 20  # characters that take less than ``ENTRY_BYTES`` of memory, whatever they are


def kept(value: Value) -> Value:
    """A name as tables keep it: of more than 1 KB the first 1,000 bytes, ``...`` and 8 hex digits of its
    hash. Equal names stay equal, and others differ. Of a tuple all names in it; anything else as it is.
    """
    if isinstance(value, str):
        return value if len(value) <= _SHORT else cast("Value", _shortened(value))
    if isinstance(value, tuple):
        for each in value:
            if isinstance(each, str):
                if len(each) > _SHORT:
                    return cast("Value", _with_kept(value))
            elif isinstance(each, tuple) and kept(each) is not each:
                return cast("Value", _with_kept(value))
    return value


def _with_kept(names: tuple[Any, ...]) -> tuple[Any, ...]:
    all_kept = [kept(each) for each in names]
    if all(one is other for one, other in zip(all_kept, names, strict=True)):
        return names
    make: Callable[[list[Any]], tuple[Any, ...]] = getattr(names, "_make", tuple)
    return make(all_kept)


def _shortened(name: str) -> str:
    data = name.encode(errors="surrogatepass")
    if len(data) <= NAME_BYTES:
        return name
    end = _BEGINNING_BYTES
    while data[end] & 0xC0 == 0x80:  # inside a character
        end -= 1
    beginning = data[:end].decode(errors="surrogatepass")
    return f"{beginning}...{blake2b(data, digest_size=_HASH_BYTES).hexdigest()}"


def entries(value: Any) -> int:
    """How many entries a value takes in a table: one, one more for every ``ENTRY_BYTES`` of a name, and one
    for each element of a list in it (a plain tuple).
    """
    number = 1
    for each in value if isinstance(value, tuple) else (value,):
        if isinstance(each, str):
            if len(each) > _ONE_ENTRY:
                number += getsizeof(each) // ENTRY_BYTES
        elif isinstance(each, tuple):
            number += entries(each) - 1 + (len(each) if type(each) is tuple else 0)
    return number


class Recent(dict[Key, Value]):
    """A table of names that forgets the oldest when it is full. Add with ``keep``, remove with ``pop``.

    Args:
        max_entries: see ``entries``.

    Attributes:
        forgotten: how many it forgot.
    """

    __slots__ = ("_entries", "_max_entries", "forgotten")

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self._max_entries = max_entries
        self._entries = self.forgotten = 0

    def keep(self, key: Key, value: Value) -> None:
        """Add or replace a value, which is now the newest."""
        key, value = kept(key), kept(value)
        if key in self:
            self._remove(key)
        self[key] = value
        self._entries += _of_item(key, value)
        while self._entries > self._max_entries:
            self._remove(next(iter(self)))
            self.forgotten += 1

    def find(self, key: Key) -> Value | None:
        """The value of a key; None if there is none."""
        return self.get(kept(key))

    def pop(self, key: Key) -> None:  # type: ignore[override]
        """Remove a key, if it is there."""
        if (key := kept(key)) in self:
            self._remove(key)

    def _remove(self, key: Key) -> None:
        self._entries -= _of_item(key, super().pop(key))


def _of_item(key: Any, value: Any) -> int:
    return entries(key) + entries(value) - 1
