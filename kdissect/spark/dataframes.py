"""Captures -> tables as data frames: ``frames``. Spark writes them, to any format and place that it knows.

The captures are decoded once, divided as in decode.py, whatever the number of tables and queries: Spark keeps
the rows of all tables on disk, compressed and in the order in which a task made them. If it loses some, it
makes the same ones again. Holds what ``divide`` holds.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from kdissect.capture.inputs import candidates
from kdissect.errors import CaptureError, UsageError
from kdissect.model import (
    ANSWERED,
    INCOMPLETE,
    INCOMPLETE_REQUEST,
    ORPHAN,
    UNACKNOWLEDGED,
    UNANSWERED,
)
from kdissect.options import PARQUET, ExportOptions
from kdissect.spark import parts
from kdissect.spark.batches import TableBatches, columns_of
from kdissect.spark.decode import disk, divide, examined_job, with_unread
from kdissect.spark.options import FAILFAST, parse
from kdissect.spark.planning import selected
from kdissect.spark.ranges import RANGE_BYTES
from kdissect.spark.session import own_python
from kdissect.spark.values import from_json
from kdissect.tables import arrow, spark_schema
from kdissect.tables.exchanges import BODIES
from kdissect.tables.export import CAPTURES, TOPIC_IDS, ExportJob
from kdissect.tables.rows import DEFAULT_TABLES, RECORDS
from kdissect.tables.whole import WHOLE_TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from kdissect.spark.parts import ReadResult
    from kdissect.stats.by_cluster import ByCluster

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
        """Free the disks of the workers. The frames are of no use afterwards."""
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
    range_bytes: int = RANGE_BYTES,
    **options: Any,
) -> Frames:
    """Decode captures once, to a data frame for each table. Spark keeps the rows on the disks of its workers
    until ``unpersist()``, and writes the frames like any others.

    Args:
        spark: session of any kind; ``register`` it first.
        captures: names of files and directories, and globs; paths or URLs that all workers can read.
        tables: their names; None: all except ``records``.
        variant: whether the bodies in ``exchanges`` are VARIANT instead of JSON as text. Needs Spark 4.
        range_bytes: approximate size of the ranges of a shuffle.
        options: those of the data source: ``api="Fetch"``, ``bodies="none"``. ``parts`` is the number of
            tasks that dissect, as ``tasks`` of ``decode``.

    Raises:
        UsageError: a table, option, value or file name is invalid.
        CaptureError: no capture can be read; or reading one failed, unless ``failOnDataLoss`` is false; or
            one is damaged, and ``mode`` is ``FAILFAST``.
    """
    tables = tables or DEFAULT_TABLES
    names = [captures] if isinstance(captures, str) else list(captures)
    for option in _NOT_HERE:
        if option.lower() in map(str.lower, options):
            raise UsageError(f"option {option} is for the data source, not for frames()")
    schemas = {name: StructType.fromJson(spark_schema.struct_type(columns_of(name))) for name in tables}
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
    }
    parsed = replace(parse({**texts, "paths": json.dumps(names)}).for_batch, end_to_end=RECORDS in tables)
    files = selected(candidates(parsed.paths), parsed)
    with own_python(spark):
        export = ExportOptions(Path(), PARQUET, tables=tuple(tables), bodies=parsed.bodies)
        job, divided, cores = examined_job(spark, files, parsed, export, range_bytes)
        with ExitStack() as stack:
            division = divide(spark, job, divided, parsed.parts, cores, stack)
            pack = partial(parts.pack, job, division.opened)
            packed = division.rows.mapInArrow(pack, parts.PACKED).persist(disk())
            stack.callback(packed.unpersist)
            values: dict[str, list[Any]] = {parts.READ: [], parts.WHOLE: []}
            for row in packed.where(packed.name.isin(*values)).collect():
                values[row.name].append(from_json(row.data))
            read = with_unread(division.read_by(values[parts.READ]), divided)
            if parsed.fail_on_data_loss and any(source.failed for source in read.sources):
                raise CaptureError(next(iter(read.warnings)))
            if parsed.mode == FAILFAST and read.warnings:
                raise CaptureError(f"{read.warnings[0]}; mode=PERMISSIVE leaves out what is damaged")
            damaged = sum(1 for each in read.sources if each.failed or each.warnings)
            here, left_out = _from_driver(job, read, values[parts.WHOLE])
            result = Frames([*read.warnings, *left_out], damaged, stack.pop_all())
            for name, schema in schemas.items():
                if name in here:
                    result[name] = spark.createDataFrame(here[name], schema)
                    continue
                columns = StructType.fromJson(spark_schema.struct_type(parts.packed_columns(job, name)))
                frame = packed.where(packed.name == name).mapInArrow(parts.unpack, columns)
                result[name] = _first_of_pairs(frame, schema) if name == TOPIC_IDS else frame
                if variant and name == EXCHANGES:
                    result[name] = frame.select(*(_as_variant(field) for field in columns))
            return result


def _as_variant(field: StructField) -> Column:
    if field.name not in BODIES:
        return F.col(field.name)
    return F.parse_json(field.name).alias(field.name, metadata=field.metadata)


def _from_driver(
    job: ExportJob, read: ReadResult, wholes: Sequence[ByCluster | None]
) -> tuple[dict[str, pa.Table], list[str]]:
    """The tables that no part can make, and what they lack because of limits."""
    columns = {name: columns_of(name) for name in job.export.tables if name in {CAPTURES, *WHOLE_TABLES}}
    batches = TableBatches(columns, job.options)
    batches.log.census = read.census
    whole = batches.tables.whole
    for each in wholes:
        if whole is not None and each is not None:
            whole.merge(each)
    by_name: dict[str, list[pa.RecordBatch]] = {name: [] for name in columns}
    for name, batch in batches.close(read.sources, read.warnings):
        by_name[name].append(batch)
    tables = {name: pa.Table.from_batches(by_name[name], arrow.schema(columns[name])) for name in columns}
    return tables, [] if whole is None else whole.left_out()


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


def _first_of_pairs(frame: DataFrame, schema: StructType) -> DataFrame:
    """The first row of each pair of topic ID and name, in the order of the whole input."""
    pair, rest = schema.fieldNames()[:2], schema.fieldNames()[2:]
    first = F.min(F.struct(*parts.PLACE, *rest)).alias("first")
    return frame.groupBy(*pair).agg(first).select(*pair, "first.*").select(schema.fieldNames()).to(schema)
