from __future__ import annotations

from kdissect import dissect, open_capture, summarize
from kdissect.exchanges.fetch_sessions import Position
from kdissect.stats.findings.consumers import OutOfRange
from tests.findings import fetch, findings_of

OFFSET_OUT_OF_RANGE = 1


def test_a_consumer_that_was_too_slow() -> None:
    (row,) = findings_of(OutOfRange, [fetch(1), fetch(2, error=OFFSET_OUT_OF_RANGE), fetch(3)])
    assert (row.subject, row.count) == ("client reader, topic orders", 1)
    assert row.message == "requested an out-of-range offset once"


def test_consumers_that_keep_up_other_errors_and_followers() -> None:
    facts = [fetch(1), fetch(2, error=6), fetch(3, error=OFFSET_OUT_OF_RANGE, replica_id=1)]
    assert findings_of(OutOfRange, facts) == []


def test_where_it_goes_on() -> None:
    skips, back = fetch(2), fetch(4)
    at = Position("orders", 0, 35, 35, None, 60, None, None, 0)
    skips.positions, back.positions = [at._replace(skipped=30)], [at._replace(skipped=-3)]
    facts = [fetch(1, error=OFFSET_OUT_OF_RANGE), skips, fetch(3, error=OFFSET_OUT_OF_RANGE), back]
    (row,) = findings_of(OutOfRange, facts)
    assert row.message == "requested an out-of-range offset 2 times; skipped 30 records; went back 3 offsets"
    assert row.impact.records == 30


def test_a_recording() -> None:
    with open_capture("samples/troubles/skipped.pcap.gz") as packets:
        (row,) = summarize(dissect(packets), parts=["findings"]).findings or ()
    assert row.message == "requested an out-of-range offset once; skipped 30 records"
