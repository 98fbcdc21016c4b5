"""Connections through proxies and load balancers: who the client is, and which ends a connection has."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kdissect.capture.reader import open_capture
from kdissect.exchanges.learned import LearnedFacts
from kdissect.limits import DEFAULT
from kdissect.net.connection import Connections
from kdissect.options import WHOLE, Options
from kdissect.pipeline import Dissection
from kdissect.stats.connection_log import ConnectionLog
from tests.captures import pcap
from tests.cli.commands import run, write
from tests.core import needs_core, without_core
from tests.exports import json_rows
from tests.frames import heartbeat_answers, heartbeats
from tests.net.test_preface import (
    ALL_VALUES,
    CLIENT,
    KEPT,
    LINE,
    LOCAL,
    REMOVED,
    TCP6,
    UNIX,
    V6,
    binary,
    with_checksum,
)
from tests.segments import ACK, FIN, SYN, Talk
from tests.tls.sessions import TlsSettings, TlsTalk
from tests.tls.test_decryption import answered, ids, kafka, keys_in

if TYPE_CHECKING:
    from kdissect.model import Endpoint, Exchange

HOP, BROKER = "10.1.0.200", ("10.1.0.9", 9092)
BEATS = 4
FIELD = Path(__file__).parent / "field"


class Variation(NamedTuple):
    """The beginning of a connection.

    Attributes:
        header: bytes before the first request.
        client: that they name; None: nobody.
        mss: most bytes of a segment.
        joined: whether the first request is in the same segment.
        fault: the anomaly.
        exchanges: on the connection.
    """

    header: bytes
    client: Endpoint | None
    mss: int = 1460
    joined: bool = False
    fault: str | None = None
    exchanges: int = BEATS


LONG = binary(values=ALL_VALUES)
VARIATIONS = {
    "none": Variation(b"", None),
    "v1": Variation(LINE, CLIENT),
    "v1, byte by byte": Variation(LINE, CLIENT, mss=1),
    "v1, joined": Variation(LINE, CLIENT, joined=True),
    "v1 unknown": Variation(b"PROXY UNKNOWN\r\n", None),
    "v2": Variation(binary(), CLIENT),
    "v2, byte by byte": Variation(with_checksum(ALL_VALUES), CLIENT, mss=1),
    "v2, joined and split": Variation(LONG, CLIENT, mss=50, joined=True),
    "v2 IPv6": Variation(binary(family=TCP6), V6),
    "v2 UNIX": Variation(binary(bytes(216), family=UNIX), None),
    "v2 local": Variation(binary(b"", command=LOCAL, family=0), None),
    "two": Variation(LONG + LINE, CLIENT, joined=True),
    "eight": Variation(8 * LINE, CLIENT),
    "nine": Variation(9 * LINE, CLIENT, fault="PROXY header: more than 8 headers", exchanges=0),
    "health check": Variation(binary(b"", command=LOCAL, family=0), None, exchanges=0),
    "incomplete": Variation(LINE[:20], None, fault="PROXY header: incomplete", exchanges=0),
    **{
        name: Variation(header, None, fault=f"PROXY header: {fault}")
        for name, (header, fault) in REMOVED.items()
    },
    **{
        name: Variation(header, None, fault=f"PROXY header: {fault}", exchanges=0)
        for name, (header, fault) in KEPT.items()
    },
}
ALONE = {"health check", "incomplete"}
FIRST_PORT = 30_000
PORTS = {name: FIRST_PORT + place for place, name in enumerate(VARIATIONS)}


def through_a_proxy(name: str, beats: int = BEATS, port: int | None = None) -> Talk:
    """A connection that begins in this way, and Heartbeats on it."""
    header, _, mss, joined, *_ = VARIATIONS[name]
    talk = Talk((HOP, port or PORTS[name]), BROKER, mss=mss).handshake()
    requests, answers = heartbeats(beats), heartbeat_answers(beats)
    if name in ALONE:
        return talk.client_sends(header).finish()
    if not joined:
        talk.client_sends(header)
        header = b""
    talk.client_sends(header + requests[0])
    talk.mss = 1460
    talk.broker_sends(answers[0])
    for request, answer in zip(requests[1:], answers[1:], strict=True):
        talk.client_sends(request).broker_sends(answer)
    return talk.finish()


def variations() -> bytes:
    """A capture of all of them, which overlap."""
    packets = [
        (packet.time_ns + 1000 * place, packet.data)
        for place, name in enumerate(VARIATIONS)
        for packet in through_a_proxy(name).packets
    ]
    return pcap(sorted(packets))


CAPTURE = FIELD / "proxy-variations.pcap"


def test_the_capture_has_all_variations() -> None:
    """Rewrite it with ``CAPTURE.write_bytes(variations())``."""
    assert CAPTURE.read_bytes() == variations()


@pytest.mark.parametrize(
    ("arguments", "has_core"),
    [
        (["-j", "1"], True),
        (["-j", "1"], False),
        (["--names", "whole", "-j", "2"], True),
        (["-d", "9092"], True),
    ],
)
def test_the_client_is_the_one_that_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], has_core: bool
) -> None:
    with nullcontext() if has_core else without_core():
        done = run(capsys, "read", "--json", *arguments, str(CAPTURE))
    rows: dict[int, list[dict[str, Any]]] = {}
    for line in done.lines:
        row = json.loads(line)
        rows.setdefault(row["hop_port"] or row["client_port"], []).append(row)
    for name, variation in VARIATIONS.items():
        own = rows.get(PORTS[name], [])
        if variation.exchanges or "-d" not in arguments:
            assert len(own) == variation.exchanges, name
        if not variation.exchanges:
            continue
        is_used = bool(variation.header) and variation.fault is None
        client = tuple(variation.client or (HOP, PORTS[name]))
        hop = (HOP, PORTS[name]) if is_used else (None, None)
        for row in own:
            assert (row["client_ip"], row["client_port"]) == client, name
            assert (row["hop_ip"], row["hop_port"]) == hop, name
            assert (row["proxy"] is not None) == is_used, name
            assert (row["broker_ip"], row["broker_port"]) == BROKER
        anomalies = [each["detail"] for row in own for each in row["anomalies"]]
        assert anomalies == [variation.fault] * (variation.fault is not None), name


def test_what_a_header_says(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "read", "--json", str(CAPTURE)).lines
    rows = {row["hop_port"]: row["proxy"] for row in map(json.loads, lines)}
    stated = {
        "version": 2,
        "server_name": "broker-1.example.com",
        "alpn": "kafka",
        "tls_version": "TLSv1.3",
        "common_name": "Zo\u00eb",
        "aws_endpoint_id": "vpce-08d2bf15fac5001c9",
    }
    assert rows[PORTS["v2, byte by byte"]] == stated
    assert rows[PORTS["two"]] == stated | {"version": 1}
    assert rows[PORTS["v1"]] == dict.fromkeys(stated) | {"version": 1}
    text = run(capsys, "read", "-V", "-Y", 'proxy.alpn == "kafka" and proxy.version == 2', str(CAPTURE)).out
    assert (
        f'  hop:    {HOP}:{PORTS["v2, byte by byte"]}, PROXY header v2, SNI "broker-1.example.com", '
        'ALPN "kafka", TLS "TLSv1.3", common name "Zo\u00eb", AWS endpoint "vpce-08d2bf15fac5001c9"\n'
    ) in text


def test_malformed_headers_without_an_exchange_are_notices(capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, "check", str(CAPTURE)).out
    for name, variation in VARIATIONS.items():
        if not variation.exchanges and variation.fault is not None:
            assert f"{HOP}:{PORTS[name]} - {BROKER[0]}:{BROKER[1]}: {variation.fault}" in shown, name


def test_connections(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Health checks leave no row, as those that send nothing at all."""
    expected = {
        (PORTS[name], *(variation.client or (HOP, PORTS[name])))
        for name, variation in VARIATIONS.items()
        if name not in ("none", "health check") and (variation.fault is None or name == "nine")
    }
    target = tmp_path / "tables"
    run(capsys, "export", "--tables", "connections", "-o", str(target), str(CAPTURE))
    rows = json_rows(target / "connections")
    assert len(rows) == len(VARIATIONS) - 1
    proxied = {(row["hop_port"], row["client_ip"], row["client_port"]) for row in rows if row["proxy"]}
    assert proxied == expected
    assert {row["hop_ip"] for row in rows if row["proxy"]} == {HOP}


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--client", "2001:db8::7"], {"v2 IPv6"}),
        (["--client", f"{HOP}:{PORTS['v2 UNIX']}"], {"v2 UNIX"}),
        (["-Y", f"hop_port == {PORTS['two']}"], {"two"}),
        (["-Y", 'client == "198.51.100.7" and proxy.version == 1'],
         {"v1", "v1, byte by byte", "v1, joined", "two", "eight"}),
        (["--port", str(PORTS["v1"])], {"v1"}),
        (["--port", "51000"], set()),
    ],
)  # fmt: skip
def test_filters(capsys: pytest.CaptureFixture[str], arguments: list[str], names: set[str]) -> None:
    """Those on clients use the named client, those on ports the ends of the TCP connection."""
    lines = run(capsys, "read", "--json", *arguments, str(CAPTURE)).lines
    assert {json.loads(line)["hop_port"] for line in lines} == {PORTS[name] for name in names}


