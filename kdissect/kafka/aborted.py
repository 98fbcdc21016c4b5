"""The aborted transactions of a Fetch response -> whether each of its batches is hidden by one.

A response to a consumer that reads committed records only names, per partition, producer ids with the offset
where a transaction began that was aborted (KIP-98). All transactional batches of the producer from there on
belong to it, up to the producer's abort marker. Holds what the response tells of one partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kdissect.kafka.batches import Batch

_ABORT = "ABORT"


class AbortedTransactions:
    """Feed it the batches of the partition, in order.

    Args:
        told: ``aborted_transactions`` as decoded.
    """

    def __init__(self, told: Iterable[Mapping[str, int]]) -> None:
        pairs = ((each.get("first_offset", 0), each.get("producer_id", -1)) for each in told)
        self._waiting = sorted(pairs, reverse=True)
        self._open: set[int | None] = set()

    def hide(self, batch: Batch) -> bool:
        """Whether the records of the next batch are hidden."""
        while self._waiting and self._waiting[-1][0] <= batch.last_offset:
            self._open.add(self._waiting.pop()[1])
        if batch.producer_id not in self._open:
            return False
        if any(control.type == _ABORT for control in batch.controls):
            self._open.discard(batch.producer_id)
        return batch.transactional and not batch.control
