from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.analysis.carried import carried, open_carried
from kdissect.capture.reader import open_capture
from kdissect.pipeline import dissect
from kdissect.sinks.jsonlines import JsonLines
from kdissect.sinks.recordcolumns import RECORD
from kdissect.sinks.recordlines import OWN, RecordLines
from samples.golden import captures, name_of
from tests.carried_records import fetch, opened, produce
from tests.record_batches import CODECS, COMMIT_KEY, CONTROL, LOG_APPEND, Item, batch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kdissect.analysis.carried import CarriedRecord
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


def written(sink: type[JsonLines], records: Iterable[CarriedRecord]) -> bytes:
    out: list[bytes] = []
    lines = RecordLines(out.append) if sink is RecordLines else JsonLines(out.append, columns=RECORD)
    for record in records:
        lines.feed(record)
    lines.close()
    return b"".join(out)


def same(*exchanges: Exchange) -> bytes:
    """What is written; it is what would be, column by column."""
    records = [record for exchange in exchanges for record in opened(exchange)]
    lines = written(RecordLines, records)
    assert lines == written(JsonLines, records)
    assert lines.count(b"\n") == len(records)
    return lines


@given(st.lists(items, max_size=5), st.sampled_from([0, LOG_APPEND]), st.sampled_from([*CODECS.values()]))
def test_any_records(records: list[Item], flags: int, codec: int) -> None:
    raw = batch(records, codec=codec, flags=flags)
    told = {"base_offset": 41, "log_append_time_ms": 1_700_000_000_002}
    same(fetch(raw), produce(raw), produce(raw, {}), produce(raw, told), fetch(raw + raw, topic="payments"))


def test_marks_and_internal_topics() -> None:
    plain = Item(b"k", b"v")
    mark = batch([Item(COMMIT_KEY, b"\0\0\0\0\0\7")] * 2, flags=CONTROL)
    internal = batch([plain, plain, plain])
    lines = same(fetch(mark), fetch(internal, topic="__consumer_offsets"), fetch(internal, topic="\x00"))
    assert lines.count(b'"control_type":"COMMIT"') == 2


def test_what_the_columns_of_a_batch_say_can_hold_anything() -> None:
    """Signs that templates of other kinds would take for their own."""
    lines = same(fetch(batch([Item(b"%b{}", b'%d"\\\n')] * 3), topic='%b{0}"\\'))
    assert lines.count(b'"key":"%b{}"') == 3


def test_own_columns_stand_in_their_order() -> None:
    assert [column.name for column in RECORD if column.name in OWN] == list(OWN)


@pytest.mark.parametrize("path", captures(), ids=name_of)
def test_samples(path: Path) -> None:
    with open_capture(str(path)) as capture:
        records = [
            record
            for exchange in dissect(capture)
            for each in carried(exchange)
            for _, found in open_carried(each)
            for record in found
        ]
    assert written(RecordLines, records) == written(JsonLines, records)
