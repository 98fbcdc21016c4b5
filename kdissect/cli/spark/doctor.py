"""``kdissect spark doctor``: this machine -> the requirements of Spark, whether they are met, and advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.help import command
from kdissect.cli.options import color_option
from kdissect.cli.spark import target_options
from kdissect.cli.terminal import output, style_of, width
from kdissect.phrases import json_writer
from kdissect.spark.session import check_requirements, probe_workers
from kdissect.tables.values import json_document
from kdissect.text import page
from kdissect.text.page import PageSection, View, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.spark.requirements import Requirement

MISSING = 1  # exit status

EXAMPLES = """\b
Examples:
  kdissect spark doctor
  kdissect spark doctor --start
  kdissect spark doctor --start --master spark://host:7077
  kdissect spark doctor --remote sc://host:15002
"""


@command(epilog=EXAMPLES)
@click.option("--start", is_flag=True, help="Also start Spark, and report the versions of its workers.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@color_option
@target_options.spark_options
def doctor(start: bool, as_json: bool, color: str, **options: Any) -> None:
    """Check the requirements for Spark on this machine.

    Checks Java, Python packages, ports, and whether a directory is writable; with --master or --remote, also
    whether a server is listening there. Exits with status 1 if something is missing.
    """
    spark_target, log = target_options.take(options)
    requirements = list(check_requirements(spark_target))
    is_fit = all(requirement.remedy is None for requirement in requirements)
    if start and is_fit:
        requirements += probe_workers(spark_target, log)
    with output() as out:
        if as_json:
            json_writer(out)(json_document([requirement._asdict() for requirement in requirements]))
        else:
            page.write(out, [_section(requirements)], width=width(out), style=style_of(out, color))
    if any(requirement.remedy is not None for requirement in requirements):
        raise click.exceptions.Exit(MISSING)


def _section(requirements: Sequence[Requirement]) -> PageSection:
    views = (
        View("REQUIREMENT", lambda requirement: requirement.name, keep=True),
        View("FOUND", lambda requirement: requirement.found, shrinks=True, width=20, keep=True),
        View("FIX", lambda requirement: requirement.remedy or "", shrinks=True, width=20, keep=True),
    )
    return table("", views, requirements)
