from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from kdissect.spark.report import JOBS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from tests.spark.jobs.conftest import Exported


def documented(job: str) -> dict[str, tuple[str, str]]:
    """The columns in a job's docstring: type and description by name."""
    text = inspect.getdoc(getattr(import_module(f"kdissect.spark.jobs.{job}"), job)) or ""
    rows = re.findall(r"^ {4}(\S+) (\S+): (.*)$", text.partition("Returns:\n")[2], re.MULTILINE)
    return {name: (kind.rstrip(":"), description) for name, kind, description in rows}


@pytest.mark.parametrize("job", JOBS)
def test_columns_are_those_that_the_docstring_promises(
    lagging: Exported, frame_of: Callable[..., DataFrame], job: str
) -> None:
    module = import_module(f"kdissect.spark.jobs.{job}")
    frame = frame_of(lagging, job)
    columns = documented(job)
    keys = {*module.USUAL}
    for column, kind in frame.dtypes:
        if column not in keys:
            assert columns[column][0] == kind, column
    optional = {
        name
        for name, (_, description) in columns.items()
        if description.startswith(("with a window", "with ``sketches``"))
    }
    assert {name for name in columns if name != "..."} - optional == {
        column for column, _ in frame.dtypes
    } - keys - optional
