from __future__ import annotations

from typing import Any

from kdissect.exchanges.fetch_sessions import FetchSessions, Position
from kdissect.exchanges.touched import touched
from kdissect.kafka.records import RecordData
from kdissect.limits import DEFAULT, Limits
from tests.exchange_factory import connection, exchange
from tests.record_batches import Item, batch

CONNECTION = ("c0ffee", 0)
SESSION = 77


def requested(**offsets: int) -> list[dict[str, Any]]:
    partitions = [{"partition": int(name[1:]), "fetch_offset": offset} for name, offset in offsets.items()]
    return [{"topic": "orders", "partitions": partitions}] if partitions else []


def returned(records: bytes = b"", **ends: int) -> list[dict[str, Any]]:
    partitions = [
        {
            "partition_index": int(name[1:]),
            "error_code": 0,
            "high_watermark": end,
            "last_stable_offset": end,
            "log_start_offset": 0,
            "records": RecordData(records, 0, len(records)),
        }
        for name, end in ends.items()
    ]
    return [{"topic": "orders", "partitions": partitions}] if partitions else []


def fetch(
    sessions: FetchSessions,
    topics: list[dict[str, Any]],
    responses: list[dict[str, Any]],
    *,
    session: tuple[int, int] = (0, 0),
    session_id: int = SESSION,
    forgotten: tuple[int, ...] = (),
    error: int = 0,
    on: str = "c0ffee",
) -> dict[int, Position]:
    request = {
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": topics,
        "forgotten_topics_data": [{"topic": "orders", "partitions": list(forgotten)}] if forgotten else [],
    }
    response = {"error_code": error, "session_id": session_id, "responses": responses}
    fetched = exchange("Fetch", 11, request, response, connection=connection(on))
    return {position.partition: position for position in sessions.feed(fetched, touched(fetched))}


def test_a_full_fetch_lists_each_partition() -> None:
    positions = fetch(FetchSessions(DEFAULT), requested(p0=5, p1=7), returned(p0=9, p1=7))
    assert (positions[0].fetch_offset, positions[0].next_offset, positions[0].lag) == (5, 5, 4)
    assert positions[1].lag == 0


def test_records_move_the_position() -> None:
    records = batch([Item()] * 3, base_offset=5)
    positions = fetch(FetchSessions(DEFAULT), requested(p0=5), returned(records, p0=9))
    assert (positions[0].fetch_offset, positions[0].next_offset, positions[0].lag) == (5, 8, 1)
    assert positions[0].newest_ms is not None


def test_what_an_incremental_fetch_does_not_name_still_counts() -> None:
    sessions = FetchSessions(DEFAULT)
    fetch(sessions, requested(p0=5, p1=7), returned(p0=9, p1=7))
    positions = fetch(sessions, [], returned(p1=12), session=(SESSION, 1))
    assert positions[0].lag == 4
    assert (positions[1].fetch_offset, positions[1].lag) == (7, 5)
    positions = fetch(sessions, requested(p0=9), [], session=(SESSION, 2))
    assert (positions[0].fetch_offset, positions[0].lag) == (9, 0)


def test_forgotten_partitions_leave() -> None:
    sessions = FetchSessions(DEFAULT)
    fetch(sessions, requested(p0=5, p1=7), returned(p0=9, p1=7))
    assert set(fetch(sessions, [], [], session=(SESSION, 1), forgotten=(0,))) == {1}


def test_a_new_session_forgets_the_old_one() -> None:
    sessions = FetchSessions(DEFAULT)
    fetch(sessions, requested(p0=5, p1=7), returned(p0=9, p1=7))
    assert set(fetch(sessions, requested(p1=7), returned(p1=7), session=(SESSION, 0))) == {1}
    assert set(fetch(sessions, [], [], session=(SESSION, 1))) == {1}


def test_an_error_of_the_session_shows_nothing() -> None:
    sessions = FetchSessions(DEFAULT)
    fetch(sessions, requested(p0=5), returned(p0=9))
    assert fetch(sessions, [], [], session=(SESSION, 1), error=70) == {}
    assert fetch(sessions, [], [], session=(SESSION, 2)) == {}


def test_sessions_of_other_connections_are_others() -> None:
    sessions = FetchSessions(DEFAULT)
    fetch(sessions, requested(p0=5), returned(p0=9))
    assert fetch(sessions, [], [], session=(SESSION, 1), on="beef") == {}


def test_a_session_that_began_before_the_capture() -> None:
    positions = fetch(FetchSessions(DEFAULT), [], returned(p3=12), session=(SESSION, 9))
    assert (positions[3].fetch_offset, positions[3].high_watermark, positions[3].lag) == (None, 12, None)
    records = batch([Item()], base_offset=11)
    positions = fetch(FetchSessions(DEFAULT), [], returned(records, p3=12), session=(SESSION, 9))
    assert (positions[3].fetch_offset, positions[3].next_offset, positions[3].lag) == (None, 12, 0)


def test_too_many_partitions_and_the_silent_session_goes() -> None:
    sessions = FetchSessions(Limits(fetch_session_partitions=3))
    fetch(sessions, requested(p0=1, p1=1), returned(p0=1, p1=1), on="a")
    fetch(sessions, requested(p0=1, p1=1), returned(p0=1, p1=1), on="b")
    assert fetch(sessions, [], [], session=(SESSION, 1), on="a") == {}
    assert set(fetch(sessions, [], [], session=(SESSION, 1), on="b")) == {0, 1}
    assert sessions.lend(("a", 0)) == {}


