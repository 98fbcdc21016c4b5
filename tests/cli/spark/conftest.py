"""The session of tests/spark for commands that run in this process, and tables to run them on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.cli.main import main
from tests.cli.commands import talk, write
from tests.spark.conftest import (
    pytest_collection_modifyitems,
    pytest_make_collect_report,
    pytest_runtest_makereport,
    spark,
    spark_log,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "pytest_collection_modifyitems",
    "pytest_make_collect_report",
    "pytest_runtest_makereport",
    "spark",
    "spark_log",
]


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of one conversation."""
    directory = tmp_path_factory.mktemp("spark")
    capture = write(directory / "talk.pcap", talk())
    assert main(["export", capture, "-o", str(directory / "tables")]) == 0
    return directory / "tables"
