from __future__ import annotations

from kdissect.stats.transactions import ADD, END, INIT, MAX_IDS, Event, Producer


def event(time_ns: int, kind: int, *, commits: bool = False) -> Event:
    return Event(time_ns, f"c/{time_ns}", kind, "Api", "a", "10.0.0.1", 7, 0, None, time_ns, commits=commits)


def test_events_are_evaluated_in_order_of_time() -> None:
    producer = Producer(100)
    for each in (event(3, END, commits=True), event(2, ADD), event(1, INIT)):
        producer.add(each)
    (transaction,) = producer.full_history().ended
    assert (transaction.start_ns, transaction.end_ns, transaction.start_captured) == (2, 3, True)


def test_no_more_events_are_held_than_allowed() -> None:
    producer = Producer(10)
    for number in range(0, 1000, 2):
        producer.add(event(number, ADD))
        producer.add(event(number + 1, END, commits=True))
    assert len(producer.events) <= 10
    assert producer.full_history().outcomes == {"committed": 500}


def test_of_each_producer_id_the_highest_epoch_is_known() -> None:
    producer = Producer(10)
    for producer_id, epoch in ((7, 1), (7, 0), (9, 4), (-1, -1)):
        producer.has(producer_id, epoch)
    assert producer.epochs == {7: 1, 9: 4}
    for producer_id in range(100):
        producer.has(producer_id, 0)
    assert len(producer.epochs) == MAX_IDS
