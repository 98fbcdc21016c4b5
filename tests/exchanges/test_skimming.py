"""What the first pass skips has no names: it learns as much as from all exchanges, whatever was lost."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.capture.reader import open_capture
from kdissect.exchanges.end_to_end import learn_produced
from kdissect.exchanges.learned import LearnedFacts
from kdissect.exchanges.skimming import SkimmedConnection
from kdissect.exchanges.topic_names import learn
from kdissect.options import Options
from kdissect.pipeline import Dissection
from samples.golden import ROOT, captures, name_of
from tests.captures import pcap
from tests.core import without_core
from tests.damage import DAMAGES
from tests.depth import IS_DEEP
from tests.lifetimes import lifetimes
from tests.rings import packets_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kdissect.model import Packet

OPENED = "connections: Kafka", "connections: not recognized"
SAMPLES = [ROOT / path for path in captures()]
DAMAGED = SAMPLES if IS_DEEP else [path for path in SAMPLES if name_of(path) == "kafka-4-latecomer"]


def skimmed(packets: Sequence[Packet]) -> dict[Any, Any]:
    facts, produced = LearnedFacts(), LearnedFacts()
    Dissection(packets).learn(facts)
    Dissection(packets, Options(end_to_end=True)).learn(produced)
    assert produced.topics == facts.topics
    assert not facts.produced
    return {**facts.topics, **produced.gathered_batches()}


def from_all_exchanges(packets: Sequence[Packet]) -> dict[Any, Any]:
    facts = LearnedFacts()
    for step in Dissection(packets).steps():
        for exchange in step.exchanges:
            learn(exchange, facts)
            learn_produced(exchange, facts)
    return {**facts.topics, **facts.gathered_batches()}


@pytest.mark.parametrize("path", SAMPLES, ids=name_of)
def test_it_learns_the_names_of_all_exchanges(path: Path) -> None:
    packets = packets_of(path)
    assert skimmed(packets) == from_all_exchanges(packets)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("path", DAMAGED, ids=name_of)
def test_it_does_so_with_packets_lost(path: Path, damage: str) -> None:
    packets = packets_of(path)
    for seed in range(20 if IS_DEEP else 1):
        left = DAMAGES[damage](packets, Random(seed)).packets
        assert skimmed(left) == from_all_exchanges(left)


@without_core()  # which passes on only the first to each broker
def test_it_has_the_connections_of_all_exchanges(tmp_path: Path) -> None:
    path = tmp_path / "lifetimes.pcap"
    for seed in range(200 if IS_DEEP else 10):
        random = Random(seed)
        path.write_bytes(pcap(lifetimes(random, 300, random.choice((0, 0.02, 0.1, 0.3)))))
        packets = packets_of(path)
        everything, first_pass = Dissection(packets), Dissection(packets)
        for _ in everything:
            pass
        first_pass.learn(LearnedFacts())
        opened = [{name: each.counts[name] for name in OPENED} for each in (first_pass, everything)]
        assert opened[0] == opened[1], seed


def test_it_skips_nearly_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_capture(ROOT / "samples/kafka-4-latecomer.pcap.gz") as capture:
        exchanges = sum(1 for _ in Dissection(capture))
    completed = []
    finish = SkimmedConnection._finish

    def counted(self: SkimmedConnection, done: list[object]) -> object:
        completed.extend(done)
        return finish(self, done)

    monkeypatch.setattr(SkimmedConnection, "_finish", counted)
    with open_capture(ROOT / "samples/kafka-4-latecomer.pcap.gz") as capture:
        Dissection(capture).learn(LearnedFacts())
    assert len(completed) < 0.2 * exchanges
