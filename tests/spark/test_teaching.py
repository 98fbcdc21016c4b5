from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.naming import teachings
from kdissect.capture.reader import open_capture
from kdissect.pipeline import dissect
from kdissect.spark.options import parse
from kdissect.spark.teaching import taught_by
from samples.golden import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = ROOT / "samples" / "kafka-4-basics.pcap"


def test_the_names_are_those_that_a_dissection_meets() -> None:
    expected: dict[str, tuple[str, int]] = {}
    with open_capture(SAMPLE) as capture:
        for exchange in dissect(capture):
            for topic_id, name in teachings(exchange):
                expected.setdefault(topic_id, (name, exchange.completed_ns))
    assert expected
    assert taught_by([str(SAMPLE)], parse({})) == expected


def test_what_is_no_capture_teaches_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no capture")
    assert taught_by([str(tmp_path / "x")], parse({})) == {}


def test_names_are_bounded() -> None:
    assert len(taught_by([str(SAMPLE)], parse({"limits": "topic_names=1"}))) == 1
