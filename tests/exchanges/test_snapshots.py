from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.exchanges.partition_records import Snapshots, decode_batches, partition_records
from kdissect.limits import Limits
from tests.exchange_factory import connection
from tests.record_batches import Item, batch
from tests.record_exchanges import fetch, snapshot

if TYPE_CHECKING:
    from kdissect.model import Exchange

RAW = b"".join(batch([Item(b"k", b"%d" % number)], base_offset=number) for number in range(4))


def values(snapshots: Snapshots, *exchanges: Exchange) -> list[bytes | str | None]:
    """What is in them: values, and the kinds of anomalies."""
    result: list[bytes | str | None] = []
    for exchange in exchanges:
        for each in partition_records(exchange):
            for opened in decode_batches(snapshots.join(each), show_secrets=True):
                result += [anomaly.kind for anomaly in opened.batch.anomalies]
                result += [record.record.value for record in opened]
    return result


def slices(*bounds: int) -> list[Exchange]:
    ends = (*bounds[1:], len(RAW))
    return [snapshot(RAW[begin:end], begin, len(RAW)) for begin, end in zip(bounds, ends, strict=True)]


@pytest.mark.parametrize("bounds", [(0,), (0, 1), (0, 70, 75, 140), (0, 71, 142), tuple(range(len(RAW)))])
def test_slices_begin_and_end_anywhere(bounds: tuple[int, ...]) -> None:
    snapshots = Snapshots()
    assert values(snapshots, *slices(*bounds)) == [b"0", b"1", b"2", b"3"]
    assert snapshots.unfinished == 0


def test_a_slice_without_the_one_before() -> None:
    first, _, third = slices(0, 80, 160)
    snapshots = Snapshots()
    assert values(snapshots, first) == [b"0"]
    assert snapshots.unfinished == 1
    assert values(snapshots, third) == ["unaligned_records"]
    assert values(Snapshots(), third) == ["unaligned_records"]


def test_each_connection_has_its_own() -> None:
    first, second = slices(0, 80)
    second.connection = connection("other")
    assert values(Snapshots(), first, second) == [b"0", "unaligned_records"]


def test_what_is_no_snapshot_stays_as_it_is() -> None:
    snapshots = Snapshots()
    assert values(snapshots, fetch(RAW[:100])) == [b"0"]
    assert snapshots.unfinished == 0


def test_no_more_is_held_than_the_bounds_allow() -> None:
    first, second = slices(0, 100)
    assert values(Snapshots(Limits(snapshot_bytes=20)), first, second) == [b"0", "unaligned_records"]
    snapshots = Snapshots(Limits(snapshots=2))
    for number in range(5):
        started = snapshot(RAW[:100], 0, len(RAW))
        started.connection = connection(f"c{number}")
        assert values(snapshots, started) == [b"0"]
    assert snapshots.unfinished == 2


def test_what_is_no_batch_is_not_waited_for() -> None:
    snapshots = Snapshots()
    assert values(snapshots, snapshot(b"\xff" * 100, 0, 1000)) == ["malformed_records"]
    assert snapshots.unfinished == 0
