"""The bytes of a connection -> the exchanges that name topics, brokers or clusters, and few others.

The first pass over captures needs no other exchanges. While a connection is plain, a request whose API and
version cannot name topic IDs is held back, and forgotten together with its response: only the first bytes of
the two are read, and the rest is skipped by its length. Anything else, and everything held back before it, is
processed as usual. So the remaining exchanges are the same as without skimming, whatever happens. The native
core skims the connections that it has in the same way (``is_needed`` in lending.py).

Holds what ``KafkaConnection`` holds, and up to ``SHED_BYTES`` each of ``_HELD_BACK`` requests and a response.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar

from kdissect.exchanges.clusters import names_cluster
from kdissect.exchanges.content import PRODUCE
from kdissect.exchanges.kafka_connection import SASL_AUTHENTICATE, SASL_HANDSHAKE, KafkaConnection
from kdissect.exchanges.learned import ADVERTISING
from kdissect.exchanges.topic_names import may_name_topic_ids
from kdissect.kafka import schema
from kdissect.kafka.framing import SHED_BYTES, SIZE_BYTES
from kdissect.model import Closed, Data, Gap

if TYPE_CHECKING:
    from kdissect.exchanges.kafka_connection import KafkaState
    from kdissect.model import Decrypted, Exchange, Prefaced, Retransmitted

_REQUEST = Struct(">ihhi")  # size, API key, API version, correlation ID
_RESPONSE = Struct(">ii")  # size, correlation ID
_HELD_BACK = 8
_LARGE_BYTES = 4 * SHED_BYTES
_AUTHENTICATING = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})


class _SkimmedFrame:
    """A frame whose first bytes only are kept.

    Attributes:
        first: the first ``SHED_BYTES`` at most of its first packet.
        last: its latest packet.
        skipped: bytes after ``first`` so far.
        left: bytes still to come.
    """

    __slots__ = ("correlation_id", "first", "last", "left", "skipped")

    def __init__(self, item: Data, correlation_id: int, left: int) -> None:
        self.first = self.last = item
        self.correlation_id = correlation_id
        self.skipped = len(item.payload) - SHED_BYTES
        self.left = left
        if self.skipped > 0:
            self.first = item._replace(payload=item.payload[:SHED_BYTES])
        else:
            self.skipped = 0

    def skip(self, item: Data) -> bool:
        """Skip more of it. Returns whether that is all of ``item``."""
        size = len(item.payload)
        if size > self.left:
            return False
        self.last = item
        self.skipped += size
        self.left -= size
        return True


class SkimmedConnection(KafkaConnection):
    """A connection of which only some exchanges are needed; otherwise like ``KafkaConnection``.

    Attributes:
        needed_apis: keys of APIs that are needed in addition to those that name topic IDs.
    """

    needed_apis: ClassVar[frozenset[int]] = frozenset()

    __slots__ = ("_is_plain", "_last_id", "_requests", "_response")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._is_plain = False
        self._requests: deque[_SkimmedFrame] = deque()  # held back
        self._response: _SkimmedFrame | None = None  # of the first of them, as long as it is incomplete
        self._last_id: int | None = None  # correlation ID of the last request that was forgotten

    @classmethod
    @cache
    def needs(cls, api_key: int, api_version: int) -> bool:
        """Whether exchanges of this API and version are needed: they can name topic IDs, brokers or
        clusters, or determine how later frames are read, or nothing is known about them.
        """
        message = schema.request(api_key)
        is_known = message is not None and api_version in message.versions
        needs_all = api_key in cls.needed_apis or api_key in ADVERTISING or api_key in _AUTHENTICATING
        names = may_name_topic_ids(api_key, api_version) or names_cluster(api_key, api_version)
        return not is_known or needs_all or names

    def skims(self, side: int, item: Data | Gap | Prefaced | Retransmitted | Decrypted | Closed) -> bool:
        """Whether the next item from ``side`` is skipped, or held back for now. If not, pass it to
        ``feed``.
        """
        if not self._is_plain or not isinstance(item, Data):
            return False
        requests, payload = self._requests, item.payload
        if side == self._client:
            last = requests[-1] if requests else None
            if last is not None and last.left:
                return self._skips(side, last, item)
            if len(payload) < _REQUEST.size or len(requests) == _HELD_BACK:
                return False
            size, api_key, api_version, correlation_id = _REQUEST.unpack_from(payload)
            left = size + SIZE_BYTES - len(payload)
            if (
                correlation_id == (self._last_id if last is None else last.correlation_id)
                or self.needs(api_key, api_version)
                or not 0 <= left <= self._limits.frame_max_bytes
            ):
                return False
            requests.append(_SkimmedFrame(item, correlation_id, left))
            if left:
                self._connection.expect(side, left)
            return True
        response = self._response
        if response is not None:
            if not self._skips(side, response, item):
                return False
            if not response.left:
                self._response = None
                self._last_id = requests.popleft().correlation_id
            return True
        if not requests or requests[0].left or len(payload) < _RESPONSE.size:
            return False
        size, correlation_id = _RESPONSE.unpack_from(payload)
        left = size + SIZE_BYTES - len(payload)
        if correlation_id != requests[0].correlation_id or not 0 <= left <= self._limits.frame_max_bytes:
            return False
        if left:
            self._response = _SkimmedFrame(item, correlation_id, left)
            self._connection.expect(side, left)
        else:
            del requests[0]
            self._last_id = correlation_id
        return True

    def feed(self, side: int, item: Data | Gap) -> list[Exchange]:
        """Process the next bytes from ``side``, which were not skipped. Returns the exchanges that they
        complete.
        """
        out = self._take_back()
        out += super().feed(side, item)
        self._look(side)
        return out

    def close(self, end: Closed) -> list[Exchange]:
        """See ``KafkaConnection``."""
        return self._take_back() + super().close(end)

    def shed(self, now_ns: int) -> list[Exchange]:
        """See ``KafkaConnection``."""
        return self._take_back() + super().shed(now_ns)

    def lend(self, now_ns: int) -> KafkaState | None:
        """See ``KafkaConnection``."""
        self._take_back()  # an exchange that this completes is not needed
        return super().lend(now_ns)

    @property
    def held(self) -> int:
        """Bytes held, including overhead."""
        return super().held + sum(len(request.first.payload) for request in self._requests)

    def _skips(self, side: int, frame: _SkimmedFrame, item: Data) -> bool:
        """Whether ``item`` is only more of a frame, and is skipped."""
        is_skipped = frame.skip(item)
        if is_skipped:
            self._connection.expect(side, frame.left)
        return is_skipped

    @property
    def _broker(self) -> int:
        assert self._client is not None
        return 1 - self._client

    def _take_back(self) -> list[Exchange]:
        """Process what was held back as usual."""
        out: list[Exchange] = []
        if not self._is_plain:
            return out
        assert self._pairing is not None
        self._pairing.last_id = self._last_id
        self._is_plain = False
        frames = [(1 - self._broker, request) for request in self._requests]
        if self._response is not None:
            frames.append((self._broker, self._response))
        self._requests.clear()
        self._response = None
        for side, frame in frames:
            out += super().feed(side, frame.first)
            if frame.skipped:
                framing = self._framings[side]
                framing.shed()
                packet, time_ns, interface, _ = frame.last
                gap = Gap(packet, time_ns, interface, frame.skipped, "cut")
                out += self._process_frames(side, framing.feed(gap))
        return out

    def _look(self, side: int) -> None:
        """Determine whether the connection is plain now, and if not, whether the arriving body is needed."""
        pairing, identity = self._pairing, self._identity
        if pairing is None or identity is None or identity.raw_tokens or pairing.doubts:
            return
        if not pairing.waiting:
            are_whole = all(framing.is_at_boundary for framing in self._framings)
            self._is_plain = are_whole and all(self._seen) and not pairing.repeats
            self._last_id = pairing.last_id
        elif side != self._client and self._framings[side].bytes_expected > _LARGE_BYTES:
            first = pairing.waiting[0]
            is_request = first.api_key is not None and first.api_version is not None  # otherwise a SASL token
            if is_request and not self.needs(first.api_key, first.api_version):
                self._framings[side].shed()


class SkimmedForProduces(SkimmedConnection):
    """The same, with every Produce."""

    needed_apis = frozenset({PRODUCE})

    __slots__ = ()
