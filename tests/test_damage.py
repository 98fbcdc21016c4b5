"""Captures as they really are: whatever was lost, cut or shuffled, no exchange is told that did not happen,
and of those whose bytes are all there nearly all are told."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from kdissect import dissect, open_capture
from samples.golden import captures, name_of
from tests.damage import DAMAGES, Truth, request_of, resegmented, response_of, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from kdissect.model import Endpoint, Packet
    from tests.damage import Rows

# Those that begin with the first byte of each connection, so that every frame's packets can be told.
SAMPLES = [
    path for path in captures() if not any(word in name_of(path) for word in ("midstream", "http", "tls"))
]
QUICK = ("quickstart", "mock-acks0", "tansu-sasl", "raw-requests")
SEEDS = 20 if os.environ.get("KDISSECT_HYPOTHESIS") == "deep" else 1
LEAST_FOUND = 0.98
HARMLESS = ("shuffled", "shuffled far", "duplicated")


def packets_of(path: Path, mss: int | None) -> list[Packet]:
    with open_capture(path) as capture:
        packets = list(capture)
    return resegmented(packets, mss) if mss else packets


def check(path: Path, mss: int | None, damages: list[str], seeds: int) -> dict[str, tuple[int, int]]:
    """For each damage: how many exchanges have all their bytes in what is left, and how many were found."""
    packets = packets_of(path, mss)
    truth = Truth(packets)
    out = {}
    for name in damages:
        there = found = 0
        for seed in range(seeds):
            damaged = DAMAGES[name](packets, Random(f"{path.name} {name} {seed}"))
            exchanges = list(dissect(damaged.packets))
            assert truth.phantoms(exchanges) == [], (name, seed)
            if name == "duplicated":
                order = [one.completed_ns for one in exchanges]
                assert order == sorted(order), (name, seed)
            same = truth.unharmed(damaged.hurt)
            assert rows(rows_of(exchanges), same, name) == rows(truth.rows, same, name), (name, seed)
            whole = truth.whole(damaged.hurt)
            there += whole.total()
            found += (whole & type(whole)((request_of(one), response_of(one)) for one in exchanges)).total()
        out[name] = there, found
    return out


def rows(told: Rows, connections: set[frozenset[Endpoint]], damage: str) -> list[dict[str, object]]:
    """What was told of some connections."""
    left_out = {"capture"}
    if damage not in HARMLESS:
        left_out.add("topics")  # whose names may have been taught in what was lost
    elif "shuffled" in damage:
        left_out |= {"packet", "time", "latency_us"}  # of a retransmission, where that now comes first
    kept = [
        {key: value for key, value in row.items() if key not in left_out}
        for ends, row in told
        if ends in connections
    ]
    return sorted(kept, key=lambda row: (row["connection"], row["number"]))


def report(counted: list[dict[str, tuple[int, int]]]) -> None:
    for name in DAMAGES:
        there = sum(count[name][0] for count in counted if name in count)
        found = sum(count[name][1] for count in counted if name in count)
        if there:
            print(f"{name}: {found} of {there} whole exchanges, {found / there:.2%}")  # noqa: T201
            assert found >= (there if name in HARMLESS else LEAST_FOUND * there), name


def test_nothing_is_invented_and_nearly_nothing_missed() -> None:
    report([check(path, 300, list(DAMAGES), 1) for path in SAMPLES if name_of(path) in QUICK])


@pytest.mark.deep
@pytest.mark.parametrize("mss", [None, 1448, 300, 40])
def test_nothing_is_invented_and_nearly_nothing_missed_in_any_sample(mss: int | None) -> None:
    report([check(path, mss, list(DAMAGES), SEEDS) for path in SAMPLES])
