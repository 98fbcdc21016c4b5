"""A data frame -> rows of plain values, one after the other. Holds those that Spark hands over at a time.

Spark writes each row as JSON itself. So values look as they do in exports, wherever the frame is computed:
times are UTC and end in Z, bytes are base64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX",
}
NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
"""How the names of types begin that stand at their column's right edge."""


def rows(frame: DataFrame, most: int | None = None) -> Iterator[list[Any]]:
    """Yield the values of each row, in the order of the columns.

    Args:
        frame: columns of the same name do no harm.
        most: rows; they are then taken at once. None: all, of each task at a time.
    """
    if not frame.columns:  # a statement that answers nothing
        return
    names = [str(place) for place in range(len(frame.columns))]
    texts = as_json(frame.toDF(*names))
    taken = texts.toLocalIterator() if most is None else iter(texts.limit(most).collect())
    for row in taken:
        values = orjson.loads(row[0])
        yield [values[name] for name in names]


def as_json(frame: DataFrame) -> DataFrame:
    """One column, of texts: each row as JSON, nulls included."""
    from pyspark.sql import functions as F  # noqa: N812

    return frame.select(F.to_json(F.struct("*"), _JSON))


def is_number(frame: DataFrame, place: int) -> bool:
    """Whether a column has numbers."""
    return frame.dtypes[place][1].startswith(NUMBERS)
