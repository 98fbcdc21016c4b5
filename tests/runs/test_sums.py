from __future__ import annotations

import pickle

from kdissect.limits import DEFAULT
from kdissect.sinks.tallies import Tallies
from kdissect.stats.connection_log import ConnectionFeed
from kdissect.stats.summarizer import Summarizer
from tests.exchange_factory import exchange


def tallies() -> tuple[Tallies, Summarizer, ConnectionFeed]:
    summarizer = Summarizer()
    feed = ConnectionFeed(DEFAULT, summarizer.connect, filtered=False)
    return Tallies(summarizer, feed), summarizer, feed


def test_what_workers_counted_adds_up_in_the_parent() -> None:
    total, summarizer, observer = tallies()
    for _ in range(2):
        work, *_ = tallies()
        work.feed(exchange())
        work.skip(exchange(number=2))
        work.close()
        total.merge(pickle.loads(pickle.dumps(work.part())))
    assert summarizer.close((), {}, {}).capture.exchanges == 2
    assert observer.kinds.total() == 4
