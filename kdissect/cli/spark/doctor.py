"""``kdissect spark doctor``: this machine -> what Spark needs, whether it is there, and what to do if not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.options import colour_option
from kdissect.cli.spark import target_options
from kdissect.cli.terminal import output, use_colour, width
from kdissect.phrases import json_writer
from kdissect.spark.session import needs, trial
from kdissect.tables.values import json_document
from kdissect.text import page
from kdissect.text.page import PageSection, View, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.spark.session import Need

MISSING = 1  # exit status

EXAMPLES = """\b
Examples:
  kdissect spark doctor
  kdissect spark doctor --start
  kdissect spark doctor --start --master spark://host:7077
  kdissect spark doctor --remote sc://host:15002
"""


@click.command(epilog=EXAMPLES)
@click.option("--start", is_flag=True, help="Also start Spark, and report the versions of its workers.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@colour_option
@target_options.spark_options
def doctor(start: bool, as_json: bool, colour: str, **options: Any) -> None:
    """Check this machine for what Spark needs.

    Java, Python packages, a writable folder, ports; with --master or --remote also whether a server is
    listening there. Exit status: 1 if something is missing.
    """
    spark_target, log = target_options.take(options)
    needed = list(needs(spark_target))
    is_fit = all(need.remedy is None for need in needed)
    if start and is_fit:
        needed += trial(spark_target, log)
    with output() as out:
        if as_json:
            json_writer(out)(json_document([need._asdict() for need in needed]))
        else:
            page.write(out, [_section(needed)], width=width(out), colour=use_colour(out, colour))
    if any(need.remedy is not None for need in needed):
        raise click.exceptions.Exit(MISSING)


def _section(checked: Sequence[Need]) -> PageSection:
    views = (
        View("NEED", lambda need: need.name),
        View("FOUND", lambda need: need.found, gives=True, width=20),
        View("WHAT TO DO", lambda need: need.remedy or "", gives=True, width=20),
    )
    return table("", views, checked)
