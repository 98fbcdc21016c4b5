"""The native core takes packets, and all is as if Python had taken them: with and without the core, over
samples, whole and damaged, in any interleaving, as pcap and as pcapng, within any limits.
"""

from __future__ import annotations

import gc
import re
import weakref
from dataclasses import fields
from functools import cache
from itertools import islice
from operator import itemgetter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.other_protocols import FORMS, PROTOCOLS, make
from kdissect import core, pipeline
from kdissect.capture.reader import open_capture
from kdissect.cli.main import main
from kdissect.errors import CaptureError
from kdissect.exchanges import lending
from kdissect.exchanges.kafka_connection import KafkaConnection
from kdissect.limits import DEFAULT, Limits
from kdissect.model import ConnectionInfo, Exchange, PacketBlock
from kdissect.net.analysis import TcpAnalysis
from kdissect.net.connection import Connections
from kdissect.net.tcp import Shard
from kdissect.options import Options
from kdissect.pipeline import Dissection
from kdissect.stats.connection_log import ConnectionLog
from kdissect.tls.ciphers import Opener13
from samples.golden import ROOT, captures, name_of
from tests.captures import MICROSECONDS, MODIFIED, NANOSECONDS, pcap, pcapng
from tests.core import NEEDS_CORE, without_core
from tests.depth import IS_DEEP
from tests.disguises import other_family
from tests.frames import request, response
from tests.hostile_traffic import held, hostile, to_itself
from tests.lifetimes import lifetimes
from tests.segments import FIN, Talk
from tests.tls.sessions import TlsSettings
from tests.tls.test_decryption import kafka

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.exchanges.lending import ConnectionState
    from kdissect.exchanges.topic_names import Waiting
    from kdissect.model import Closed, Data, Gap, Segment
    from kdissect.net.connection import Connection, Event
    from kdissect.pipeline import Step

pytestmark = NEEDS_CORE

SEEDS = 100 if IS_DEEP else 2
SAMPLES = {name_of(path): ROOT / path for path in captures()}
BUSY = (
    "kafka-4-basics",
    "kafka-4-transactions",
    "kafka-4-storm",
    "kafka-4-cluster",
    "midstream",
    "quickstart",
)
RATES = [0.0005, 0.003, 0.02]
_INFO = [field.name for field in fields(ConnectionInfo) if field.name != "splitter"]
_EXCHANGE = [
    field.name
    for field in fields(Exchange)
    if field.name not in ("connection", "request_layout", "response_layout")
]

Timed = list[tuple[int, bytes]]
_layouts: dict[int, tuple[Any, str]] = {}


def text_of(layout: Any) -> str:
    """A layout has all fields of its message, and the exchanges of an API and version share it."""
    known = _layouts.get(id(layout))
    if known is None:
        known = _layouts[id(layout)] = (layout, repr(layout))
    return known[1]


def values_of(exchange: Exchange) -> list[Any]:
    """All there is to know about an exchange and its connection."""
    info = exchange.connection
    return [
        *(repr(getattr(info, name)) for name in _INFO),
        *(repr(getattr(exchange, name)) for name in _EXCHANGE),
        text_of(exchange.request_layout),
        text_of(exchange.response_layout),
    ]


