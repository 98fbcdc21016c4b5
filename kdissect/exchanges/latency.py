"""The latency of an answered exchange -> its parts, in order of time:

    queued      until the last byte of the previous response: brokers serve a connection one request at a time
    throttled   until the throttle time of the previous response is over. Since 2.0 a broker responds
                immediately and then stops reading from the connection (KIP-219); before, it delayed the
                response
    network     until bytes of the request were last retransmitted, if the original was captured too, and
                unless the broker reported before its response that it had them already (D-SACK)
    wait        the rest, if the broker waited for records, or for other members of a group
    service     the rest, if it did not

A part that cannot be known is None, and then so is the service time: after a gap, after a throttle time that
could not be decoded, of exchanges whose responses came in another order, and for a fetch that may or may not
have waited.

A consumer's fetch did not wait if enough of what it returned (``min_bytes``) was already available: batches
below the last high watermark (for read_committed: last stable offset) that the connection had seen. It waited
if it returned nothing, or less than that. Unknown: partitions whose high watermark the connection had not
seen, share groups (their responses have none), errors, and records that a quota withheld. A replica reads
past the high watermark: if it got records or an error, it is unknown whether it waited, and its service time
is never known. (KRaft fetches wait although their ``min_bytes`` is 0.)

The time between two fetches in which a consumer requests nothing is its think time: from the last byte of a
response to the last byte of the next request.

Holds, for each connection, the ends of the previous response and the previous fetch, and the last high
watermarks of the partitions that consumers fetch: at most ``Limits.watermarks``; the least recently reported
are dropped.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from kdissect.exchanges import content
from kdissect.kafka import apis
from kdissect.kafka.headers import API_VERSIONS
from kdissect.kafka.records import RecordData
from kdissect.model import UNANSWERED, LatencyParts
from kdissect.names import ENTRY_BYTES, entries, kept
from kdissect.net.duplex import NEVER_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kdissect.limits import Limits
    from kdissect.model import Body, ConnectionInfo, Exchange

_Partition = tuple[str | None, int | None]
"""A topic's name or ID, as on the wire, and a partition."""


class Watermark(NamedTuple):
    """A partition, its high watermark and its last stable offset."""

    topic: str
    partition: int
    high_watermark: int
    last_stable: int


class PaceState(NamedTuple):
    """What the parts of a connection's next latency depend on besides watermarks.

    Attributes:
        previous_ns: last byte of the previous response; None: unknown.
        fetched_ns: the same of the previous fetch; None: there was none, or it is unknown.
        unmuted_ns: the broker reads again by this time; None: unknown.
        is_certain: and not before.
        has_kip_219: whether the broker has it; None: unknown.
    """

    previous_ns: int | None
    fetched_ns: int | None
    unmuted_ns: int | None
    is_certain: bool
    has_kip_219: bool | None


PRODUCE, FETCH, JOIN_GROUP, SYNC_GROUP, SHARE_FETCH = 0, 1, 11, 14, 78
FETCHES = frozenset({FETCH, SHARE_FETCH})

UNKNOWN = LatencyParts(None, None, None, None, None)
_REBALANCING = frozenset({JOIN_GROUP, SYNC_GROUP})
_MAY_HIDE_RESPONSE = frozenset({"gap", "resynchronized", "partial_frame", "not_a_frame"})
_METADATA_TOPIC = frozenset({"__cluster_metadata", "AAAAAAAAAAAAAAAAAAAAAQ"})
_READ_COMMITTED = 1
_NEW_SESSION, _CLOSE_SESSION = 0, -1
_UNSUPPORTED_VERSION = 35
_MUTING_PRODUCE = 6  # introduced by 2.0, which has KIP-219
_MUTING_RELEASE = (2, 0)
_MS_NS = 1_000_000
_LOG_OVERHEAD = 12  # offset and size, which the size of a batch does not count


