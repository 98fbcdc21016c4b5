"""``by`` and ``window`` -> the SQL of a job; columns to group by are named as in ``kdissect summary``.

It uses what Spark and DuckDB have in common, and a few functions of Spark that ``duck.MACROS`` defines for
DuckDB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from kdissect.errors import UsageError
from kdissect.nearest import did_you_mean
from kdissect.query.filters import parse_duration
from kdissect.stats.quantiles import BITS, EXACT
from kdissect.tables import duck

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_Frame = TypeVar("_Frame")

US_NS = 1000

CLIENT = "coalesce(nullif(client_id, ''), client_ip)"
"""A client without client ID is shown by its address."""
EXAMPLE = "min_by(connection || '/' || number, (time_ns, connection, number))"
"""Exchange ID of the first, as for ``read --exchange``."""
OF_CONNECTION = {
    "cluster": "cluster_id",
    "client": CLIENT,
    "broker": "case when broker_ip like '%:%' then '[' || broker_ip || ']' else broker_ip end "
    "|| ':' || broker_port",
    "connection": "connection",
    "capture": "capture",
    "software": "nullif(rtrim(client_software_name || ' ' || coalesce(client_software_version, '')), '')",
    "principal": "principal",
}
OF_EXCHANGE = {
    "api": "coalesce(api, 'api ' || api_key, "
    "case when kind = 'orphan' and correlation_id is not null then 'unknown' else 'SASL token' end)",
    **OF_CONNECTION,
    "topic": "topic",
    "group": "group_id",
}
OF_PARTITION = {
    "cluster": "nullif(cluster, '')",
    "topic": "coalesce(topic, topic_id)",
    "partition": "partition",
    "api": "api",
    "client": CLIENT,
    "group": "group_id",
    "connection": "connection",
}


def cluster(table: str) -> str:
    """The cluster of a row, never null: if it is not known, the one that this table names, if it names only
    one; otherwise empty.
    """
    one = f"select case when min(cluster_id) = max(cluster_id) then min(cluster_id) end from {table}"
    return f"coalesce(cluster_id, ({one}), '')"


def query(text: str, **tables: _Frame) -> _Frame:
    """Run SQL on tables: data frames of Spark, or of DuckDB (``duck.DuckFrame``). If they are only names,
    return the SQL.
    """
    first: Any = next(iter(tables.values()))
    result: Any = text
    if isinstance(first, duck.DuckFrame):
        result = duck.query(text, tables)
    elif not isinstance(first, str):
        named = ", ".join(f"{name} as (select * from {{{name}}})" for name in tables)
        result = first.sparkSession.sql(f"with {named} (\n{text})", **tables)
    return cast("_Frame", result)


def aggregate(
    source: str,
    by: Sequence[str],
    window: str | None,
    known: Mapping[str, str],
    values: Mapping[str, str],
    end: str = "",
) -> str:
    """The SQL that groups rows.

    Args:
        source: a table, or what else may follow ``from``; its rows have a column ``time``.
        by: names from ``known``.
        window: duration of a time window, which becomes the column ``start``; None: no window.
        known: names and their expressions.
        values: the other columns of the result: names and their expressions.
        end: what follows ``group by``.

    Raises:
        UsageError: unknown name or invalid duration.
    """
    for name in by:
        if name not in known:
            raise UsageError(
                f'cannot group by "{name}"{did_you_mean(name, known)}; known: {", ".join(known)}'
            )
    keys = {} if window is None else {"start": start("time", window)}
    columns = {**keys, **{name: known[name] for name in by}, **values}
    listed = ",\n  ".join(text if text == name else f"{text} as {name}" for name, text in columns.items())
    return f"select\n  {listed}\nfrom {source}\ngroup by all\n{end}"


def exchanges(by: Sequence[str], where: str = "true") -> str:
    """The table ``exchanges`` as a source, with a row for each topic if rows are grouped by topic."""
    each = ", explode_outer(topics) as topic" if "topic" in by else ""
    return (
        f"(select *{each} from exchanges where {where}) as each_exchange"
        if each or where != "true"
        else "exchanges"
    )


def most_first(by: Sequence[str], window: str | None, amount: str, *then: str) -> str:
    """Order rows by time window if there is one, then the largest first, then by ``then`` or ``by``."""
    return f"order by {', '.join([*(['start'] if window else []), f'{amount} desc', *(then or by)])}\n"


def start(time: str, window: str) -> str:
    """The start of the time window that a time belongs to.

    Raises:
        UsageError: the duration is invalid, or shorter than a microsecond.
    """
    return f"timestamp_micros(unix_micros({time}) - pmod(unix_micros({time}), {length_us(window)}))"


def length_us(window: str) -> int:
    """The duration of a window in microseconds.

    Raises:
        UsageError: the duration is invalid, or shorter than a microsecond.
    """
    length = parse_duration(window) // US_NS
    if not length:
        raise UsageError(f'"{window}" is too short; use 10s, 1m')
    return length


def count_if(condition: str) -> str:
    """The number of rows that meet a condition."""
    return f"count(*) filter (where {condition})"


def total(expression: str) -> str:
    """A sum; 0 without values."""
    return f"cast(coalesce(sum({expression}), 0) as bigint)"


def quantiles(expression: str, unit: str) -> dict[str, str]:
    """Minimum, mean, quantiles and maximum of a quantity, which are those of ``stats/quantiles.py``.

    Quantiles of a few numbers are exact. For those of many, both engines count each middle of a bucket, and
    hold a few thousand counts at most. A negative number counts as 0.
    """
    expression = _not_negative(expression)
    low, high = f"min({expression})", f"max({expression})"
    values = {f"min_{unit}": low, f"mean_{unit}": f"round(avg({expression}), 1)"}
    for name, rank in {"p50": 0.5, "p95": 0.95, "p99": 0.99}.items():
        few = f"percentile_approx({expression}, {rank}, {_EXACT_ACCURACY})"
        many = f"cast(percentile_disc({rank}) within group (order by {_middle(expression)}) as bigint)"
        values[f"{name}_{unit}"] = (
            f"case when count({expression}) <= {EXACT} then {few} "
            f"else least(greatest({many}, {low}), {high}) end"
        )
    return {**values, f"max_{unit}": high}


_EXACT_ACCURACY = 10_000  # of Spark's percentile_approx, with which it keeps that many numbers at least


def _not_negative(expression: str) -> str:
    """A number; 0 if it is negative. Null stays null, which ``greatest`` would ignore."""
    return f"({expression}) - least({expression}, 0)"


def _middle(expression: str) -> str:
    """The middle of the bucket of a number: ``quantiles.middle_of`` its ``bucket_of``."""
    scale = f"greatest(length(bin({expression})) - {1 + BITS}, 0)"
    first = f"shiftleft(shiftright({expression}, {scale}), {scale})"
    return f"{first} + shiftright(shiftleft(cast(1 as bigint), {scale}), 1)"


def with_buckets(
    text: str, expression: str, source: str, by: Sequence[str], window: str | None, known: Mapping[str, str]
) -> str:
    """The SQL of ``aggregate``, with a column ``buckets``: of a quantity in the same rows, the middles and
    counts of those that are not empty; null if all are.
    """
    expression = _not_negative(expression)
    where = f"(select * from {source} where {expression} is not null) as measured"
    counted = aggregate(where, by, window, known, {"middle": _middle(expression), "count": "count(*)"})
    keys = [*(["start"] if window else []), *by]
    listed = ", ".join([*keys, "sort_array(collect_list(struct(middle, count))) as buckets"])
    same = " and ".join(f"counts.{key} is not distinct from sketches.{key}" for key in keys) or "true"
    return (
        f"select counts.*, sketches.buckets from (\n{text}) as counts\n"
        f"left join (select {listed} from (\n{counted}) as each_bucket group by all) as sketches\n"
        f"on {same}\n"
    )
