from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

from kdissect import native
from kdissect.model import IdleTick, Interface, Packet, PacketBlock
from kdissect.parallel import broadcast
from kdissect.parallel.broadcast import Broadcast, PacketInbox

LO = Interface("lo", 0, 1)


class Pool:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send_to_all(self, message: Any) -> None:
        self.sent.append(message)


class Inbox:
    """Messages that have arrived."""

    def __init__(self, *messages: Any) -> None:
        self._messages = list(messages)

    def receive(self) -> Any:
        return self._messages.pop(0)

    def has_message(self) -> bool:
        return bool(self._messages)


def block(size: int) -> PacketBlock:
    return PacketBlock(1, LO, bytes(size), [(5, 0, size, size)])


def test_it_waits_for_the_slowest_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "_AHEAD_BYTES", 150)
    pool = Pool()
    sender = Broadcast(pool, 2)  # type: ignore[arg-type]
    for _ in range(2):
        assert sender.send(block(100))
    waiting = threading.Thread(target=sender.send, args=[IdleTick(7)])
    waiting.start()
    sender.note(0, 4)
    waiting.join(0.05)
    assert waiting.is_alive()
    sender.note(1, 2)
    waiting.join()
    assert pool.sent[2:] == [IdleTick(7)]


def test_it_sends_nothing_that_nobody_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "_AHEAD_BYTES", 0)
    pool = Pool()
    sender = Broadcast(pool, 1)  # type: ignore[arg-type]
    assert sender.send(block(1))
    sender.stop()
    assert not sender.send(block(1))
    assert len(pool.sent) == 1


def test_packets_go_without_the_rest_of_their_buffer() -> None:
    pool = Pool()
    sender = Broadcast(pool, 1)  # type: ignore[arg-type]
    sender.send(PacketBlock(3, LO, b"x" * 90 + b"abcde" + b"x" * 90, [(5, 90, 92, 2), (6, 93, 95, 9)]))
    sender.send(Packet(5, 7, LO, b"fg", 2))
    first, second = pool.sent
    assert first == PacketBlock(3, LO, b"abcde", [(5, 0, 2, 2), (6, 3, 5, 9)])
    assert [each.data for each in (*first.packets, *second.packets)] == [b"ab", b"de", b"fg"]


def test_a_worker_gets_packets_and_other_messages_apart() -> None:
    copies = [PacketBlock(1, Interface("lo", 0, 1), b"a", [(5, 0, 1, 1)]) for _ in range(2)]
    inbox = PacketInbox(Inbox(copies[0], "first", copies[1], "second", IdleTick(9), None))  # type: ignore[arg-type]
    assert inbox.receive() == "first"
    others: list[Any] = []
    packets = list(inbox.packets(lambda: others.append(inbox.receive())))
    assert packets == [*copies, IdleTick(9)]
    assert packets[0].interface is packets[1].interface  # type: ignore[union-attr]
    assert others == ["second"]


@pytest.mark.core
@pytest.mark.skipif(native.core is None, reason="installed without the native core")
def test_the_places_of_packets_can_be_sent() -> None:
    assert native.core is not None
    places = native.core.Places([(-5, 0, 60, 70), (1 << 60, 70, 99, (1 << 32) - 1)])
    copy = pickle.loads(pickle.dumps(places))
    assert list(copy) == list(places)
    for damaged in (b"x", bytes(31), b"\xff" * 32):
        with pytest.raises(TypeError):
            native.core.Places(damaged)
