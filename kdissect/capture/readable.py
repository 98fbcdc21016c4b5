"""A capture's packets -> the same packets, up to where the capture is damaged. Holds what was wrong there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.errors import CaptureError
from kdissect.model import Lull

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kdissect.model import Packet, Stretch


class Readable:
    """The packets up to where a capture is damaged, so that what came before is dissected to its end.

    One that is damaged before its first packet raises its ``CaptureError``.

    Attributes:
        fault: what was wrong there, None where nothing was.
    """

    def __init__(self, packets: Iterable[Stretch | Packet | Lull]) -> None:
        self.fault: str | None = None
        self._latest: Stretch | Packet | None = None
        self._packets = self._until_fault(packets)

    def __iter__(self) -> Iterator[Stretch | Packet | Lull]:
        return self._packets

    def __next__(self) -> Stretch | Packet | Lull:
        return next(self._packets)

    @property
    def capture(self) -> str | None:
        """The file of the latest packet, None before the first."""
        return None if self._latest is None else self._latest.interface.capture

    def _until_fault(self, packets: Iterable[Stretch | Packet | Lull]) -> Iterator[Stretch | Packet | Lull]:
        is_empty = True
        try:
            for packet in packets:
                is_empty = False
                if not isinstance(packet, Lull):
                    self._latest = packet
                yield packet
        except CaptureError as error:
            if is_empty:
                raise
            self.fault = str(error)
