from __future__ import annotations

import pickle

from kdissect.limits import DEFAULT
from kdissect.parallel.worker import Sums
from kdissect.stats.connection_log import ConnectionFeed
from kdissect.stats.summarizer import Summarizer
from tests.exchange_factory import exchange


def sums() -> Sums:
    summarizer = Summarizer()
    feed = ConnectionFeed(DEFAULT, summarizer.connect, filtered=False)
    return Sums(lambda one: one.number == 1, summarizer, feed)


def test_what_workers_counted_adds_up_in_the_parent() -> None:
    total = sums()
    for _ in range(2):
        work = sums()
        assert work.feed(exchange())
        assert not work.feed(exchange(number=2))
        total.merge(pickle.loads(pickle.dumps(work.end())))
    assert total.summarizer.close((), {}, {}).capture.exchanges == 2
    assert total.observer.kinds.total() == 4
