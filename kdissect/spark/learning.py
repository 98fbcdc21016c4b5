"""Captures -> the facts that cross connections, which several tasks that read them apart must know first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.analysis.learned import LearnedFacts
from kdissect.analysis.naming import learn
from kdissect.capture.readable import Readable
from kdissect.capture.reader import open_capture
from kdissect.errors import CaptureError
from kdissect.model import Exchange
from kdissect.pipeline import dissect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.pipeline import Dissection


def learned_from(paths: Sequence[str], **options: Any) -> LearnedFacts:
    """What captures say, read with these ``options`` of ``dissect``."""
    facts = LearnedFacts(options["limits"])
    try:
        with open_capture(*paths, limits=options["limits"]) as capture:
            learn_all(dissect(Readable(capture.stretches()), **options), facts)
    except CaptureError:  # there is nothing in them; who reads them says why
        pass
    return facts


def learn_all(dissection: Dissection, facts: LearnedFacts) -> None:
    """Take what the exchanges of a dissection say. Only those are decoded that may say anything."""
    for items, _ in dissection.steps():
        for item in items:
            if isinstance(item, Exchange):
                learn(item, facts)
