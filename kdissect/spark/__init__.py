"""Apache Spark: kdissect as a data source, captures dissected on a cluster, reports as jobs. No other package
imports pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("kdissect")`` work in a session of any kind: of ``python job.py``,
    ``spark-submit``, a notebook or Spark Connect.

    Workers on this machine run this Python, unless ``PYSPARK_PYTHON`` is set. Those on other machines get
    this kdissect; what it depends on must be installed there.
    """
    from kdissect.spark import session  # not needed by workers, which import this package, too

    session.register(spark)
