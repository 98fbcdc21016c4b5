"""DNS responses: what is read of them, compared with scapy; nothing makes it fail."""

from __future__ import annotations

from typing import Any

import pytest
import scapy.all as s
from hypothesis import given
from hypothesis import strategies as st

from kdissect.net.dns import Resolved, resolved


def response(name: str, *records: Any, sport: int = 53, **fields: Any) -> bytes:
    answers = [s.DNSRR(rrname=owner, type=of, rdata=data) for owner, of, data in records]
    message = s.DNS(qr=1, qd=s.DNSQR(qname=name), an=answers) if "qr" not in fields else s.DNS(qd=s.DNSQR())
    for field, value in fields.items():
        message.setfieldval(field, value)
    return bytes(s.UDP(sport=sport, dport=40000) / message)


def test_addresses_behind_aliases() -> None:
    data = response(
        "Kafka-0.example.org",
        ("Kafka-0.example.org", "CNAME", "b.example.org"),
        ("b.example.org", "A", "10.0.0.2"),
        ("b.example.org", "AAAA", "2001:db8::2"),
        ("b.example.org", "TXT", b"ABCD"),
    )
    assert resolved(data) == Resolved("kafka-0.example.org", ["10.0.0.2", "2001:db8::2"])


def test_compressed_names() -> None:
    """Most servers write the name in the question as a pointer to it."""
    question = b"\5kafka\0\0\1\0\1"
    answer = b"\xc0\x0c\0\1\0\1\0\0\0\x1e\0\4\x0a\0\0\2"
    header = bytes.fromhex("abcd 8180 0001 0001 0000 0000")
    data = b"\0\x35\x9c\x40" + bytes(4) + header + question + answer
    assert s.DNS(data[8:]).an[0].rdata == "10.0.0.2"
    assert resolved(data) == Resolved("kafka", ["10.0.0.2"])
    assert resolved(data[:-1]) == Resolved("kafka", [])


def test_what_is_no_answer() -> None:
    assert resolved(response("kafka", rcode=3)) == Resolved("kafka", None)
    assert resolved(response("kafka")) == Resolved("kafka", [])
    assert resolved(response("kafka", rcode=2)) is None
    assert resolved(response("kafka", opcode=5)) is None
    assert resolved(response("kafka", qr=0)) is None
    assert resolved(response("kafka", sport=5353)) is None
    assert resolved(b"") is None


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    resolved(b"\0\x35" + data)


@pytest.mark.parametrize("size", range(60))
def test_truncated(size: int) -> None:
    whole = response("kafka.example.org", ("kafka.example.org", "A", "10.0.0.2"))
    assert resolved(whole[:size]) in (None, Resolved("kafka.example.org", []))
