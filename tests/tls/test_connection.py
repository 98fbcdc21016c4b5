from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from kdissect.limits import DEFAULT
from kdissect.model import Data, Gap
from kdissect.net.connection import Connections
from kdissect.net.tcp import Segments
from kdissect.tls.connection import TlsConnection
from kdissect.tls.keylog import KeyLog
from tests.segments import START_NS
from tests.tls.sessions import SERVER_NAME, TlsSettings, TlsTalk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.model import Packet

SUITES_13 = (
    "TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_CCM_SHA256",
)  # fmt: skip
SUITES_12 = (
    "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES256-CCM", "ECDHE-ECDSA-AES128-CCM8", "DHE-RSA-AES256-CCM8", "DHE-RSA-AES128-SHA256",
    "ECDHE-RSA-AES256-SHA384", "ECDHE-ECDSA-AES128-SHA", "AES128-SHA", "AES256-SHA256", "AES256-GCM-SHA384",
)  # fmt: skip
ROUNDS = 12
RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891")  # RFC 8446 section 4.1.3


class Decrypted(NamedTuple):
    items: tuple[list[Data | Gap], list[Data | Gap]]
    connections: list[TlsConnection]

    def text(self, side: int) -> bytes:
        return b"".join(item.payload for item in self.items[side] if isinstance(item, Data))

    def missing(self, side: int) -> int:
        return sum(item.length for item in self.items[side] if isinstance(item, Gap))


def decrypted(packets: Iterable[Packet], log: KeyLog) -> Decrypted:
    segments, connections = Segments(DEFAULT), Connections(DEFAULT)
    known: dict[object, TlsConnection] = {}
    sessions: dict[bytes, tuple[bytes, str | None]] = {}
    items: tuple[list[Data | Gap], list[Data | Gap]] = ([], [])
    batches = [connections.feed(segment) for packet in packets if (segment := segments.feed(packet))]
    for connection, side, item in [event for events in (*batches, connections.close(0)) for event in events]:
        if isinstance(item, Data | Gap):
            if connection not in known:
                known[connection] = TlsConnection(log, connection.initiator, connection.from_start, sessions)
            for opened_side, opened in known[connection].feed(side, item):
                if isinstance(opened, Data | Gap):
                    items[opened_side].append(opened)
    return Decrypted(items, list(known.values()))


def log_of(settings: TlsSettings, without: bytes = b"no such label") -> KeyLog:
    log = KeyLog()
    log.add(b"".join(line for line in settings.key_log if without not in line))
    return log


def talk(settings: TlsSettings, rounds: int = ROUNDS, **options: object) -> TlsTalk:
    random = Random(rounds)
    conversation = TlsTalk(settings, **options).opens()  # type: ignore[arg-type]
    for _ in range(rounds):
        conversation.says(0, random.randbytes(random.randrange(1, 4000)))
        conversation.says(1, random.randbytes(random.randrange(1, 20_000)))
    return conversation


def assert_all(conversation: TlsTalk, result: Decrypted) -> None:
    for side in (0, 1):
        assert result.text(side) == bytes(conversation.sent[side])
        assert not result.missing(side)


@pytest.mark.parametrize("cipher", SUITES_13)
def test_suites_of_1_3(cipher: str) -> None:
    settings = TlsSettings("TLS 1.3", cipher)
    conversation = talk(settings)
    result = decrypted(conversation.packets, log_of(settings))
    assert_all(conversation, result)
    (tls,) = result.connections
    assert (tls.version, tls.cipher, tls.server_name, tls.reason) == ("TLS 1.3", cipher, SERVER_NAME, None)


@pytest.mark.parametrize("extension", ["all", "encrypt_then_mac", "extended_master_secret"])
@pytest.mark.parametrize("cipher", SUITES_12)
def test_suites_of_1_2(cipher: str, extension: str) -> None:
    without = {} if extension == "all" else {extension: False}
    settings = TlsSettings("TLS 1.2", cipher, "ec" if "ECDSA" in cipher else "rsa", **without)
    conversation = talk(settings, rounds=3)
    assert_all(conversation, decrypted(conversation.packets, log_of(settings)))


