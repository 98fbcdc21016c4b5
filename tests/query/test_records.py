from __future__ import annotations

from kdissect.exchanges.partition_records import CarriedRecord, DecodedBatch
from kdissect.limits import Limits
from kdissect.query.record_filters import RecordCriteria, RecordFilter
from kdissect.query.records import Records
from tests.record_batches import COMMIT_KEY, CONTROL, GZIP, Item, batch
from tests.record_exchanges import fetch, produce, snapshot

BAD = batch([Item()], codec=GZIP, compress=lambda _: b"no gzip", base_offset=5)


def records_matching(**criteria: object) -> Records:
    return Records(RecordFilter(RecordCriteria(**criteria)))  # type: ignore[arg-type]


def test_records_in_the_order_of_their_exchanges() -> None:
    records = records_matching()
    raw = batch([Item(value=b"1"), Item(value=b"2")])
    values = [record.value for record in records.of([produce(raw), fetch(batch([Item(value=b"3")]))])]
    assert values == [b"1", b"2", b"3"]
    assert (records.exchanges, records.anomalies.total(), records.unreadable) == (2, 0, [])


def test_only_matching_records() -> None:
    records = records_matching(fetched=True, keys=["b"])
    raw = batch([Item(b"a"), Item(b"b")])
    assert [record.key for record in records.of([produce(raw), fetch(raw)])] == [b"b"]
    assert records.exchanges == 2


def test_batches_where_all_records_match_and_are_plain() -> None:
    one, three = batch([Item()]), batch([Item(b"a"), Item(b"b"), Item(b"a")])
    mark = batch([Item(COMMIT_KEY, b"\0\0\0\0\0\7")] * 2, flags=CONTROL)
    exchanges = [fetch(one + three + mark), fetch(three, topic="__consumer_offsets")]

    def kinds(records: Records) -> list[type]:
        return [type(each) for each in records.records_or_batches(exchanges)]

    assert kinds(records_matching()) == [CarriedRecord, DecodedBatch, *[CarriedRecord] * 5]
    assert kinds(records_matching(topics=["orders"])) == [CarriedRecord, DecodedBatch, *[CarriedRecord] * 2]
    assert kinds(records_matching(keys=["a"])) == [CarriedRecord] * 4


def test_a_batch_without_a_readable_record_is_reported() -> None:
    records = records_matching()
    assert len(list(records.of([fetch(BAD + batch([Item()], base_offset=6))]))) == 1
    assert records.anomalies == {"damaged_compression": 1}
    (text,) = records.unreadable
    assert text.startswith("orders-3 in c0ffee/1: damaged_compression (batch at byte 0: ")


def test_a_batch_with_records_is_counted_only() -> None:
    records = records_matching()
    assert len(list(records.of([fetch(batch([Item()], crc=1), topic="")]))) == 1
    assert (dict(records.anomalies), records.unreadable) == ({"crc_mismatch": 1}, [])


def test_not_more_is_kept_than_the_bound_allows() -> None:
    records = Records(RecordFilter(RecordCriteria()), Limits(notices=2))
    list(records.of([fetch(BAD * 5, topic="")]))
    assert (records.anomalies["damaged_compression"], len(records.unreadable), records.unread) == (5, 2, 5)


def test_snapshots_are_joined() -> None:
    raw = batch([Item()]) + batch([Item()])
    records = records_matching()
    first, second = snapshot(raw[:90], 0, len(raw)), snapshot(raw[90:], 90, len(raw))
    assert len(list(records.of([first]))) == records.unfinished_snapshots == 1
    assert len(list(records.of([second]))) == 1
    assert records.unfinished_snapshots == 0
    list(records.of([second]))
    assert records.unreadable[0].startswith("__cluster_metadata-0 in c0ffee/1: unaligned_records (")
