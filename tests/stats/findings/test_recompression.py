from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.exchanges.fetch_sessions import Position
from kdissect.stats.findings.recompression import Recompression
from tests.findings import fetch, findings_of, produce
from tests.record_batches import GZIP, NONE, Item, batch

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts


def fetched(after_s: float, codec: int, start: int, end: int, *, client: str = "reader") -> Facts:
    one = fetch(after_s, data=batch([Item()] * (end - start), base_offset=start, codec=codec))
    one.client = client
    one.positions = [Position("orders", 0, start, end, None, end, None, None, 0)]
    return one


def test_a_broker_that_compresses() -> None:
    (row,) = findings_of(Recompression, [produce(1), fetched(2, GZIP, 0, 5)])
    assert (row.severity, row.subject) == ("note", "partition orders-0")
    assert row.message == "1 batch produced with codec none, fetched with gzip"


def test_batches_that_are_not_those_produced_or_not_changed() -> None:
    assert findings_of(Recompression, [produce(1), fetched(2, NONE, 0, 5)]) == []
    assert findings_of(Recompression, [produce(1), fetched(2, NONE, 0, 1), fetched(3, GZIP, 1, 9)]) == []
    assert findings_of(Recompression, [produce(1), fetched(2, GZIP, 40, 50)]) == []  # what others wrote
    facts = [produce(1), fetched(2, GZIP, 0, 0, client="early"), fetched(3, GZIP, 40, 50, client="late")]
    assert findings_of(Recompression, facts) == []
