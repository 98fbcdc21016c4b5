"""Shared by all tests with Spark: one session, or the reason why there is none.

A test that takes the fixture ``spark`` is marked ``spark``. Without pyspark the modules that import it are
skipped as a whole.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kdissect.errors import SparkError
from kdissect.spark.requirements import require
from kdissect.spark.session import SparkTarget, check_requirements, session
from tests.depth import IS_DEEP

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""For short-lived processes: to optimize code, or to check the classes of Spark, takes long."""
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For few rows: compiling queries takes longer than running them. Long runs have Spark's defaults."""
PLACE = SparkTarget(
    master="local[2]",
    conf={
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        **({} if IS_DEEP else INTERPRETED),
    },
)


def why_not() -> str | None:
    """Why Spark cannot run on this machine."""
    try:
        require(check_requirements(PLACE))
    except SparkError as error:
        return str(error)
    return None


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Java and the workers write: one file, although tests/cli/spark has this fixture too."""
    return tmp_path_factory.getbasetemp() / "spark.log"


@pytest.fixture(scope="session")
def spark(spark_log: Path) -> Iterator[SparkSession]:
    """A session in this process, also used by commands that run in it."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with session(PLACE, spark_log) as running:
        yield running


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


def _is_lacking(error: BaseException | None) -> bool:
    """Whether an error means that pyspark is not installed; in CI that is a failure."""
    return isinstance(error, ModuleNotFoundError) and error.name == "pyspark" and not os.environ.get("CI")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    error = getattr(getattr(report, "call", None), "excinfo", None)
    cause = error.value.__cause__ if error is not None else None  # of pytest's own error
    if report.failed and _is_lacking(cause):
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {why_not()}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None and _is_lacking(call.excinfo.value):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {why_not()}")
    return report
