from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.limits import DEFAULT
from kdissect.stats.findings.logins import Sasl
from tests.findings import findings_of
from tests.producers import facts_of

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts


def login(number: int, error: int) -> Facts:
    answer = {"error_code": error, "error_message": None, "auth_bytes": b""}
    return facts_of("SaslAuthenticate", 0, number, {"auth_bytes": b""}, answer, sasl_mechanism="PLAIN")


def test_logins_that_fail() -> None:
    (row,) = findings_of(Sasl, [login(1, 58)])
    assert row.subject == "client payments at 10.0.0.8"
    assert row.message == "login with PLAIN failed once: SASL_AUTHENTICATION_FAILED"
    assert row.severity == "warning"
    (row,) = findings_of(Sasl, [login(number, 58) for number in range(12)])
    assert (row.severity, row.count) == ("error", 12)


def test_a_mechanism_that_the_broker_does_not_have() -> None:
    refused = {"error_code": 33, "mechanisms": ["PLAIN"]}
    (row,) = findings_of(Sasl, [facts_of("SaslHandshake", 1, 1, {"mechanism": "GSSAPI"}, refused)])
    assert row.message == "login with GSSAPI failed once: UNSUPPORTED_SASL_MECHANISM; the listener has PLAIN"


def test_logins_that_work() -> None:
    assert findings_of(Sasl, [login(number, 0) for number in range(12)]) == []


def test_mechanisms_of_many_responses_take_bounded_room() -> None:
    def refused(number: int, mechanisms: list[str] | None) -> Facts:
        answer = {"error_code": 33, "mechanisms": mechanisms}
        return facts_of("SaslHandshake", 1, number, {"mechanism": "GSSAPI"}, answer)

    (row,) = findings_of(Sasl, [refused(1, None)])
    assert row.message == "login with GSSAPI failed once: UNSUPPORTED_SASL_MECHANISM"
    many = Sasl(DEFAULT)
    for number in range(1, 50):
        many.feed(refused(number, [f"{number}-{'A' * 3000}"]))
    (each,) = many.kept.values()
    assert len(each.offered) == 10
    assert all(len(name) < 1100 for name in each.offered)