def test_a_topic_that_is_named_during_the_session() -> None:
    sessions = FetchSessions(DEFAULT)
    topic_id = "mnHtnV_yStC7CRPZo2r6bw"

    def positions(epoch: int, names: dict[str, str], **ends: int) -> list[tuple[str, int, int | None]]:
        responses = [{**topic, "topic_id": topic_id, "topic": None} for topic in returned(**ends)]
        topics = [{**topic, "topic_id": topic_id, "topic": None} for topic in requested(**ends)]
        request = {"session_id": SESSION * (epoch > 0), "session_epoch": epoch, "topics": topics}
        response = {"error_code": 0, "session_id": SESSION, "responses": responses}
        fetched = exchange("Fetch", 13, request, response, topic_ids=names)
        return [(each.topic, each.partition, each.lag) for each in sessions.feed(fetched, touched(fetched))]

    assert positions(0, {}, p0=5, p1=5) == [(topic_id, 0, 0), (topic_id, 1, 0)]
    assert positions(1, {topic_id: "orders"}, p0=7) == [("orders", 0, 0), ("orders", 1, 0)]


def test_another_goes_on_with_a_session() -> None:
    one, two = FetchSessions(DEFAULT), FetchSessions(DEFAULT)
    fetch(one, requested(p0=5, p1=7), returned(p0=9, p1=7))
    two.restore(CONNECTION, SESSION, one.lend(CONNECTION)[SESSION] or ())
    for sessions in (one, two):
        positions = fetch(sessions, [], returned(p1=12), session=(SESSION, 1))
        assert {partition: each.lag for partition, each in positions.items()} == {0: 4, 1: 5}
    two.restore(CONNECTION, SESSION, [])
    assert two.lend(CONNECTION) == {}
    assert fetch(two, [], [], session=(SESSION, 2)) == {}


def test_bodies_that_end_early() -> None:
    sessions = FetchSessions(DEFAULT)
    cut = exchange("Fetch", 11, {"session_id": 5}, {"session_id": 5})
    assert sessions.feed(cut, touched(cut)) == []
    unanswered = exchange("Fetch", 11, {"topics": requested(p0=1)})
    assert sessions.feed(unanswered, touched(unanswered)) == []


# --- offsets that are requested again -----------------------------------------------------------------------

RECORDS = batch([Item()] * 3, base_offset=5)  # offsets 5 to 7


def repeats(positions: dict[int, Position]) -> tuple[int, int | None]:
    return positions[0].repeats, positions[0].next_offset


def test_a_consumer_that_requests_the_same_offset_although_records_came() -> None:
    sessions = FetchSessions(DEFAULT)
    for number in range(4):
        positions = fetch(sessions, requested(p0=5), returned(RECORDS, p0=99), session_id=0)
        assert repeats(positions) == (number, 5 if number else 8)
    assert positions[0].lag == 94
    assert repeats(fetch(sessions, requested(p0=8), returned(RECORDS, p0=99), session_id=0)) == (0, 8)


def test_an_unnamed_partition_is_requested_as_before() -> None:
    sessions = FetchSessions(DEFAULT)
    fetch(sessions, requested(p0=5), returned(RECORDS, p0=99))
    positions = fetch(sessions, [], returned(RECORDS, p0=99), session=(SESSION, 1))
    assert (positions[0].fetch_offset, *repeats(positions)) == (5, 1, 5)
    assert repeats(fetch(sessions, [], returned(RECORDS, p0=99), session=(SESSION, 2))) == (2, 5)
    later = batch([Item()], base_offset=8)  # the request that named offset 8 was not captured
    assert repeats(fetch(sessions, [], returned(later, p0=99), session=(SESSION, 3)))[1] in (5, 9)


def test_long_polls_and_errors_are_no_repetition() -> None:
    sessions = FetchSessions(DEFAULT)
    for _ in range(3):
        assert repeats(fetch(sessions, requested(p0=5), returned(p0=5))) == (0, 5)
    failed = returned(p0=-1)
    failed[0]["partitions"][0]["error_code"] = 6
    for records in (RECORDS, b"", RECORDS):
        assert (
            repeats(fetch(sessions, requested(p0=5), returned(records, p0=9) if records else failed))[0] < 2
        )
    assert repeats(fetch(sessions, requested(p0=5), returned(p0=9)))[0] == 1
    assert repeats(fetch(sessions, requested(p0=5), returned(p0=9)))[0] == 0


def test_other_consumers_of_a_partition_are_others() -> None:
    sessions = FetchSessions(DEFAULT)
    for consumer in ("a", "b", "c"):
        assert repeats(fetch(sessions, requested(p0=5), returned(RECORDS, p0=9), on=consumer)) == (0, 8)


def test_how_far_a_consumer_goes_after_an_offset_out_of_range() -> None:
    for session_id in (0, SESSION):
        for reset, skipped in ((35, 30), (2, -3), (5, 0)):
            sessions = FetchSessions(DEFAULT)
            failed = returned(p0=-1)
            failed[0]["partitions"][0]["error_code"] = 1
            fetch(sessions, requested(p0=5), failed, session_id=session_id)
            session = (session_id, 1 if session_id else 0)
            after = fetch(
                sessions, requested(p0=reset), returned(p0=99), session=session, session_id=session_id
            )
            assert (after[0].skipped, after[0].repeats, after[0].next_offset) == (skipped, 0, reset)
            again = fetch(
                sessions, requested(p0=reset), returned(p0=99), session=session, session_id=session_id
            )
            assert again[0].skipped == 0
