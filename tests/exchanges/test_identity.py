from __future__ import annotations

import pytest

from kdissect.exchanges.kafka_connection import Identity, user_of
from kdissect.model import ANSWERED, ConnectionInfo, Endpoint, Exchange
from tests.frames import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    frame,
    request_payload,
    response_payload,
)


@pytest.mark.parametrize(
    ("mechanism", "token", "user"),
    [
        ("PLAIN", b"\0alice\0secret", "alice"),
        ("PLAIN", b"admin\0alice\0secret", "alice"),
        ("PLAIN", b"alice", None),
        ("PLAIN", b"\0\xff\0secret", "\\xff"),
        ("SCRAM-SHA-512", b"n,,n=bob,r=nonce", "bob"),
        ("SCRAM-SHA-512", b"n,a=admin,n=b=2Cob=3D,r=nonce", "b,ob="),
        ("SCRAM-SHA-512", b"n,,r=nonce", None),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer h.eyJzdWIiOiJjYXJvbCJ9.s\x01\x01", "carol"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer not-a-jwt\x01\x01", None),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer h.%%%.s\x01\x01", None),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer h.WzFd.s\x01\x01", None),
        ("GSSAPI", b"\x60\x05hello", None),
        (None, b"\0alice\0secret", None),
    ],
)
def test_the_user_that_a_first_token_names(mechanism: str | None, token: bytes, user: str | None) -> None:
    assert user_of(mechanism, token) == user


def identity() -> tuple[Identity, ConnectionInfo]:
    info = ConnectionInfo("0123456789ab", Endpoint("10.0.0.1", 40000), Endpoint("10.0.0.2", 9092))
    return Identity(info), info


def exchange(
    info: ConnectionInfo, api: int, version: int, request: bytes, answered: bytes | None
) -> Exchange:
    response = None if answered is None else frame(answered)
    return Exchange(info, 1, ANSWERED, frame(request), response, api, version, 1)


def test_software_is_written_on_the_exchange_that_has_it() -> None:
    who, info = identity()
    request = request_payload(
        API_VERSIONS, 3, {"client_software_name": "lib", "client_software_version": "9"}
    )
    result = exchange(info, API_VERSIONS, 3, request, None)
    who.learn(result)
    assert (result.client_software_name, result.client_software_version) == ("lib", "9")
    older = exchange(info, API_VERSIONS, 0, request_payload(API_VERSIONS, 0), None)
    who.learn(older)
    assert older.client_software_name == "lib"


def test_authentication_again_with_another_user_replaces_the_principal() -> None:
    who, info = identity()
    for user in (b"alice", b"bob"):
        who.on_handshake(frame(request_payload(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})))
        request = request_payload(SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0" + user + b"\0x"})
        done = exchange(info, SASL_AUTHENTICATE, 2, request, response_payload(SASL_AUTHENTICATE, 2))
        who.learn(done)
        assert done.principal == f"User:{user.decode()}"
        assert not who.raw_tokens


def test_a_refusal_or_no_answer_makes_nobody() -> None:
    who, info = identity()
    who.on_handshake(frame(request_payload(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})))
    request = request_payload(SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0eve\0x"})
    for answered in (response_payload(SASL_AUTHENTICATE, 2, {"error_code": 58}), None):
        refused = exchange(info, SASL_AUTHENTICATE, 2, request, answered)
        who.learn(refused)
        assert refused.principal is None