def test_pages(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path / "one.pcap", through_a_proxy("v1"))
    document = json.loads(run(capsys, "summary", "--json", path).out)
    assert [row["addresses"] for row in document["clients"]] == [[CLIENT.ip]]
    document = json.loads(run(capsys, "summary", "--groups", "--json", path).out)
    (group,) = document["group_history"]
    assert [member["address"] for member in group["members"]] == [CLIENT.ip]
    _, *entries = map(json.loads, run(capsys, "story", "--json", f"client:{CLIENT.ip}", path).lines)
    assert {entry["client_ip"] for entry in entries} == {CLIENT.ip}
    assert str(CLIENT) in run(capsys, "read", path).lines[0]


def test_findings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Those about TCP are between the proxy and the broker, those about Kafka name the client."""
    talks = []
    for place in range(10):
        talk = Talk((HOP, FIRST_PORT + place), BROKER).put(0, SYN, sequence=1000, acknowledgment=0)
        talk.handshake().client_sends(LINE + heartbeats(1)[0]).put(1, FIN | ACK).put(0, FIN | ACK)
        talks.append(talk)
    path = write(tmp_path / "loop.pcap", *talks)
    rows = json.loads(run(capsys, "summary", "--findings", "--json", path).out)["findings"]
    subjects = {row["rule"]: row["subject"] for row in rows}
    broker = f"{BROKER[0]}:{BROKER[1]}"
    assert subjects["network-loss"] == f"proxy at {HOP}, broker {broker}"
    assert subjects["reconnect-loop"].endswith(f"at {CLIENT.ip}, broker {broker}")


def test_packets_can_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The packets of a client are those of its TCP connection."""
    target = str(tmp_path / "some.pcapng")
    run(capsys, "read", "--client", "2001:db8::7", "-w", target, str(CAPTURE))
    lines = run(capsys, "read", "--json", target).lines
    assert [json.loads(line)["hop_port"] for line in lines] == [PORTS["v2 IPv6"]] * BEATS


