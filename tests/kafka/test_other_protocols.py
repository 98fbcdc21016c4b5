"""Streams that begin like another protocol, or with a SASL token."""

from __future__ import annotations

import pytest

from kdissect.kafka.framing import Framing, PartialFrame
from kdissect.kafka.other_protocols import begins_with_token, can_be_size, other_protocol, sasl_mechanism
from kdissect.limits import Limits
from tests.frames import data, heartbeats, request_payload, sized


def test_what_tls_and_http_look_like() -> None:
    assert other_protocol(bytes.fromhex("16030100c8010000c40303")) == "TLS"
    assert other_protocol(bytes.fromhex("1703030020") + bytes(32)) == "TLS"
    assert other_protocol(b"POST / HTTP/1.1\r\n") == "HTTP"
    assert other_protocol(b"HTTP/1.1 200 OK\r\n") == "HTTP"
    assert other_protocol(b"SSH-2.0-OpenSSH") == "SSH"
    assert other_protocol(heartbeats(1)[0]) is None


KERBEROS = bytes.fromhex("06092a864886f712010202")


def gssapi(rest: bytes, length: int | None = None) -> bytes:
    """A token of Kerberos, with a ``length`` of its own."""
    content = KERBEROS + rest
    size = len(content) if length is None else length
    return b"\x60\x82" + size.to_bytes(2, "big") + content


def begins(token: bytes, captured: int | None = None, *, final: bool = True) -> bool | None:
    return begins_with_token((sized(token))[:captured], final=final)


def test_a_gssapi_token_is_recognized_by_its_der_length_or_its_mechanism() -> None:
    assert begins(b"\x60\x82\x01\x00" + bytes(256))
    assert begins(b"\x60\x05hello")
    assert not begins(b"\x60\x06hello")
    assert begins(gssapi(b"ticket"))
    assert begins(gssapi(b"ticket", length=591))
    assert not begins(gssapi(b"ticket", length=591).replace(KERBEROS, bytes(11)))
    assert not begins(b"\x60\x85\0\0\0\0\x01x")
    assert not begins(b"\x60")
    assert not begins(b"")
    assert not begins_with_token(request_payload(12, 4), final=True)


def test_a_token_may_come_byte_by_byte() -> None:
    token = gssapi(b"ticket", length=591)
    verdicts = [begins(token, captured, final=False) for captured in range(1, len(token) + 5)]
    assert set(verdicts) == {None, True}
    assert verdicts == sorted(verdicts, key=bool)
    assert begins(token, 12) is False
    assert begins_with_token(b"\x7f", final=False) is False
    assert begins_with_token(b"\0\0\0\x09\0", final=False) is False
    assert begins_with_token(b"\0\xff\xff\xff\x60", final=False) is False


@pytest.mark.parametrize(
    ("token", "mechanism"),
    [
        (gssapi(b"ticket"), "GSSAPI"),
        (gssapi(b"ticket", length=591).replace(KERBEROS, b"\6\3\1\2\3"), "GSSAPI"),
        (b"\x60\x05hello", "GSSAPI"),
        (b"\x60\x06hello", None),
        (b"\0alice\0hunter2", "PLAIN"),
        ("boss\0älice\0hunter2".encode(), "PLAIN"),
        (b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL", "SCRAM"),
        (b"y,a=boss,n=alice,r=fyko", "SCRAM"),
        (b"p=tls-server-end-point,,n=alice,r=fyko", "SCRAM"),
        (b"n,,\x01auth=Bearer abc.def.ghi\x01\x01", "OAUTHBEARER"),
        (b"n,a=boss,\x01host=x\x01auth=Bearer abc\x01\x01", "OAUTHBEARER"),
        (b"\0alice\0", None),
        (b"\0\0hunter2", None),
        (b"alice\0hunter2", None),
        (b"\0alice\0hunter2\0", None),
        (b"n,,n=alice", None),
        (b"", None),
        (request_payload(12, 4), None),
    ],
)
def test_the_mechanism_of_a_first_token(token: bytes, mechanism: str | None) -> None:
    assert sasl_mechanism(token, len(token)) == mechanism


@pytest.mark.parametrize("beginning", [b"GET ", b"POST", b"HTTP", b"SSH-", b"\r\n\r\n", b"\x16\x03\x01\x02"])
def test_the_beginning_of_another_protocol_is_no_size(beginning: bytes) -> None:
    size = int.from_bytes(beginning, "big")
    assert not can_be_size(size, 1 << 31)
    assert can_be_size(size - (1 << 16), 1 << 31)
    framing = Framing(Limits(frame_max_bytes=1 << 31), lambda *_: None)
    framing.restore(PartialFrame(b"", b"", 0, 0))
    assert framing.feed(data(beginning + b"more")) == []
    assert not framing.synchronized
