from __future__ import annotations

import io
from typing import TYPE_CHECKING

from kdissect.text.table import RecordTally
from tests.record_batches import COMMIT_KEY, CONTROL, Item, batch
from tests.record_exchanges import fetch, opened, produce

if TYPE_CHECKING:
    from kdissect.model import Exchange


def line(*exchanges: Exchange) -> str:
    out = io.StringIO()
    tally = RecordTally(out)
    for exchange in exchanges:
        for record in opened(exchange):
            tally.feed(record)
    assert out.getvalue() == ""
    tally.close()
    return out.getvalue()


def test_counts() -> None:
    mark = batch([Item(COMMIT_KEY, b"\0\0\0\0\0\7")], flags=CONTROL, crc=1)
    hidden = {"aborted_transactions": [{"producer_id": 9, "first_offset": 0}]}
    aborted = fetch(batch([Item()], producer_id=9, flags=0x10), topic="payments", partition=hidden)
    assert line(produce(batch([Item(b"k", b"v" * 999)])), fetch(mark), aborted) == (
        "3 records, 1 produced, 2 fetched, 1 control, 1 aborted, 1 in batches with anomalies, "
        "1.0 KB of keys and values, 2 topics\n"
    )


def test_rejected_records() -> None:
    rejected = produce(batch([Item()]), {"error_code": 6, "base_offset": -1})
    assert line(rejected).startswith("1 record, 1 produced, 1 rejected, ")


def test_nothing() -> None:
    assert line() == "0 records, 0 B of keys and values, 0 topics\n"
