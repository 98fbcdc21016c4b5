"""Connections and exchanges as they pass by -> how much of them was captured and understood.

Holds counts: one for each protocol and kind of anomaly, for each unknown version and for each end that is not
Kafka's, of these at most ``limits.surveyed_ends``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kdissect.analysis.census import Census, Packets
from kdissect.anomalies import CATALOGUE, NOTE
from kdissect.model import ANSWERED, UNACKNOWLEDGED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kdissect.analysis.dialogue import Dialogue
    from kdissect.limits import Limits
    from kdissect.model import Closed, Exchange
    from kdissect.net.connection import Connection

Key = TypeVar("Key")

KAFKA, UNRECOGNISED = "Kafka", "not recognised"
_UNKNOWN = ("unknown_api", "unknown_version")


class Found(NamedTuple):
    """An anomaly: exchanges that have it, and the first of them as ``read --exchange`` takes it."""

    exchanges: int
    example: str


class Survey:
    """Counts what there is.

    Attributes:
        census: of the packets.
        protocols: connections by protocol.
        ends: how they ended.
        ipv6: connections over IPv6.
        from_start: Kafka connections whose SYN was captured.
        one_sided: Kafka connections of which one side alone said anything.
        unread: (protocol, end that answers) of connections that are not Kafka's.
        kinds: exchanges by kind.
        complete: exchanges of which nothing is missing.
        anomalies: by kind.
        unknown: exchanges by api key and version, where this program does not know them.
    """

    def __init__(self, limits: Limits) -> None:
        self.census = Census(limits)
        self.protocols: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.ipv6 = self.from_start = self.one_sided = 0
        self.unread: Counter[tuple[str, str]] = Counter()
        self.kinds: Counter[str] = Counter()
        self.complete = 0
        self.anomalies: dict[str, Found] = {}
        self.unknown: Counter[tuple[int, int | None]] = Counter()
        self._most = limits.surveyed_ends

    def watch(self, packets: Iterable[Packets]) -> Iterator[Packets]:
        """Let packets pass."""
        return self.census.watch(packets)

    def connection(self, connection: Connection, dialogue: Dialogue, end: Closed) -> None:
        """Take a connection that is over; of its exchanges some may still be on their way."""
        protocol = dialogue.protocol or UNRECOGNISED
        self.protocols[protocol] += 1
        self.ends[end.reason] += 1
        self.ipv6 += ":" in connection.ends[0].ip
        if protocol == KAFKA:
            self.from_start += connection.initiator is not None
            self.one_sided += not all(dialogue.heard)
            return
        answers = 1 if connection.initiator is None else 1 - connection.initiator
        if connection.initiator is None and connection.ends[0].port < connection.ends[1].port:
            answers = 0  # clients get high ports
        _count(self.unread, (protocol, str(connection.ends[answers])), self._most)

    def exchange(self, exchange: Exchange) -> None:
        """Take an exchange."""
        self.kinds[exchange.kind] += 1
        kinds = {anomaly.kind for anomaly in exchange.anomalies}
        is_told = exchange.kind in (ANSWERED, UNACKNOWLEDGED)
        self.complete += is_told and all(CATALOGUE[kind].severity == NOTE for kind in kinds)
        for kind in kinds:
            before = self.anomalies.get(kind) or Found(0, f"{exchange.connection.id}/{exchange.number}")
            self.anomalies[kind] = before._replace(exchanges=before.exchanges + 1)
        if exchange.api_key is not None and not kinds.isdisjoint(_UNKNOWN):
            _count(self.unknown, (exchange.api_key, exchange.api_version), self._most)


def _count(counter: Counter[Key], key: Key, most: int) -> None:
    if key in counter or len(counter) < most:
        counter[key] += 1
