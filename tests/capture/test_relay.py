from __future__ import annotations

import io
import os
import threading
from typing import TYPE_CHECKING

from kdissect.capture.live import CaptureSettings
from kdissect.capture.reader import open_capture
from kdissect.capture.relay import InterfaceReader, Queue, Relay
from tests.loopback import Client, broker, listens

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from kdissect.model import Packet


def relayed(
    max_bytes: int, beats: int, at_end: Callable[[Client], None] = lambda _: None
) -> tuple[list[Packet], int]:
    """Output of a relay whose pipe is read only at its end, and the number of packets it dropped.

    Args:
        at_end: called before the relay ends; the client is still connected.
    """
    out, into = os.pipe()
    until, end = os.pipe()
    os.set_blocking(into, False)
    with broker() as port:
        relay = Relay(CaptureSettings(("lo",), f"tcp port {port}"), max_bytes, into)
        thread = threading.Thread(target=relay.run, args=(until,))
        thread.start()
        with Client(port) as client:
            client.beat(beats)
            at_end(client)
            os.close(end)
            with os.fdopen(out, "rb") as stream:
                reader: list[bytes] = []
                reading = threading.Thread(target=lambda: reader.append(stream.read()))
                reading.start()
                thread.join()
                os.close(into)
                reading.join()
    os.close(until)
    relay.close()
    with open_capture(io.BytesIO(reader[0])) as capture:
        packets = list(capture)
        (counted,) = capture.statistics.values()
    assert counted.accepted is not None
    assert counted.delivered == len(packets)
    assert counted.dropped_by_system == 0
    return packets, counted.accepted - counted.delivered


@listens
def test_all_that_was_captured_is_written_before_the_end() -> None:
    packets, dropped = relayed(1 << 20, 20)
    assert dropped == 0
    assert len(packets) >= 40


@listens
def test_what_there_is_no_room_for_is_counted() -> None:
    packets, dropped = relayed(1, 20)
    assert dropped >= 40
    assert packets == []


@listens
def test_what_arrives_while_the_relay_ends_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    backlog = InterfaceReader.backlog

    def more_arrive(client: Client) -> None:
        def then_beat(reader: InterfaceReader) -> int:
            number = backlog(reader)
            client.beat(5)
            return number

        monkeypatch.setattr(InterfaceReader, "backlog", then_beat)

    packets, dropped = relayed(1 << 20, 20, more_arrive)
    assert len(packets) >= 40
    assert dropped == 0


def test_a_queue_goes_on_where_the_pipe_was_full() -> None:
    out, into = os.pipe()
    os.set_blocking(into, False)
    queue = Queue()
    pieces = [bytes([number % 256]) * 1000 for number in range(3000)]
    for piece in pieces:
        queue.write(piece)
    got = b""
    while queue:
        queue.write_to(into)
        got += os.read(out, 50_001)
    while len(got) < 3_000_000:
        got += os.read(out, 50_001)
    assert got == b"".join(pieces)
    assert queue.bytes == 0
    os.close(out)
    os.close(into)
