from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.capture.reader import open_capture
from kdissect.pipeline import dissect
from kdissect.tables.columns import RECORD
from kdissect.tables.lines import OPTIONAL, PER_RECORD, JsonLines, RecordLines
from samples.golden import captures, name_of
from tests.record_batches import CODECS, COMMIT_KEY, CONTROL, LOG_APPEND, Item, batch
from tests.record_exchanges import batches_of, fetch, long_batch, produce

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kdissect.exchanges.partition_records import DecodedBatch
    from kdissect.model import Exchange

payloads = st.none() | st.binary(max_size=9) | st.text(max_size=9).map(str.encode)
items = st.builds(
    Item,
    offset=st.none(),
    key=payloads,
    value=payloads,
    headers=st.just(()) | st.just(((b"trace-id", b"4bf9"),)),
    timestamp_ms=st.sampled_from([-1, 0, 1_700_000_000_000, 1_700_000_000_001]),
)


def by_column(batches: Iterable[DecodedBatch]) -> bytes:
    out: list[bytes] = []
    lines = JsonLines(out.append, columns=RECORD)
    for records in batches:
        for record in records:
            lines.feed(record)
    lines.close()
    return b"".join(out)


def by_batch(batches: Iterable[DecodedBatch]) -> bytes:
    out: list[bytes] = []
    lines = RecordLines(out.append)
    for records in batches:
        lines.feed_batch(records)
    lines.close()
    return b"".join(out)


def same(*exchanges: Exchange) -> bytes:
    """The lines; they are the same as those written column by column."""
    batches = batches_of(*exchanges)
    lines = by_batch(batches)
    assert lines == by_column(batches)
    assert lines.count(b"\n") == sum(map(len, batches))
    return lines


@given(st.lists(items, max_size=9), st.sampled_from([0, LOG_APPEND]), st.sampled_from([*CODECS.values()]))
def test_any_records(records: list[Item], flags: int, codec: int) -> None:
    raw = batch(records, codec=codec, flags=flags)
    response = {"base_offset": 41, "log_append_time_ms": 1_700_000_000_002}
    same(
        fetch(raw), produce(raw), produce(raw, {}), produce(raw, response), fetch(raw + raw, topic="payments")
    )


def test_marks_and_internal_topics() -> None:
    plain = Item(b"k", b"v")
    mark = batch([Item(COMMIT_KEY, b"\0\0\0\0\0\7")] * 4, flags=CONTROL)
    internal = batch([plain] * 5)
    lines = same(fetch(mark), fetch(internal, topic="__consumer_offsets"), fetch(internal, topic="\x00"))
    assert lines.count(b'"control_type":"COMMIT"') == 4


def test_the_columns_of_a_batch_can_contain_anything() -> None:
    """Characters that other kinds of templates treat specially."""
    lines = same(fetch(batch([Item(b"%b{}", b'%d"\\\n')] * 5), topic='%b{0}"\\'))
    assert lines.count(b'"key":"%b{}"') == 5


def test_per_record_columns_are_in_order_and_optional_ones_follow() -> None:
    assert [column.name for column in RECORD if column.name in (*PER_RECORD, *OPTIONAL)] == [
        *PER_RECORD,
        *OPTIONAL,
    ]


@pytest.mark.parametrize("unusual", [(), (0,), (63, 64), (149,), range(150)])
def test_batches_that_are_written_in_several_pieces(unusual: Iterable[int]) -> None:
    raw = long_batch(unusual)
    same(fetch(raw), produce(raw))


def test_lines_longer_than_the_buffer_are_written_in_order() -> None:
    short, long = batch([Item(b"k", b"v")] * 5), batch([Item(b"k", bytes(3000))] * 50)
    same(fetch(short + long + short + long))


@pytest.mark.parametrize("path", captures(), ids=name_of)
def test_samples(path: Path) -> None:
    with open_capture(str(path)) as capture:
        batches = batches_of(*dissect(capture))
    assert by_batch(batches) == by_column(batches)


def test_a_record_costs_the_same_however_many_there_are() -> None:
    """Counted in calls, for records that are written column by column."""

    def calls(count: int) -> int:
        (records,) = batches_of(fetch(batch([Item(b"k", b"v", ((b"h", b"x"),))] * count)))
        lines, count = RecordLines(lambda _: None), 0

        def note(*_: object) -> None:
            nonlocal count
            count += 1

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            lines.feed_batch(records)
        finally:
            sys.setprofile(before)
        return count

    calls(10)
    assert calls(400) < 2.1 * calls(200)
