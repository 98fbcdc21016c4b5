"""``Exchange`` -> counts, written as one line at the end. Holds a number for each kind of exchange and each
error.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.analysis import content
from kdissect.model import KINDS
from kdissect.sinks.phrases import facts, many

if TYPE_CHECKING:
    from typing import TextIO

    from kdissect.model import Exchange

_ERRORS = 5


class Tally:
    """Counts exchanges and writes the line on ``close``.

    Args:
        out: where to; the caller owns and flushes it.
    """

    def __init__(self, out: TextIO) -> None:
        self._write = out.write
        self._kinds: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._odd = 0

    def feed(self, exchange: Exchange) -> None:
        """Count one."""
        self._kinds[exchange.kind] += 1
        self._errors.update(content.errors(exchange))
        self._odd += bool(exchange.anomalies)

    def close(self) -> None:
        """Write what was counted."""
        total = self._kinds.total()
        kinds = [f"{self._kinds[kind]:,} {kind}" for kind in KINDS if self._kinds[kind]]
        if len(self._kinds) == 1:
            kinds = [f"{'all ' if total > 1 else ''}{next(iter(self._kinds))}"]
        errors = [f"{count:,} {name}" for name, count in self._errors.most_common(_ERRORS)]
        more = len(self._errors) - _ERRORS
        text = facts(
            many(total, "exchange"),
            *kinds,
            f"{self._odd:,} with anomalies" if self._odd else None,
            f"errors: {', '.join(errors)}" if errors else None,
            many(more, "more error") if more > 0 else None,
        )
        self._write(text + "\n")
