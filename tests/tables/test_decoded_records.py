from __future__ import annotations

from io import StringIO
from random import Random

import pytest

from kdissect.limits import Limits
from kdissect.tables.lines import JsonLines
from kdissect.tables.record_bodies import Opener, with_records
from kdissect.text.style import Times
from kdissect.text.table import RecordTable
from kdissect.text.tree import ExchangeTree, RecordTree
from tests.attack.mutation import mutated
from tests.record_batches import Item, batch, entries
from tests.record_exchanges import fetch, opened, produce

RAW = batch([Item(), Item()])


def test_each_message_has_its_own() -> None:
    produced = Opener().of(produce(RAW), produced=True)
    (end,) = produced.partitions
    assert end == 2 + len(RAW)
    assert Opener().of(produce(RAW), produced=False).partitions == {}
    assert len(Opener().of(fetch(RAW), produced=False).partitions) == 1


def test_batches_are_decoded_within_the_limits() -> None:
    shown = Opener(limits=Limits(batch_items=1)).of(fetch(RAW), produced=False)
    (example,) = shown.partitions.values()
    (records,) = shown.open(example)
    assert len(records) == len(list(records)) == 1
    assert [anomaly.kind for anomaly in records.batch.anomalies] == ["oversized_records"]


@pytest.mark.parametrize("seed", range(300))
def test_whatever_the_bytes_are_every_sink_shows_something(seed: int) -> None:
    random = Random(seed)
    items = [Item(b"key", b"value" * 9, ((b"b3", b"0"),)), Item(None, None)]
    raw = b"".join(entries(random.choice((0, 1, 2)), items, codec=random.choice((0, 2, 3))) for _ in range(3))
    example = fetch(mutated(raw, random, 0), topic=random.choice(("orders", "__consumer_offsets", "")))
    out = StringIO()
    ExchangeTree(out, Times(), opener=Opener(), full=True).feed(example)
    JsonLines(lambda data: out.write(data.decode()), columns=with_records(Opener())).feed(example)
    for record in opened(example):
        RecordTable(out, Times(), width=80).feed(record)
        RecordTree(out, Times()).feed(record)
    assert "records" in out.getvalue()
