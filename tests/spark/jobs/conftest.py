"""Exports as input of the jobs, and the ``kdissect summary`` of the same captures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import pytest

from kdissect import open_capture, summarize
from kdissect.options import WINDOW, Options
from kdissect.pipeline import Dissection
from kdissect.spark.report import report
from kdissect.stats.summarizer import PARTS
from kdissect.tables import duck
from kdissect.tables.values import json_document
from samples.golden import captures, name_of
from tests.depth import IS_DEEP
from tests.exports import export_packets
from tests.row_assertions import as_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]

FIELD = Path(__file__).resolve().parents[2] / "field"
SAMPLES = {name_of(path): path for path in (*captures(), FIELD / "compacted-tail-stuck.pcap")}
"""One of them has a consumer that fetches the same records again and again."""


class Exported(NamedTuple):
    """An export, and the summary of the same captures as its JSON has it, by table.

    Attributes:
        directory: of the export.
        summary: the document.
    """

    directory: Path
    summary: dict[str, Any]


def export_samples(directory: Path, samples: Sequence[str], form: str) -> Exported:
    """Export some samples, and summarize them. They count as those of one cluster."""
    options = Options(end_to_end=True, names=WINDOW, cluster="samples")
    paths = [SAMPLES[name] for name in samples]
    with open_capture(*paths) as packets:
        export_packets(packets, directory, [form], packets, options)
    with open_capture(*paths) as packets:
        document = summarize(
            Dissection(packets, options), by=("partition", "group", "connection"), parts=PARTS, interval_s=10
        )
    return Exported(directory / form, orjson.loads(json_document(document)))


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """All samples as one capture: so many exchanges that percentiles come from sketches. In long runs in JSON
    lines, which Spark takes longer to read.
    """
    form = "none" if IS_DEEP else "parquet"
    return export_samples(tmp_path_factory.mktemp("everything"), list(SAMPLES), form)


@pytest.fixture(scope="session")
def lagging(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A consumer that falls behind, in the other format: so few exchanges that percentiles are exact."""
    form = "parquet" if IS_DEEP else "none"
    return export_samples(tmp_path_factory.mktemp("lagging"), ["kafka-4-lag"], form)


@pytest.fixture(scope="session")
def database() -> Iterator[Any]:
    """DuckDB, where it is installed."""
    if (reason := duck.why_not()) is not None:
        pytest.skip(reason)
    with duck.connection() as database:
        yield database


@pytest.fixture(scope="session")
def frame_of(spark: SparkSession) -> Callable[..., DataFrame]:
    """A job on a directory, analyzed once."""
    known: dict[str, DataFrame] = {}

    def frame(exported: Exported, job: str, **options: Any) -> DataFrame:
        key = f"{exported.directory} {job} {sorted(options.items())}"
        if key not in known:
            ((name, known[key]),) = report(spark, str(exported.directory), [job], **options)
            assert name == job
        return known[key]

    return frame


@pytest.fixture(scope="session")
def run_job(frame_of: Callable[..., DataFrame]) -> Callable[..., list[Row]]:
    """The rows of a job on a directory, computed once."""
    known: dict[int, list[Row]] = {}

    def run(*job: Any, **options: Any) -> list[Row]:
        frame = frame_of(*job, **options)
        if id(frame) not in known:
            known[id(frame)] = as_json(frame)
        return known[id(frame)]

    return run