@pytest.mark.parametrize("encrypt_then_mac", [True, False])
@pytest.mark.parametrize("version", ["TLS 1.0", "TLS 1.1"])
def test_older_versions(version: str, encrypt_then_mac: bool) -> None:
    settings = TlsSettings(version, "AES256-SHA", encrypt_then_mac=encrypt_then_mac)
    conversation = talk(settings, rounds=3)
    result = decrypted(conversation.packets, log_of(settings))
    assert_all(conversation, result)
    assert result.connections[0].version == version


def test_small_segments() -> None:
    settings = TlsSettings()
    conversation = talk(settings, rounds=2, mss=7)
    assert_all(conversation, decrypted(conversation.packets, log_of(settings)))


def test_without_the_secrets_of_the_handshake() -> None:
    settings = TlsSettings()
    conversation = talk(settings)
    assert_all(conversation, decrypted(conversation.packets, log_of(settings, b"HANDSHAKE")))


@pytest.mark.parametrize("tickets", [True, False])
def test_a_resumed_session_without_a_line_of_its_own(tickets: bool) -> None:
    settings = TlsSettings("TLS 1.2", tickets=tickets)
    first = talk(settings, rounds=2)
    log = log_of(settings)
    later = first.time_ns + 1
    second = talk(
        settings, 2, session=first.ends_of_tls[0].get_session(), client=("10.0.0.1", 40001), start_ns=later
    )
    result = decrypted([*first.packets, *second.packets], log)
    assert result.text(0) == bytes(first.sent[0] + second.sent[0])
    assert result.text(1) == bytes(first.sent[1] + second.sent[1])


def test_lines_of_a_java_agent() -> None:
    settings = TlsSettings("TLS 1.2", tickets=False)
    conversation = talk(settings, rounds=2)
    client = conversation.ends_of_tls[0]
    hello = conversation.packets[4].data  # the ServerHello: its session ID is 32 bytes behind its random
    session_id = hello[14 + 20 + 20 + 5 + 4 + 2 + 32 + 1 :][:32]
    log = KeyLog()
    line = f"RSA Session-ID:{session_id.hex().upper()} Master-Key:{client.master_key().hex().upper()}\r\n"
    log.add(line.encode())
    assert_all(conversation, decrypted(conversation.packets, log))


def test_renegotiation() -> None:
    settings = TlsSettings("TLS 1.2")
    conversation = talk(settings, rounds=1)
    conversation.ends_of_tls[0].renegotiate()
    conversation.negotiates().says(0, b"again").says(1, b"and again")
    assert len({line.split()[1] for line in settings.key_log}) == 2
    assert_all(conversation, decrypted(conversation.packets, log_of(settings)))


@pytest.mark.parametrize("without", [b"no such label", b"HANDSHAKE"])
def test_a_hello_retry_request(without: bytes) -> None:
    """The server takes no key share that the client offers."""
    settings = TlsSettings()
    settings.server.set_tmp_ecdh(ec.SECP521R1())
    conversation = talk(settings, rounds=2)
    assert sum(RETRY in packet.data for packet in conversation.packets) == 1
    result = decrypted(conversation.packets, log_of(settings, without))
    assert_all(conversation, result)
    (tls,) = result.connections
    assert (tls.version, tls.server_name, tls.reason) == ("TLS 1.3", SERVER_NAME, None)


@pytest.mark.parametrize("end", ["finish", "reset", None])
def test_sessions_on_the_same_ports(end: str | None) -> None:
    """A connection that has not ended in the capture ends with the next SYN."""
    talks: list[TlsTalk] = []
    settings = [TlsSettings(version) for version in ("TLS 1.3", "TLS 1.2", "TLS 1.3")]
    for number, each in enumerate(settings):
        start = {"client_start": 1000 + number * 10**8, "broker_start": 5000 + number * 10**8}
        start_ns = talks[-1].time_ns + 10**9 if talks else START_NS
        talks.append(talk(each, rounds=2, start_ns=start_ns, **start))
        if end:
            getattr(talks[-1], end)()
    log = KeyLog()
    log.add(b"".join(line for each in settings for line in each.key_log))
    result = decrypted([packet for each in talks for packet in each.packets], log)
    assert [tls.version for tls in result.connections] == ["TLS 1.3", "TLS 1.2", "TLS 1.3"]
    for side in (0, 1):
        assert result.text(side) == b"".join(bytes(each.sent[side]) for each in talks)


