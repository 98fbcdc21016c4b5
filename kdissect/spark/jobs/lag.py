"""Partitions -> the lag of readers: of clients by what they fetch, of groups by what they commit.

The high watermark of a partition comes from responses to Fetch, ListOffsets (latest) and accepted Produce
requests. An incremental Fetch (KIP-227) contains only changes: a client's position, and the high watermark
that it knows, remain valid on its connection until a response changes them.
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
    """The lag of clients and groups; the largest first.

    Lags and offsets are those of ``kdissect summary --lag``, to the microsecond, with two differences. The
    summary compares samples of a group's commits and of the high watermark, at most 64 of each: its
    ``lag_first``, ``lag_worst`` and ``worst`` of groups are close to these, which use all. And for a client
    it also counts responses that leave a partition of the fetch session out: here ``last``, ``count`` and
    ``seconds`` cover only responses that contain the partition.

    Args:
        partitions: the table.
        window: duration of a time window; windows without any data have no row.

    Returns:
        start timestamp: with a window, where it begins
        kind string: ``client`` or ``group``
        name string: client ID, or group ID
        topic string: name or ID of the topic
        partition int: partition of the topic
        position bigint: of a client, the offset after the last record it fetched
        committed_offset bigint: of a group, the last offset committed, or in a response to OffsetFetch
        high_watermark bigint: last known high watermark
        last_stable_offset bigint: last known last stable offset
        log_start_offset bigint: last known log start offset
        lag bigint: records between position or committed offset and the high watermark, at the end
        lag_first bigint: the first lag that is known
        lag_worst bigint: the largest lag
        worst timestamp: time of the largest lag
        seconds double: age of the newest record it fetched, if there were more to read; otherwise 0
        seconds_worst double: the largest such age
        first timestamp: time of the first fetch or commit
        last timestamp: time of the last fetch or commit
        count bigint: responses to Fetch with a known lag; of a group, commits and responses to OffsetFetch
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
    """The last known value, or with ``min`` the first; of several at one time the largest or the smallest."""
    known = f"struct(time, {name} as value)) filter (where {name} is not null)"
    return F.expr(f"({which}({known}).value").alias(alias or name)


def _at_least_0(number: str) -> str:
    """Null stays null, unlike with ``greatest``."""
    return f"if({number} < 0, 0, {number})"


def _positions(answered: DataFrame) -> DataFrame:
    """Position and known offsets of each reader of a connection, after each response."""
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
        .where("error_code = 0")  # null: the response does not contain the partition
        .withColumn("time", F.col("answered"))
    )


def _ends(answered: DataFrame, positions: DataFrame) -> DataFrame:
    """High watermarks and other offsets of partitions, with the time of each response."""
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
    """The lag of each consumer after each response that determines it."""
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
    """The lag of each group at each commit and each change of the high watermark."""
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
