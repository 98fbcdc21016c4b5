r"""The bytes of one connection's two directions -> its exchanges.

Until the connection is recognised as Kafka both directions are searched; from then on one carries requests,
the other responses:

    client side --Data, Gap--> Framing --Frame--> Pairing.request  \\
                                                                     -> Exchange
    broker side --Data, Gap--> Framing --Frame--> Pairing.response /

What went wrong between two exchanges (gaps, lost boundaries) is written on the next one.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from kdissect.analysis.identity import SASL_HANDSHAKE, Identity
from kdissect.analysis.losses import Losses
from kdissect.analysis.pairing import Pairing
from kdissect.errors import DecodeError
from kdissect.kafka.beginnings import can_be_request
from kdissect.kafka.framing import SIZE_BYTES, Framing
from kdissect.kafka.headers import CORRELATION_ID_BYTES, HEADER_BEGINS_BYTES
from kdissect.kafka.protocols import is_gssapi_token, looks_like
from kdissect.kafka.recognition import (
    is_first_request,
    locate_request,
    locate_response,
    locate_response_chain,
)
from kdissect.kafka.resync import Lost
from kdissect.model import UNANSWERED, Anomaly, ConnectionInfo, Data, Exchange, Frame, Gap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kdissect.kafka.resync import Search
    from kdissect.limits import Limits
    from kdissect.net.connection import Connection

_SASL_HANDSHAKE = SASL_HANDSHAKE.to_bytes(2, "big")  # an api key, with which a request begins
_NEVER_CAPTURED = "lost"  # the reason of a gap that no snaplen made


class Dialogue:
    """What is known of one connection, and what it holds of it.

    Args:
        connection: both ends, and who opened it.
        limits: bounds.
        broker_side: 0 or 1 where the user said which end is the broker, None where the bytes must tell.
        counts: where to count frames and bytes that did not become exchanges.

    Attributes:
        protocol: ``Kafka`` once recognised, the name of another protocol (``TLS``, ``HTTP``, ``not Kafka``)
            once refused, else None.
        last_ns: time of the last bytes, captured or not.
        resyncs: how often it had to be searched for where the next frame begins.
        skipped_bytes: passed over meanwhile.
        unread_bytes: captured, of what is not recognised as Kafka.
    """

    __slots__ = (
        "_broker_side", "_client", "_connection", "_counts", "_framings", "_gaps", "_heard", "_identity",
        "_limits", "_losses", "_made", "_pairing", "_pending_anomalies", "_refused", "last_ns", "protocol",
        "resyncs", "skipped_bytes", "unread_bytes",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        limits: Limits,
        broker_side: int | None = None,
        counts: Counter[str] | None = None,
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._broker_side = broker_side
        self._client: int | None = None
        self._heard = [False, False]
        self._refused = False
        self._framings: tuple[Framing, ...] = tuple(
            Framing(limits, partial(self._locate, side), at_start=connection.from_start[side])
            for side in (0, 1)
        )
        self._pairing: Pairing | None = None
        self._made = 0  # exchanges before it turned out to be something else
        self._identity: Identity | None = None
        self._pending_anomalies: list[Anomaly] = []
        self.protocol: str | None = None
        self.last_ns = self.resyncs = self.skipped_bytes = self.unread_bytes = 0
        self._counts: Counter[str] = Counter() if counts is None else counts
        self._gaps: Counter[str] | None = None
        self._losses: Losses | None = None  # none before the first gap

    def feed(self, side: int, item: Data | Gap) -> list[Exchange]:
        """Take the next bytes from ``side``; get the exchanges that they complete."""
        self.last_ns = item.time_ns
        if not self._heard[side]:
            self._hear(side, item)
        if self._client is not None:
            if isinstance(item, Gap):
                return self._take_gap(side, item)
            framing = self._framings[side]
            found = framing.feed(item)
            if found:
                self._connection.wanted[side] = 0
                return self._take(side, found)
            self._connection.wanted[side] = min(framing.wanted, self._limits.gathered_bytes)
            return []
        if isinstance(item, Gap):
            self._count(item)
        else:
            self.unread_bytes += len(item.payload)
        if self.protocol is not None:
            return []
        frames: list[list[Frame | Lost]] = [[], []]
        frames[side] = self._framings[side].feed(item)
        frames[1 - side] = self._framings[1 - side].retry()  # what one side says tells about the other
        if self._refused:
            self._refuse("not Kafka")
        return self._take_both(frames)

    def close(self, now_ns: int, reason: str | None = None) -> list[Exchange]:
        """The connection is over, ``now_ns`` in packet time, or is given up for a ``reason``: what waits is
        unanswered.
        """
        out = self._take_both([framing.retry(final=True) for framing in self._framings])
        if self._refused:
            self._refuse("not Kafka")
        for side in (0, 1):
            out += self._take(side, self._framings[side].close())
        if self._pairing is not None:
            out += self._finish(self._pairing.give_up(now_ns, reason))
        self._framings = ()  # each refers to this object
        return out

    def shed(self, now_ns: int) -> list[Exchange]:
        """Let go of what is held, because all connections together hold too much."""
        self._counts["shed"] += 1
        for framing in self._framings:
            framing.shed()
        if self._pairing is None or self._pairing.shorten():
            return []
        return self._finish(self._pairing.give_up(now_ns, "all connections together hold too much"))

    @property
    def held(self) -> int:
        """Bytes that all that is held costs."""
        one, two = self._framings
        return one.held + two.held + (self._pairing.held if self._pairing is not None else 0)

    @property
    def heard(self) -> tuple[bool, bool]:
        """By side, whether any byte of it was captured."""
        return self._heard[0], self._heard[1]

    @property
    def client(self) -> int | None:
        """The side that asks, None where that is not known."""
        return self._client

    @property
    def exchanges(self) -> int:
        """How many exchanges there were."""
        return self._made if self._pairing is None else self._pairing.made

    @property
    def gaps(self) -> Mapping[str, int]:
        """What was not captured: ``kafka_gaps``, ``kafka_lost_bytes``, ``kafka_cut_bytes``."""
        return self._gaps or {}

    @property
    def unattached(self) -> list[Anomaly]:
        """Anomalies behind the last exchange."""
        return self._pending_anomalies

    def _hear(self, side: int, item: Data | Gap) -> None:
        """The first that one side says may tell what the connection is."""
        if self.protocol is None and self._broker_side is not None:
            self._recognised(1 - self._broker_side)
        if not isinstance(item, Data):
            return
        self._heard[side] = True
        other = looks_like(item.payload)
        if other is not None and (self._client is None or other == "TLS"):
            self._refuse(other)
        elif (
            side == self._connection.initiator
            and self._client in (None, side)
            and is_gssapi_token(item.payload)
        ):
            if self._client is None:
                self._recognised(side)
            assert self._identity is not None
            self._identity.begins_with_gssapi()

    def _locate(self, side: int, search: Search, final: bool) -> int | None:
        if self._client is None:
            return self._recognise(side, search, final)
        assert self._pairing is not None
        if search.first_run is not None and self._begins_with_frame(side):
            return 0
        if side == self._client:
            return locate_request(search)
        ids = self._pairing.ids
        if ids is not None:
            return locate_response(search, self._pairing.asked, ids)
        return None if self._heard[self._client] else locate_response_chain(search)

    def _begins_with_frame(self, side: int) -> bool:
        """Whether a stream needs no look at its first bytes: they are known to be Kafka's."""
        assert self._identity is not None
        return side != self._client or self._broker_side is not None or self._identity.raw_tokens

    def _recognise(self, side: int, search: Search, final: bool) -> int | None:
        initiator, run = self._connection.initiator, search.first_run
        if initiator == side and run is not None:
            verdict = is_first_request(search, run, final, self._framings[1 - side].first_bytes)
            self._refused = verdict is False
            place = 0 if verdict else None
        else:
            place = locate_request(search) if initiator in (None, side) else None
        if place is not None:
            self._recognised(side)
        elif initiator != side and not self._heard[1 - side]:
            place = locate_response_chain(search)
            if place is not None:
                self._recognised(1 - side)
                self._pending_anomalies.append(Anomaly("one_direction", "connection", "responses only"))
        return place

    def _recognised(self, client: int) -> None:
        ends = self._connection.ends
        info = ConnectionInfo(
            self._connection.id, ends[client], ends[1 - client], ordinal=self._connection.ordinal
        )
        self._client = client
        self._pairing = Pairing(info, self._limits)
        self._pairing.doubts = not self._connection.from_start[client]
        self._identity = Identity(info)
        self.protocol = "Kafka"
        self.unread_bytes = 0
        if self._gaps is not None:
            self._counts.update(self._gaps)
            self._losses = Losses(self._pairing, self._counts)

    def _refuse(self, protocol: str) -> None:
        self.protocol = protocol
        self._made = self.exchanges
        self._client = self._pairing = None
        for framing in self._framings:
            framing.lose()

    def _take_gap(self, side: int, gap: Gap) -> list[Exchange]:
        self._counts.update(self._count(gap))
        self._connection.wanted[side] = 0
        if self._losses is None:
            assert self._pairing is not None
            self._losses = Losses(self._pairing, self._counts)
        framing = self._framings[side]
        out = self._take(side, framing.feed(gap))
        if not framing.synchronised:
            self._hide(side)
        return out

    def _take_both(self, frames: list[list[Frame | Lost]]) -> list[Exchange]:
        """Frames of either side: requests first, because responses are found by them."""
        if self._client is None:
            return []
        broker = 1 - self._client
        out = self._take(self._client, frames[self._client])
        return out + self._take(broker, frames[broker] + self._framings[broker].retry())

    def _take(self, side: int, frames: list[Frame | Lost]) -> list[Exchange]:
        if not frames or self._client is None:
            return []
        out: list[Exchange] = []
        refused = 0  # bytes of frames that are none, up to where a boundary was found again
        was_found = False
        for frame in frames:
            if isinstance(frame, Lost):
                self._note_lost(side, frame, refused)
                refused, was_found = 0, True
            elif refused:
                refused += SIZE_BYTES + frame.size
            else:
                try:
                    done = self._message(side, frame, was_found=was_found)
                    if done:
                        out += self._finish(done)
                    was_found = False
                except DecodeError as error:
                    refused = SIZE_BYTES + frame.size
                    detail = f"{error.reason} from the {self._end(side)}"
                    self._pending_anomalies.append(Anomaly("not_a_frame", "connection", detail))
        if refused:
            self._framings[side].lose(refused)
        return out

    def _message(self, side: int, frame: Frame, *, was_found: bool) -> list[Exchange]:
        pairing, identity = self._pairing, self._identity
        assert pairing is not None
        assert identity is not None
        if side != self._client:
            return pairing.response(frame, may_be_token=identity.raw_tokens, was_found=was_found)
        if identity.raw_tokens:
            if not can_be_request(frame):
                return pairing.token_request(frame)
            identity.raw_tokens = False
        if len(frame.data) < HEADER_BEGINS_BYTES and not frame.complete:
            self._hide(side)
            detail = f"of a request of {frame.size} bytes only {len(frame.data)} were captured"
            self._pending_anomalies.append(Anomaly("gap", "connection", detail))
            return []
        done = pairing.request(frame)
        if frame.data.startswith(_SASL_HANDSHAKE):
            identity.asked(frame)
        if self._losses is not None and self._losses.awaits_request:
            correlation_id = frame.data[HEADER_BEGINS_BYTES - CORRELATION_ID_BYTES : HEADER_BEGINS_BYTES]
            self._losses.request(int.from_bytes(correlation_id, "big", signed=True))
        return done

    def _finish(self, exchanges: list[Exchange]) -> list[Exchange]:
        assert self._identity is not None
        for exchange in exchanges:
            self._identity.learn(exchange)
            if self._losses is not None:
                self._losses.judge(exchange)
            if exchange.kind == UNANSWERED and any(one.kind == "given_up" for one in exchange.anomalies):
                self._counts["requests_given_up"] += 1
            if self._pending_anomalies:
                exchange.anomalies = self._pending_anomalies + exchange.anomalies
                self._pending_anomalies = []
        return exchanges

    def _note_lost(self, side: int, lost: Lost, refused: int = 0) -> None:
        end = self._end(side)
        lost = lost._replace(skipped=lost.skipped + refused)
        self._counts["kafka_skipped_bytes"] += lost.skipped
        self.skipped_bytes += lost.skipped
        self.resyncs += not lost.end
        if side == self._client:
            self._framings[1 - side].look_again()
        if lost.missing and (lost.skipped or side == self._client):
            self._hide(side)
        elif lost.skipped and self._pairing is not None:
            self._pairing.mistrust()
        if lost.missing:
            kind = "gap"
            detail = f"{lost.missing} bytes from the {end} were not captured, {lost.skipped} passed over"
        elif lost.end:
            kind, detail = "partial_frame", f"the {end}'s stream ends {lost.skipped} bytes into a frame"
        else:
            kind, detail = "resynchronised", f"{lost.skipped} bytes from the {end} were passed over"
        self._pending_anomalies.append(Anomaly(kind, "connection", detail))

    def _hide(self, side: int) -> None:
        """A gap hides where frames begin."""
        if self._losses is None:
            assert self._pairing is not None
            self._losses = Losses(self._pairing, self._counts)
        if side == self._client:
            self._losses.in_requests()
        else:
            self._losses.in_responses()

    def _end(self, side: int) -> str:
        return "client" if side == self._client else "broker"

    def _count(self, gap: Gap) -> dict[str, int]:
        found = {f"kafka_{gap.reason}_bytes": gap.length, "kafka_gaps": int(gap.reason == _NEVER_CAPTURED)}
        if self._gaps is None:
            self._gaps = Counter()
        self._gaps.update(found)
        return found
