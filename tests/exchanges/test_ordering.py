from __future__ import annotations

from dataclasses import replace
from itertools import chain
from operator import itemgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kdissect.exchanges.ordering import ByRequest, Ordering
from kdissect.limits import DEFAULT, Limits
from kdissect.model import Exchange
from tests.exchange_factory import connection, exchange

if TYPE_CHECKING:
    from collections.abc import Iterator


def completed(*times_ns: int) -> list[Exchange]:
    """Each on a connection of its own."""
    return [
        exchange(completed_ns=time_ns, connection=connection(f"c{place}-{time_ns}"))
        for place, time_ns in enumerate(times_ns)
    ]


def numbers(exchanges: list[Exchange]) -> list[int]:
    return [one.completed_ns for one in exchanges]


def test_while_nobody_waits_everything_passes() -> None:
    stage = Ordering[Exchange](DEFAULT)
    for exchanges in (completed(2), [exchange(completed_ns=3), exchange(completed_ns=1)]):
        assert stage.feed(exchanges, None) is exchanges


def test_what_one_packet_completes_on_several_connections_is_sorted() -> None:
    assert numbers(Ordering[Exchange](DEFAULT).feed(completed(3, 1, 2), None)) == [1, 2, 3]


def test_a_connection_keeps_its_own_order() -> None:
    stage = Ordering[Exchange](DEFAULT)
    mine = [exchange(completed_ns=time_ns, connection=connection("mine")) for time_ns in (14, 12)]
    assert stage.feed(mine + completed(13, 15), 10) == []
    assert numbers(stage.feed([], None)) == [13, 14, 12, 15]


def test_what_others_complete_while_one_waits_comes_after_what_it_waited_with() -> None:
    stage = Ordering[Exchange](DEFAULT)
    assert numbers(stage.feed(completed(5), 10)) == [5]
    assert numbers(stage.feed(completed(12, 14), 10)) == []
    assert numbers(stage.feed([], 13)) == [12]
    assert numbers(stage.feed(completed(13), None)) == [13, 14]


def test_ties_go_by_packet_and_then_by_connection() -> None:
    stage = Ordering[Exchange](DEFAULT)
    early, late, later = completed(7, 7, 7)
    assert early.request_frame is not None
    early.request_frame = early.request_frame._replace(packet=1)
    assert stage.feed([later, late, early], 0) == []
    assert stage.feed([], None) == [early, late, later]


def test_past_a_bound_the_earliest_goes_on() -> None:
    stage = Ordering[Exchange](Limits(order_rows=2))
    assert numbers(stage.feed(completed(1, 2, 3, 4), 0)) == [1, 2]
    stage = Ordering[Exchange](Limits(order_bytes=-1))
    assert numbers(stage.feed(completed(3, 4), 0)) == [3, 4]


# By request

MS = 1_000_000


def by_request(*exchanges: tuple[int, int], limits: Limits = DEFAULT, size: int = 1) -> list[tuple[int, int]]:
    """Exchanges as times of request and completion, in ms."""
    return [(begin, end) for begin, end, _ in released(*exchanges, limits=limits, size=size)]


class Item(SimpleNamespace):
    """An exchange: time_ns, order, held_bytes."""

    __hash__ = object.__hash__


def released(
    *exchanges: tuple[int, int], limits: Limits = DEFAULT, size: int = 1
) -> list[tuple[int, int, int]]:
    """Times of request, completion and release, in ms, in order of release."""
    stage, now_ms = ByRequest(limits), 0
    items = [Item(time_ns=begin * MS, order=(end * MS, 0), held_bytes=size) for begin, end in exchanges]
    events = [(item.time_ns, place, item, True) for place, item in enumerate(items)]
    events += [(item.order[0], place, item, False) for place, item in enumerate(items)]

    def fed() -> Iterator[Any]:
        nonlocal now_ms
        for time_ns, _, item, is_request in sorted(events, key=itemgetter(0, 1)):
            now_ms = time_ns // MS
            if is_request:
                stage.note(cast("Any", SimpleNamespace(outstanding=[item])))
            else:
                yield item

    in_order = chain(chain.from_iterable(map(stage.feed, fed())), stage.rest())
    return [(item.time_ns // MS, item.order[0] // MS, now_ms) for item in in_order]


def test_requests_are_sorted() -> None:
    assert by_request((10, 20), (5, 30), (40, 50), (1, 60)) == [(1, 60), (5, 30), (10, 20), (40, 50)]
    assert by_request() == []


def test_a_row_is_released_as_soon_as_no_older_request_is_outstanding() -> None:
    assert released((10, 20), (5, 30), (40, 50)) == [(5, 30, 30), (10, 20, 30), (40, 50, 50)]
    stage = ByRequest(DEFAULT)
    one, other = (
        Item(time_ns=begin * MS, order=(end * MS, 0), held_bytes=1) for begin, end in ((1, 9), (2, 5))
    )
    stage.note(cast("Any", SimpleNamespace(outstanding=[one])))
    assert list(stage.feed(cast("Any", other))) == []
    stage.skip(cast("Any", one))
    later = Item(time_ns=6 * MS, order=(7 * MS, 0), held_bytes=1)
    assert list(stage.feed(cast("Any", later))) == [other, later], "the older request is not shown"


def test_times_of_requests_that_were_fed_are_dropped() -> None:
    stage = ByRequest(DEFAULT)
    oldest = Item(time_ns=0, order=(MS, 0), held_bytes=1)
    stage.note(cast("Any", SimpleNamespace(outstanding=[oldest])))
    for number in range(1, 1000):
        item = Item(time_ns=number, order=(number, 0), held_bytes=1)
        stage.note(cast("Any", SimpleNamespace(outstanding=[oldest, item])))
        assert list(stage.feed(cast("Any", item))) == []
    assert len(stage._times) < 100


def test_a_row_waits_a_second_of_packet_time() -> None:
    shown = by_request((10, 20), (5, 1019), (1, 1020), (0, 1021))
    assert shown == [(1, 1020), (5, 1019), (10, 20), (0, 1021)]
    shown = by_request((10, 20), (1015, 1021), (0, 1022))
    assert shown == [(10, 20), (0, 1022), (1015, 1021)]


def test_what_is_held_is_limited() -> None:
    exchanges = [(begin, begin + 10) for begin in range(10, 0, -1)]
    exchanges.sort(key=lambda item: item[1])
    assert by_request(*exchanges) == sorted(exchanges)
    backwards = [(100 - number, 200 + number) for number in range(6)]
    few = replace(DEFAULT, order_rows=2)
    assert by_request(*backwards, limits=few) == [backwards[at] for at in (2, 3, 4, 5, 1, 0)]
    small = replace(DEFAULT, order_bytes=20)
    assert by_request(*backwards, limits=small, size=10) == [backwards[at] for at in (2, 3, 4, 5, 1, 0)]
