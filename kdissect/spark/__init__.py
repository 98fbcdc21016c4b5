"""Apache Spark: kdissect as a data source, captures dissected on a cluster, reports as jobs. No other package
imports pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from kdissect.spark.dataframes import Frames


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("kdissect")`` work in a session of any kind: of ``python job.py``,
    ``spark-submit``, a notebook or Spark Connect.

    Workers on this machine run this Python, unless ``PYSPARK_PYTHON`` is set. Those on other machines get
    this kdissect, unless they have the same version; what it depends on must be installed there.
    """
    from kdissect.spark import session  # not needed by workers, which import this package, too

    session.register(spark)


def frames(
    spark: SparkSession,
    captures: str | Sequence[str],
    tables: Sequence[str] | None = None,
    *,
    variant: bool = False,
    strategy: str = "auto",
    **options: Any,
) -> Frames:
    """Decode captures once, to a data frame for each table. Spark keeps the rows on the disks of its workers
    until ``unpersist()``, and writes the frames like any others.

    Args:
        spark: session of any kind; ``register`` it first.
        captures: names of files and directories, and globs; paths or URLs that all workers can read.
        tables: their names; None: all except ``records``.
        variant: whether the bodies in ``exchanges`` are VARIANT instead of JSON as text. Needs Spark 4.
        strategy: how to divide the work among tasks, as for ``kdissect spark decode``: ``single``, ``shards``
            or ``shuffle``; ``auto`` depends on the size of the captures and the number of tasks.
        options: those of the data source: ``api="Fetch"``, ``bodies="none"``. ``parts`` is the number of
            partitions, by default one for each task; of a shuffle one for each 128 MiB of captures, but at
            least two for each core.

    Raises:
        UsageError: a table, strategy, option, value or file name is invalid.
        CaptureError: no capture can be read; or reading one failed, unless ``failOnDataLoss`` is false.
    """
    from kdissect.spark import dataframes
    from kdissect.tables.rows import DEFAULT_TABLES

    return dataframes.frames(
        spark, captures, tables or DEFAULT_TABLES, variant=variant, strategy=strategy, **options
    )


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
    from kdissect.spark import dataframes

    return dataframes.stream_connections(exchanges, idle)
