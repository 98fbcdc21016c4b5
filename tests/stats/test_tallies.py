"""Tallies: what is counted of one exchange and of several that are alike, and their sums."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import TYPE_CHECKING, Any

from kdissect import core
from kdissect.cli.main import main
from kdissect.limits import DEFAULT
from kdissect.stats.contents import COUNTED_BY_CORE, ONE, SUM
from kdissect.stats.facts import Facts
from kdissect.stats.findings.rules import Findings
from kdissect.stats.tallies import Alike, Load, Summing
from kdissect.stats.traffic import TrafficTables
from tests.captures import pcap
from tests.core import needs_core
from tests.exchange_factory import START_NS, connection, exchange
from tests.usual_traffic import usual_traffic

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def load(*facts: Facts) -> Load:
    result = Load()
    for each in facts:
        result.add(each)
    return result


def heartbeat(
    error: int = 0, *, throttle_ms: int = 0, latency_ns: int = 5_000_000, after_ns: int = 0
) -> Facts:
    answer = {"throttle_time_ms": throttle_ms, "error_code": error}
    return Facts(
        exchange(
            "Heartbeat", 3, {"group_id": "g"}, answer, latency_ns=latency_ns, time_ns=START_NS + after_ns
        )
    )


def test_what_is_counted() -> None:
    result = load(heartbeat(), heartbeat(27, throttle_ms=40, latency_ns=7_000_000, after_ns=9))
    assert result.exchanges == 2
    assert dict(result.kinds) == {"answered": 2}
    assert (result.request_bytes, result.response_bytes) == (200, 400)
    assert (result.service_us.min, result.service_us.max) == (5000, 7000)
    assert (result.failed, result.throttled, result.throttle_ms) == (1, 1, 40)
    assert (result.first_ns, result.last_ns) == (START_NS, START_NS + 9)


def test_what_has_no_answer_has_no_latency() -> None:
    result = load(Facts(exchange("Heartbeat", 3, {"group_id": "g"})))
    assert dict(result.kinds) == {"unanswered": 1}
    assert result.service_us.count == 0
    assert result.response_bytes == 0


def test_merged_it_is_the_load_of_all() -> None:
    first, second = heartbeat(after_ns=5), heartbeat(27, throttle_ms=3)
    result = load(first)
    result.merge(load(second))
    result.merge(Load())
    both = load(first, second)
    for name in ("kinds", "request_bytes", "response_bytes", "failed", "throttled", "throttle_ms"):
        assert getattr(result, name) == getattr(both, name)
    assert (result.first_ns, result.last_ns) == (both.first_ns, both.last_ns) == (START_NS, START_NS + 5)
    assert result.service_us.count == 2


def counted(one: Alike) -> dict[str, Any]:
    """What a sum says."""
    times = {name: getattr(one, name).buckets() for name in ("service_us", "wait_us", "total_us")}
    plain = ("kinds", "request_bytes", "response_bytes", "undetermined", "first_ns", "last_ns", "first")
    return {**times, **{name: getattr(one, name) for name in plain}, "client": one.client}


def sums(*tallies: Facts | Alike) -> list[Alike]:
    result: list[Alike] = []
    summing = Summing(DEFAULT, [result.append])
    for each in tallies:
        summing.feed(each)
    summing.settle()
    return result


def test_a_sum_of_sums_is_that_of_the_exchanges() -> None:
    facts = [heartbeat(27 * (number % 2), after_ns=9 - number) for number in range(9)]
    parts = sums(*facts[:4]) + sums(*facts[4:])
    again = reversed(deepcopy(parts))  # what is fed becomes a sum
    results = [list(map(counted, sums(*tallies))) for tallies in (facts, parts, again)]
    assert [each["kinds"]["answered"] for each in results[0]] == [5, 4]  # without and with an error
    assert results[0] == results[1]
    assert sorted(results[2], key=str) == sorted(results[0], key=str)


@needs_core
def test_the_core_makes_the_same_tallies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "usual.pcap"
    path.write_bytes(pcap(usual_traffic(Random(7), 100)))
    tallies: list[dict[Any, Any]] = []

    def noted(_: TrafficTables, tally: Alike) -> None:
        tallies[-1][tally.connection.client.ip, tally.broker, tally.keys] = counted(tally)

    monkeypatch.setattr(TrafficTables, "feed", noted)
    for is_used in (core.is_used, False):
        monkeypatch.setattr(core, "is_used", is_used)
        tallies.append({})
        assert main(["summary", "-j", "1", "--json", str(path)]) == 0
    assert len(tallies[0]) > 20
    assert tallies[0] == tallies[1]


def test_rules_get_the_forms_that_they_take() -> None:
    rules = Findings(DEFAULT).of_connections

    def names(form: str, api: str, *, has_flaw: bool = False) -> set[str]:
        given = {rule.name for rule in rules.rules_for(form, api, has_flaw=has_flaw)}
        return given & {
            *("slow-broker", "advertised-listener-unreachable", "tls-port-mismatch", "broker-resets"),
            "unsupported-version-loop",
        }

    assert names(ONE, "Metadata") == {"advertised-listener-unreachable"}
    assert names(ONE, "Produce") == set()
    assert names(ONE, "Produce", has_flaw=True) == {"tls-port-mismatch", "unsupported-version-loop"}
    assert names(COUNTED_BY_CORE, "Produce") == set()
    assert names(SUM, "Produce") == {
        *("slow-broker", "advertised-listener-unreachable", "unsupported-version-loop"),
    }


def test_a_sum_is_of_all_connections_between_two_ends() -> None:
    ports = range(100, 104)
    facts = [
        Facts(
            exchange("Heartbeat", 3, {"group_id": "g"}, {"error_code": 0}, connection=connection(str(port)))
        )
        for port in ports
    ]
    all_of_them: list[Alike] = []
    summing = Summing(DEFAULT, [all_of_them.append])
    for one in facts:
        one.connection.cluster_id = "A"
        summing.feed(one)
    assert not all_of_them
    summing.settle()
    (whole,) = all_of_them
    assert (whole.exchanges, whole.form) == (len(ports), SUM)
    assert len(whole.connections) == len(ports)
    summing.settle()
    assert len(all_of_them) == 1


def test_the_sums_of_connections_whose_cluster_is_not_known_differ() -> None:
    every: list[Alike] = []
    summing = Summing(DEFAULT, [every.append])
    for port in ("100", "101"):
        summing.feed(Facts(exchange("Heartbeat", 3, {"group_id": "g"}, connection=connection(port))))
    summing.settle()
    assert [one.exchanges for one in every] == [1, 1]
