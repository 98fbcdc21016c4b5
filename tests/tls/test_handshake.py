"""Sessions that stay encrypted: what their hellos say, which OpenSSL wrote."""

from __future__ import annotations

import pytest

from kdissect.limits import DEFAULT
from kdissect.model import Data, TlsSession
from kdissect.net.connection import Connections
from kdissect.net.tcp import Segments
from kdissect.tls.handshake import Hellos
from tests.tls.sessions import SERVER_NAME, TlsSettings, TlsTalk


def payloads(settings: TlsSettings) -> list[tuple[int, bytes]]:
    """Sides and bytes of a handshake."""
    segments, connections = Segments(DEFAULT), Connections(DEFAULT)
    return [
        (side, item.payload)
        for packet in TlsTalk(settings).opens().packets
        if (segment := segments.feed(packet))
        for _, side, item in connections.feed(segment)
        if isinstance(item, Data)
    ]


@pytest.mark.parametrize("step", [1, 7, 1 << 16])
@pytest.mark.parametrize(
    ("version", "cipher", "name"),
    [
        ("TLS 1.3", "TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
        ("TLS 1.2", "ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        ("TLS 1.0", "AES256-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA"),
        ("TLS 1.2", "ECDHE-RSA-CAMELLIA128-SHA256", "0xc076"),
    ],
)
def test_the_session(version: str, cipher: str, name: str, step: int) -> None:
    hellos = Hellos()
    for side, payload in payloads(TlsSettings(version, cipher)):
        for start in range(0, len(payload), step):
            hellos.feed(side, payload[start : start + step])
    assert hellos.session == TlsSession(version, name, SERVER_NAME)


def test_a_direction_with_a_gap() -> None:
    flights = payloads(TlsSettings())
    client, server = (next(payload for each, payload in flights if each == side) for side in (0, 1))
    hellos = Hellos()
    hellos.feed(0, client[:20])
    hellos.lose(0)
    hellos.feed(0, client[30:])
    assert hellos.session is None
    hellos.feed(1, server)
    assert hellos.session == TlsSession("TLS 1.3", "TLS_AES_256_GCM_SHA384")


@pytest.mark.parametrize("damage", range(0, 120, 3))
def test_a_damaged_hello(damage: int) -> None:
    (_, client), *_ = payloads(TlsSettings())
    hellos = Hellos()
    hellos.feed(0, client[:damage] + bytes((client[damage] ^ 0xFF,)) + client[damage + 1 :])
    assert hellos.session is None or (hellos.session.version, hellos.session.cipher) == (None, None)


def test_what_is_not_a_hello() -> None:
    hellos = Hellos()
    for _ in range(2000):
        hellos.feed(0, b"\x16\3\3\x40\0" + bytes(100))
    assert hellos.session is None
