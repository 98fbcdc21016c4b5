"""``kdissect spark package``: the installed kdissect -> a zip from which Spark workers import it."""

from __future__ import annotations

from pathlib import Path

import click

from kdissect.cli.help import command
from kdissect.cli.terminal import warn
from kdissect.phrases import many, size
from kdissect.spark.package import write

EXAMPLES = """\b
Examples:
  kdissect spark package -o kdissect.zip

kdissect spark decode and report send it to the workers automatically, and so does register() in your own
jobs. You need the zip only if kdissect is not installed where you submit the job:

\b
  spark-submit --py-files kdissect.zip job.py

\b
  kdissect.spark.register(spark)
  spark.read.format("kdissect").load("/share/captures")

The packages kdissect depends on are not included, because they are compiled: install kdissect with its extra
spark on every machine, or in an environment shipped with --archives.
"""


@command(epilog=EXAMPLES)
@click.option(
    "-o",
    "--output",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Path of the zip; an existing file is replaced.",
)
def package(path: Path) -> None:
    """Package kdissect as a zip for --py-files.

    The zip is reproducible: one release always gives the same bytes. Python imports from it directly,
    without unpacking.
    """
    if path.suffix != ".zip":
        raise click.UsageError(f"{path}: the name must end in .zip, or Python cannot import from it")
    count = write(path)
    warn(f"{many(count, 'file')}, {size(path.stat().st_size)}, written to {path}; --help shows how to use it")
