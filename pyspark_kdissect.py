"""Lets Spark find the data source ``kdissect``: it looks for ``DefaultSource`` in modules whose names begin
with ``pyspark_``.
"""

from __future__ import annotations

from kdissect.spark.datasource import KdissectSource as DefaultSource

__all__ = ["DefaultSource"]
