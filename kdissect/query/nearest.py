"""An unknown word and the known words -> the most similar one, for suggestions. Holds no state."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that starts with ``word`` or is most similar to it; None if none is similar."""
    from difflib import get_close_matches  # only needed after a mistake

    plain = {_plain(name): name for name in known}
    beginning = _plain(word)
    longer = sorted((name for name in plain if beginning and name.startswith(beginning)), key=len)
    matches = longer or get_close_matches(beginning, plain, n=1, cutoff=0.5)
    return plain[matches[0]] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of an error message: ``; did you mean "topic"?``, or nothing."""
    name = nearest(word, known)
    return "" if name is None else f'; did you mean "{name}"?'


def _plain(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")
