from __future__ import annotations

from kdissect.stats.findings.producers import HotPartitions
from tests.findings import findings_of, metadata, produce

SIX = metadata(0, [(1, 0)] * 6)


def test_a_partition_that_gets_nearly_all() -> None:
    writes = [produce(number, partition=2 if number % 10 else number % 6) for number in range(200)]
    (row,) = findings_of(HotPartitions, [SIX, *writes])
    assert row.subject == "partition orders-2"
    assert row.message.endswith("bytes written to 6 partitions")


def test_partitions_that_nobody_writes_to_count_too() -> None:
    (row,) = findings_of(HotPartitions, [SIX, *(produce(number) for number in range(200))])
    assert row.message.startswith("100% of the ")


def test_even_or_few_batches_or_partitions() -> None:
    assert findings_of(HotPartitions, [SIX, *(produce(n, partition=n % 6) for n in range(200))]) == []
    assert findings_of(HotPartitions, [SIX, *(produce(n) for n in range(50))]) == []
    assert findings_of(HotPartitions, [metadata(0, [(1, 0)] * 2), *(produce(n) for n in range(200))]) == []


def test_what_was_refused_was_not_written() -> None:
    assert findings_of(HotPartitions, [SIX, *(produce(n, error=6) for n in range(200))]) == []
