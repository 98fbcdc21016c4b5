"""Captures -> the names of topic ids that they teach. Holds these, at most ``limits.topic_names``.

What several tasks read apart is read once before, for the sake of names alone: of messages only those are
decoded that can have both an id and a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.naming import can_teach, teachings
from kdissect.analysis.over import Over
from kdissect.capture.readable import Readable
from kdissect.capture.reader import open_capture
from kdissect.errors import CaptureError
from kdissect.kafka.bodies import decode_exchange
from kdissect.pipeline import dissect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.analysis.naming import Taught
    from kdissect.model import Exchange
    from kdissect.pipeline import Dissection
    from kdissect.spark.options import Asked


def taught_by(paths: Sequence[str], asked: Asked) -> Taught:
    """The names, and when each was taught first."""
    taught: dict[str, tuple[str, int]] = {}
    try:
        with open_capture(*paths, limits=asked.limits) as capture:
            dissection = dissect(
                Readable(capture.stretches()),
                limits=asked.limits,
                ports=asked.ports,
                kafka_ports=asked.kafka_ports,
            )
            for exchange in _teachers(dissection):
                for topic_id, name in teachings(exchange):
                    before = taught.get(topic_id)
                    if before is None and len(taught) >= asked.limits.topic_names:
                        continue
                    if before is None or exchange.completed_ns < before[1]:
                        taught[topic_id] = name, exchange.completed_ns
    except CaptureError:  # there is nothing in them; who reads them tells why
        pass
    return taught


def _teachers(dissection: Dissection) -> Iterator[Exchange]:
    """The exchanges that may teach names, decoded, as they come."""
    for items, _ in dissection.steps():
        for item in items:
            if isinstance(item, Over) or item.api_key is None or item.api_version is None:
                continue
            if can_teach(item.api_key, item.api_version):
                decode_exchange(item)
                yield item
