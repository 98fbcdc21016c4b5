from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.row_assertions import by_key, same

if TYPE_CHECKING:
    from collections.abc import Callable

CARRIED = tuple(
    f"{way}_{what}"
    for way in ("produced", "fetched")
    for what in ("records", "bytes", "batches", "records_per_second", "bytes_per_second")
)


def test_topics_as_the_summary_has_them(everything: Any, run_job: Callable[..., Any]) -> None:
    rows = by_key(run_job(everything, "throughput"), "topic")
    others = by_key(everything.summary["topics"], "topic")
    assert rows.keys() == others.keys()
    for key, other in others.items():
        same(rows[key], other, [*CARRIED, "replicated_bytes", "partitions"])
        assert rows[key]["errors"] == sum(other["errors"].values())
        counts = rows[key]["producers"], rows[key]["consumers"]
        assert tuple(min(20, count) for count in counts) == (len(other["producers"]), len(other["consumers"]))


def test_partitions_as_the_summary_has_them(lagging: Any, run_job: Callable[..., Any]) -> None:
    rows = by_key(run_job(lagging, "throughput", by=["topic", "partition"]), "topic", "partition")
    others = by_key(lagging.summary["partitions"], "topic", "partition")
    assert rows.keys() == others.keys()
    for key, other in others.items():
        same(rows[key], other, [*CARRIED, "replicated_bytes"])


def test_pieces_of_time_add_up(lagging: Any, run_job: Callable[..., Any]) -> None:
    rows = run_job(lagging, "throughput", by=["client"], window="1s")
    (topic,) = lagging.summary["topics"]
    for name in ("produced_records", "fetched_bytes"):
        assert sum(row[name] for row in rows) == topic[name]
    assert all(row["produced_bytes_per_second"] == row["produced_bytes"] for row in rows)
