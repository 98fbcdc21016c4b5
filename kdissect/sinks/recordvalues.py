"""Batch of records -> the values of a table's columns, column by column. Holds nothing; what it makes is as
large as the batch.

Most columns are the same in a whole batch: these are read once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.sinks.recordlines import MORE, OWN, say_more

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.analysis.carried import OpenBatch
    from kdissect.sinks.columns import Getter

_OWN = frozenset((*OWN, "timestamp_ms"))  # which only files have


class RecordValues:
    """Reads them.

    Args:
        getters: how to read each column of a record, by its name.
    """

    def __init__(self, getters: Iterable[tuple[str, Getter]]) -> None:
        self._getters = list(getters)

    def of(self, records: OpenBatch) -> list[list[Any]]:
        """Of each column its values in a batch, whose records are plain: one where it is the same in all."""
        each = list(records)
        plainest = each[0]._replace(key=None, value=None, headers=())
        says_more = say_more(records.batch.records)
        columns = []
        for name, get in self._getters:
            if name in _OWN:
                values = list(map(get, each))
            else:
                values = [get(plainest)]
                if name in MORE and any(says_more):
                    nothing = values[0]
                    values = [
                        get(record) if more else nothing for record, more in zip(each, says_more, strict=True)
                    ]
            columns.append(values)
        return columns

    def rows(self, records: OpenBatch) -> Iterable[tuple[Any, ...]]:
        """The same row by row."""
        count = len(records)
        return zip(
            *(values if len(values) == count else values * count for values in self.of(records)), strict=True
        )
