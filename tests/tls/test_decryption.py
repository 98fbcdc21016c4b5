"""The stage in a dissection."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kdissect.exchanges.learned import LearnedFacts
from kdissect.limits import DEFAULT
from kdissect.model import ANSWERED, TlsSession
from kdissect.options import Options
from kdissect.pipeline import Dissection
from kdissect.stats.connection_log import ConnectionLog
from kdissect.tls import keylog
from tests.frames import request, response
from tests.tls.sessions import TlsSettings, TlsTalk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from kdissect.model import Exchange, Packet

METADATA = 3


def kafka(settings: TlsSettings, rounds: int = 3, **options: object) -> TlsTalk:
    """A client that sends large requests, and gets large and small responses."""
    talk = TlsTalk(settings, **options).opens()  # type: ignore[arg-type]
    for number in range(rounds):
        topics = [{"name": f"topic-{place}-{'x' * 200}"} for place in range(400 * (number % 2) + 1)]
        brokers = [{"node_id": place, "host": "b" * 200, "port": 9092} for place in range(300 * number)]
        talk.says(0, request(METADATA, 1, {"topics": topics}, correlation_id=number))
        talk.says(1, response(METADATA, 1, {"brokers": brokers}, correlation_id=number))
    return talk


def keys_in(directory: Path, settings: TlsSettings, without: bytes = b"no such label") -> Options:
    path = directory / "keys.log"
    path.write_bytes(b"".join(line for line in settings.key_log if without not in line))
    return Options(key_logs=(str(path),))


def ids(exchanges: Iterable[Exchange]) -> list[tuple[str, int]]:
    return [(each.kind, each.correlation_id) for each in exchanges]


def answered(count: int) -> list[tuple[str, int]]:
    return [(ANSWERED, number) for number in range(count)]


@pytest.mark.parametrize("mss", [500, 1448, 60_000])
@pytest.mark.parametrize("version", ["TLS 1.2", "TLS 1.3"])
def test_large_frames(tmp_path: Path, version: str, mss: int) -> None:
    """Packets of a large frame are gathered; a response must not overtake its request for that."""
    settings = TlsSettings(version)
    talk = kafka(settings, rounds=6, mss=mss)
    exchanges = list(Dissection(talk.packets, keys_in(tmp_path, settings)))
    assert ids(exchanges) == answered(6)
    for each in exchanges:
        assert each.request_frame
        assert each.response_frame
        assert each.request_frame.end_ns < each.response_frame.start_ns


@pytest.mark.parametrize("missing", [0, 40, 41, 47, 55])
def test_from_the_middle_of_a_record(tmp_path: Path, missing: int) -> None:
    """What comes before the first record that begins in the capture does not count as a part of it."""
    settings = TlsSettings()
    packets = kafka(settings, rounds=8, mss=1448).packets[missing:]
    log = ConnectionLog(DEFAULT)
    exchanges = list(Dissection(packets, keys_in(tmp_path, settings), observer=log))
    (row,) = log.close()
    assert ids(exchanges)[-4:] == answered(8)[-4:]
    assert {each.connection.is_decrypted for each in exchanges} == {True}
    assert row.tls.version == "TLS 1.3"


def test_a_resumed_session_in_another_shard(tmp_path: Path) -> None:
    """What the first pass learned names the line of the session that was resumed."""
    settings = TlsSettings("TLS 1.2")
    first = kafka(settings)
    options = keys_in(tmp_path, settings)
    session = first.ends_of_tls[0].get_session()
    later = first.time_ns + 1
    second = kafka(settings, session=session, client=("10.0.0.1", 40001), start_ns=later)
    facts = LearnedFacts()
    Dissection(first.packets, options).learn(facts)
    merged = LearnedFacts()
    merged.merge(facts)
    assert ids(Dissection(second.packets, options)) == []
    assert ids(Dissection(second.packets, options, learned=merged)) == answered(3)
    for line in settings.key_log:
        assert bytes.fromhex(line.split()[2].decode()) not in pickle.dumps(facts)


@pytest.mark.parametrize("version", ["TLS 1.2", "TLS 1.3"])
@pytest.mark.parametrize("tickets", [False, True])
def test_the_principal_of_a_resumed_session(tmp_path: Path, version: str, tickets: bool) -> None:
    """Only the first handshake has the client's certificate. OpenSSL says which sessions were resumed."""
    settings = TlsSettings(version, client_certificate=True, tickets=tickets)
    first = kafka(settings)
    session = first.ends_of_tls[0].get_session()
    second = kafka(settings, session=session, client=("10.0.0.1", 40001), start_ns=first.time_ns + 1)
    third = kafka(settings, client=("10.0.0.1", 40002), start_ns=second.time_ns + 1)
    options = keys_in(tmp_path, settings)
    facts = LearnedFacts()
    Dissection([*first.packets, *second.packets], options).learn(facts)
    for talk, learned in ((second, facts), (third, facts), (second, None)):
        shown = {each.principal for each in Dissection(talk.packets, options, learned=learned)}
        is_known = talk is third or learned is not None
        assert shown == {"User:CN=broker-1.example" if is_known else None}