@pytest.mark.parametrize("start", range(8, 40, 4))
def test_entry_in_mid_stream(start: int) -> None:
    settings = TlsSettings()
    conversation = talk(settings)
    result = decrypted(conversation.packets[start:], log_of(settings))
    texts = {result.text(0), result.text(1)}
    assert result.connections[0].is_open
    for text in texts:
        tails = [bytes(sent) for sent in conversation.sent]
        assert any(tail.endswith(text[-2000:]) for tail in tails)


@pytest.mark.parametrize("version", ["TLS 1.2", "TLS 1.3"])
@pytest.mark.parametrize("seed", range(12))
def test_lost_packets(version: str, seed: int) -> None:
    settings = TlsSettings(version)
    conversation = talk(settings, rounds=30)
    random = Random(seed)
    first_data = 12
    left = [
        packet
        for number, packet in enumerate(conversation.packets)
        if number < first_data or random.random() > 0.05
    ]
    result = decrypted(left, log_of(settings))
    for side in (0, 1):
        pieces, at = result.items[side], 0
        sent = bytes(conversation.sent[side])
        for item in pieces:  # what is there is in its place
            if isinstance(item, Gap):
                at += item.length
            else:
                assert sent[at : at + len(item.payload)] == item.payload
                at += len(item.payload)
        assert len(result.text(side)) > 0.4 * len(sent)


CBC = pytest.mark.parametrize(
    ("version", "encrypt_then_mac"),
    [("TLS 1.0", True), ("TLS 1.0", False), ("TLS 1.2", True), ("TLS 1.2", False)],
)


@CBC
def test_a_hole_in_a_record_of_cbc(version: str, encrypt_then_mac: bool) -> None:
    """The last blocks of a record tell how much of it is padding. In TLS 1.0, the next record needs the last
    block.
    """
    settings = TlsSettings(version, "AES128-SHA", encrypt_then_mac=encrypt_then_mac)
    conversation = talk(settings, rounds=6, mss=1448)
    packets = conversation.packets
    large = [number for number, packet in enumerate(packets) if number > 20 and len(packet.data) > 1448]
    holes = [number for number in large if {number - 1, number + 1} <= {*large}][::9]
    assert holes
    left = [packet for number, packet in enumerate(packets) if number not in holes]
    result = decrypted(left, log_of(settings))
    for side in (0, 1):
        assert len(result.text(side)) + result.missing(side) == len(conversation.sent[side])
    assert result.missing(0) + result.missing(1) < 40_000 * len(holes)


@CBC
@pytest.mark.parametrize("seed", range(3))
def test_lost_records_of_cbc(version: str, encrypt_then_mac: bool, seed: int) -> None:
    """How much padding they had is unknown: a gap may be longer by that. The last records may be hidden."""
    settings = TlsSettings(version, "AES256-SHA", encrypt_then_mac=encrypt_then_mac)
    conversation = talk(settings, rounds=30)
    random = Random(seed)
    left = [
        packet for number, packet in enumerate(conversation.packets) if number < 12 or random.random() > 0.05
    ]
    result = decrypted(left, log_of(settings))
    for side in (0, 1):
        sent = bytes(conversation.sent[side])
        assert all(item.payload in sent for item in result.items[side] if isinstance(item, Data))
        assert len(result.text(side)) > 0.25 * len(sent)
        assert len(result.text(side)) + result.missing(side) < 1.02 * len(sent)


