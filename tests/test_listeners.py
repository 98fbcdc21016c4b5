"""A listener known as Kafka's by other connections of the input is evidence: whole frames there are shown, by
all ways to read a file alike. Elsewhere, and with ``--names window``, they are not.

The packets are those of samples/quickstart.pcap, without the handshake and the requests of one connection.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.kafka.framing import SIZE_BYTES
from kdissect.net.tcp import Segments, endpoints
from kdissect.options import WHOLE, WINDOW, Options
from kdissect.pipeline import Dissection, learned_from
from tests.exports import json_rows
from tests.foreign import LIKE_KAFKA, PROTOCOLS, conversation
from tests.rings import packets_of, write
from tests.segments import Talk
from tests.shared import say

if TYPE_CHECKING:
    from kdissect.model import Packet, Segment

QUICKSTART = Path("samples/quickstart.pcap")
LEFT = 2  # responses
ODD_REQUEST = bytes.fromhex("00000011 0012 0000 00000009 0003 1b5b4a 00000000".replace(" ", ""))


def segment_of(packet: Packet) -> Segment:
    segment = Segments().feed(packet)
    assert segment is not None
    return segment


def broker_port() -> int:
    return json.loads(QUICKSTART.with_suffix(".truth.json").read_text())["ports"][0]  # type: ignore[no-any-return]


def responses_alone() -> tuple[list[Packet], int]:
    """Packets of which one connection has its last responses alone, and its client's port."""
    packets = packets_of(QUICKSTART)
    by_client: dict[int, list[Packet]] = {}
    for packet in packets:
        segment = segment_of(packet)
        source, destination = endpoints(segment.ends)
        payload = segment.payload
        is_frame = (
            len(payload) > SIZE_BYTES and int.from_bytes(payload[:4], "big") == len(payload) - SIZE_BYTES
        )
        if source.port == broker_port() and is_frame:
            by_client.setdefault(destination.port, []).append(packet)
    client, responses = next((port, shown) for port, shown in by_client.items() if len(shown) > LEFT + 2)
    kept = responses[-LEFT:]
    rest = [
        packet
        for packet in packets
        if packet in kept or client not in {end.port for end in endpoints(segment_of(packet).ends)}
    ]
    return rest, client


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    packets, client = responses_alone()
    return write(tmp_path_factory.mktemp("listeners") / "one.pcapng", packets), client


def rows(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in say("read", "--json", *arguments).out.splitlines()]


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_responses_alone_at_a_known_listener(capture: tuple[Path, int], jobs: int) -> None:
    path, client = capture
    shown = rows("--names", WHOLE, "-j", jobs, path)
    alone = [row for row in shown if row["client_port"] == client]
    assert [(row["kind"], row["broker_port"]) for row in alone] == [("orphan", broker_port())] * LEFT
    assert shown == rows("--names", WHOLE, path)


def test_only_the_whole_input_knows(capture: tuple[Path, int]) -> None:
    path, client = capture
    shown = rows("--names", WINDOW, path)
    assert [row for row in shown if row["client_port"] == client] == []
    assert shown == rows("--names", WINDOW, "-j", 2, path)


def test_an_export_has_the_same_rows(capture: tuple[Path, int], tmp_path: Path) -> None:
    path, _ = capture
    expected = rows("--names", WHOLE, path)
    for jobs in (1, 2):
        directory = tmp_path / str(jobs)
        say("export", "-j", jobs, "-o", directory, path)
        kinds = sorted(
            (row["connection"], row["number"], row["kind"]) for row in json_rows(directory / "exchanges")
        )
        assert kinds == sorted((row["connection"], row["number"], row["kind"]) for row in expected)


def at_a_known_listener(talk: Talk, tmp_path: Path) -> list[tuple[str, int | None, int | None]]:
    """What a connection to the broker of the sample gives, as kinds, API keys and correlation IDs."""
    packets = packets_of(QUICKSTART) + talk.packets
    path = write(tmp_path / "two.pcapng", sorted(packets, key=lambda packet: packet.time_ns))
    options = Options(names=WHOLE)
    dissection = Dissection(packets, options, learned=learned_from([str(path)], options))
    ports = {talk.ends[0][1], talk.ends[1][1]}
    return [
        (each.kind, each.api_key, each.correlation_id)
        for each in dissection
        if each.connection.client.port in ports - {broker_port()}
    ]


def talk_to_the_broker() -> Talk:
    last = packets_of(QUICKSTART)[-1]
    _, broker = endpoints(segment_of(packets_of(QUICKSTART)[0]).ends)
    return Talk((broker.ip, 45_678), (broker.ip, broker_port()), start_ns=last.time_ns)


@pytest.mark.parametrize("from_start", [True, False])
def test_an_odd_request_without_a_response(tmp_path: Path, from_start: bool) -> None:
    talk = talk_to_the_broker()
    if from_start:
        talk.handshake()
    talk.client_sends(ODD_REQUEST)
    assert at_a_known_listener(talk, tmp_path) == [("unanswered", 18, 9)]


def test_a_request_of_an_unknown_api(tmp_path: Path) -> None:
    """It is recognized as on a connection to an end that is not known."""
    talk = talk_to_the_broker().handshake()
    talk.client_sends(bytes.fromhex("0000000d 03e7 0000 00000009 0003") + b"raw")
    assert at_a_known_listener(talk.finish(), tmp_path) == [("unanswered", 999, 9)]


def test_a_request_that_ends_before_its_client_id(tmp_path: Path) -> None:
    talk = talk_to_the_broker().handshake()
    talk.client_sends(bytes.fromhex("00000008 0012 0000 00000009"))
    assert at_a_known_listener(talk.finish(), tmp_path) == [("unanswered", 18, 9)]


MALFORMED = bytes.fromhex("00000011 0003 0001 00000009 7fff") + b"damaged"
"""Metadata v1. Its client ID has 32,767 bytes, and the frame has nine."""


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (MALFORMED, [("unanswered", 3, 9)]),
        (MALFORMED + b"!", []),  # the packet does not end with it
        (MALFORMED[:4] + b"\0\x7f" + MALFORMED[6:], []),  # an unknown API
        (MALFORMED[:6] + b"\1\0" + MALFORMED[8:], []),  # version 256
        (MALFORMED[:8] + b"\xff" + MALFORMED[9:], []),  # a negative correlation ID
    ],
)
@pytest.mark.parametrize("mss", [1460, 5, 1])
def test_a_malformed_request_must_end_with_a_packet(
    tmp_path: Path, payload: bytes, shown: list[tuple[str, int, int]], mss: int
) -> None:
    talk = talk_to_the_broker().handshake()
    talk.mss = mss
    if mss == 1 and payload.endswith(b"!"):
        return  # each byte is the end of a packet
    assert at_a_known_listener(talk.client_sends(payload).finish(), tmp_path) == shown


def test_without_the_first_pass_a_malformed_request_gives_no_row(tmp_path: Path) -> None:
    talk = talk_to_the_broker().handshake().client_sends(MALFORMED)
    path = write(tmp_path / "one.pcapng", packets_of(QUICKSTART) + talk.finish().packets)
    rest = [row for row in rows("--names", WINDOW, path) if row["client_port"] == talk.ends[0][1]]
    assert rest == []


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name != LIKE_KAFKA])
def test_other_protocols_at_a_kafka_port_give_no_row(tmp_path: Path, name: str) -> None:
    talk = talk_to_the_broker().handshake()
    for side, payload in conversation(name):
        (talk.broker_sends if side else talk.client_sends)(payload)
    assert at_a_known_listener(talk, tmp_path) == []
