"""Facts -> exchanges that are alike, counted together: of a connection, and different only in time, size and
content.

Many tables and rules need no more of them than their number, sizes and latencies, the first few, and the
first and last time. Holds ``Limits.summary_buckets`` such counts, until they are passed on: all of them when
there are more, and those of a connection when it has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kdissect.stats.sums import initialize, own, summed
from kdissect.stats.traffic import Load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kdissect.limits import Limits
    from kdissect.model import ConnectionInfo
    from kdissect.stats.facts import Facts

FIRST = 5
"""Exchanges whose IDs are kept."""


class AlikeKeys(NamedTuple):
    """What the exchanges of a connection have in common; see ``Facts`` and ``Exchange``.

    Attributes:
        api_key: None for SASL tokens without a header, and without a request.
        group: None if it is not asked for.
        is_measured: whether the service times are known.
    """

    api: str
    api_key: int | None
    api_version: int | None
    client_id: str | None
    software: str | None
    software_version: str | None
    principal: str | None
    kind: str
    group: str | None
    has_request: bool
    has_flaw: bool
    is_measured: bool


@summed
class Alike(Load):
    """Exchanges that are alike.

    Attributes:
        connection: their connection.
        client, broker: as in ``Facts``.
        first: times and IDs of the first ``FIRST`` of them, in order.
    """

    keys: AlikeKeys = own()
    connection: ConnectionInfo = own()
    client: str = own()
    broker: str = own()
    first: list[tuple[int, str]] = own(list)

    def __init__(self, keys: AlikeKeys, facts: Facts) -> None:
        Load.__init__(self)
        initialize(self, Alike)
        self.keys, self.connection = keys, facts.exchange.connection
        self.client, self.broker = facts.client, facts.broker

    def add(self, facts: Facts) -> None:
        """Count an exchange."""
        Load.add(self, facts)
        first = self.first
        if len(first) < FIRST or facts.time_ns <= first[-1][0]:
            self.first = sorted([*first, (facts.time_ns, facts.id)])[:FIRST]


class Alikes:
    """Counts exchanges that are alike together.

    Args:
        limits: to respect.
        takers: get the counts.
        by_group: whether those of different groups differ.
    """

    def __init__(
        self, limits: Limits, takers: Iterable[Callable[[Alike], object]], *, by_group: bool = False
    ) -> None:
        self._takers = list(takers)
        self._by_group = by_group
        self._most = limits.summary_buckets
        self._counts: dict[str, dict[tuple[object, ...], Alike]] = {}  # by connection
        self._held = 0

    def feed(self, facts: Facts) -> None:
        """Count an exchange."""
        exchange = facts.exchange
        key = (
            facts.api,
            exchange.api_key,
            exchange.api_version,
            exchange.client_id,
            exchange.client_software_name,
            exchange.client_software_version,
            exchange.principal,
            exchange.kind,
            facts.group if self._by_group else None,
            exchange.request_frame is not None,
            facts.has_flaw,
            facts.service_us is not None,
        )
        connection = exchange.connection.id
        counts = self._counts.get(connection)
        if counts is None:
            counts = self._counts[connection] = {}
        alike = counts.get(key)
        if alike is None:
            alike = counts[key] = Alike(AlikeKeys(*key), facts)
            self._held += 1
        alike.add(facts)
        if self._held > self._most:
            self.settle()

    def settle(self, connection: str | None = None) -> None:
        """Pass on the counts of a connection; None: of all."""
        for each in list(self._counts) if connection is None else (connection,):
            for alike in self._counts.pop(each, {}).values():
                self._held -= 1
                for take in self._takers:
                    take(alike)
