"""``kdissect spark``: which commands run on Spark, or prepare for it."""

from __future__ import annotations

import click

from kdissect.cli.main import Commands

COMMANDS = {
    "decode": "Write typed tables of captures, decoded by all cores or a cluster.",
    "report": "Analyse tables: latency, throughput, errors, lag, rebalances and more.",
    "sql": "Ask tables a question in SQL.",
    "schema": "Print the columns of a table as Spark has them.",
    "doctor": "Look for what Spark lacks on this machine.",
    "package": "Write kdissect as a zip, for --py-files.",
}
EXAMPLES = """\b
Examples:
  kdissect spark decode captures/ -o tables                   on all cores of this machine
  kdissect spark report tables --job latency --by api,client
  kdissect spark sql tables "select api, count(*) from exchanges group by api"
  kdissect spark decode --master spark://host:7077 /share/captures -o /share/tables
  kdissect spark report --remote sc://host:15002 /share/tables --job all

Spark needs Java 17 or newer, and: pip install 'kdissect[spark]'. What it writes to its log is kept, and
named, when something fails. On a cluster every machine sees captures and tables under the same names.
"""


@click.group(cls=Commands, module=__name__, told=COMMANDS, epilog=EXAMPLES)
def spark() -> None:
    """Decode and analyse on Spark: on this machine, or on a cluster.

    Without options Spark runs embedded, on all cores, and ends with the command.
    """
