from __future__ import annotations

from kdissect.limits import DEFAULT
from kdissect.stats.transactions import Transactions
from tests import producers as p


def test_what_is_open_stands_first_and_lasts_to_the_end_of_the_capture() -> None:
    result = Transactions(DEFAULT)
    for each in (p.init(0), p.add(1), p.end(2), p.add(3), p.produce(4, 0), p.fetch_markers(10)):
        result.feed(each)
    first, second = result.rows().transactions
    assert (first.outcome, first.end, first.duration_us) == ("open", None, 7_000_000)
    assert second.outcome == "committed"
    (row,) = result.rows().producers
    assert (row.open, row.longest_us, row.started) == (1, 7_000_000, 2)


def test_names_stand_before_producers_without_one() -> None:
    result = Transactions(DEFAULT)
    for each in (p.init(0), p.mark(1)):
        result.feed(each)
    other = p.produce(2, 0, name=None)
    for touched in other.touched:
        assert touched.produced is not None
        touched.produced.batches()[0]["producer_id"] = 3
    result.feed(other)
    assert [row.transactional_id for row in result.rows().producers] == ["pay", None]


def test_telling_changes_nothing() -> None:
    result = Transactions(DEFAULT)
    for each in (p.mark(0.5), p.init(0), p.add(1), p.produce(1, 0, 2), p.end(2)):
        result.feed(each)
    assert result.rows() == result.rows()
