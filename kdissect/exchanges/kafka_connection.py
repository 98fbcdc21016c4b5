r"""The bytes of one connection's two directions -> its exchanges.

Until the connection is recognized as Kafka, both directions are searched. From then on one carries
requests, the other responses:

    client side --Data, Gap--> Framing --Frame--> Pairing.request  \\
                                                                     -> Exchange
    broker side --Data, Gap--> Framing --Frame--> Pairing.response /

Anomalies between two exchanges (gaps, lost boundaries) are attached to the next one.
"""

from __future__ import annotations

import base64
import binascii
from array import array
from collections import Counter
from functools import lru_cache, partial
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kdissect.errors import DecodeError
from kdissect.exchanges.outcomes import PATIENCE_NS, exceeded_settings
from kdissect.exchanges.pairing import Pairing
from kdissect.kafka.bodies import decode_request, decode_response
from kdissect.kafka.framing import SIZE_BYTES, Framing
from kdissect.kafka.headers import API_VERSIONS, CORRELATION_ID_BYTES, HEADER_BEGINS_BYTES
from kdissect.kafka.other_protocols import begins_with_token, other_protocol, sasl_mechanism, tls_alert
from kdissect.kafka.recognition import (
    NOT_KAFKA,
    AnsweredRequest,
    begins_with_response,
    can_be_request,
    can_begin_request,
    can_begin_response,
    first_response_before,
    is_first_frame,
    is_first_request,
    is_readable_request,
    is_request_head,
    is_response_head,
    locate_frames,
    locate_request,
    locate_response,
    locate_response_chain,
)
from kdissect.kafka.resync import Lost
from kdissect.kafka.vendors import vendor_of
from kdissect.model import ORPHAN, UNANSWERED, Anomaly, ConnectionInfo, Data, Exchange, Frame, Gap
from kdissect.names import kept
from kdissect.net.analysis import SHORTEST_PIECE_NS, note_at, noted_at
from kdissect.net.duplex import NEVER_NS
from kdissect.phrases import duration
from kdissect.tls.handshake import Hellos

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kdissect.exchanges.pairing import PairingState
    from kdissect.kafka.framing import CutFrame, PartialFrame
    from kdissect.kafka.resync import Search
    from kdissect.limits import Limits
    from kdissect.model import Body, Closed, Endpoint, Retransmitted, TlsSession
    from kdissect.net.connection import Connection


# ------------------------------------------------------------------------------------------------------------
# Exchanges of a connection -> its client: software (KIP-511), SASL mechanism, principal.
#
# Read from ApiVersions, SaslHandshake and SaslAuthenticate, and from the raw tokens that follow SaslHandshake
# v0. The principal is set only after the broker accepted the credentials. The credentials themselves are not
# kept.
# ------------------------------------------------------------------------------------------------------------


SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36

_KEY_AND_VERSION = Struct(">hh")
_MAX_ADVERTISED_BYTES = 8192  # more than 1,000 APIs

IDENTIFYING_APIS = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, None})
"""APIs from which ``Identity`` learns; None: a SASL token."""


class Identity:
    """What is known about the client of one connection so far.

    Attributes:
        raw_tokens: SaslHandshake v0 or a token was sent: frames that are not requests are SASL tokens.
    """

    __slots__ = ("_candidate", "_info", "_rounds", "raw_tokens")

    def __init__(self, info: ConnectionInfo) -> None:
        self._info = info
        self._candidate: str | None = None
        self._rounds = 0
        self.raw_tokens = False

    def on_token(self, mechanism: str) -> None:
        """The client sent its first token without a handshake."""
        self._info.sasl_mechanism = mechanism
        self._candidate, self._rounds = None, 0
        self.raw_tokens = True

    def on_handshake(self, frame: Frame) -> None:
        """Read a SaslHandshake as soon as it is sent: the tokens that follow depend on it."""
        _, api_version = _KEY_AND_VERSION.unpack_from(frame.data)
        self._info.sasl_mechanism = kept(_request(frame, SASL_HANDSHAKE).get("mechanism"))
        self._candidate, self._rounds = None, 0
        self.raw_tokens = api_version == 0

    def learn(self, exchange: Exchange) -> None:
        """Read a complete exchange, and set the client's identity in it."""
        if exchange.api_key in IDENTIFYING_APIS:
            if exchange.api_key == API_VERSIONS:
                self._learn_software(exchange)
                self._learn_vendor(exchange)
            elif exchange.api_key in (SASL_AUTHENTICATE, None):
                self._learn_principal(exchange)
        info = self._info
        exchange.client_software_name = info.client_software_name
        exchange.client_software_version = info.client_software_version
        exchange.principal = info.principal
        exchange.sasl_mechanism = info.sasl_mechanism

    def _learn_software(self, exchange: Exchange) -> None:
        if exchange.request_frame is not None:
            frame = exchange.request_frame
            name, version = client_software(frame.data, complete=frame.complete)
            self._info.client_software_name = name or self._info.client_software_name
            self._info.client_software_version = version or self._info.client_software_version

    def _learn_vendor(self, exchange: Exchange) -> None:
        frame, version = exchange.response_frame, exchange.api_version
        if frame is not None and version is not None and len(frame.data) <= _MAX_ADVERTISED_BYTES:
            self._info.vendor = (
                advertised_vendor(frame.data[CORRELATION_ID_BYTES:], version) or self._info.vendor
            )

    def _learn_principal(self, exchange: Exchange) -> None:
        if exchange.request_frame is None:
            return
        mechanism = self._info.sasl_mechanism or ""
        self._rounds += 1
        if self._rounds == 1:
            self._candidate = kept(user_of(mechanism, _request_token(exchange)))
        answer = _response_token(exchange)
        if answer is None or self._candidate is None:
            return
        if _accepts(mechanism, answer):
            self._info.principal = kept(f"User:{self._candidate}")


