from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.exchanges.learned import LearnedFacts
from kdissect.limits import Limits
from kdissect.model import Endpoint, Interface, Packet
from kdissect.spark.values import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Callable

INTERFACE = Interface("a\udcff.pcap", 0, 1)
VALUES: list[Any] = [
    [None, True, -1, 1 << 70, 1.5, "\ud800 \u2028", b"\0\xff", Path("/a b"), [], (), set(), {}],
    {("t", 0, 1 << 63): (1, 2), "tuple": ["tuple", ["list", []]], b"1": {1, 2}},
    Counter({"a": 1}),
    Packet(1, 2, INTERFACE, b"data", 4),
    {INTERFACE: [Endpoint("::1", 9092)]},
    Limits(packet_bytes=3),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_survive(value: Any) -> None:
    assert from_json(to_json(value)) == value
    assert type(from_json(to_json(value))) is type(value)


def test_learned_facts_can_still_be_merged() -> None:
    facts = LearnedFacts()
    facts.learn_topic("id", "orders", 5)
    facts.learn_batch(("orders", 0, 9), 1, 2)
    facts.listeners.add(Endpoint("10.0.0.1", 9092))
    merged = LearnedFacts()
    merged.merge(from_json(to_json(facts)))
    assert (merged.topics, merged.produced) == (facts.topics, facts.produced)
    assert list(merged.listeners) == [Endpoint("10.0.0.1", 9092)]


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Path("/")),
        json.dumps(["Popen", [["args", "true"]]]).encode(),
        json.dumps(["os.system", "true"]).encode(),
        b'["list"]',
        b"",
    ],
)
def test_what_was_not_written_by_a_task_is_an_error(data: bytes) -> None:
    with pytest.raises((KeyError, ValueError)):
        from_json(data)


def test_a_type_that_is_not_known_is_an_error() -> None:
    function: Callable[[], None] = test_a_type_that_is_not_known_is_an_error
    with pytest.raises(TypeError, match=r"builtins\.function is not in kdissect\.spark\.values"):
        to_json([function])
