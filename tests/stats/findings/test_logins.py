"""Logins with a lifetime, packet by packet."""

from __future__ import annotations

from tests.frames import heartbeats, request, response
from tests.segments import ACK, FIN, Talk
from tests.stats.findings.test_troubles import SASL_AUTHENTICATE, rules, talk

SASL_HANDSHAKE = 17


def logged_in(*lifetimes_ms: int) -> Talk:
    """Logins four seconds apart, and a request five seconds after the last, at which the broker closes."""
    one = talk().handshake()
    for number, lifetime_ms in enumerate(lifetimes_ms):
        shaken = {"error_code": 0, "mechanisms": ["PLAIN"]}
        answer = {
            "error_code": 0,
            "error_message": None,
            "auth_bytes": b"",
            "session_lifetime_ms": lifetime_ms,
        }
        for place, (api, sent, received) in enumerate(
            (
                (SASL_HANDSHAKE, {"mechanism": "PLAIN"}, shaken),
                (SASL_AUTHENTICATE, {"auth_bytes": b"\0user\0secret"}, answer),
            )
        ):
            correlation_id = 1 + 2 * number + place
            one.client_sends(request(api, 1, sent, correlation_id=correlation_id))
            one.broker_sends(response(api, 1, received, correlation_id=correlation_id)).client_acks()
        one.waits(4)
    one.waits(1).client_sends(heartbeats(1, first=9)[0]).broker_acks()
    return one.put(1, FIN | ACK)


def test_the_last_login_sets_the_lifetime() -> None:
    assert "session-expired" in rules(logged_in(4000))
    assert "session-expired" in rules(logged_in(60_000, 4000))
    assert "session-expired" not in rules(logged_in(4000, 60_000))
    assert "session-expired" not in rules(logged_in(4000, 0)), "the last one has none"