class Observer:
    """All there is to know about each connection at its end, with its TCP analysis."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def connection(self, connection: Connection, kafka: KafkaConnection, end: Closed) -> None:
        assert connection.tcp is not None
        analysis = [getattr(connection.tcp, name) for name in TcpAnalysis.__slots__]
        streams = [(each.repeated_bytes, each.out_of_order, each.seen) for each in connection.streams]
        state = (
            kafka.client,
            kafka.protocol,
            kafka.tls,
            kafka.exchanges,
            kafka.last_ns,
            kafka.unread_bytes,
            kafka.gaps,
        )
        self.seen.append((repr(connection), analysis, streams, repr((state, kafka.unattached, end))))

    def unopened_connection(self, connection: Connection, end: Closed, *, is_listener: bool) -> None:
        self.seen.append((repr(connection), end, is_listener))


def facts(
    blocks: Iterable[PacketBlock],
    *,
    limits: Limits = DEFAULT,
    shard: Shard | None = None,
    key_logs: tuple[str, ...] = (),
    is_observed: bool = False,
    ports: Iterable[int] = (),
    kafka_ports: Iterable[int] = (),
) -> list[Any]:
    """What a dissection makes of packets: exchanges, in which order and at which place; counts; notices."""
    observer = Observer()
    options = Options(limits, frozenset(ports), frozenset(kafka_ports), key_logs=key_logs)
    dissection = Dissection(blocks, options, shard=shard, observer=observer if is_observed else None)
    places = []

    def watched() -> Iterator[Step]:
        for step in dissection.steps():
            places.extend(
                (dissection.place, step.waiting_since_ns, each.connection_key, each.number)
                for each in step.exchanges
            )
            yield step

    exchanges = [values_of(exchange) for exchange in dissection.in_order(watched())]
    return [
        exchanges,
        observer.seen,
        places,
        dissection.counts,
        dissection.skipped,
        dissection.noticed,
        dissection.now_ns,
    ]


def blocks_of(capture: bytes, tmp_path: Path) -> list[Any]:
    path = tmp_path / "capture"
    path.write_bytes(capture)
    with open_capture(str(path)) as opened:
        return list(opened.packet_blocks())


def timed(path: Path) -> Timed:
    with open_capture(str(path)) as opened:
        return [
            (each.time_ns, each.data)
            for block in opened.packet_blocks()
            if isinstance(block, PacketBlock)
            for each in block.packets
        ]


@cache
def mixed_and_damaged(names: tuple[str, ...], seed: int) -> Timed:
    random = Random(seed)
    return damaged(mixed(names, random), random)


def mixed(names: Sequence[str], random: Random) -> Timed:
    """The packets of several samples in turn, each in its order, from ends of its own."""
    queues = []
    for number, name in enumerate(names):
        packets = timed(SAMPLES[name])
        changed = [
            (time_ns, data.replace(b"\x7f\0\0\x01", bytes((10, 0, number, 1)))) for time_ns, data in packets
        ]
        queues.append(changed[::-1])
    result: Timed = []
    now_ns = 1_700_000_000_000_000_000
    while queues := [queue for queue in queues if queue]:
        queue = random.choice(queues)
        for _ in range(min(len(queue), random.choice((1, 1, 2, 30)))):
            now_ns += random.randrange(100_000)
            result.append((now_ns, queue.pop()[1]))
    return result


def damaged(packets: Timed, random: Random) -> Timed:
    """Drop, repeat, swap, cut and flip some."""
    rate = random.choice(RATES)
    result: Timed = []
    for time_ns, data in packets:
        kind = (
            random.choice(("drop", "repeat", "swap", "cut", "flip", "flip")) if random.random() < rate else ""
        )
        if kind == "drop":
            continue
        if kind == "flip" and len(data) > 14:
            flipped = bytearray(data)
            flipped[random.randrange(14, len(data))] ^= 1 << random.randrange(8)
            data = bytes(flipped)
        if kind == "cut":
            data = data[: random.randrange(20, len(data) + 1)]
        result.append((time_ns, data))
        if kind == "repeat":
            result.append((time_ns, data))
        if kind == "swap" and len(result) > 3:
            (one_ns, one), (two_ns, two) = result[-2:]
            result[-2:] = [(one_ns, two), (two_ns, one)]
    return result


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Compares the facts with and without the core. Returns how many exchanges the core completed."""

    def check(blocks: list[Any], **how: Any) -> int:
        completed = 0
        plain = lending._learn

        def learn(exchange: Exchange) -> None:
            nonlocal completed
            completed += 1
            plain(exchange)

        with monkeypatch.context() as counted:
            counted.setattr(lending, "_learn", learn)
            with_core = facts(blocks, **how)
        with without_core():
            pure = facts(blocks, **how)
        for own, expected in zip(with_core, pure, strict=True):
            assert own == expected
        return completed

    return check


@pytest.mark.parametrize("name", SAMPLES)
def test_samples(name: str, compare: Any, tmp_path: Path) -> None:
    blocks = blocks_of(pcap(timed(SAMPLES[name])), tmp_path)
    in_turn = list(SAMPLES).index(name) % 2 == 0
    for is_observed in (False, True) if IS_DEEP else (in_turn,):
        compare(blocks, is_observed=is_observed)


def test_the_core_completes_most_exchanges(compare: Any, tmp_path: Path) -> None:
    for name in ("kafka-4-basics", "quickstart"):
        blocks = blocks_of(pcap(timed(SAMPLES[name])), tmp_path)
        every = len(list(Dissection(blocks)))
        assert compare(blocks) > every * 3 / 4


@pytest.mark.parametrize("name", BUSY)
def test_damage(name: str, compare: Any, tmp_path: Path) -> None:
    for seed in range(SEEDS):
        random = Random(f"{name} {seed}")
        packets = damaged(timed(SAMPLES[name]), random)
        blocks = blocks_of(random.choice((pcap, pcapng))(packets), tmp_path)
        compare(blocks, is_observed=bool(random.randrange(2)))


def test_many_connections(compare: Any, tmp_path: Path) -> None:
    completed = 0
    for seed in range(SEEDS):
        random = Random(seed)
        packets = damaged(mixed(BUSY, random), random)
        blocks = blocks_of(random.choice((pcap, pcapng))(packets), tmp_path)
        completed += compare(blocks, is_observed=bool(seed % 2))
    assert completed > 100 * SEEDS


