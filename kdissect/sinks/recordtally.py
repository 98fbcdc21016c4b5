"""``CarriedRecord`` -> counts, written as one line at the end. Holds a number for each thing counted, and for
each topic up to a bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.sinks.phrases import facts, many, size

if TYPE_CHECKING:
    from typing import TextIO

    from kdissect.analysis.carried import CarriedRecord

_MOST_TOPICS = 10_000


class RecordTally:
    """Counts records and writes the line on ``close``.

    Args:
        out: where to; the caller owns and flushes it.
    """

    def __init__(self, out: TextIO) -> None:
        self._write = out.write
        self._produced = self._fetched = self._control = self._aborted = self._odd = self._bytes = 0
        self._topics: set[str] = set()

    def feed(self, record: CarriedRecord) -> None:
        """Count one."""
        if record.carried.produced:
            self._produced += 1
        else:
            self._fetched += 1
        self._control += record.control is not None
        self._aborted += record.batch.aborted
        self._odd += bool(record.batch.anomalies)
        self._bytes += len(record.record.key or b"") + len(record.record.value or b"")
        if len(self._topics) < _MOST_TOPICS:
            self._topics.update(record.carried.names[:1])

    def close(self) -> None:
        """Write what was counted."""
        topics = many(len(self._topics), "topic")
        text = facts(
            many(self._produced + self._fetched, "record"),
            f"{self._produced:,} produced" if self._produced else None,
            f"{self._fetched:,} fetched" if self._fetched else None,
            f"{self._control:,} control" if self._control else None,
            f"{self._aborted:,} aborted" if self._aborted else None,
            f"{self._odd:,} in batches with anomalies" if self._odd else None,
            f"{size(self._bytes)} of keys and values",
            f"more than {topics}" if len(self._topics) >= _MOST_TOPICS else topics,
        )
        self._write(text + "\n")
