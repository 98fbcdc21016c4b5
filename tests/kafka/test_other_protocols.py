"""Streams that begin like another protocol, or with a SASL token."""

from __future__ import annotations

import struct

from kdissect.kafka.recognition import is_gssapi_token, other_protocol
from tests.frames import heartbeats, request_payload


def test_what_tls_and_http_look_like() -> None:
    assert other_protocol(bytes.fromhex("16030100c8010000c40303")) == "TLS"
    assert other_protocol(bytes.fromhex("1703030020") + bytes(32)) == "TLS"
    assert other_protocol(b"POST / HTTP/1.1\r\n") == "HTTP"
    assert other_protocol(b"HTTP/1.1 200 OK\r\n") == "HTTP"
    assert other_protocol(b"SSH-2.0-OpenSSH") == "SSH"
    assert other_protocol(heartbeats(1)[0]) is None


def test_a_gssapi_token_is_reported_by_its_der_length() -> None:
    token = b"\x60\x82\x01\x00" + bytes(256)
    assert is_gssapi_token(struct.pack(">i", len(token)) + token)
    assert is_gssapi_token(struct.pack(">i", 7) + b"\x60\x05hello")
    assert not is_gssapi_token(struct.pack(">i", 9) + b"\x60\x05hello")
    assert not is_gssapi_token(request_payload(12, 4))
