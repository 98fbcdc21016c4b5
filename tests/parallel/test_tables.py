"""Several processes export what one exports: files with the same bytes, manifests with the same words."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from samples.golden import ROOT, captures, name_of
from tests.shared import exported

if TYPE_CHECKING:
    from pathlib import Path

IS_DEEP = os.environ.get("KDISSECT_HYPOTHESIS") == "deep"
QUICK = ("kafka-4-basics", "midstream", "tansu-kafka-python")
SAMPLES = [ROOT / path for path in captures() if IS_DEEP or name_of(path) in QUICK]
EXPORTS = ("", "--records --partition-by date,api --compress zst", "--format parquet --records --api Produce")


@pytest.mark.parametrize("options", EXPORTS)
@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_the_same_is_exported(sample: Path, options: str, tmp_path: Path) -> None:
    made = []
    for jobs in (1, 3):
        folder = tmp_path / "tables"
        made.append(exported(folder, *options.split(), "-j", jobs, sample))
        folder.rename(tmp_path / f"by {jobs}")
    assert made[0] == made[1]
