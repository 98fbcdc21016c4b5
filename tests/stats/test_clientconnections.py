from __future__ import annotations

import json
from contextlib import nullcontext
from operator import attrgetter
from typing import TYPE_CHECKING

import pytest

from kdissect import dissect, summarize
from kdissect.net.tcp import ACK, RST, SYN
from tests.cli.commands import run
from tests.core import without_core
from tests.frames import METADATA, request, response
from tests.segments import START_NS, Talk

if TYPE_CHECKING:
    from kdissect.stats.document import Summary

BROKER = ("10.0.0.2", 9092)
SECOND_NS = 10**9
IDLE = 9  # seconds


def talk(number: int, *, requests: int = 1, answered: int = 1, seconds: int = 0) -> Talk:
    """A connection that has not ended."""
    result = Talk((f"10.0.1.{number % 3}", 40_000 + number), start_ns=START_NS + number * 1000).handshake()
    for each in range(requests):
        result.client_sends(request(METADATA, 7, {"topics": None}, correlation_id=each, client_id="app"))
        if each < answered:
            result.broker_sends(response(METADATA, 7, {"topics": []}, correlation_id=each))
    result.time_ns += seconds * SECOND_NS
    return result


def attempt(number: int, broker: tuple[str, int] = BROKER) -> Talk:
    """A connection that is refused."""
    result = Talk((f"10.0.1.{number % 3}", 50_000 + number), broker)
    return result.put(0, SYN, acknowledgment=0).put(1, RST | ACK, sequence=0)


def summary(*talks: Talk, interval_s: float = 1) -> Summary:
    packets = sorted((packet for each in talks for packet in each.packets), key=attrgetter("time_ns"))
    return summarize(dissect(packets), parts=("client_connections",), interval_s=interval_s)


def test_the_most_harmful_connections_come_first() -> None:
    document = summary(
        talk(1).finish(),
        talk(2, seconds=IDLE).finish(),
        talk(3, requests=3).finish(),
        talk(4).reset(1),
        attempt(5),
        attempt(6, ("10.9.9.9", 22)),
        talk(7, requests=2),
    )
    rows = document.connections_over_time
    assert rows is not None
    assert [(row.client, row.ending, row.exchanges, row.outstanding) for row in rows] == [
        ("app", "broker RST", 1, 0),
        ("10.0.1.2", "refused", 0, 0),
        ("app", "client FIN", 3, 2),
        ("app", "open", 2, 1),
        ("app", "client FIN", 1, 0),
        ("app", "client FIN", 1, 0),
    ]
    seconds = [int((row.end - row.start).total_seconds()) for row in rows]
    assert seconds == [0, 0, 0, 0, IDLE, 0]
    assert len({row.connection for row in rows}) == len(rows)


def test_they_are_few_of_each_kind() -> None:
    talks = [talk(number, seconds=number).finish() for number in range(40)]
    talks += [attempt(number) for number in range(40)]
    rows = summary(*talks).connections_over_time
    assert rows is not None
    assert [row.ending for row in rows] == ["refused"] * 25 + ["client FIN"] * 25
    seconds = [int((row.end - row.start).total_seconds()) for row in rows[25:]]
    assert seconds == [*range(39, 14, -1)]


def test_without_a_time_series_there_are_none() -> None:
    assert summary(talk(1), interval_s=0).connections_over_time is None


def test_hosts() -> None:
    rows = summary(
        *map(talk, range(7)), *map(attempt, range(4)), attempt(8, ("10.9.9.9", 22))
    ).host_connections
    assert rows is not None
    broker = f"{BROKER[0]}:{BROKER[1]}"
    assert [(row.host, row.broker, row.connections, row.failed) for row in rows] == [
        ("10.0.1.0", broker, 3, 2),
        ("10.0.1.1", broker, 2, 1),
        ("10.0.1.2", broker, 2, 1),
    ]
    assert rows[0].bytes * 2 == rows[1].bytes * 3 > 0
    assert [row.round_trip_us.count for row in rows] == [3, 2, 2]
    assert rows[1].segments * 3 == rows[0].segments * 2 > 0


def test_what_a_host_and_a_broker_exchange(capsys: pytest.CaptureFixture[str]) -> None:
    """As recorded: images-small has a delay of 40 ms to the brokers; the truth is in the .json beside it."""
    capture = "tests/cluster/tiny-window.pcap.zst"
    document = json.loads(run(capsys, "summary", "--connections", "--json", capture).out)
    rows = {(row["host"], row["broker"]): row for row in document["host_connections"]}
    far = [row for (host, _), row in rows.items() if row["round_trip_us"]["p50"] > 35_000]
    assert {row["host"] for row in far} == {"10.99.0.13"}
    slow = rows["10.99.0.13", "10.99.0.2:9092"]
    assert 25_000 < slow["bytes_per_second"] < 35_000, "some 30 kB/s through its window"
    lossy = "samples/troubles/loss.pcap.gz"
    (row,) = json.loads(run(capsys, "summary", "--connections", "--json", lossy).out)["host_connections"]
    assert (row["lost"], row["segments"]) == (22, 626)


@pytest.mark.parametrize("is_pure", [False, True])
def test_retransmissions_and_lost_bytes_have_times(is_pure: bool) -> None:
    lossy = Talk(("10.0.1.1", 40_000)).handshake()
    for number in range(6):
        lossy.client_sends(request(METADATA, 7, {"topics": None}, correlation_id=number, client_id="app"))
        lossy.time_ns += SECOND_NS // 4
        if number % 2:  # after 0.5, 1.5 and 2.5 seconds
            lossy.packets.append(lossy.packets[-1]._replace(time_ns=lossy.time_ns))
        lossy.time_ns += SECOND_NS // 4
        if number == 3:
            lossy.broker_skips(100)
        lossy.broker_sends(response(METADATA, 7, {"topics": []}, correlation_id=number))
    lossy.finish()
    with without_core() if is_pure else nullcontext():
        document = summary(lossy)
    rows = document.intervals or []
    [connections] = document.client_connections or []
    assert [row.retransmissions for row in rows] == [1, 1, 1, 0]
    assert connections.client_retransmissions == 3
    assert [row.lost_bytes for row in rows] == [0, 0, 100, 0]
    assert document.capture.lost_bytes == 100
