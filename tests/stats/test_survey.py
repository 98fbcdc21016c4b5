from __future__ import annotations

import pickle
from collections import Counter
from typing import TYPE_CHECKING

from kdissect.limits import DEFAULT, Limits
from kdissect.model import Anomaly
from kdissect.pipeline import Dissection
from kdissect.stats.check import build_check
from kdissect.stats.survey import AnomalyCount, Survey
from tests.cli.commands import talk
from tests.exchange_factory import exchange
from tests.segments import Talk

if TYPE_CHECKING:
    from kdissect.model import Exchange

TLS_HELLO = bytes.fromhex("16030100 05 0100 0001 00")


def surveyed(*talks: Talk, limits: Limits = DEFAULT) -> Survey:
    observer = Survey(limits)
    packets = sorted((packet for each in talks for packet in each.packets), key=lambda packet: packet.time_ns)
    for each in Dissection(observer.watch(packets), observer=observer):
        observer.exchange(each)
    return observer


def observed(*exchanges: Exchange, limits: Limits = DEFAULT) -> Survey:
    observer = Survey(limits)
    for each in exchanges:
        observer.exchange(each)
    return observer


def odd(*kinds: str, **how: object) -> Exchange:
    odd_exchange = exchange(request={}, response={}, **how)  # type: ignore[arg-type]
    odd_exchange.anomalies = [Anomaly(kind, "request", "") for kind in kinds]
    return odd_exchange


def test_connections() -> None:
    middle = talk(client=("10.0.0.3", 40_000))
    del middle.packets[:3]
    one_sided = talk(client=("10.0.0.4", 40_000))
    one_sided.packets = [packet for packet in one_sided.packets if packet.data[29] == 4]
    six = talk(client=("fd00::1", 40_000), broker=("fd00::2", 9092))
    observer = surveyed(talk(), middle, one_sided, six)
    assert observer.protocols == {"Kafka": 4}
    assert observer.ends == {"end": 4}
    assert (observer.from_start, observer.one_sided, observer.ipv6) == (3, 1, 1)
    assert observer.census.files["test.pcap"].packets == sum(
        len(each.packets) for each in (talk(), middle, one_sided, six)
    )


def test_responses_whose_requests_were_not_captured_are_not_whole() -> None:
    responses = talk()
    responses.packets = [packet for packet in responses.packets if packet.data[29] == 2]
    observer = surveyed(responses)
    assert (observer.from_start, observer.one_sided, observer.whole) == (1, 1, 0)
    assert set(observer.kinds) == {"orphan"}


def test_answering_endpoints_of_other_protocols() -> None:
    first = Talk(client=("10.0.0.1", 50_000), broker=("10.0.0.2", 9093)).handshake().client_sends(TLS_HELLO)
    again = Talk(client=("10.0.0.1", 50_001), broker=("10.0.0.2", 9093)).client_sends(TLS_HELLO)
    answer = Talk(client=("10.0.0.2", 9093), broker=("10.0.0.1", 50_002)).client_sends(TLS_HELLO)
    observer = surveyed(first, again, answer)
    assert observer.unread == {("TLS", "10.0.0.2:9093"): 3}


def test_ends_are_bounded() -> None:
    talks = [
        Talk(client=("10.0.0.1", 50_000), broker=("10.0.0.2", port)).handshake().client_sends(TLS_HELLO)
        for port in (1, 2, 1)
    ]
    observer = Survey(Limits(check_rows=1))
    for each in talks:
        list(Dissection(each.packets, observer=observer))
    assert observer.unread == {("TLS", "10.0.0.2:1"): 2}
    assert observer.protocols == {"TLS": 3}


def test_complete_exchanges_lack_nothing() -> None:
    observer = observed(
        exchange(request={}, response={}),
        exchange(request={}, kind="unacknowledged"),
        odd("trailing_bytes"),
        odd("uncaptured_body"),
        odd("malformed_body"),
        exchange(request={}),
        exchange(response={}),
    )
    assert observer.kinds == {"answered": 4, "unacknowledged": 1, "unanswered": 1, "orphan": 1}
    assert observer.complete == 3


def test_anomalies_are_counted_by_exchange_with_the_first_as_example() -> None:
    observer = observed(odd("gap", "gap", "trailing_bytes", number=7), odd("gap", number=8))
    order = odd(number=7).order
    assert observer.anomalies == {
        "gap": AnomalyCount(2, "c0ffee/7", order),
        "trailing_bytes": AnomalyCount(1, "c0ffee/7", order),
    }


def test_the_example_of_an_anomaly_is_the_earliest_however_late_it_comes() -> None:
    first, second = (odd("gap", number=number, completed_ns=number) for number in (7, 8))
    assert observed(second, first).anomalies == observed(first, second).anomalies


def test_surveys_of_parts_add_up() -> None:
    connections = [talk(client=("10.0.0.1", 40_000 + number)) for number in range(4)]
    whole, parts = surveyed(*connections), Survey(DEFAULT)
    for part in (surveyed(*connections[2:]), surveyed(*connections[:2])):
        parts.merge(pickle.loads(pickle.dumps(part)))
    for name in ("protocols", "ends", "kinds", "outcomes", "complete", "whole", "anomalies", "from_start"):
        assert getattr(parts, name) == getattr(whole, name), name
    assert set(parts.listeners) == set(whole.listeners)


def test_unknown_versions() -> None:
    observer = observed(odd("unknown_version", version=99), odd("unknown_version", version=99), odd("gap"))
    assert observer.unknown == {(3, 99): 2}


def test_anomalies_of_one_exchange_are_listed_by_name() -> None:
    """In a set, their order depends on the hashes of texts, which differ between processes."""
    kinds = ("unexpected_null", "trailing_bytes", "duplicate_correlation_id", "unexpected_response")
    part = build_check([], observed(odd(*kinds)), Counter(), Counter(), [])
    assert [each.anomaly for each in part.anomalies] == sorted(kinds)
