"""``kdissect spark``: the commands that run on Spark, or prepare for it."""

from __future__ import annotations

import click

from kdissect.cli.main import Commands

COMMANDS = {
    "decode": "Decode captures into typed tables, on this machine or a cluster.",
    "summary": "Summarize captures, without tables.",
    "report": "Analyze tables: latency, throughput, errors, lag, rebalances and more.",
    "sql": "Query tables with SQL.",
    "schema": "Print the schema of a table for Spark.",
    "doctor": "Check the requirements for Spark on this machine.",
    "package": "Package kdissect as a zip for --py-files.",
}
EXAMPLES = """\b
Examples:
  kdissect spark decode captures/ -o tables                   on all cores of this machine
  kdissect spark summary captures/                            what is in them, without tables
  kdissect spark report tables --report latency --by api,client
  kdissect spark sql tables "select api, count(*) from exchanges group by api"
  kdissect spark decode --master spark://host:7077 /share/pcaps -o /share/out
  kdissect spark report --remote sc://host:15002 /share/tables --report all

Spark needs Java 17 or newer, and the extra spark (docs/first-steps.md). On failure, its log is kept and the
path is shown. On a cluster, captures and tables must be at the same paths on all machines, or in an object
store.
"""


@click.group(cls=Commands, module=__name__, summaries=COMMANDS, epilog=EXAMPLES)
def spark() -> None:
    """Decode and analyze with Spark, on this machine or a cluster.

    By default, Spark runs in local mode on all cores and stops when the command ends.
    """