def client_software(data: bytes, *, complete: bool = True) -> tuple[str | None, str | None]:
    """Name and version of the software that sent an ApiVersions request, if it has any, as they are kept."""
    request = decode_request(data, API_VERSIONS, complete=complete, show_secrets=True).value
    return kept((request.get("client_software_name") or None, request.get("client_software_version") or None))


@lru_cache(maxsize=16)
def advertised_vendor(body: bytes, version: int) -> str | None:
    """The vendor of the broker that sent an ApiVersions response: the one whose APIs are in it. ``body``: the
    message without its correlation ID. The responses of a broker are alike.
    """
    message = decode_response(bytes(CORRELATION_ID_BYTES) + body, API_VERSIONS, version).value
    return vendor_of({each["api_key"] for each in message.get("api_keys") or () if "api_key" in each})


def _accepts(mechanism: str, answer: bytes) -> bool:
    """Whether the broker's token accepts the credentials. The error code can be 0 even if it does not.

    SCRAM's last token is v= if the proof was right, otherwise e= (RFC 5802). OAUTHBEARER rejects with a token
    that states the reason, which the client must answer first (RFC 7628, 3.2.2).
    """
    if mechanism.startswith("SCRAM"):
        return answer.startswith(b"v=")
    return mechanism != "OAUTHBEARER" or not answer


def user_of(mechanism: str | None, token: bytes) -> str | None:
    """The user in a client's first token. None if the mechanism does not send one.

    PLAIN (RFC 4616): [authzid] NUL user NUL password. SCRAM (RFC 5802): ``n,,n=user,r=nonce``. OAUTHBEARER
    (RFC 7628): a JWT, whose ``sub`` is the principal by default.
    """
    if mechanism == "PLAIN":
        parts = token.split(b"\0")
        return parts[1].decode(errors="backslashreplace") if len(parts) == 3 else None
    if mechanism is not None and mechanism.startswith("SCRAM"):
        for attribute in token.split(b","):
            if attribute.startswith(b"n="):
                name = attribute[2:].decode(errors="backslashreplace")
                return name.replace("=2C", ",").replace("=3D", "=")
        return None
    if mechanism == "OAUTHBEARER":
        return _jwt_subject(token)
    return None


def _jwt_subject(token: bytes) -> str | None:
    import orjson  # few connections need it

    try:
        claims = token.split(b"Bearer ", 1)[1].split(b".")[1]
        subject = orjson.loads(base64.urlsafe_b64decode(claims + b"=" * (-len(claims) % 4))).get("sub")
    except (IndexError, ValueError, AttributeError, binascii.Error):
        return None
    return subject if isinstance(subject, str) else None


def _request_token(exchange: Exchange) -> bytes:
    assert exchange.request_frame is not None
    if exchange.api_key is None:
        return exchange.request_frame.data
    token = _request(exchange.request_frame, SASL_AUTHENTICATE).get("auth_bytes")
    return token if isinstance(token, bytes) else b""


def _response_token(exchange: Exchange) -> bytes | None:
    """The broker's token. None without a response, and for an error."""
    frame = exchange.response_frame
    if frame is None or exchange.api_key is None:
        return frame and frame.data
    version, complete = exchange.api_version, frame.complete
    answer = decode_response(
        frame.data, SASL_AUTHENTICATE, version, complete=complete, show_secrets=True
    ).value
    if answer.get("error_code") != 0:
        return None
    return answer.get("auth_bytes") or b""


def _request(frame: Frame, api_key: int) -> Body:
    return decode_request(frame.data, api_key, complete=frame.complete, show_secrets=True).value


# ------------------------------------------------------------------------------------------------------------
# The gaps of one connection -> the exchanges that were lost, completely or in part.
#
# Brokers respond in order, and most clients increment correlation IDs by one. So if a gap hides a frame
# boundary, these messages were in it:
#
# * the response to a request that was waiting during the gap, or during the search for the next response, and
#   was then overtaken by a later response or not answered before the connection ended;
# * the request of a response that follows a gap in the requests and has no matching request;
# * requests with the correlation IDs that are missing between the last request before the gap and the first
#   one after it, if the client incremented by one until then. These exchanges are lost completely if their
#   responses are lost too.
#
# Each such exchange is counted once, as ``exchanges_lost``. If half of it was captured, it has an anomaly
# that says so. A gap inside a frame hides no boundary: its exchange is counted as ``exchanges_incomplete``.
# Holds the requests that were waiting during a gap, while they wait.
# ------------------------------------------------------------------------------------------------------------


LOST = "exchanges_lost"
UNDELIVERED = "undelivered"  # reason of a gap, and kind of an anomaly
INCOMPLETE = "exchanges_incomplete"

_MAX_MISSING = 100_000  # correlation IDs: after a larger step, the client probably restarted its counter