def test_a_damaged_record_is_a_gap() -> None:
    settings = TlsSettings()
    conversation = talk(settings, rounds=3)
    packets = list(conversation.packets)
    spoilt = max(range(len(packets)), key=lambda number: (len(packets[number].data) > 1000, number))
    data = bytearray(packets[spoilt].data)
    data[-30] ^= 1
    packets[spoilt] = packets[spoilt]._replace(data=bytes(data))
    result = decrypted(packets, log_of(settings))
    lost = result.missing(0) + result.missing(1)
    sent = sum(map(len, conversation.sent))
    assert lost
    assert len(result.text(0)) + len(result.text(1)) + lost == sent


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (b"", "the key log has no secret for this client random"),
        (
            b"CLIENT_TRAFFIC_SECRET_0 %b " + b"00" * 48 + b"\n",
            "the secrets that the key log has for this session do not decrypt its TLS records",
        ),
    ],
)
def test_why_not(log: bytes, reason: str) -> None:
    settings = TlsSettings("TLS 1.3", SUITES_13[1])
    conversation = talk(settings, rounds=120)
    keys = KeyLog()
    keys.add(log % settings.key_log[0].split()[1] if log else b"")
    result = decrypted(conversation.packets, keys)
    assert result.connections[0].reason == reason
    on_the_wire = conversation.packets[3].data[54:]
    assert result.text(0).startswith(on_the_wire)  # passed on as it came


def test_one_right_secret_among_wrong_ones() -> None:
    settings = TlsSettings("TLS 1.2", SUITES_12[0])
    conversation = talk(settings, rounds=2)
    (line,) = settings.key_log
    log = KeyLog()
    log.add(line[:-97] + b"00" * 48 + b"\n" + line + line[:-97] + b"11" * 48 + b"\n")
    assert_all(conversation, decrypted(conversation.packets, log))


@pytest.mark.parametrize("first", [b"\x00\x00\x00\x20", b"GET / HTTP/1.1", b"\x17"])
def test_what_is_not_tls_passes_unchanged(first: bytes) -> None:
    connection = TlsConnection(KeyLog(), 0, (True, True))
    item = Data(1, 0, None, first)  # type: ignore[arg-type]
    held = connection.feed(0, item)
    assert [*held, *connection.close()] == [(0, item)]


@pytest.mark.parametrize(
    "seed", [*range(60), *(pytest.param(n, marks=pytest.mark.deep) for n in range(60, 2000))]
)
def test_mutated_sessions(seed: int) -> None:
    """Nothing is invented: what is decrypted was sent."""
    random = Random(seed)
    version = random.choice(["TLS 1.2", "TLS 1.3"])
    settings = _SETTINGS.setdefault(version, TlsSettings(version))
    settings.key_log.clear()
    conversation = talk(settings, rounds=4)
    after_syns = [_mutated(packet, random) for packet in conversation.packets[3:] if random.random() > 0.02]
    packets = [*conversation.packets[:3], *after_syns]
    log = log_of(settings)
    log.add(random.randbytes(1000) + b"\nCLIENT_RANDOM " + random.randbytes(200))
    result = decrypted(packets, log)
    if result.connections and result.connections[0].is_open:
        for side in (0, 1):
            for item in result.items[side]:
                if isinstance(item, Data):
                    assert item.payload in bytes(conversation.sent[side])


_SETTINGS: dict[str, TlsSettings] = {}


def _mutated(packet: Packet, random: Random) -> Packet:
    if random.random() > 0.1 or len(packet.data) < 80:
        return packet
    data = bytearray(packet.data)
    for _ in range(random.randrange(1, 4)):
        data[random.randrange(54, len(data))] = random.randrange(256)
    return packet._replace(data=bytes(data))


def test_the_searches_are_bounded() -> None:
    """A key log of many sessions, and a connection in mid-stream that none of them opens."""
    settings, other = TlsSettings(), TlsSettings()
    conversation = talk(settings, rounds=40)
    talk(other, rounds=1)
    log = log_of(other)
    for number in range(2000):
        log.add(b"CLIENT_TRAFFIC_SECRET_0 %064x %064x\n" % (number, number))
    result = decrypted(conversation.packets[9:], log)
    (tls,) = result.connections
    assert (tls.is_bypassed, tls.is_open) == (True, False)
    assert tls.reason is not None
