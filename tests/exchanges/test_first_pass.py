from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.capture.reader import open_capture
from kdissect.cli.main import main
from kdissect.exchanges.topic_names import topic_refs
from kdissect.limits import Limits
from kdissect.net.tcp import Shard
from kdissect.options import Options
from kdissect.pipeline import dissect, learned_from
from samples.golden import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = ROOT / "samples" / "kafka-4-basics.pcap"


def test_the_names_are_those_that_a_dissection_meets() -> None:
    expected: dict[str, tuple[str, int]] = {}
    with open_capture(SAMPLE) as capture:
        for exchange in dissect(capture):
            for topic_id, name in topic_refs(exchange).learned:
                expected.setdefault(topic_id, (name, exchange.completed_ns))
    assert expected
    facts = learned_from([str(SAMPLE)], Options())
    assert facts.topics == expected


def test_what_shards_learn_adds_up_in_any_order() -> None:
    complete = learned_from([str(SAMPLE)], Options())
    shards = [learned_from([str(SAMPLE)], Options(), Shard(number, 3)) for number in range(3)]
    for order in (shards, shards[::-1]):
        merged = learned_from([], Options())
        for each in order:
            merged.merge(each)
        assert merged.topics == complete.topics


def test_what_is_no_capture_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no capture")
    assert learned_from([str(tmp_path / "x")], Options()).topics == {}


def test_names_are_bounded() -> None:
    learned = learned_from([str(SAMPLE)], Options(Limits(topic_names=1)))
    assert len(learned.topics) == 1
    assert learned.dropped_names > 0


@pytest.mark.parametrize(
    "options", [("--names", "whole"), ("--names", "window"), ("--names", "whole", "-j", "2")]
)
def test_forgotten_names_are_reported(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "--limits", "topic_names=1", *options, str(SAMPLE)]) == 0
    assert "a topic's name was forgotten" in capsys.readouterr().err
