from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest

from kdissect import dissect, open_capture
from kdissect.limits import DEFAULT
from kdissect.pipeline import Dissection
from kdissect.stats.connection_log import ConnectionFeed
from kdissect.stats.facts import Facts
from kdissect.stats.pulse import OTHER, Pulse, PulseSnapshot
from kdissect.stats.traffic import Failure
from tests.exchange_factory import connection
from tests.frames import heartbeat_answers, heartbeats
from tests.late import late_packets
from tests.producers import facts_of
from tests.pulses import BATCH, NOT_LEADER, at, beat, busy, fed, fetch, produce
from tests.segments import ACK, RST, SYN, Talk

SMALL = replace(DEFAULT, top_rows=2, connections=3)


def now(pulse: Pulse, seconds: float, packets: int = 0) -> PulseSnapshot:
    pulse.tick(at(seconds), packets)
    return pulse.now()


def test_before_the_first_packet_nothing_is_known() -> None:
    empty = Pulse().now()
    assert empty.now_ns is None
    assert empty.apis == empty.topics == empty.clients == empty.groups == []
    assert empty.all.p99_us is None


def test_rates_latencies_and_failures_of_an_api() -> None:
    beats = [beat(number / 10, latency_ms=number, error=27 * (number == 50)) for number in range(1, 101)]
    current = now(fed(*beats), 10)
    (api,) = current.apis
    assert api.name == "Heartbeat"
    assert api.per_second == pytest.approx(10, rel=0.15)
    assert (api.p50_us, api.p99_us) == pytest.approx((50_000, 99_000), rel=0.1)
    assert (api.failed, current.exchanges) == (1, 100)
    assert api.failed_per_second == pytest.approx(0.1, rel=0.15)
    assert current.all._replace(name="Heartbeat") == api


def test_requests_that_are_not_answered() -> None:
    unanswered = facts_of("Metadata", 9, 1, {"topics": []}, None, "app", connection=connection("app"))
    current = now(fed(beat(0), unanswered), 2)
    assert {api.name: api.no_answer for api in current.apis} == {"Heartbeat": 0, "Metadata": 1}
    (client,) = current.clients
    assert (client.no_answer, current.all.no_answer, current.all.failed) == (1, 1, 0)


