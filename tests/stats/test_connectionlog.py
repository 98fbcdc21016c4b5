from __future__ import annotations

from typing import Any

from kdissect.limits import DEFAULT
from kdissect.pipeline import Dissection
from kdissect.stats.connection_log import ConnectionLog, ConnectionLogRow
from tests.exchange_factory import connection, exchange
from tests.frames import heartbeat_answers, heartbeats
from tests.segments import Talk


def talk(**options: Any) -> Talk:
    traffic = Talk(**options)
    traffic.handshake()
    traffic.client_sends(b"".join(heartbeats(3)))
    traffic.broker_sends(b"".join(heartbeat_answers(3)))
    return traffic


def rows_of(*talks: Talk) -> list[ConnectionLogRow]:
    """The rows, each as soon as it is finished."""
    log = ConnectionLog(DEFAULT)
    rows = []
    packets = [packet for each in talks for packet in each.packets]
    for each in Dissection(log.watch(packets), observer=log):
        log.exchange(each)
        rows += log.finished()
    return rows + log.finished() + log.close()


def test_a_connection_from_its_first_packet_to_its_last() -> None:
    traffic = talk()
    traffic.finish()
    (row,) = rows_of(traffic)
    assert (row.exchanges, row.exchanges_total, row.kinds) == (3, 3, {"answered": 3})
    assert (row.close_reason, row.protocol, row.from_start) == ("fin", "Kafka", True)
    assert (row.client.port, row.broker.port) == (40000, 9092)
    assert row.first_ns == traffic.packets[0].time_ns
    assert row.last_ns is not None
    assert row.first_ns < row.last_ns <= traffic.packets[-1].time_ns
    assert row.request_bytes == len(b"".join(heartbeats(3)))
    assert row.response_bytes == len(b"".join(heartbeat_answers(3)))
    assert (dict(row.gaps), row.unattached, row.anomalies) == ({}, [], 0)


def test_one_that_the_capture_does_not_see_the_end_of() -> None:
    (row,) = rows_of(talk())
    assert row.close_reason == "end"


def test_a_gap_is_that_connections() -> None:
    cut = talk(client=("10.0.0.1", 40001))
    cut.client_sends(b"".join(heartbeats(40, first=4)))
    del cut.packets[-1]
    cut.client_sends(b"".join(heartbeats(40, first=44)))
    cut.broker_sends(b"".join(heartbeat_answers(40, first=44)))
    rows = {row.client.port: row for row in rows_of(talk(), cut)}
    assert not rows[40000].gaps
    assert rows[40001].gaps["kafka_gaps"] == 1
    assert rows[40001].gaps["kafka_lost_bytes"] > 100
    assert rows[40001].anomalies > 0


def test_what_came_again_and_what_came_too_early() -> None:
    traffic = talk()
    traffic.client_sends(b"".join(heartbeats(10, first=4)))
    traffic.packets.append(traffic.packets[-1])
    traffic.packets.append(traffic.packets[3])  # of the first three
    for first in (14, 15):
        traffic.client_sends(b"".join(heartbeats(1, first=first)))
    traffic.packets[-2:] = reversed(traffic.packets[-2:])
    traffic.broker_sends(b"".join(heartbeat_answers(12, first=4)))
    log = ConnectionLog(DEFAULT)
    run = Dissection(log.watch(traffic.packets), observer=log)
    for each in run:
        log.exchange(each)
    (row,) = log.finished()
    assert (row.exchanges, row.out_of_order, row.resyncs, row.unread_bytes) == (15, 1, 0, 0)
    assert row.repeated_bytes == len(b"".join(heartbeats(13)))
    assert run.counts["retransmitted_bytes"] + run.counts["overlapping_bytes"] == row.repeated_bytes
    assert run.counts["out_of_order"] == 1


def test_skipped_bytes() -> None:
    traffic = talk()
    traffic.client_sends(b"\xff" * 100 + b"".join(heartbeats(4, first=4)))
    traffic.broker_sends(b"".join(heartbeat_answers(4, first=4)))
    (row,) = rows_of(traffic)
    assert (row.resyncs, row.skipped_bytes, row.unread_bytes) == (1, 100, 0)


def test_what_is_not_kafka() -> None:
    traffic = Talk()
    traffic.handshake()
    traffic.client_sends(b"GET / HTTP/1.1\r\n\r\n")
    traffic.broker_sends(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(10_000))
    traffic.finish()
    (row,) = rows_of(traffic)
    assert row.unread_bytes == 18 + 19 + 10_000
    assert (row.protocol, row.exchanges, row.request_bytes) == ("HTTP", 0, 0)
    assert row.client.port == 40000
    assert not row.is_selected


def test_a_row_waits_for_its_exchanges() -> None:
    """They may come out of the pipeline after their connection is over."""
    log = ConnectionLog(DEFAULT)
    traffic = talk()
    traffic.finish()
    exchanges = list(Dissection(traffic.packets, observer=log))
    assert log.finished() == []
    log.exchange(exchanges[0])
    log.exchange(exchanges[1], is_selected=False)
    assert log.finished() == []
    log.exchange(exchanges[2])
    (row,) = log.finished()
    assert (row.exchanges, row.is_selected) == (3, True)
    assert log.finished() == log.close() == []


def test_client_attributes_from_exchanges() -> None:
    log = ConnectionLog(DEFAULT)
    shared = connection("abc")
    log.exchange(exchange(connection=shared))
    fields = {"client_id": "app", "client_software_name": "librdkafka", "principal": "User:alice"}
    log.exchange(exchange(connection=shared, number=2, **fields))
    log.exchange(exchange(connection=shared, number=3, client_id="other"))
    (row,) = log.close()
    assert (row.client_id, row.client_software_name, row.principal) == ("app", "librdkafka", "User:alice")
    assert (row.close_reason, row.from_start) == (None, None)


def test_it_surveys_too() -> None:
    log = ConnectionLog(DEFAULT)
    for each in Dissection(log.watch(talk().packets), observer=log):
        log.exchange(each)
    assert log.kinds == {"answered": 3}
    assert log.protocols == {"Kafka": 1}
    assert log.census.span_ns is not None
