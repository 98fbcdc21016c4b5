from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.ordering import Ordering
from kdissect.limits import DEFAULT, Limits
from tests.exchanges import exchange

if TYPE_CHECKING:
    from kdissect.model import Exchange


def completed(*times_ns: int) -> list[Exchange]:
    return [exchange(completed_ns=time_ns) for time_ns in times_ns]


def told(exchanges: list[Exchange]) -> list[int]:
    return [one.completed_ns for one in exchanges]


def test_while_nobody_waits_everything_passes() -> None:
    stage = Ordering(DEFAULT)
    exchanges = completed(1, 2)
    assert stage.feed(exchanges, None) is exchanges


def test_what_others_complete_while_one_waits_comes_after_what_it_waited_with() -> None:
    stage = Ordering(DEFAULT)
    assert told(stage.feed(completed(5), 10)) == [5]
    assert told(stage.feed(completed(12, 14), 10)) == []
    assert told(stage.feed([], 13)) == [12]
    assert told(stage.feed(completed(13), None)) == [13, 14]


def test_ties_go_by_packet_and_then_by_arrival() -> None:
    stage = Ordering(DEFAULT)
    early, late, later = completed(7, 7, 7)
    assert early.request_frame is not None
    early.request_frame = early.request_frame._replace(packet=1)
    assert stage.feed([late, later, early], 0) == []
    assert stage.feed([], None) == [early, late, later]


def test_past_a_bound_the_earliest_goes_on() -> None:
    stage = Ordering(Limits(order_rows=2))
    assert told(stage.feed(completed(1, 2, 3, 4), 0)) == [1, 2]
    stage = Ordering(Limits(order_bytes=-1))
    assert told(stage.feed(completed(3, 4), 0)) == [3, 4]