def test_observed_connections(compare: Any, tmp_path: Path) -> None:
    """The core analyzes the segments that it takes, and Python all others."""
    assert compare(blocks_of(pcap(timed(SAMPLES["kafka-4-basics"])), tmp_path), is_observed=True) > 50
    assert compare(blocks_of(pcap(mixed_and_damaged(BUSY, 4)), tmp_path), is_observed=True) > 100


@pytest.mark.parametrize(
    "limits",
    [
        {"connections": 4},
        {"connection_idle_ns": 2_000_000},
        {"pending_requests": 1},
        {"pending_bytes": 300},
        {"pending_age_ns": 1_000_000},
        {"frame_bytes": 150},
        {"stream_bytes": 2000, "stream_gaps": 1},
        {"order_rows": 3},
        {"total_held_bytes": 0},
    ],
    ids=str,
)
def test_limits(limits: dict[str, int], compare: Any, tmp_path: Path) -> None:
    blocks = blocks_of(pcap(mixed_and_damaged(BUSY[:3], 1)), tmp_path)
    compare(blocks, limits=Limits(**limits))


@pytest.mark.parametrize("number", [0, 1])
def test_shards(number: int, compare: Any, tmp_path: Path) -> None:
    blocks = blocks_of(pcap(mixed_and_damaged(BUSY, 2)), tmp_path)
    assert compare(blocks, shard=Shard(number, 2))


@pytest.mark.parametrize(
    ("link_type", "change"),
    [
        (1, lambda data: data[:12] + b"\x81\0\0\x07" + data[12:]),
        (113, lambda data: bytes(14) + data[12:]),
        (276, lambda data: data[12:14] + bytes(18) + data[14:]),
        (101, lambda data: data[14:]),
        (0, lambda data: (b"\x02\0\0\0" if data[12:14] == b"\x08\0" else b"\x1e\0\0\0") + data[14:]),
        (1, lambda data: other_family(data[14:])),
    ],
    ids=["VLAN", "cooked", "cooked v2", "raw", "null", "other family"],
)
def test_link_layers(link_type: int, change: Any, compare: Any, tmp_path: Path) -> None:
    packets = [(time_ns, change(data)) for time_ns, data in timed(SAMPLES["kafka-4-basics"])]
    random = Random(3)
    for each in (packets, damaged(packets, random)):
        assert compare(blocks_of(pcap(each, link_type=link_type), tmp_path))


def in_parts(blocks: list[Any], random: Random) -> list[Any]:
    """The same packets in small blocks."""
    parts = []
    for number, interface, data, places in blocks:
        start = 0
        while start < len(places):
            stop = start + random.choice((1, 7, 60))
            parts.append(PacketBlock(number + start, interface, data, places[start:stop]))
            start = stop
    return parts


LIFETIMES: list[dict[str, int]] = [
    {},
    {"connections": 3},
    {"total_stream_bytes": 600},
    {"ended_connections": 2},
    {"reorder_window_ns": 3_000_000},
    {"connection_idle_ns": 20_000_000},
    {"order_rows": 3},
    {"pending_requests": 1},
]


@cache
def some_lifetimes(seed: int) -> Timed:
    random = Random(seed)
    return lifetimes(random, 60, random.choice((0, 0.02, 0.1, 0.3)))


