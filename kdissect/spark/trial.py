"""Where Spark shall run -> what its workers are: their Python, and the kdissect that they import. Holds
nothing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kdissect.errors import SparkError
from kdissect.spark.needs import Need
from kdissect.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from kdissect.spark.session import Place

TASKS = 4
_COLUMNS = ("python", "kdissect", "apis")
_FAULT = "mend that first"


def trial(place: Place, log: Path | None = None) -> Iterator[Need]:
    """Start Spark, and ask workers what they are."""
    try:
        with session(place, log) as spark:
            yield Need("Spark", spark.version)
            tasks = spark.range(0, TASKS, 1, TASKS)
            answers = tasks.mapInArrow(_answer, ", ".join(f"{name} string" for name in _COLUMNS))
            for row in answers.distinct().collect():
                yield Need("workers", f"Python {row.python}, kdissect of {row.kdissect}, {row.apis} apis")
    except SparkError as error:
        yield Need("workers", str(error), _FAULT)


def _answer(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    import kdissect
    from kdissect.kafka.apis import all_apis
    from kdissect.kafka.schema import request

    known = [api for api in all_apis() if request(api.key) is not None]
    version = ".".join(map(str, sys.version_info[:3]))
    found = (f"{version} ({sys.executable})", kdissect.__path__[0], str(len(known)))
    for _ in batches:
        yield pa.RecordBatch.from_pydict({name: [text] for name, text in zip(_COLUMNS, found, strict=True)})
