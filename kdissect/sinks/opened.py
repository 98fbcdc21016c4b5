"""Record data in a body -> its batches, opened, for sinks that show whole bodies. Holds which partition each
``records`` field of one message is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kdissect.analysis.carried import carried, open_carried
from kdissect.limits import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kdissect.analysis.carried import Carried, OpenBatch
    from kdissect.limits import Limits
    from kdissect.model import Exchange


class Opened(NamedTuple):
    """The record data of one message.

    Attributes:
        carried: by where it ends in the frame, which compiled code and walker agree about.
        opener: how it is opened.
    """

    carried: Mapping[int, Carried]
    opener: Opener

    def open(self, found: Carried) -> Iterator[OpenBatch]:
        """Open one of them, batch by batch."""
        return open_carried(found, self.opener.limits, show_secrets=self.opener.show_secrets)


class Opener(NamedTuple):
    """How record data is opened."""

    show_secrets: bool = False
    limits: Limits = DEFAULT

    def of(self, exchange: Exchange, *, produced: bool) -> Opened:
        """What the request carries, if clients produced it, else what the response does."""
        found = {each.records.end: each for each in carried(exchange) if each.produced == produced}
        return Opened(found, self)
