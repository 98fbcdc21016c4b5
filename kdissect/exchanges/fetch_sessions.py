"""Fetch exchanges -> the position of each consumer in each of its partitions, including those that an
exchange leaves out.

In a fetch session (KIP-227) a request names only the partitions whose position changed, and a response only
those with something new. The others are remembered here: positions by connection and session ID, at most
``Limits.fetch_session_partitions`` of them. Above that, the least recently used session is evicted. If a
capture starts in the middle of a session, its partitions are learned as they are named.

A consumer is expected to go on after the records that it was sent, and elsewhere after OFFSET_OUT_OF_RANGE.
Where it did is known from its next request. So the partitions whose last response had records or that error
are remembered too, as they were requested, in a session with ID 0 for each connection.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.kafka.codes import error_code
from kdissect.names import entries, kept

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kdissect.exchanges.touched import Touched
    from kdissect.kafka.records import RecordData
    from kdissect.limits import Limits
    from kdissect.model import ConnectionKey, Exchange

FETCH = 1
_NO_SESSION = 0
_FIRST_EPOCH = 0
_NO_TIMESTAMP = -1
_OUT_OF_RANGE = error_code("OFFSET_OUT_OF_RANGE")


class Position(NamedTuple):
    """A consumer's position in a partition after a Fetch response.

    Attributes:
        topic, partition: the partition.
        fetch_offset: the requested offset. None if it was requested before the capture started.
        next_offset: just past the last fetched record; ``fetch_offset`` if there was none, or if it
            ``repeats``.
        newest_ms: timestamp of the newest fetched record. None without records.
        high_watermark, last_stable_offset, log_start_offset: from the broker. None if it did not send them.
        error: the partition's error code.
        repeats: how often in a row the same offset was requested again, although records came.
        skipped: how far this request is past the one before, whose offset was out of range; negative: it went
            back.
    """

    topic: str
    partition: int
    fetch_offset: int | None
    next_offset: int | None
    newest_ms: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    log_start_offset: int | None
    error: int
    repeats: int = 0
    skipped: int = 0

    @property
    def lag(self) -> int | None:
        """Records between the position and the high watermark. None if either is unknown."""
        if self.high_watermark is None or self.next_offset is None or self.high_watermark < 0:
            return None
        return max(0, self.high_watermark - self.next_offset)


_Key = tuple[str, int]
_Session = dict[_Key, Position]
_SessionKey = tuple["ConnectionKey", int]  # with the session ID


class FetchSessions:
    """The open fetch sessions."""

    def __init__(self, limits: Limits) -> None:
        self._sessions: OrderedDict[_SessionKey, _Session] = OrderedDict()
        self._ids: dict[ConnectionKey, set[int]] = {}  # of the sessions of each connection
        self._max_partitions = limits.fetch_session_partitions
        self._partitions = 0

    def feed(self, exchange: Exchange, touched: Sequence[Touched]) -> list[Position]:
        """Process a Fetch and its partitions. Returns the position in every partition that it
        fetched.
        """
        request = exchange.request or {}
        requested_id, requested_epoch = (
            request.get("session_id", _NO_SESSION),
            request.get("session_epoch", -1),
        )
        connection = exchange.connection.key
        is_incremental = requested_id != _NO_SESSION and requested_epoch > _FIRST_EPOCH
        session = self._take(connection, requested_id) if requested_id != _NO_SESSION else {}
        if not is_incremental:
            session = {}
        names = exchange.topic_ids
        if not names.keys().isdisjoint(topic for topic, _ in session):  # named since
            session = {
                (names.get(topic, topic), partition): position._replace(topic=names.get(topic, topic))
                for (topic, partition), position in session.items()
            }
        for topic in request.get("forgotten_topics_data") or ():
            name = topic.get("topic") or names.get(topic.get("topic_id", ""), topic.get("topic_id"))
            for partition in topic.get("partitions") or ():
                session.pop((kept(name), partition), None)
        if exchange.response is None or exchange.response.get("error_code"):
            return []
        answered = self._take(connection, _NO_SESSION)
        for each in touched:
            key = kept(each.topic), each.partition
            end, newest_ms = _end(each.fetched)
            position = _new_position(each, key[0], session.get(key), answered.pop(key, None), end, newest_ms)
            session[key] = position
            if end is not None and not position.error:
                answered[key] = position._replace(next_offset=end)
            elif position.error == _OUT_OF_RANGE:
                answered[key] = position
        if answered:
            self._store((connection, _NO_SESSION), answered)
        assigned_id = exchange.response.get("session_id", _NO_SESSION)
        if assigned_id != _NO_SESSION and session:
            self._keep((connection, assigned_id), session)
        return list(session.values())

    def lend(self, connection: ConnectionKey) -> dict[int, list[Position]]:
        """The positions before the next Fetch of a connection, see ``MemoryState``."""
        return {
            session_id: list(self._sessions[connection, session_id].values())
            for session_id in self._ids.get(connection, ())
        }

    def restore(self, connection: ConnectionKey, session_id: int, positions: Iterable[Position]) -> None:
        """Continue with the positions after the last Fetch that the core has seen; none: the session is
        over.
        """
        self._take(connection, session_id)
        session = {(position.topic, position.partition): position for position in positions}
        if session:
            self._store((connection, session_id), session)

    def _take(self, connection: ConnectionKey, session_id: int) -> _Session:
        session = self._sessions.pop((connection, session_id), None)
        if session is None:
            return {}
        self._forget((connection, session_id), session)
        return session

    def _forget(self, key: _SessionKey, session: _Session) -> None:
        """Account for a session that was removed."""
        connection, session_id = key
        self._partitions -= _entries(session)
        ids = self._ids[connection]
        ids.discard(session_id)
        if not ids:
            del self._ids[connection]

    def _keep(self, key: _SessionKey, session: _Session) -> None:
        """Remember the positions of a session, without what the last response returned."""
        positions = {
            each: position
            if position.fetch_offset == position.next_offset and not (position.repeats or position.skipped)
            else position._replace(fetch_offset=position.next_offset, repeats=0, skipped=0)
            for each, position in session.items()
        }
        self._store(key, positions)

    def _store(self, key: _SessionKey, session: _Session) -> None:
        self._take(*key)
        self._sessions[key] = session
        self._ids.setdefault(key[0], set()).add(key[1])
        self._partitions += _entries(session)
        while self._partitions > self._max_partitions and self._sessions:
            self._forget(*self._sessions.popitem(last=False))


def _entries(session: _Session) -> int:
    return sum(map(entries, session))


def _new_position(
    touched: Touched,
    topic: str,
    previous: Position | None,
    answered: Position | None,
    end: int | None,
    newest_ms: int | None,
) -> Position:
    """The position after a response. Values that neither message contains keep their previous value.

    Args:
        touched: the partition.
        topic: its topic, as it is kept.
        previous: its position in the session.
        answered: as it was requested before, if records or OFFSET_OUT_OF_RANGE came.
        end: offset after the records that came now.
        newest_ms: of these.
    """
    fetch_offset = touched.request.get("fetch_offset")
    skipped = 0
    if answered is not None and answered.error:
        if fetch_offset is not None and answered.fetch_offset is not None:
            skipped = fetch_offset - answered.fetch_offset
        answered = None
    if (
        fetch_offset is None
        and answered is not None
        and end is not None
        and end <= (answered.next_offset or 0)
    ):
        fetch_offset = answered.fetch_offset  # an unnamed partition is requested as before, and so it was
    if fetch_offset is None and previous is not None:
        fetch_offset = previous.next_offset
    is_repeated = answered is not None and fetch_offset is not None and answered.fetch_offset == fetch_offset
    return Position(
        topic,
        touched.partition,
        fetch_offset,
        fetch_offset if end is None or is_repeated else end,
        newest_ms,
        _or_previous(
            touched.response.get("high_watermark"), None if previous is None else previous.high_watermark
        ),
        _or_previous(
            touched.response.get("last_stable_offset"),
            None if previous is None else previous.last_stable_offset,
        ),
        _or_previous(
            touched.response.get("log_start_offset"), None if previous is None else previous.log_start_offset
        ),
        touched.error or 0,
        answered.repeats + 1 if answered is not None and is_repeated else 0,
        skipped,
    )


def _or_previous(value: int | None, previous: int | None) -> int | None:
    """The value. Brokers send -1 for an unknown offset: then the previous value."""
    return previous if value is None or value < 0 else value


def _end(records: RecordData | None) -> tuple[int | None, int | None]:
    """The offset after the last record, and the newest timestamp, both from the batch headers."""
    batches = [] if records is None else records.batches()
    if not batches:
        return None, None
    last = batches[-1]
    # A compressed message of magic 0 or 1 has the offset of the last message inside it.
    is_set = "offset" in last
    end: int = (last["offset"] if is_set else last["base_offset"] + last["last_offset_delta"]) + 1
    stamps: list[Any] = [
        batch.get("max_timestamp", batch.get("timestamp", _NO_TIMESTAMP)) for batch in batches
    ]
    newest: int = max(stamps)
    return end, None if newest == _NO_TIMESTAMP else newest