def exchanges_of(talk: Talk, options: Options | None = None, **more: Any) -> list[Exchange]:
    return list(Dissection(talk.packets, options or Options(), **more))


def without_syn() -> Talk:
    talk = through_a_proxy("v1")
    del talk.packets[:3]
    return talk


def test_a_header_after_a_lost_syn() -> None:
    """It counts at a listener that is known, from an option or from the whole input, and nowhere else."""
    assert exchanges_of(without_syn(), Options(kafka_ports=frozenset({9092})))[0].connection.client == CLIENT
    facts = LearnedFacts(names=WHOLE)
    Dissection(through_a_proxy("none").packets, Options(names=WHOLE)).learn(facts)
    known = exchanges_of(without_syn(), Options(names=WHOLE), learned=facts)
    assert {each.connection.client for each in known} == {CLIENT}
    assert {each.connection.client.ip for each in exchanges_of(without_syn())} <= {HOP}


def test_a_header_that_is_retransmitted() -> None:
    talk = Talk((HOP, 30_000), BROKER).handshake().client_sends(LINE)
    talk.put(0, ACK, LINE, sequence=1001)
    talk.client_sends(heartbeats(1)[0]).broker_sends(heartbeat_answers(1)[0]).finish()
    assert [each.connection.client for each in exchanges_of(talk)] == [CLIENT]


def test_a_lost_header() -> None:
    """Without it, the end of the TCP connection is the client."""
    talk = Talk((HOP, 30_000), BROKER).handshake().client_skips(len(LINE))
    for request, answer in zip(heartbeats(BEATS), heartbeat_answers(BEATS), strict=True):
        talk.client_sends(request).broker_sends(answer)
    shown = exchanges_of(talk.finish())
    assert {each.connection.client.ip for each in shown} == {HOP}
    assert {each.connection.hop for each in shown} == {None}


