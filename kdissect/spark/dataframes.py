"""Captures -> tables as data frames: ``frames``. Spark writes them, to any format and place that it knows.

The captures are decoded once, as by decode.py, to Parquet in a new directory. So a query reads only
the columns that it needs, and Spark can skip rows. Holds what ``decode`` holds.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from kdissect.capture.inputs import candidates, output_directory
from kdissect.errors import CaptureError, UsageError, WriteError
from kdissect.files import is_stored, remove_all
from kdissect.model import (
    ANSWERED,
    INCOMPLETE,
    INCOMPLETE_REQUEST,
    ORPHAN,
    UNACKNOWLEDGED,
    UNANSWERED,
)
from kdissect.options import PARQUET, ExportOptions
from kdissect.spark.batches import columns_of
from kdissect.spark.decode import UnsharedError, decode_files
from kdissect.spark.options import FAILFAST, parse
from kdissect.spark.planning import selected
from kdissect.spark.ranges import RANGE_BYTES
from kdissect.spark.requirements import local_directory
from kdissect.spark.tables import written
from kdissect.tables import spark_schema
from kdissect.tables.exchanges import BODIES
from kdissect.tables.rows import DEFAULT_TABLES, TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

EXCHANGES = "exchanges"

_NOT_HERE = (
    "table", "split", "lookback", "filesPerTask", "pushdown", "maxFilesPerTrigger", "ring", "maxFileAge",
    "includeLast", "recursiveFileLookup", "columnNameOfCorruptRecord",
)  # fmt: skip
"""Options of the data source that have no meaning for several tables, or outside of streams."""


class Frames(dict[str, "DataFrame"]):
    """Data frames by table.

    Attributes:
        warnings: problems of the captures.
        damaged: number of captures that have any.
    """

    def __init__(self, warnings: Sequence[str], damaged: int, stack: ExitStack) -> None:
        super().__init__()
        self.warnings = list(warnings)
        self.damaged = damaged
        self._stack = stack

    def unpersist(self) -> None:
        """Remove the files. The frames are of no use afterwards."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unpersist()


def frames(
    spark: SparkSession,
    captures: str | Sequence[str],
    tables: Sequence[str] | None = None,
    *,
    variant: bool = False,
    directory: str | None = None,
    range_bytes: int = RANGE_BYTES,
    **options: Any,
) -> Frames:
    """Decode captures once, to a data frame for each table. Their files are kept until ``unpersist()``, and
    Spark writes the frames like any others.

    Args:
        spark: session of any kind; ``register`` it first.
        captures: names of files and directories, and globs; paths or URLs that all workers can read.
        tables: their names; None: all except ``records``.
        variant: whether the bodies in ``exchanges`` are VARIANT instead of JSON as text. Needs Spark 4.
        directory: path or URL of a directory that all workers see, for the files; None: Spark's directory for
            temporary files.
        range_bytes: approximate size of the ranges of a shuffle.
        options: those of the data source: ``api="Fetch"``, ``bodies="none"``. ``tasks`` is the number of
            tasks that dissect, as ``tasks`` of ``decode``.

    Raises:
        UsageError: a table, option, value or file name is invalid.
        CaptureError: no capture can be read; or reading one failed, unless ``failOnDataLoss`` is false; or
            one is damaged, and ``mode`` is ``FAILFAST``.
        OutputError: the files cannot be written, or some workers do not see the directory.
    """
    tables = DEFAULT_TABLES if tables is None else tables
    if not tables:
        raise UsageError(f"no table is selected; known: {', '.join(TABLES)}")
    names = [captures] if isinstance(captures, str) else list(captures)
    for option in _NOT_HERE:
        if option.lower() in map(str.lower, options):
            raise UsageError(f"option {option} is for the data source, not for frames()")
    for name in tables:
        columns_of(name)
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
    }
    parsed = parse({**texts, "paths": json.dumps(names)}).for_batch
    files = selected(candidates(parsed.paths), parsed)
    with ExitStack() as stack:
        own = _own_directory(directory or local_directory(spark.conf), stack)
        export = ExportOptions(own, PARQUET, tables=tuple(tables), bodies=parsed.bodies)
        try:
            done = decode_files(spark, files, export, parsed, range_bytes=range_bytes, tasks=parsed.tasks)
        except UnsharedError as error:
            raise UnsharedError(error.who, "pass directory=,") from None
        if parsed.fail_on_data_loss and not done.complete:
            raise CaptureError(done.warnings[0])
        if parsed.mode == FAILFAST and (done.damaged or done.unreadable):
            raise CaptureError(f"{done.warnings[0]}; mode=PERMISSIVE leaves out what is damaged")
        result = Frames(done.warnings, done.damaged, stack.pop_all())
    for name in tables:
        frame = result[name] = written(spark, own / name)
        if variant and name == EXCHANGES:
            result[name] = frame.select(*map(_as_variant, frame.schema))
    return result


