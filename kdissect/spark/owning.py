"""Files that follow each other -> what belongs to the task that owns some of them, and reads others to know
what these are about. Holds which of the exchanges on their way are its own, and of which connections it has
seen any.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, cast

from kdissect.capture.reader import open_capture
from kdissect.errors import CaptureError
from kdissect.model import UNACKNOWLEDGED, UNANSWERED, Anomaly, Closed, Data, Endpoint, Exchange, IdleTick

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.exchanges.kafka_connection import KafkaConnection
    from kdissect.limits import Limits
    from kdissect.model import Frame, Packet, PacketBlock
    from kdissect.net.connection import Connection, Event
    from kdissect.pipeline import Step
    from kdissect.spark.planning import Part
    from kdissect.stats.connection_log import ConnectionLog


class _LateBytes(NamedTuple):
    """Bytes that came when later ones of their stream, in a file before, were there already.

    Attributes:
        capture: the file that has them.
        later_ns: the times of these later ones.
    """

    capture: str
    later_ns: set[int]


class OwnExchanges:
    """What belongs to a task that reads more than its own files: the exchanges whose answer has its last byte
    in them, or whose last byte to come is in them. So nothing has to be known of other tasks, and it does not
    matter how long an exchange was held back because a segment before it is missing: where a file ends that
    other files follow, it is not waited for any longer.

    What is incomplete, and what nobody answers, is of the file that is read when that is known; and so is
    everything where all tasks read the captures from their beginning, and thus know the same at each packet.

    Args:
        part: what the task reads.
        log: of the connections; it gets anomalies behind the last exchange only where the end is the task's.
    """

    def __init__(self, part: Part, log: ConnectionLog) -> None:
        self._part = part
        self._log = log
        self._capture: str | None = None
        self._exchanges: set[Exchange] = set()
        self._recognized: set[str] = set()  # connections
        self._closed: list[str] = []  # those that are over since exchanges were noted
        self._ranks = {path: rank for rank, path in enumerate(part.paths)}

    def packets(self, limits: Limits) -> Iterator[PacketBlock | Packet | IdleTick]:
        """Read the files one behind another, and know which it is. What is damaged of one costs no other."""
        for path in self._part.paths:
            self._capture, latest_ns = path, 0
            with suppress(CaptureError), open_capture(path, limits=limits) as capture:
                for block in cast("Iterator[PacketBlock]", capture.packet_blocks()):  # it is one file
                    latest_ns = max(latest_ns, max(block.places)[0])
                    yield block
            # Deadlines that have passed by then are noticed in this file by each task that reads it.
            yield IdleTick(latest_ns - limits.patience_ns)
        if not self._part.is_last:
            self._capture = None

    def watch(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Look at what becomes of the packets, while they are read."""
        for step in steps:
            events, exchanges, _ = step
            if exchanges:
                self._note(events, exchanges)
            yield step

    def connection(self, connection: Connection, kafka: KafkaConnection, end: Closed) -> None:
        """Take a connection that is over, as a survey does."""
        self._log.connection(connection, kafka, end, is_wanted=self._capture in self._part.own)
        self._closed.append(connection.id)

    def has(self, exchange: Exchange) -> bool:
        """Whether this is the task's; it is forgotten then."""
        is_own = exchange in self._exchanges
        self._exchanges.discard(exchange)
        return is_own

    def _note(self, events: Sequence[Event], exchanges: Sequence[Exchange]) -> None:
        """These are made now."""
        late = self._late(events) if len(events) > 1 else {}
        for exchange, frame in zip(exchanges, _completing_frames(exchanges), strict=True):
            capture = self._capture
            if frame is not None and self._is_of_its_bytes(exchange, frame):
                capture = frame.interface.capture
                info = exchange.connection
                sender = info.client if frame is exchange.request_frame else info.broker
                run = late.get((info.id, sender, frame.end_ns))
                if run is not None and frame.start_ns not in run.later_ns:  # else it is whole there
                    capture = run.capture
            if capture in self._part.own or (self._capture is None and self._is_abandoned(exchange)):
                self._exchanges.add(exchange)
        self._recognized.update(exchange.connection_id for exchange in exchanges)
        self._recognized.difference_update(self._closed)
        self._closed.clear()

    def _late(self, events: Sequence[Event]) -> dict[tuple[str, Endpoint, int], _LateBytes]:
        """What fills holes of a file before, by connection, sender and times of the later bytes."""
        latest: dict[tuple[str, Endpoint], str] = {}
        runs: dict[tuple[str, Endpoint], _LateBytes] = {}
        late: dict[tuple[str, Endpoint, int], _LateBytes] = {}
        for connection, side, item in events:
            if not isinstance(item, Data):
                continue
            stream, capture = (connection.id, connection.ends[side]), item.interface.capture
            before = latest.get(stream, capture)
            latest[stream] = capture
            if self._ranks[before] > self._ranks[capture]:
                runs[stream] = _LateBytes(before, set())
            elif before != capture:
                runs.pop(stream, None)
            if stream in runs:
                runs[stream].later_ns.add(item.time_ns)
                late[*stream, item.time_ns] = runs[stream]
        return late

    def _is_of_its_bytes(self, exchange: Exchange, frame: Frame) -> bool:
        """Whether the file counts that has the last byte, whenever this is known."""
        if self._part.all_begin:
            return False
        if frame.complete:
            return True
        # a task that has read more may have understood the connection sooner
        is_reported_now = self._capture is not None and not self._part.begins
        return is_reported_now and exchange.connection_id not in self._recognized

    def _is_abandoned(self, exchange: Exchange) -> bool:
        """Whether it is a request that waits, and that no task behind this one will know."""
        if exchange.kind != UNANSWERED or exchange.request_frame is None:
            return False
        if exchange.request_frame.interface.capture not in self._part.lost:
            return False
        detail = "the files read together by a task end here"
        exchange.anomalies.append(Anomaly("given_up", "request", detail))
        return True


def _completing_frames(exchanges: Sequence[Exchange]) -> list[Frame | None]:
    """The frame that completes each: its response, or the one that shows that there will be none."""
    responses = {
        (each.connection_id, each.completed_ns): each.response_frame
        for each in exchanges
        if each.response_frame is not None
    }
    return [
        each.request_frame
        if each.kind == UNACKNOWLEDGED
        else each.response_frame or responses.get((each.connection_id, each.completed_ns))
        for each in exchanges
    ]
