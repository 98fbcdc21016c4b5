from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.net.tcp import Shard, cores, reversed_ends, shard_of

if TYPE_CHECKING:
    import pytest


def test_every_connection_is_in_one_shard_in_both_directions() -> None:
    shares = [Shard(number, 3) for number in range(3)]
    taken = [0, 0, 0]
    for port in range(40_000, 40_300):
        for addresses in (bytes([10, 0, 0, 5, 10, 0, 0, 1]), bytes(range(32))):
            ends = addresses + port.to_bytes(2, "big") + (9092).to_bytes(2, "big")
            owners = [shard.number for shard in shares if shard.owns(ends)]
            assert owners == [shard.number for shard in shares if shard.owns(reversed_ends(ends))]
            assert owners == [shard_of(ends, 3)]
            taken[owners[0]] += 1
    assert min(taken) > 150


def test_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert cores() == 3
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert cores() == 1
