"""Rows of a group -> rows of a result, by a function in Python: what jobs take from ``stats/``.

The function runs in Spark's workers, which need kdissect, or in this process beside DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kdissect.tables import duck, spark_schema
from kdissect.tables.columns import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kdissect.tables.columns import Type

    Fold = Callable[[Iterator[dict[str, Any]]], Iterable[dict[str, Any]]]

_Frame = TypeVar("_Frame")


def folded(frame: _Frame, keys: Sequence[str], fold: Fold, types: Mapping[str, Type]) -> _Frame:
    """Apply a function to the rows of each group.

    Args:
        frame: data frame of Spark, or of DuckDB.
        keys: the columns whose values rows of a group share.
        fold: from the rows of one group, in any order, to those of the result; values are those of pyarrow.
        types: columns of the result.
    """
    import pyarrow as pa

    columns = [Column(name, kind, itemgetter(name), "") for name, kind in types.items()]

    def apply(batches: Any) -> Any:
        from kdissect.tables import arrow

        rows = fold(row for batch in batches for row in batch.to_pylist())
        yield pa.RecordBatch.from_pylist(list(rows), arrow.schema(columns))

    # By these Spark knows that a group comes in batches: all of it might not fit into memory.
    apply.__annotations__ = dict.fromkeys(("batches", "return"), Iterator[pa.RecordBatch])
    any_frame: Any = frame
    if not isinstance(frame, duck.DuckFrame):
        result = any_frame.groupBy(*keys).applyInArrow(apply, spark_schema.ddl(columns))
    else:
        batches = [*apply(()), *(each for group in frame.groups(keys) for each in apply(group))]
        result = duck.DuckFrame(frame.connection, frame.connection.from_arrow(pa.Table.from_batches(batches)))
    return cast("_Frame", result)
