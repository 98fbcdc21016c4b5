"""``kdissect spark schema``: a table -> its schema in each of Spark's notations, without Spark or Java."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdissect.cli.help import command
from kdissect.cli.terminal import output
from kdissect.nearest import did_you_mean
from kdissect.tables import spark_schema
from kdissect.tables.rows import TABLES

if TYPE_CHECKING:
    from kdissect.tables.form import Table

EXAMPLES = f"""\b
Examples:
  kdissect spark schema exchanges                 DDL, for spark.read.schema and .schema of the data source
  kdissect spark schema --pyspark records > records_schema.py
  kdissect spark schema --sql --location /share/tables exchanges | spark-sql

Tables: {", ".join(TABLES)}.
"""


def _to_table(text: str) -> Table:
    """A table by name.

    Raises:
        click.BadParameter: there is no such table.
    """
    if text not in TABLES:
        hint = did_you_mean(text, TABLES) or f"; known: {', '.join(TABLES)}"
        raise click.BadParameter(f'unknown table "{text}"{hint}')
    return TABLES[text]


@command(epilog=EXAMPLES)
@click.argument("table", metavar="TABLE", type=_to_table)
@click.option(
    "--ddl", "notation", flag_value="ddl", default=True, help="DDL, for spark.read.schema. [default]"
)
@click.option("--json", "notation", flag_value="json", help="JSON, for StructType.fromJson.")
@click.option(
    "--sql", "notation", flag_value="sql", help="CREATE TABLE statement for a table of Parquet files."
)
@click.option("--pyspark", "notation", flag_value="pyspark", help="Python code of a StructType.")
@click.option(
    "--location",
    type=click.Path(path_type=Path),
    default="tables",
    show_default=True,
    metavar="DIR",
    help="With --sql: directory of the tables.",
)
def schema(table: Table, notation: str, location: Path) -> None:
    """Print the Spark schema of a table, as used by the data source and in Parquet files.

    JSON lines have the same schema, except that keys and values of records are text. Each export includes its
    own schema, in _kdissect.
    """
    columns = table.binary_columns
    with output() as out:
        if notation == "json":
            text = json.dumps(spark_schema.struct_type(columns), indent=2)
        elif notation == "sql":
            directory = location.absolute() / table.name
            text = spark_schema.create_table(table, columns, directory, (), "PARQUET").rstrip()
        elif notation == "pyspark":
            text = spark_schema.python(columns)
        else:
            text = spark_schema.ddl(columns)
        out.write(f"{text}\n")
