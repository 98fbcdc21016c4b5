"""``kdissect spark package``: the zip that workers import kdissect from."""

from __future__ import annotations

from pathlib import Path

import click

from kdissect.cli.terminal import warn
from kdissect.phrases import many, size
from kdissect.spark.session import write

EXAMPLES = """\b
Examples:
  kdissect spark package -o kdissect.zip

kdissect spark decode and report give it to the workers of a cluster by themselves. In a job of your own:

  spark-submit --py-files kdissect.zip job.py
  spark.sparkContext.addPyFile("kdissect.zip")                       in a notebook
  spark.addArtifacts("kdissect.zip", pyfile=True)                    with Spark Connect

  from kdissect.spark.datasource import KdissectSource
  spark.dataSource.register(KdissectSource)
  spark.read.format("kdissect").load("/share/captures")

What kdissect needs is not in it, because it is compiled: on every machine, or in an environment that
--archives brings, pip install 'kdissect[spark]'.
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "-o",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The zip; one of that name is replaced.",
)
def package(path: Path) -> None:
    """Write kdissect as a zip, for --py-files.

    The same release makes the same bytes. Python reads everything from it as it is, not unpacked.
    """
    if path.suffix != ".zip":
        raise click.UsageError(f"{path}: Python imports from a file only that is called .zip")
    count = write(path)
    warn(f"{many(count, 'file')}, {size(path.stat().st_size)}, written to {path}; --help shows how to use it")
