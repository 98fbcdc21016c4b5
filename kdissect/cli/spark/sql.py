"""``kdissect spark sql``: a SQL query on tables -> its result as text, JSON lines or CSV."""

from __future__ import annotations

from typing import Any

import click

from kdissect.cli.help import command
from kdissect.cli.spark import target_options
from kdissect.cli.spark.report import USUAL_ENGINE, addresses, check_engine, usual_engine
from kdissect.cli.spark.target_options import DUCKDB, SPARK
from kdissect.cli.sql import result_options, show
from kdissect.cli.terminal import output
from kdissect.spark.session import SparkTarget
from kdissect.spark.tables import is_spark, views
from kdissect.tables import duck

EXAMPLES = """\b
Examples:
  kdissect spark sql tables "select api, count(*) n, max(latency_us) from exchanges group by api"
  kdissect spark sql tables "select topic, sum(records) from partitions group by all order by 2 desc"
  kdissect spark sql --json tables "select * from groups where event = 'join'" | jq .
  kdissect spark sql tables "show tables"
  kdissect spark sql --engine spark tables "select parse_json(response):cluster_id from exchanges"
  kdissect spark sql --engine duckdb tables "select response->>'cluster_id' from exchanges"
"""


@command(epilog=EXAMPLES)
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@click.argument("statement", metavar="STATEMENT")
@click.option(
    "--engine",
    type=click.Choice([SPARK, DUCKDB]),
    help="Engine and SQL dialect; DuckDB starts sooner, and needs neither Spark nor Java. Name it in "
    f"scripts: the dialects differ. {USUAL_ENGINE}",
)
@result_options
@target_options.spark_options
def sql(
    directories: tuple[str, ...],
    statement: str,
    form: str | None,
    max_rows: int | None,
    engine: str | None,
    color: str,
    **options: Any,
) -> None:
    """Query tables with SQL.

    DIR is a directory written by kdissect export or kdissect spark decode; each of its tables can be queried
    by name. With several, or a pattern such as 'days/*', a table has the rows of all. Columns:
    docs/columns.md, or kdissect spark schema TABLE.
    """
    spark_target, log = target_options.take(options)
    where = addresses(directories, spark_target)
    needs_spark = spark_target != SparkTarget() or log is not None
    engine = engine or (SPARK if needs_spark else usual_engine(where))
    check_engine(engine, where)
    with output() as out, target_options.engine(engine, spark_target, log) as session:
        views(session, where)
        frame = session.sql(statement) if is_spark(session) else duck.sql(session, statement)
        show(out, frame, form, max_rows, color)
