"""Jobs have the same rows on Spark and on DuckDB, from Parquet and from JSON lines."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.spark.report import FOLDS, JOBS, report, sql
from kdissect.spark.tables import rows, views
from kdissect.tables import duck
from tests.depth import IS_DEEP
from tests.row_assertions import as_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.jobs.conftest import Exported

BY = {"latency": ["topic", "client"], "waits": ["topic"], "errors": ["topic", "broker"], "throttle": ["api"]}


def on_duckdb(database: Any, exported: Exported, job: str, **options: Any) -> list[dict[str, Any]]:
    ((_, frame),) = report(database, str(exported.directory), [job], **options)
    return as_json(frame)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("captures", ["everything", "lagging"])
def test_rows_are_the_same(
    captures: str, job: str, database: Any, run_job: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    exported = request.getfixturevalue(captures)
    assert on_duckdb(database, exported, job) == run_job(exported, job)


@pytest.mark.parametrize("job", [job for job in JOBS if job != "versions" and (IS_DEEP or job != "lag")])
def test_rows_of_time_windows_are_the_same(
    job: str, database: Any, everything: Exported, run_job: Callable[..., Any]
) -> None:
    options = {"window": "10s", "by": BY.get(job, [])}
    assert on_duckdb(database, everything, job, **options) == run_job(everything, job, **options)


def test_lags_in_time_windows_are_the_same(
    database: Any, lagging: Exported, run_job: Callable[..., Any]
) -> None:
    """Of all samples only in long runs: Spark takes ten seconds to plan it."""
    assert on_duckdb(database, lagging, "lag", window="1s") == run_job(lagging, "lag", window="1s")


@pytest.mark.parametrize("job", JOBS)
def test_types_are_the_same(job: str, database: Any, lagging: Exported, frame_of: Callable[..., Any]) -> None:
    ((_, frame),) = report(database, str(lagging.directory), [job])
    assert frame_of(lagging, job).dtypes == frame.dtypes


@pytest.mark.parametrize("job", [job for job in JOBS if job not in FOLDS])
def test_the_sql_that_is_shown_is_what_runs(job: str, database: Any, lagging: Exported) -> None:
    views(database, str(lagging.directory))
    text = sql([job], None, [], sketches=False)
    ((_, frame),) = report(database, str(lagging.directory), [job])
    assert list(rows(duck.sql(database, text))) == list(rows(frame))


def test_the_sql_that_is_shown_runs_on_spark(
    spark: Any, lagging: Exported, run_job: Callable[..., Any]
) -> None:
    views(spark, str(lagging.directory))
    for job in ("errors", "throughput"):
        text = sql([job], None, [], sketches=False).rstrip().rstrip(";")
        assert as_json(spark.sql(text)) == run_job(lagging, job)


def test_what_is_no_sql_is_named() -> None:
    assert sql(["lag", "rebalances"], None, [], sketches=False) == (
        "-- lag\n-- not SQL: the functions of kdissect summary --lag\n\n"
        "-- rebalances\n-- not SQL: the functions of kdissect summary --groups\n"
    )


def test_jobs_name_the_tables_that_their_sql_reads() -> None:
    for job in JOBS:
        if job not in FOLDS:
            module = import_module(f"kdissect.spark.jobs.{job}")
            text = getattr(module, job)(*module.TABLES)
            assert all(table in text for table in module.TABLES)
