"""Slices of snapshots -> the same with whole batches in them. Holds what stands behind the last whole batch
of each snapshot until its next slice comes: ``limits.snapshot_bytes`` in all, of ``limits.snapshots``.

A broker fetches the snapshot of the metadata log in slices of 8 MiB (KIP-630), which begin and end anywhere.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from kdissect.kafka.records import RecordData
from kdissect.limits import DEFAULT

if TYPE_CHECKING:
    from kdissect.analysis.carried import Carried
    from kdissect.limits import Limits

    Key = tuple[str, str | None, int | None, tuple[int, int]]


class _Rest(NamedTuple):
    """An incomplete batch, and where in the snapshot it goes on."""

    position: int
    data: bytes


class Snapshots:
    """Joins slices, of each connection on its own."""

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._limits = limits
        self._rests: OrderedDict[Key, _Rest] = OrderedDict()
        self._held_bytes = 0

    @property
    def unfinished(self) -> int:
        """How many snapshots wait for a slice."""
        return len(self._rests)

    def join(self, found: Carried) -> Carried:
        """Put what was left of the slice before in front of this one; what is no slice stays as it is, and so
        does a slice without the one before.
        """
        if found.piece is None:
            return found
        piece = found.piece
        key = (found.exchange.connection.id, found.topic, found.partition, piece.snapshot)
        rest = self._take(key)
        if piece.position and (rest is None or rest.position != piece.position):
            return found
        records = found.records
        end = piece.position + len(records)
        if piece.position and rest is not None and rest.data:
            joined = rest.data + records.payload
            records = RecordData(joined, 0, len(joined))
        scan = records.scan()
        if end < piece.size and scan.fault is None:
            self._put(key, _Rest(end, records.data[records.end - scan.cut_off : records.end]))
        return found._replace(records=records, piece=piece._replace(position=0))

    def _take(self, key: Key) -> _Rest | None:
        rest = self._rests.pop(key, None)
        if rest is not None:
            self._held_bytes -= len(rest.data)
        return rest

    def _put(self, key: Key, rest: _Rest) -> None:
        self._rests[key] = rest
        self._held_bytes += len(rest.data)
        while self._held_bytes > self._limits.snapshot_bytes or len(self._rests) > self._limits.snapshots:
            self._take(next(iter(self._rests)))
