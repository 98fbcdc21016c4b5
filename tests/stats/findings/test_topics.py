from __future__ import annotations

import pickle

from kdissect.limits import DEFAULT
from kdissect.stats.findings.rule import Topics
from tests.findings import metadata


def test_partitions_and_replicas() -> None:
    topics = Topics(DEFAULT)
    topics.learn(metadata(1, [(1, 0), (2, 0)], replicas=3))
    topics.learn(metadata(2, [(1, 0)], replicas=2))
    assert (topics["orders"].partitions, topics["orders"].replicas) == (2, 3)


def test_sent_and_merged_they_are_the_same() -> None:
    one, two = Topics(DEFAULT), Topics(DEFAULT)
    one.learn(metadata(1, [(1, 0)], replicas=3))
    two.learn(metadata(1, [(1, 0), (1, 0)], replicas=1))
    one.merge(pickle.loads(pickle.dumps(two)))
    assert (one["orders"].partitions, one["orders"].replicas) == (2, 3)