class Splitters:
    """Splits the latencies of all connections, and limits their watermarks together: the connections that
    have fetched least recently lose theirs.

    Attributes:
        limits: to respect.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._held_by: dict[_Splitter, int] = {}  # entries of their watermarks, the least recent first
        self._held = 0

    def split(self, exchange: Exchange) -> None:
        """Set ``parts`` and ``think_us`` of a decoded exchange. Those of a connection must come in order."""
        splitter: _Splitter = exchange.connection.splitter or self._of(exchange.connection)
        splitter.feed(exchange)

    def lend(self, info: ConnectionInfo) -> tuple[PaceState, list[Watermark] | None]:
        """The first fields of ``MemoryState``."""
        return self._of(info).state

    def restore(self, info: ConnectionInfo, pace: PaceState, watermarks: Iterable[Watermark] | None) -> None:
        """Continue after usual exchanges that the native core has split, see ``MemoryState``."""
        self._of(info).restore(pace, watermarks)

    def _of(self, info: ConnectionInfo) -> _Splitter:
        splitter: _Splitter | None = info.splitter
        if splitter is None:
            splitter = info.splitter = _Splitter(info, self.limits, self._account)
        return splitter

    def _account(self, splitter: _Splitter) -> None:
        self._held += splitter.held - self._held_by.pop(splitter, 0)
        if splitter.held:
            self._held_by[splitter] = splitter.held
        while self._held > self.limits.total_watermarks:
            idle = next(iter(self._held_by))
            self._held -= self._held_by.pop(idle)
            idle.forget_watermarks()


def waiter(exchange: Exchange) -> str | None:
    """The kind of a request that a broker may delay on purpose: its API name, followed by the reader if a
    Fetch is not a consumer's. None for other requests.
    """
    key = exchange.api_key
    if key == FETCH and content.replica_id(exchange) is not None:
        topics = (exchange.request or {}).get("topics") or ()
        is_metadata = any((each.get("topic") or each.get("topic_id")) in _METADATA_TOPIC for each in topics)
        return "Fetch (KRaft)" if is_metadata else "Fetch (replica)"
    return exchange.api if key in FETCHES or key in _REBALANCING else None


class _Splitter:
    """What the parts of a connection's next latency depend on; ``held``: entries of its watermarks."""

    __slots__ = (
        "_account", "_fetched_ns", "_has_kip_219", "_is_certain", "_max_watermarks", "_previous_ns",
        "_unmuted_ns", "_watermarks", "held",
    )  # fmt: skip

    def __init__(self, info: ConnectionInfo, limits: Limits, account: Callable[[_Splitter], object]) -> None:
        self._account = account  # to be called when the watermarks have changed
        self._previous_ns: int | None = 0  # last byte of the previous response; None: unknown
        self._fetched_ns: int | None = None  # the same of the previous fetch
        self._unmuted_ns: int | None = 0 if info.from_start else None  # see ``PaceState``
        self._is_certain = info.from_start
        self._has_kip_219: bool | None = None
        self._watermarks: dict[_Partition, tuple[int, int]] = {}  # high watermark, last stable offset
        self._max_watermarks = limits.watermarks
        self.held = 0

    @property
    def state(self) -> tuple[PaceState, list[Watermark] | None]:
        """See ``Splitters.lend``."""
        pace = PaceState(
            self._previous_ns, self._fetched_ns, self._unmuted_ns, self._is_certain, self._has_kip_219
        )
        watermarks: list[Watermark] = []
        for (topic, partition), offsets in self._watermarks.items():
            if topic is None or partition is None:
                return pace, None
            watermarks.append(Watermark(topic, partition, *offsets))
        return pace, watermarks

    def restore(self, pace: PaceState, watermarks: Iterable[Watermark] | None) -> None:
        """See ``Splitters``."""
        self._previous_ns, self._fetched_ns, self._unmuted_ns, self._is_certain, self._has_kip_219 = pace
        if watermarks is not None:
            self._watermarks = {
                (each.topic, each.partition): (each.high_watermark, each.last_stable) for each in watermarks
            }
            self.held = sum(map(entries, self._watermarks))
            self._account(self)

    def forget_watermarks(self) -> None:
        """Free the memory that they take."""
        self._watermarks, self.held = {}, 0

    def feed(self, exchange: Exchange) -> None:
        """Set the parts of an exchange, and remember what those of the next one depend on."""
        response = exchange.response_frame
        if exchange.anomalies and _may_hide_response(exchange):
            self._previous_ns, self._unmuted_ns, self._is_certain = None, None, False
            self._fetched_ns = None
        if response is None:
            return
        if exchange.is_out_of_order:  # the broker does not serve one request at a time
            self._previous_ns = None
        if exchange.request_frame is not None:
            if exchange.api_key == API_VERSIONS:
                self._note_versions(exchange)
            throttle_ns = _throttle_ns(exchange)
            mutes = self._mutes_after(exchange, throttle_ns) if throttle_ns else True
            delay_ns = 0 if mutes else None if mutes is None else throttle_ns
            waited = _waited(
                exchange.api_key,
                exchange.request if exchange.request_frame.complete else None,  # its last fields matter too
                exchange.response,
                self._watermarks,
                is_complete=response.complete,
            )
            exchange.parts = self._parts(
                exchange.time_ns, response.start_ns, delay_ns, exchange.retransmitted_ns, waited
            )
            if exchange.api_key in FETCHES:
                if self._fetched_ns is not None and self._fetched_ns <= exchange.time_ns:
                    exchange.think_us = (exchange.time_ns - self._fetched_ns) // 1000
                self._fetched_ns = response.end_ns if throttle_ns == 0 else None  # clients wait that long
            if exchange.api_key == FETCH:
                self._note_watermarks(exchange.response or {})
                self._account(self)
        else:
            throttle_ns = mutes = None
        self._previous_ns = response.end_ns
        if throttle_ns is None:
            self._unmuted_ns, self._is_certain = None, False
        elif throttle_ns and mutes is not False:
            self._unmuted_ns, self._is_certain = response.start_ns + throttle_ns, mutes is not None
        else:
            self._unmuted_ns, self._is_certain = 0, True

    def _parts(
        self,
        begin_ns: int,
        end_ns: int,
        delay_ns: int | None,
        retransmitted_ns: int | None,
        waited: bool | None,
    ) -> LatencyParts:
        """The parts of the latency from ``begin_ns`` to ``end_ns``, in which the broker delayed the response
        by ``delay_ns`` because of a quota (None: unknown).
        """
        if begin_ns > end_ns:
            return UNKNOWN
        queued_us = throttled_us = wait_us = service_us = None
        network_us = None if retransmitted_ns is not None else 0
        until_ns = self._previous_ns
        if until_ns is not None:
            until_ns = min(max(begin_ns, until_ns), end_ns)
            queued_us = (until_ns - begin_ns) // 1000
            unmuted_ns = self._unmuted_ns
            is_known = unmuted_ns is not None and (self._is_certain or unmuted_ns <= until_ns)
            if delay_ns is None or unmuted_ns is None or not is_known:
                until_ns = None
            else:
                until_ns = min(max(until_ns, unmuted_ns) + delay_ns, end_ns)
                throttled_us = (until_ns - begin_ns) // 1000 - queued_us
        if until_ns is not None and retransmitted_ns is not None:
            before_us = (until_ns - begin_ns) // 1000
            until_ns = min(max(until_ns, retransmitted_ns), end_ns)
            network_us = (until_ns - begin_ns) // 1000 - before_us
        if until_ns is not None:
            rest_us = (end_ns - begin_ns) // 1000 - (until_ns - begin_ns) // 1000
            wait_us = rest_us if waited else None
            service_us = None if waited or waited is None else rest_us
        return LatencyParts(
            queued_us, throttled_us, network_us, 0 if waited is False else wait_us, service_us
        )

    def _note_versions(self, exchange: Exchange) -> None:
        """Learn from an ApiVersions response whether the broker has KIP-219: one with an error may not list
        what it supports.
        """
        response = exchange.response or {}
        for each in () if response.get("error_code") else response.get("api_keys") or ():
            if each.get("api_key") == PRODUCE:
                self._has_kip_219 = each.get("max_version", 0) >= _MUTING_PRODUCE

    def _mutes_after(self, exchange: Exchange, throttle_ns: int) -> bool | None:
        """Whether the throttle time follows the response (KIP-219), or came before. None: unknown."""
        if self._has_kip_219 is None:
            latency_us = exchange.latency_us
            assert latency_us is not None
            if latency_us * 1000 < throttle_ns or is_recent(exchange.api_key, exchange.api_version):
                return True
        return self._has_kip_219

    def _note_watermarks(self, response: Body) -> None:
        watermarks = self._watermarks
        for each, key in _partitions(response):
            high_watermark = each.get("high_watermark", -1)
            if high_watermark < 0 or each.get("error_code"):
                continue
            last_stable = each.get("last_stable_offset", -1)
            if watermarks.pop(key, None) is None:
                self.held += entries(key)
            watermarks[key] = high_watermark, last_stable if last_stable >= 0 else high_watermark
            while self.held > self._max_watermarks:
                oldest = next(iter(watermarks))
                del watermarks[oldest]
                self.held -= entries(oldest)


