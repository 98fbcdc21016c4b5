"""Which errors are normal steps of the protocol, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from kdissect.exchanges.expected import expected_errors
from kdissect.kafka import apis, codes
from kdissect.pipeline import dissect
from tests.exchange_factory import START_NS, connection, exchange
from tests.frames import API_VERSIONS, request, response
from tests.segments import Talk

SECOND_NS = 1_000_000_000


def after(seconds: float, api: str = "Fetch", **more: Any) -> Any:
    return exchange(api, 4, {}, {}, completed_ns=START_NS + round(seconds * SECOND_NS), **more)


def test_the_table_names_errors_and_apis_that_exist() -> None:
    table = codes.rows("expected.tsv")
    assert {row["error"] for row in table} <= {error.name for error in codes.all_errors()}
    named = {api for row in table for api in row["apis"].split() if api != "*"}
    assert named <= {api.name for api in apis.all_apis()}
    assert {row["new_after_s"] for row in table} == {"0", "2", "60"}
    assert all(row["reason"].endswith(".") for row in table)


@pytest.mark.parametrize(
    ("api", "error", "expected"),
    [
        ("ApiVersions", "UNSUPPORTED_VERSION", True),
        ("Produce", "UNSUPPORTED_VERSION", False),
        ("JoinGroup", "MEMBER_ID_REQUIRED", True),
        ("Heartbeat", "REBALANCE_IN_PROGRESS", True),
        ("OffsetCommit", "REBALANCE_IN_PROGRESS", False),
        ("CreateTopics", "TOPIC_ALREADY_EXISTS", True),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", True),
        ("OffsetCommit", "NOT_COORDINATOR", True),
        ("Produce", "NOT_LEADER_OR_FOLLOWER", True),
        ("Produce", "NOT_ENOUGH_REPLICAS", False),
        ("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", False),
        ("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED", False),
    ],
)
def test_errors_by_api(api: str, error: str, expected: bool) -> None:
    assert expected_errors(after(0, api), [error]) == ((error,) if expected else ())


def test_an_error_that_goes_on_is_serious_until_it_was_gone_for_a_while() -> None:
    moved = ["NOT_LEADER_OR_FOLLOWER"]
    info = connection()
    times = [0, 0.1, 4, 5, 5.1, 20, 70, 131, 135, 137]
    result = [bool(expected_errors(after(seconds, connection=info), moved)) for seconds in times]
    assert result == [True, True, True, True, False, False, False, True, True, False]
    assert expected_errors(after(6, connection=connection("other")), moved)
    assert expected_errors(after(200, connection=info), ["UNKNOWN_TOPIC_ID", *moved]) == tuple(moved)


def test_each_transaction_may_wait_for_the_one_before() -> None:
    info = connection()
    waits = ["CONCURRENT_TRANSACTIONS"]
    times = [0, 3, 4.5, 6, 8.1]  # of several transactions; then one that does not end
    result = [bool(expected_errors(after(each, "Produce", connection=info), waits)) for each in times]
    assert result == [True] * 5
    stuck = [bool(expected_errors(after(20 + each, "Produce", connection=info), waits)) for each in range(8)]
    assert stuck == [True] * 6 + [False] * 2


def test_version_negotiation_is_no_anomaly() -> None:
    rejected = response(API_VERSIONS, 0, {"error_code": 35})
    for answer in (rejected, (6).to_bytes(4, "big") + rejected[4:10]):  # some brokers send the error alone
        talk = Talk().handshake().client_sends(request(API_VERSIONS, 4)).broker_sends(answer).finish()
        (result,) = dissect(talk.packets)
        assert (result.errors, result.expected_errors) == (["UNSUPPORTED_VERSION"], ("UNSUPPORTED_VERSION",))
        assert result.anomalies == []
