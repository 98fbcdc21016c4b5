from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.stats.findings.brokers import Sasl
from tests.findings import found
from tests.producers import told

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts


def login(number: int, error: int) -> Facts:
    answer = {"error_code": error, "error_message": None, "auth_bytes": b""}
    return told("SaslAuthenticate", 0, number, {"auth_bytes": b""}, answer, sasl_mechanism="PLAIN")


def test_logins_that_fail() -> None:
    (row,) = found(Sasl, [login(1, 58)])
    assert row.about == "client payments at 10.0.0.8"
    assert row.sentence == "login by PLAIN failed once: SASL_AUTHENTICATION_FAILED"
    assert row.severity == "warning"
    (row,) = found(Sasl, [login(number, 58) for number in range(12)])
    assert (row.severity, row.count) == ("error", 12)


def test_a_mechanism_that_the_broker_does_not_have() -> None:
    refused = {"error_code": 33, "mechanisms": ["PLAIN"]}
    (row,) = found(Sasl, [told("SaslHandshake", 1, 1, {"mechanism": "GSSAPI"}, refused)])
    assert row.sentence == "login by GSSAPI failed once: UNSUPPORTED_SASL_MECHANISM"


def test_logins_that_work() -> None:
    assert found(Sasl, [login(number, 0) for number in range(12)]) == []