def _may_hide_response(exchange: Exchange) -> bool:
    """Whether a response may be missing between the previous one and this exchange."""
    return any(
        each.kind in _MAY_HIDE_RESPONSE
        and (each.where == "connection" or (each.where == "response" and exchange.kind == UNANSWERED))
        for each in exchange.anomalies
    )


def _throttle_ns(exchange: Exchange) -> int | None:
    """The throttle time of a response. None if it could not be decoded. The response to an ApiVersions
    request in an unsupported version has none, even if it ends early.
    """
    body, frame = exchange.response, exchange.response_frame
    throttle_ms = None if body is None else body.get("throttle_time_ms")
    if exchange.api_key == API_VERSIONS and body and body.get("error_code") == _UNSUPPORTED_VERSION:
        return 0
    if throttle_ms is not None:
        return max(0, int(throttle_ms)) * _MS_NS
    assert frame is not None
    is_decoded = body is not None and frame.complete and "_undecoded" not in body
    return 0 if exchange.api_key is None or (is_decoded and exchange.response_layout is not None) else None


@cache
def is_recent(api_key: int | None, version: int | None) -> bool:
    """Whether only brokers with KIP-219 have this version."""
    api = None if api_key is None else apis.by_key(api_key)
    release = None if api is None or version is None else api.introduced.get(version)
    return release is not None and tuple(map(int, release.split(".")[:2])) >= _MUTING_RELEASE