class Growing:
    """A key log to which lines are added while packets arrive."""

    def __init__(self, directory: Path, settings: TlsSettings) -> None:
        self.path = directory / "keys.log"
        self.path.touch()
        self._lines = settings.key_log

    def dissection(self, packets: Iterable[Packet], *, at: int, options: Options | None = None) -> Dissection:
        """``at``: number of the packet before which the lines are written."""
        key_log = keylog.follow_key_logs([str(self.path)])
        return Dissection(self._packets(packets, at), options or Options(), key_log=key_log)

    def _packets(self, packets: Iterable[Packet], at: int) -> Iterator[Packet]:
        for number, packet in enumerate(packets):
            if number == at:
                with self.path.open("ab") as file:
                    for line in self._lines:
                        file.write(line[:50])
                        file.flush()
                        file.write(line[50:])
                        file.flush()
            yield packet


@pytest.mark.parametrize("version", ["TLS 1.2", "TLS 1.3"])
@pytest.mark.parametrize("at", [0, 4, 6, 9, 12, 20])
def test_lines_that_come_late(tmp_path: Path, version: str, at: int) -> None:
    settings = TlsSettings(version)
    talk = kafka(settings, mss=1448, step_ns=1000)
    growing = Growing(tmp_path, settings)
    assert ids(growing.dissection(talk.packets, at=at)) == answered(3)


@pytest.mark.parametrize("early", [b"HANDSHAKE", b"SERVER", b"CLIENT"])
def test_some_lines_before_the_others(tmp_path: Path, early: bytes) -> None:
    settings = TlsSettings("TLS 1.3")
    talk = kafka(settings, mss=1448, step_ns=1000)
    growing = Growing(tmp_path, settings)
    growing.path.write_bytes(b"".join(line for line in settings.key_log if early in line))
    assert ids(growing.dissection(talk.packets, at=14)) == answered(3)


@pytest.mark.parametrize(("version", "step_ns"), [("TLS 1.2", 10**9), ("TLS 1.3", 10**9)])
def test_lines_that_come_too_late(tmp_path: Path, version: str, step_ns: int) -> None:
    settings = TlsSettings(version)
    talk = kafka(settings, step_ns=step_ns)
    growing = Growing(tmp_path, settings)
    dissection = growing.dissection(talk.packets, at=16)
    assert ids(dissection) == []
    assert dissection.counts["TLS not decrypted: the key log has no secret for this client random"] == 1


def test_what_is_held_is_bounded(tmp_path: Path) -> None:
    settings = TlsSettings("TLS 1.3")
    talks = [kafka(settings, client=("10.0.0.1", 40000 + number), step_ns=1000) for number in range(5)]
    growing = Growing(tmp_path, settings)
    limits = replace(DEFAULT, total_tls_bytes=1_000_000)
    options = Options(limits)
    packets = [packet for talk in talks for packet in talk.packets]
    dissection = growing.dissection(packets, at=len(packets) - 1, options=options)
    assert 0 < len(ids(dissection)) < 15


def test_a_key_log_is_read_once_for_both_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TlsSettings()
    talk = kafka(settings)
    options = keys_in(tmp_path, settings)
    facts = LearnedFacts()
    Dissection(talk.packets, options).learn(facts)
    monkeypatch.setattr(keylog, "_pieces", None)
    assert ids(Dissection(talk.packets, options, learned=facts)) == answered(3)


@pytest.mark.parametrize("version", ["TLS 1.2", "TLS 1.3"])
def test_the_session_of_a_connection(tmp_path: Path, version: str) -> None:
    """The client's certificate gives the principal; in TLS 1.3 it is encrypted with a handshake secret."""
    settings = TlsSettings(version, client_certificate=True)
    talk = kafka(settings).finish()
    log = ConnectionLog(DEFAULT)
    exchanges = list(Dissection(talk.packets, keys_in(tmp_path, settings), observer=log))
    assert {each.principal for each in exchanges} == {"User:CN=broker-1.example"}
    for exchange in exchanges:
        log.exchange(exchange)
    (row,) = log.close()
    cipher = row.tls.cipher or ""
    expected = TlsSession(version, cipher, "broker-1.example", "User:CN=broker-1.example")
    assert row.tls._replace(client_randoms=()) == expected
    assert [each.hex().encode() for each in row.tls.client_randoms] == [settings.key_log[0].split()[1]]
    assert "GCM" in cipher
    assert row.principal == "User:CN=broker-1.example"


def test_a_retransmitted_request(tmp_path: Path) -> None:
    """The time until the retransmission counts as time in the network, as without TLS."""
    settings = TlsSettings()
    talk = kafka(settings, rounds=2)
    talk.says(0, request(METADATA, 1, {"topics": []}, correlation_id=2))
    talk.time_ns += 300_000_000
    talk.packets.append(talk.packets[-1]._replace(number=len(talk.packets) + 1, time_ns=talk.time_ns))
    talk.time_ns += 1_000_000
    talk.says(1, response(METADATA, 1, {"brokers": []}, correlation_id=2))
    exchanges = list(Dissection(talk.packets, keys_in(tmp_path, settings)))
    assert ids(exchanges) == answered(3)
    parts = [each.parts.network_us for each in exchanges if each.parts is not None]
    assert parts[:2] == [0, 0]
    assert 250_000 < (parts[2] or 0) < 310_000
