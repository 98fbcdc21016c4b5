from __future__ import annotations

import pickle

from kdissect.exchanges.learned import LearnedFacts
from kdissect.limits import Limits
from kdissect.options import WHOLE


def test_what_was_learned_first_holds() -> None:
    facts, other = LearnedFacts(), LearnedFacts()
    facts.learn_topic("id", "late", 7)
    facts.learn_topic("id", "early", 5)
    facts.learn_topic("id", "later", 9)
    other.learn_topic("id", "earliest", 3)
    other.learn_topic("other", "b", 4)
    facts.merge(other)
    assert facts.topics == {"id": ("earliest", 3), "other": ("b", 4)}


def test_a_name_holds_from_a_window_before_it_was_learned() -> None:
    facts = LearnedFacts(Limits(naming_window_ns=2))
    facts.learn_topic("id", "orders", 5)
    assert [facts.topic_name("id", time_ns) for time_ns in (3, 4, 9)] == [None, "orders", "orders"]
    assert facts.topic_name("unknown", 1 << 62) is None


def test_a_name_holds_for_the_whole_capture() -> None:
    facts = LearnedFacts(names=WHOLE)
    facts.learn_topic("id", "orders", 1 << 62)
    assert facts.topic_name("id", 0) == "orders"
    assert facts.topic_name("unknown", 0) is None


def test_it_is_bounded_and_can_be_sent_to_workers() -> None:
    facts = LearnedFacts(Limits(topic_names=1))
    facts.learn_topic("a", "one", 5)
    facts.learn_topic("b", "two", 1)
    facts.learn_topic("a", "earlier", 1)
    assert pickle.loads(pickle.dumps(facts)).topics == {"a": ("earlier", 1)}
