"""Apache Spark: kdissect as a data source, captures dissected on a cluster, reports as jobs. No other package
imports pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kdissect.spark.dataframes import frames, stream_connections
    from kdissect.spark.session import register

__all__ = ["frames", "register", "stream_connections"]


def __getattr__(name: str) -> Any:
    """The public functions, imported when they are used: workers import this package, but not them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "session" if name == "register" else "dataframes"
    return getattr(import_module(f"{__name__}.{home}"), name)
