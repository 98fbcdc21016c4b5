"""Exchanges -> the sums of each worker, which the parent adds up. Holds what a summary does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.parallel.work import Selected

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.analysis.summary.summarizer import Summarizer
    from kdissect.model import Exchange

_COUNTED = (1, b"")


class Sums(Selected):
    """A worker's: it sends none of the rows, and all that it knows in the end."""

    def __init__(self, takes: Callable[[Exchange], bool], summarizer: Summarizer) -> None:
        super().__init__(takes)
        self._summarizer = summarizer

    def make(self, exchange: Exchange) -> tuple[int, bytes]:
        """Count it."""
        self._summarizer.feed(exchange)
        return _COUNTED

    def end(self) -> Summarizer:
        """What was counted."""
        return self._summarizer


class Sum:
    """The parent's: rows are for counting only."""

    form = None

    def dated(self, made: Any, _form: Any) -> Any:
        """The same."""
        return made
