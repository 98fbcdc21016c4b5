from __future__ import annotations

import io
from typing import TYPE_CHECKING

from kdissect.capture.reader import open_capture
from kdissect.limits import DEFAULT
from kdissect.pipeline import Dissection
from kdissect.stats.check import build_check
from kdissect.stats.survey import Survey
from tests.captures import counters, enhanced, interface, pcap, section
from tests.cli.commands import capture_bytes, talk
from tests.segments import ACK, MILLISECOND, RST, START_NS, SYN, Talk

if TYPE_CHECKING:
    from kdissect.stats.quality import Check


def check(*captures: bytes) -> Check:
    observer = Survey(DEFAULT)
    with open_capture(*map(io.BytesIO, captures)) as capture:
        dissection = Dissection(observer.watch(capture), observer=observer)
        for exchange in dissection:
            observer.exchange(exchange)
    return build_check(
        capture.sources, observer, dissection.counts, dissection.skipped, [*capture.warnings, "b: odd"]
    )


def test_a_capture_without_fault() -> None:
    traffic = talk()
    traffic.broker_sends(b"")
    result = check(capture_bytes(traffic))
    assert (result.verdict, result.message) == (
        "damaged",
        "all 4 exchanges fully captured, 1 still pending; packets span 6.00ms",
    )
    assert (result.packets, result.seconds) == (7, 0.006)
    exchanges = result.exchanges
    assert (exchanges.total, exchanges.answered, exchanges.unanswered, exchanges.lost) == (4, 3, 1, 0)
    assert result.connections.protocols == {"Kafka": 1}
    assert (result.connections.ipv4, result.connections.kafka_from_start) == (1, 1)
    assert result.connections.close_reasons == {"end": 1}
    assert result.warnings == ["b: odd"]
    assert result.counts["packets"] == 7


def test_connections_without_data() -> None:
    refused = [Talk(client=("10.0.0.1", 50_000 + number)).put(0, SYN).put(1, RST | ACK) for number in (1, 2)]
    result = check(capture_bytes(talk().finish(), *refused)).connections
    assert (result.total, result.close_reasons, result.without_data) == (1, {"fin": 1}, 0)
    assert (result.unopened, result.unopened_others) == (2, 0)
    nothing = check(capture_bytes(*refused))
    assert (nothing.connections.total, nothing.connections.unopened_others) == (0, 2)
    assert nothing.findings[0].message == "No Kafka traffic (2 connections without data)."


def test_attributes_of_files_and_interfaces() -> None:
    blocks = [
        section(),
        interface(name="idle"),
        interface(name="eth0", snaplen=99, resolution=9),
        interface(),
    ]
    blocks += [
        enhanced(START_NS + number * MILLISECOND, packet.data, index=1, longer=number == 2)
        for number, packet in enumerate(talk().packets)
    ]
    blocks += [counters(index=1, received=9, dropped=2, dropped_by_system=3), counters(index=2, received=5)]
    (file,) = check(b"".join(blocks)).files
    assert (file.format, file.byte_order, file.compression, file.packets) == ("pcapng", "little", None, 7)
    assert file.bytes == sum(map(len, blocks))
    eth, other = file.interfaces
    assert (eth.interface, eth.name, eth.link, eth.ticks_per_second, eth.snaplen) == (
        1, "eth0", "Ethernet", 10**9, 99,
    )  # fmt: skip
    assert (eth.packets, eth.cut, eth.wire_bytes - eth.captured_bytes) == (7, 1, 1)
    assert (eth.received, eth.dropped_by_interface, eth.dropped_by_system) == (9, 2, 3)
    assert (other.interface, other.packets, other.received) == (2, 0, 5)


def test_a_file_without_packets() -> None:
    result = check(pcap(()))
    assert (result.verdict, result.first, result.packets, result.seconds) == ("empty", None, 0, 0)
    assert (result.files[0].format, result.files[0].first) == ("pcap", None)


def test_skipped_packets_are_counted_by_reason() -> None:
    result = check(pcap(((START_NS, bytes(12) + b"\x08\x06" + bytes(40)),) * 3))
    assert result.skipped == {"ARP": 3}
