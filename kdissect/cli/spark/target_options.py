"""Options that say where Spark runs -> ``SparkTarget``, and a running engine: Spark there, or DuckDB."""

from __future__ import annotations

import os
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.options import combine
from kdissect.cli.terminal import warn
from kdissect.errors import UsageError
from kdissect.spark.session import SparkTarget, session
from kdissect.tables import duck

if TYPE_CHECKING:
    from collections.abc import Iterator

SPARK, DUCKDB = "spark", "duckdb"


def _to_setting(text: str) -> tuple[str, str]:
    """``NAME=VALUE`` -> a Spark setting.

    Raises:
        click.BadParameter: the string has another form.
    """
    name, separator, value = text.partition("=")
    if not name.startswith("spark.") or not separator:
        raise click.BadParameter(f'invalid Spark setting "{text}": use spark.NAME=VALUE')
    return name, value


def _to_remote(text: str) -> str:
    """The address of a Spark Connect server.

    Raises:
        click.BadParameter: the string is not an ``sc://`` URL.
    """
    if not text.startswith("sc://"):
        raise click.BadParameter(f'invalid Spark Connect server "{text}": use sc://HOST:PORT')
    return text


spark_options = combine(
    click.option(
        "--master",
        metavar="URL",
        help="spark://HOST:PORT, yarn, k8s://https://HOST:PORT, or local[4]. [default: local[*], all cores]",
    ),
    click.option(
        "--remote",
        type=_to_remote,
        metavar="sc://HOST:PORT",
        help="Use a Spark Connect server. [default: SPARK_REMOTE, if set]",
    ),
    click.option(
        "--conf",
        multiple=True,
        type=_to_setting,
        metavar="NAME=VALUE",
        help="Spark setting: spark.driver.memory=4g.",
    ),
    click.option(
        "--log",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Log file for the Spark driver and executors. [default: a temporary file, kept on failure]",
    ),
)
"""Where Spark runs."""


def take(options: dict[str, Any]) -> tuple[SparkTarget, Path | None]:
    """Remove ``spark_options`` from a command's options; return where Spark runs, and the path of its log.

    Raises:
        click.UsageError: both --master and --remote are set.
    """
    master, remote, log = options.pop("master"), options.pop("remote"), options.pop("log")
    if master is not None and remote is not None:
        raise click.UsageError("--master and --remote are mutually exclusive")
    if master is None and remote is None:
        remote = os.environ.get("SPARK_REMOTE") or None
    spark_target = SparkTarget(master, remote, dict(options.pop("conf")))
    return spark_target, log


def has_spark() -> bool:
    """Whether Spark is installed."""
    return find_spec("pyspark") is not None


@contextmanager
def engine(name: str, spark_target: SparkTarget, log: Path | None) -> Iterator[Any]:
    """Start an engine, and print which; yield its session or connection.

    Raises:
        UsageError: DuckDB is not installed, or was chosen together with a place where Spark runs.
        SparkError: Spark cannot be started, or a query failed.
    """
    if name == SPARK:
        with session(spark_target, log) as spark:
            warn(f"engine: Spark {spark.version}")
            yield spark
        return
    if (reason := duck.why_not()) is not None:
        raise UsageError(reason)
    if spark_target != SparkTarget() or log is not None:
        raise click.UsageError("--master, --remote, --conf and --log need --engine spark")
    with duck.connection() as database:
        warn(f"engine: DuckDB {duck.version()}")
        yield database
