from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kdissect.stats.findings.rule import Bursts, Evidence, Minutes
from tests.findings import metadata


def test_the_first_five_are_kept_in_order_of_time() -> None:
    evidence = Evidence()
    for second in (9, 3, 7, 1, 8, 2, 6):
        evidence.add(metadata(second))
    assert evidence.examples == [f"asker-Metadata/{second}000" for second in (1, 2, 3, 6, 7)]
    assert evidence.count == 7
    assert evidence.last_ns - evidence.first_ns == 8 * 10**9


def test_the_busiest_piece_of_time() -> None:
    evidence, minutes = Bursts(), Minutes()
    for second in (0, 100, 101, 102, 140):
        evidence.add(metadata(second))
        minutes.add(metadata(second))
    assert (evidence.busiest, minutes.busiest) == (3, 4)
    assert Bursts().busiest == 0


def test_of_many_pieces_the_busy_ones_stay() -> None:
    evidence = Bursts()
    for _ in range(5):
        evidence.add(metadata(7))
    for number in range(1000):
        evidence.add(metadata(20 + number * 10))
    assert evidence.busiest == 5
    assert evidence.count == 1005


@given(st.lists(st.lists(st.integers(0, 500), max_size=20), min_size=1, max_size=4))
def test_merged_parts_equal_one_run(parts: list[list[int]]) -> None:
    everything, merged = Bursts(), Bursts()
    for part in parts:
        evidence = Bursts()
        for second in part:
            evidence.add(metadata(second))
            everything.add(metadata(second))
        merged.merge(evidence)
    for name in ("count", "first_ns", "last_ns", "examples", "busiest"):
        assert getattr(merged, name) == getattr(everything, name)