@pytest.mark.parametrize("limits", LIFETIMES, ids=str)
def test_lifetimes(
    limits: dict[str, int], compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections open, end and come back, with the clock checked often."""
    monkeypatch.setattr(pipeline, "_TICK_PACKETS", 20)
    completed = 0
    for seed in range(2 * SEEDS):
        random = Random(f"parts {seed}")
        blocks = in_parts(blocks_of(pcap(some_lifetimes(seed)), tmp_path), random)
        completed += compare(blocks, limits=Limits(**limits), is_observed=bool(seed // 2 % 2))
    assert completed


@cache
def some_hostile(seed: int) -> Timed:
    return hostile(Random(seed), 30)


@pytest.mark.parametrize("is_observed", [False, True])
def test_hostile_traffic(
    compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_observed: bool
) -> None:
    """Connections that are hard to tell apart, clocks that are set back, many held bytes, long names."""
    monkeypatch.setattr(pipeline, "_TICK_PACKETS", 20)
    for seed in range(10 * SEEDS):
        random = Random(f"parts {seed}")
        packets = some_hostile(seed)
        blocks = in_parts(blocks_of(random.choice((pcap, pcapng))(packets), tmp_path), random)
        compare(blocks, is_observed=is_observed)


@pytest.mark.parametrize("rate", [0.05, 1])
def test_both_ends_are_the_same(rate: float, compare: Any, tmp_path: Path) -> None:
    """As on loopback, when a client connects from the port that it connects to: Python takes these."""
    packets = to_itself(lifetimes(Random(8), 60, 0.02), Random(8), rate)
    assert (compare(blocks_of(pcap(packets), tmp_path), is_observed=True) == 0) == (rate == 1)


def test_the_clock_is_set_back(compare: Any, tmp_path: Path) -> None:
    talk = Talk().handshake()
    for number in range(60):
        talk.client_sends(request(3, 9, correlation_id=number)).broker_sends(
            response(3, 9, correlation_id=number)
        )
        if number == 5:
            talk.time_ns -= 10**10
    packets = [(each.time_ns, each.data) for each in talk.finish().packets]
    assert compare(blocks_of(pcap(packets), tmp_path), is_observed=True)


@pytest.mark.parametrize("port", [9092, 40_003])
def test_ports(port: int, compare: Any, tmp_path: Path) -> None:
    """Of brokers, or of a client."""
    packets = lifetimes(Random(port + 1), 60, 0.02)
    blocks = blocks_of(pcap(packets), tmp_path)
    completed = [compare(blocks, **how) for how in ({}, {"ports": [port]}, {"kafka_ports": [port]})]
    both = compare(blocks, ports=[port], kafka_ports=[1])
    assert both == completed[1] > 0
    assert completed[2]
    assert (completed[2] < completed[0]) == (port != 9092)
    assert not compare(blocks, ports=[1])


@cache
def slow(traffic: str, packets: int) -> Timed:
    """Traffic of another protocol, slow enough for connections to begin before it ends."""
    with TemporaryDirectory() as directory:
        make(traffic, path := Path(directory) / "other", packets)
        return [(50 * (time_ns % 10**9), data) for time_ns, data in timed(path)]


@pytest.mark.parametrize("is_observed", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_other_protocols(form: str, compare: Any, tmp_path: Path, *, is_observed: bool) -> None:
    """Refused at once or later, and where the search pauses and goes on: whole and damaged."""
    limits = Limits(recognition_bytes=6_000)
    for protocol in PROTOCOLS:
        packets = slow(f"{protocol}:small:{form}", 300)
        for each in (packets, damaged(packets, Random(f"{protocol} {form}"))):
            compare(blocks_of(pcap(each), tmp_path), is_observed=is_observed, limits=limits)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("protocol", ["http", "postgres", "tls"])
def test_the_core_keeps_what_is_not_kafka(
    protocol: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "other"
    packets = slow(f"{protocol}:small:{form}", 2000)
    path.write_bytes(pcap(packets))
    fed = 0
    plain = KafkaConnection.feed

    def feed(kafka: KafkaConnection, side: int, item: Data | Gap) -> list[Exchange]:
        nonlocal fed
        fed += 1
        return plain(kafka, side, item)

    monkeypatch.setattr(KafkaConnection, "feed", feed)
    assert not main(["read", "-j", "1", "--limits", "recognition_bytes=6KiB", str(path)])
    assert fed < len(packets) / 4


@pytest.mark.parametrize("is_kafka", [False, True])
def test_a_known_listener_may_speak_anything(compare: Any, tmp_path: Path, *, is_kafka: bool) -> None:
    talk = Talk().handshake().client_sends(b"GET / HTTP/1.1\r\n\r\n").broker_sends(b"SSH-2.0-x\r\n").finish()
    blocks = blocks_of(pcap([(each.time_ns, each.data) for each in talk.packets]), tmp_path)
    compare(blocks, is_observed=True, kafka_ports=[9092] if is_kafka else [])


@pytest.mark.parametrize("is_observed", [False, True])
@pytest.mark.parametrize(
    "answer", ["hello", "alert", "http", "none", "two segments", "malformed", "first", "long"]
)
def test_hellos_of_tls(answer: str, compare: Any, tmp_path: Path, *, is_observed: bool) -> None:
    """The core keeps those that are whole; Python reads them, and all others."""
    client, server = (message.data for message in islice(PROTOCOLS["tls"](Random(answer), 60), 2))
    talk = Talk().handshake()
    if answer == "first":
        talk.broker_sends(server)
    if answer == "two segments":
        talk.client_sends(client[:9]).client_sends(client[9:]).broker_sends(server[:20])
    elif answer == "malformed":
        talk.client_sends(client[:9] + b"\xff" * (len(client) - 9))
    else:
        talk.client_sends(client)
    answers = {"alert": b"\x15\3\3\0\2\2\50", "http": b"HTTP/1.1 400 Bad\r\n\r\n", "none": b""}
    answers |= {"two segments": server[20:], "long": server + b"\x16\3\3\x0f\xff" + bytes(4095)}
    if data := answers.get(answer, server):
        talk.broker_sends(data)
    talk.client_sends(b"\x17\3\3\0\4data").broker_sends(b"\x17\3\3\0\4data").finish()
    blocks = blocks_of(pcap([(each.time_ns, each.data) for each in talk.packets]), tmp_path)
    compare(blocks, is_observed=is_observed)


@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("last", [b"\x15\3\1\0\2\2\50", b"HTTP/1.1 400 Bad\r\n\r\n"], ids=["tls", "http"])
def test_recalled_around_the_first_response(
    last: bytes, compare: Any, tmp_path: Path, *, is_answered: bool
) -> None:
    """Only the first bytes of a broker can show that it does not speak Kafka."""
    sent, answer = (make(3, 9, correlation_id=7) for make in (request, response))
    talk = Talk().handshake().client_sends(sent)
    if is_answered:
        talk.broker_sends(answer).client_sends(request(3, 9, correlation_id=8)).broker_sends(answer[:3])
    talk.client_sends(sent)  # its correlation ID is not usual
    if is_answered:
        talk.broker_sends(response(3, 9, correlation_id=8)[3:])
    talk.broker_sends(last).finish()
    packets = [(each.time_ns, each.data) for each in talk.packets]
    assert compare(blocks_of(pcap(packets), tmp_path)) == is_answered


@pytest.mark.parametrize("is_observed", [False, True])
@pytest.mark.parametrize("acks", [0, 1])
def test_lent_connections_end_in_the_core(
    acks: int, compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_observed: bool
) -> None:
    """Also while requests are outstanding, after those that get no response, and if they are analyzed."""
    talk = Talk()
    for number in range(40):
        talk.client_sends(request(3, 9, correlation_id=number))
        talk.broker_sends(response(3, 9, correlation_id=number)).waits(1)
    for number in (40, 41):
        talk.client_sends(request(0, 8, {"acks": acks}, correlation_id=number))
    blocks = blocks_of(pcap([(each.time_ns, each.data) for each in talk.finish().packets]), tmp_path)
    fed: list[Segment] = []
    plain = Connections._feed

    def feed(connections: Connections, segment: Segment) -> list[Event]:
        if core.is_used:
            fed.append(segment)
        return plain(connections, segment)

    monkeypatch.setattr(Connections, "_feed", feed)
    assert compare(blocks, is_observed=is_observed) > 3
    assert fed
    assert not any(segment.flags & FIN for segment in fed)


def outputs_of(path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> list[Any]:
    """What ``read`` prints with the core, and without, as ``capfd`` captures it."""
    outputs = []
    for is_used in (core.is_used, False):
        with monkeypatch.context() as context:
            context.setattr(core, "is_used", is_used)
            assert main(["read", "-j", "1", str(path)]) in (0, 1)
        outputs.append(capfd.readouterr())
    return outputs


@pytest.mark.parametrize("limits", ["naming_rows=10000", "naming_rows=20", "naming_bytes=4KiB"])
def test_lines_that_wait_for_names(
    limits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A capture that begins while clients run: the core writes the lines that have waited."""
    # exchanges that the core has written; have they IDs, and no names
    held: list[tuple[int, bool, bool]] = []
    release = lending.Lending.release

    def noting(self: lending.Lending, waiting: Waiting) -> Iterator[tuple[Exchange, Waiting]]:
        left = 0
        for each in release(self, waiting):
            left += 1
            yield each
        held.append((waiting.exchanges - left, bool(waiting.refs.keys), bool(waiting.unnamed)))

    monkeypatch.setattr(lending.Lending, "release", noting)
    path = tmp_path / "cut.pcap"
    for name in ("kafka-4-basics", "kafka-4-cluster"):
        packets = timed(SAMPLES[name])
        path.write_bytes(pcap(packets[len(packets) // 3 :]))
        outputs = []
        for is_used in (True, False):
            with monkeypatch.context() as context:
                context.setattr(core, "is_used", is_used)
                assert main(["read", "--json", "-j", "1", "--limits", limits, str(path)]) in (0, 1)
            outputs.append(capfd.readouterr())
        assert outputs[0] == outputs[1]
    assert ("name_not_waited_for" in outputs[0].out) or limits == "naming_rows=10000"
    assert any(written and has_ids for written, has_ids, _ in held)
    assert any(written for written, _, is_unnamed in held if is_unnamed)
    assert any(written > 1 for written, *_ in held)
    assert limits != "naming_rows=10000" or any(written > 1 and is_unnamed for written, _, is_unnamed in held)


def test_reasons_are_reported(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Of packets, exchanges and connections; what was written is the same."""
    arguments = ["read", "--json", "-j", "1", str(SAMPLES["kafka-4-cluster"])]
    assert main(arguments) == 0
    plain = capfd.readouterr()
    monkeypatch.setenv("KDISSECT_DEBUG", "core")
    assert main(arguments) == 0
    debugged = capfd.readouterr()
    assert debugged.out == plain.out
    reasons = debugged.err.removeprefix(plain.err)
    for kind in ("packet", "exchange", "connection not lent"):
        assert re.search(rf"^kdissect: +\d+  {kind}: \w", reasons, re.MULTILINE), kind
    assert re.search(r" exchange: Envelope v\d: an API and version that the output leaves to Python", reasons)
    assert main([*arguments[:3], "2", arguments[-1]]) == 0
    assert "in one process: -j 1" in capfd.readouterr().err


def test_a_connection_comes_back_as_it_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the core gives back at once is what it was lent."""
    states: list[ConnectionState] = []

    class Returning:
        """The core, from which each connection comes back once before it stays."""

        shift = property(fset=lambda self, shift: setattr(self.core, "shift", shift))

        def __init__(self, *arguments: Any) -> None:
            self.core = native(*arguments)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.core, name)

        def lend(self, state: ConnectionState) -> bool:
            assert self.core.lend(state)
            back = self.core.recall(state.ordinal)
            assert back is not None
            assert comparable(back) == comparable(state)
            states.append(state)
            return bool(self.core.lend(back))

    native = core.native.Lending
    monkeypatch.setattr(core.native, "Lending", Returning)
    packets = damaged(mixed(BUSY, Random(5)), Random(5))
    facts(blocks_of(pcap(packets), tmp_path), is_observed=True)
    assert any(each.kafka is not None and each.kafka.pairing.waiting for each in states)


def comparable(state: ConnectionState) -> tuple[Any, ...]:
    """A state whose outstanding requests may be other objects, and whose lists may be tuples."""
    assert state.kafka is not None
    pairing = state.kafka.pairing
    waiting = [(each.correlation_id, each.request_frame, each.request_header) for each in pairing.waiting]
    tcp = state.tcp._replace(segments=list(state.tcp.segments))
    kafka = state.kafka._replace(pairing=pairing._replace(waiting=[]))
    return state._replace(tcp=tcp, kafka=kafka), waiting


def test_what_ends_with_a_connection_comes_after_what_it_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """While another connection waits, a request without acks is complete. At the same time, those before it
    are left without a response, because the port is used again.
    """
    waiting, ending = (
        Talk(("10.0.0.3", 41000)).handshake(),
        Talk(client_start=7000, broker_start=9000, first_number=1000).handshake(),
    )
    for number in range(20):
        for talk in (waiting, ending):
            talk.client_sends(request(3, 9, correlation_id=number))
            talk.broker_sends(response(3, 9, correlation_id=number))
    waiting.client_skips(10).client_sends(request(3, 9, correlation_id=20))
    ending.client_sends(request(12, 4, correlation_id=20)).waits(1)
    ending.client_sends(request(0, 8, {"acks": 0}, correlation_id=21))
    packets = [(each.time_ns, each.data) for each in waiting.packets + ending.packets]
    packets.append((ending.time_ns - ending.step_ns, Talk(client_start=99).handshake().packets[0].data))
    path = tmp_path / "ending.pcap"
    path.write_bytes(pcap(sorted(packets, key=itemgetter(0))))
    outputs = outputs_of(path, monkeypatch, capfd)
    assert outputs[0] == outputs[1]
    assert outputs[0].out.index("acks=0") < outputs[0].out.index("no response")


def test_lines_of_lifetimes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline, "_TICK_PACKETS", 20)
    path = tmp_path / "lifetimes.pcap"
    for seed in range(2 * SEEDS):
        path.write_bytes(pcap(some_lifetimes(seed)))
        outputs = outputs_of(path, monkeypatch, capfd)
        assert outputs[0].out
        assert outputs[0] == outputs[1], seed


@pytest.mark.parametrize("form", ["", "--json"])
def test_lines_of_lifetimes_in_shards(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Connections that open and end, lost and late packets: several processes write the lines of one."""
    monkeypatch.setattr(pipeline, "_TICK_PACKETS", 20)
    path = tmp_path / "lifetimes.pcap"
    for seed in range(SEEDS):
        random = Random(seed)
        path.write_bytes(pcap(damaged(lifetimes(random, 60, random.choice((0, 0.02, 0.1))), random)))
        outputs = []
        for jobs in ("1", "3"):
            assert main(["read", *form.split(), "-j", jobs, str(path)]) in (0, 1)
            outputs.append(capfd.readouterr())
        assert outputs[0].out
        assert outputs[0] == outputs[1], seed


def sealed(tmp_path: Path, *sessions: TlsSettings, mss: int) -> tuple[Timed, tuple[str, ...]]:
    """Talks in TLS, one after the other, and their key log. Some renew their keys on the way."""
    packets: Timed = []
    path = tmp_path / "keys.log"
    for number, settings in enumerate(sessions):
        talk = kafka(settings, rounds=3, mss=mss, client=("10.0.0.1", 40000 + number))
        if number % 2:
            talk.ends_of_tls[0].renegotiate()
            talk.negotiates()
        for each in range(40):
            talk.says(0, request(3, 1, {"topics": [{"name": "t" * each}]}, correlation_id=1000 + each))
            talk.says(1, response(3, 1, {"brokers": []}, correlation_id=1000 + each))
        packets += [(each.time_ns, each.data) for each in talk.finish().packets]
    path.write_bytes(b"".join(line for settings in sessions for line in settings.key_log))
    return packets, (str(path),)


@pytest.mark.parametrize("mss", [500, 1448, 60_000])
@pytest.mark.parametrize(
    ("version", "cipher"),
    [
        ("TLS 1.3", "TLS_AES_128_GCM_SHA256"),
        ("TLS 1.3", "TLS_CHACHA20_POLY1305_SHA256"),
        ("TLS 1.2", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS 1.2", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS 1.2", "ECDHE-RSA-AES128-SHA256"),
    ],
)
def test_tls(version: str, cipher: str, mss: int, compare: Any, tmp_path: Path) -> None:
    settings = TlsSettings(version, cipher)
    packets, key_logs = sealed(tmp_path, *([settings] * (1 + (version == "TLS 1.2"))), mss=mss)
    completed = compare(blocks_of(pcap(packets), tmp_path), key_logs=key_logs)
    assert bool(completed) == ("GCM" in cipher or "CHACHA" in cipher)
    for seed in range(SEEDS):
        compare(blocks_of(pcap(damaged(packets, Random(seed))), tmp_path), key_logs=key_logs)


def test_an_interrupt_in_a_cipher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packets, key_logs = sealed(tmp_path, TlsSettings(), mss=1448)
    blocks = blocks_of(pcap(packets), tmp_path)
    plain, calls = Opener13.open, 0

    def interrupted(self: Opener13, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 100:
            raise KeyboardInterrupt
        return plain(self, *arguments)

    monkeypatch.setattr(Opener13, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(Dissection(blocks, Options(key_logs=key_logs)))


def test_a_packet_at_a_time(compare: Any, tmp_path: Path) -> None:
    blocks = blocks_of(pcap(timed(SAMPLES["kafka-4-basics"])), tmp_path)
    packets = [packet for block in blocks for packet in block.packets]
    assert compare(packets)


@pytest.mark.parametrize("limit", [3000, 50_000, 400_000])
def test_the_memory_of_all_connections_has_a_limit(limit: int, compare: Any, tmp_path: Path) -> None:
    """The connections that lose what they hold are the same with the core."""
    limits = Limits(total_held_bytes=limit)
    compare(blocks_of(pcap(mixed(BUSY[:3], Random(4))), tmp_path), limits=limits)
    blocks = in_parts(blocks_of(pcap(held(Random(limit), 30, 20_000)), tmp_path), Random(4))
    compare(blocks, limits=limits)
    dissection = Dissection(blocks, Options(limits=limits))
    list(dissection)
    assert dissection.counts["shed"]


def test_the_connection_that_was_idle_longest_loses_what_it_holds(compare: Any, tmp_path: Path) -> None:
    """Not the one that was opened first."""
    talks = [Talk(("10.0.0.1", port)).handshake() for port in (40_001, 40_002)]
    packets = [packet for talk in talks for packet in talk.packets]
    for number, place in enumerate((0, 1, 0, 1, 0, *([0] * 100))):
        talk, sent = talks[place], len(talks[place].packets)
        talk.time_ns = packets[-1].time_ns + 1_000_000
        if number < 2:
            talk.client_sends(request(3, 9, correlation_id=1)).broker_sends(response(3, 9, correlation_id=1))
        elif number < 5:
            body = {"transactional_id": "t" * 1000, "acks": 1}
            talk.client_sends(request(0, 8, body, correlation_id=number))
        else:
            talk.client_acks()
        packets += talk.packets[sent:]
    blocks = blocks_of(pcap([(each.time_ns, each.data) for each in packets]), tmp_path)
    limits = Limits(total_held_bytes=6000)
    compare(blocks, limits=limits)
    shortened = [
        each.connection.client.port
        for each in Dissection(blocks, Options(limits=limits))
        if each.request_frame is not None and not each.request_frame.complete
    ]
    assert shortened == [40_002]


@pytest.mark.parametrize("is_observed", [False, True])
@pytest.mark.parametrize("exchanges", [5, 50])
def test_nothing_is_left_of_a_dissection(is_observed: bool, exchanges: int, tmp_path: Path) -> None:
    """The garbage collector sees the functions that the core calls, also in the middle of a capture."""
    dissection: Dissection | None = Dissection(
        blocks_of(pcap(mixed(BUSY, Random(4))), tmp_path),
        observer=ConnectionLog(DEFAULT) if is_observed else None,
    )
    assert dissection is not None
    assert len(list(islice(dissection, exchanges))) == exchanges
    left = weakref.ref(dissection)
    dissection = None
    gc.collect()
    assert left() is None


def breaking(monkeypatch: pytest.MonkeyPatch, method: str, result: Any, call: int) -> None:
    """From now on that call of a method has the result that a panic gives, and no effect; what ``recall``
    gives back is lost.
    """
    plain = core.native.Lending
    assert hasattr(plain, method)

    class Breaking:
        def __init__(self, *arguments: Any) -> None:
            self._core, self._left = plain(*arguments), call

        def __getattr__(self, name: str) -> Any:
            if name == method:
                self._left -= 1
                if not self._left:
                    lost = self._core.recall if name == "recall" else lambda *_: None
                    return lambda *arguments: (lost(*arguments), result)[1]
            return getattr(self._core, name)

    monkeypatch.setattr(core, "native", SimpleNamespace(**(vars(core.native) | {"Lending": Breaking})))


@pytest.mark.parametrize(
    ("method", "result"), [("run", ([], 0, lending._BROKEN, 0, [])), ("lend", False)], ids=["run", "lend"]
)
@pytest.mark.parametrize("call", [1, 3, 10])
def test_a_panic_costs_only_speed(
    method: str, result: Any, call: int, compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever call breaks: the packets from there on take the other way."""
    (block,) = blocks_of(pcap(timed(SAMPLES["kafka-4-basics"])), tmp_path)
    breaking(monkeypatch, method, result, call)
    compare([PacketBlock.of(packet) for packet in block.packets] if method == "run" else [block])


def test_a_panic_that_loses_a_connection_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was waiting for is lost. All other connections, and what follows, are as ever."""
    blocks = blocks_of(pcap(timed(SAMPLES["kafka-4-basics"])), tmp_path)
    every = len(list(Dissection(blocks)))
    for call in (1, 5):
        with monkeypatch.context() as broken:
            breaking(broken, "recall", None, call)
            assert every - 50 < len(list(Dissection(blocks))) <= every


def test_a_panic_in_places_costs_only_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for form in (pcap, pcapng):
        expected = blocks_of(form(timed(SAMPLES["quickstart"])), tmp_path)
        nothing = {"pcap_places": lambda *_: None, "pcapng_places": lambda *_: None}
        with monkeypatch.context() as broken:
            broken.setattr(core, "native", SimpleNamespace(**(vars(core.native) | nothing)))
            actual = blocks_of(form(timed(SAMPLES["quickstart"])), tmp_path)
        assert [[*each.packets] for each in actual] == [[*each.packets] for each in expected]


def outcome(path: Path) -> list[Any]:
    """The packets of a capture with their places, and how it ends."""
    packets: list[Any] = []
    try:
        with open_capture(str(path)) as opened:
            for block in opened.packet_blocks():
                assert isinstance(block, PacketBlock)
                places = list(block.places)
                assert list(block.places[1:3]) == places[1:3]
                assert block.places[-1] == places[-1]
                assert block.times_ns == (min(places)[0], max(places)[0])
                packets += [(*each, block.interface) for each in block.packets]
            return [*packets, opened.warnings]
    except CaptureError as error:
        return [*packets, str(error)]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("form", [pcap, pcapng])
def test_places_of_damaged_files(
    form: Any, order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(f"{form.__name__} {order}")
    packets = timed(SAMPLES["quickstart"])[:60]
    if form is pcap:
        whole = [pcap(packets, order=order, magic=magic) for magic in (MICROSECONDS, NANOSECONDS, MODIFIED)]
    else:
        whole = [pcapng(packets, order=order, nanoseconds=exact) for exact in (False, True)]
    path = tmp_path / "capture"
    for number in range(60):
        capture = bytearray(whole[number % len(whole)])
        for _ in range(number % 3):
            capture[random.randrange(24, len(capture))] ^= 1 << random.randrange(8)
        path.write_bytes(capture[: random.randrange(24, len(capture))] if number % 4 == 0 else capture)
        with_core = outcome(path)
        with without_core():
            assert with_core == outcome(path)