@pytest.mark.parametrize("version", ["TLS 1.2", "TLS 1.3"])
@pytest.mark.parametrize("joined", [False, True])
def test_a_header_before_tls(tmp_path: Path, version: str, joined: bool) -> None:
    settings = TlsSettings(version)
    talk = through_tls(kafka(settings), joined=joined)
    log = ConnectionLog(DEFAULT)
    exchanges = exchanges_of(talk, keys_in(tmp_path, settings), observer=log)
    (row,) = log.close() or log.finished()
    assert ids(exchanges) == answered(3)
    assert {each.connection.client for each in exchanges} == {CLIENT} == {row.client}
    assert (row.hop, row.tls.version, row.protocol) == (exchanges[0].connection.hop, version, "Kafka")


def test_the_header_is_written_with_the_plaintext(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    settings = TlsSettings()
    path = write(tmp_path / "tls.pcap", through_tls(kafka(settings)))
    (tmp_path / "keys").write_bytes(b"".join(settings.key_log))
    target = str(tmp_path / "plain.pcapng")
    run(capsys, "read", "-w", target, "--decrypted", "--tls-keylog", str(tmp_path / "keys"), path)
    ends = [
        (row["client_ip"], row["hop_ip"], row["proxy"]["alpn"])
        for row in map(json.loads, run(capsys, "read", "--json", target).lines)
    ]
    assert ends == [(CLIENT.ip, "10.0.0.1", "kafka")] * 3


def test_a_header_before_tls_without_keys() -> None:
    log = ConnectionLog(DEFAULT)
    assert exchanges_of(through_tls(kafka(TlsSettings())), observer=log) == []
    (row,) = log.close() or log.finished()
    assert (row.protocol, row.client, row.tls.version) == ("TLS", CLIENT, "TLS 1.3")


def through_tls(talk: TlsTalk, *, joined: bool = False) -> Talk:
    """The same connection with a header before its TLS records."""
    out = Talk(talk.ends[0], talk.ends[1]).handshake()
    held = LONG + LINE
    if not joined:
        out.client_sends(held)
        held = b""
    for packet in talk.packets[3:]:
        side = int(packet.data[26:30] != talk.packets[0].data[26:30])
        payload = packet.data[54:]
        if payload and side == 0:
            out.client_sends(held + payload)
            held = b""
        elif payload:
            out.broker_sends(payload)
    return out.put(0, FIN | ACK).put(1, FIN | ACK)


def test_tables_of_the_core(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It fills the columns that are structs as Python does."""
    path = write(tmp_path / "one.pcap", through_a_proxy("v2, byte by byte", 50), through_a_proxy("none"))
    options = ["export", "--format", "parquet", "--tables", "exchanges,partitions"]
    shown = []
    for directory, used in ((tmp_path / "core", nullcontext()), (tmp_path / "pure", without_core())):
        with used:
            run(capsys, *options, "-o", str(directory), path)
        shown.append([json.loads(line) for line in parquet_lines(directory / "exchanges")])
    assert shown[0] == shown[1]
    assert [row["proxy"] is None for row in shown[0]] == [False] * 50 + [True] * BEATS


def parquet_lines(directory: Path) -> list[str]:
    parquet = pytest.importorskip("pyarrow.parquet")
    tables = [parquet.read_table(file) for file in sorted(directory.rglob("*.parquet"))]
    return [json.dumps(row, default=str) for table in tables for row in table.to_pylist()]


@needs_core
@pytest.mark.parametrize(("name", "is_observed"), [("v1", False), ("v2, joined and split", True)])
def test_the_core_takes_the_packets_after_the_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_observed: bool
) -> None:
    """Python sees the header, the first request and little more; a recall does not mix up the ends."""
    taken = 0
    feed = Connections.feed_block

    def counted(self: Connections, block: Any, segment_of: Any) -> Any:
        nonlocal taken
        taken += len(block.places)
        return feed(self, block, segment_of)

    monkeypatch.setattr(Connections, "feed_block", counted)
    packets = [
        (packet.time_ns + 1000 * place, packet.data)
        for place in range(20)
        for packet in through_a_proxy(name, 100, FIRST_PORT + place).packets
    ]
    path = tmp_path / "busy.pcap"
    path.write_bytes(pcap(sorted(packets)))
    with open_capture(str(path)) as capture:
        observer = ConnectionLog(DEFAULT) if is_observed else None
        exchanges = list(Dissection(capture.packet_blocks(), observer=observer))
    assert {each.connection.client for each in exchanges} == {CLIENT}
    assert taken < 0.1 * len(packets)
