"""Connections have IDs of their own, also if their ends and first times are the same."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from kdissect.cli.main import main
from kdissect.limits import DEFAULT, Limits
from kdissect.net.connection import Connections
from kdissect.net.duplex import ConnectionIds
from kdissect.net.tcp import Segments, reversed_ends
from tests.captures import pcap
from tests.frames import API_VERSIONS, request, response
from tests.segments import SYN, Talk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kdissect.model import Packet

ENDS = bytes((10, 0, 0, 1, 10, 0, 0, 2, 0x9C, 0x40, 0x23, 0x84))


def talk(number: int, payload: bytes = b"data") -> Talk:
    """A connection like the others, except for its sequence numbers; all its packets have the same time."""
    start = 100_000 * number
    return Talk(client_start=start, broker_start=start + 7, step_ns=0).handshake().client_sends(payload)


def ids(packets: Iterable[Packet], limits: Limits = DEFAULT, *, analyzes: bool = False) -> list[str]:
    """The IDs of connections that have carried data, in order."""
    segments, connections = Segments(), Connections(limits, analyzes=analyzes)
    shown = []
    for packet in packets:
        segment = segments.feed(packet)
        assert segment is not None
        for connection, _, item in connections.feed(segment):
            if hasattr(item, "payload"):
                shown.append(connection.id)
    return shown


@pytest.mark.parametrize("ends", ["finish", "reset", None])
def test_the_same_ends_and_first_time(ends: str | None) -> None:
    talks = [talk(number) for number in range(1, 6)]
    for each in talks:
        if ends is not None:
            getattr(each, ends)()
    shown = ids(packet for each in talks for packet in each.packets)
    assert len(set(shown)) == 5
    assert ids(talks[0].packets) == ids(talks[3].packets) == shown[:1]  # the first ID needs no others


def test_both_directions_have_the_same_id() -> None:
    taken = ConnectionIds(DEFAULT, Counter())
    first = taken.next(ENDS, 5)
    assert first == taken.next(reversed_ends(ENDS), 5) == taken.next(ENDS, 5)
    taken.take(reversed_ends(ENDS), 5)
    assert len({first, taken.next(ENDS, 5), taken.next(ENDS, 6)}) == 3
    assert taken.next(ENDS, 5) == taken.next(reversed_ends(ENDS), 5)


@pytest.mark.parametrize("analyzes", [False, True])
def test_those_of_which_only_a_syn_was_captured_count(*, analyzes: bool) -> None:
    """Whether they have events depends on the command. IDs do not."""
    half_open = Talk(client_start=99, step_ns=0).put(0, SYN, acknowledgment=0)
    alone = ids(talk(1).packets, analyzes=analyzes)
    assert ids([*half_open.packets, *talk(1).packets]) != alone
    shown = [
        ids([*half_open.packets, *talk(1).packets, *talk(2).packets], analyzes=each) for each in (False, True)
    ]
    assert shown[0] == shown[1]
    assert len({*alone, *shown[0]}) == 3


def test_the_earliest_packet_counts_wherever_it_is_in_the_capture() -> None:
    swapped = Talk(start_ns=50, step_ns=-2).handshake().client_sends(b"data")
    earlier = (
        Talk(start_ns=48, step_ns=0, client_start=77_000, broker_start=3).handshake().client_sends(b"data")
    )
    shown = ids([*swapped.packets[:2], *swapped.packets[3:], *earlier.packets])
    assert shown[1:] != ids(earlier.packets)
    assert len(set(shown)) == 2


def test_memory_is_limited() -> None:
    taken = ConnectionIds(Limits(connection_ids=10), counts := Counter())
    first = taken.next(ENDS, 0)
    for time_ns in range(5):
        taken.take(ENDS, time_ns)
    assert taken.next(ENDS, 0) != first
    random = Random(1)
    for _ in range(1000):
        taken.take(ENDS, random.randrange(1, 1 << 60))
        assert len(taken._recent) + len(taken._earlier) <= 11
    assert taken.next(ENDS, 0) == first
    assert not taken.is_sure(ENDS, 0)
    assert counts["unsure_ids"] > 900


def test_ids_are_sure_while_time_goes_on() -> None:
    taken = ConnectionIds(Limits(connection_ids=10), counts := Counter())
    for time_ns in range(100):
        for _ in range(2):
            assert taken.is_sure(ENDS, time_ns)
            taken.take(ENDS, time_ns)
    assert not counts["unsure_ids"]
    taken.take(ENDS, 3)
    assert counts["unsure_ids"] == 1


def test_forgotten_connections_count_separately(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first and the last one have the same ends and time, and so the same ID."""
    talks = [
        Talk(("10.0.0.1", port), client_start=1000 * number, step_ns=0).handshake()
        for number, port in enumerate((41_000, *range(42_000, 42_006), 41_000), 1)
    ]
    for each in talks:
        each.client_sends(request(API_VERSIONS, 0)).broker_sends(response(API_VERSIONS, 0)).finish()
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap((packet.time_ns, packet.data) for each in talks for packet in each.packets))
    for limits, connections, says in (("connection_ids=4", 8, True), ("connection_ids=40", 8, False)):
        assert main(["summary", "--json", "-j", "1", "--limits", limits, str(path)]) == 0
        out, err = capsys.readouterr()
        (row,) = json.loads(out)["brokers"]
        assert row["connections"] == connections
        assert ("may have the ID of an earlier one" in err) == says
