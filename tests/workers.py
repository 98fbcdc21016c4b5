"""Files of tests -> units, each of which one process runs whole where ``-n`` shares the tests among several.

A file is a unit: what its module keeps is made once. Files that cannot run beside each other are one: those
with Spark, which has one session in a process, and those that listen to an interface or talk on one, because
they count what passes there.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

SPARK = "spark"
LONG = (
    SPARK,
    "live",
    "tests/ways/test_matrix.py",
    "tests/test_oversized.py",
    "tests/test_lending.py",
    "tests/test_conditions.py",
    "tests/test_growth.py",
    "tests/capture/test_stores.py",
    "tests/tables/test_export.py",
    "tests/cli/test_hash_seeds.py",
    "tests/cli/test_same_documents.py",
)
"""Units that take long, also those of few tests: one that is begun last would run alone."""
ROOT = Path(__file__).resolve().parent.parent
TALKS = re.compile(r"^from tests\.(cli\.living|loopback|terminal) import", re.MULTILINE)


@cache
def unit(file: str) -> str:
    """The unit of a file of tests, which is named as in a test's id."""
    if "/spark/" in file:
        return SPARK
    return "live" if TALKS.search((ROOT / file).read_text(encoding="utf-8")) else file


class Units(LoadScopeScheduling):
    """Gives each process a unit after the other; first those that take longest, then that of most tests."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid.partition("::")[0])

    def _assign_work_unit(self, node: WorkerController) -> None:
        if first := next(filter(self.workqueue.__contains__, LONG), None):
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)
