"""The facts that the first pass learns from a capture, to be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.exchanges.learned import LearnedFacts
from kdissect.limits import DEFAULT, Limits
from kdissect.net.tcp import Shard
from kdissect.options import WHOLE, Options
from kdissect.pipeline import learned_from
from kdissect.tls import keylog

if TYPE_CHECKING:
    from pathlib import Path


def facts_of(
    path: Path,
    *,
    end_to_end: bool = False,
    shards: int = 1,
    limits: Limits = DEFAULT,
    key_logs: tuple[str, ...] = (),
) -> dict[str, list[Any]]:
    """The facts of a capture, those of several shards sorted, all others as they were learned."""
    keylog._read.cache_clear()  # it has what was learned before
    options = Options(limits, names=WHOLE, end_to_end=end_to_end, key_logs=key_logs)
    if shards == 1:
        merged = learned_from([str(path)], options)
    else:
        merged = LearnedFacts(limits, WHOLE)
        for number in range(shards):
            merged.merge(learned_from([str(path)], options, Shard(number, shards)))
    assert (merged.produced is not None) == end_to_end
    in_order = list if shards == 1 else sorted
    return {
        "topics": in_order(merged.topics.items()),
        "produced": in_order((merged.produced or {}).items()),
        "dropped_batches": [merged.dropped_batches],
        "listeners": sorted(merged.listeners),
        "tls_sessions": in_order(merged.tls_sessions.items()),
    }
