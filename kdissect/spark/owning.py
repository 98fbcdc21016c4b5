"""Consecutive capture files -> the exchanges that belong to the task that owns some of the files.

The task reads the files before its own only for context. Holds the task's own exchanges until the dissection
yields them, and the connections that have had an exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from kdissect.capture.reader import open_capture
from kdissect.errors import CaptureError
from kdissect.model import UNACKNOWLEDGED, UNANSWERED, Anomaly, Closed, Data, Endpoint, Exchange, IdleTick

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.exchanges.kafka_connection import KafkaConnection
    from kdissect.limits import Limits
    from kdissect.model import ConnectionKey, Frame, Packet, PacketBlock
    from kdissect.net.connection import Connection, Event
    from kdissect.pipeline import Step
    from kdissect.spark.planning import Part
    from kdissect.stats.connection_log import ConnectionLog


class _LateBytes(NamedTuple):
    """Bytes that filled a hole in front of later bytes of their stream, which are in an earlier file.

    Attributes:
        capture: the file of the bytes that filled the hole.
        later_ns: times of the later bytes.
    """

    capture: str
    later_ns: set[int]


class OwnExchanges:
    """Decides which exchanges belong to a task that reads more than its own files: those whose response has
    its last byte, or the last of its bytes to arrive, in one of the task's own files. Tasks decide this
    independently of each other, and of how long an exchange was held back for a missing segment: waiting ends
    at the end of a file that other files follow.

    An incomplete or unanswered exchange belongs to the file that is being read when this becomes known. The
    same goes for every exchange if all tasks read the captures from the beginning, because then all tasks
    have the same information at each packet.

    Args:
        part: what the task reads.
        log: log of the connections. It gets the anomalies after a connection's last exchange only if the
            connection ends in one of the task's own files.

    Attributes:
        failures: files whose reading was ended by an I/O error.
        problems: of the task's own files.
    """

    def __init__(self, part: Part, log: ConnectionLog) -> None:
        self._part = part
        self._log = log
        self._capture: str | None = None
        self.failures: list[str] = []
        self.problems: list[str] = []
        self._exchanges: set[Exchange] = set()
        self._recognized: set[ConnectionKey] = set()
        self._closed: list[ConnectionKey] = []  # connections that ended since the last exchange
        self._ranks = {path: rank for rank, path in enumerate(part.paths)}

    def packets(self, limits: Limits) -> Iterator[PacketBlock | Packet | IdleTick]:
        """Read the files one after the other, and keep track of the current one. Damage in one file does not
        affect the others.
        """
        for path in self._part.paths:
            self._capture, latest_ns = path, 0
            problems: list[str] = []
            try:
                with open_capture(path, limits=limits) as capture:
                    try:
                        for block in cast("Iterator[PacketBlock]", capture.packet_blocks()):  # it is one file
                            latest_ns = max(latest_ns, block.times_ns[1])
                            yield block
                    finally:
                        self.failures += [path] if capture.failed else []
                        problems += capture.warnings
            except CaptureError as error:
                problems.append(str(error))
            if path in self._part.own:
                self.problems += problems
            # Every task that reads this file notices the deadlines that have passed by its end here.
            yield IdleTick(latest_ns - limits.reorder_window_ns)
        if not self._part.is_last:
            self._capture = None

    def watch(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Pass steps on, and note which exchanges are the task's own while their file is being read."""
        for step in steps:
            if step.exchanges:
                self._note(step.events, step.exchanges)
            yield step

    def connection(self, connection: Connection, kafka: KafkaConnection, end: Closed) -> None:
        """Take a connection that has ended, as an observer."""
        self._log.connection(connection, kafka, end, is_selected=self._capture in self._part.own)
        self._closed.append(connection.key)

    def unopened_connection(self, connection: Connection, end: Closed, *, is_listener: bool) -> None:
        """Take a connection that never opened, as an observer, if it ends in one of the task's own files."""
        if self._capture in self._part.own:
            self._log.unopened_connection(connection, end, is_listener=is_listener)

    def has(self, exchange: Exchange) -> bool:
        """Whether an exchange is the task's own; call it once for each exchange."""
        is_own = exchange in self._exchanges
        self._exchanges.discard(exchange)
        return is_own

    def _note(self, events: Sequence[Event], exchanges: Sequence[Exchange]) -> None:
        """Take exchanges that were completed at this step."""
        late = self._late(events) if len(events) > 1 else {}
        for exchange, frame in zip(exchanges, _completing_frames(exchanges), strict=True):
            capture = self._capture
            if frame is not None and self._is_of_its_bytes(exchange, frame):
                capture = frame.interface.capture
                info = exchange.connection
                sender = info.client_end if frame is exchange.request_frame else info.broker
                run = late.get((info.key, sender, frame.end_ns))
                if (
                    run is not None and frame.start_ns not in run.later_ns
                ):  # else the frame is complete in the earlier file
                    capture = run.capture
            if capture in self._part.own or (self._capture is None and self._is_abandoned(exchange)):
                self._exchanges.add(exchange)
        self._recognized.update(exchange.connection_key for exchange in exchanges)
        self._recognized.difference_update(self._closed)
        self._closed.clear()

    def _late(self, events: Sequence[Event]) -> dict[tuple[ConnectionKey, Endpoint, int], _LateBytes]:
        """Bytes that filled holes of an earlier file, by connection, sender and time of the later bytes."""
        latest: dict[tuple[ConnectionKey, Endpoint], str] = {}
        runs: dict[tuple[ConnectionKey, Endpoint], _LateBytes] = {}
        late: dict[tuple[ConnectionKey, Endpoint, int], _LateBytes] = {}
        for connection, side, item in events:
            if not isinstance(item, Data):
                continue
            stream, capture = (connection.key, connection.ends[side]), item.interface.capture
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
        """Whether the exchange belongs to the file of its last byte, rather than to the one being read."""
        if self._part.all_begin:
            return False
        if frame.complete:
            return True
        # a task that has read more files may have recognized the connection sooner
        is_reported_now = self._capture is not None and not self._part.begins
        return is_reported_now and exchange.connection_key not in self._recognized

    def _is_abandoned(self, exchange: Exchange) -> bool:
        """Whether an exchange is a request without a complete response yet, from a file that no later task
        reads; if so, add the anomaly.
        """
        is_open = exchange.kind == UNANSWERED or exchange.is_cut
        if not is_open or exchange.request_frame is None:
            return False
        if exchange.request_frame.interface.capture not in self._part.lost:
            return False
        detail = "the last file of the task ends here"
        exchange.anomalies.append(Anomaly("given_up", "request", detail))
        return True


def _completing_frames(exchanges: Sequence[Exchange]) -> list[Frame | None]:
    """The frame that completes each exchange: its response, the request if it expects none, or the response
    to a later request, which shows that there will be none.
    """
    answered = {
        (each.connection_key, each.completed_ns): each
        for each in exchanges
        if each.response_frame is not None
    }
    frames: list[Frame | None] = []
    for each in exchanges:
        frame = each.request_frame if each.kind == UNACKNOWLEDGED else each.response_frame
        if each.is_cut:  # its rest may be in another file
            frame = None
        later = answered.get((each.connection_key, each.completed_ns))
        if frame is None and later is not None and later.number > each.number:
            frame = later.response_frame
        frames.append(frame)
    return frames
