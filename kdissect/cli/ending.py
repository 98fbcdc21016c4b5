"""Ctrl-C, SIGTERM, a time that is over -> the end of what is ongoing. Holds which signal it was."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from kdissect.capture.ongoing import Ongoing


class Ending:
    """Ctrl-C and SIGTERM -> the end of a capture, so that what was captured is shown and counted. The second
    time it ends at once.

    Args:
        ongoing: what is captured.
        again: ends it the second time; by KeyboardInterrupt unless something else is said.

    Attributes:
        signal: which it was; None: none yet.
    """

    def __init__(
        self, ongoing: Ongoing, again: Callable[[int, FrameType | None], object] = signal.default_int_handler
    ) -> None:
        self.signal: int | None = None
        self._ongoing = ongoing
        self._again = again

    @contextmanager
    def waited_for(self, duration_ns: int | None) -> Iterator[None]:
        """Be ready for them, and end after some time where that is given."""
        before = {number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM)}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, lambda *_: self._ongoing.stop())
        if duration_ns is not None:
            signal.setitimer(signal.ITIMER_REAL, duration_ns / 1_000_000_000)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            self._again(number, frame)
            return
        self.signal = number
        self._ongoing.stop()