class GapLosses:
    """The exchanges lost in gaps of a connection.

    Args:
        pairing: of the connection.
        counts: the counters to update.

    Attributes:
        undelivered: of whose bytes the network lost some, True for the client: the capture did not lose these
            exchanges, and they are not counted.
    """

    __slots__ = (
        "_counts", "_hidden", "_id_before", "_orphans", "_pairing", "_requests_lost", "_waited",
        "undelivered",
    )  # fmt: skip

    def __init__(self, pairing: Pairing, counts: Counter[str]) -> None:
        self._pairing = pairing
        self.undelivered: set[bool] = set()
        self._counts = counts
        self._waited: set[Exchange] = set()
        self._requests_lost = False
        self._id_before: int | None = None  # correlation ID of the last request before a gap
        self._orphans = 0  # orphans since then, until the first request after the gap
        self._hidden = range(0)  # correlation IDs that are already counted as lost

    def in_requests(self) -> None:
        """A gap hides the start of a request."""
        self._requests_lost = True
        id_before = self._pairing.forget_last_id()
        if id_before is not None:
            self._id_before, self._orphans = id_before, 0

    def in_responses(self) -> None:
        """A gap hides the start of a response, or bytes were skipped up to the next one."""
        self._waited.update(self._pairing.waiting)
        self._pairing.expect_lost_responses()

    def request(self, correlation_id: int) -> None:
        """The first request after a gap in the requests."""
        if self._id_before is None:
            return
        hidden = range(self._id_before + 1, correlation_id)
        self._id_before = None
        if len(hidden) <= _MAX_MISSING:
            self._hidden = hidden
            self._counts[LOST] += max(0, len(hidden) - self._orphans)

    @property
    def is_settled(self) -> bool:
        """Whether no exchange that is answered from now on was affected by a gap."""
        return not self._waited and self._id_before is None

    @property
    def awaits_request(self) -> bool:
        """Whether the next request must be passed to ``request``."""
        return self._id_before is not None

    def capture_ended(self, now_ns: int) -> None:
        """Requests outstanding for a short time are pending: their responses may come after the capture."""
        self._waited = {each for each in self._waited if now_ns - each.time_ns > PATIENCE_NS}

    def not_hidden(self, outstanding: Sequence[Exchange]) -> Sequence[Exchange]:
        """Those whose response cannot have been in a gap."""
        waited = self._waited
        return [each for each in outstanding if each not in waited] if waited else outstanding

    def finish(self, exchange: Exchange) -> None:
        """Add to a complete exchange an anomaly for what it lost, and count it."""
        if exchange in self._waited:
            self._waited.discard(exchange)
            if exchange.kind == UNANSWERED:
                exchange.ended = None
                if False in self.undelivered:
                    kind, detail = UNDELIVERED, "may be in bytes that did not arrive"
                else:
                    kind, detail = "gap", "may be in bytes that were not captured"
                    self._counts[LOST] += 1
                exchange.anomalies.append(Anomaly(kind, "response", detail))
        elif exchange.kind == ORPHAN and self._requests_lost and not exchange.anomalies:
            if self._id_before is not None:
                self._orphans += 1
            if exchange.correlation_id not in self._hidden:
                self._counts[LOST] += 1
            exchange.anomalies.append(Anomaly("gap", "request", "was in bytes that were not captured"))
        for is_request, frame in ((True, exchange.request_frame), (False, exchange.response_frame)):
            if not _is_complete(frame) and is_request in self.undelivered:
                where = "request" if is_request else "response"
                exchange.anomalies.append(Anomaly(UNDELIVERED, where, "a part of it did not arrive"))
                break
        else:
            is_complete = _is_complete(exchange.request_frame) and _is_complete(exchange.response_frame)
            self._counts[INCOMPLETE] += not is_complete


def _is_complete(frame: Frame | None) -> bool:
    return frame is None or frame.complete


# ------------------------------------------------------------------------------------------------------------
# The memory of all connections -> whether some of them must free it.
#
# A limit per connection does not bound the memory of twenty thousand connections. So the sum of what they
# hold (``KafkaConnection.held``) is kept as well. pipeline.py compares it with ``Limits.total_held_bytes``
# after the same packets with and without the native core, which adds up what it has.
#
# Holds a number for each connection that holds anything, and the connections fed since it was updated.
# ------------------------------------------------------------------------------------------------------------


class MemoryBudget:
    """The sum of what connections hold.

    Attributes:
        held: bytes including overhead, as of the latest update.
    """

    __slots__ = ("_changed", "_held_by", "_limit", "held")

    def __init__(self, limits: Limits) -> None:
        self._limit = limits.total_held_bytes
        self._changed: set[KafkaConnection] = set()
        self._held_by: dict[KafkaConnection, int] = {}
        self.held = 0

    def note(self, kafka: KafkaConnection) -> None:
        """Note that a connection was fed, or has freed memory."""
        self._changed.add(kafka)

    def is_exceeded(self, elsewhere: int = 0) -> bool:
        """Update the sum. Returns whether it exceeds the limit, with bytes that are held elsewhere."""
        for kafka in self._changed:
            held = kafka.held
            self.held += held - self._held_by.get(kafka, 0)
            if held:
                self._held_by[kafka] = held
            else:
                self._held_by.pop(kafka, None)
        self._changed.clear()
        return self.held + elsewhere > self._limit

    def forget(self, kafka: KafkaConnection) -> None:
        """Note that a connection has ended, or is lent to the native core."""
        self._changed.discard(kafka)
        self.held -= self._held_by.pop(kafka, 0)


# ------------------------------------------------------------------------------------------------------------


_CUT_BY = {
    "fin": "the connection was closed",
    "reset": "the connection was reset",
    "reused": "a new connection between the same ends began",
    "evicted": "it was given up because of a limit on connections",
    "idle": "the connection was idle for too long",
    "end": "the capture ended",
}
"""What may come before the end of a message, by the reason why a connection ended."""

_SASL_HANDSHAKE = SASL_HANDSHAKE.to_bytes(2, "big")  # as API key at the start of a request
_NO_VERSION = b"\0 "  # no API has so many versions: where one stands, tokens have a character
_MAX_BEFORE_TOKEN = 4  # requests: ApiVersions, perhaps in several versions
_GAP_COUNTS = {"lost": "kafka_gaps", "undelivered": "kafka_undelivered_gaps"}  # the snaplen makes no gaps
REQUEST_HEAD, RESPONSE_HEAD = 1, 2
_BEGINNING_BYTES = 64 * 1024  # bytes of a stream by which its first request is recognized
_AGAIN = 8  # a search that goes on has this part of the work of the first one
_ENDED = frozenset({"fin", "reset", "reused"})  # reasons for which no response follows


