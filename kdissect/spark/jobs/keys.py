"""``by`` and ``window`` -> the columns that a job groups by, named as in ``kdissect summary``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  (the usual name)

from kdissect.errors import UsageError
from kdissect.nearest import did_you_mean
from kdissect.query.filters import parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

US_NS = 1000

CLIENT = "coalesce(nullif(client_id, ''), client_ip)"
"""A client without client ID is shown by its address."""
EXAMPLE = "concat(connection, '/', number)"
"""Exchange ID, as for ``read --exchange``."""
OF_CONNECTION = {
    "client": CLIENT,
    "broker": "concat(if(broker_ip like '%:%', concat('[', broker_ip, ']'), broker_ip), ':', broker_port)",
    "connection": "connection",
    "capture": "capture",
    "software": "nullif(rtrim(concat(client_software_name, ' ', coalesce(client_software_version, ''))), '')",
    "principal": "principal",
}
OF_EXCHANGE = {
    "api": """coalesce(api, concat('api ', api_key),
        if(kind = 'orphan' and correlation_id is not null, 'unknown', 'SASL token'))""",
    **OF_CONNECTION,
    "topic": "explode_outer(topics)",
    "group": "group_id",
}
OF_PARTITION = {
    "topic": "coalesce(topic, topic_id)",
    "partition": "partition",
    "api": "api",
    "client": CLIENT,
    "group": "group_id",
    "connection": "connection",
}


def keyed(
    frame: DataFrame, by: Sequence[str], window: str | None, known: Mapping[str, str]
) -> tuple[DataFrame, list[str]]:
    """Add the columns to group by.

    Args:
        frame: rows with a column ``time``.
        by: names from ``known``.
        window: duration of a time window; None: no window.
        known: names and their SQL expressions.

    Returns:
        The frame, and the names to group by; the first is ``start`` if there is a window.

    Raises:
        UsageError: unknown name or invalid duration.
    """
    for name in by:
        if name not in known:
            raise UsageError(
                f'cannot group by "{name}"{did_you_mean(name, known)}; known: {", ".join(known)}'
            )
    for name in by:
        frame = frame.withColumn(name, F.expr(known[name]))
    if window is None:
        return frame, list(by)
    return frame.withColumn("start", start("time", window)), ["start", *by]


def most_first(
    frame: DataFrame, names: Sequence[str], by: Sequence[str], amount: Column, *then: str
) -> DataFrame:
    """Order rows by time window if there is one, then the largest first, then by ``then`` or ``by``."""
    pieces = [name for name in names if name not in by]
    return frame.orderBy(*pieces, amount.desc(), *(then or by))


def start(time: str, window: str) -> Column:
    """The start of the time window that a time belongs to.

    Raises:
        UsageError: the duration is invalid, or shorter than a microsecond.
    """
    length = length_us(window)
    return F.expr(f"timestamp_micros(unix_micros({time}) - pmod(unix_micros({time}), {length}))")


def length_us(window: str) -> int:
    """The duration of a window in microseconds.

    Raises:
        UsageError: the duration is invalid, or shorter than a microsecond.
    """
    length = parse_duration(window) // US_NS
    if not length:
        raise UsageError(f'"{window}" is too short; use 10s, 1m')
    return length


def seconds(window: str | None) -> Column | None:
    """The duration of a window in seconds; None if there is no window."""
    return None if window is None else F.lit(parse_duration(window) / 1e9)


def count_if(condition: str) -> Column:
    """The number of rows that meet a condition."""
    return F.expr(f"count_if({condition})")


def total(expression: str) -> Column:
    """A sum; 0 without values."""
    return F.expr(f"coalesce(sum({expression}), 0)")


def quantiles(expression: str, unit: str) -> list[Column]:
    """Minimum, mean, quantiles and maximum of a quantity.

    Quantiles are values that occur. They are exact for a few thousand values; beyond that, their rank is
    within 0.0001 of the true one, more accurate than the sketches of ``kdissect summary`` (0.0068).
    """
    ranks = F.expr(f"percentile_approx({expression}, array(0.5D, 0.95D, 0.99D), 10000)")
    return [
        F.expr(f"min({expression})").alias(f"min_{unit}"),
        F.expr(f"round(avg({expression}), 1)").alias(f"mean_{unit}"),
        *(ranks[place].alias(f"{name}_{unit}") for place, name in enumerate(("p50", "p95", "p99"))),
        F.expr(f"max({expression})").alias(f"max_{unit}"),
    ]


def sketch(expression: str) -> Column:
    """A KLL sketch of doubles in DataSketches' format; can be merged with those of ``kdissect summary``.

    Both have k = 400: with 99% probability, the rank of a quantile is within 0.0068 of the requested one.
    Null if there are no values: Spark cannot query an empty sketch.
    """
    aggregate = f"kll_sketch_agg_double(cast({expression} as double), 400)"
    return F.expr(f"if(count({expression}) = 0, null, {aggregate})")
