from __future__ import annotations

import time
from itertools import pairwise
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import core, open_capture
from kdissect.model import IdleTick, Interface, Packet, PacketBlock
from kdissect.net.tcp import Segments, shard_of
from kdissect.runs import worker_pool
from kdissect.runs.broadcast import Broadcast, Stopped
from kdissect.runs.worker_pool import Inbox, Outbox, WorkerPool
from samples.golden import ROOT
from tests.core import needs_core

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdissect.runs.broadcast import PacketInbox, Packets

CAPTURE = ROOT / "samples" / "kafka-4-basics.pcap"
LO = Interface("lo", 0, 1)
WORKERS = 3


class Last(list[Any]):
    """The last message of a worker: what it got."""


def block(size: int) -> PacketBlock:
    return PacketBlock(1, LO, bytes(size), [(5, 0, size, size)])


def facts(packets: Packets) -> Any:
    """All about packets, with copies of their bytes."""
    if isinstance(packets, PacketBlock):
        return packets.number, packets.span, packets.packets
    return packets


def received(
    messages: Sequence[Sequence[Packets | None]], *, divides: bool = True, workers: int = WORKERS
) -> list[list[Any]]:
    """What each worker gets until the end of the pass."""
    broadcast = Broadcast(workers, divides=divides)

    def job(index: int, outbox: Outbox, inbox: Inbox) -> None:
        packets = broadcast.inbox(index, inbox)
        outbox.send(Last(map(facts, packets.packets(packets.receive))))

    def reader(outbox: Outbox, _inbox: Inbox) -> None:
        broadcast.start()
        for message in (*messages, [None]):
            assert broadcast.send(message, bool)
        outbox.send(Last())

    with WorkerPool(workers, job, reader) as pool:
        by_process = dict(pool.messages(Last, int))
    return [by_process[worker] for worker in range(workers)]


@needs_core
def test_each_worker_gets_the_packets_of_its_shard_and_those_of_none() -> None:
    with open_capture(CAPTURE) as capture:
        blocks = [each for each in capture.packet_blocks() if isinstance(each, PacketBlock)]
    arp = Packet(9, 5, LO, b"\xff" * 12 + b"\x08\x06" + bytes(46), 60)
    odd = PacketBlock(9, LO, arp.data, core.native.Places([(5, 0, 60, 60)]))
    all_received = received([blocks[:1], [*blocks[1:], odd]])
    assert {len(each) for each in all_received} == {len(blocks) + 1}
    for worker, own in enumerate(all_received):
        for sent, (number, span, packets) in zip(blocks, own, strict=False):
            assert (number, span) == (sent.number, sent.span)
            segments = map(Segments().feed, sent.packets)
            expected = [
                packet
                for packet, segment in zip(sent.packets, segments, strict=True)
                if segment is None or shard_of(segment.ends, WORKERS) == worker
            ]
            assert packets == expected
            assert 0 < len(expected) < len(sent.places)
        assert own[-1][-1] == [arp]


def test_each_worker_gets_all_packets_if_they_are_not_to_be_divided() -> None:
    with open_capture(CAPTURE) as capture:
        packets = list(capture.packet_blocks())
    messages = [packets, [IdleTick(7), Packet(3, 8, LO, b"abc", 3)]]
    expected = [facts(each) for message in messages for each in message]
    assert received(messages, divides=False) == [expected] * WORKERS


@pytest.mark.parametrize("times", [1, 4])
def test_packets_go_without_the_rest_of_their_buffer(times: int) -> None:
    places = [(5, 90, 92, 2), (6, 93, 95, 9)] * times
    sent = PacketBlock(3, LO, b"x" * 90 + b"abcde" + b"x" * 90, places)
    (((*_, packets),),) = received([[sent]], workers=1)
    assert [each.data for each in packets] == [b"ab", b"de"] * times
    assert bytes(Broadcast(1, divides=True)._shared(sent).data) == b"abcde"


@needs_core
@pytest.mark.parametrize("divides", [True, False])
def test_packets_that_end_with_their_buffer(divides: bool) -> None:
    sent = PacketBlock(3, LO, b"x" * 90 + b"abcde", core.native.Places([(5, 90, 92, 2), (6, 93, 95, 9)]))
    (((*_, packets),),) = received([[sent]], divides=divides, workers=1)
    assert [each.data for each in packets] == [b"ab", b"de"]


def test_interfaces_stay_the_same_objects() -> None:
    """The core knows them by identity, and only some."""
    broadcast = Broadcast(1, divides=True)

    def job(index: int, outbox: Outbox, inbox: Inbox) -> None:
        packets = broadcast.inbox(index, inbox)
        kept: list[Any] = list(packets.packets(packets.receive))
        outbox.send(Last([len({id(each.interface) for each in kept})]))

    def reader(outbox: Outbox, _inbox: Inbox) -> None:
        for number in range(50):
            copy = Interface("lo", 0, 1)
            broadcast.send([block(9)._replace(interface=copy), Packet(number, 5, copy, b"abc", 3)], bool)
        broadcast.send([None], bool)
        outbox.send(Last())

    with WorkerPool(1, job, reader) as pool:
        assert dict(pool.messages(Last, int))[0] == [1]