class KafkaState(NamedTuple):
    """A connection that is Kafka, as it goes to the native core and comes back.

    Attributes:
        info: what its exchanges share.
        last_ns: as in ``KafkaConnection``.
        is_answered: whether the broker has sent any bytes.
        pairing: of its messages.
        partial: the frames of client and broker that have begun.
    """

    info: ConnectionInfo
    last_ns: int
    is_answered: bool
    pairing: PairingState
    partial: tuple[PartialFrame, PartialFrame]


class UnreadState(NamedTuple):
    """A connection whose bytes are not read, as it goes to the native core and comes back: it is not Kafka,
    or the search for Kafka in it has paused.

    Attributes:
        last_ns, seen, unread_bytes: as in ``KafkaConnection``.
        heads: by side, of which messages the head is looked for, see ``KafkaConnection.heads``.
        pause_bytes: unread bytes until which no head is looked for.
        skipped: by side, bytes that came in the core.
        protocol: if the core has opened it.
        hellos: by side, the segment with its TLS hello, if it came in the core.
        info: as in ``KafkaState``, if its end is reported.
    """

    last_ns: int
    seen: tuple[bool, bool]
    unread_bytes: int
    heads: tuple[int, int]
    pause_bytes: int
    skipped: tuple[int, int] = (0, 0)
    protocol: str | None = None
    hellos: tuple[bytes, bytes] = (b"", b"")
    info: ConnectionInfo | None = None


