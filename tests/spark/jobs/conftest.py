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
from tests.exports import export_packets
from tests.row_assertions import as_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

Row = dict[str, Any]

SAMPLES = {name_of(path): path for path in captures()}
FIELD = Path(__file__).resolve().parents[2] / "field"


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
    paths = [SAMPLES.get(name, FIELD / f"{name}.pcap") for name in samples]
    with open_capture(*paths) as packets:
        export_packets(packets, directory, [form], packets, options)
    with open_capture(*paths) as packets:
        document = summarize(
            Dissection(packets, options), by=("partition", "group", "connection"), parts=PARTS, interval_s=10
        )
    return Exported(directory / form, orjson.loads(json_document(document)))


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """All samples as one capture, in JSON lines: so many exchanges that percentiles come from sketches."""
    return export_samples(tmp_path_factory.mktemp("everything"), list(SAMPLES), "none")


@pytest.fixture(scope="session")
def lagging(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A consumer that falls behind, in Parquet: so few exchanges that percentiles are exact."""
    return export_samples(tmp_path_factory.mktemp("lagging"), ["kafka-4-lag"], "parquet")


@pytest.fixture(scope="session")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A consumer that fetches the same records again and again."""
    return export_samples(tmp_path_factory.mktemp("stuck"), ["compacted-tail-stuck"], "parquet")


@pytest.fixture(scope="session")
def database() -> Iterator[Any]:
    """DuckDB, where it is installed."""
    if (reason := duck.why_not()) is not None:
        pytest.skip(reason)
    with duck.connection() as database:
        yield database


@pytest.fixture(scope="session")
def run_job(spark: SparkSession) -> Callable[..., list[Row]]:
    """Run a job on a directory; results are cached."""
    known: dict[str, list[Row]] = {}

    def run(exported: Exported, job: str, **options: Any) -> list[Row]:
        key = f"{exported.directory} {job} {options}"
        if key not in known:
            ((name, frame),) = report(spark, str(exported.directory), [job], **options)
            assert name == job
            known[key] = as_json(frame)
        return known[key]

    return run
