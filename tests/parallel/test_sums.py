from __future__ import annotations

import pickle

from kdissect.parallel.worker import Sums
from kdissect.stats.summarizer import Summarizer
from tests.exchange_factory import exchange


def test_what_workers_counted_adds_up_in_the_parent() -> None:
    total = Summarizer()
    for _ in range(2):
        work = Sums(lambda one: one.number == 1, Summarizer())
        assert work.feed(exchange()) == (1, b"")
        assert work.feed(exchange(number=2)) is None
        total.merge(pickle.loads(pickle.dumps(work.end())))
    assert total.close((), {}, {}).capture.exchanges == 2
