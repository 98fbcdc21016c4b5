"""``by`` and ``window`` -> the columns that a job groups by, named as in ``kdissect summary``. Holds
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from kdissect.errors import UsageError
from kdissect.query.filters import parse_duration
from kdissect.query.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

US_NS = 1000

CLIENT = "coalesce(nullif(client_id, ''), client_ip)"
"""A client that told no id is known by its address."""
EXAMPLE = "concat(connection, '/', number)"
"""What ``read --exchange`` takes."""
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
        by: names out of ``known``.
        window: a length of time, None for none.
        known: the names, and what they are in SQL.

    Returns:
        The frame, and the names to group by: ``start`` first where there is a window.

    Raises:
        UsageError: there is no such name or length.
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
    """Order rows: by time where they are pieces of it, the largest first, then by what they are of."""
    pieces = [name for name in names if name not in by]
    return frame.orderBy(*pieces, amount.desc(), *(then or by))


def start(time: str, window: str) -> Column:
    """Where the piece of time begins that a moment belongs to.

    Raises:
        UsageError: the text is no length, or one of less than a microsecond.
    """
    length = length_us(window)
    return F.expr(f"timestamp_micros(unix_micros({time}) - pmod(unix_micros({time}), {length}))")


def length_us(window: str) -> int:
    """The length of a window in microseconds.

    Raises:
        UsageError: the text is no length, or one of less than a microsecond.
    """
    length = parse_duration(window) // US_NS
    if not length:
        raise UsageError(f'"{window}" is too short; use 10s, 1m')
    return length


def seconds(window: str | None) -> Column | None:
    """The length of a window in seconds, None for none."""
    return None if window is None else F.lit(parse_duration(window) / 1e9)


def count_if(condition: str) -> Column:
    """How many rows are so."""
    return F.expr(f"count_if({condition})")


def total(expression: str) -> Column:
    """A sum, 0 where there is nothing to add."""
    return F.expr(f"coalesce(sum({expression}), 0)")


def quantiles(expression: str, unit: str) -> list[Column]:
    """Least, mean, quantiles and largest of a quantity.

    Quantiles are numbers that occur. They are exact for some thousands of numbers; beyond, their true rank is
    within 0.0001, which the sketches of ``kdissect summary`` do not reach (0.0068).
    """
    ranks = F.expr(f"percentile_approx({expression}, array(0.5D, 0.95D, 0.99D), 10000)")
    return [
        F.expr(f"min({expression})").alias(f"min_{unit}"),
        F.expr(f"round(avg({expression}), 1)").alias(f"mean_{unit}"),
        *(ranks[place].alias(f"{name}_{unit}") for place, name in enumerate(("p50", "p95", "p99"))),
        F.expr(f"max({expression})").alias(f"max_{unit}"),
    ]


def sketch(expression: str) -> Column:
    """A KLL sketch of doubles in DataSketches' form, as that of ``kdissect summary``: the two can be merged.

    Both have k = 400: a number's true rank is within 0.0068 of the one asked for, with 99 % probability. Null
    where there are no numbers: Spark refuses to ask an empty sketch.
    """
    aggregate = f"kll_sketch_agg_double(cast({expression} as double), 400)"
    return F.expr(f"if(count({expression}) = 0, null, {aggregate})")