class KafkaConnection:
    """The state of one connection.

    Args:
        connection: both ends, and which of them opened it.
        limits: to respect.
        broker_side: 0 or 1 if -d says which end is the broker. None: detect it.
        counts: counters of frames and bytes that did not become exchanges.
        listener_side: 0 or 1 if that end is known as a listener of Kafka from other connections.
        tls: its TLS session, if it is decrypted.
        cluster_of: returns the cluster of a broker, if it is known.

    Attributes:
        protocol: ``Kafka`` once recognized. Another protocol (``TLS``, ``HTTP``, ``not Kafka``) once
            rejected. None before that.
        last_ns: time of the latest bytes, captured or not.
        resyncs: how often it had to be resynchronized.
        skipped_bytes: skipped while searching.
        unread_bytes: captured bytes that are not recognized as Kafka.
    """

    __slots__ = (
        "_alert",
        "_answered",
        "_awaited",
        "_broker_side",
        "_client",
        "_cluster_of",
        "_completed_before",
        "_connection",
        "_counts",
        "_framings",
        "_gaps",
        "_hellos",
        "_identity",
        "_is_paused",
        "_item_ns",
        "_limits",
        "_listener_side",
        "_losses",
        "_lost_at",
        "_pairing",
        "_pause_bytes",
        "_pending_anomalies",
        "_refused",
        "_seen",
        "_tls",
        "_work",
        "last_ns",
        "protocol",
        "resyncs",
        "skipped_bytes",
        "unread_bytes",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        limits: Limits,
        broker_side: int | None = None,
        counts: Counter[str] | None = None,
        listener_side: int | None = None,
        tls: TlsSession | None = None,
        cluster_of: Callable[[Endpoint], str | None] = lambda _: None,
    ) -> None:
        self._connection = connection
        self._cluster_of = cluster_of
        self._tls = tls
        self._limits = limits
        self._broker_side = broker_side
        self._listener_side = listener_side if broker_side is None else broker_side
        self._answered: tuple[AnsweredRequest, AnsweredRequest] | None = None
        self._alert: str | None = None  # from the broker, which expects TLS
        self._client: int | None = None
        self._hellos: Hellos | None = None
        self._seen = [False, False]
        self._refused = False
        self._is_paused = False  # whether the search has paused, until something looks like a head
        self._awaited: int | None = None  # side whose beginning alone is still searched
        self._pause_bytes = 0
        self._work = limits.recognition_bytes  # of the searches, after which they pause
        self._framings: tuple[Framing, ...] = tuple(
            Framing(limits, partial(self._locate, side), at_start=connection.from_start[side])
            for side in (0, 1)
        )
        self._pairing: Pairing | None = None
        self._completed_before = 0  # exchanges until it turned out not to be Kafka
        self._identity: Identity | None = None
        fault = connection.preface_fault
        self._pending_anomalies = (
            []
            if fault is None
            else [Anomaly("malformed_proxy_header", "connection", f"PROXY header: {fault}")]
        )
        self.protocol: str | None = None
        self._item_ns = 0  # time of the latest item: bytes that were held come after later ones
        self.last_ns = self.resyncs = self.skipped_bytes = self.unread_bytes = 0
        self._counts: Counter[str] = Counter() if counts is None else counts
        self._gaps: Counter[str] | None = None
        self._lost_at: array[int] | None = None  # see ``note_at``
        self._losses: GapLosses | None = None  # None before the first gap

    def feed(self, side: int, item: Data | Gap) -> list[Exchange]:
        """Process the next bytes from ``side``. Returns the exchanges that they complete."""
        self._item_ns = item.time_ns
        self.last_ns = max(self.last_ns, item.time_ns)
        if not self._seen[side]:
            self._first_item(side, item)
        if self._client is not None:
            if isinstance(item, Gap):
                return self._process_gap(side, item)
            framing = self._framings[side]
            frames_or_lost = framing.feed(item)
            if frames_or_lost:
                self._connection.expect(side, 0)
                return self._process_frames(side, frames_or_lost)
            self._connection.expect(side, framing.bytes_expected)
            return []
        if isinstance(item, Gap):
            self._count(item)
        else:
            if self._is_paused and self.unread_bytes >= self._pause_bytes:
                self._look_at_head(side, item.payload)
            self.unread_bytes += len(item.payload)
        if self.protocol is not None:
            if self._hellos is not None:
                self._read_hello(side, item)
            return []
        if self._client is None and (self._is_paused or self._awaited == 1 - side):
            is_gap = isinstance(item, Gap)
            self._search(side).pass_over(
                item.length if isinstance(item, Gap) else len(item.payload), missing=is_gap
            )
            return []
        frames: list[list[Frame | Lost]] = [[], []]
        frames[side] = self._framings[side].feed(item)
        frames[1 - side] = self._framings[
            1 - side
        ].retry()  # bytes of one side help to recognize the other side
        if self._refused:
            self._refuse(NOT_KAFKA)
        elif self._client is None and self._searched > self._work:
            self._pause()
        return self._process_both(frames)

    def _search(self, side: int) -> Search:
        """The search of a side that is not recognized."""
        search = self._framings[side].search
        assert search is not None
        return search

    @property
    def _searched(self) -> int:
        return self._search(0).work + self._search(1).work

    def _pause(self) -> None:
        """Pause the search for Kafka, except in the beginning of the connection while that still decides."""
        initiator = self._connection.initiator
        run = None if initiator is None else self._search(initiator).first_run
        self._awaited = initiator if run is not None and len(run.data) < _BEGINNING_BYTES else None
        for side in (0, 1):
            if side != self._awaited:
                search = self._search(side)
                search.drop_oldest(search.held)
        self._answered = None
        self._is_paused = self._awaited is None

    def _look_at_head(self, side: int, payload: bytes) -> None:
        """Go on with the search if a payload may begin with the head of a message: then not again before as
        many bytes have come as until now.
        """
        heads = self.heads(side)
        if (heads & REQUEST_HEAD and can_begin_request(payload)) or (
            heads & RESPONSE_HEAD and can_begin_response(payload)
        ):
            self._is_paused = False
            self._pause_bytes = 2 * self.unread_bytes
            self._work = self._searched + self._limits.recognition_bytes // _AGAIN

    def heads(self, side: int) -> int:
        """Of which messages from a side the head is looked for while the search has paused: as far as it can
        be the client, or the broker of a client of which no bytes were captured.
        """
        initiator = self._connection.initiator
        may_request = initiator in (None, side)
        may_respond = initiator != side and not self._seen[1 - side]
        return REQUEST_HEAD * may_request | RESPONSE_HEAD * may_respond

    def retransmitted(self, side: int, item: Retransmitted) -> None:
        """Note the outstanding requests that the broker cannot have read before these bytes."""
        if side != self._client or self._pairing is None:
            return
        if item.is_spurious:
            self._pairing.retransmission_was_spurious()
        else:
            framing = self._framings[side]
            partial_bytes = framing.partial_bytes + (SIZE_BYTES if framing.bytes_expected else 0)
            self._pairing.retransmitted(item.time_ns, item.back - partial_bytes)

    def close(self, end: Closed) -> list[Exchange]:
        """End the connection: outstanding requests become unanswered."""
        out = self._process_both([framing.retry(final=True) for framing in self._framings])
        if self._refused:
            self._refuse(NOT_KAFKA)
        for side in (1, 0) if self._client == 1 else (0, 1):  # requests first
            if self._alert is None or side == self._client:
                out += self._end_stream(side, end)
        if self._pairing is not None:
            assert self._client is not None
            responses, tcp = self._framings[1 - self._client], self._connection.tcp
            is_behind = responses.synchronized and not responses.is_at_boundary
            if is_behind:
                self._pairing.hold_up(NEVER_NS)
            elif tcp is not None:
                self._pairing.hold_up(tcp.unacknowledged(self._client))
            reason = "too many connections" if end.reason == "evicted" else None
            outstanding = self._pairing.complete_unanswered(end.time_ns, reason)
            ended = self._has_ended(end)
            fins = [
                (each.fin_ns, side != self._client)
                for side, each in enumerate(self._connection.streams)
                if each.fin_ns is not None
            ]
            ended_ns, is_from_broker = min(fins, default=(None, None))
            for exchange in outstanding:
                exchange.ended, exchange.is_behind = ended, is_behind
                exchange.ended_ns = ended_ns
                exchange.closed_by_client = None if is_from_broker is None else not is_from_broker
            if self._losses is not None and end.reason == "end" and not ended:
                self._losses.capture_ended(end.time_ns)
            if self._client is not None and not self._seen[self._client]:
                self._pending_anomalies.append(Anomaly("one_direction", "connection", "responses only"))
            out += self._finish(outstanding)
        self.discard()
        return out

    def discard(self) -> None:
        """Nothing more comes: be freed without the garbage collector."""
        self._framings = ()  # each refers to this object

    def _end_stream(self, side: int, end: Closed) -> list[Exchange]:
        """End a direction: a message that began becomes a part of an exchange, if it is known which one."""
        pairing, framing = self._pairing, self._framings[side]
        cut = None if pairing is None or self._client is None else framing.cut()
        if cut is None:
            return self._process_frames(side, framing.close())
        assert pairing is not None
        assert self._identity is not None
        exchange: Exchange | None
        done: list[Exchange] = []
        if side == self._client:
            exchange = None if self._identity.raw_tokens else pairing.cut_request(cut)
        else:
            done = pairing.cut_response(cut, end.time_ns)
            exchange = next((each for each in done if each.is_cut), None)
        if exchange is None:
            return self._process_frames(side, framing.close())
        exchange.ended = self._has_ended(end)
        exchange.anomalies.append(_incomplete(exchange, cut, end))
        return self._finish(done)

    def _has_ended(self, end: Closed) -> bool:
        """Whether no more bytes follow. Kafka closes both directions at once, after the FIN of either
        side.
        """
        return end.reason in _ENDED or any(stream.ended for stream in self._connection.streams)

    def shed(self, now_ns: int) -> list[Exchange]:
        """Free memory because all connections together hold too much."""
        self._counts["shed"] += 1
        for side, framing in enumerate(self._framings):
            framing.shed()
            if self._hellos is not None:
                self._hellos.lose(side)
        if self._pairing is None or self._pairing.shorten():
            return []
        return self._finish(
            self._pairing.complete_unanswered(
                now_ns, "the limit on bytes held for all connections was reached"
            )
        )

    def lend(self, now_ns: int) -> KafkaState | None:
        """The state, for the native core to continue. None unless the connection is Kafka, and nothing about
        it is unusual or unknown.
        """
        if (
            self._pairing is None
            or self._client is None
            or self._identity is None
            or self._identity.raw_tokens
            or self._alert is not None
            or self._pending_anomalies
            or not all(self._seen)
            or not (self._losses is None or self._losses.is_settled)
            or any(
                each.api_key in IDENTIFYING_APIS or not each.first_frame.complete
                for each in self._pairing.waiting
            )
        ):
            return None
        one, two = (self._framings[side].lend() for side in (self._client, 1 - self._client))
        if one is None or two is None or (pairing := self._pairing.lend(now_ns)) is None:
            return None
        return KafkaState(self._pairing.info, self.last_ns, all(self._seen), pairing, (one, two))

    def lend_unread(self) -> UnreadState | None:
        """The state of a connection whose bytes are not read, for the native core to continue; else None."""
        is_refused = self.protocol is not None
        if self._client is not None or not (is_refused or self._is_paused):
            return None
        if (hellos := self._hellos) is not None and any(
            self._seen[side] and hellos.needs(side) for side in (0, 1)
        ):
            return None
        heads = (0, 0) if is_refused else (self.heads(0), self.heads(1))
        return UnreadState(self.last_ns, self.seen, self.unread_bytes, heads, self._pause_bytes)

    def restore_unread(self, state: UnreadState) -> None:
        """Continue from the state that the native core has reached."""
        self.last_ns = self._item_ns = state.last_ns
        self.unread_bytes = state.unread_bytes
        if state.protocol is not None:
            self._refuse(state.protocol)
            self._seen = list(state.seen)
        for side, hello in enumerate(state.hellos):
            if hello:
                assert self._hellos is not None
                self._hellos.feed(side, hello)
        for side in (0, 1) if self.protocol is None else ():
            self._search(side).pass_over(state.skipped[side])

    def restore(self, state: KafkaState) -> None:
        """Continue from the state that the native core has reached, which may have recognized it: then side 0
        is the client.
        """
        if self._pairing is None:
            self._recognized(0, state.info)
            self._seen = [True, state.is_answered]
        assert self._pairing is not None
        assert self._client is not None
        self._pairing.restore(state.pairing)
        self.last_ns = self._item_ns = state.last_ns
        for side, each in zip((self._client, 1 - self._client), state.partial, strict=True):
            if self._seen[side]:
                self._framings[side].restore(each)
            self._connection.expect(side, 0)

    @property
    def held(self) -> int:
        """Bytes held, including overhead."""
        one, two = self._framings
        rest = self._pairing or self._hellos
        return one.held + two.held + (0 if rest is None else rest.held)

    @property
    def seen(self) -> tuple[bool, bool]:
        """By side, whether any of its bytes were captured."""
        return self._seen[0], self._seen[1]

    @property
    def client(self) -> int | None:
        """The side that sends requests. None while unknown."""
        return self._client

    @property
    def listener_side(self) -> int | None:
        """The end that the user, or other connections, showed to be a listener of Kafka."""
        return self._listener_side

    @property
    def exchanges(self) -> int:
        return self._completed_before if self._pairing is None else self._pairing.completed

    @property
    def outstanding(self) -> Sequence[Exchange]:
        """Requests whose response can still come, oldest first; none if it may not have been captured."""
        pairing = self._pairing
        if pairing is None or self._client is None or not pairing.waiting:
            return ()
        if not self._connection.streams[1 - self._client].seen:
            return ()
        return pairing.waiting if self._losses is None else self._losses.not_hidden(pairing.waiting)

    @property
    def tls(self) -> TlsSession | None:
        """Its TLS session; None if it is not TLS, or was captured without its handshake."""
        return self._tls if self._hellos is None else self._hellos.session

    @property
    def is_decrypted(self) -> bool:
        """Whether its bytes passed inside TLS."""
        return self._tls is not None

    @property
    def gaps(self) -> Mapping[str, int]:
        """Missing bytes by cause: ``kafka_gaps``, ``kafka_lost_bytes``, ``kafka_cut_bytes``,
        ``kafka_undelivered_gaps``, ``kafka_undelivered_bytes``.
        """
        return self._gaps or {}

    @property
    def lost_at(self) -> list[tuple[int, int]]:
        """When bytes were missing that were not captured, and how many; see ``noted_at``."""
        return [] if self._lost_at is None else noted_at(self._lost_at, 0)

    @property
    def unattached(self) -> list[Anomaly]:
        """Anomalies after the last exchange."""
        return self._pending_anomalies

    def _first_item(self, side: int, item: Data | Gap) -> None:
        """The first bytes of a side can identify the protocol."""
        if self.protocol is None and self._broker_side is not None:
            self._recognized(1 - self._broker_side)
        if not isinstance(item, Data):
            return
        self._seen[side] = True
        protocol = other_protocol(item.payload)
        if protocol == "TLS" and self._is_rejected(side, item.payload):
            self._alert = tls_alert(item.payload)
        elif protocol is not None and (self._client is None or protocol == "TLS"):
            self._refuse(protocol)

    def _is_rejected(self, side: int, first: bytes) -> bool:
        """Whether a side responds to requests of the other one with a TLS alert."""
        if tls_alert(first) is None:
            return False
        search = self._framings[1 - side].search
        run = search and search.first_run
        if self._client is None and search and run and is_first_request(search, run, final=True):
            self._broker_side = side
            self._recognized(1 - side)
        return self._client == 1 - side

    def _locate(self, side: int, search: Search, final: bool) -> int | None:
        if self._client is None:
            return self._recognize(side, search, final)
        assert self._pairing is not None
        if search.first_run is not None and self._begins_with_frame(side):
            return None if self._alert is not None and side != self._client else 0
        if self._broker_side is not None or (
            self._listener_side == 1 - self._client and not self._seen[self._client]
        ):
            is_head = is_request_head if side == self._client else is_response_head
            pos = locate_frames(search, is_head)
            if pos is not None:
                return pos
        if side == self._client:
            return locate_request(search)
        ids, first_id = self._pairing.ids, self._pairing.first_id
        if ids is not None:
            pos = locate_response(search, self._pairing.api_of, ids)
            if pos is not None:
                return first_response_before(search, pos)
        if first_id is not None and begins_with_response(search, first_id):
            return 0
        return None if self._seen[self._client] else locate_response_chain(search)

    def _begins_with_frame(self, side: int) -> bool:
        """Whether the first bytes of a stream need no check: they are known to be Kafka."""
        return side != self._client or self._broker_side is not None

    def _recognize(self, side: int, search: Search, final: bool) -> int | None:
        initiator, run = self._connection.initiator, search.first_run
        if initiator == side and run is not None:
            verdict = begins_with_token(run.data, final=final)
            if verdict is False:
                verdict = is_first_request(search, run, final, self._framings[1 - side].search)
            if not verdict and self._listener_side == 1 - side:
                is_frame = is_first_frame(search, run, final)
                verdict = is_frame if is_frame or verdict is False else None
            self._refused = verdict is False
            pos = 0 if verdict else None
        elif initiator in (None, side):
            pos = self._locate_first_request(side, search)
        else:
            pos = None
        if pos is not None:
            self._recognized(side)
        elif initiator != side and not self._seen[1 - side]:
            pos = locate_response_chain(search)
            # Requests may follow, which show the APIs of the responses before them.
            is_enough = final or search.held > search.largest_held
            if pos is None and self._listener_side == side and is_enough:
                pos = locate_frames(search, is_response_head)
            if pos is not None:
                self._recognized(1 - side)
        return pos

    def _locate_first_request(self, side: int, search: Search) -> int | None:
        """Find a request mid-stream, on a connection that may not be Kafka."""
        if self._listener_side == 1 - side:
            pos = locate_frames(search, is_readable_request)
            if pos is not None:
                return pos
        pos = locate_request(search)
        responses = self._framings[1 - side].search if self._framings else None
        if pos is None and responses is not None and self._seen[1 - side]:
            if self._answered is None:
                self._answered = AnsweredRequest(), AnsweredRequest()
            pos = self._answered[side].locate(search, responses)
        return pos

    def _recognized(self, client: int, info: ConnectionInfo | None = None) -> None:
        ends = self._connection.ends
        info = info or ConnectionInfo(
            self._connection.id,
            self._connection.client(client),
            ends[1 - client],
            principal=self._tls and self._tls.principal,
            ordinal=self._connection.ordinal,
            number=self._connection.number,
            has_sure_id=self._connection.has_sure_id,
            from_start=self._connection.from_start[1 - client],
            is_decrypted=self.is_decrypted,
            proxy=self._connection.proxy,
            hop=self._connection.hop(client),
            cluster_id=self._cluster_of(ends[1 - client]),
        )
        self._client = client
        self._answered = None
        self._pairing = Pairing(info, self._limits)
        self._pairing.doubts = self._pairing.misses_requests = not self._connection.from_start[client]
        self._identity = Identity(info)
        self.protocol = "Kafka"
        self.unread_bytes = 0
        if self._gaps is not None:
            self._counts.update(self._gaps)
            self._losses = GapLosses(self._pairing, self._counts)

    def _refuse(self, protocol: str) -> None:
        self.protocol = protocol
        if protocol == "TLS" and self._hellos is None:
            self._hellos = Hellos()
        self._completed_before = self.exchanges
        self._client = self._pairing = None
        for framing in self._framings:
            framing.lose()

    def _read_hello(self, side: int, item: Data | Gap) -> None:
        assert self._hellos is not None
        if isinstance(item, Gap):
            self._hellos.lose(side)
        else:
            self._hellos.feed(side, item.payload)

    def _process_gap(self, side: int, gap: Gap) -> list[Exchange]:
        self._counts.update(self._count(gap))
        self._connection.expect(side, 0)
        if self._losses is None:
            assert self._pairing is not None
            self._losses = GapLosses(self._pairing, self._counts)
        if gap.reason == UNDELIVERED:
            self._losses.undelivered.add(side == self._client)
        framing = self._framings[side]
        out = self._process_frames(side, framing.feed(gap))
        if not framing.synchronized:
            self._hide(side)
        return out

    def _process_both(self, frames: list[list[Frame | Lost]]) -> list[Exchange]:
        """Process frames of both sides: requests first, because responses are recognized by them."""
        if self._client is None:
            return []
        broker = 1 - self._client
        out = self._process_frames(self._client, frames[self._client])
        return out + self._process_frames(broker, frames[broker] + self._framings[broker].retry())

    def _process_frames(self, side: int, frames: list[Frame | Lost]) -> list[Exchange]:
        if not frames or self._client is None:
            return []
        out: list[Exchange] = []
        refused = 0  # bytes that turned out not to be frames, up to the next boundary found
        resynchronized = False
        for frame in frames:
            if isinstance(frame, Lost):
                self._note_lost(side, frame, refused)
                refused, resynchronized = 0, True
            elif refused:
                refused += SIZE_BYTES + frame.size
            else:
                try:
                    done = self._message(side, frame, resynchronized=resynchronized)
                    if done:
                        out += self._finish(done)
                    resynchronized = False
                except DecodeError as error:
                    refused = SIZE_BYTES + frame.size
                    detail = f"{error.reason} from the {self._end(side)}"
                    self._pending_anomalies.append(Anomaly("not_a_frame", "connection", detail))
        if refused:
            self._framings[side].lose(refused)
        return out

    def _message(self, side: int, frame: Frame, *, resynchronized: bool) -> list[Exchange]:
        pairing, identity = self._pairing, self._identity
        assert pairing is not None
        assert identity is not None
        if side != self._client:
            return pairing.response(frame, may_be_token=identity.raw_tokens, resynchronized=resynchronized)
        if identity.raw_tokens:
            if not can_be_request(frame):
                return pairing.token_request(frame)
            identity.raw_tokens = False
        if len(frame.data) < HEADER_BEGINS_BYTES and not frame.complete:
            self._hide(side)
            kind, verb = (UNDELIVERED, "arrived") if self._misses_bytes(side) else ("gap", "were captured")
            detail = f"only {len(frame.data)} of {frame.size} bytes of the request {verb}"
            self._pending_anomalies.append(Anomaly(kind, "connection", detail))
            return []
        if frame.data[2:4] >= _NO_VERSION or frame.data[:1] != b"\0":
            mechanism = self._losses is None and sasl_mechanism(frame.data, frame.size)
            if mechanism and pairing.completed + len(pairing.waiting) <= _MAX_BEFORE_TOKEN:
                identity.on_token(mechanism)
                return pairing.token_request(frame, has_handshake=False)
        done = pairing.request(frame)
        if frame.data.startswith(_SASL_HANDSHAKE):
            identity.on_handshake(frame)
        if self._losses is not None and self._losses.awaits_request:
            correlation_id = frame.data[HEADER_BEGINS_BYTES - CORRELATION_ID_BYTES : HEADER_BEGINS_BYTES]
            self._losses.request(int.from_bytes(correlation_id, "big", signed=True))
        return done

    def _finish(self, exchanges: list[Exchange]) -> list[Exchange]:
        assert self._identity is not None
        for exchange in exchanges:
            self._identity.learn(exchange)
            if self._losses is not None:
                self._losses.finish(exchange)
            if exchange.kind == UNANSWERED:
                self._note_unanswered(exchange)
            elif exchange.kind == ORPHAN:
                self._note_orphan(exchange)
            if self._pending_anomalies:
                exchange.anomalies = self._pending_anomalies + exchange.anomalies
                self._pending_anomalies = []
        return exchanges

    def _note_unanswered(self, exchange: Exchange) -> None:
        assert self._client is not None
        if self._alert is not None:
            exchange.ended, exchange.closed_by_client = True, None
            exchange.anomalies.append(Anomaly("tls_alert", "response", self._alert))
        elif not self._connection.streams[1 - self._client].seen:
            exchange.ended = None  # no packet of the broker was captured
        if any(anomaly.kind == "given_up" for anomaly in exchange.anomalies):
            self._counts["requests_given_up"] += 1

    def _note_orphan(self, exchange: Exchange) -> None:
        late_ns = self._item_ns - exchange.completed_ns
        if late_ns > self._limits.reorder_window_ns:
            detail = f"recognized {duration(late_ns)} later, with the help of later packets"
            exchange.anomalies.append(Anomaly("late", "response", detail))

    def _note_lost(self, side: int, lost: Lost, refused: int = 0) -> None:
        end = self._end(side)
        lost = lost._replace(skipped=lost.skipped + refused)
        self._counts["kafka_skipped_bytes"] += lost.skipped
        self.skipped_bytes += lost.skipped
        self.resyncs += not lost.end
        if side == self._client:
            self._framings[1 - side].rescan()
        if lost.missing and (lost.skipped or side == self._client):
            self._hide(side)
        elif lost.skipped and self._pairing is not None:
            self._pairing.expect_lost_responses()
        if lost.missing:
            kind, verb = "gap", "were not captured"
            if self._misses_bytes(side):
                kind, verb = UNDELIVERED, "did not arrive"
            detail = f"{lost.missing} bytes from the {end} {verb}"
            detail += f", {lost.skipped} skipped" if lost.skipped else ""
        elif lost.end:
            kind, detail = "partial_frame", f"the {end}'s stream ends {lost.skipped} bytes into a frame"
        else:
            kind, detail = "resynchronized", f"skipped {lost.skipped} bytes from the {end}"
        self._pending_anomalies.append(Anomaly(kind, "connection", detail))

    def _hide(self, side: int) -> None:
        """Handle a gap that hides frame boundaries. Requests that did not arrive are not exchanges."""
        if self._losses is None:
            assert self._pairing is not None
            self._losses = GapLosses(self._pairing, self._counts)
        if side == self._client:
            if not self._misses_bytes(side):
                self._losses.in_requests()
        else:
            self._losses.in_responses()

    def _misses_bytes(self, side: int) -> bool:
        """Whether the network lost bytes of a side."""
        return self._losses is not None and (side == self._client) in self._losses.undelivered

    def _end(self, side: int) -> str:
        return "client" if side == self._client else "broker"

    def _count(self, gap: Gap) -> dict[str, int]:
        counts = {f"kafka_{gap.reason}_bytes": gap.length}
        if gap.reason in _GAP_COUNTS:
            counts[_GAP_COUNTS[gap.reason]] = 1
        if self._gaps is None:
            self._gaps = Counter()
        self._gaps.update(counts)
        if gap.reason != UNDELIVERED:
            if self._lost_at is None:
                self._lost_at = array("q", (SHORTEST_PIECE_NS,))
            note_at(self._lost_at, 0, gap.time_ns, gap.length)
        return counts


def _incomplete(exchange: Exchange, cut: CutFrame, end: Closed) -> Anomaly:
    """The anomaly of a message that began but did not end."""
    detail = (
        f"{cut.frame.wire_bytes:,} bytes came of {cut.announced:,} announced before {_CUT_BY[end.reason]}"
    )
    exceeded = [f"{name} ({max_bytes:,} by default)" for name, max_bytes in exceeded_settings(exchange)]
    detail += f"; more than {' and '.join(exceeded)}" if exceeded else ""
    return Anomaly("incomplete_message", "response" if exchange.is_cut else "request", detail)