def test_rates_go_to_zero_where_nothing_comes_and_the_row_goes_later() -> None:
    pulse = fed(*(beat(second) for second in range(10)), produce(9))
    rates = [now(pulse, second).clients[0].per_second for second in (10, 14, 18, 20, 30)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == 0
    assert now(pulse, 30).clients[0].p99_us is None
    assert now(pulse, 30).all.per_second == 0
    gone = now(pulse, 75)
    assert (len(gone.clients), len(gone.topics), gone.connections) == (
        2,
        1,
        0,
    )  # what was there before all fell silent
    pulse.feed(beat(76, "new"))
    back = now(pulse, 76)
    assert ([row.name for row in back.clients], back.topics, back.connections) == (["new"], [], 1)


def test_a_topic_is_one_row_when_its_name_comes() -> None:
    pulse, shown = Pulse(), []
    for exchange in dissect(late_packets(), limits=replace(DEFAULT, naming_window_ns=0)):
        pulse.feed(Facts(exchange))
        shown.append(len(pulse.now().topics))
    assert [most for most, _ in groupby(shown)] == [1, 2, 1]  # producers name it, consumers have its ID
    assert [topic.name for topic in pulse.now().topics] == ["orders"]


def test_connections_that_do_not_open_and_that_brokers_cut_off() -> None:
    pulse = Pulse()
    feed = ConnectionFeed(DEFAULT, pulse.connect, filtered=False)
    cut_off = Talk().handshake().client_sends(heartbeats(1)[0]).broker_sends(heartbeat_answers(1)[0])
    cut_off.client_sends(heartbeats(1, first=2)[0]).reset(1)
    refused = Talk(client=("10.0.0.1", 40_001), start_ns=cut_off.time_ns + 10**9)
    refused.put(0, SYN, acknowledgment=0).put(1, RST | ACK)
    for exchange in Dissection([*cut_off.packets, *refused.packets], observer=feed):
        pulse.feed(Facts(exchange))
        feed.exchange(exchange)
    assert (pulse.now().not_opened, pulse.now().cut_off) == (1, 1)


def test_lost_segments() -> None:
    pulse = Pulse()
    feed = ConnectionFeed(DEFAULT, pulse.connect, filtered=False)
    with open_capture("samples/troubles/loss.pcap.gz") as packets:
        for exchange in Dissection(packets, observer=feed):
            pulse.feed(Facts(exchange))
            feed.exchange(exchange)
    assert (pulse.now().lost, pulse.now().segments) == (22, 626), "as in the finding network-loss"


def test_silence_is_reported() -> None:
    pulse = fed(beat(0))
    assert now(pulse, 1, 5).silent_s == 0
    assert now(pulse, 9, 5).silent_s == 8
    assert now(pulse, 10, 6).silent_s == 0


def test_records_and_bytes_of_a_topic() -> None:
    current = now(fed(*(produce(second) for second in range(5)), fetch(5), fetch(5.5, replica_id=2)), 6)
    (topic,) = current.topics
    assert topic.records_in == pytest.approx(50 / current.seconds)
    assert topic.bytes_in == pytest.approx(5 * len(BATCH) / current.seconds)
    assert topic.records_out == pytest.approx(10 / current.seconds)
    assert topic.bytes_out == topic.replicated_bytes == pytest.approx(len(BATCH) / current.seconds)


def test_what_was_refused_is_not_written() -> None:
    current = now(fed(produce(0, error=NOT_LEADER)), 1)
    assert (current.topics[0].records_in, current.topics[0].failed) == (0, 1)
    assert current.failures[0].failure == Failure("NOT_LEADER_OR_FOLLOWER", "Produce", "orders", "shop")


def test_failures_are_listed_latest_first() -> None:
    current = now(fed(beat(0, error=25), beat(1, "x", error=27), beat(2, error=25)), 3)
    assert [(each.failure.error, each.times) for each in current.failures] == [
        ("UNKNOWN_MEMBER_ID", 2),
        ("REBALANCE_IN_PROGRESS", 1),
    ]


def test_clients_their_software_and_connections() -> None:
    known = {"client_software_name": "apache-kafka-java", "client_software_version": "4.1.0"}
    facts = [beat(number, connection=connection(f"c{number}"), **known) for number in range(3)]
    pulse = fed(*facts, beat(3, "other", connection=connection("c3")))
    client, other = now(pulse, 4).clients
    assert (client.name, client.software, client.address) == ("app", "apache-kafka-java 4.1.0", "10.0.0.5")
    assert (client.connections, other.connections) == (3, 1)
    pulse.feed(beat(61.5, connection=connection("c9")))
    assert [row.connections for row in now(pulse, 61.5).clients] == [
        2,
        1,
    ]  # c0 and c1 were silent for a minute


def test_a_connection_belongs_to_its_last_client_id() -> None:
    pulse = fed(beat(0, "old", connection=connection("c")), beat(1, "new", connection=connection("c")))
    assert {row.name: row.connections for row in now(pulse, 2).clients} == {"old": 0, "new": 1}


def test_tables_are_bounded_and_the_rest_is_counted_together() -> None:
    facts = [
        beat(number / 100, f"client-{number}", connection=connection(str(number))) for number in range(50)
    ]
    current = now(fed(*facts, limits=SMALL), 1)
    assert [row.name for row in current.clients] == ["client-0", "client-1", OTHER]
    assert current.clients[-1].per_second == 48
    assert current.connections == 3
    later = fed(*facts, beat(100, "late"), limits=SMALL)
    assert [row.name for row in now(later, 100).clients] == ["late"]


def test_memory_does_not_grow_with_what_there_was() -> None:
    pulse = Pulse(SMALL)
    for number in range(5000):
        name = f"c{number}"
        pulse.feed(beat(number / 10, name, error=number % 90, connection=connection(name)))
    assert len(pulse._clients) + len(pulse._apis) <= 2 * SMALL.top_rows
    assert len(pulse._connections) == sum(pulse._connections_of.values()) <= SMALL.connections
    assert len(pulse._connections_of) <= SMALL.connections
    assert len(pulse._failures) <= 100
    for _ in range(1000):
        pulse.now()
    assert len(pulse._arrivals) <= 101


def test_a_clock_that_is_set_back_is_followed() -> None:
    pulse = fed(beat(0), beat(1e9))
    assert now(pulse, 1).now_ns == at(1)
    assert now(pulse, 0.5).now_ns == at(1)  # what comes a little late sets nothing back
    pulse.feed(beat(1.5))
    assert now(pulse, 2).all.per_second > 0


def test_packets_by_second() -> None:
    pulse = fed(beat(0))
    now(pulse, 1, 100)
    assert now(pulse, 5, 500).packets_per_second == 100
    assert now(pulse, 30, 500).packets_per_second == 0


def test_a_small_cluster() -> None:
    current = busy().now()
    assert {row.name for row in current.clients} == {"app", "shop", "reader"}
    assert {row.name for row in current.topics} == {"orders", "refunds"}
    (group,) = current.groups
    assert (group.state, group.members, group.lag, group.worst_partition) == (
        "stable",
        1,
        510,
        ("orders", 0, 510),
    )
    assert current.rebalances[0].group == "g"


@pytest.mark.parametrize("name", ["kafka-4-storm.pcap.gz", "kafka-4-cluster.pcap.gz", "quickstart.pcap"])
def test_real_captures_add_up(name: str) -> None:
    pulse, exchanges = Pulse(), 0
    with open_capture(Path("samples") / name) as packets:
        for each in dissect(packets):
            pulse.feed(Facts(each))
            exchanges += 1
            if not exchanges % 50:
                current = pulse.now()
                rates = [row.per_second for row in current.clients]
                assert sum(rates) == pytest.approx(current.all.per_second)
    assert pulse.exchanges == exchanges
