"""An unknown word and the known words -> the most similar one, for suggestions. Holds no state."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_SHARED = 5  # letters
_SHARED_PART = 0.8  # of the word
_SIMILAR = 0.6  # difflib's measure
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that starts as ``word`` does, contains its parts or is most similar to it; None if none
    is similar.
    """
    from difflib import get_close_matches  # only needed after a mistake

    plain = {_plain(name): name for name in known}
    beginning = _plain(word)
    longer = sorted((name for name in plain if beginning and name.startswith(beginning)), key=len)
    alike = (
        longer
        or _same_beginning(beginning, plain)
        or get_close_matches(beginning, plain, n=1, cutoff=_SIMILAR)
        or _same_parts(word, plain)
    )
    return plain[alike[0]] if alike else None


def _same_parts(word: str, plain: Mapping[str, str]) -> list[str]:
    """The shortest name that has all parts of a word, in any order: TOPIC_UNKNOWN, AUTH."""
    parts = _parts(word)
    if not parts or min(map(len, parts)) < _SHARED - 1:
        return []
    names = [
        key
        for key, name in plain.items()
        if all(any(part.startswith(each) for part in _parts(name)) for each in parts)
    ]
    return sorted(names, key=len)[:1]


def _parts(name: str) -> list[str]:
    return [part.lower() for part in _WORD.findall(name)]


def _same_beginning(word: str, names: Iterable[str]) -> list[str]:
    """The name that shares most of the beginning of a word, if that is nearly all of the word."""
    shared = {name: _shared(word, name) for name in names}
    longest = max(shared.values(), default=0)
    is_enough = longest >= _SHARED and longest >= _SHARED_PART * len(word)
    return sorted((name for name in shared if shared[name] == longest), key=len)[:1] if is_enough else []


def _shared(one: str, other: str) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of an error message: ``; did you mean "topic"?``, or nothing."""
    name = nearest(word, known)
    return "" if name is None else f'; did you mean "{name}"?'


def _plain(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")