def _own_directory(parent: str, stack: ExitStack) -> Path:
    """A new directory, until ``stack`` is closed."""
    if is_stored(place := output_directory(parent)):
        own = place / f"kdissect-frames-{uuid4().hex}"
    else:
        try:
            own = Path(mkdtemp(prefix="kdissect-frames-", dir=parent)).absolute()
        except OSError as error:
            raise WriteError.of(Path(parent), error) from None
    stack.callback(remove_all, own)
    return own


def _as_variant(field: StructField) -> Column:
    if field.name not in BODIES:
        return F.col(field.name)
    return F.parse_json(field.name).alias(field.name, metadata=field.metadata)


_SUMMED = ("request_bytes", "response_bytes")
_FIRST = ("connection", "capture", "client_id", "proxy", "community_id")
_LAST = ("client_software_name", "client_software_version", "principal", "sasl_mechanism", "cluster_id")
_ENDS = ("client_ip", "client_port", "broker_ip", "broker_port", "hop_ip", "hop_port")
_KINDS = {"answered": ANSWERED, "unanswered": UNANSWERED, "unacknowledged": UNACKNOWLEDGED, "orphans": ORPHAN}


def stream_connections(exchanges: DataFrame, idle: str = "10 minutes") -> DataFrame:
    """Derive connections from exchanges, for streams, which cannot read the table ``connections``.

    A connection ends when it has had no exchange for the time ``idle``. A stream writes its row (output mode
    ``append``) after twice that time, as measured by the times of exchanges. Exchanges that come later than
    that are dropped, and counted in the progress of the query.

    Args:
        exchanges: from the data source, with all columns.
        idle: an interval as Spark writes it.

    Returns:
        Those columns of ``connections`` that follow from exchanges. ``time`` is that of the first exchange,
        ``last_time`` that of the last request or response.
    """
    answered = F.timestamp_micros(F.unix_micros("time") + F.coalesce("latency_us", F.lit(0)))
    aggregates = {
        "date": F.to_date(F.min("time")),
        "time": F.min("time"),
        "last_time": F.max(answered),
        "exchanges": F.count("*"),
        "no_answer": F.count_if(F.col("outcome") == UNANSWERED),
        "incomplete": F.count_if(F.col("outcome").isin(INCOMPLETE, INCOMPLETE_REQUEST)),
        **{name: F.count_if(F.col("kind") == kind) for name, kind in _KINDS.items()},
        **{name: F.coalesce(F.sum(name), F.lit(0)) for name in _SUMMED},
        **{name: F.min_by(name, F.when(F.col(name).isNotNull(), F.col("time_ns"))) for name in _FIRST},
        **{name: F.max_by(name, F.when(F.col(name).isNotNull(), F.col("time_ns"))) for name in _LAST},
    }
    columns = [each for each in columns_of("connections") if each.name in {*aggregates, *_ENDS}]
    grouped = exchanges.withWatermark("time", idle).groupBy(*_ENDS, F.session_window("time", idle))
    rows = grouped.agg(*(value.alias(name) for name, value in aggregates.items()))
    return rows.to(StructType.fromJson(spark_schema.struct_type(columns)))