def test_sending_ends_although_a_worker_reads_no_more() -> None:
    """Its pipe is full before the shared memory is."""

    def job(index: int, outbox: Outbox, inbox: PacketInbox) -> None:
        with pytest.raises(Stopped):
            inbox.receive()
        time.sleep(1)
        outbox.send(Last())

    def send(broadcast: Broadcast, pool: WorkerPool) -> None:
        deadline = time.monotonic() + 1
        while broadcast.send([IdleTick(1)], lambda: time.monotonic() > deadline):
            pass
        pool.stop()

    assert run(job, send) == [[], []]


@needs_core
def test_packets_arrive_without_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_capture(CAPTURE) as capture:
        blocks = list(capture.packet_blocks())
    expected = received([blocks])
    monkeypatch.setattr(worker_pool, "_RING_BYTES", 100)
    assert received([blocks]) == expected


def test_a_message_of_any_size_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_RING_BYTES", 10_000)
    sizes = [10, 4_000, 5_000, 5_001, 20_000, 3_000, 3_000, 3_000, 1]
    (got,) = received([[block(size)] for size in sizes], workers=1)
    assert [len(packets[0].data) for *_, packets in got] == sizes


def run(
    job: Callable[[int, Outbox, PacketInbox], None], send: Callable[[Broadcast, WorkerPool], object]
) -> list[Any]:
    """What two workers send while this process sends them packets."""
    broadcast = Broadcast(2, divides=True)

    def own(index: int, outbox: Outbox, inbox: Inbox) -> None:
        job(index, outbox, broadcast.inbox(index, inbox))

    with WorkerPool(2, own) as pool:
        broadcast.start()
        sender = Thread(target=send, args=(broadcast, pool))
        sender.start()
        messages = [message for _, message in pool.messages(Last, int)]
        sender.join()
    return messages


def test_it_waits_for_the_slowest_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_RING_BYTES", 10_000)
    is_done = Event()

    def job(index: int, outbox: Outbox, inbox: PacketInbox) -> None:
        if index:
            inbox.receive()
        outbox.send(Last(map(facts, inbox.packets(inbox.receive))))

    def send(broadcast: Broadcast, pool: WorkerPool) -> None:
        def send_all() -> None:
            for _ in range(20):
                assert broadcast.send([block(2_000)], bool)
            assert broadcast.send([None], bool)
            is_done.set()

        sending = Thread(target=send_all)
        sending.start()
        assert not is_done.wait(0.2)
        pool.send(1, "go on")
        sending.join()

    messages = run(job, send)
    assert [len(each) for each in messages] == [20, 20]
    assert is_done.is_set()


def test_nothing_waits_for_workers_that_need_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_RING_BYTES", 10_000)
    sent = []

    def job(_index: int, outbox: Outbox, inbox: PacketInbox) -> None:
        for expected in (inbox.receive, lambda: list(inbox.packets(inbox.receive)), inbox.receive):
            with pytest.raises(Stopped):
                expected()
        outbox.send(Last())

    def send(broadcast: Broadcast, pool: WorkerPool) -> None:
        deadline = time.monotonic() + 0.2
        while broadcast.send([block(2_000)], lambda: time.monotonic() > deadline):
            sent.append(1)
        pool.stop()

    assert run(job, send) == [[], []]
    assert 3 <= len(sent) <= 5  # as many as there is room for


def test_a_worker_gets_packets_and_other_messages_apart() -> None:
    def job(_index: int, outbox: Outbox, inbox: PacketInbox) -> None:
        got: list[Any] = []
        packets = inbox.packets(lambda: got.append(inbox.receive()), lambda: got.append("idle"), 0.05)
        kept = None
        for each in packets:
            assert isinstance(each, PacketBlock)
            assert kept in (None, each.interface)
            kept = each.interface
            got.append(bytes(each.data))
        outbox.send(Last(got))

    def send(broadcast: Broadcast, pool: WorkerPool) -> None:
        for turn, size in enumerate((1, 2)):
            broadcast.send([PacketBlock(1, Interface("lo", 0, 1), bytes(size), [(5, 0, size, size)])], bool)
            for worker in range(2):
                time.sleep(0.02)
                pool.send(worker, f"update {turn}")
        time.sleep(0.3)
        broadcast.send([None], bool)

    for got in run(job, send):
        assert [each for each in got if isinstance(each, bytes)] == [bytes(1), bytes(2)]
        assert [each for each in got if str(each).startswith("update")] == ["update 0", "update 1"]
        assert got[-1] == "idle"
        assert not any(one == other == "idle" for one, other in pairwise(got))
