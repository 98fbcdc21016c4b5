from __future__ import annotations

from kdissect.stats.transactions import ADD, END, IDS, INIT, Event, Producer


def event(time_ns: int, kind: int, *, commits: bool = False) -> Event:
    return Event(time_ns, f"c/{time_ns}", kind, "Api", "a", "10.0.0.1", 7, 0, None, time_ns, commits=commits)


def test_events_are_told_in_order_of_time() -> None:
    made = Producer(100)
    for each in (event(3, END, commits=True), event(2, ADD), event(1, INIT)):
        made.add(each)
    (transaction,) = made.told().over
    assert (transaction.begin_ns, transaction.end_ns, transaction.is_whole) == (2, 3, True)


def test_no_more_events_are_held_than_allowed() -> None:
    made = Producer(10)
    for number in range(0, 1000, 2):
        made.add(event(number, ADD))
        made.add(event(number + 1, END, commits=True))
    assert len(made.events) <= 10
    assert made.told().outcomes == {"committed": 500}


def test_of_each_producer_id_the_highest_epoch_is_known() -> None:
    made = Producer(10)
    for producer_id, epoch in ((7, 1), (7, 0), (9, 4), (-1, -1)):
        made.has(producer_id, epoch)
    assert made.epochs == {7: 1, 9: 4}
    for producer_id in range(100):
        made.has(producer_id, 0)
    assert len(made.epochs) == IDS
