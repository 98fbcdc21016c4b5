"""A finished dissection -> the lines for stderr that tell what was not looked at, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kdissect.cli.terminal import warn
from kdissect.sinks.phrases import many
from kdissect.sinks.shortcomings import shortcomings

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

MOST_NOTICES = 20
_CONNECTIONS = "connections: "
_KAFKA = "Kafka"
_UNRECOGNISED = "not recognised"


class Read(Protocol):
    """Captures that were read."""

    @property
    def warnings(self) -> Sequence[str]:
        """What was odd about them."""


class Dissected(Protocol):
    """What became of their packets, see ``pipeline.Dissection``."""

    @property
    def notices(self) -> Sequence[str]:
        """Sentences about connections."""

    @property
    def counts(self) -> Counter[str]:
        """What there is to count."""

    @property
    def skipped(self) -> Counter[str]:
        """Packets that were not looked at."""


def close(
    capture: Read,
    dissection: Dissected,
    *,
    shown: int,
    complete: bool,
    unmet: Callable[[], str] = str,
) -> None:
    """Write them.

    Args:
        capture: what was read.
        dissection: what became of it.
        shown: exchanges that passed the filters.
        complete: whether it was read to its end: only then is it known what a capture does not have.
        unmet: tells which names that were asked for it does not have.
    """
    for warning in capture.warnings:
        warn(f"warning: {warning}")
    for notice in dissection.notices[:MOST_NOTICES]:
        warn(notice)
    more = max(dissection.counts["notices"], len(dissection.notices)) - MOST_NOTICES
    if more > 0:
        warn(f"{more:,} more notices like these")
    for line in shortcomings(dissection.counts):
        warn(line)
    if skipped := dissection.skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in skipped.most_common())
        warn(f"{many(skipped.total(), 'packet')} not looked at: {reasons}")
    unrecognised = dissection.counts[_CONNECTIONS + _UNRECOGNISED]
    if complete and shown and unrecognised:
        said = many(unrecognised, "connection")
        warn(f"{said} not recognised; -d tcp.port==PORT,kafka takes a port for Kafka")
    if complete and not shown:
        found = dissection.counts["exchanges"]
        warn(_none_of(found, unmet()) if found else _nothing_found(dissection))


def _none_of(found: int, unmet: str) -> str:
    text = f"none of {many(found, 'exchange')} is what was asked for"
    return f"{text}: {unmet}" if unmet else text


def _nothing_found(dissection: Dissected) -> str:
    counts = dissection.counts
    if not counts["packets"]:
        return "no packets"
    protocols = [name for name in counts if name.startswith(_CONNECTIONS)]
    found = {name.removeprefix(_CONNECTIONS): counts[name] for name in protocols}
    if _KAFKA in found:
        return f"no complete request or response in {many(found[_KAFKA], 'Kafka connection')}"
    others = [f"{count:,} {name}" for name, count in found.items()]
    if count := counts["connections on other ports"]:
        others.append(f"{count:,} on other ports")
    said = f"connections: {', '.join(others)}" if others else "no TCP connection"
    text = f"no Kafka traffic ({many(counts['packets'], 'packet')}, {said})"
    could_be_kafka = found.keys() - {"TLS"}
    return f"{text}; -d tcp.port==PORT,kafka takes a port's traffic for Kafka" if could_be_kafka else text
