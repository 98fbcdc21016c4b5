"""An exchange as frames -> one with decoded bodies, and what follows from them: cluster and errors. Holds the
protocols of groups, and the budget of the exchange being decoded.

It is decoded here, whether Python or the native core has completed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.exchanges.clusters import named_cluster
from kdissect.exchanges.content import errors
from kdissect.exchanges.expected import expected_errors
from kdissect.kafka.bodies import decode_exchange
from kdissect.kafka.internal.payloads import GroupProtocols, open_payloads
from kdissect.kafka.primitives import DecodeBudget

if TYPE_CHECKING:
    from kdissect.limits import Limits
    from kdissect.model import Exchange


class Decoding:
    """Decodes exchanges.

    Args:
        limits: to respect.
        show_secrets: whether to keep credentials.

    Attributes:
        protocols: of groups.
        show_secrets: see above.
    """

    def __init__(self, limits: Limits, *, show_secrets: bool = False) -> None:
        self.protocols = GroupProtocols(limits)
        self._limits = limits
        self.show_secrets = show_secrets
        self._budget = DecodeBudget(oversized=limits.oversized_bytes)

    def decode(self, exchange: Exchange, protocols: GroupProtocols | None = None) -> None:
        """Decode headers, bodies and embedded messages, within ``limits.decoded_bytes``, and note cluster and
        errors: once for each, in order within each connection. ``protocols``: those that were known then, of
        an exchange whose bodies are decoded again.
        """
        limits, budget = self._limits, self._budget
        budget.left = limit = limits.decoded_bytes
        decode_exchange(exchange, show_secrets=self.show_secrets, budget=budget)
        if anomalies := open_payloads(exchange, protocols or self.protocols, limits, budget):
            exchange.anomalies += anomalies
        exchange.decoded_bytes = limit - budget.left
        if protocols is not None:
            return
        info = exchange.connection
        if info.cluster_id is None:
            info.cluster_id = named_cluster(exchange)
        exchange.cluster_id = info.cluster_id
        exchange.errors = names = errors(exchange)
        if names:
            exchange.expected_errors = expected_errors(exchange, names)