def _waited(
    api_key: int | None,
    request: Body | None,
    response: Body | None,
    watermarks: Mapping[_Partition, tuple[int, int]],
    *,
    is_complete: bool = True,
) -> bool | None:
    """Whether the broker waited for something to return. None: unknown."""
    if api_key not in FETCHES:
        return api_key in _REBALANCING
    if not request or not response or "_undecoded" in request:
        return None
    is_replica = api_key == FETCH and content.fetching_broker(request) is not None
    if not is_replica and (response.get("error_code") or _is_answered_at_once(api_key, request)):
        return False
    needed = max(1, min(request.get("min_bytes", 1), request.get("max_bytes") or NEVER_NS))
    which = 1 if request.get("isolation_level") == _READ_COMMITTED else 0
    is_unclear = not is_complete or "_undecoded" in response or bool(response.get("error_code"))
    is_unseen = False
    returned = ready = 0
    for each, key in _partitions(response):
        if each.get("error_code") or "diverging_epoch" in each or "snapshot_id" in each:
            is_unclear = True
        if each.get("preferred_read_replica", -1) >= 0:
            return False
        records = each.get("records")
        if not isinstance(records, RecordData) or not len(records):
            continue
        returned += len(records)
        ends = None if is_replica else watermarks.get(key)
        if ends is None:
            is_unseen = True
            continue
        for batch in records.headers():
            if _last_offset(batch) >= ends[which]:
                break
            size = batch.get("batch_length") or batch.get("message_size") or 0
            ready += _LOG_OVERHEAD + size
            if ready >= needed:
                return False
    if is_unclear:
        return None
    if returned < needed:
        return None if response.get("throttle_time_ms") else True
    return None if is_unseen else True


def _is_answered_at_once(api_key: int | None, request: Body) -> bool:
    """Whether the broker answers a fetch immediately, whatever it has."""
    if request.get("max_wait_ms", 1) <= 0 or request.get("min_bytes", 1) <= 0:
        return True
    if api_key == SHARE_FETCH:
        return bool(request.get("share_session_epoch") == _CLOSE_SESSION)
    names_all = request.get("session_epoch", _CLOSE_SESSION) <= _NEW_SESSION
    return names_all and request.get("topics") == []


def _partitions(response: Body) -> Iterator[tuple[Body, _Partition]]:
    """The partitions of a response of Fetch or ShareFetch, each with its key."""
    for topic in response.get("responses") or ():
        name = topic.get("topic") or topic.get("topic_id")
        if name is not None and len(name) > ENTRY_BYTES:
            name = kept(name)
        for each in topic.get("partitions") or ():
            yield each, (name, each.get("partition_index"))


def _last_offset(batch: Body) -> int:
    """Offset of the last record of a batch, or of a message of magic 0 and 1."""
    if "offset" in batch:
        return int(batch["offset"])
    return int(batch["base_offset"]) + int(batch["last_offset_delta"])
