"""What exchanges do to partitions -> who is behind in which: clients by what they fetch, groups by what they
commit.

The end of a partition is what answers to Fetch, latest ListOffsets and accepted Produce requests tell. An
incremental Fetch (KIP-227) says only what changed: a client's position and what it knows of the end hold on
its connection until it is told otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from kdissect.spark.jobs import keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

TABLES = ("partitions",)
BY: Mapping[str, str] = {}
USUAL: Sequence[str] = ()

_READER = ["kind", "name", "topic", "partition"]
_PLACE = ["topic", "partition"]
_ENDS = ("high_watermark", "last_stable_offset", "log_start_offset")
_COMMITS = "api in ('OffsetCommit', 'TxnOffsetCommit', 'OffsetFetch')"


def lag(partitions: DataFrame, *, window: str | None = None) -> DataFrame:
    """Who is behind, and how far; those furthest behind first.

    Lags and offsets are those of ``kdissect summary --lag``, to the microsecond, with two differences. The
    summary compares samples of what a group commits and of the end, at most 64 of each: its ``lag_first``,
    ``lag_worst`` and ``worst`` of groups are near these, which are of all. And of a client it counts those
    answers too that only leave a partition in the fetch session: ``last``, ``count`` and ``seconds`` are of
    those here that say something about it.

    Args:
        partitions: the table.
        window: a row for each piece of time in which something is known.

    Returns:
        start timestamp: with a window, where it begins
        kind string: ``client`` or ``group``
        name string: client id, or group id
        topic string: name or id of the topic
        partition int: its partition
        position bigint: of a client, the offset behind the last record it got
        committed_offset bigint: of a group, the last offset committed, or told by OffsetFetch
        high_watermark bigint: end of what consumers may read, as the wire last told it
        last_stable_offset bigint: end of what read_committed consumers may read
        log_start_offset bigint: first offset that is still there
        lag bigint: records between that position or offset and the high watermark, at the end
        lag_first bigint: the same when it was first known
        lag_worst bigint: the same when it was largest
        worst timestamp: when that was
        seconds double: age of the newest record it got, when records were left; 0 when none were
        seconds_worst double: the oldest that it was
        first timestamp: first time that it fetched or committed
        last timestamp: last time
        count bigint: answers to Fetch that tell a lag; of a group, commits and answers to OffsetFetch
    """
    answered = partitions.withColumns(
        {
            "topic": F.expr(keys.OF_PARTITION["topic"]),
            "answered": F.expr("timestamp_micros(unix_micros(time) + coalesce(latency_us, 0))"),
        }
    )
    positions = _positions(answered)
    ends = _ends(answered, positions)
    series = _clients(positions).unionByName(_groups(answered, ends))
    pieces = [] if window is None else ["start"]
    if window is not None:
        series = series.withColumn("start", keys.start("time", window))
        ends = ends.withColumn("start", keys.start("time", window))
    readers = series.groupBy(*pieces, *_READER).agg(
        *(_latest(name) for name in ("position", "committed_offset", "lag")),
        _latest("lag", "min", "lag_first"),
        F.max("lag").alias("lag_worst"),
        F.expr("max(struct(lag, -unix_micros(time) as before)).before").alias("before"),
        _latest("seconds"),
        F.max("seconds").alias("seconds_worst"),
        F.expr("min(if(counts > 0, time, null))").alias("first"),
        F.expr("max(if(counts > 0, time, null))").alias("last"),
        F.sum("counts").alias("count"),
    )
    known = ends.groupBy(*pieces, *_PLACE).agg(*(_latest(name) for name in _ENDS))
    worst = F.expr("if(lag_worst is null, null, timestamp_micros(-before))").alias("worst")
    rows = readers.join(known, [*pieces, *_PLACE], "left").select(
        *(*pieces, *_READER, "position", "committed_offset", *_ENDS, "lag", "lag_first", "lag_worst"),
        worst,
        *("seconds", "seconds_worst", "first", "last", "count"),
    )
    order = (F.expr(f"-coalesce({name}, 0)") for name in ("lag", "lag_worst"))
    return rows.orderBy(*pieces, *order, *_READER)


def _latest(name: str, which: str = "max", alias: str | None = None) -> Column:
    """The last value that is known, or the first one; of two at one time the larger, or the smaller."""
    known = f"struct(time, {name} as value)) filter (where {name} is not null)"
    return F.expr(f"({which}({known}).value").alias(alias or name)


def _at_least_0(number: str) -> str:
    """Null where it is null, which ``greatest`` is not."""
    return f"if({number} < 0, 0, {number})"


def _positions(answered: DataFrame) -> DataFrame:
    """Where each reader of a connection stands behind each answer, and what it knows of the end."""
    so_far = Window.partitionBy("connection", *_PLACE).orderBy("number")

    def last_known(expression: str) -> Column:
        return F.last(F.expr(expression), ignorenulls=True).over(so_far)

    return (
        answered.where("api = 'Fetch'")
        .withColumns(
            {
                "position": last_known("coalesce(last_offset + 1, fetch_offset)"),
                **{name: last_known(f"if({name} >= 0, {name}, null)") for name in _ENDS},
            }
        )
        .where("error_code = 0")  # null: nothing was said about the partition
        .withColumn("time", F.col("answered"))
    )


def _ends(answered: DataFrame, positions: DataFrame) -> DataFrame:
    """What was told about the ends of partitions, and when."""
    produced = "if(api = 'Produce' and base_offset >= 0, base_offset + records, null)"
    listed = "if(api = 'ListOffsets' and asked_timestamp_ms = -1 and offset >= 0, offset, null)"
    others = answered.where("error_code = 0").select(
        F.col("answered").alias("time"),
        *_PLACE,
        F.expr(f"coalesce({produced}, {listed})").alias("high_watermark"),
        *(F.expr("cast(null as bigint)").alias(name) for name in _ENDS[1:]),
    )
    fetched = positions.select("time", *_PLACE, *_ENDS)
    return fetched.unionByName(others.where("high_watermark is not null"))


def _clients(positions: DataFrame) -> DataFrame:
    """The lag of each consumer at each answer that tells one."""
    age = f"round({_at_least_0('unix_micros(time) - unix_micros(max_timestamp)')} / 1e6, 3)"
    return (
        positions.where("replica_id is null and high_watermark is not null and position is not null")
        .withColumn("lag", F.expr(_at_least_0("high_watermark - position")))
        .select(
            F.lit("client").alias("kind"),
            F.expr(keys.CLIENT).alias("name"),
            *_PLACE,
            "time",
            "position",
            F.expr("cast(null as bigint)").alias("committed_offset"),
            "lag",
            F.expr(f"if(lag = 0, 0D, {age})").alias("seconds"),
            F.expr("1L").alias("counts"),
        )
    )


def _groups(answered: DataFrame, ends: DataFrame) -> DataFrame:
    """The lag of each group whenever it commits or the end of a partition moves."""
    commits = (
        answered.where(f"{_COMMITS} and coalesce(error_code, 0) = 0 and group_id is not null")
        .select(
            F.col("group_id").alias("name"),
            *_PLACE,
            F.col("answered").alias("time"),
            F.expr("coalesce(committed_offset, offset)").alias("committed_offset"),
            F.expr("cast(null as bigint)").alias("high_watermark"),
            F.expr("1L").alias("counts"),
        )
        .where("committed_offset >= 0")
    )
    moved = (
        ends.where("high_watermark is not null")
        .select(*_PLACE, "time", "high_watermark")
        .join(commits.select("name", *_PLACE).distinct(), _PLACE)
        .withColumns({"committed_offset": F.expr("cast(null as bigint)"), "counts": F.expr("0L")})
    )
    so_far = Window.partitionBy("name", *_PLACE).orderBy("time")
    return (
        commits.unionByName(moved)
        .groupBy("name", *_PLACE, "time")
        .agg(
            F.max("committed_offset").alias("committed_offset"),
            F.max("high_watermark").alias("high_watermark"),
            F.sum("counts").alias("counts"),
        )
        .withColumns(
            {
                name: F.last(name, ignorenulls=True).over(so_far)
                for name in ("committed_offset", "high_watermark")
            }
        )
        .where("committed_offset is not null")
        .select(
            F.lit("group").alias("kind"),
            "name",
            *_PLACE,
            "time",
            F.expr("cast(null as bigint)").alias("position"),
            "committed_offset",
            F.expr(_at_least_0("high_watermark - committed_offset")).alias("lag"),
            F.expr("cast(null as double)").alias("seconds"),
            "counts",
        )
    )
