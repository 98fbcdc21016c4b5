from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.limits import DEFAULT
from kdissect.stats.transactions import Transactions
from kdissect.text.transactions_page import sections
from tests import producers as p

if TYPE_CHECKING:
    from kdissect.stats.document import TransactionsPart


def part() -> TransactionsPart:
    transactions = Transactions(DEFAULT)
    for each in (
        p.init(0),
        p.add(1),
        p.produce(1.1, 0),
        p.produce(1.2, 5),
        p.end(2),
        p.mark(2.1),
        p.init(3, 1, client="other"),
        p.produce(4, 6, error=p.PRODUCER_FENCED),
        p.add(5, 1, client="other"),
    ):
        transactions.feed(each)
    return transactions.rows()


def test_the_page() -> None:
    page = list(sections(part(), limit=1))
    assert [section.title for section in page] == [
        "Producers",
        "Transactions",
        "Fenced producers",
        "Sequence numbers",
    ]
    assert page[0].notes == ("1 producer, 2 transactions, 1 still open",)
    assert page[1].left_out == 1
    assert page[3].notes == ("1 producer-partition pair, 1 with gaps; MISSING: sequence numbers in gaps",)
    assert all(len(row) == len(section.views) for section in page for row in section.rows)


def test_fenced_producers() -> None:
    fenced = list(sections(part(), limit=None))[2]
    assert "other at 10.0.0.5" in fenced.rows[0]


def test_a_capture_without_producers() -> None:
    (section,) = sections(Transactions(DEFAULT).rows(), limit=3)
    assert section.notes == ("0 producers, 0 transactions, 0 still open",)
